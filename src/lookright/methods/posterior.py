"""The visual posterior: which image the attention speaks for, over its most visual layers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.errors import EvidenceWarning, InputError
from lookright.observations import ATTENTION_FLOOR, attention_per_token

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lookright.calibration import Calibration
    from lookright.evidence import EvidenceArray

    Floats = NDArray[np.floating[Any]]
    Doubles = NDArray[np.float64]

AGGREGATES = ("ratios", "means")
REDUCTIONS = ("sum", "mean")


def log_posterior(
    evidence: EvidenceArray,
    calibration: Calibration | None,
    *,
    k: int | str,
    layers: str,
    reduce: str,
    aggregate: str,
) -> Doubles:
    """[P, M, N] log pi~: the attention on each image against its prior (equation 11).

    `calibration` None leaves the prior out. `k` layers of highest mass are read, or "all", among
    those that `layers` allows. `aggregate`: "ratios" is the mean over layers of the log-ratio (the
    paper); "means" the log of the mean attention less the mean log-prior (released).
    """
    attention = _attention(evidence, reduce)  # [P, M, L, N]
    prior = _prior(calibration, reduce, attention.shape[2:])  # [L, N]
    if k != "all" and int(k) > len(evidence.layers):
        raise InputError(f"k={k}: the evidence has {len(evidence.layers)} layers; use fewer or all")
    allowed = allowed_layers(layers, evidence.layers)
    if len(allowed) < len(evidence.layers):
        attention, prior = attention[:, :, allowed], prior[allowed]
    seen = _sees_every_image(attention, prior)  # [P, M, L]
    log_prior = _floored_log(prior)
    if k != "all":
        chosen = heaviest_layers(attention, seen, int(k))  # [P, M, K]
        attention = np.take_along_axis(attention, chosen[..., None], axis=2)
        seen = np.take_along_axis(seen, chosen, axis=2)
        log_prior = log_prior[chosen]  # [P, M, K, N]
    _warn_of_blind(seen, layers)
    if aggregate == "ratios":
        return _mean_over_layers(_floored_log(attention) - log_prior, seen)
    readout = _floored_log(_mean_over_layers(attention, seen, where_none=1.0))
    return readout - _mean_over_layers(log_prior, seen)


def heaviest_layers(attention: Floats, seen: NDArray[np.bool_], k: int) -> NDArray[np.intp]:
    """[P, M, K] the layers with the largest mass on the images, per instance (equations 8 and 9).

    Equal masses: the lower layer first. Layers that are not `seen` come last.
    """
    mass = attention.sum(axis=-1, dtype=np.float64)  # [P, M, L]
    mass[~seen] = -1.0
    return np.argsort(-mass, axis=-1, kind="stable")[..., :k]


def allowed_layers(spec: str, layers: Sequence[int]) -> list[int]:
    """Where in the evidence the layers stand that a spec names by the decoder's own numbers.

    "all", "21:36" (21 to 35), "21:" or "3,7,11".
    """
    if spec == "all":
        return list(range(len(layers)))
    if ":" not in spec:
        named = {int(number) for number in spec.split(",")}
        return [index for index, number in enumerate(layers) if number in named]
    start, stop = (int(end) if end else None for end in spec.split(":"))
    return [
        index
        for index, number in enumerate(layers)
        if number >= (start or 0) and (stop is None or number < stop)
    ]


def _attention(evidence: EvidenceArray, reduce: str) -> Floats:
    if not evidence.layers:
        raise InputError("this evidence has no attention; vanilla and pride do without it")
    return evidence.attention if reduce == "sum" else attention_per_token(evidence)


def _prior(calibration: Calibration | None, reduce: str, shape: tuple[int, ...]) -> Doubles:
    """[L, N]; ones, whose logarithm is nothing, where there is no prior."""
    if calibration is None:
        return np.ones(shape)
    prior = calibration.attention_prior if reduce == "sum" else calibration.token_attention_prior
    if prior is None:
        raise InputError(
            "reduce=mean needs a calibration made with the number of visual tokens of each image; "
            "calibrate again, or use reduce=sum"
        )
    return prior


def _sees_every_image(attention: Floats, prior: Doubles) -> NDArray[np.bool_]:
    """[P, M, L] a mass of exactly 0 is an image the layer cannot see (a sliding window)."""
    seen: NDArray[np.bool_] = np.logical_and((attention > 0).all(axis=-1), (prior > 0).all(axis=-1))
    return seen


def _floored_log(values: Floats) -> Doubles:
    floored: Doubles = np.maximum(values, ATTENTION_FLOOR, dtype=np.float64)
    logs: Doubles = np.log(floored, out=floored)
    return logs


def _mean_over_layers(values: Floats, seen: NDArray[np.bool_], where_none: float = 0.0) -> Doubles:
    """[P, M, K, N] (or [K, N]) -> [P, M, N], over the layers seen; a constant where none is."""
    count = seen.sum(axis=-1)[..., None]  # [P, M, 1]
    total = np.where(seen[..., None], values, 0.0).sum(axis=-2, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), where_none)


def _warn_of_blind(seen: NDArray[np.bool_], layers: str) -> None:
    blind = ~seen.any(axis=-1)  # [P, M]
    if blind.any():
        warnings.warn(
            f"{blind.sum()} of {blind.size} decisions: no layer (of layers={layers}) sees every "
            "image, so the attention speaks for all of them equally",
            EvidenceWarning,
            stacklevel=4,
        )
