"""What is said of scenes: captions in two styles, when a caption fits, and questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from lookright.benchmarks.draws import Draws
from lookright.benchmarks.mmiu import joined
from lookright.benchmarks.scenes import (
    BACKGROUNDS,
    COLOURS,
    PATTERNS,
    SHAPES,
    SIZES,
    Scene,
    Thing,
)
from lookright.identifiers import identifiers_for

STYLES = ("a", "b")
_NUMBERS = ("", "a", "two", "three")
_PLURALS = {shape: {"cross": "crosses"}.get(shape, f"{shape}s") for shape in SHAPES}
_BETWEEN = {"row": ("left of", "right of"), "column": ("above", "below")}
_ORDERED = {"row": "from left to right", "column": "from top to bottom"}
_PLACES = {name: f"on {name}" for name in BACKGROUNDS} | {
    "sky": "in the sky",
    "night": "at night",
}
_UNSAID = 50  # percent of the words that need not be said


@dataclass(frozen=True, slots=True)
class Said:
    """What a caption says of one thing; None where it says nothing."""

    shape: str
    colour: str | None
    pattern: str | None
    size: str | None
    count: int

    def fits(self, thing: Thing) -> bool:
        return (
            self.shape == thing.shape
            and self.count == thing.count
            and self.colour in (None, thing.colour)
            and self.pattern in (None, thing.pattern)
            and self.size in (None, thing.size)
        )


@dataclass(frozen=True, slots=True)
class Description:
    """What a caption says of a scene: of each thing, how they stand, and on what."""

    things: tuple[Said, ...]
    arrangement: str | None
    background: str | None

    def fits(self, scene: Scene) -> bool:
        """Whether it is true of a scene, which may show more than it says."""
        if self.background not in (None, scene.background):
            return False
        if self.arrangement not in (None, scene.arrangement):
            return False
        for chosen in permutations(range(len(scene.things)), len(self.things)):
            in_order = self.arrangement is None or list(chosen) == sorted(chosen)
            pairs = zip(self.things, chosen, strict=True)
            if in_order and all(said.fits(scene.things[k]) for said, k in pairs):
                return True
        return False


def full_description(scene: Scene) -> Description:
    """All that words can say of a scene."""
    return Description(
        tuple(Said(t.shape, t.colour, t.pattern, t.size, t.count) for t in scene.things),
        scene.arrangement if len(scene.things) > 1 else None,
        scene.background,
    )


def description(scene: Scene, others: Iterable[Scene], draws: Draws) -> Description:
    """What singles a scene out among others, some of what need not be said left out.

    The others must be such that all of it together fits none of them.
    """
    others = tuple(others)
    said = full_description(scene)
    slots = [(k, name) for k in range(len(said.things)) for name in ("colour", "pattern", "size")]
    slots += [(-1, "arrangement"), (-1, "background")]
    for where, name in draws.each_once(slots):
        if draws.chance(_UNSAID):
            shorter = _without(said, where, name)
            if not any(shorter.fits(other) for other in others):
                said = shorter
    return said


def sentence(said: Description, style: str, draws: Draws) -> str:
    """The caption in the manner of a style; the things may be named in either order."""
    things = [_phrase(thing) for thing in said.things]
    if len(things) == 1:
        text = things[0]
    elif said.arrangement is None:
        text = _listed(draws.shuffled(things))
    elif len(things) == 2:
        forward, backward = _BETWEEN[said.arrangement]
        turned = draws.chance(50)
        first, second = things[::-1] if turned else things
        text = f"{first} {backward if turned else forward} {second}"
    else:
        text = f"{_listed(things)} {_ORDERED[said.arrangement]}"
    place = "" if said.background is None else _PLACES[said.background]
    return f"{text} {place}".rstrip() if style == "a" else f"{place} we see {text}".lstrip()


def odd_one_out(n: int) -> str:
    """The question which image has another background than all the others."""
    return _multiple_choice(
        "Which image is most likely to show a different background from the other images?",
        f"Now you are given {n} images. Please examine the details and tell which one of them has "
        "a background that is different from the others.",
        n,
    )


def where_larger(shape: str, n: int) -> str:
    """The question in which image a named thing is larger than in the others."""
    return _multiple_choice(
        f"In which image is the {shape} larger than in the other images?",
        f"Now you are given {n} images. Please examine the details and tell in which one of them "
        f"the {shape} is larger than in the others.",
        n,
    )


def vocabulary() -> frozenset[str]:
    """Every word that a caption may hold."""
    texts = (*SHAPES, *_PLURALS.values(), *COLOURS, *PATTERNS, *SIZES, *_PLACES.values(), *_NUMBERS)
    phrases = (*_ORDERED.values(), *(words for pair in _BETWEEN.values() for words in pair))
    return frozenset(" ".join([*texts, *phrases, "an and we see"]).split())


def _without(said: Description, where: int, name: str) -> Description:
    if where < 0:
        return replace(said, **{name: None})  # type: ignore[arg-type]
    thing = replace(said.things[where], **{name: None})  # type: ignore[arg-type]
    return replace(said, things=(*said.things[:where], thing, *said.things[where + 1 :]))


def _phrase(said: Said) -> str:
    shape = said.shape if said.count == 1 else _PLURALS[said.shape]
    words = [word for word in (said.size, said.colour, said.pattern, shape) if word]
    article = "an" if said.count == 1 and words[0][0] in "aeiou" else _NUMBERS[said.count]
    return " ".join([article, *words])


def _listed(phrases: Sequence[str]) -> str:
    """Words alone, no marks."""
    return " and ".join(phrases)


def _multiple_choice(question: str, context: str, n: int) -> str:
    """As MMIU asks: what is to be done, the options by letter and position, the question."""
    pairs = zip(identifiers_for("letters", n), identifiers_for("words", n), strict=True)
    options = "\n".join(f"{letter}: the {word} image" for letter, word in pairs)
    return joined(question, f"{context}\nSelect from the following choices.\n{options}\n")
