"""Identifiers: what the model must say to choose a position, and reading an answer back."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from lookright.errors import InputError, shown

_ROMAN = ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
_WORDS = tuple(
    """
    first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
    fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth twenty-first
    twenty-second twenty-third twenty-fourth twenty-fifth twenty-sixth
    """.split()
)


def _roman(value: int) -> str:
    text = ""
    for size, letters in _ROMAN:
        count, value = divmod(value, size)
        text += letters * count
    return text


#: An article or a pronoun before a word; "A is" and "I is" are no English.
_WORD = re.compile(r"[AaI]\s+(?!is\b)[a-z]")

#: name -> (the identifier of position k, counted from 0; what the prompts call it).
_SETS: dict[str, tuple[Callable[[int], str], str]] = {
    "numbers": (lambda k: str(k + 1), "index number"),
    "letters": (lambda k: chr(ord("A") + k), "letter"),
    "lowercase": (lambda k: chr(ord("a") + k), "letter"),
    "roman": (lambda k: _roman(k + 1), "Roman numeral"),
    "words": (lambda k: _WORDS[k], "ordinal word"),
}
IDENTIFIER_SETS = tuple(_SETS)

#: Identifiers by the name of a set, or as an explicit list.
Identifiers = str | tuple[str, ...]


def identifiers_for(choice: str | Sequence[str], n: int) -> tuple[str, ...]:
    """The n identifiers of a named set, or the first n of an explicit list."""
    if isinstance(choice, str):
        if choice not in _SETS:
            raise InputError(
                f"unknown identifiers {shown(repr(choice))}: use one of {', '.join(_SETS)}, "
                "or a list"
            )
        if n > 26 and choice != "numbers":
            raise InputError(
                f"identifiers '{choice}': {n} images, but there are names for 26; use numbers"
            )
        return tuple(_SETS[choice][0](k) for k in range(n))
    if not isinstance(choice, Sequence):
        given = shown(repr(choice))
        raise InputError(f"identifiers must be the name of a set or a list, not {given}")
    named = tuple(choice)
    for name in named:
        if not isinstance(name, str) or not name or name != name.strip():
            raise InputError(f"identifier {shown(repr(name))}: must be text without outer spaces")
    if len(set(named)) < len(named):
        raise InputError(f"identifiers {shown(repr(list(named)))}: one stands there twice")
    if len(named) < n:
        raise InputError(f"{n} images need {n} identifiers, and the list names {len(named)}")
    return named[:n]


def noun_for(choice: str | Sequence[str]) -> str:
    """What the prompts call an identifier of this set ("index number", "letter", ...)."""
    return _SETS[choice][1] if isinstance(choice, str) else "identifier"


def parse_answer(text: str, identifiers: Sequence[str]) -> int | None:
    """The position a generated answer names: the last that `text` names, None where none is."""
    positions = named_in(text, identifiers)
    return positions[-1] if positions else None


def named_in(text: str, identifiers: Sequence[str]) -> list[int]:
    """The positions named by the identifiers that stand alone in `text`, in its order.

    Longer identifiers win where several match at one place ("10" is never read as "1"). Letter
    case counts where it tells identifiers apart. "a" and "I" are passed over where they read as
    words of English and another identifier stands there.
    """
    flags = 0 if len({name.lower() for name in identifiers}) < len(identifiers) else re.IGNORECASE
    if any(len(name) == 1 and name.isalpha() for name in identifiers):
        flags = 0  # "a" and "I" are words of their own
    by_length = sorted(range(len(identifiers)), key=lambda k: len(identifiers[k]), reverse=True)
    pattern = "|".join(f"({re.escape(identifiers[k])})" for k in by_length)
    found = list(re.finditer(rf"(?<![\w.-])(?:{pattern})(?![\w-])(?!\.\d)", text, flags))
    sure = [match for match in found if not _WORD.match(text, match.start())]
    return [by_length[(match.lastindex or 0) - 1] for match in sure or found]
