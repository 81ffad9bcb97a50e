"""Evidence: what one forward pass tells about one (instance, order), and evidence as columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.errors import InputError
from lookright.instance import Instance, Order, check_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Ints = NDArray[np.integer[Any]]

#: How far from 1 a row of candidate probabilities may sum (recordings in float16 reach 5e-4).
NORMALISED_TO = 1e-2


@dataclass(frozen=True, eq=False)
class Evidence:
    """What one forward pass gave: everything by POSITION in the order that was shown."""

    instance_id: str
    order: Order
    log_probs: Floats  # [N] normalised log P(identifier k)
    attention: Floats  # [L, N] mass of the last prompt token on each image, heads averaged
    layers: tuple[int, ...]  # [L] the decoder's own layer numbers
    image_tokens: Ints  # [N] visual tokens of each image
    settings: str = ""  # EvidenceSettings.hash
    instance: str = ""  # content hash of the question and its images
    target: int | None = None  # the target's index among the instance's images (not its position)
    heads: Floats | None = None  # [L, H, N] the same mass per head, where asked for
    maps: tuple[Floats, ...] | None = None  # per position [L, tokens], where asked for

    @property
    def key(self) -> tuple[str, Order, str]:
        """What this evidence is of: nothing with the same key need be computed again."""
        return (self.instance, self.order, self.settings)

    def for_instance(self, instance: Instance) -> Evidence:
        """The same evidence under another instance's name and label (equal content)."""
        return replace(self, instance_id=instance.id, target=instance.answer)


def instance_hash(instance: Instance, image_hashes: Sequence[str]) -> str:
    """The content hash of a question: its words and its images, not its name or its answer."""
    kind, text = ("c", instance.caption) if instance.question is None else ("q", instance.question)
    return sha256("\n".join([*image_hashes, kind, text or ""]).encode()).hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class EvidenceArray:
    """Evidence as columns: P orders of M instances of N candidates, all of equal settings.

    Row p of `orders` need not be the same order for every instance.
    """

    log_probs: Floats  # [P, M, N]
    attention: Floats  # [P, M, L, N]; L = 0 where a model gives none
    orders: Ints  # [P, M, N]
    targets: Ints  # [M] index of the target, -1 where unknown
    layers: tuple[int, ...]  # [L]
    instance_ids: tuple[str, ...]  # [M]
    image_tokens: Ints | None = None  # [P, M, N]
    settings: str = ""

    def __post_init__(self) -> None:
        if self.log_probs.ndim != 3:
            raise InputError(
                f"evidence: log_probs has the shape {self.log_probs.shape}, not "
                "[orders, instances, candidates]"
            )
        p, m, n = self.log_probs.shape
        wanted = {
            "attention": (p, m, len(self.layers), n),
            "orders": (p, m, n),
            "targets": (m,),
            "image_tokens": (p, m, n),
        }
        for name, shape in wanted.items():
            value = getattr(self, name)
            if value is not None and value.shape != shape:
                raise InputError(f"evidence: {name} has the shape {value.shape}, not {shape}")
        if len(self.instance_ids) != m:
            raise InputError(f"evidence: {len(self.instance_ids)} ids for {m} instances")

    @property
    def n(self) -> int:
        """Number of candidates."""
        return int(self.log_probs.shape[-1])

    @property
    def target_positions(self) -> Ints:
        """[P, M] where the target stands in each order; -1 where it is unknown."""
        hit = self.orders == self.targets[None, :, None]
        return np.where(hit.any(-1), hit.argmax(-1), -1)

    def take(
        self,
        orders: slice | Sequence[int] | Ints = slice(None),
        instances: slice | Sequence[int] | Ints = slice(None),
    ) -> EvidenceArray:
        """Some of the orders (rows) of some of the instances."""
        rows, chosen = _index(orders), _index(instances)

        def columns(values: Any) -> Any:
            return values[rows][:, chosen]

        tokens = self.image_tokens
        return replace(
            self,
            log_probs=columns(self.log_probs),
            attention=columns(self.attention),
            orders=columns(self.orders),
            targets=self.targets[chosen],
            instance_ids=tuple(np.array(self.instance_ids, dtype=object)[chosen]),
            image_tokens=None if tokens is None else columns(tokens),
        )

    @classmethod
    def of(
        cls, evidence: Iterable[Evidence], orders: Sequence[Sequence[Order]] | None = None
    ) -> EvidenceArray:
        """Columns from single pieces of evidence, instances in the order they first appear.

        `orders` names, per instance, which orders become the rows; without it, all there are, in
        the order they appear (every instance needs equally many).
        """
        by_instance: dict[str, dict[Order, Evidence]] = defaultdict(dict)
        for piece in evidence:
            by_instance[piece.instance_id][piece.order] = piece
        if not by_instance:
            raise InputError("there is no evidence here")
        if orders is not None and len(orders) != len(by_instance):
            raise InputError(
                f"orders of {len(orders)} instances for {len(by_instance)} with evidence"
            )
        rows: list[list[Evidence]] = []
        for m, (name, found) in enumerate(by_instance.items()):
            wanted = list(found) if orders is None else [tuple(o) for o in orders[m]]
            if missing := [order for order in wanted if order not in found]:
                raise InputError(
                    f"instance {name!r}: no evidence of the order {list(missing[0])} "
                    f"({len(missing)} of {len(wanted)} orders are missing)"
                )
            rows.append([found[order] for order in wanted])
        first = rows[0][0]
        for row in rows:
            _check_alike(row, first, len(rows[0]))
        return cls(
            log_probs=np.array([[e.log_probs for e in row] for row in rows]).swapaxes(0, 1),
            attention=np.array([[e.attention for e in row] for row in rows]).swapaxes(0, 1),
            orders=np.array([[e.order for e in row] for row in rows]).swapaxes(0, 1),
            targets=np.array([-1 if r[0].target is None else r[0].target for r in rows]),
            layers=first.layers,
            instance_ids=tuple(by_instance),
            image_tokens=np.array([[e.image_tokens for e in row] for row in rows]).swapaxes(0, 1),
            settings=first.settings,
        )

    def checked(self) -> EvidenceArray:
        """Itself, once it is sure that every number in it can be computed with."""
        p, m, n = self.log_probs.shape
        if p == 0 or m == 0:
            raise InputError("there is no evidence here")
        if n < 2:
            raise InputError(f"evidence of {n} candidates: choosing needs at least two")
        for name, values in (("log_probs", self.log_probs), ("attention", self.attention)):
            bad = np.isnan(values) | np.isposinf(values)
            if name == "attention":
                bad |= values < 0
            if bad.any():
                where = np.argwhere(bad)[0]
                raise InputError(
                    f"evidence, field '{name}': {values[tuple(where)]} at order {where[0]} of "
                    f"instance {self.instance_ids[where[1]]!r}"
                )
        with np.errstate(over="ignore"):
            total = np.exp(self.log_probs.astype(np.float64)).sum(-1)  # [P, M]
        off = np.abs(total - 1.0)
        if (off > NORMALISED_TO).any():
            row, column = np.unravel_index(int(off.argmax()), off.shape)
            raise InputError(
                f"evidence, field 'log_probs': order {row} of instance "
                f"{self.instance_ids[column]!r}: the probabilities sum to "
                f"{total[row, column]:.4g}, not 1"
            )
        if (np.sort(self.orders, axis=-1) != np.arange(n)).any():
            raise InputError(f"evidence, field 'orders': not every row is an order of {n} images")
        if ((self.targets < -1) | (self.targets >= n)).any():
            bad_target = int(np.argmax((self.targets < -1) | (self.targets >= n)))
            raise InputError(
                f"evidence, field 'targets': {self.targets[bad_target]} for instance "
                f"{self.instance_ids[bad_target]!r} is no index of {n} images"
            )
        return self

    def cyclic(self) -> EvidenceArray:
        """The N cyclic shifts alone, row s being shift s for every instance."""
        _, m, n = self.log_probs.shape
        found = np.full((n, m), -1)
        shifts = self.orders[:, :, 0]  # [P, M]
        is_shift = (self.orders == (shifts[:, :, None] + np.arange(n)) % n).all(-1)
        rows, which = np.nonzero(is_shift)
        found[shifts[rows, which], which] = rows
        if (found < 0).any():
            shift, column = np.argwhere(found < 0)[0]
            raise InputError(
                f"instance {self.instance_ids[column]!r} has no evidence of cyclic shift {shift}: "
                f"all {n} cyclic orders are needed here"
            )
        columns = np.arange(m)[None, :]
        tokens = self.image_tokens
        return replace(
            self,
            log_probs=self.log_probs[found, columns],
            attention=self.attention[found, columns],
            orders=self.orders[found, columns],
            image_tokens=None if tokens is None else tokens[found, columns],
        )


def _index(chosen: slice | Sequence[int] | Ints) -> Any:
    """What NumPy indexes one axis with: a tuple would be read as one index an axis."""
    if isinstance(chosen, slice):
        return chosen
    return np.array(chosen) if len(chosen) else np.array([], dtype=int)


def _check_alike(row: Sequence[Evidence], first: Evidence, orders: int) -> None:
    name, n = row[0].instance_id, len(first.log_probs)
    if len(row) != orders:
        raise InputError(
            f"instance {name!r} has evidence of {len(row)} orders, others of {orders}: "
            "name the orders wanted"
        )
    for piece in row:
        if len(piece.log_probs) != n:
            raise InputError(
                f"instance {name!r} has {len(piece.log_probs)} candidates, others {n}: "
                "take one number of candidates at a time"
            )
        check_order(piece.order, n)
        if piece.settings != first.settings:
            raise InputError(
                f"instance {name!r}: evidence of other settings ({piece.settings} against "
                f"{first.settings}) does not mix"
            )
        if piece.layers != first.layers:
            raise InputError(f"instance {name!r}: evidence of other layers does not mix")
