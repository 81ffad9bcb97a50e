"""Metrics of decisions: how often right, how evenly over positions, how steadily over orders.

Percentages are numbers from 0 to 100; NaN where a figure has no meaning.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.errors import EvidenceWarning, InputError
from lookright.instance import cyclic_orders

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Ints = NDArray[np.integer[Any]]

RESAMPLES = 2_000


@dataclass(frozen=True, eq=False)
class Decisions:
    """Which position was chosen in each of T orders of M instances, and where the target stood."""

    chosen: Ints  # [T, M] position, -1 where an answer named none: such a decision is wrong
    orders: Ints  # [T, M, N]
    targets: Ints  # [M] index of the target among the instance's images
    tied: NDArray[np.bool_]  # [T, M] whether another position had exactly the same score

    @property
    def n(self) -> int:
        return int(self.orders.shape[-1])

    @property
    def images(self) -> Ints:
        """[T, M] the image chosen, -1 where none was."""
        images = np.take_along_axis(self.orders, self.chosen[..., None], axis=-1)[..., 0]
        return np.where(self.chosen < 0, -1, images)

    @property
    def right(self) -> NDArray[np.bool_]:
        """[T, M] whether the target was chosen."""
        right: NDArray[np.bool_] = self.images == self.targets
        return right

    @property
    def target_positions(self) -> Ints:
        """[T, M] where the target stood."""
        positions: Ints = (self.orders == self.targets[:, None]).argmax(axis=-1)
        return positions


def decide(scores: Doubles, orders: Ints, targets: Ints) -> Decisions:
    """The best position of each row of scores [T, M, N]; the lowest among equals.

    `orders` are those by whose positions the scores are: the orders shown, or for
    `permutation_average` its base orders, so that its ties go to the lowest image.
    """
    if (targets < 0).any():
        raise InputError(
            f"{int((targets < 0).sum())} of {len(targets)} instances have no target: figures need "
            "labelled instances"
        )
    best = scores.max(axis=-1, keepdims=True)
    return Decisions(
        chosen=scores.argmax(axis=-1),
        orders=orders,
        targets=targets,
        tied=(scores == best).sum(axis=-1) > 1,
    )


def accuracy(decisions: Decisions) -> float:
    """Percent right, over all orders."""
    return float(100 * decisions.right.mean())


def accuracy_std(decisions: Decisions) -> float:
    """Standard deviation over orders of the percent right in each (ddof = 1)."""
    return _std(100 * decisions.right.mean(axis=1), ddof=1)


def recall(decisions: Decisions) -> Doubles:
    """[N] percent right among the decisions with the target at each position."""
    return np.diagonal(confusion(decisions)).copy()


def selection(decisions: Decisions) -> Doubles:
    """[N] percent of all decisions that chose each position."""
    named = decisions.chosen[decisions.chosen >= 0]
    return 100 * np.bincount(named, minlength=decisions.n) / decisions.chosen.size


def confusion(decisions: Decisions) -> Doubles:
    """[N, N] percent of the decisions with the target at i that chose j; NaN where it never was."""
    n, positions = decisions.n, decisions.target_positions
    cell = (positions * n + decisions.chosen)[decisions.chosen >= 0]
    count = np.bincount(cell, minlength=n * n).reshape(n, n).astype(np.float64)
    held = np.bincount(positions.ravel(), minlength=n)[:, None]
    percent: Doubles = 100 * np.divide(count, held, out=np.full_like(count, np.nan), where=held > 0)
    return percent


def rstd(decisions: Decisions, ddof: int = 1) -> float:
    """Standard deviation of the recalls over positions, in points.

    ddof = 1 as in the released code; PriDe's own code has 0. A position that never held a target
    is left out, with a warning.
    """
    recalls = recall(decisions)
    empty = np.flatnonzero(np.isnan(recalls))
    if len(empty):
        warnings.warn(
            f"rstd: no target ever stood at position {', '.join(str(k + 1) for k in empty)} of "
            f"{decisions.n}; it is the deviation over the others",
            EvidenceWarning,
            stacklevel=2,
        )
    return _std(recalls[~np.isnan(recalls)], ddof)


def consistency(decisions: Decisions) -> float:
    """Percent of instances for which every order leads to the same image."""
    if len(decisions.chosen) < 2:
        return float("nan")
    images = decisions.images
    return float(100 * ((images == images[0]) & (images >= 0)).all(axis=0).mean())


def circular_accuracy(decisions: Decisions) -> float:
    """Percent of instances right in all N cyclic orders, which the decisions must be of."""
    wanted = np.array(cyclic_orders(decisions.n))[:, None]  # [N, 1, N]
    shown = decisions.orders[
        np.argsort(decisions.orders[:, :, 0], axis=0), np.arange(decisions.orders.shape[1])
    ]
    if shown.shape[0] != decisions.n or (shown != wanted).any():
        raise InputError(
            f"circular accuracy needs decisions in exactly the {decisions.n} cyclic orders"
        )
    return float(100 * decisions.right.all(axis=0).mean())


def tie_rate(decisions: Decisions) -> float:
    """Percent of decisions whose two best scores are exactly equal."""
    return float(100 * decisions.tied.mean())


def interval(decisions: Decisions, seed: int = 0) -> tuple[float, float]:
    """95% bootstrap interval of the accuracy, resampling instances."""
    return _percentiles(100 * decisions.right.mean(axis=0), seed)


def paired_difference(
    first: Decisions, second: Decisions, seed: int = 0
) -> tuple[float, tuple[float, float]]:
    """Accuracy of `first` less that of `second` on the same instances, with its 95% interval."""
    if not np.array_equal(first.targets, second.targets):
        raise InputError("a paired comparison needs two methods' decisions on the same instances")
    return paired_shares(first.right.mean(axis=0), second.right.mean(axis=0), seed)


def paired_shares(
    first: Doubles, second: Doubles, seed: int = 0
) -> tuple[float, tuple[float, float]]:
    """The same of how often each instance was decided right [M], from 0 to 1."""
    by_instance = 100 * (first - second)
    return float(by_instance.mean()), _percentiles(by_instance, seed)


def figures(decisions: Decisions, *, by_position: bool = True) -> dict[str, Any]:
    """All figures of one method; `by_position` False keeps those of one decision per instance.

    Permutation averaging over one set of shifts has no position and no second order: accuracy,
    its interval and the tie rate alone mean something there.
    """
    nothing = np.full(decisions.n, np.nan)
    return {
        "accuracy": accuracy(decisions),
        "accuracy_std": accuracy_std(decisions),
        "interval": np.array(interval(decisions)),
        "rstd": rstd(decisions) if by_position else float("nan"),
        "consistency": consistency(decisions),
        "recall": recall(decisions) if by_position else nothing,
        "selection": selection(decisions) if by_position else nothing,
        "confusion": confusion(decisions) if by_position else np.tile(nothing, (decisions.n, 1)),
        "tie_rate": tie_rate(decisions),
    }


def over_draws(draws: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of each figure over calibration draws, and `draw_std`, the accuracy's deviation."""
    means = {name: np.mean([draw[name] for draw in draws], axis=0) for name in draws[0]}
    return means | {"draw_std": _std(np.array([draw["accuracy"] for draw in draws]), ddof=1)}


def _std(values: Doubles, ddof: int) -> float:
    """The standard deviation, NaN where too few values have none."""
    return float(np.std(values, ddof=ddof)) if len(values) > ddof else float("nan")


def _percentiles(by_instance: Doubles, seed: int) -> tuple[float, float]:
    """The 2.5th and 97.5th percentile of the mean [M] -> 1 over resampled instances."""
    means = _resample_counts(len(by_instance), seed) @ by_instance / len(by_instance)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


@lru_cache(maxsize=1)
def _resample_counts(m: int, seed: int) -> NDArray[np.uint16]:
    """[RESAMPLES, M] how often each instance is drawn; the same for every method of a table."""
    generator = np.random.default_rng(seed)
    counts = np.empty((RESAMPLES, m), dtype=np.uint16)
    for resample in counts:
        resample[:] = np.bincount(generator.integers(m, size=m), minlength=m)
    return counts
