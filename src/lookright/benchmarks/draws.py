"""Random choices by SHA-256: the same key gives the same ones on every platform, for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TypeVar

T = TypeVar("T")

_WORD = 8  # bytes of one number: uniform to 2**-40 or better where it is asked below 2**24


class Draws:
    """An endless stream of choices that depends on its key alone."""

    def __init__(self, key: str) -> None:
        self._key = key.encode() + b"/"
        self._block = 0
        self._words: list[int] = []

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        if not self._words:
            digest = sha256(self._key + str(self._block).encode()).digest()
            self._block += 1
            self._words = [
                int.from_bytes(digest[k : k + _WORD], "big") for k in range(0, len(digest), _WORD)
            ]
        return self._words.pop() % n

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def each_once(self, items: Sequence[T]) -> Iterator[T]:
        """The items in random order, one by one; what is not asked for costs nothing."""
        moved: dict[int, int] = {}
        for left in range(len(items), 0, -1):
            drawn = self.below(left)
            yield items[moved.get(drawn, drawn)]
            moved[drawn] = moved.pop(left - 1, left - 1)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return list(self.each_once(items))
