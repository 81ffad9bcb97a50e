"""What all rows of one shard of evidence share: settings, layers, shapes and number types.

It stands in the shard's header, a JSON text in the Parquet schema's metadata, and says which
columns there are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lookright.errors import InputError
from lookright.evidence import Evidence
from lookright.instance import check_order
from lookright.settings import EvidenceSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

VERSION = 1
_HEADER = b"lookright.evidence"
_FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True)
class Kind:
    """What all rows of one shard share; shards of one kind can be merged."""

    settings: EvidenceSettings
    layers: tuple[int, ...]
    columns: tuple[tuple[str, str, tuple[int, ...]], ...]  # name, number type, shape of one row

    @classmethod
    def of(cls, evidence: Evidence, settings: EvidenceSettings) -> Kind:
        """The kind of one piece of evidence, once it is sure that it is well formed."""
        n, depth = len(evidence.order), len(evidence.layers)
        if not evidence.instance:
            _refuse(evidence, "instance", "is empty; a store needs the content hash as its key")
        check_order(evidence.order, n)
        heads = () if evidence.heads is None else evidence.heads.shape[1:2]
        shapes = {"log_probs": (n,), "attention": (depth, n), "heads": (depth, *heads, n)}
        columns: list[tuple[str, str, tuple[int, ...]]] = []
        for name, shape in shapes.items():
            if (values := getattr(evidence, name)) is not None:
                columns.append((name, _float_type(evidence, name, values, shape), shape))
        if evidence.image_tokens.shape != (n,):
            _refuse(evidence, "image_tokens", f"has the shape {evidence.image_tokens.shape}")
        if (maps := evidence.maps) is not None:
            if len(maps) != n or depth == 0:
                _refuse(evidence, "maps", f"holds {len(maps)} maps of {depth} layers")
            types = {_float_type(evidence, "maps", m, (depth, *m.shape[1:2])) for m in maps}
            if len(types) > 1:
                _refuse(evidence, "maps", f"mixes {' and '.join(sorted(types))}")
            columns.append(("maps", types.pop(), (n,)))
        return cls(settings, evidence.layers, tuple(columns))

    @property
    def names(self) -> set[str]:
        """The columns of numbers that the rows have."""
        return {name for name, _, _ in self.columns}

    @property
    def n(self) -> int:
        return self.columns[0][2][-1]

    def to_header(self) -> dict[bytes, bytes]:
        said = {"settings": self.settings.to_dict(), "layers": self.layers, "columns": self.columns}
        text = json.dumps(said, sort_keys=True)
        # Parquet keeps check sums of its pages, not of its metadata.
        header = {"version": VERSION, "check": _digest(text), "kind": text}
        return {_HEADER: json.dumps(header).encode()}

    @classmethod
    def from_header(cls, path: Path, metadata: dict[bytes, bytes] | None) -> Kind:
        if not metadata or _HEADER not in metadata:
            raise ValueError("it is Parquet, but not lookright's")
        header = json.loads(metadata[_HEADER])
        if (version := int(header["version"])) > VERSION:
            raise InputError(
                f"{path}: was written by a newer lookright (format {version}, this one reads "
                f"{VERSION}); update lookright, or move the file away"
            )
        if _digest(header["kind"]) != header["check"]:
            raise ValueError("its header is damaged")
        said = json.loads(header["kind"])
        columns = tuple((name, number, tuple(shape)) for name, number, shape in said["columns"])
        kind = cls(_settings(said["settings"]), tuple(said["layers"]), columns)
        if not kind._is_sound():
            raise ValueError("its header names layers or columns that cannot be")
        return kind

    def _is_sound(self) -> bool:
        sizes = [size for _, _, shape in self.columns for size in shape]
        return (
            all(type(number) is int for number in (*self.layers, *sizes))
            and [name for name, _, _ in self.columns][:2] == ["log_probs", "attention"]
            and self.names <= {"log_probs", "attention", "heads", "maps"}
            and all(number in _FLOATS and shape for _, number, shape in self.columns)
        )

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        def some(kind: Any) -> Any:
            return pa.list_(pa.field("element", kind, nullable=False))

        floats = dict(zip(_FLOATS, (pa.float16(), pa.float32(), pa.float64()), strict=True))
        types: dict[str, Any] = {
            "written": pa.int64(),
            "instance": pa.string(),
            "instance_id": pa.string(),
            "target": pa.int32(),
            "order": some(pa.int16()),
            "image_tokens": some(pa.int64()),
        }
        for name, number, _ in self.columns:
            types[name] = some(floats[number])
            if name == "maps":
                types[name] = some(types[name])
        fields = [pa.field(name, kind, name == "target") for name, kind in types.items()]
        return pa.schema(fields, metadata=self.to_header())


def _settings(values: Any) -> EvidenceSettings:
    try:
        return EvidenceSettings.from_dict(values)
    except InputError as error:
        raise ValueError(str(error)) from None


def _float_type(evidence: Evidence, name: str, values: NDArray[Any], shape: tuple[int, ...]) -> str:
    if values.shape != shape or str(values.dtype) not in _FLOATS:
        _refuse(evidence, name, f"is {values.dtype} {values.shape}, not floats {shape}")
    return str(values.dtype)


def _refuse(evidence: Evidence, field: str, reason: str) -> NoReturn:
    raise InputError(f"evidence of instance {evidence.instance_id!r}, field '{field}': {reason}")


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
