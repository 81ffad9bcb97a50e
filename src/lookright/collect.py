"""What is missing of the evidence wanted, asked of a model and saved batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from lookright.errors import InputError
from lookright.evidence import Evidence
from lookright.instance import Instance, Order, orders_for
from lookright.settings import EvidenceSettings
from lookright.shards import Key
from lookright.store import Store


class Source(Protocol):
    """What gives evidence: a `Model`."""

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
