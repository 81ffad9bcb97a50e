"""Malformed benchmarks, images and instances by the thousand: each must be used, or refused with a
sentence that names it. Ends with exit code 1 where one gives a traceback.

    python benchmarks/fuzz_inputs.py                         3,000 cases of seed 0
    python benchmarks/fuzz_inputs.py --count 20000 --seed 7
    python benchmarks/fuzz_inputs.py --seed 7 --only 1234    one of them again, with its traceback
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from lookright.benchmarks.folder import read_benchmark
from lookright.errors import InputError
from lookright.images import load
from lookright.instance import Instance

#: What a benchmark folder is given to.
Target = Callable[[Path], object]
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
HEADS = (b"%PDF-1.7", b"PK\3\4", b"<svg/>", b"<!DOCTYPE html>", b"\0\0\0\x20ftypavif", b"\x1f\x8b")
EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def read_and_load(folder: Path) -> None:
    """The default target: read the benchmark and decode every image of it."""
    benchmark, _ = read_benchmark(folder)
    for instance in (*benchmark.instances, *benchmark.calibration):
        for image in instance.images:
            load(image)


# Good material


def _picture(random: Random, form: str) -> bytes:
    return _encoded(form, random.randrange(8))


@cache
def _encoded(form: str, number: int) -> bytes:
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


def _rows() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    def row(name: str, *images: str, **more: Any) -> dict[str, Any]:
        return {"id": name, "images": list(images), "answer": 1, "caption": "a red wall"} | more

    first = [row("a", "a.png", "b.jpeg"), row("b", "c.gif", "a.png", category="walls")]
    return first, [row("c", "d.tiff", "e.webp", "f.bmp")]


def _files(random: Random) -> Files:
    instances, calibration = _rows()
    files: Files = {
        f"{letter}.{form.lower()}": _picture(random, form)
        for letter, form in zip(
            "abcdef", ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"), strict=True
        )
    }
    files["instances.jsonl"] = _lines(instances)
    files["calibration.jsonl"] = _lines(calibration)
    files["benchmark.json"] = json.dumps({"identifiers": "letters", "seed": 3}).encode()
    return files


def _lines(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


# One thing wrong


def _damage(random: Random, data: bytes) -> bytes:
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
    files = _files(random)
    name = random.choice(TABLES)
    data = files[name]
    assert isinstance(data, bytes)
    files[name] = random.choice(
        [
            lambda: _damage(random, data),
            lambda: _damage(random, data),
            lambda: _damage(random, data),
            lambda: data.decode().encode(random.choice(["utf-16", "utf-32", "utf-8-sig"])),
            lambda: data.replace(b"\n", random.choice([b"\r\n", b"\r", b"\0", b"\n\n", b" "])),
            lambda: data.replace(b'"answer": 1', b'"answer": ' + b"9" * random.choice([9, 9999])),
            lambda: b"[" * random.choice([10, 100_000]) + data,
            lambda: data + b'{"caption": "' + b"x" * 2**21,
            lambda: data * random.choice([0, 2]),
            lambda: random.randbytes(random.choice([1, 100, 5000])),
        ]
    )()
    return files


def _field_of_a_line(random: Random) -> Files:
    files = _files(random)
    instances, calibration = _rows()
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
    rows: list[Any] = [*instances]
    if change == "line":
        rows.insert(random.randrange(3), random.choice(VALUES))
    if change == "copy":
        rows.append(random.choice([*instances, *calibration]))
    files["instances.jsonl"] = _lines(rows)
    files["calibration.jsonl"] = _lines(calibration)
    return files


def _path_of_an_image(random: Random) -> Files:
    files = _files(random)
    files |= {"out": Path("/etc/hostname"), "loop": Path("loop"), "door": Path("/etc")}
    files |= {"empty.png": b"", "deep": None}
    instances, calibration = _rows()
    images = random.choice([*instances, *calibration])["images"]
    path = random.choice([*PATHS, "deep", "".join(map(chr, random.choices(range(1, 500), k=9)))])
    images[random.randrange(len(images))] = path
    files["instances.jsonl"], files["calibration.jsonl"] = _lines(instances), _lines(calibration)
    return files


def _facts(random: Random) -> Files:
    files = _files(random)
    name = random.choice(["identifiers", "n", "root", "seed", "content_hash", "thresholds"])
    value = random.choice(
        [*VALUES, *PATHS, "letters", ["x", "y"], ["x", "y", "x"], 2, 4, ["x"] * 30]
    )
    files["benchmark.json"] = json.dumps({name: value}).encode()
    return files


def _kind_of_a_file(random: Random) -> Files:
    files = _files(random)
    name = random.choice(list(files))
    wrong: list[Content] = [b"", b"\n", None, Path("nowhere"), Path(name), Path("/dev/zero")]
    if random.random() < 0.15:
        del files[name]
    else:
        files[name] = random.choice(wrong)
    return files


def _bytes_of_an_image(random: Random) -> Files:
    files = _files(random)
    name = random.choice([name for name in files if name not in TABLES])
    data = files[name]
    assert isinstance(data, bytes)
    head = bytearray(data)
    size = random.choice([1, 2, 4])
    at = random.randrange(min(len(data), 120) - size)
    number = random.choice(EXTREMES) & (256**size - 1)
    head[at : at + size] = number.to_bytes(size, random.choice(["big", "little"]))
    files[name] = random.choice(
        [
            lambda: _damage(random, data),
            lambda: bytes(head),
            lambda: bytes(head),
            lambda: data[: random.randrange(len(data))],
            lambda: data[: random.choice([8, 16, 32])] + random.randbytes(300),
            lambda: random.choice(HEADS) + random.randbytes(100),
        ]
    )()
    return files


def _source(random: Random) -> Callable[[], object]:
    """An image in memory, or as a text, that is not quite one."""
    kind = random.choice(["array", "array", "pil", "url", "bytes", "text", "thing"])
    source: Any
    if kind == "array":
        shape = random.choices([0, 1, 2, 3, 4, 5, 9], k=random.choice([0, 1, 2, 3, 3, 3, 4]))
        dtype = random.choice("? b B h H i I q Q e f d g F D U4 S4 O M8[s] >H >f".split())
        source = np.zeros(shape, dtype=dtype)
        if source.size and source.dtype.kind == "f":
            source.flat[0] = random.choice([0, 1, 1.0001, 255, -1, np.nan, np.inf, -np.inf])
    elif kind == "pil":
        mode = random.choice(
            "1 L P LA PA La RGB RGBA RGBa RGBX CMYK YCbCr LAB HSV I F I;16".split()
        )
        source = Image.new(mode, (random.choice([0, 1, 3]), random.choice([0, 1, 3])))
        source.info[random.choice(["transparency", "exif", "xmp"])] = random.choice(VALUES)
    elif kind == "url":
        body = base64.b64encode(_picture(random, random.choice(FORMATS)))
        source = _damage(random, b"data:image/png;base64," + body).decode("latin-1")
    elif kind == "bytes":
        source = _damage(random, _picture(random, random.choice(FORMATS)))
    else:
        source = random.choice(PATHS if kind == "text" else VALUES)
    return lambda: load(source, name="the picture")


def _instance(random: Random) -> Callable[[], object]:
    """An instance with any values in its fields."""
    values: dict[str, Any] = {"id": "a", "images": ("a.png", "b.png"), "caption": "a red wall"}
    for name in random.sample(FIELDS, random.choice([1, 1, 2, 6])):
        values[name] = random.choice(VALUES)
    return lambda: Instance(**values)


KINDS: dict[str, Callable[[Random], Files | Callable[[], object]]] = {
    "bytes of a table": _bytes_of_a_table,
    "field of a line": _field_of_a_line,
    "path of an image": _path_of_an_image,
    "benchmark.json": _facts,
    "kind of a file": _kind_of_a_file,
    "bytes of an image": _bytes_of_an_image,
    "image in memory": _source,
    "instance": _instance,
}


# Running


@dataclass
class Report:
    """How the cases ended, by kind, and what was wrong with those that ended badly."""

    outcomes: dict[str, Counter[str]] = field(
        default_factory=lambda: {kind: Counter() for kind in KINDS}
    )
    failures: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)

    def total(self, outcome: str) -> int:
        return sum(counter[outcome] for counter in self.outcomes.values())


def run(numbers: Iterator[int] | range, seed: int, target: Target = read_and_load) -> Report:
    """Put the cases of these numbers to the target (those that are no folder, to their own)."""
    report = Report()
    names = list(KINDS)
    home = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        for number in numbers:
            kind = names[number % len(names)]
            case = KINDS[kind](Random(f"{seed}/{number}"))
            began = time.perf_counter()
            outcome, said = _outcome(case, home / str(number), target)
            report.slowest = max(report.slowest, (time.perf_counter() - began, number))
            report.outcomes[kind][outcome] += 1
            if outcome not in ("accepted", "refused"):
                report.failures.append(f"case {number}, {kind}: {outcome}\n{said}")
    finally:
        shutil.rmtree(home)
    return report


def _outcome(case: Files | Callable[[], object], folder: Path, target: Target) -> tuple[str, str]:
    if callable(case):
        names, work = ["the picture", "instance"], case
    else:
        _write(case, folder)
        names, work = [str(folder)], lambda: target(folder)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
    except InputError as error:
        said = str(error)
        return ("refused" if _is_good(said, names) else "refused in bad words"), said
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "traceback", traceback.format_exc()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bombs = [str(w.message) for w in caught if w.category is Image.DecompressionBombWarning]
    return ("warning of PIL's" if bombs else "accepted"), "\n".join(bombs)


def _is_good(said: str, names: list[str]) -> bool:
    """A message names what it refuses, says something, fits a screen and moves no cursor."""
    named = any(name in said for name in names)
    return named and len(said.split()) >= 4 and len(said) < 1000 and said.isprintable()


def _write(files: Files, folder: Path) -> None:
    folder.mkdir()
    for name, content in files.items():
        if content is None:
            (folder / name).mkdir()
        elif isinstance(content, Path):
            (folder / name).symlink_to(content)
        else:
            (folder / name).write_bytes(content)
    os.mkfifo(folder / "pipe")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one case")
    options = parser.parse_args()
    began = time.perf_counter()
    only = options.only
    report = run(range(options.count) if only is None else range(only, only + 1), options.seed)
    print(f"{'':20}{'cases':>8}{'accepted':>10}{'refused':>10}{'failed':>8}")
    for kind, counter in report.outcomes.items():
        good = counter["accepted"], counter["refused"]
        cells = (counter.total(), *good, counter.total() - sum(good))
        print(
            f"{kind:20}" + "".join(f"{c:>{w}}" for c, w in zip(cells, (8, 10, 10, 8), strict=True))
        )
    for failure in report.failures[:20]:
        print(failure, file=sys.stderr)
    slowest, number = report.slowest
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{report.total('accepted')} accepted, {report.total('refused')} refused, "
        f"{len(report.failures)} failed; {time.perf_counter() - began:.1f} s, the slowest case "
        f"({number}) {1000 * slowest:.0f} ms; at most {memory:.0f} MiB"
    )
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
