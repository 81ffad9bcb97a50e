"""Benchmarks from a table: a Parquet file of captioned images, or of lists of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from lookright.benchmarks.pool import Pool, Vectors
from lookright.errors import InputError, shown
from lookright.images import check_file, resolve
from lookright.instance import ImageSource, Instance

#: What a column is for -> the names it is known by where none is given.
ROLES: dict[str, tuple[str, ...]] = {
    "image": ("image", "images", "img"),
    "caption": ("captions", "caption", "text", "sentences"),
    "question": ("question",),
    "answer": ("answer", "label"),
    "id": ("id", "file_name", "filename", "image_id"),
    "categories": ("category_ids", "categories"),
    "category": ("category",),
    "image_vector": ("clip_image_embedding", "image_embedding"),
    "caption_vector": ("caption_embedding", "text_embedding"),
}


@dataclass(frozen=True)
class Table:
    """An Arrow table whose columns are known by what they are for."""

    source: str
    columns: Mapping[str, Any]  # role -> pyarrow.ChunkedArray
    root: Path | None  # what image paths start from

    @property
    def holds_lists(self) -> bool:
        """Whether a row has a list of candidates, and so is a question already."""
        return _is_list(self.columns["image"].type)

    def __len__(self) -> int:
        return len(self.columns["image"])


def read_parquet(path: Path, given: Mapping[str, str]) -> Table:
    """The columns of a Parquet file that are of use; `given` names some of them by role."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_file(path, str(path))
    try:
        file = pq.ParquetFile(path)
        names = _named(file.schema_arrow.names, given, str(path))
        table = file.read(columns=list(names.values()))
        table.validate(full=True)  # text that is not UTF-8, lists that reach outside
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: is no Parquet file that can be read ({reason})") from None
    return Table(str(path), {role: table[name] for role, name in names.items()}, path.parent)


def from_arrow(table: Any, source: str, given: Mapping[str, str]) -> Table:
    """The columns of an Arrow table that are of use; image paths are files of this machine."""
    names = _named(table.column_names, given, source)
    return Table(source, {role: table[name] for role, name in names.items()}, None)


def pool_of(table: Table) -> Pool:
    """The captioned images of a table; of several captions of an image the first."""
    captions = _required(table, "caption")
    vectors = {
        role: _vectors(table.columns[role], f"{table.source}, column for '{role}'")
        for role in ("image_vector", "caption_vector")
        if role in table.columns
    }
    return Pool(
        source=table.source,
        ids=_ids(table),
        images=_Images(table),
        captions=[_first(caption) for caption in captions.to_pylist()],
        categories=_categories(table),
        image_vectors=vectors.get("image_vector"),
        caption_vectors=vectors.get("caption_vector"),
        embedder="columns of the file" if vectors else None,
    )


def questions_of(table: Table, n: int | None = None) -> tuple[list[Instance], dict[str, int]]:
    """The rows as questions; those with another number of candidates than n are counted."""
    rows: dict[str, list[Any]] = {
        role: table.columns[role].to_pylist() if role in table.columns else [None] * len(table)
        for role in ("caption", "question", "answer", "category")
    }
    found, skipped = [], 0
    for row, (name, cells) in enumerate(zip(_ids(table), _lists(table), strict=True)):
        where = f"{table.source}, row {row}"
        if n is not None and len(cells) != n:
            skipped += 1
            continue
        images = [_image(cell, f"{where}, image {k}", table.root) for k, cell in enumerate(cells)]
        question = rows["question"][row]
        try:
            instance = Instance(
                name,
                tuple(images),
                answer=rows["answer"][row],
                caption=_first(rows["caption"][row]) if question is None else None,
                question=question,
                category=rows["category"][row],
            )
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        found.append(instance)
    if not found:
        raise InputError(f"{table.source}: no row has {n} candidates")
    return found, {f"not {n} candidates": skipped} if skipped else {}


class _Images(Sequence[ImageSource]):
    """The image column, a cell at a time."""

    def __init__(self, table: Table) -> None:
        self._cells, self._table = table.columns["image"], table

    def __len__(self) -> int:
        return len(self._cells)

    @overload
    def __getitem__(self, row: int) -> ImageSource: ...
    @overload
    def __getitem__(self, row: slice) -> list[ImageSource]: ...
    def __getitem__(self, row: int | slice) -> ImageSource | list[ImageSource]:
        if isinstance(row, slice):
            return [self[k] for k in range(*row.indices(len(self)))]
        where = f"{self._table.source}, row {row}"
        return _image(self._cells[row].as_py(), where, self._table.root)


def _named(names: Sequence[str], given: Mapping[str, str], source: str) -> dict[str, str]:
    """Role -> column: as given, else by a name it is known by."""
    for role, name in given.items():
        if role not in ROLES:
            raise InputError(
                f"there is no column for {shown(repr(role))}, only for {', '.join(ROLES)}"
            )
        if name not in names:
            raise InputError(
                f"{source}: has no column {shown(repr(name))}, only {shown(', '.join(names))}"
            )
    found = {
        role: next((name for name in known if name in names), None) for role, known in ROLES.items()
    }
    chosen = {role: name for role, name in {**found, **given}.items() if name is not None}
    if "image" not in chosen:
        raise InputError(
            f"{source}: has no column of images (it has {shown(', '.join(names))}); say which, as "
            "in --column image=photo"
        )
    return chosen


def _required(table: Table, role: str) -> Any:
    if role not in table.columns:
        raise InputError(
            f"{table.source}: has no column of {role}s; say which, as in --column {role}=text"
        )
    return table.columns[role]


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _ids(table: Table) -> list[str]:
    if "id" not in table.columns:
        return [f"row-{row:06d}" for row in range(len(table))]
    return [str(name) for name in table.columns["id"].to_pylist()]


def _lists(table: Table) -> list[list[Any]]:
    return [cells or [] for cells in table.columns["image"].to_pylist()]


def _categories(table: Table) -> list[frozenset[str]] | None:
    if "categories" not in table.columns:
        return None
    cells = table.columns["categories"].to_pylist()
    lists = [cell if isinstance(cell, list) else [] if cell is None else [cell] for cell in cells]
    return [frozenset(map(str, cell)) for cell in lists]


def _first(caption: Any) -> str:
    """The first of several captions; nothing where there is none."""
    if isinstance(caption, list):
        caption = next((text for text in caption if text), None)
    return "" if caption is None else str(caption).strip()


def _image(cell: Any, where: str, root: Path | None) -> ImageSource:
    """An image as Parquet files and `datasets` hold it: bytes, a path, or both."""
    if isinstance(cell, Mapping):
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, bytes) and cell:
        return cell
    if isinstance(cell, str) and cell:
        return str(resolve(cell, root, f"{where} ({shown(cell)})"))
    raise InputError(f"{where}: holds no image (bytes or a path)")


def _vectors(column: Any, where: str) -> Vectors:
    """[rows, dimensions]"""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _is_list(column.type) or not pa.types.is_floating(column.type.value_type):
        raise InputError(f"{where}: holds no lists of numbers, so no embeddings")
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        found = ", ".join("none" if length is None else str(length) for length in lengths[:4])
        raise InputError(f"{where}: embeddings must be of one length, and have {found}")
    flat = pc.list_flatten(column).combine_chunks()
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), -1)
