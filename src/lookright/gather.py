"""From a benchmark to a run folder: the evidence that is not there yet is computed and saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from lookright.benchmarks.folder import Benchmark, benchmark_hash, read_benchmark
from lookright.collect import Question, Source, collect, missing, questions_of
from lookright.errors import InputError, shown, told
from lookright.evidence import instance_hash
from lookright.images import content_hash
from lookright.instance import Instance
from lookright.runs import Subject, entered, refuse_other_settings
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
    plan = _planned(request, progress)
    source = load()
    settings = source.settings(plan.wording)
    store = Store(request.folder)
    if not request.resume and store.settings():
        raise InputError(
            f"{request.folder}: holds evidence already; choose another folder, or let this run go "
            "on from there (without --no-resume)"
        )
    check_folder(store, settings)
    store.compact()
    saved = {content for content, *_ in store.keys(settings.hash)}
    present = {
        maps: store.keys(settings.hash, heads=request.heads, maps=maps) for maps in (False, True)
    }
    todo = missing(plan.questions, settings.hash, present)
    skip = plan.skipped if request.keep_going else None
    with entered(
        request.folder,
        Subject(settings, plan.facts, plan.listing),
        {question.instance.id for question in plan.questions},
        saved,
        {"request": _plain(request), "versions": dict(versions()), "asked": len(plan.questions)},
    ) as outcome:
        outcome |= {"computed": 0, "skipped": plan.skipped.reasons}
        with progress("Evidence", len(todo)) as plan.skipped.step:
            for count in collect(source, todo, store, settings, heads=request.heads, skip=skip):
                outcome["computed"] += count
                plan.skipped.step(count)
    store.compact()
    return Outcome(
        settings=settings.hash,
        asked=len(plan.questions),
        present=len(plan.questions) - len(todo),
        computed=outcome["computed"],
        skipped=tuple(plan.skipped.reasons),
        seconds=outcome["seconds"],
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
            self.reasons.append(told(f"{instance.id}: {error}"))


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
        raise InputError(f"unknown part {shown(repr(request.part))}: use {', '.join(PARTS)}")
    benchmark, problems = read_benchmark(request.benchmark, request.keep_going)
    wording = wording_for(benchmark, request.preset, request.changes)
    skipped = _Skipped([told(problem) for problem in problems])
    hashed = cache(content_hash)
    every = (*benchmark.calibration, *benchmark.instances)
    contents = contents_of(every, hashed, progress, skipped if request.keep_going else None)
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
    facts = facts_of(benchmark, hashed)
    return _Plan(wording, facts, listing_of(parts, contents), questions, skipped)


def wording_for(benchmark: Benchmark, preset: str, changes: Mapping[str, Any]) -> EvidenceSettings:
    """The preset's settings with changes; the benchmark's identifiers, unless those name others."""
    base = EvidenceSettings.preset(preset, identifiers=benchmark.identifiers)
    return EvidenceSettings.from_dict({**base.to_dict(), **changes})


def facts_of(benchmark: Benchmark, hashed: Callable[[str], str]) -> dict[str, Any]:
    """What a run folder keeps of its benchmark."""
    return {
        "path": str(benchmark.path),
        "hash": benchmark_hash(benchmark, hashed),
        "meta": dict(benchmark.meta),
    }


def listing_of(
    parts: Mapping[str, Sequence[Instance]], contents: Mapping[str, str]
) -> dict[str, dict[str, tuple[str, int | None]]]:
    """The instances of each part, as `Subject` has them."""
    return {
        part: {i.id: (contents[i.id], i.answer) for i in instances}
        for part, instances in parts.items()
    }


def contents_of(
    instances: Sequence[Instance],
    hashed: Callable[[str], str],
    progress: Progress,
    skip: _Skipped | None = None,
) -> dict[str, str]:
    """The content hashes of instances by id, without those skipped."""
    contents: dict[str, str] = {}
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


def check_folder(store: Store, settings: EvidenceSettings) -> None:
    """Refuse a folder with evidence of other settings, saying what differs."""
    for other in store.settings().values():
        refuse_other_settings(store.folder, other, settings)


def _plain(request: Request) -> dict[str, Any]:
    """As JSON."""
    values = asdict(request)
    return values | {"benchmark": str(request.benchmark), "folder": str(request.folder)}
