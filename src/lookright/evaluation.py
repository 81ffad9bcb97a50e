"""What is evaluated on what: evidence, and the samples drawn to calibrate for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count

from lookright.calibration import Calibration
from lookright.errors import InputError
from lookright.evidence import EvidenceArray
from lookright.recordings import Recording, instance_range
from lookright.settings import EvidenceSettings

#: How many samples a calibration has, and how many are drawn where there are more to draw from.
SAMPLES = 5
DRAWS = 5


@dataclass(frozen=True)
class Origin:
    """Where evidence comes from, as far as it is known."""

    benchmark: str | None = None
    setting: str | None = None
    settings: EvidenceSettings | None = None
    leaks: bool = False  # whether samples to calibrate from are also evaluated, as was allowed


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What is scored: evidence to evaluate, the same instances' shifts, and calibration samples.

    `shifts` and `pool` hold the N cyclic orders; the pool's instances are never evaluated. Ready
    calibrations, one for each draw, are used instead of drawing from a pool.
    """

    evaluated: EvidenceArray  # [T, M, ...]
    shifts: EvidenceArray | None = None  # [N, M, ...]
    pool: EvidenceArray | None = None  # [N, samples to draw from, ...]
    origin: Origin = Origin()
    pool_origin: Origin = Origin()
    calibrations: tuple[Calibration, ...] = ()


def evaluation_of(
    recording: Recording, calibration: str | None, instances: str | None
) -> Evaluation:
    """A recording with its calibration samples and its evaluated instances, both given as slices.

    Without `calibration`, the samples it has for that, else its first 5 instances if there are
    cyclic orders; without `instances`, all with evaluated orders that are not among the samples.
    """
    ids, total = recording.ids, len(recording.ids)
    samples: Sequence[str] = recording.calibration or (ids[:SAMPLES] if recording.cyclic else ())
    if calibration is not None:
        samples = [ids[m] for m in instance_range(calibration, total)]
    kept = set(samples)
    evaluated: Sequence[str] = [n for n in recording.evaluated.instance_ids if n not in kept]
    if instances is not None:
        evaluated = [ids[m] for m in instance_range(instances, total)]
    if not evaluated:
        raise InputError(f"{recording.name}: every instance is a calibration sample")
    if shared := [name for name in evaluated if name in kept]:
        raise InputError(
            f"instance {shared[0]!r} is to be calibrated on and evaluated: leave it out of one, "
            "with --calibration-instances or --instances"
        )
    origin = Origin(recording.name, recording.setting, recording.settings)
    return Evaluation(
        evaluated=_of(recording.evaluated, evaluated, f"{recording.name}: the evaluated orders"),
        shifts=_if_there(recording.cyclic, evaluated),
        pool=_if_there(recording.cyclic, samples),
        origin=origin,
        pool_origin=origin,
    )


def _of(evidence: EvidenceArray, names: Sequence[str], what: str) -> EvidenceArray:
    place = {name: index for index, name in enumerate(evidence.instance_ids)}
    if missing := [name for name in names if name not in place]:
        raise InputError(f"{what} are not there for instance {missing[0]!r}")
    return evidence.take(instances=[place[name] for name in names])


def _if_there(cyclic: EvidenceArray | None, names: Sequence[str]) -> EvidenceArray | None:
    """The cyclic orders of these instances, where all of them have them."""
    if cyclic is None or not {*names} <= {*cyclic.instance_ids}:
        return None
    return _of(cyclic, names, "the cyclic orders")


def draw(pool: int, samples: int, draws: int | None = None, seed: int = 0) -> list[list[int]]:
    """Different subsets of `samples` of the pool: the same for the same seed, on every platform.

    All of the pool, once, where it holds no more than that.
    """
    if pool <= samples:
        return [list(range(pool))]
    wanted = min(DRAWS if draws is None else draws, math.comb(pool, samples))
    found: dict[tuple[int, ...], None] = {}
    for attempt in count():
        if len(found) == wanted:
            break
        lots = [_number(seed, attempt, sample) for sample in range(pool)]
        shuffled = sorted(range(pool), key=lots.__getitem__)
        found.setdefault(tuple(sorted(shuffled[:samples])))
    return [list(chosen) for chosen in found]


def _number(*key: int) -> bytes:
    """As good as random, and the same everywhere."""
    return sha256("/".join(map(str, key)).encode()).digest()
