"""Finished evaluations beside each other: differences on the instances they share, in pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.errors import InputError, shown
from lookright.methods import suggestion
from lookright.metrics import paired_shares
from lookright.runner import DECISIONS, FORMAT
from lookright.settings import EvidenceSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What the methods of one run are compared with, unless another is named.
BASE = "vanilla"


@dataclass(frozen=True, eq=False)
class Decided:
    """How often each method of a run was right about each instance of one benchmark."""

    run: Path
    benchmark: str
    setting: str | None
    n: int
    orders: str
    settings: EvidenceSettings
    answers: Mapping[str, int]  # of each instance, by its content hash
    right: Mapping[str, Mapping[str, float]]  # method -> content hash -> share of the decisions
    made: Mapping[str, Mapping[str, Any]]  # method -> with which preset, parameters, calibration


@dataclass(frozen=True)
class Difference:
    """How much more often one is right than the other, on the same instances; in points."""

    benchmark: str
    setting: str | None
    n: int
    instances: int
    method: str
    run: str
    accuracy: float
    against_method: str
    against_run: str
    against_accuracy: float
    difference: float
    interval: tuple[float, float]  # 95%, instances resampled

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return not self.interval[0] <= 0 <= self.interval[1]


@dataclass(frozen=True)
class Comparison:
    """Differences, and what else differs between the runs."""

    rows: tuple[Difference, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"rows": [asdict(row) for row in self.rows], "notes": list(self.notes)}


def compare(folders: Sequence[Path], base: str | None = None) -> Comparison:
    """Each method of the later runs less the same method of the first.

    With `base`, every method of every run less that method of the first; so also for one run, where
    `base` is vanilla unless another is named.
    """
    names = [folder.resolve() for folder in folders]
    if twins := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{twins[0]}: is named twice; a run does not differ from itself")
    runs = [read_decisions(folder) for folder in folders]
    if base is None and len(runs) == 1:
        base = BASE
    others = runs if base is not None else runs[1:]
    rows: list[Difference] = []
    notes: list[str] = []
    for run in others:
        pairs = [(one, two) for one in run for two in runs[0] if _share(one, two)]
        if not pairs:
            raise InputError(
                f"{run[0].run} and {runs[0][0].run} have no instance in common "
                f"({_evaluated(run)} against {_evaluated(runs[0])}); compare runs on one benchmark"
            )
        for one, two in pairs:
            found = list(_differences(one, two, base))
            if not found and one is not two:
                raise InputError(
                    f"{one.run} and {two.run} have no method in common ({', '.join(one.right)} "
                    f"against {', '.join(two.right)}); name one to compare with, by --base"
                )
            rows += found
            if one.run != two.run:
                notes += _also(one, two, base)
    return Comparison(tuple(rows), tuple(dict.fromkeys(notes)))


def read_decisions(folder: Path) -> list[Decided]:
    """What a finished evaluation saved about every decision, benchmark by benchmark."""
    path = folder / DECISIONS
    if not path.is_file():
        raise InputError(
            f"{shown(str(path))}: is not there; `lookright evaluate` writes it when it ends"
        )
    try:
        saved = json.loads(path.read_bytes())
        if saved["format"] > FORMAT:
            raise InputError(f"{path}: was written by a newer lookright; update lookright")
        found = [_decided(folder, record) for record in saved["benchmarks"]]
        if not found:
            raise ValueError("no benchmark")
    except InputError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path}: cannot be read ({type(error).__name__}: {shown(str(error))}); run the same "
            "`lookright evaluate` again, which asks nothing twice"
        ) from None
    return found


def _decided(folder: Path, record: Mapping[str, Any]) -> Decided:
    contents = [str(content) for _, content, _ in record["instances"]]
    right: dict[str, dict[str, float]] = {}
    for row in record["rows"]:
        shares = [float(share) for share in row["right"]]
        right[str(row["method"])] = dict(zip(contents, shares, strict=True))
    seed = record["seed"]
    return Decided(
        run=folder,
        benchmark=str(record["benchmark"]),
        setting=record["setting"],
        n=int(record["n"]),
        orders=f"{record['orders']}, seed {seed}",
        settings=EvidenceSettings.from_dict(record["settings"]),
        answers={str(content): int(answer) for _, content, answer in record["instances"]},
        right=right,
        made={
            str(row["method"]): {k: row[k] for k in ("preset", "parameters", "calibration")}
            for row in record["rows"]
        },
    )


def _share(one: Decided, two: Decided) -> bool:
    return not one.answers.keys().isdisjoint(two.answers)


def _evaluated(run: Sequence[Decided]) -> str:
    return " and ".join(f"{one.benchmark}, N = {one.n}" for one in run)


def _differences(one: Decided, two: Decided, base: str | None) -> Iterator[Difference]:
    """Of the methods of `one` against those of `two`."""
    if base is not None and base not in two.right:
        raise InputError(
            f"{two.run}: has no figures of {shown(base)!r} to compare with"
            + suggestion(base, two.right, "it has none")
        )
    shared = [content for content in one.answers if content in two.answers]
    for content in shared:
        if one.answers[content] != two.answers[content]:
            raise InputError(
                f"{one.run} and {two.run} do not agree on an answer ({one.answers[content]} "
                f"against {two.answers[content]} for the instance of content {content}); compare "
                "runs on one benchmark"
            )
    for method in one.right:
        against = method if base is None else base
        if against not in two.right or (one is two and method == against):
            continue
        first, second = _shares(one.right[method], shared), _shares(two.right[against], shared)
        difference, interval = paired_shares(first, second)
        yield Difference(
            benchmark=one.benchmark,
            setting=one.setting,
            n=one.n,
            instances=len(shared),
            method=method,
            run=str(one.run),
            accuracy=float(100 * first.mean()),
            against_method=against,
            against_run=str(two.run),
            against_accuracy=float(100 * second.mean()),
            difference=difference,
            interval=interval,
        )


def _shares(right: Mapping[str, float], contents: Sequence[str]) -> NDArray[np.float64]:
    return np.array([right[content] for content in contents])


def _also(one: Decided, two: Decided, base: str | None) -> Iterator[str]:
    """What differs between two runs beside their figures."""
    pair = f"{one.run} against {two.run}"
    if one.benchmark != two.benchmark:
        yield f"{pair}: benchmark: {one.benchmark!r} against {two.benchmark!r}"
    if one.orders != two.orders:
        yield f"{pair}: orders: {one.orders} against {two.orders}"
    for difference in one.settings.differences(two.settings):
        yield f"{pair}: {difference}"
    for method in one.made:
        if base is None and method in two.made:
            for name, value in one.made[method].items():
                other = two.made[method][name]
                if value != other:
                    yield f"{pair}: {method}, {name}: {value} against {other}"
