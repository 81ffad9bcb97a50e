"""A folder of evidence: whole Parquet shards, written by any number of processes.

Nothing is shared between writers but the folder: every shard has a name of its own and appears at
once, whole. So a killed process costs the shard it was writing, and no more. Where two rows have
the same key, the one written first counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from lookright.errors import InputError
from lookright.evidence import Evidence
from lookright.files import locked, remove_leftovers, settled, write_atomically
from lookright.instance import Order
from lookright.kinds import Kind
from lookright.settings import EvidenceSettings
from lookright.shards import Key, Rows, Shard, encode, merge, opened

T = TypeVar("T")

#: How large the columns of a merged shard may be in memory.
MERGED_BYTES = 256 * 2**20


class Store:
    """The evidence in one folder, which is made when the first evidence is appended."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)

    def append(self, evidence: Sequence[Evidence], settings: EvidenceSettings) -> None:
        """Save evidence of these settings; once this returns, it outlives a power cut.

        One shard, or one for each number of candidates (or of layers, or of heads) in it.
        """
        kinds: dict[Kind, list[int]] = {}
        named = settings.hash
        for index, piece in enumerate(evidence):
            if piece.settings != named:
                raise InputError(
                    f"evidence of instance {piece.instance_id!r}: is of the settings "
                    f"{piece.settings!r}, not of {named!r} as said"
                )
            kinds.setdefault(Kind.of(piece, settings), []).append(index)
        now = time.time_ns()
        for kind, rows in kinds.items():
            self._write(encode([evidence[i] for i in rows], kind, [now + i for i in rows]), now)

    def keys(
        self, settings: str | None = None, *, heads: bool = False, maps: bool = False
    ) -> set[Key]:
        """What there is evidence of (with heads or maps, where asked for); reads only the keys."""

        def load(shard: Shard) -> list[Key]:
            if not _asked_for(shard.kind, settings, heads=heads, maps=maps):
                return []
            return [key for _, key in shard.stamped_keys()]

        return {key for keys in self._each(load) for key in keys}

    def settings(self) -> dict[str, EvidenceSettings]:
        """The settings there is evidence of, by their hash."""
        return {kind.settings.hash: kind.settings for kind in self._each(lambda s: s.kind)}

    def read(
        self,
        settings: str | None = None,
        instances: Collection[str] | None = None,
        orders: Collection[Order] | None = None,
        *,
        heads: bool = False,
        maps: bool = False,
    ) -> list[Evidence]:
        """Evidence in the order it was written: all, or that of some settings (their hash),
        instances (their content hashes) and orders. `EvidenceArray.of` makes columns of it.

        `heads` and `maps` are read where asked for, and then only the evidence that has them.
        """
        names = None if instances is None else frozenset(instances)
        shown = None if orders is None else frozenset(orders)

        def wanted(key: Key) -> bool:
            return (names is None or key[0] in names) and (shown is None or key[1] in shown)

        def load(shard: Shard) -> Rows | None:
            if not _asked_for(shard.kind, settings, heads=heads, maps=maps):
                return None
            return shard.rows(wanted, heads=heads, maps=maps)

        found = [rows for rows in self._each(load) if rows is not None]
        stamped = sorted(
            (stamp, shard, row)
            for shard, rows in enumerate(found)
            for row, stamp in enumerate(rows.written)
        )
        first: dict[Key, tuple[int, int]] = {}
        for _, shard, row in stamped:
            first.setdefault(found[shard].keys[row], (shard, row))
        return [found[shard].evidence(row) for shard, row in first.values()]

    def compact(self, merged_bytes: int = MERGED_BYTES) -> int:
        """Merge small shards into few, drop second copies of rows, and clean up after killed
        writers; says how many shards fewer there are.

        Others may read and write meanwhile. A shard is deleted only when each of its rows stands
        in another one on the disk, so that being killed costs nothing.
        """
        if not self.folder.is_dir():
            return 0
        with locked(self.folder / ".lock") as held:
            if not held:
                return 0
            remove_leftovers(self.folder)
            members = self._each(_Member.of)
            kinds: dict[Kind, list[_Member]] = {}
            for member in members:
                kinds.setdefault(member.kind, []).append(member)
            return sum(self._merge(kind, group, merged_bytes) for kind, group in kinds.items())

    def _merge(self, kind: Kind, members: list[_Member], merged_bytes: int) -> int:
        """Merge shards of one kind; of rows with one key the first written is kept."""
        first: dict[Key, int] = {}
        for member in members:
            for stamp, key in member.keys:
                first[key] = min(stamp, first.get(key, stamp))
        fewer = 0
        for pack in _packs(members, merged_bytes):
            kept = [_take(member, first) for member in pack]
            if len(pack) == 1 and len(kept[0]) == len(pack[0].keys):
                continue
            if any(kept):
                first_stamp = min(stamp for member in pack for stamp, _ in member.keys)
                self._write(merge([m.path for m in pack], kept), first_stamp)
                fewer -= 1
            for member in pack:
                with suppress(OSError):  # one that stays (Windows, open elsewhere) does no harm
                    member.path.unlink()
                    fewer += 1
        return fewer

    def _write(self, shard: bytes, stamp: int) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self.folder}: no folder can be made there ({error.strerror})"
            ) from None
        write_atomically(self.folder / f"{stamp:020d}-{token_hex(8)}.parquet", shard)

    def _each(self, load: Callable[[Shard], T]) -> list[T]:
        """What `load` makes of every shard; where one vanished (it was merged), from the start."""
        while True:
            path = self.folder
            try:
                loaded = []
                for path in self._shards():
                    with opened(path) as shard:
                        loaded.append(load(shard))
                return loaded
            except FileNotFoundError:
                if path in self._shards():
                    raise InputError(
                        f"{path}: is listed but cannot be found; move it away"
                    ) from None

    def _shards(self) -> list[Path]:
        """The shards by name; a compaction may be going on."""
        return settled(self.folder, ".parquet", "evidence")


@dataclass(frozen=True)
class _Member:
    """A shard as a compaction sees it."""

    path: Path
    kind: Kind
    size: int
    keys: list[tuple[int, Key]]

    @classmethod
    def of(cls, shard: Shard) -> _Member:
        return cls(shard.path, shard.kind, shard.size, shard.stamped_keys())


def _packs(members: Sequence[_Member], merged_bytes: int) -> Iterator[list[_Member]]:
    """Neighbours that fit together into one shard."""
    pack: list[_Member] = []
    size = 0
    for member in members:
        if pack and size + member.size > merged_bytes:
            yield pack
            pack, size = [], 0
        pack.append(member)
        size += member.size
    if pack:
        yield pack


def _take(member: _Member, first: dict[Key, int]) -> list[int]:
    """The rows that are the first of their key; taken from `first`, so that a copy is not."""
    rows = []
    for row, (stamp, key) in enumerate(member.keys):
        if first.get(key) == stamp:
            del first[key]
            rows.append(row)
    return rows


def _asked_for(kind: Kind, settings: str | None, *, heads: bool, maps: bool) -> bool:
    if settings is not None and kind.settings.hash != settings:
        return False
    return not (heads and "heads" not in kind.names) and not (maps and "maps" not in kind.names)
