"""From texts to decisions: each is read, the samples of one question vote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lookright.baselines.answers import Answer
from lookright.baselines.baseline import Reader
from lookright.collect import Question
from lookright.errors import InputError
from lookright.identifiers import Identifiers, identifiers_for
from lookright.metrics import Decisions


@dataclass(frozen=True, eq=False)
class Voted:
    """What generated answers decide."""

    decisions: Decisions  # a vote that several positions won is tied, and goes to the first seen
    parse_rate: float  # percent of the texts that name a position


def voted(
    answers: Iterable[Answer],
    questions: Sequence[Sequence[Question]],
    read: Reader,
    identifiers: Identifiers = "numbers",
    samples: int = 1,
) -> Voted:
    """The decisions on M instances in T orders each (`questions[m][t]`), from answers of one
    writing. Texts that name no position do not vote; where none does, the decision is wrong."""
    texts = {(a.instance, a.order, a.sample): a.text for a in answers}
    chosen, tied, parsed = [], [], 0
    for asked in questions:
        names = identifiers_for(identifiers, len(asked[0].order))
        row = []
        for question in asked:
            said = _texts(texts, question, samples)
            positions = [read(text, names) for text in said]
            parsed += sum(position is not None for position in positions)
            row.append(majority(positions))
        chosen.append([position for position, _ in row])
        tied.append([tie for _, tie in row])
    decisions = Decisions(
        chosen=np.array(chosen).T,
        orders=np.array([[q.order for q in asked] for asked in questions]).swapaxes(0, 1),
        targets=np.array([_target(asked[0]) for asked in questions]),
        tied=np.array(tied, dtype=np.bool_).T,
    )
    return Voted(decisions, 100 * parsed / (decisions.chosen.size * samples))


def majority(positions: Sequence[int | None]) -> tuple[int, bool]:
    """The position named most often (the first seen among equals; -1 where none is named), and
    whether others were named as often."""
    votes = Counter(position for position in positions if position is not None)
    if not votes:
        return -1, False
    (winner, most), *others = votes.most_common()  # equals in the order first seen
    return winner, any(count == most for _, count in others)


def _texts(
    texts: dict[tuple[str, tuple[int, ...], int], str], question: Question, samples: int
) -> list[str]:
    """The samples' texts in their order."""
    keys = [(question.content, question.order, sample) for sample in range(samples)]
    if missing := [key for key in keys if key not in texts]:
        raise InputError(
            f"instance {question.instance.id!r}: no answer in the order {list(question.order)} "
            f"({len(missing)} of {samples} samples are missing)"
        )
    return [texts[key] for key in keys]


def _target(question: Question) -> int:
    answer = question.instance.answer
    if answer is None:
        raise InputError(
            f"instance {question.instance.id!r} has no answer: figures need labelled instances"
        )
    return answer
