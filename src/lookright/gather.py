"""From a benchmark to a run folder: the evidence that is not there yet is computed and saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from lookright.benchmarks.folder import Benchmark, benchmark_hash, read_benchmark
from lookright.collect import Question, Source, collect, missing, questions_of
from lookright.errors import InputError
from lookright.evidence import instance_hash
from lookright.images import content_hash
from lookright.instance import Instance
from lookright.runs import Subject, begin, finish, refuse_other_settings
from lookright.settings import EvidenceSettings
from lookright.store import Store

#: Shows how far a piece of work is: (what it is, how many steps) -> what to call after some.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


#: What may be asked -> the parts of a benchmark that are; those to calibrate from come first.
PARTS = {
    "instances": ("instances",),
    "calibration": ("calibration",),
    "both": ("calibration", "instances"),
}


@dataclass(frozen=True)
class Request:
    """Evidence wanted: which instances of a benchmark in which orders, and into which folder."""

    benchmark: Path
    folder: Path
    orders: tuple[str, ...] = ("cyclic",)
    part: str = "instances"
    limit: int | None = None  # at most so many instances of each part
    seed: int = 0
    preset: str = "paper"
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the preset's settings
    heads: bool = False
    maps: int = 0  # keep the maps of the first so many evaluated instances
    resume: bool = True
    keep_going: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a request."""

    settings: str
    asked: int  # (instance, order) pairs
    present: int  # of them saved already
    computed: int
    skipped: tuple[str, ...]  # a sentence for each line or instance that could not be used
    seconds: float

    def as_text(self) -> str:
        lines = [
            f"{self.asked:,} questions: {self.computed:,} computed in {self.seconds:,.0f} s, "
            f"{self.present:,} were there already"
        ]
        if self.skipped:
            lines += [f"{len(self.skipped):,} could not be used:", *self.skipped]
        return "\n".join(lines)


def gather(
    request: Request,
    load: Callable[[], Source],
    progress: Progress,
    versions: Callable[[], Mapping[str, Any]],
) -> Outcome:
    """Answer a request: the evidence that is not in its folder yet, computed and saved.

    The model is loaded once everything else is known to be in order.
    """
    started = time.monotonic()
    plan = _planned(request, progress)
    source = load()
    settings = source.settings(plan.wording)
    store = Store(request.folder)
    _check_folder(request, store, settings)
    store.compact()
    saved = {content for content, *_ in store.keys(settings.hash)}
    present = {
        maps: store.keys(settings.hash, heads=request.heads, maps=maps) for maps in (False, True)
    }
    todo = missing(plan.questions, settings.hash, present)
    run = begin(
        request.folder,
        Subject(settings, plan.facts, plan.listing),
        {question.instance.id for question in plan.questions},
        saved,
        {"request": _plain(request), "versions": dict(versions()), "asked": len(plan.questions)},
    )
    skip = plan.skipped if request.keep_going else None
    computed = 0
    try:
        with progress("Evidence", len(todo)) as plan.skipped.step:
            for count in collect(source, todo, store, settings, heads=request.heads, skip=skip):
                computed += count
                plan.skipped.step(count)
    finally:
        seconds = round(time.monotonic() - started, 3)
        ended = {"computed": computed, "skipped": plan.skipped.reasons, "seconds": seconds}
        finish(request.folder, run, ended)
    store.compact()
    return Outcome(
        settings=settings.hash,
        asked=len(plan.questions),
        present=len(plan.questions) - len(todo),
        computed=computed,
        skipped=tuple(plan.skipped.reasons),
        seconds=seconds,
    )


class _Skipped:
    """Called for every question that cannot be asked; keeps one reason for each instance."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = list(reasons)
        self.step: Callable[[int], None] = lambda _: None
        self._ids: set[str] = set()

    def __call__(self, instance: Instance, error: InputError) -> None:
        self.step(1)
        if instance.id not in self._ids:
            self._ids.add(instance.id)
            self.reasons.append(f"{instance.id}: {error}")


@dataclass(frozen=True)
class _Plan:
    """What is to be asked, as far as that is known without the model."""

    wording: EvidenceSettings
    facts: Mapping[str, Any]  # about the benchmark
    listing: Mapping[str, Mapping[str, tuple[str, int | None]]]  # all of it, see `Subject`
    questions: Sequence[Question]
    skipped: _Skipped


def _planned(request: Request, progress: Progress) -> _Plan:
    if request.part not in PARTS:
        raise InputError(f"unknown part {request.part!r}: use {', '.join(PARTS)}")
    benchmark, problems = read_benchmark(request.benchmark, request.keep_going)
    # The benchmark's identifiers hold unless the request names others.
    preset = EvidenceSettings.preset(request.preset, identifiers=benchmark.identifiers)
    wording = EvidenceSettings.from_dict({**preset.to_dict(), **request.changes})
    skipped = _Skipped(problems)
    hashed = cache(content_hash)
    contents = _contents(benchmark, hashed, progress, skipped if request.keep_going else None)
    benchmark = replace(
        benchmark,
        instances=tuple(i for i in benchmark.instances if i.id in contents),
        calibration=tuple(i for i in benchmark.calibration if i.id in contents),
    )
    parts = {"calibration": benchmark.calibration, "instances": benchmark.instances}
    questions: list[Question] = []
    for part in PARTS[request.part]:
        asked = parts[part][: request.limit]
        if not asked:
            raise InputError(f"{request.benchmark}: has no {part} to ask; choose another part")
        maps = request.maps if part == "instances" else 0
        questions += questions_of(asked, contents, request.orders, request.seed, maps)
    facts = {
        "path": str(request.benchmark),
        "hash": benchmark_hash(benchmark, hashed),
        "meta": dict(benchmark.meta),
    }
    listing = {
        part: {i.id: (contents[i.id], i.answer) for i in instances}
        for part, instances in parts.items()
    }
    return _Plan(wording, facts, listing, questions, skipped)


def _contents(
    benchmark: Benchmark, hashed: Callable[[str], str], progress: Progress, skip: _Skipped | None
) -> dict[str, str]:
    """The content hashes of all instances by id, without those skipped."""
    contents: dict[str, str] = {}
    instances = (*benchmark.calibration, *benchmark.instances)
    with progress("Images", len(instances)) as step:
        for instance in instances:
            try:
                images = [hashed(str(image)) for image in instance.images]
                contents[instance.id] = instance_hash(instance, images)
            except InputError as error:
                if skip is None:
                    raise
                skip(instance, error)
            step(1)
    return contents


def _check_folder(request: Request, store: Store, settings: EvidenceSettings) -> None:
    held = store.settings()
    if held and not request.resume:
        raise InputError(
            f"{request.folder}: holds evidence already; choose another folder, or let this run go "
            "on from there (without --no-resume)"
        )
    for other in held.values():
        refuse_other_settings(request.folder, other, settings)


def _plain(request: Request) -> dict[str, Any]:
    """As JSON."""
    values = asdict(request)
    return values | {"benchmark": str(request.benchmark), "folder": str(request.folder)}
