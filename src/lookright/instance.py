"""Instances and orders: what is asked, and in which order its images are shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import permutations
from typing import TYPE_CHECKING, Any, TypeAlias

from lookright.errors import InputError

if TYPE_CHECKING:
    from os import PathLike

    import numpy as np
    from PIL.Image import Image

#: What an image may be given as: a path, encoded bytes or a data URL, a PIL image, or an array
#: [height, width] or [height, width, 1|3|4].
ImageSource: TypeAlias = "str | PathLike[str] | bytes | Image | np.ndarray[Any, Any]"

#: A permutation shown to the model: position k shows image ``order[k]``.
Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """One question about N candidate images; `answer` is the target's index where it is known.

    Exactly one of `caption` (put into a prompt template) and `question` (the whole text of the
    prompt) is given.
    """

    id: str
    images: tuple[ImageSource, ...]
    answer: int | None = None
    caption: str | None = None
    question: str | None = None
    category: str | None = None

    def __post_init__(self) -> None:
        def refuse(field: str, reason: str) -> None:
            raise InputError(f"instance {self.id!r}, field '{field}': {reason}")

        if not isinstance(self.id, str) or not self.id:
            raise InputError(f"an instance's id must be a non-empty string, not {self.id!r}")
        if isinstance(self.images, (str, bytes)) or not isinstance(self.images, Sequence):
            refuse("images", "must be a list of images")
        object.__setattr__(self, "images", tuple(self.images))
        if len(self.images) < 2:
            refuse("images", f"holds {len(self.images)}; choosing needs at least two images")
        for name in ("caption", "question", "category"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                refuse(name, f"must be text, not {type(value).__name__}")
        if (self.caption is None) == (self.question is None):
            refuse("caption", "give exactly one of 'caption' and 'question'")
        if not (self.caption or self.question or "").strip():
            refuse("caption" if self.question is None else "question", "is empty")
        if self.answer is None:
            return
        if isinstance(self.answer, bool) or not isinstance(self.answer, int):
            refuse("answer", f"must be the target's index (an integer), not {self.answer!r}")
        if not 0 <= self.answer < len(self.images):
            refuse(
                "answer",
                f"is {self.answer}, but the {len(self.images)} images have the indices "
                f"0 to {len(self.images) - 1}",
            )


def check_order(order: Sequence[Any], n: int) -> Order:
    """`order` as a tuple of int, or a sentence saying why it is no permutation of n images."""
    try:
        checked = tuple(int(index) for index in order)
    except (TypeError, ValueError):
        raise InputError(f"an order must be a list of integers, not {order!r}") from None
    if sorted(checked) != list(range(n)):
        raise InputError(f"{list(checked)} is not an order of {n} images (each of 0..{n - 1} once)")
    return checked


def identity(n: int) -> Order:
    return tuple(range(n))


def cyclic_orders(n: int) -> list[Order]:
    """The N cyclic left shifts: p_s[k] = (k + s) mod N."""
    return [tuple((k + s) % n for k in range(n)) for s in range(n)]


def shift_of(order: Sequence[int]) -> int | None:
    """The s for which `order` is the cyclic left shift p_s, or None where it is none."""
    n, s = len(order), int(order[0])
    return s if all(int(index) == (k + s) % n for k, index in enumerate(order)) else None


def inverse(order: Sequence[int]) -> Order:
    """inverse(p)[i] is the position at which image i stands."""
    positions = [0] * len(order)
    for position, image in enumerate(order):
        positions[image] = position
    return tuple(positions)


def random_orders(n: int, count: int, seed: int, key: str = "") -> list[Order]:
    """`count` different random orders of n images, at most the N! there are.

    Drawn by numbering permutations with SHA-256, so that the same (seed, key) gives the same
    orders on every platform and with every library version.
    """
    total = math.factorial(n)
    drawn: dict[int, Order] = {}
    for number in _uniform_numbers(total, f"{seed}/{key}"):
        if len(drawn) == min(count, total):
            return list(drawn.values())
        drawn.setdefault(number, _permutation(number, n))
    raise AssertionError("unreachable: the numbers never end")


def orders_for(instances: Sequence[Instance], spec: str, seed: int = 0) -> list[list[Order]]:
    """The orders of each instance by a spec: `cyclic`, `identity`, `all`, `random:T` or `shared:T`.

    `random:T` gives each instance its own T orders; `shared:T` gives the identity and T - 1 fixed
    shuffles to all of them (the released code's choice).
    """
    name, _, argument = spec.partition(":")
    if name in {"random", "shared"}:
        if not argument.isascii() or not argument.isdigit() or int(argument) < 1:
            raise InputError(f"orders {spec!r}: say how many, as in '{name}:5'")
        count = int(argument)
        if name == "random":
            return [random_orders(len(i.images), count, seed, i.id) for i in instances]
        return [_shared_orders(len(i.images), count, seed) for i in instances]
    makers = {"cyclic": cyclic_orders, "identity": lambda n: [identity(n)], "all": _all_orders}
    if argument or name not in makers:
        raise InputError(
            f"unknown orders {spec!r}: use cyclic, identity, all, random:T or shared:T"
        )
    return [makers[name](len(i.images)) for i in instances]


def _shared_orders(n: int, count: int, seed: int) -> list[Order]:
    first = identity(n)
    others = [order for order in random_orders(n, count, seed, "shared") if order != first]
    return [first, *others][:count]


def _all_orders(n: int) -> list[Order]:
    if n > 8:
        raise InputError(
            f"orders 'all': {n} images have {math.factorial(n):,} orders; use random:T"
        )
    return list(permutations(range(n)))


def _uniform_numbers(below: int, key: str) -> Iterator[int]:
    """An endless stream of numbers in [0, below), uniform to 2**-128 or better."""
    count = 0
    while True:
        digest = sha256(f"{key}/{count}".encode()).digest()
        yield int.from_bytes(digest, "big") % below
        count += 1


def _permutation(number: int, n: int) -> Order:
    """The permutation with this number in the factorial number system."""
    remaining = list(range(n))
    order = []
    for left in range(n, 0, -1):
        number, index = divmod(number, left)
        order.append(remaining.pop(index))
    return tuple(order)
