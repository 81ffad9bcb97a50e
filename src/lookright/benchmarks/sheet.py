"""What a benchmark looks like: counts, what is wrong with it, and a sheet of its questions."""

from __future__ import annotations

import base64
import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from lookright.benchmarks.folder import Benchmark, benchmark_hash, read_benchmark
from lookright.errors import InputError, shown
from lookright.identifiers import identifiers_for
from lookright.images import content_hash, load
from lookright.instance import Instance

FORMATS = (".png", ".html")

_THUMB, _GAP, _LINE, _WORDS = 148, 10, 15, 110
_TARGET, _OTHER, _INK, _PAGE = (34, 120, 70), (214, 216, 220), (40, 42, 48), (255, 255, 255)


@dataclass(frozen=True)
class Summary:
    """The counts of a benchmark, and what a check found."""

    path: str
    instances: int
    calibration: int
    candidates: dict[int, int]  # number of images -> instances
    targets: dict[int, int]  # position of the target -> instances
    images: int  # files, each once
    facts: dict[str, Any]  # benchmark.json
    problems: tuple[str, ...]

    def as_text(self) -> str:
        known = {name: value for name, value in self.facts.items() if value not in (None, {}, [])}
        lines = [
            f"{self.path}: {self.instances:,} questions, {self.calibration:,} to calibrate from",
            "candidates: "
            + ", ".join(f"{n} ({count:,} questions)" for n, count in self.candidates.items()),
            f"images: {self.images:,}",
            "target's place: "
            + ", ".join(f"{place + 1}: {count:,}" for place, count in self.targets.items()),
            *(f"{name}: {_plain(value)}" for name, value in known.items()),
        ]
        if self.problems:
            lines += [f"{len(self.problems):,} problems:", *self.problems]
        return "\n".join(lines)


def summarise(path: Path, check: bool = False) -> tuple[Benchmark, Summary]:
    """A benchmark and its counts; with `check`, every image is decoded and compared."""
    benchmark, problems = read_benchmark(path, keep_going=check)
    both = (*benchmark.instances, *benchmark.calibration)
    found = [*problems, *(_problems(benchmark) if check else ())]
    places = Counter(i.answer for i in benchmark.instances if i.answer is not None)
    return benchmark, Summary(
        path=str(path),
        instances=len(benchmark.instances),
        calibration=len(benchmark.calibration),
        candidates=dict(sorted(Counter(len(i.images) for i in benchmark.instances).items())),
        targets=dict(sorted(places.items())),
        images=len({image for i in both for image in i.images}),
        facts=dict(benchmark.meta),
        problems=tuple(found),
    )


def _problems(benchmark: Benchmark) -> list[str]:
    """What cannot be seen without opening the images: damage, twins, leaks, other contents."""
    hashes: dict[str, str] = {}
    found = []
    for image in dict.fromkeys(
        str(image) for i in (*benchmark.instances, *benchmark.calibration) for image in i.images
    ):
        try:
            hashes[image] = content_hash(image)
            load(image)
        except InputError as error:
            found.append(str(error))
    evaluated = {hashes.get(str(image)): i.id for i in benchmark.instances for image in i.images}
    for part, instances in (("", benchmark.instances), ("calibration ", benchmark.calibration)):
        for instance in instances:
            contents = [hashes.get(str(image), str(image)) for image in instance.images]
            if len(set(contents)) < len(contents):
                found.append(f"{part}{shown(repr(instance.id))}: shows one image twice")
            if part and instance.answer is None:
                found.append(f"{part}{shown(repr(instance.id))}: has no answer to calibrate from")
            leaks = {evaluated[content] for content in contents if content in evaluated}
            if part and leaks:
                found.append(
                    f"{part}{shown(repr(instance.id))}: shows an image that is evaluated in "
                    f"{shown(repr(min(leaks)))}"
                )
    stated = benchmark.meta.get("content_hash")
    if stated and not found and benchmark_hash(benchmark, hashes.__getitem__) != stated:
        found.append("its questions or images are not those that benchmark.json was written for")
    return found


def save_sheet(benchmark: Benchmark, path: Path, count: int = 12) -> None:
    """A contact sheet of the first questions, as a PNG or as one HTML page with all in it."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: a contact sheet's name must end in {' or '.join(FORMATS)}")
    chosen = benchmark.instances[:count]
    try:
        if path.suffix.lower() == ".png":
            draw_sheet(benchmark, chosen).save(path)
        else:
            path.write_text(html_sheet(benchmark, chosen), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None


def draw_sheet(benchmark: Benchmark, instances: Sequence[Instance]) -> Image.Image:
    """Each question as its words above a row of images; the target is framed and marked."""
    columns = max(len(instance.images) for instance in instances)
    width = max(_GAP + columns * (_THUMB + _GAP), 4 * (_THUMB + _GAP))
    texts = [wrap(_words(i), max(20, width // 8), max_lines=4) for i in instances]
    heights = [_LINE * (len(text) + 1) + _THUMB + 3 * _GAP for text in texts]
    sheet = Image.new("RGB", (width, sum(heights) + _GAP), _PAGE)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    top = _GAP
    for instance, text, height in zip(instances, texts, heights, strict=True):
        for line in text:
            pen.text((_GAP, top), line, fill=_INK, font=font)
            top += _LINE
        top += _GAP // 2
        names = identifiers_for(benchmark.identifiers, len(instance.images))
        for k, (image, name) in enumerate(zip(instance.images, names, strict=True)):
            left = _GAP + k * (_THUMB + _GAP)
            target = k == instance.answer
            frame = (left - 4, top - 4, left + _THUMB + 3, top + _THUMB + 3)
            pen.rectangle(frame, outline=_TARGET if target else _OTHER, width=4 if target else 1)
            thumb = _thumbnail(image)
            place = (left + (_THUMB - thumb.width) // 2, top + (_THUMB - thumb.height) // 2)
            sheet.paste(thumb, place)
            label = f"{name}  target" if target else name
            under = (left, top + _THUMB + 5)
            pen.text(under, label, fill=_TARGET if target else _INK, font=font)
        top += height - _LINE * len(text) - _GAP // 2
    return sheet


def html_sheet(benchmark: Benchmark, instances: Sequence[Instance]) -> str:
    """One page with the images in it."""
    parts = [_HEAD.format(title=html.escape(benchmark.path.name))]
    for instance in instances:
        names = identifiers_for(benchmark.identifiers, len(instance.images))
        parts.append(f"<section><p>{html.escape(_words(instance))}</p><div>")
        for k, (image, name) in enumerate(zip(instance.images, names, strict=True)):
            target = k == instance.answer
            buffer = BytesIO()
            _thumbnail(image).save(buffer, "PNG")
            data = base64.b64encode(buffer.getvalue()).decode()
            label = html.escape(f"{name}, target" if target else name)
            parts.append(
                f"<figure{' class=target' if target else ''}>"
                f'<img alt="candidate {html.escape(name)}" src="data:image/png;base64,{data}">'
                f"<figcaption>{label}</figcaption></figure>"
            )
        parts.append("</div></section>")
    return "\n".join([*parts, "</main>"]) + "\n"


_HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2em; color: #28282e; background: #fff; }}
section > div {{ display: flex; flex-wrap: wrap; gap: 10px; margin-bottom: 1.6em; }}
p {{ max-width: 60em; white-space: pre-line; margin-bottom: .4em; }}
figure {{ margin: 0; border: 1px solid #d6d8dc; padding: 4px; }}
figure.target {{ border: 4px solid #227846; padding: 1px; }}
figcaption {{ font-size: 13px; }} .target figcaption {{ color: #227846; font-weight: bold; }}
</style>
<h1>{title}</h1><main>"""


def _words(instance: Instance) -> str:
    return instance.caption if instance.question is None else instance.question  # type: ignore[return-value]


def _thumbnail(image: Any) -> Image.Image:
    picture = load(image)
    picture.thumbnail((_THUMB, _THUMB))
    return picture


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items())
    return str(value)
