"""Instances and orders: what is asked, and in which order its images are shown."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias

from lookright.errors import InputError, shown

if TYPE_CHECKING:
    from os import PathLike

    import numpy as np
    from PIL.Image import Image

#: What an image may be given as: a path, encoded bytes or a data URL, a PIL image, or an array
#: [height, width] or [height, width, 1|3|4].
ImageSource: TypeAlias = "str | PathLike[str] | bytes | Image | np.ndarray[Any, Any]"

#: An id longer than this is no name.
MAX_ID = 500

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
        name_shown = shown(repr(self.id))

        def refuse(field: str, reason: str) -> None:
            raise InputError(f"instance {name_shown}, field '{field}': {reason}")

        if not isinstance(self.id, str) or not self.id:
            raise InputError(f"an instance's id must be a non-empty string, not {name_shown}")
        if len(self.id) > MAX_ID:
            refuse("id", f"has more than {MAX_ID} characters")
        if not _is_text(self.id):
            refuse("id", "holds half a character (a lone surrogate)")
        if isinstance(self.images, (str, bytes)) or not isinstance(self.images, Sequence):
            refuse("images", "must be a list of images")
        object.__setattr__(self, "images", tuple(self.images))
        if len(self.images) < 2:
            refuse("images", f"holds {len(self.images)}; choosing needs at least two images")
        for name in ("caption", "question", "category"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, str):
                refuse(name, f"must be text, not {type(value).__name__}")
            if not _is_text(value):
                refuse(name, "holds half a character (a lone surrogate)")
        if (self.caption is None) == (self.question is None):
            refuse("caption", "give exactly one of 'caption' and 'question'")
        if not (self.caption or self.question or "").strip():
            refuse("caption" if self.question is None else "question", "is empty")
        if self.answer is None:
            return
        if isinstance(self.answer, bool) or not isinstance(self.answer, Integral):
            given = shown(repr(self.answer))
            refuse("answer", f"must be the target's index (an integer), not {given}")
        object.__setattr__(self, "answer", int(self.answer))
        if not 0 <= self.answer < len(self.images):
            refuse(
                "answer",
                f"is {shown(str(self.answer))}, but the {len(self.images)} images have the indices "
                f"0 to {len(self.images) - 1}",
            )


def _is_text(value: str) -> bool:
    """Whether `value` can be written as UTF-8, and so hashed and tokenised."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_order(order: Sequence[Any], n: int) -> Order:
    """`order` as a tuple of int, or a sentence saying why it is no permutation of n images."""
    try:
        checked = tuple(operator.index(image) for image in order)
    except TypeError:
        raise InputError(f"an order must be a list of integers, not {shown(repr(order))}") from None
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
        if len(drawn) >= min(count, total):
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
        known = argument.isascii() and argument.isdigit() and len(argument) <= 6
        if not known or int(argument) < 1:
            raise InputError(
                f"orders {shown(repr(spec))}: say how many (up to 999999), as in '{name}:5'"
            )
        count = int(argument)
        if name == "random":
            return [random_orders(len(i.images), count, seed, i.id) for i in instances]
        return [_shared_orders(len(i.images), count, seed) for i in instances]
    makers = {"cyclic": cyclic_orders, "identity": lambda n: [identity(n)], "all": _all_orders}
    if argument or name not in makers:
        raise InputError(
            f"unknown orders {shown(repr(spec))}: use cyclic, identity, all, random:T or shared:T"
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
    return list(itertools.permutations(range(n)))


def _uniform_numbers(below: int, key: str) -> Iterator[int]:
    """An endless stream of numbers in [0, below), uniform to 2**-128 or better."""
    blocks = (below.bit_length() + 128 + 255) // 256
    for count in itertools.count():
        keys = [f"{key}/{count}", *(f"{key}/{count}/{block}" for block in range(1, blocks))]
        digest = b"".join(sha256(name.encode()).digest() for name in keys)
        yield int.from_bytes(digest, "big") % below


def _permutation(number: int, n: int) -> Order:
    """The permutation with this number in the factorial number system."""
    remaining = list(range(n))
    order = []
    for left in range(n, 0, -1):
        number, index = divmod(number, left)
        order.append(remaining.pop(index))
    return tuple(order)
