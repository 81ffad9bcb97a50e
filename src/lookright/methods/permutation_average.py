"""Permutation averaging: what the model says over the N cyclic shifts, image by image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lookright.errors import InputError
from lookright.evidence import EvidenceArray
from lookright.observations import floored

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lookright.calibration import Calibration

ORDERS = ("cyclic", "all")


def permutation_average(
    evidence: EvidenceArray, calibration: Calibration | None = None, *, orders: str = "cyclic"
) -> NDArray[np.float64]:
    """[T, M, N] mean log-probability of each image over all N shifts of T base orders.

    "cyclic": the shifts of the instance's own order, so T = 1 and the scores are by image; the one
    decision of an instance. "all": of every order whose N shifts are there. Row t is by position in
    `base_orders(evidence, orders)[t]`, which is what metrics need beside it. An exact zero counts
    as 1e-30. No calibration is used.
    """
    rows = _shifts(evidence, orders)  # [T, N, M]
    columns = np.arange(len(evidence.instance_ids))
    log_probs = floored(evidence.log_probs[rows, columns].astype(np.float64))  # [T, N, M, N]
    total = np.zeros((len(rows), len(columns), evidence.n))
    for shift in range(evidence.n):  # shift s shows at position k what the base shows at k + s
        total += np.roll(log_probs[:, shift], shift, axis=-1)
    return total / evidence.n


def base_orders(evidence: EvidenceArray, orders: str) -> NDArray[np.intp]:
    """[T, M, N] the orders by whose positions `permutation_average` gives its scores."""
    rows = _shifts(evidence, orders)
    return evidence.orders[rows[:, 0], np.arange(len(evidence.instance_ids))].astype(np.intp)


def _shifts(evidence: EvidenceArray, orders: str) -> NDArray[np.intp]:
    """[T, N, M] the row of evidence that holds shift s of base order t of each instance."""
    known: dict[bytes, list[list[int]]] = {}
    found = []
    for column, name in enumerate(evidence.instance_ids):
        shown = evidence.orders[:, column]  # [P, N]
        layout = shown.tobytes()
        if layout not in known:
            known[layout] = _complete_classes(shown, orders, name)
        found.append(known[layout])
    if len({len(classes) for classes in found}) > 1:
        raise InputError(
            "permutation_average with orders=all: the instances have different numbers of orders "
            "with all their shifts; take instances with equally many"
        )
    return np.array(found, dtype=np.intp).transpose(1, 2, 0)


def _complete_classes(shown: NDArray[np.integer], orders: str, name: str) -> list[list[int]]:
    """For each base order of one instance, the rows of its N shifts, the base itself first."""
    n = shown.shape[-1]
    row_of = {tuple(map(int, order)): row for row, order in reversed(list(enumerate(shown)))}
    bases = [tuple(range(n))] if orders == "cyclic" else list(row_of)[::-1]
    classes: list[list[int]] = []
    covered: set[tuple[int, ...]] = set()
    for base in bases:
        if base in covered:
            continue
        shifts = [base[s:] + base[:s] for s in range(n)]
        covered.update(shifts)
        if missing := [shift for shift in shifts if shift not in row_of]:
            raise InputError(
                f"permutation_average needs all {n} cyclic shifts of the order {list(base)}, and "
                f"instance {name!r} has no evidence of {list(missing[0])}"
            )
        classes.append([row_of[shift] for shift in shifts])
    return classes
