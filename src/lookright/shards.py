"""Shards of evidence: Parquet files whose rows are alike, written, merged and read.

All rows of a shard have one shape, so that a column is one run of numbers and reading it is a
reshape. A file that is no whole shard is refused by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.errors import InputError
from lookright.evidence import Evidence
from lookright.instance import Order
from lookright.kinds import Kind

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    Values = NDArray[Any]

#: What a row is evidence of: content hash of the instance, order, hash of the settings.
Key = tuple[str, Order, str]


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of one shard as columns."""

    kind: Kind
    written: list[int]
    keys: list[Key]
    ids: list[str]
    targets: list[int | None]
    numbers: dict[str, Values]  # column -> [rows, *shape]
    maps: list[list[Values]] | None  # per row and position [L * tokens]

    def evidence(self, row: int) -> Evidence:
        instance, order, settings = self.keys[row]
        maps, depth = self.maps, len(self.kind.layers)
        return Evidence(
            instance_id=self.ids[row],
            order=order,
            log_probs=self.numbers["log_probs"][row],
            attention=self.numbers["attention"][row],
            layers=self.kind.layers,
            image_tokens=self.numbers["image_tokens"][row],
            settings=settings,
            instance=instance,
            target=self.targets[row],
            heads=self.numbers["heads"][row] if "heads" in self.numbers else None,
            maps=None if maps is None else tuple(m.reshape(depth, -1) for m in maps[row]),
        )


@dataclass(frozen=True)
class Shard:
    """An open shard; every column is read when it is asked for."""

    path: Path
    kind: Kind
    file: pq.ParquetFile

    @property
    def size(self) -> int:
        """Bytes of its columns in memory."""
        groups = range(self.file.metadata.num_row_groups)
        return sum(self.file.metadata.row_group(g).total_byte_size for g in groups)

    def stamped_keys(self) -> list[tuple[int, Key]]:
        """When each row was written, and what it is of."""
        table = self.file.read(["written", "instance", "order"])
        orders = _numbers(table, "order", (self.kind.n,)).tolist()
        names, settings = table["instance"].to_pylist(), self.kind.settings.hash
        keys = [(name, tuple(order), settings) for name, order in zip(names, orders, strict=True)]
        return list(zip(table["written"].to_pylist(), keys, strict=True))

    def rows(self, wanted: Callable[[Key], bool], *, heads: bool, maps: bool) -> Rows | None:
        """The wanted rows, or None where there are none; heads and maps only where asked for."""
        found = self.stamped_keys()
        chosen = [row for row, (_, key) in enumerate(found) if wanted(key)]
        if not chosen:
            return None
        left_out = ({"maps"} if not maps else set()) | ({"heads"} if not heads else set())
        columns = [column for column in self.kind.columns if column[0] not in left_out]
        others = ["instance_id", "target", "image_tokens"]
        table = self.file.read([*others, *(name for name, _, _ in columns)])
        if len(chosen) < len(found):
            table = table.take(chosen)
        numbers = {"image_tokens": _numbers(table, "image_tokens", (self.kind.n,))}
        for name, _, shape in columns:
            if name != "maps":
                numbers[name] = _numbers(table, name, shape)
        return Rows(
            kind=self.kind,
            written=[found[row][0] for row in chosen],
            keys=[found[row][1] for row in chosen],
            ids=table["instance_id"].to_pylist(),
            targets=table["target"].to_pylist(),
            numbers=numbers,
            maps=_maps(table, self.kind.n) if "maps" in self.kind.names - left_out else None,
        )


@contextmanager
def opened(path: Path) -> Iterator[Shard]:
    """A shard for reading; whatever is no whole shard is refused by name and left alone.

    A file that is gone is a FileNotFoundError: a compaction may have merged it into another.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    broken = (pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError)
    try:
        if not S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise ValueError("it is no regular file")
        with pa.OSFile(os.fsencode(path)) as source:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            kind = Kind.from_header(path, file.schema_arrow.metadata)
            if not file.schema_arrow.equals(kind.schema()):
                raise ValueError("its columns are not those its header names")
            yield Shard(path, kind, file)
    except (FileNotFoundError, InputError):
        raise
    except PermissionError:
        raise InputError(f"{path}: may not be read; give yourself permission to read it") from None
    except (*broken, TypeError, AttributeError, MemoryError) as error:
        reason = str(error).split("\n")[0][:200]
        raise InputError(
            f"{path}: is no whole shard of evidence ({type(error).__name__}: {reason}). It was "
            "left alone: move it away, and what it held will be computed again"
        ) from None


def encode(evidence: Sequence[Evidence], kind: Kind, written: Sequence[int]) -> bytes:
    """A shard of evidence of one kind; `written` numbers the rows in the order of writing."""
    import pyarrow as pa

    schema = kind.schema()
    columns: dict[str, Any] = {
        "written": list(written),
        "instance": [e.instance for e in evidence],
        "instance_id": [e.instance_id for e in evidence],
        "target": [e.target for e in evidence],
        "order": _lists([np.array(e.order, dtype=np.int16) for e in evidence], schema, "order"),
        "image_tokens": _lists([e.image_tokens for e in evidence], schema, "image_tokens"),
    }
    for name in kind.names - {"maps"}:
        columns[name] = _lists([getattr(e, name) for e in evidence], schema, name)
    if "maps" in kind.names:
        maps = [image.ravel() for e in evidence for image in e.maps or ()]
        inner = _list_array(maps, schema.field("maps").type.value_type)
        offsets = pa.array(np.arange(len(evidence) + 1) * kind.n, pa.int32())
        columns["maps"] = pa.ListArray.from_arrays(offsets, inner, type=schema.field("maps").type)
    return _parquet(pa.table(columns, schema=schema))


def merge(paths: Sequence[Path], kept: Sequence[Sequence[int]]) -> bytes:
    """One shard of some rows of several shards of one kind."""
    import pyarrow as pa

    tables = []
    for path, rows in zip(paths, kept, strict=True):
        with opened(path) as shard:
            # A file holds its header twice, and only one of the two was checked.
            table = shard.file.read().replace_schema_metadata(shard.kind.to_header())
            tables.append(table if len(rows) == len(table) else table.take(pa.array(rows, "int64")))
    return _parquet(pa.concat_tables(tables))


def _parquet(table: pa.Table) -> bytes:
    """The file's bytes, every page with its check sum; numbers are stored as they are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=["instance", "instance_id"],
        write_statistics=False,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


def _lists(arrays: Sequence[Values], schema: pa.Schema, name: str) -> pa.ListArray:
    return _list_array([array.ravel() for array in arrays], schema.field(name).type)


def _list_array(arrays: Sequence[Values], kind: pa.DataType) -> pa.ListArray:
    import pyarrow as pa

    offsets = np.cumsum([0, *(len(array) for array in arrays)])
    values = pa.array(np.concatenate(arrays), kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)


def _numbers(table: pa.Table, name: str, shape: tuple[int, ...]) -> Values:
    """A column as one array [rows, *shape]."""
    column = table[name].combine_chunks()
    if (np.diff(column.offsets.to_numpy()) != int(np.prod(shape))).any():
        raise ValueError(f"column {name} has rows of another length than {shape}")
    values: Values = column.flatten().to_numpy()
    return values.reshape(len(table), *shape)


def _maps(table: pa.Table, n: int) -> list[list[Values]]:
    images = table["maps"].combine_chunks().flatten()
    offsets, values = images.offsets.to_numpy(), images.values.to_numpy()
    pieces = [values[low:high] for low, high in pairwise(offsets)]
    return [pieces[row : row + n] for row in range(0, len(pieces), n)]
