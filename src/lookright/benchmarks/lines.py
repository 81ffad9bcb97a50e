"""Instances from JSON lines; every line that cannot be used is named as file, line and field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from lookright.errors import InputError, shown
from lookright.identifiers import Identifiers, identifiers_for
from lookright.images import check_file, label_of, resolve
from lookright.instance import Instance

#: A line longer than this is no instance, whatever it holds.
MAX_LINE = 2**20

_FIELDS = tuple(entry.name for entry in fields(Instance))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass
class InstanceLines:
    """Reads files of instances that belong together: an id stands once in all of them."""

    root: Path  # what image paths start from
    identifiers: Identifiers
    n: int | None = None  # candidates of every instance, where they are all alike
    problems: list[str] = field(default_factory=list)
    _ids: dict[str, str] = field(default_factory=dict)  # id -> where it stands
    _files: dict[str, Path] = field(default_factory=dict)  # image as written -> file

    def read(self, path: Path, apart_from: list[Instance] | None = None) -> list[Instance]:
        """The usable instances of one file; what is wrong with the others goes to `problems`.

        No image of theirs may be one of the instances `apart_from`.
        """
        taken = {image: other.id for other in apart_from or () for image in other.images}
        check_file(path, str(path))
        instances = []
        for number, line in _numbered(path):
            where = f"{path}, line {number}"
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if not line.strip():
                continue
            try:
                instances.append(self._instance(line, where, taken))
            except InputError as error:
                self.problems.append(str(error))
        if not instances and not self.problems:
            raise InputError(f"{path}: holds blank lines only; it needs one JSON object a line")
        return instances

    def _instance(self, line: bytes, where: str, taken: dict[Any, str]) -> Instance:
        values = _record(line, where)
        name = values["id"]
        if not isinstance(name, str) or not name:
            raise InputError(f"{where}, field 'id': must be a non-empty string")
        if name in self._ids:
            raise InputError(
                f"{where}, field 'id': {shown(repr(name))} stands already in {self._ids[name]}"
            )
        images = values["images"]
        if not isinstance(images, list) or not all(isinstance(i, str) and i for i in images):
            raise InputError(f"{where}, field 'images': must be a list of paths")
        try:
            instance = Instance(**values)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        self._check_count(len(images), where)
        files = tuple(str(self._file(image, f"{where}, field 'images'")) for image in images)
        for image, file in zip(images, files, strict=True):
            if file in taken:
                raise InputError(
                    f"{where}, field 'images' ({shown(image)}): is also an image of "
                    f"{taken[file]!r}, which is evaluated; calibrate from other images"
                )
        self._ids[name] = where
        return replace(instance, images=files)

    def _check_count(self, count: int, where: str) -> None:
        if self.n is not None and count != self.n:
            raise InputError(
                f"{where}, field 'images': holds {count}, but the benchmark says n = {self.n}"
            )
        try:
            identifiers_for(self.identifiers, count)
        except InputError as error:
            raise InputError(f"{where}, field 'images': {error}") from None

    def _file(self, image: str, where: str) -> Path:
        if image not in self._files:
            label = label_of(image, where)
            file = resolve(image, self.root, label)
            check_file(file, label)
            self._files[image] = file
        return self._files[image]


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """One JSON object; NaN, a field that stands twice and text outside UTF-8 are refused."""

    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON number")

    def refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if twins := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"field {shown(repr(twins[0]))} stands there twice")
        return dict(pairs)

    try:
        value = json.loads(
            text.decode("utf-8"), parse_constant=refuse_constant, object_pairs_hook=refuse_twins
        )
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: is not UTF-8 (byte {error.start + 1}); save it so") from None
    except UnicodeEncodeError:
        raise InputError(f"{where}: holds half a character (a lone surrogate)") from None
    except RecursionError:
        raise InputError(f"{where}: is not usable JSON (nested too deeply)") from None
    except ValueError as error:
        raise InputError(f"{where}: is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be a JSON object {{...}}, not {type(value).__name__}")
    return value


def _record(line: bytes, where: str) -> dict[str, Any]:
    """The fields of one instance, none missing and none unknown."""
    if len(line) > MAX_LINE:
        raise InputError(f"{where}: is longer than {MAX_LINE:,} bytes; put images into files")
    values = parse_object(line, where)
    for name in values:
        if name not in _FIELDS:
            near = get_close_matches(name, _FIELDS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(_FIELDS)}"
            raise InputError(f"{where}, field {shown(repr(name))}: is unknown; {hint}")
    for name in ("id", "images"):
        if name not in values:
            raise InputError(f"{where}, field '{name}': is missing")
    return values


def _numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers, counted from 1; of one too long, its start."""
    number = 0
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE + 1):
                number += 1
                yield number, line
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
