"""Malformed benchmarks, drawn by a random number: tables, fields, paths, words and images."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

#: A file's bytes, None for a folder in its place, or a link's target.
Content = bytes | Path | None
Files = dict[str, Content]

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
TABLES = ("instances.jsonl", "calibration.jsonl", "benchmark.json")
FIELDS = ("id", "images", "answer", "caption", "question", "category")
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 10**30, 0.5, 1e308, float("nan"), float("inf")),
    *("", " ", "a", "0", "1..N", "\0", "\ud83d", "é" * 300, "x" * 70_000, "\u202e", "{caption}"),
    *([], {}, [[]], [None], ["a.png"], {"a": 1}, [0, 1], "a.png", [[["deep"]]], b"bytes".decode()),
)
PATHS = (
    *("..", ".", "/", "../x.png", "/etc/passwd", "/dev/zero", "a/../../x.png", "~/a.png", "a.png/"),
    *("file:///a.png", "http://h/a.png", "HTTPS://h/a.png", "data:image/png;base64,AAAA", "data:,"),
    *("A.PNG", "a.png ", "a\0.png", "\ud800.png", "x" * 300, "x/" * 3000, "CON", "a\\..\\b", "*"),
    *("benchmark.json", "instances.jsonl", "out", "loop", "door/hostname", "pipe", "empty.png"),
)
WORDS = (
    *("", " ", "\n", "a red wall", "\0", "\x1b[31m", "\u202e", "\u200b", "\u732b" * 900, "\ud83d"),
    *("<image>", "<image>" * 9, "<|im_end|>", "<|im_start|>assistant", "</s>", "<s>", "<pad>"),
    *("<unk>", "<|image_pad|>", "[INST]", "<|endoftext|>", "{caption}", "{{ 1 / 0 }}", "%s %d {0}"),
    *("Image 1:", "wall " * 5000, "a" * 200_000, "'\"\\", "\uffff", "\U0010ffff", "e\u0301" * 4000),
)
IDENTIFIERS: tuple[Any, ...] = (
    *("numbers", "numbers", "letters", "lowercase", "roman", "words", "NUMBERS", "", 3, None),
    *([], ["a"], ["a", "a"], ["a", " b"], ["a", ""], ["<image>", "b"], ["</s>", "b"], ["a", None]),
    *([f"{k}" for k in range(40)], ["1", "\uff11"], ["\u732b", "\u72ac"], ["a" * 9000, "b"]),
    *([f"no {k}" for k in range(12)], ["\0", "\x01"], ["\ud800", "b"], ["yes", "YES", "yEs"]),
)
HEADS = (b"%PDF-1.7", b"PK\3\4", b"<svg/>", b"<!DOCTYPE html>", b"\0\0\0\x20ftypavif", b"\x1f\x8b")
EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


# Good material


def _picture(form: str, number: int) -> bytes:
    random = Random(f"{form} {number}")
    noise = np.frombuffer(random.randbytes(24 * 16 * 3), dtype=np.uint8).reshape(16, 24, 3)
    image = Image.fromarray(noise)
    exif = Image.Exif()
    exif[0x0112] = random.randrange(1, 9)
    options: dict[str, Any] = {"exif": exif} if form in ("JPEG", "PNG", "TIFF", "WEBP") else {}
    if form in ("PNG", "TIFF", "WEBP") and random.random() < 0.3:
        image = image.convert("RGBA")
    if form == "JPEG" and random.random() < 0.3:
        image, options = image.convert("CMYK"), {}
    if form == "TIFF" and random.random() < 0.7:
        options["compression"] = random.choice(["tiff_lzw", "tiff_deflate", "packbits"])
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


picture = cache(_picture)


def rows() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The evaluated instances and the samples; the first instance is the same in all benchmarks."""

    def row(name: str, *images: str, **more: Any) -> dict[str, Any]:
        return {"id": name, "images": list(images), "answer": 1, "caption": "a red wall"} | more

    first = [row("a", "a.png", "b.jpeg"), row("b", "c.gif", "g.png", category="walls")]
    return first, [row("c", "d.tiff", "e.webp", "f.bmp")]


def files(random: Random) -> Files:
    """A benchmark with nothing wrong."""
    instances, calibration = rows()
    kinds = {"c.gif": "GIF", "g.png": "PNG", "d.tiff": "TIFF", "e.webp": "WEBP", "f.bmp": "BMP"}
    made: Files = {"a.png": picture("PNG", 0), "b.jpeg": picture("JPEG", 0)}
    made |= {name: picture(form, random.randrange(8)) for name, form in kinds.items()}
    made["instances.jsonl"] = _lines(instances)
    made["calibration.jsonl"] = _lines(calibration)
    made["benchmark.json"] = json.dumps({"identifiers": "letters", "seed": 3}).encode()
    return made


def write(content: Files, folder: Path) -> None:
    """Make the folder of these files, with a pipe beside them."""
    folder.mkdir()
    for name, held in content.items():
        if held is None:
            (folder / name).mkdir()
        elif isinstance(held, Path):
            (folder / name).symlink_to(held)
        else:
            (folder / name).write_bytes(held)
    os.mkfifo(folder / "pipe")


def _lines(records: list[Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


# One thing wrong


def damage(random: Random, data: bytes) -> bytes:
    """A few bytes changed, cut out, doubled, blanked, put in, or the end lost."""
    for _ in range(random.choice([1, 1, 1, 2, 8])):
        at = random.randrange(len(data) + 1)
        to = min(len(data), at + random.choice([1, 1, 2, 4, 16, 200]))
        put = {
            "change": random.randbytes(to - at),
            "flip": bytes(b ^ 1 << random.randrange(8) for b in data[at:to]),
            "cut": b"",
            "double": data[at:to] * 2,
            "blank": bytes(to - at),
            "insert": random.randbytes(random.choice([1, 4, 64])) + data[at:to],
            "end": None,
        }[random.choice(["change", "flip", "cut", "double", "blank", "insert", "end"])]
        data = data[:at] if put is None else data[:at] + put + data[to:]
    return data


def _bytes_of_a_table(random: Random) -> Files:
    made = files(random)
    name = random.choice(TABLES)
    data = made[name]
    assert isinstance(data, bytes)
    made[name] = random.choice(
        [
            lambda: damage(random, data),
            lambda: damage(random, data),
            lambda: damage(random, data),
            lambda: data.decode().encode(random.choice(["utf-16", "utf-32", "utf-8-sig"])),
            lambda: data.replace(b"\n", random.choice([b"\r\n", b"\r", b"\0", b"\n\n", b" "])),
            lambda: data.replace(b'"answer": 1', b'"answer": ' + b"9" * random.choice([9, 9999])),
            lambda: b"[" * random.choice([10, 100_000]) + data,
            lambda: data + b'{"caption": "' + b"x" * 2**21,
            lambda: data * random.choice([0, 2]),
            lambda: random.randbytes(random.choice([1, 100, 5000])),
        ]
    )()
    return made


def _field_of_a_line(random: Random) -> Files:
    made = files(random)
    instances, calibration = rows()
    row = random.choice([*instances, *calibration])
    name = random.choice(FIELDS)
    change = random.choice(["value", "value", "value", "drop", "rename", "add", "line", "copy"])
    if change == "value":
        row[name] = random.choice(VALUES)
    elif change == "drop":
        row.pop(name, None)
    elif change == "rename":
        row[name[:-1] + random.choice("xyz")] = row.pop(name, 0)
    elif change == "add":
        row[str(random.choice(VALUES))[:50]] = random.choice(VALUES)
    lines: list[Any] = [*instances]
    if change == "line":
        lines.insert(random.randrange(3), random.choice(VALUES))
    if change == "copy":
        lines.append(random.choice([*instances, *calibration]))
    made["instances.jsonl"] = _lines(lines)
    made["calibration.jsonl"] = _lines(calibration)
    return made


def _path_of_an_image(random: Random) -> Files:
    made = files(random)
    made |= {"out": Path("/etc/hostname"), "loop": Path("loop"), "door": Path("/etc")}
    made |= {"empty.png": b"", "deep": None}
    instances, calibration = rows()
    images = random.choice([*instances, *calibration])["images"]
    path = random.choice([*PATHS, "deep", "".join(map(chr, random.choices(range(1, 500), k=9)))])
    images[random.randrange(len(images))] = path
    made["instances.jsonl"], made["calibration.jsonl"] = _lines(instances), _lines(calibration)
    return made


def _facts(random: Random) -> Files:
    made = files(random)
    name = random.choice(["identifiers", "n", "root", "seed", "content_hash", "thresholds"])
    value = random.choice(
        [*VALUES, *PATHS, "letters", ["x", "y"], ["x", "y", "x"], 2, 4, ["x"] * 30]
    )
    made["benchmark.json"] = json.dumps({name: value}).encode()
    return made


def _kind_of_a_file(random: Random) -> Files:
    made = files(random)
    name = random.choice(list(made))
    wrong: list[Content] = [b"", b"\n", None, Path("nowhere"), Path(name), Path("/dev/zero")]
    if random.random() < 0.15:
        del made[name]
    else:
        made[name] = random.choice(wrong)
    return made


def _bytes_of_an_image(random: Random) -> Files:
    made = files(random)
    name = random.choice([name for name in made if name not in TABLES])
    data = made[name]
    assert isinstance(data, bytes)
    head = bytearray(data)
    size = random.choice([1, 2, 4])
    at = random.randrange(min(len(data), 120) - size)
    number = random.choice(EXTREMES) & (256**size - 1)
    head[at : at + size] = number.to_bytes(size, random.choice(["big", "little"]))
    made[name] = random.choice(
        [
            lambda: damage(random, data),
            lambda: bytes(head),
            lambda: bytes(head),
            lambda: data[: random.randrange(len(data))],
            lambda: data[: random.choice([8, 16, 32])] + random.randbytes(300),
            lambda: random.choice(HEADS) + random.randbytes(100),
        ]
    )()
    return made


def _words(random: Random) -> Files:
    """A caption or question that ends a turn, holds an image, never ends or says nothing."""
    made = files(random)
    instances, calibration = rows()
    row = random.choice(instances)
    text = "".join(random.choices(WORDS, k=random.choice([1, 1, 2, 4])))
    del row["caption"]
    row[random.choice(["caption", "caption", "question"])] = text
    made["instances.jsonl"], made["calibration.jsonl"] = _lines(instances), _lines(calibration)
    return made


def _number_of_images(random: Random) -> Files:
    """No image, one, more than there are names for; names that are none."""
    made = files(random)
    instances, calibration = rows()
    row = random.choice(instances)
    count = random.choice([0, 1, 1, 2, 7, 9, 10, 12, 26, 27, 27, 40, 300])
    row["images"] = random.choices(["a.png", "b.jpeg", "c.gif", "g.png"], k=count)
    row["answer"] = random.choice([0, count - 1, count, None])
    facts = {"identifiers": random.choice(IDENTIFIERS)}
    made["benchmark.json"] = json.dumps(facts).encode()
    made["instances.jsonl"], made["calibration.jsonl"] = _lines(instances), _lines(calibration)
    return made


KINDS: dict[str, Callable[[Random], Files]] = {
    "bytes of a table": _bytes_of_a_table,
    "field of a line": _field_of_a_line,
    "path of an image": _path_of_an_image,
    "benchmark.json": _facts,
    "kind of a file": _kind_of_a_file,
    "bytes of an image": _bytes_of_an_image,
    "words": _words,
    "number of images": _number_of_images,
}
