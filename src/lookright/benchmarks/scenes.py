"""A small world of coloured things: what a scene is made of, drawn at random, changed a little.

One to three things stand on a background. All of it is said by a few dozen words, so that a small
model can learn the world whole, and combinations can be kept out of its training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lookright.benchmarks.draws import Draws

SHAPES = (
    "circle",
    "square",
    "triangle",
    "diamond",
    "star",
    "heart",
    "cross",
    "ring",
    "moon",
    "drop",
)
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "white", "black")
PATTERNS = ("plain", "striped", "dotted", "checked")
SIZES = ("small", "large")
COUNTS = (1, 2, 3)
BACKGROUNDS = ("sky", "grass", "sand", "snow", "night", "bricks", "water", "wood")
#: How the things stand, from the first to the last: from left to right, or from top to bottom.
ARRANGEMENTS = ("row", "column")
MOST_THINGS = 3

#: Things are drawn from all combinations, from those that may be trained on, or so that at least
#: one in each scene is among those that may not.
COMBINATIONS = ("all", "seen", "unseen")


@dataclass(frozen=True, slots=True)
class Thing:
    """One kind of thing, and how many of it stand together."""

    shape: str
    colour: str
    pattern: str
    size: str
    count: int

    @property
    def unseen(self) -> bool:
        """Whether its colour, shape and pattern are one of the combinations kept from training.

        An eighth of all are: of each colour, shape and pattern as many, so that each is learned.
        """
        shape, colour = SHAPES.index(self.shape), COLOURS.index(self.colour)
        return (shape + 3 * colour + 2 * PATTERNS.index(self.pattern)) % 8 == 0


@dataclass(frozen=True, slots=True)
class Scene:
    """What a picture shows. `look` varies places and texture, which no words tell."""

    things: tuple[Thing, ...]
    arrangement: str  # "row" where there is one thing
    background: str
    look: int = field(default=0, compare=False)


THING_VALUES: dict[str, Sequence[str | int]] = {
    "shape": SHAPES,
    "colour": COLOURS,
    "pattern": PATTERNS,
    "size": SIZES,
    "count": COUNTS,
}


def draw_scene(draws: Draws, combinations: str = "all", things: int | None = None) -> Scene:
    """A scene of one to three things, or as many as are asked for."""
    number = things or 1 + draws.below(MOST_THINGS)
    marked = draws.below(number)
    drawn: list[Thing] = []
    while len(drawn) < number:
        thing = _draw_thing(draws)
        unwanted = combinations == "seen" and thing.unseen
        missing = combinations == "unseen" and len(drawn) == marked and not thing.unseen
        if not unwanted and not missing and not _confused(thing, drawn):
            drawn.append(thing)
    return Scene(
        tuple(drawn),
        draws.pick(ARRANGEMENTS) if number > 1 else ARRANGEMENTS[0],
        draws.pick(BACKGROUNDS),
        draws.below(2**32),
    )


def changed(scene: Scene, draws: Draws, changes: int, combinations: str = "all") -> Scene:
    """The same scene with so many of its attributes changed, and another look."""
    slots = [(k, name) for k in range(len(scene.things)) for name in THING_VALUES]
    slots += [(-1, "background")] + [(-1, "arrangement")] * (len(scene.things) > 1)
    while True:
        found = scene
        for where, name in draws.shuffled(slots)[:changes]:
            found = _with_another(found, where, name, draws)
        if allowed(found, combinations):
            return replace(found, look=draws.below(2**32))


def differences(one: Scene, other: Scene) -> int:
    """How many attributes differ between two scenes of equally many things."""
    pairs = zip(one.things, other.things, strict=True)
    within = sum(getattr(a, name) != getattr(b, name) for a, b in pairs for name in THING_VALUES)
    around = (one.background != other.background, one.arrangement != other.arrangement)
    return int(within) + sum(around)


def allowed(scene: Scene, combinations: str) -> bool:
    """Whether words tell its things apart, and it shows no unseen thing where none may be."""
    if any(_confused(thing, scene.things[:k]) for k, thing in enumerate(scene.things)):
        return False
    return combinations != "seen" or not any(thing.unseen for thing in scene.things)


def _draw_thing(draws: Draws) -> Thing:
    return Thing(
        draws.pick(SHAPES),
        draws.pick(COLOURS),
        draws.pick(PATTERNS),
        draws.pick(SIZES),
        draws.pick((1, 1, 2, 3)),
    )


def _confused(thing: Thing, others: Sequence[Thing]) -> bool:
    """Whether it is of the shape and colour of another: words would not tell them apart."""
    return any((o.shape, o.colour) == (thing.shape, thing.colour) for o in others)


def _with_another(scene: Scene, where: int, name: str, draws: Draws) -> Scene:
    if where >= 0:
        thing = scene.things[where]
        values = [value for value in THING_VALUES[name] if value != getattr(thing, name)]
        altered = replace(thing, **{name: draws.pick(values)})  # type: ignore[arg-type]
        return replace(scene, things=(*scene.things[:where], altered, *scene.things[where + 1 :]))
    known = BACKGROUNDS if name == "background" else ARRANGEMENTS
    value = draws.pick([value for value in known if value != getattr(scene, name)])
    return replace(scene, **{name: value})  # type: ignore[arg-type]
