"""What an evaluation asks of a model: all that is known, or refused, before one is loaded.

The windows of a plan follow from the benchmark, the orders and the settings alone, never from what
is saved already, so that an interrupted evaluation ends as an uninterrupted one does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lookright.baselines import BASELINES
from lookright.benchmarks.folder import Benchmark, read_benchmark
from lookright.calibrating import Samples, candidates, leak_of, origin_of, samples_for, saved_for
from lookright.calibration import Calibration
from lookright.collect import Question, Window, questions_of, windows_of
from lookright.errors import InputError
from lookright.evaluation import Origin
from lookright.gather import Progress, contents_of, facts_of, listing_of, wording_for
from lookright.identifiers import identifiers_for
from lookright.images import content_hash
from lookright.instance import Instance, Order
from lookright.job import Job, Saved
from lookright.methods import METHODS
from lookright.runs import NAME as RUN
from lookright.scoring import Variant, variants
from lookright.settings import EvidenceSettings


@dataclass(frozen=True)
class Part:
    """What is asked into one folder, and what that folder is of (see `runs.Subject`)."""

    folder: Path
    facts: Mapping[str, Any]
    listing: Mapping[str, Mapping[str, tuple[str, int | None]]]
    windows: tuple[Window, ...]
    request: Mapping[str, Any]

    @property
    def questions(self) -> list[Question]:
        return [question for window in self.windows for question in window]


@dataclass(frozen=True)
class Plan:
    """The evaluation of one benchmark."""

    benchmark: Benchmark
    wording: EvidenceSettings
    n: int
    instances: tuple[Instance, ...]  # to evaluate
    contents: Mapping[str, str]  # by id
    folder: Path
    shown: tuple[Question, ...]  # the instances in the orders to evaluate
    shifts: tuple[Question, ...]  # the same instances in their cyclic orders, where needed
    variants: tuple[Variant, ...]
    samples: Samples | None
    saved: Calibration | None
    calibration: Origin
    parts: tuple[Part, ...]
    notes: tuple[str, ...]

    @property
    def origin(self) -> Origin:
        return origin_of(self.benchmark)

    @property
    def calibration_questions(self) -> list[list[Question]]:
        """The cyclic orders of the samples, draw by draw."""
        if self.samples is None:
            return []
        return [
            questions_of(draw, self.samples.contents, ["cyclic"]) for draw in self.samples.draws
        ]


def planned(job: Job, progress: Progress) -> list[Plan]:
    """The plans of a job, one for each benchmark."""
    names = [path.resolve().name for path in job.benchmarks]
    if len(set(names)) < len(names):
        twin = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two benchmarks are called {twin!r}; give their folders other names")
    if len(names) > 1 and (job.folder / RUN).exists():
        raise InputError(
            f"{job.folder}: holds the run of one benchmark; choose another folder for several"
        )
    of_baselines = {name: given for name, given in job.given.items() if name in BASELINES}
    for name in dict.fromkeys((*job.baselines, *of_baselines)):
        BASELINES[name].parameters(job.preset, of_baselines.get(name))
        if name not in job.baselines:
            raise InputError(f"parameters are given for {name}, which is not among the methods")
    of_methods = {name: given for name, given in job.given.items() if name not in BASELINES}
    wanted = variants(job.names, of_methods, job.samples)
    for variant in wanted:
        if METHODS[variant.method].parameters(job.preset, variant.given).get("orders") == "all":
            raise InputError(
                f"{variant.method}.orders=all: an evaluation takes the cyclic shifts of one order; "
                "for those of all orders, use `lookright evidence --orders all` and "
                "`lookright score`"
            )
    hashed = cache(content_hash)
    return [_plan(job, path, tuple(wanted), hashed, progress) for path in job.benchmarks]


def _plan(
    job: Job,
    path: Path,
    wanted: tuple[Variant, ...],
    hashed: Callable[[str], str],
    progress: Progress,
) -> Plan:
    benchmark, _ = read_benchmark(path, allow_leak=job.allow_leak)
    wording = wording_for(benchmark, job.preset, job.changes)
    instances = benchmark.instances[: job.limit]
    n = candidates(instances, f"{path}")
    identifiers_for(wording.identifiers, n)
    for name in job.baselines:
        BASELINES[name].check(instances)
    contents = contents_of(benchmark.instances, hashed, progress)
    own = contents_of(benchmark.calibration, hashed, progress)
    listing = {
        **listing_of({"calibration": benchmark.calibration}, own),
        **listing_of({"instances": benchmark.instances}, contents),
    }
    folder = job.folder
    if len(job.benchmarks) > 1 or (folder / path.resolve().name / RUN).exists():
        folder = folder / path.resolve().name

    shown = questions_of(instances, contents, [job.spec], job.seed)
    over_shifts = any(METHODS[variant.method].over_shifts for variant in wanted)
    shifts = questions_of(instances, contents, ["cyclic"]) if over_shifts else []
    samples, saved, calibration = None, None, Origin()
    if any(METHODS[variant.method].calibrated for variant in wanted):
        if isinstance(job.calibration, Saved):
            saved = saved_for(job.calibration, n, job.preset)
            calibration = Origin(job.calibration.path.name)
        else:
            samples = samples_for(job, benchmark, own, wording, folder, n, hashed, progress)
            calibration = origin_of(samples.benchmark)
    leak = leak_of(instances, samples, saved, hashed)
    if leak and not job.allow_leak:
        raise InputError(f"{path}: {leak}; calibrate from others, or say --allow-leak")
    return Plan(
        benchmark=benchmark,
        wording=wording,
        n=n,
        instances=instances,
        contents=contents,
        folder=folder,
        shown=tuple(shown),
        shifts=tuple(shifts),
        variants=wanted,
        samples=samples,
        saved=saved,
        calibration=Origin(calibration.benchmark, calibration.setting, leaks=leak is not None),
        parts=_parts(job, benchmark, listing, folder, shown, shifts, samples, hashed),
        notes=tuple(_notes(job, n, shown, len(instances), samples, leak)),
    )


def _parts(
    job: Job,
    benchmark: Benchmark,
    listing: Mapping[str, Mapping[str, tuple[str, int | None]]],
    folder: Path,
    shown: Sequence[Question],
    shifts: Sequence[Question],
    samples: Samples | None,
    hashed: Callable[[str], str],
) -> tuple[Part, ...]:
    """The samples come first, each draw in windows of its own, so that more draws change none."""
    seen: set[tuple[str, Order]] = set()

    def windows(questions: Sequence[Question]) -> list[Window]:
        new: dict[tuple[str, Order], Question] = {}
        for question in questions:
            if (question.content, question.order) not in seen:
                new.setdefault((question.content, question.order), question)
        seen.update(new)
        return windows_of(new.values())

    request = {"command": "evaluate", "orders": [job.spec], "seed": job.seed}
    asked: list[Window] = []
    parts: list[Part] = []
    if samples is not None:
        for draw in samples.draws:
            asked += windows(questions_of(draw, samples.contents, ["cyclic"]))
        if samples.folder != folder:
            facts = facts_of(samples.benchmark, hashed)
            listed = listing_of({"calibration": samples.pool}, samples.contents)
            about = request | {"part": "calibration", "orders": ["cyclic"]}
            parts.append(Part(samples.folder, facts, listed, tuple(asked), about))
            asked, seen = [], set()
    if job.names:
        asked += [*windows(shown), *windows(shifts)]
    about = request | {"part": "both"}
    parts.append(Part(folder, facts_of(benchmark, hashed), listing, tuple(asked), about))
    return tuple(parts)


def _notes(
    job: Job,
    n: int,
    shown: Sequence[Question],
    instances: int,
    samples: Samples | None,
    leak: str | None,
) -> list[str]:
    """What a person should know beside the figures."""
    notes = []
    orders = len(shown) // instances
    if job.orders.isdigit() and orders < int(job.orders):
        notes.append(f"{n} images have {orders} orders, so each instance is shown in {orders}")
    if samples is not None and len(samples.draws) < job.draws:
        notes.append(
            f"{samples.benchmark.path} holds {len(samples.pool)} samples to calibrate from: "
            f"{len(samples.draws)} draw{'s' if len(samples.draws) != 1 else ''} of {job.samples}, "
            f"not {job.draws}"
        )
    if leak:
        notes.append(f"{leak}: the figures of calibrated methods are too good")
    return notes
