"""Evidence made in a test: by hand, or drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lookright.evidence import Evidence, EvidenceArray
from lookright.instance import cyclic_orders, random_orders

#: Recordings that are not part of the project; the tests that need them skip without.
TESTBED = Path(__file__).parents[2] / "shared" / "testbed"

Array = np.ndarray[Any, Any]


def normalised(logits: Any) -> Array:
    """Log-probabilities of logits, over the last axis."""
    logits = np.asarray(logits, dtype=np.float64)
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def evidence_of(
    log_probs: Any,  # [P, M, N]
    attention: Any = None,  # [P, M, L, N]; by default no layers
    orders: Any = None,  # [P, N]; by default the first P cyclic shifts
    targets: Any = None,  # [M]; by default 0
    layers: tuple[int, ...] | None = None,
    image_tokens: Any = None,  # [P, M, N]
    settings: str = "",
) -> EvidenceArray:
    log_probs = np.asarray(log_probs)
    p, m, n = log_probs.shape
    attention = np.zeros((p, m, 0, n)) if attention is None else np.asarray(attention)
    shown = np.array(cyclic_orders(n)[:p] if orders is None else orders)
    return EvidenceArray(
        log_probs=log_probs,
        attention=attention,
        orders=np.repeat(shown[:, None], m, axis=1) if shown.ndim == 2 else shown,
        targets=np.zeros(m, dtype=int) if targets is None else np.asarray(targets),
        layers=tuple(range(attention.shape[2])) if layers is None else layers,
        instance_ids=tuple(f"instance-{index}" for index in range(m)),
        image_tokens=None if image_tokens is None else np.asarray(image_tokens),
        settings=settings,
    )


def drawn_evidence(
    seed: int,
    n: int = 4,
    instances: int = 5,
    layers: int = 6,
    orders: Sequence[Sequence[int]] | None = None,
    tokens: bool = False,
    signal: float = 2.0,
) -> EvidenceArray:
    """Evidence in which logits and attention favour the target a little, and positions, too."""
    draw = np.random.default_rng(seed)
    shown = np.array(cyclic_orders(n) if orders is None else orders)
    p = len(shown)
    targets = draw.integers(n, size=instances)
    at_target = (shown[:, None] == targets[:, None]).astype(float)  # [P, M, N]
    logits = (
        signal * at_target + 2 * draw.standard_normal(n) + draw.standard_normal(at_target.shape)
    )
    habit = draw.random((layers, n)) + 0.1
    attention = habit * np.exp(
        at_target[:, :, None] + 0.5 * draw.standard_normal((p, instances, layers, n))
    )
    attention *= draw.random((p, instances, layers, 1)) / attention.sum(-1, keepdims=True)
    return evidence_of(
        normalised(logits),
        attention,
        shown,
        targets,
        image_tokens=draw.integers(1, 9, (p, instances, n)) if tokens else None,
    )


def evaluated_and_calibration(
    seed: int, n: int = 4, instances: int = 7, layers: int = 6, tokens: bool = False
) -> tuple[EvidenceArray, EvidenceArray]:
    """Instances in 3 random orders, and 3 others in their cyclic orders, of one habit."""
    shown = [*cyclic_orders(n), *random_orders(n, 3, seed)]
    every = drawn_evidence(seed, n, instances + 3, layers, shown, tokens)
    evaluated = every.take(orders=slice(n, None), instances=slice(3, None))
    return evaluated, every.take(orders=slice(0, n), instances=slice(0, 3))


def pieces_of(array: EvidenceArray) -> list[Evidence]:
    """The single pieces of evidence that an array holds, instance by instance."""
    p, m, n = array.log_probs.shape
    return [
        Evidence(
            instance_id=array.instance_ids[j],
            order=tuple(map(int, array.orders[i, j])),
            log_probs=array.log_probs[i, j],
            attention=array.attention[i, j],
            layers=array.layers,
            image_tokens=(
                np.ones(n, dtype=int) if array.image_tokens is None else array.image_tokens[i, j]
            ),
            settings=array.settings,
            instance=f"{j:032x}",
            target=None if array.targets[j] < 0 else int(array.targets[j]),
        )
        for j in range(m)
        for i in range(p)
    ]
