"""The benchmark folder: `instances.jsonl`, `calibration.jsonl`, `benchmark.json`, and images.

A single `.jsonl` file is read too, as a benchmark without calibration.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

from lookright.benchmarks.lines import InstanceLines, parse_object
from lookright.errors import InputError, shown
from lookright.evidence import instance_hash
from lookright.files import sync, write_atomically
from lookright.identifiers import Identifiers, identifiers_for
from lookright.images import check_file, content_hash, read
from lookright.instance import ImageSource, Instance
from lookright.pixels import format_of

INSTANCES, CALIBRATION, META = "instances.jsonl", "calibration.jsonl", "benchmark.json"
IMAGES = "images"
MAX_META = 2**20


@dataclass(frozen=True)
class Benchmark:
    """Instances, the labelled samples to calibrate from, and what `benchmark.json` says of them.

    As read, its images are absolute paths.
    """

    path: Path
    instances: tuple[Instance, ...]
    calibration: tuple[Instance, ...] = ()
    identifiers: Identifiers = "numbers"
    meta: Mapping[str, Any] = field(default_factory=dict)


def read_benchmark(
    path: str | os.PathLike[str], keep_going: bool = False, allow_leak: bool = False
) -> tuple[Benchmark, tuple[str, ...]]:
    """The benchmark in a folder or in one `.jsonl` file, and the problems met in its lines.

    A problem is refused, unless `keep_going` asks to leave such lines out, and samples to calibrate
    from that are also evaluated, unless `allow_leak`. Images must be there; they are not decoded.
    """
    path = Path(path)
    folder = _is_folder(path)
    meta = _read_meta(path / META) if folder else {}
    identifiers = _identifiers(meta, path / META)
    root = path / _root(meta, path / META) if folder else path.parent
    lines = InstanceLines(root, identifiers, _n(meta, path / META))
    instances = lines.read(path / INSTANCES if folder else path)
    calibration = []
    if folder and os.path.lexists(path / CALIBRATION):
        apart = replace(lines, _ids={}) if allow_leak else lines
        calibration = apart.read(path / CALIBRATION, [] if allow_leak else instances)
    problems = tuple(lines.problems)
    if problems and not (keep_going and instances):
        more = f" ({len(problems) - 1} more lines have problems)" if len(problems) > 1 else ""
        raise InputError(problems[0] + more)
    return Benchmark(path, tuple(instances), tuple(calibration), identifiers, meta), problems


def write_benchmark(
    path: str | os.PathLike[str],
    instances: Sequence[Instance],
    calibration: Sequence[Instance] = (),
    *,
    identifiers: Identifiers = "numbers",
    meta: Mapping[str, Any] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Benchmark:
    """Write a benchmark folder and read it back.

    With `root`, every image must be a file in there, and stays there. Without, images that are not
    yet files of the folder are stored in its `images`, encoded ones byte for byte. The folder is a
    benchmark once `instances.jsonl` stands in it, which is written last.
    """
    folder = Path(path)
    check_is_new(folder)
    if not instances:
        raise InputError(f"{folder}: a benchmark needs at least one instance")
    _make_folder(folder)
    base = Path(folder if root is None else root).resolve()
    store = base / IMAGES if root is None else None
    placed = Benchmark(
        folder,
        tuple(_placed(instance, base, store) for instance in instances),
        tuple(_placed(instance, base, store) for instance in calibration),
    )
    sync()
    counts = {len(instance.images) for instance in (*placed.instances, *placed.calibration)}
    facts = {
        **(meta or {}),
        "identifiers": identifiers,
        "n": counts.pop() if len(counts) == 1 else None,
        "root": "." if root is None else _from_folder(root, folder),
        "content_hash": benchmark_hash(placed),
    }
    write_atomically(folder / META, _json(facts, f"{folder / META}", indent=2))
    for file, part in ((CALIBRATION, placed.calibration), (INSTANCES, placed.instances)):
        rows = [_json(_row(instance, base), f"instance {instance.id!r}") for instance in part]
        if rows:
            write_atomically(folder / file, b"".join(rows))
        else:
            (folder / file).unlink(missing_ok=True)
    try:
        return read_benchmark(folder)[0]
    except InputError:
        (folder / INSTANCES).unlink(missing_ok=True)
        raise


def check_is_new(folder: Path) -> None:
    """Refuse a folder that holds a benchmark: none is written over."""
    if os.path.lexists(folder / INSTANCES):
        raise InputError(f"{folder}: holds a benchmark already; choose another folder or delete it")


def benchmark_hash(benchmark: Benchmark, hashed: Callable[[str], str] | None = None) -> str:
    """What tells a benchmark of files from any other: its questions, labels and images' bytes.

    `hashed` gives an image file's content hash, where the caller knows them already.
    """
    hashed = hashed or cache(content_hash)  # hard negatives show one image many times
    parts = [
        [
            [i.id, instance_hash(i, [hashed(str(f)) for f in i.images]), i.answer, i.category]
            for i in part
        ]
        for part in (benchmark.instances, benchmark.calibration)
    ]
    return sha256(json.dumps(parts).encode()).hexdigest()


def _is_folder(path: Path) -> bool:
    if os.path.isdir(path):
        if not os.path.lexists(path / INSTANCES):
            raise InputError(f"{path}: holds no {INSTANCES}, so it is no benchmark folder")
        return True
    if os.path.isfile(path) and path.suffix != ".jsonl":
        raise InputError(f"{path}: a benchmark is a folder with {INSTANCES}, or one .jsonl file")
    return False


def _read_meta(path: Path) -> dict[str, Any]:
    if not os.path.lexists(path):
        return {}
    if check_file(path, str(path)) > MAX_META:
        raise InputError(f"{path}: is longer than {MAX_META:,} bytes")
    try:
        return parse_object(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _identifiers(meta: Mapping[str, Any], path: Path) -> Identifiers:
    value = meta.get("identifiers", "numbers")
    if not isinstance(value, (str, list)):
        raise InputError(f"{path}, field 'identifiers': must be the name of a set, or a list")
    try:
        identifiers_for(value, 0)
    except InputError as error:
        raise InputError(f"{path}, field 'identifiers': {error}") from None
    return value if isinstance(value, str) else tuple(value)


def _n(meta: Mapping[str, Any], path: Path) -> int | None:
    value = meta.get("n")
    if value is None or (type(value) is int and value >= 2):
        return value
    raise InputError(f"{path}, field 'n': must be the number of candidates, 2 or more")


def _root(meta: Mapping[str, Any], path: Path) -> str:
    value = meta.get("root", ".")
    if not isinstance(value, str) or not value:
        raise InputError(f"{path}, field 'root': must be the path of a folder")
    if not os.path.isdir(path.parent / value):
        raise InputError(
            f"{path}, field 'root': there is no folder {shown(str(path.parent / value))}"
        )
    return value


def _placed(instance: Instance, base: Path, store: Path | None) -> Instance:
    """The instance with its images as files below `base`, stored there where need be."""
    names = [f"image {k} of instance {instance.id!r}" for k in range(len(instance.images))]
    files = [
        _place(image, name, base, store) for image, name in zip(instance.images, names, strict=True)
    ]
    return replace(instance, images=tuple(map(str, files)))


def _place(image: ImageSource, name: str, base: Path, store: Path | None) -> Path:
    picture = read(image, name=name)
    if isinstance(image, (str, os.PathLike)) and os.fspath(image)[:5].lower() != "data:":
        file = Path(image).resolve()
        if file.is_relative_to(base):
            return file
    if store is None:
        raise InputError(
            f"{picture.label}: is no file in {base}; leave `root` out to store images in the folder"
        )
    content = picture.content
    if not isinstance(content, bytes):
        buffer = BytesIO()
        content.save(buffer, "PNG")
        content = buffer.getvalue()
    suffix = format_of(content)
    if suffix is None:
        raise InputError(f"{picture.label}: is no image, or one of another format")
    file = store / f"{content_hash(content)[:32]}.{suffix}"
    if not file.exists():
        _make_folder(store)
        write_atomically(file, content, durable=False)
    return file


def _from_folder(root: str | os.PathLike[str], folder: Path) -> str:
    """The root as `benchmark.json` names it: absolute where given so, else from the folder."""
    return str(root) if Path(root).is_absolute() else Path(os.path.relpath(root, folder)).as_posix()


def _row(instance: Instance, base: Path) -> dict[str, Any]:
    row = {entry.name: getattr(instance, entry.name) for entry in fields(instance)}
    row["images"] = [Path(str(image)).relative_to(base).as_posix() for image in instance.images]
    return {name: value for name, value in row.items() if value is not None}


def _json(value: Mapping[str, Any], where: str, indent: int | None = None) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent) + "\n"
        return text.encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: cannot be written as JSON ({error})") from None


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be made a folder ({error.strerror or error})") from None
