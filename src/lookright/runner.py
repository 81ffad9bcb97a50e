"""An evaluation: evidence that is missing is asked for once, and all methods are scored on it.

Everything is saved window by window, and the figures are computed from what is saved. So an
evaluation that was interrupted goes on where it stopped and ends in the same files, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookright.calibration import Calibration
from lookright.errors import InputError
from lookright.evaluation import Evaluation
from lookright.files import sole, write_atomically
from lookright.fill import Count, CountingSource, Held, ask
from lookright.gather import Progress, check_folder
from lookright.job import Job
from lookright.plans import Plan, planned
from lookright.scoring import Row, Scored, scored
from lookright.settings import EvidenceSettings
from lookright.store import Store
from lookright.trials import run_trial, trial_of

if TYPE_CHECKING:
    from lookright.towers import Towers

RESULTS, DECISIONS, LOCK = "results.json", "decisions.json", ".evaluate.lock"
FORMAT = 1


@dataclass(frozen=True)
class Outcome:
    """The rows of each benchmark, and what they cost."""

    tables: tuple[tuple[Row, ...], ...]
    count: Count
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As `results.json` has it."""
        return {"rows": [row for table in self.tables for row in table]}


def _no_towers() -> Towers:
    raise InputError("embedding needs a two-tower model; name one")


def evaluate(
    job: Job,
    load: Callable[[], CountingSource],
    progress: Progress,
    versions: Callable[[], Mapping[str, Any]],
    load_towers: Callable[[], Towers] = _no_towers,
) -> Outcome:
    """Do a job: ask what is missing, score every method, write `results.json`.

    The model is loaded once, when everything else is known to be in order; the two towers of the
    baseline `embedding` are where it is asked for.
    """
    plans = planned(job, progress)
    make_folder(job.folder)
    with sole(job.folder / LOCK, "is worked on"):
        source, towers = load(), cache(load_towers)
        for plan in plans:
            _check(plan, source.settings(plan.wording))
        count = Count()
        found: list[tuple[Plan, EvidenceSettings, list[Scored]]] = []
        for plan in plans:
            settings = source.settings(plan.wording)
            for part in plan.parts:
                count += ask(part, source, settings, source.vision, progress, versions)
            rows = {one.row["method"]: one for one in _scored(plan, job, settings)}
            for name in job.baselines:
                trial = trial_of(name, plan, job)
                rows[name], cost = run_trial(trial, plan, job, source, towers, progress, versions)
                count += cost
            ordered = [rows[name] for name in dict.fromkeys(job.methods)]
            found.append((plan, settings, ordered))
        outcome = Outcome(
            tables=tuple(tuple(one.row for one in rows) for _, _, rows in found),
            count=count,
            notes=tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
        )
        decisions = [_decisions(plan, job, settings, rows) for plan, settings, rows in found]
        _write(job.folder / DECISIONS, {"format": FORMAT, "benchmarks": decisions}, indent=None)
        _write(job.folder / RESULTS, outcome.to_dict(), indent=2)
    return outcome


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made a folder ({error.strerror})") from None


def _check(plan: Plan, settings: EvidenceSettings) -> None:
    """Refuse what only the model's own settings show to be unfit, before anything is asked."""
    for part in plan.parts:
        check_folder(Store(part.folder), settings)
    if plan.saved is not None:
        plan.saved.check_settings(plan.n, settings)


def _scored(plan: Plan, job: Job, settings: EvidenceSettings) -> list[Scored]:
    if not plan.variants:
        return []
    evidence = Held(plan.folder, settings, {q.content for q in (*plan.shown, *plan.shifts)})
    calibrations: tuple[Calibration, ...] = ()
    if plan.saved is not None:
        calibrations = (plan.saved,)
    elif plan.samples is not None:
        calibrations = _calibrations(plan, settings, job.preset)
    evaluation = Evaluation(
        evaluated=evidence.of(plan.shown),
        shifts=evidence.of(plan.shifts) if plan.shifts else None,
        origin=replace(plan.origin, settings=settings),
        pool_origin=replace(plan.calibration, settings=settings),
        calibrations=calibrations,
    )
    return scored(evaluation, plan.variants, preset=job.preset)


def _calibrations(plan: Plan, settings: EvidenceSettings, preset: str) -> tuple[Calibration, ...]:
    samples, questions = plan.samples, plan.calibration_questions
    assert samples is not None
    contents = {question.content for draw in questions for question in draw}
    evidence = Held(samples.folder, settings, contents)
    return tuple(
        Calibration.fit(evidence.of(draw), preset, settings=settings) for draw in questions
    )


def _decisions(
    plan: Plan, job: Job, settings: EvidenceSettings, rows: Sequence[Scored]
) -> dict[str, Any]:
    """How often each method was right about each instance, for comparisons instance by instance."""
    return {
        "benchmark": plan.origin.benchmark,
        "setting": plan.origin.setting,
        "n": plan.n,
        "orders": job.spec,
        "seed": job.seed,
        "settings": settings.to_dict(),
        "instances": [[i.id, plan.contents[i.id], i.answer] for i in plan.instances],
        "rows": [
            {name: one.row[name] for name in ("method", "preset", "parameters", "calibration")}
            | {"right": one.right.tolist()}
            for one in rows
        ],
    }


def _write(path: Path, values: Mapping[str, Any], indent: int | None) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(path, text.encode())
