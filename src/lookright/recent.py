"""What was made last, by the content it was made from, within a limit of bytes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import RLock
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """What knows how much memory it holds."""

    @property
    def bytes(self) -> int: ...


Item = TypeVar("Item", bound=Sized)


@dataclass
class Recent(Generic[Item]):
    """Items by key; the least recently used are forgotten beyond the limit."""

    limit: int  # bytes
    _kept: OrderedDict[str, Item] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: RLock = field(default_factory=RLock)

    def get(self, key: str) -> Item | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: str, item: Item) -> None:
        with self._lock:
            replaced = self._kept.pop(key, None)
            self._kept[key] = item
            self._bytes += item.bytes - (replaced.bytes if replaced else 0)
            while self._bytes > self.limit:
                _, forgotten = self._kept.popitem(last=False)
                self._bytes -= forgotten.bytes

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._bytes = 0
