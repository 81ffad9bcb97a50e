"""The backgrounds of scenes, drawn once each in a few variants and then copied."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIDE = 224  # pixels

_VARIANTS = 6
_CREAM = np.array((250, 243, 228))

Chance = np.random.RandomState  # its streams are frozen: the same for every version of NumPy


def background(name: str, style: str, look: int) -> Image.Image:
    """The ground of a scene; `look` chooses a variant and its mirror image. Not to be drawn on."""
    return _drawn(name, style, look % _VARIANTS, (look // _VARIANTS) % 2 == 1)


@cache
def _drawn(name: str, style: str, variant: int, mirrored: bool) -> Image.Image:
    chance = Chance(sum(map(ord, name)) * 100 + variant)
    picture = _GROUNDS[name](chance)
    if mirrored:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if style == "b":  # washed out, in few tones: cut from paper
        mixed = np.asarray(picture) * 0.5 + _CREAM * 0.5
        picture = Image.fromarray((mixed // 12 * 12 + 6).astype(np.uint8))
    return picture


def _fade(top: tuple[int, int, int], bottom: tuple[int, int, int]) -> Image.Image:
    share = np.linspace(0, 1, SIDE)[:, None, None]
    rows = np.array(top) * (1 - share) + np.array(bottom) * share  # [SIDE, 1, 3]
    return Image.fromarray(np.broadcast_to(rows, (SIDE, SIDE, 3)).astype(np.uint8))


def _grainy(picture: Image.Image, chance: Chance, strength: float) -> Image.Image:
    """The picture with soft patches of light and shade."""
    coarse = Image.fromarray(chance.randint(0, 256, (14, 14)).astype(np.uint8))
    patches = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)) / 127.5 - 1
    values = np.asarray(picture) + (patches * strength)[..., None]
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def _sky(chance: Chance) -> Image.Image:
    picture = _fade((122, 182, 232), (198, 226, 246))
    clouds = Image.new("L", picture.size, 0)
    paint = ImageDraw.Draw(clouds)
    for _ in range(4):
        x, y = chance.randint(0, SIDE, 2)
        for _ in range(6):
            dx, dy, r = chance.randint(-30, 31), chance.randint(-6, 7), chance.randint(9, 19)
            paint.ellipse((x + dx - r, y + dy - r, x + dx + r, y + dy + r), fill=170)
    picture.paste((250, 252, 255), (0, 0), clouds.filter(ImageFilter.GaussianBlur(6)))
    return picture


def _grass(chance: Chance) -> Image.Image:
    picture = _grainy(_fade((138, 186, 110), (112, 166, 88)), chance, 8)
    paint = ImageDraw.Draw(picture)
    for _ in range(260):
        x, y = (int(value) for value in chance.randint(0, SIDE, 2))
        lean, tall = int(chance.randint(-3, 4)), int(chance.randint(6, 12))
        shade = int(chance.randint(-26, 27))
        paint.line((x, y, x + lean, y - tall), fill=(118 + shade, 172 + shade, 92 + shade), width=2)
    return picture


def _sand(chance: Chance) -> Image.Image:
    picture = _grainy(_fade((232, 208, 160), (222, 194, 142)), chance, 7)
    paint = ImageDraw.Draw(picture)
    for y in range(12, SIDE, 30):
        start = int(chance.randint(0, 60))
        wave = [(x, y + 5 * np.sin((x + start) / 17)) for x in range(-4, SIDE + 8, 4)]
        paint.line(wave, fill=(210, 182, 130), width=2)
    for _ in range(150):
        x, y = (int(value) for value in chance.randint(0, SIDE, 2))
        paint.ellipse((x, y, x + 1, y + 1), fill=(190, 160, 112))
    return picture


def _snow(chance: Chance) -> Image.Image:
    picture = _grainy(_fade((226, 234, 244), (242, 246, 251)), chance, 5)
    paint = ImageDraw.Draw(picture)
    for _ in range(46):
        x, y = (int(value) for value in chance.randint(0, SIDE, 2))
        r = int(chance.randint(2, 4))
        for dx, dy in ((r, 0), (0, r), (r * 0.7, r * 0.7), (r * 0.7, -r * 0.7)):
            paint.line((x - dx, y - dy, x + dx, y + dy), fill=(176, 196, 222), width=1)
    return picture


def _night(chance: Chance) -> Image.Image:
    picture = _grainy(_fade((24, 30, 66), (48, 56, 104)), chance, 5)
    paint = ImageDraw.Draw(picture)
    for _ in range(70):
        x, y = (int(value) for value in chance.randint(0, SIDE, 2))
        r = int(chance.randint(0, 2))
        paint.ellipse((x - r, y - r, x + r, y + r), fill=(206, 212, 240))
    return picture


def _bricks(chance: Chance) -> Image.Image:
    picture = Image.new("RGB", (SIDE, SIDE), (206, 194, 184))
    paint = ImageDraw.Draw(picture)
    shift = int(chance.randint(0, 44))
    for row, y in enumerate(range(-int(chance.randint(0, 20)), SIDE, 22)):
        for x in range(-88 + shift + 22 * (row % 2), SIDE, 44):
            shade = int(chance.randint(-12, 13))
            paint.rectangle((x, y, x + 40, y + 18), fill=(182 + shade, 118 + shade, 100 + shade))
    return picture


def _water(chance: Chance) -> Image.Image:
    picture = _grainy(_fade((98, 178, 190), (60, 140, 164)), chance, 6)
    paint = ImageDraw.Draw(picture)
    for y in range(8, SIDE, 18):
        start = int(chance.randint(0, 40))
        for x in range(-start, SIDE, 40):
            paint.arc((x, y, x + 20, y + 10), 180, 360, fill=(150, 210, 216), width=2)
    return picture


def _wood(chance: Chance) -> Image.Image:
    picture = Image.new("RGB", (SIDE, SIDE), (122, 84, 54))
    paint = ImageDraw.Draw(picture)
    for x in range(0, SIDE, 38):
        shade = int(chance.randint(-10, 11))
        paint.rectangle((x, 0, x + 35, SIDE), fill=(160 + shade, 116 + shade, 78 + shade))
        for _ in range(5):
            grain = x + int(chance.randint(3, 33))
            bend = float(chance.randint(2, 5))
            line = [(grain + bend * np.sin(y / 31 + grain), y) for y in range(0, SIDE + 8, 8)]
            paint.line(line, fill=(142 + shade, 100 + shade, 66 + shade), width=1)
    return picture


_GROUNDS: dict[str, Callable[[Chance], Image.Image]] = {
    "sky": _sky,
    "grass": _grass,
    "sand": _sand,
    "snow": _snow,
    "night": _night,
    "bricks": _bricks,
    "water": _water,
    "wood": _wood,
}
