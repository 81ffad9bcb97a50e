"""Filling a run folder: what is missing is asked and counted, and what is there is read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lookright.collect import Question, Source, collect_windows, unfinished
from lookright.evidence import Evidence, EvidenceArray
from lookright.gather import Progress
from lookright.plans import Part
from lookright.runs import Subject, entered
from lookright.settings import EvidenceSettings
from lookright.store import Store


class Vision(Protocol):
    """What counts the images it encodes."""

    @property
    def encoded(self) -> int: ...  # images that went through the vision tower, ever


class CountingSource(Source, Protocol):
    """What gives evidence, and says how many images it encoded: a `Model`."""

    @property
    def vision(self) -> Vision: ...


@dataclass(frozen=True)
class Count:
    """What was asked of a model."""

    asked: int = 0  # passes in all
    computed: int = 0  # of them now
    encoded: int = 0  # images that went through the vision tower for that
    seconds: float = 0.0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.asked + other.asked,
            self.computed + other.computed,
            self.encoded + other.encoded,
            self.seconds + other.seconds,
        )

    def as_text(self) -> str:
        return (
            f"{self.asked:,} passes: {self.computed:,} computed in {self.seconds:,.0f} s "
            f"({self.encoded:,} images encoded), {self.asked - self.computed:,} were there already"
        )


def ask(
    part: Part,
    source: Source,
    settings: EvidenceSettings,
    vision: Vision,
    progress: Progress,
    versions: Callable[[], Mapping[str, Any]],
) -> Count:
    """Ask the windows of which there is not everything, and enter that in the folder's run.json.

    `vision` is that of the model behind the source.
    """
    store = Store(part.folder)
    store.compact()
    keys = store.keys(settings.hash)
    todo = unfinished(part.windows, settings.hash, keys)
    questions, passes = part.questions, sum(map(len, todo))
    before = vision.encoded
    with entered(
        part.folder,
        Subject(settings, part.facts, part.listing),
        {question.instance.id for question in questions},
        {content for content, *_ in keys},
        {"request": dict(part.request), "versions": dict(versions()), "asked": len(questions)},
    ) as outcome:
        outcome |= {"present": len(questions) - passes, "computed": 0}
        try:
            if todo:
                with progress("Evidence", passes) as step:
                    for made in collect_windows(source, todo, store, settings, step):
                        outcome["computed"] += made
        finally:
            outcome["images_encoded"] = vision.encoded - before
    store.compact()
    return Count(len(questions), outcome["computed"], outcome["images_encoded"], outcome["seconds"])


class Held:
    """Saved evidence by what it is of, so that equal instances of two names share it."""

    def __init__(self, folder: Path, settings: EvidenceSettings, contents: set[str]) -> None:
        pieces = Store(folder).read(settings.hash, contents)
        self._settings = settings.hash
        self._pieces: dict[Any, Evidence] = {piece.key: piece for piece in pieces}

    def of(self, questions: Sequence[Question]) -> EvidenceArray:
        """The evidence of questions, as columns."""
        return EvidenceArray.of(
            self._pieces[q.content, q.order, self._settings].for_instance(q.instance)
            for q in questions
        ).checked()
