"""Benchmarks from a folder of pictures, with captions in CSV, JSON lines, or text files beside."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lookright.benchmarks.lines import parse_object
from lookright.benchmarks.pool import Pool
from lookright.errors import InputError, shown
from lookright.images import check_file, resolve

#: Files of a folder that are taken for pictures.
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_NAMES = ("image", "file", "file_name", "filename", "path")  # columns that name the picture
_CAPTIONS = ("caption", "captions", "text")
_LISTS = ("categories", "tags")


def read_pictures(folder: Path, captions: Path | None = None) -> Pool:
    """The captioned pictures of a folder; those of them without a caption are refused by name.

    Without a file of captions, that of `a.jpg` stands in `a.txt`.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder; name the one that holds the pictures")
    rows = _beside(folder) if captions is None else _rows(captions)
    names = [str(name) for name, _, _ in rows]
    return Pool(
        source=str(captions or folder),
        ids=names,
        images=files_in(folder, names, str(captions or folder)),
        captions=[caption for _, caption, _ in rows],
        categories=[tags for _, _, tags in rows] if any(tags for _, _, tags in rows) else None,
    )


def files_in(folder: Path, names: Iterable[str], source: str) -> list[str]:
    """The paths of pictures of a folder, all of which must be there."""
    files, missing = [], []
    for name in names:
        file = resolve(name, folder, f"{source}, picture {shown(repr(name))}")
        files.append(os.fspath(file))
        if not os.path.isfile(file):  # also where the name is too long for one
            missing.append(name)
    if missing:
        raise InputError(
            f"{source}: {len(missing):,} of its {len(files):,} pictures are not in {folder}, such "
            f"as {shown(missing[0])}; check that the pictures belong to it (the same year and "
            "split), or leave these out"
        )
    return files


def read_text(path: Path) -> str:
    """A text file in UTF-8, with or without a byte order mark."""
    check_file(path, str(path))
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 (byte {error.start + 1}); save it so") from None


Row = tuple[str, str, frozenset[str]]  # file name, caption, categories


def _beside(folder: Path) -> list[Row]:
    pictures = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    if not pictures:
        raise InputError(f"{folder}: holds no pictures ({', '.join(SUFFIXES)})")
    rows: list[Row] = []
    for picture in pictures:
        text = picture.with_suffix(".txt")
        if not text.is_file():
            raise InputError(
                f"{picture}: has no caption; write it into {text.name} beside it, or give one file "
                "of all captions by --captions"
            )
        caption = " ".join(read_text(text).split())
        rows.append((picture.relative_to(folder).as_posix(), caption, frozenset()))
    return rows


def _rows(path: Path) -> list[Row]:
    if path.suffix.lower() == ".csv":
        return _from_csv(path)
    if path.suffix.lower() == ".jsonl":
        return _from_lines(path)
    raise InputError(f"{path}: captions are read from .csv or .jsonl files")


def _from_csv(path: Path) -> list[Row]:
    try:
        table = list(csv.DictReader(read_text(path).splitlines(keepends=True), strict=True))
    except csv.Error as error:
        raise InputError(f"{path}: is not CSV ({error})") from None
    return [_row(row, f"{path}, row {number}") for number, row in enumerate(table, start=1)]


def _from_lines(path: Path) -> list[Row]:
    lines = read_text(path).splitlines()
    return [
        _row(parse_object(line.encode(), f"{path}, line {number}"), f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def _row(values: Mapping[str, Any], where: str) -> Row:
    name = _value(values, _NAMES, where)
    caption = _value(values, _CAPTIONS, where)
    if isinstance(caption, list) and caption:
        caption = caption[0]
    if not isinstance(name, str) or not name or not isinstance(caption, str):
        raise InputError(f"{where}: needs the picture's file name and its caption, both text")
    tags: Any = next((values[known] for known in _LISTS if values.get(known)), [])
    if isinstance(tags, str):
        tags = [tag.strip() for tag in tags.split(";") if tag.strip()]
    if not isinstance(tags, list):
        raise InputError(f"{where}: categories must be a list, or text parted by semicolons")
    return name, " ".join(caption.split()), frozenset(map(str, tags))


def _value(values: Mapping[str, Any], known: Sequence[str], where: str) -> Any:
    for name in known:
        if name in values:
            return values[name]
    raise InputError(f"{where}: has none of the fields {', '.join(known)}")
