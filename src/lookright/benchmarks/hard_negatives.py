"""Hard negatives: the nearest images by embedding that a rule does not take for the same thing.

The search is exact: products in float32 block by block find whoever can be among the nearest, and
float64 puts those in order. Its memory does not grow with the number of anchors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookright.benchmarks.pool import Pool, Vectors
from lookright.errors import InputError

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]

#: Picks from (anchor, candidates from the nearest to the farthest) up to as many as are wanted.
Choose = Callable[[int, Sequence[int]], list[int]]

_ANCHORS, _ROWS = 256, 8192  # one block of products: 8 MiB
_DEPTH = 64  # candidates looked at before a search goes deeper
_DEEPER = 8
_ROUNDING = 1e-5  # more than float32 products of unit vectors can be off


@dataclass(frozen=True)
class Rule:
    """Which images may not be a negative, because the anchor's caption may fit them too."""

    caption_cosine: float  # a negative's caption is less similar to the anchor's than this
    within: bool  # also left out: whose categories contain the anchor's, not only equal it

    def same(self, anchor: frozenset[str], other: frozenset[str]) -> bool:
        """Whether their categories say that the two may show the same."""
        return anchor <= other if self.within else anchor == other


#: By preset.
RULES = {"paper": Rule(0.9, within=False), "released": Rule(0.9, within=True)}


def allowed(pool: Pool, rule: Rule, anchor: int, candidates: Sequence[int]) -> list[int]:
    """The candidates that the rule lets stand beside the anchor, in the order given."""
    if (fits := pool.fits) is not None:
        return [other for other in candidates if not fits(anchor, other)]
    if pool.caption_vectors is None:
        raise InputError(f"{pool.source}: hard negatives need a vector of each caption")
    words = unit(pool.caption_vectors[[anchor, *candidates]])
    similar = words[1:] @ words[0] >= rule.caption_cosine
    found = [other for other, close in zip(candidates, similar, strict=True) if not close]
    if pool.categories is None or not pool.has_categories:
        return found
    categories = pool.categories
    return [other for other in found if not rule.same(categories[anchor], categories[other])]


def nearest(
    vectors: Vectors,  # [P, D]
    anchors: Sequence[int],
    count: int,
    choose: Choose,
) -> list[list[int]]:
    """For each anchor the `count` nearest other rows that `choose` accepts, or all there are.

    Of rows equally near, the first comes first.
    """
    inverse = np.float32(1) / _norms(vectors)  # [P]
    chosen: dict[int, list[int]] = {}
    depth, waiting = min(_DEPTH + count, len(vectors) - 1), list(dict.fromkeys(anchors))
    while waiting:
        unsatisfied = []
        size = max(1, min(_ANCHORS, _ANCHORS * _ROWS // depth))
        for start in range(0, len(waiting), size):
            block = waiting[start : start + size]
            found, reached = _top(vectors, inverse, block, depth)
            for anchor, candidates, least in zip(block, found, reached, strict=True):
                surely = _ranked(vectors, anchor, candidates, least, len(vectors))
                chosen[anchor] = choose(anchor, surely)[:count]
                if len(chosen[anchor]) < count and depth < len(vectors) - 1:
                    unsatisfied.append(anchor)
        depth, waiting = min(depth * _DEEPER, len(vectors) - 1), unsatisfied
    return [chosen[anchor] for anchor in anchors]


def unit(vectors: Vectors) -> NDArray[np.float64]:
    """The rows at length 1, in float64."""
    rows = vectors.astype(np.float64)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _norms(vectors: Vectors) -> Floats:
    parts = [
        np.linalg.norm(vectors[start : start + _ROWS].astype(np.float32), axis=1)
        for start in range(0, len(vectors), _ROWS)
    ]
    return np.concatenate(parts).astype(np.float32)


def _top(
    vectors: Vectors, inverse: Floats, anchors: Sequence[int], depth: int
) -> tuple[Ints, Floats]:
    """For each anchor the `depth` rows of largest product, unordered, and the least of these."""
    rows = np.asarray(anchors)
    queries = vectors[rows].astype(np.float32) * inverse[rows, None]  # [A, D]
    best = np.full((len(rows), 0), -np.inf, np.float32)
    found = np.zeros((len(rows), 0), np.int64)
    for start in range(0, len(vectors), _ROWS):
        block = vectors[start : start + _ROWS].astype(np.float32, copy=False)
        products = (queries @ block.T) * inverse[start : start + _ROWS]  # [A, rows]
        here = (rows >= start) & (rows < start + len(block))
        products[here, rows[here] - start] = -np.inf  # no image is its own negative
        numbers = np.broadcast_to(np.arange(start, start + len(block)), products.shape)
        best = np.concatenate([best, products], axis=1)
        found = np.concatenate([found, numbers], axis=1)
        if best.shape[1] > depth:
            keep = np.argpartition(-best, depth - 1, axis=1)[:, :depth]
            best = np.take_along_axis(best, keep, axis=1)
            found = np.take_along_axis(found, keep, axis=1)
    return found, best.min(axis=1)


def _ranked(vectors: Vectors, anchor: int, candidates: Ints, least: float, rows: int) -> list[int]:
    """The candidates nearest first; those left out that a row not found could yet outrank."""
    both = unit(vectors[np.concatenate([[anchor], candidates])])
    cosines = both[1:] @ both[0]
    order = np.lexsort((candidates, -cosines))
    if len(candidates) < rows - 1:
        order = order[cosines[order] > least + _ROUNDING]
    return [int(row) for row in candidates[order]]
