"""A baseline's part of an evaluation: its own questions, in a folder of its own, and its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lookright.baselines import BASELINES
from lookright.baselines.answers import Answers, Writing
from lookright.baselines.baseline import Baseline
from lookright.baselines.voting import Voted, voted
from lookright.baselines.writing import unwritten, write
from lookright.collect import Question, Source, questions_of, windows_of
from lookright.fill import Count, CountingSource, Held, ask
from lookright.gather import Progress
from lookright.job import Job
from lookright.metrics import Decisions, decide
from lookright.plans import Part, Plan
from lookright.runs import Subject, entered
from lookright.scoring import Scored, described
from lookright.settings import EvidenceSettings

if TYPE_CHECKING:
    from lookright.model import Model
    from lookright.towers import Towers

Versions = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class Trial:
    """One baseline on one benchmark."""

    baseline: Baseline
    parameters: Mapping[str, Any]
    wording: EvidenceSettings
    questions: tuple[Question, ...]
    part: Part

    @property
    def samples(self) -> int:
        """Texts to be generated for a question."""
        return int(self.parameters.get("samples", 1))


def trial_of(name: str, plan: Plan, job: Job) -> Trial:
    """What a baseline asks: the orders the methods are shown, or the instances' own order alone."""
    baseline = BASELINES[name]
    parameters = baseline.parameters(job.preset, job.given.get(name))
    questions, spec = plan.shown, job.spec
    if baseline.once:
        spec = "identity"
        questions = tuple(questions_of(plan.instances, plan.contents, [spec]))
    own = plan.parts[-1]
    distinct = {(q.content, q.order): q for q in reversed(questions)}
    windows = windows_of(q for q in questions if distinct[q.content, q.order] is q)
    part = replace(
        own,
        folder=plan.folder / name,
        windows=tuple(windows),
        request={**own.request, "baseline": name, "orders": [spec], "part": "instances"},
    )
    wording = baseline.settings(plan.wording, parameters)
    return Trial(baseline, parameters, wording, questions, part)


def run_trial(
    trial: Trial,
    plan: Plan,
    job: Job,
    model: CountingSource,
    towers: Callable[[], Towers],
    progress: Progress,
    versions: Versions,
) -> tuple[Scored, Count]:
    """Ask what is missing of it, and score it."""
    baseline = trial.baseline
    parse_rate: float | None = None
    if baseline.generates:
        settings = model.settings(trial.wording)
        writing = baseline.writing(settings, trial.parameters, job.seed)
        count = _write(trial, writing, cast("Model", model), progress, versions)
        found = _voted(trial, writing, job.preset)
        decisions, parse_rate = found.decisions, found.parse_rate
    else:
        source: Source = model
        if baseline.source is not None:
            source = baseline.source(towers() if baseline.of_towers else model)
        settings = source.settings(trial.wording)
        count = ask(trial.part, source, settings, model.vision, progress, versions)
        decisions = _decided(trial, settings)
    scored = described(
        replace(plan.origin, settings=settings),
        baseline.name,
        job.preset,
        trial.parameters,
        [decisions],
        by_position=not baseline.once,
        passes=baseline.passes(plan.n, trial.parameters),
        parse_rate=parse_rate,
    )
    return scored, count


def _write(
    trial: Trial, writing: Writing, model: Model, progress: Progress, versions: Versions
) -> Count:
    """Have the answers written that are not there, and enter that in the folder's run.json."""
    part, store = trial.part, Answers(trial.part.folder)
    store.compact()
    keys = store.keys(writing.hash)
    todo = unwritten(part.windows, writing.hash, trial.samples, keys)
    total, left = (trial.samples * sum(map(len, w)) for w in (part.windows, todo))
    before = model.vision.encoded
    with entered(
        part.folder,
        Subject(writing.settings, part.facts, part.listing),
        {question.instance.id for question in part.questions},
        {key[0] for key in keys},
        {"request": dict(part.request), "versions": dict(versions()), "asked": total},
    ) as outcome:
        outcome |= {"present": total - left, "computed": 0}
        try:
            if todo:
                with progress("Answers", left) as step:
                    for made in write(
                        model,
                        writing,
                        todo,
                        store,
                        samples=trial.samples,
                        done=trial.baseline.done,
                        step=step,
                    ):
                        outcome["computed"] += made
        finally:
            outcome["images_encoded"] = model.vision.encoded - before
    store.compact()
    return Count(total, outcome["computed"], outcome["images_encoded"], outcome["seconds"])


def _voted(trial: Trial, writing: Writing, preset: str) -> Voted:
    contents = {question.content for question in trial.questions}
    asked: dict[str, list[Question]] = {}
    for question in trial.questions:
        asked.setdefault(question.instance.id, []).append(question)
    return voted(
        Answers(trial.part.folder).read(writing.hash, contents),
        list(asked.values()),
        trial.baseline.read[preset],
        writing.settings.identifiers,
        trial.samples,
    )


def _decided(trial: Trial, settings: EvidenceSettings) -> Decisions:
    contents = {question.content for question in trial.questions}
    evidence = Held(trial.part.folder, settings, contents).of(trial.questions)
    return decide(evidence.log_probs.astype(np.float64), evidence.orders, evidence.targets)
