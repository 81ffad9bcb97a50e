"""What an evaluation calibrates from: which samples, in which draws, and whether they leak."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lookright.benchmarks.folder import Benchmark, read_benchmark
from lookright.calibration import Calibration
from lookright.errors import InputError
from lookright.evaluation import Origin
from lookright.gather import Progress, contents_of
from lookright.instance import Instance
from lookright.job import Job, Saved
from lookright.methods import METHODS
from lookright.samples import all_samples
from lookright.settings import EvidenceSettings


@dataclass(frozen=True)
class Samples:
    """Draws of labelled samples to calibrate from, and the folder their evidence is kept in."""

    benchmark: Benchmark
    pool: Sequence[Instance]  # all there are to draw from
    contents: Mapping[str, str]  # by id
    folder: Path
    draws: tuple[tuple[Instance, ...], ...]


def origin_of(benchmark: Benchmark) -> Origin:
    setting = benchmark.meta.get("setting")
    name = benchmark.path.resolve().name
    return Origin(name, setting if isinstance(setting, str) else None)


def candidates(instances: Sequence[Instance], where: str) -> int:
    """The number of images of every instance, once it is sure that all of them can be scored."""
    n = len(instances[0].images)
    for instance in instances:
        if len(instance.images) != n:
            raise InputError(
                f"{where}: {instances[0].id!r} has {n} images and {instance.id!r} "
                f"{len(instance.images)}; evaluate one number of candidates at a time"
            )
        if instance.answer is None:
            raise InputError(
                f"{where}: the answer of {instance.id!r} is not known; figures need labelled "
                "instances"
            )
    return n


def samples_for(
    job: Job,
    own: Benchmark,
    contents: Mapping[str, str],
    wording: EvidenceSettings,
    folder: Path,
    n: int,
    hashed: Callable[[str], str],
    progress: Progress,
) -> Samples:
    """Draw d is the rows d * samples to (d + 1) * samples - 1 of what there is to calibrate from.

    Samples of another benchmark are asked in the evaluated one's settings; their evidence has a
    folder of its own, which benchmarks of equal settings share.
    """
    benchmark = own
    if isinstance(job.calibration, Path):
        benchmark, _ = read_benchmark(job.calibration, allow_leak=job.allow_leak)
        folder = job.folder / f"calibration-{benchmark.path.resolve().name}-{wording.hash[:8]}"
        kept = all_samples(benchmark)
        contents = contents_of(kept, hashed, progress)
    else:
        kept = own.calibration
        if not kept:
            needing = ", ".join(method for method in job.names if METHODS[method].calibrated)
            raise InputError(
                f"{own.path}: has no calibration.jsonl, which is needed for {needing}; name "
                "another benchmark's folder or a saved calibration with --calibration"
            )
    count = min(job.draws, len(kept) // job.samples)
    if count == 0:
        raise InputError(
            f"{benchmark.path}: has {len(kept)} samples to calibrate from, and {job.samples} are "
            f"asked for; say --samples {len(kept)}"
        )
    used = kept[: count * job.samples]
    found = candidates(used, f"{benchmark.path}, samples to calibrate from")
    if found != n:
        raise InputError(
            f"{benchmark.path}: its samples to calibrate from have {found} images, and {n} are "
            f"evaluated; calibrate from samples of {n}"
        )
    draws = [used[d * job.samples : (d + 1) * job.samples] for d in range(count)]
    return Samples(benchmark, kept, contents, folder, tuple(map(tuple, draws)))


def saved_for(saved: Saved, n: int, preset: str) -> Calibration:
    if n not in saved.calibrations:
        held = " or ".join(map(str, sorted(saved.calibrations)))
        raise InputError(f"{saved.path}: is for {held} candidates, and {n} are evaluated")
    calibration = saved.calibrations[n]
    if calibration.preset != preset:
        raise InputError(
            f"{saved.path}: was made with preset {calibration.preset}, not {preset}; say "
            f"--preset {calibration.preset}"
        )
    return calibration


def leak_of(
    instances: Sequence[Instance],
    samples: Samples | None,
    saved: Calibration | None,
    hashed: Callable[[str], str],
) -> str | None:
    """What is both calibrated on and evaluated, in words."""
    used = [i for draw in samples.draws for i in draw] if samples is not None else []
    names = {sample.id for sample in used} | set(saved.samples if saved is not None else ())
    images = {hashed(str(image)): sample.id for sample in used for image in sample.images}
    for instance in instances:
        if instance.id in names:
            return f"{instance.id!r} is both calibrated on and evaluated"
        for image in instance.images:
            if sample := images.get(hashed(str(image))):
                return f"an image of {instance.id!r} is also one of the sample {sample!r}"
    return None
