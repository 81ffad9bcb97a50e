"""Benchmarks from MS-COCO: the official annotation files and the folder of their pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lookright.benchmarks.pictures import files_in
from lookright.benchmarks.pool import Pool
from lookright.errors import InputError
from lookright.images import check_file


def read_coco(captions: Path, images: Path, instances: Path | None = None) -> Pool:
    """The captioned pictures of one split; of several captions the one of lowest number.

    `instances` is the file of object annotations (`instances_val2014.json`): the categories that
    hard negatives ask for.
    """
    content = _read(captions)
    names = {_number(entry, "id", captions): entry for entry in _list(content, "images", captions)}
    said: dict[int, tuple[int, str]] = {}
    for entry in _list(content, "annotations", captions):
        caption = entry.get("caption")
        if not isinstance(caption, str):
            raise InputError(
                f"{captions}: its annotations hold no captions; give captions_val2014.json or the "
                "like"
            )
        image = _number(entry, "image_id", captions)
        if image not in names:
            raise InputError(f"{captions}: annotates image {image}, which it does not list")
        numbered = (_number(entry, "id", captions), " ".join(caption.split()))
        said[image] = min(said.get(image, numbered), numbered)
    order = [image for image in names if image in said]
    files = [_name(names[image], captions) for image in order]
    return Pool(
        source=str(captions),
        ids=files,
        images=files_in(images, files, str(captions)),
        captions=[said[image][1] for image in order],
        categories=None if instances is None else _categories(instances, order, captions),
    )


def _categories(path: Path, order: list[int], captions: Path) -> list[frozenset[str]]:
    found: dict[int, set[str]] = {image: set() for image in order}
    matched = False
    for entry in _list(_read(path), "annotations", path):
        if "category_id" not in entry:
            raise InputError(
                f"{path}: its annotations hold no categories; give instances_val2014.json or the "
                "like"
            )
        image = _number(entry, "image_id", path)
        if image in found:
            matched = True
            found[image].add(str(entry["category_id"]))
    if not matched:
        raise InputError(
            f"{path}: none of its objects is in a picture of {captions}; give the two files of the "
            "same year and split"
        )
    return [frozenset(found[image]) for image in order]


def _read(path: Path) -> dict[str, Any]:
    check_file(path, str(path))
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON that can be read ({error})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: is no COCO annotation file (a JSON object)")
    return content


def _list(content: dict[str, Any], name: str, path: Path) -> list[dict[str, Any]]:
    entries = content.get(name)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{path}: is no COCO annotation file (it has no list '{name}')")
    return entries


def _number(entry: dict[str, Any], name: str, path: Path) -> int:
    value = entry.get(name)
    if type(value) is not int:
        raise InputError(f"{path}: an entry's '{name}' must be a whole number, not {value!r:.80}")
    return value


def _name(entry: dict[str, Any], path: Path) -> str:
    value = entry.get("file_name")
    if not isinstance(value, str) or not value:
        raise InputError(f"{path}: image {entry['id']} has no file name")
    return value
