"""Attention alone: what the model looks at, raw or against its habits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lookright.methods.posterior import log_posterior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lookright.calibration import Calibration
    from lookright.evidence import EvidenceArray


def raw_attention(
    evidence: EvidenceArray,
    calibration: Calibration | None = None,
    *,
    k: int | str = 2,
    layers: str = "all",
    reduce: str = "sum",
) -> NDArray[np.float64]:
    """[P, M, N] log of the mean attention over the chosen layers; no calibration is used."""
    return log_posterior(evidence, None, k=k, layers=layers, reduce=reduce, aggregate="means")


def purified_attention(
    evidence: EvidenceArray,
    calibration: Calibration,
    *,
    k: int | str = 2,
    tau: float = 5.0,
    layers: str = "all",
    reduce: str = "sum",
    aggregate: str = "ratios",
) -> NDArray[np.float64]:
    """[P, M, N] tau log pi~, whose softmax is the visual posterior (equation 12)."""
    return tau * log_posterior(
        evidence, calibration, k=k, layers=layers, reduce=reduce, aggregate=aggregate
    )
