"""Benchmarks from Flickr8k: its caption file and the folder of its pictures."""

from __future__ import annotations

import csv
from pathlib import Path

from lookright.benchmarks.pictures import files_in, read_text
from lookright.benchmarks.pool import Pool
from lookright.errors import InputError, shown

#: Named in the official caption file, though there is no such picture.
_NO_PICTURE = "2258277193_586949ec62.jpg.1"


def read_flickr8k(captions: Path, images: Path, split: Path | None = None) -> Pool:
    """The captioned pictures, or those that a split's list names; of five captions the first.

    Read are `Flickr8k.token.txt` (name#number, tab, caption) and the CSV form (image,caption).
    """
    said = _tokens(captions) if captions.suffix != ".csv" else _table(captions)
    said.pop(_NO_PICTURE, None)
    if not said:
        raise InputError(f"{captions}: holds no captions")
    names = list(said)
    if split is not None:
        names = [line.strip() for line in read_text(split).splitlines() if line.strip()]
        if unknown := [name for name in names if name not in said]:
            raise InputError(
                f"{split}: names {len(unknown):,} pictures that {captions} has no caption of, such "
                f"as {shown(unknown[0])}"
            )
    return Pool(
        source=str(split or captions),
        ids=names,
        images=files_in(images, names, str(split or captions)),
        captions=[said[name] for name in names],
    )


def _tokens(path: Path) -> dict[str, str]:
    lines = read_text(path).splitlines()
    if lines and lines[0].strip() == "image,caption":
        return _table(path)
    said: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        label, tab, caption = line.partition("\t")
        name, mark, rank = label.rpartition("#")
        if not tab or not mark or not rank.isdigit():
            raise InputError(
                f"{path}, line {number}: must be 'name.jpg#0', a tab, and the caption, not "
                f"{shown(repr(line))}"
            )
        numbered = (int(rank), " ".join(caption.split()))
        said[name] = min(said.get(name, numbered), numbered)
    return {name: caption for name, (_, caption) in said.items()}


def _table(path: Path) -> dict[str, str]:
    said: dict[str, str] = {}
    rows = csv.reader(read_text(path).splitlines(keepends=True))
    for number, row in enumerate(rows, start=1):
        if not row or (number == 1 and row == ["image", "caption"]):
            continue
        if len(row) != 2:
            raise InputError(f"{path}, row {number}: must be an image and its caption")
        said.setdefault(row[0], " ".join(row[1].split()))
    return said
