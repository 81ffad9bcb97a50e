"""What is missing of the evidence wanted, asked of a model and saved batch by batch.

A window is what is computed whole or not at all: where evidence has to be the same to the last bit
however often its making was interrupted, a model is asked window by window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeAlias

from lookright.errors import InputError
from lookright.evidence import Evidence
from lookright.instance import Instance, Order, orders_for
from lookright.settings import EvidenceSettings
from lookright.shards import Key
from lookright.store import Store


class Source(Protocol):
    """What gives evidence, a `Model`: where asked in windows, each as if nothing came before it."""

    def settings(self, settings: EvidenceSettings | None = None) -> EvidenceSettings: ...

    def evidence_iter(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings | None = None,
        *,
        heads: bool = False,
        maps: bool = False,
        skip: Callable[[Instance, InputError], None] | None = None,
        windows: Sequence[int] | None = None,
    ) -> Iterator[list[Evidence]]: ...


@dataclass(frozen=True)
class Question:
    """One forward pass to be made: an instance in an order."""

    instance: Instance
    content: str  # the instance's content hash
    order: Order
    maps: bool = False


def missing(
    questions: Iterable[Question], settings: str, present: Mapping[bool, Collection[Key]]
) -> list[Question]:
    """The questions without evidence, each once: instances may be equal under two names.

    `present` says what there is evidence of, and (under True) what with maps.
    """
    found: dict[Key, Question] = {}
    for question in questions:
        key = (question.content, question.order, settings)
        if key not in present[question.maps]:
            found.setdefault(key, question)
    return list(found.values())


def questions_of(
    instances: Sequence[Instance],
    contents: Mapping[str, str],
    orders: Sequence[str],
    seed: int = 0,
    maps: int = 0,
) -> list[Question]:
    """Every instance in every order of the specs, an instance's orders together (its images are
    then encoded once); the first `maps` instances with their maps."""
    by_spec = [orders_for(instances, spec, seed) for spec in orders]
    return [
        Question(instance, contents[instance.id], order, index < maps)
        for index, instance in enumerate(instances)
        for order in dict.fromkeys(order for spec in by_spec for order in spec[index])
    ]


#: Questions that are computed and saved together.
Window: TypeAlias = tuple[Question, ...]

#: How many they are at most, unless a single instance has more.
WINDOW = 32


def windows_of(questions: Iterable[Question], size: int = WINDOW) -> list[Window]:
    """The questions cut into windows of whole instances, by nothing but the questions themselves.

    Small enough that little is lost when one is interrupted, large enough to fill a few batches.
    """
    windows: list[list[Question]] = []
    for _, group in groupby(questions, key=lambda question: question.content):
        own = list(group)
        if not windows or len(windows[-1]) + len(own) > size:
            windows.append([])
        windows[-1] += own
    return [tuple(window) for window in windows]


def unfinished(windows: Iterable[Window], settings: str, present: Collection[Key]) -> list[Window]:
    """The windows of which there is not everything; those are computed whole."""
    return [
        window
        for window in windows
        if any((q.content, q.order, settings) not in present for q in window)
    ]


def collect_windows(
    source: Source,
    windows: Sequence[Window],
    store: Store,
    settings: EvidenceSettings,
    step: Callable[[int], None],
) -> Iterator[int]:
    """Ask window by window; yields how much evidence each gave, once all of it is on the disk.

    `step` is told how much evidence there is before that, batch by batch.
    """
    questions = [question for window in windows for question in window]
    batches = source.evidence_iter(
        [question.instance for question in questions],
        [question.order for question in questions],
        settings,
        windows=[len(window) for window in windows],
    )
    made: list[Evidence] = []
    for batch in batches:
        step(len(batch))
        made += batch
        if not batch:
            store.append(made, settings)
            yield len(made)
            made = []


def collect(
    source: Source,
    questions: Sequence[Question],
    store: Store,
    settings: EvidenceSettings,
    *,
    heads: bool = False,
    skip: Callable[[Instance, InputError], None] | None = None,
) -> Iterator[int]:
    """Ask and save; yields how much evidence each batch gave, once it is on the disk."""
    for maps, group in groupby(questions, key=lambda question: question.maps):
        asked = list(group)
        batches = source.evidence_iter(
            [question.instance for question in asked],
            [question.order for question in asked],
            settings,
            heads=heads,
            maps=maps,
            skip=skip,
        )
        for batch in batches:
            store.append(batch, settings)
            yield len(batch)
