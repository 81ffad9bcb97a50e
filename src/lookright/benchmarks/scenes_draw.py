"""Pictures of scenes: 224 pixels square, two styles, drawn from cached sprites and backgrounds."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache, lru_cache
from math import cos, pi, sin
from struct import pack
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from lookright.benchmarks.draws import Draws
from lookright.benchmarks.scenes import MOST_THINGS, Scene, Thing
from lookright.benchmarks.scenes_ground import SIDE, background

Colour = tuple[int, int, int]
Points = list[tuple[float, float]]

_FINE = 4  # sprites are drawn so many times larger and reduced: smooth edges
_MARGIN = 7  # pixels around a sprite: outline and shadow
_TILTS = (-9, 0, 9)  # degrees

#: Style -> colour -> fill. Lightness alone tells most of them apart.
_FILLS: dict[str, dict[str, Colour]] = {
    "a": {
        "red": (214, 48, 49),
        "orange": (243, 140, 40),
        "yellow": (252, 214, 62),
        "green": (46, 150, 84),
        "blue": (40, 96, 200),
        "purple": (126, 66, 170),
        "white": (252, 252, 250),
        "black": (34, 35, 42),
    },
    "b": {
        "red": (228, 92, 96),
        "orange": (240, 160, 92),
        "yellow": (244, 218, 118),
        "green": (92, 168, 122),
        "blue": (88, 132, 206),
        "purple": (152, 108, 186),
        "white": (250, 248, 240),
        "black": (62, 62, 72),
    },
}
_WIDTHS = {"a": 1.0, "b": 1.5}  # of outlines
_INK: Colour = (28, 29, 36)
_PAPER: Colour = (255, 253, 247)

#: Radius in pixels by the number of like things, where one or two kinds stand; and where three do.
_RADII = {"large": (44, 40, 33), "small": (24, 22, 18)}
_RADII_CROWDED = {"large": (33, 33, 32), "small": (21, 20, 18)}


class Placed(NamedTuple):
    """One copy of a thing: its number among the scene's things, centre, radius and tilt."""

    thing: int
    x: int
    y: int
    radius: int
    tilt: int  # degrees


def layout(scene: Scene) -> list[Placed]:
    """Where the copies of all things stand; the look of a scene decides it."""
    draws = Draws(f"places/{scene.look}")
    found: list[Placed] = []
    for k, thing in enumerate(scene.things):
        radius, tilt = _radius(thing, len(scene.things)), draws.pick(_TILTS)
        found += [Placed(k, x, y, radius, tilt) for x, y in _places(scene, k, radius, draws)]
    return found


def render(scene: Scene, style: str = "a") -> Image.Image:
    """The picture of a scene, RGB, 224 x 224; the same scene and look give the same pixels."""
    picture = background(scene.background, style, scene.look).copy()
    for k, x, y, radius, tilt in layout(scene):
        thing = scene.things[k]
        sprite, alpha = _sprite(style, thing.shape, thing.colour, thing.pattern, radius, tilt)
        half = sprite.width // 2
        picture.paste(sprite, (x - half, y - half), alpha)
    return picture


def png(scene: Scene, style: str = "a") -> bytes:
    """The picture as a PNG, packed lightly and with no filter: half the time of Pillow's own.

    zlib lets other threads run meanwhile.
    """
    rows = np.asarray(render(scene, style)).reshape(SIDE, -1)
    lines = np.concatenate([np.zeros((SIDE, 1), np.uint8), rows], axis=1)
    header = pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)  # 8 bits each of red, green and blue
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def _radius(thing: Thing, number: int) -> int:
    return (_RADII_CROWDED if number == MOST_THINGS else _RADII)[thing.size][thing.count - 1]


def _places(scene: Scene, k: int, radius: int, draws: Draws) -> list[tuple[int, int]]:
    """The centres of the copies of thing k: side by side across the way the things are lined up."""
    number, thing = len(scene.things), scene.things[k]
    across = scene.arrangement == "row"
    if number == 1 and draws.chance(50):
        across = not across
    cell, step = SIDE / number, 2 * radius + 4
    along = (k + 0.5) * cell + _jitter(cell - 2 * radius - 6, draws)
    middle = SIDE / 2 + _jitter(SIDE - thing.count * step - 6, draws)
    found = []
    for copy in range(thing.count):
        beside = middle + (copy - (thing.count - 1) / 2) * step
        x, y = (along, beside) if across else (beside, along)
        found.append((round(x), round(y)))
    return found


def _jitter(room: float, draws: Draws) -> float:
    """Off the middle by no more than half of the room there is."""
    most = max(0.0, min(room / 2, 44.0))
    return (draws.below(2001) / 1000 - 1) * most


# Sprites


@lru_cache(maxsize=4096)
def _sprite(
    style: str, shape: str, colour: str, pattern: str, radius: int, tilt: int
) -> tuple[Image.Image, Image.Image]:
    """A thing alone, RGB and its alpha, both square."""
    inside, edge = _masks(shape, radius, tilt, (1 + radius / 64) * _WIDTHS[style])
    side = inside.width
    fill = _FILLS[style][colour]
    ink = _INK if style == "a" or colour == "white" else _PAPER
    if style == "a" and colour == "black":
        ink = (232, 232, 228)  # so that it is not lost on a dark ground
    painted = Image.new("RGB", (side, side), ink)
    painted.paste(_patterned(fill, pattern, side, radius), (0, 0), inside)
    whole = Image.fromarray(np.maximum(np.asarray(inside), np.asarray(edge)))
    shade = Image.new("L", (side, side), 0)
    shade.paste(whole, (2, 3))
    shade = shade.filter(ImageFilter.GaussianBlur(1.6)).point(lambda value: value * 2 // 5)
    sprite = Image.new("RGB", (side, side), (16, 18, 26))
    sprite.paste(painted, (0, 0), whole)
    alpha = Image.fromarray(np.maximum(np.asarray(whole), np.asarray(shade)))
    return sprite, alpha


@cache
def _masks(shape: str, radius: int, tilt: int, width: float) -> tuple[Image.Image, Image.Image]:
    """Where the shape is inside its outline, and where the outline is."""
    side = 2 * (radius + _MARGIN)
    fine = side * _FINE
    area, line = Image.new("L", (fine, fine), 0), Image.new("L", (fine, fine), 0)
    paint, trace = ImageDraw.Draw(area), ImageDraw.Draw(line)
    for number, points in enumerate(_OUTLINES[shape]()):
        placed = [_turned(x, y, radius * _FINE, tilt, fine / 2) for x, y in points]
        paint.polygon(placed, fill=0 if number else 255)
        closed = [*placed, *placed[:2]]
        trace.line(closed, fill=255, width=round(2 * width * _FINE), joint="curve")
    edge = np.asarray(line)
    inside = np.where(edge > 0, 0, np.asarray(area)).astype(np.uint8)
    return Image.fromarray(inside).reduce(_FINE), line.reduce(_FINE)


def _turned(x: float, y: float, scale: float, tilt: int, middle: float) -> tuple[float, float]:
    turn = tilt * pi / 180
    return (
        middle + scale * (x * cos(turn) - y * sin(turn)),
        middle + scale * (x * sin(turn) + y * cos(turn)),
    )


def _patterned(fill: Colour, pattern: str, side: int, radius: int) -> Image.Image:
    """A square of the fill, with the pattern in a lighter or, on light fills, a darker tone."""
    light = 0.299 * fill[0] + 0.587 * fill[1] + 0.114 * fill[2] > 150
    toward = np.array((70, 62, 66) if light else (255, 255, 252))
    tone = np.asarray(fill) * 0.35 + toward * 0.65
    marked = _marks(pattern, side, radius)[..., None]  # [side, side, 1], from 0 to 1
    mixed = np.asarray(fill) * (1 - marked) + tone * marked
    return Image.fromarray(mixed.round().astype(np.uint8))


@cache
def _marks(pattern: str, side: int, radius: int) -> NDArray[np.float64]:
    """How much of each pixel is marked by a pattern."""
    if pattern == "plain":
        return np.zeros((side, side))
    places = (np.arange(side * _FINE) + 0.5) / _FINE - side / 2
    x, y = np.meshgrid(places, places)
    cell = 0.56 * radius if pattern == "dotted" else 0.42 * radius
    if pattern == "striped":
        marked = np.mod((x + y) / (1.3 * cell), 1) < 0.42
    elif pattern == "checked":
        marked = (np.floor(x / cell) + np.floor(y / cell)) % 2 == 0
    else:
        u, v = np.mod(x / cell, 1) - 0.5, np.mod(y / cell, 1) - 0.5
        marked = u * u + v * v < 0.3**2
    blocks = marked.reshape(side, _FINE, side, _FINE)
    return np.asarray(blocks.mean(axis=(1, 3)))


# Outlines, around (0, 0), reaching about 1; a second one is a hole


def _arc(radius: float, start: float, end: float, x: float = 0.0, y: float = 0.0) -> Points:
    angles = [start + (end - start) * k / 48 for k in range(49)]
    return [(x + radius * cos(a * pi / 180), y + radius * sin(a * pi / 180)) for a in angles]


def _corners(*radii: float, start: float = -90.0, count: int) -> Points:
    return [
        (
            radii[k % len(radii)] * cos((start + 360 * k / count) * pi / 180),
            radii[k % len(radii)] * sin((start + 360 * k / count) * pi / 180),
        )
        for k in range(count)
    ]


def _circle() -> list[Points]:
    return [_arc(0.95, 0, 360)]


def _square() -> list[Points]:
    return [[(-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)]]


def _triangle() -> list[Points]:
    return [[(x, y + 0.2) for x, y in _corners(1.14, count=3)]]


def _diamond() -> list[Points]:
    return [[(0, -1.05), (0.68, 0), (0, 1.05), (-0.68, 0)]]


def _star() -> list[Points]:
    return [[(x, y + 0.06) for x, y in _corners(1.1, 0.46, count=10)]]


def _heart() -> list[Points]:
    angles = [2 * pi * k / 96 for k in range(96)]
    return [
        [
            (
                sin(a) ** 3,
                -(13 * cos(a) - 5 * cos(2 * a) - 2 * cos(3 * a) - cos(4 * a)) / 15.5 - 0.06,
            )
            for a in angles
        ]
    ]


def _cross() -> list[Points]:
    w, r = 0.34, 0.98
    quarter = [(-w, -r), (w, -r), (w, -w)]
    points: Points = []
    for _ in range(4):
        points += quarter
        quarter = [(-y, x) for x, y in quarter]
    return [points]


def _ring() -> list[Points]:
    return [_arc(0.97, 0, 360), _arc(0.46, 0, 360)]


def _moon() -> list[Points]:
    outer = _arc(0.98, 51.3, 308.7, x=0.1)
    inner = _arc(0.78, 281.3, 78.7, x=0.56)
    return [outer + inner]


def _drop() -> list[Points]:
    return [[(0.0, -1.08), *_arc(0.72, -28, 208, y=0.3)]]


_OUTLINES: dict[str, Callable[[], list[Points]]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "diamond": _diamond,
    "star": _star,
    "heart": _heart,
    "cross": _cross,
    "ring": _ring,
    "moon": _moon,
    "drop": _drop,
}
