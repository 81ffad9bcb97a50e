"""Having a model write the answers that are missing, window by window."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from lookright.baselines.answers import Answer, AnswerKey, Answers, Writing
from lookright.baselines.baseline import Done
from lookright.collect import Window
from lookright.errors import InputError
from lookright.identifiers import identifiers_for
from lookright.instance import Instance

if TYPE_CHECKING:
    from lookright.model import Model


def unwritten(
    windows: Sequence[Window], writing: str, samples: int, present: Collection[AnswerKey]
) -> list[Window]:
    """The windows of which there are not all answers; those are written whole."""
    return [
        window
        for window in windows
        if any(
            (q.content, q.order, writing, sample) not in present
            for q in window
            for sample in range(samples)
        )
    ]


def write(
    model: Model,
    writing: Writing,
    windows: Sequence[Window],
    store: Answers,
    *,
    samples: int = 1,
    done: Done | None = None,
    step: Callable[[int], None] = lambda _: None,
    skip: Callable[[Instance, InputError], None] | None = None,
) -> Iterator[int]:
    """Have the questions answered and save; yields how many answers each window gave, once all of
    them are on the disk. `step` is told how many there are before that, batch by batch."""
    for window in windows:
        made = []
        for batch in answered(model, writing, window, samples=samples, done=done, skip=skip):
            step(len(batch))
            made += batch
        store.append(made, writing)
        yield len(made)


def answered(
    model: Model,
    writing: Writing,
    window: Window,
    *,
    samples: int = 1,
    done: Done | None = None,
    skip: Callable[[Instance, InputError], None] | None = None,
) -> Iterator[list[Answer]]:
    """The answers to the questions of one window, batch by batch: what they say depends on nothing
    that was asked before."""
    from lookright.sampling import Sampling

    model.vision.clear()
    asked = [(question, sample) for question in window for sample in range(samples)]
    sampling = None
    if writing.temperature is not None:
        sampling = Sampling(writing.temperature, writing.top_k)
    most = max(len(question.order) for question in window)
    names = identifiers_for(writing.settings.identifiers, most)
    batches = model.generate_iter(
        [question.instance for question, _ in asked],
        [question.order for question, _ in asked],
        writing.settings,
        max_new_tokens=writing.max_new_tokens,
        sampling=sampling,
        seeds=[writing.seed_of(q.content, q.order, sample) for q, sample in asked],
        done=None if done is None else lambda text: done(text, names),
        skip=skip,
    )
    for batch in batches:
        yield [
            Answer(
                instance_id=answer.instance_id,
                instance=asked[place][0].content,
                order=answer.order,
                sample=asked[place][1],
                text=answer.text,
                writing=writing.hash,
                target=asked[place][0].instance.answer,
            )
            for place, answer in batch
        ]
