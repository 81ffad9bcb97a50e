"""Reading a position out of a generated text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lookright.identifiers import named_in, parse_answer

_THE_ANSWER_IS = re.compile(r"the\s+answer\s+is", re.IGNORECASE)
_END_OF_THOUGHT = "</think>"
#: What may stand around an identifier on the line that is the answer.
_MARKS = " \t\r*_`\"'.:()[]<>"


def last_named(text: str, identifiers: Sequence[str]) -> int | None:
    """The last identifier of the text."""
    return parse_answer(text, identifiers)


def after_thought(text: str, identifiers: Sequence[str]) -> int | None:
    """The answer after the last </think>: a line that is an identifier alone, else the last one.

    A text whose thinking never ended has no answer.
    """
    _, ended, rest = text.rpartition(_END_OF_THOUGHT)
    if not ended:
        return None
    alone = [line for line in map(_bare, rest.splitlines()) if line in identifiers]
    return list(identifiers).index(alone[0]) if alone else parse_answer(rest, identifiers)


def thought_and_answered(text: str, identifiers: Sequence[str]) -> bool:
    """Whether the last </think> is followed by a whole line that is an identifier alone.

    `after_thought` reads that line whatever else were to follow it.
    """
    _, ended, rest = text.rpartition(_END_OF_THOUGHT)
    return bool(ended) and any(_bare(line) in identifiers for line in rest.split("\n")[:-1])


def _bare(line: str) -> str:
    return line.strip(_MARKS)


def after_the_answer_is(text: str, identifiers: Sequence[str]) -> int | None:
    """The first identifier after the last "The answer is"."""
    said = list(_THE_ANSWER_IS.finditer(text))
    named = named_in(text[said[-1].end() :], identifiers) if said else []
    return named[0] if named else None


def last_digits(text: str, identifiers: Sequence[str]) -> int | None:
    """The released code's rule: the last run of digits that is a number from 1 to N.

    Identifiers that are no numbers have no digits: they are read as `last_named` does.
    """
    if not all(name.isdecimal() for name in identifiers):
        return parse_answer(text, identifiers)
    runs = [run.lstrip("0") for run in re.findall(r"[0-9]+", text)]
    found = [run for run in runs if run in identifiers]
    return list(identifiers).index(found[-1]) if found else None


def released_sample(text: str, identifiers: Sequence[str]) -> int | None:
    """The released code's rule for sampled answers: what follows "The answer is", else the last
    number from 1 to N, else the first image."""
    for rule in (after_the_answer_is, last_digits):
        if (position := rule(text, identifiers)) is not None:
            return position
    return 0
