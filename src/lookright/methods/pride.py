"""PriDe (Zheng et al. 2023): one prior over the positions, the same for every question."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lookright.presets import PRESETS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lookright.calibration import Calibration
    from lookright.evidence import EvidenceArray

ESTIMATORS = ("mean", "original", "bias")


def pride(
    evidence: EvidenceArray, calibration: Calibration, *, estimator: str = "mean"
) -> NDArray[np.float64]:
    """[P, M, N] log-probabilities less the prior of each position."""
    return evidence.log_probs.astype(np.float64) - position_prior(calibration, estimator)


def position_prior(calibration: Calibration, estimator: str) -> NDArray[np.float64]:
    """[N] the log-prior by one of the estimators.

    "mean" of the log-probabilities over all calibration orders, label-free; "original", as in
    PriDe's own paper, the mean over samples of each sample's softmax(mean over orders of log P);
    "bias", as in the released code, the column means of its bias matrix.
    """
    if estimator == "mean":
        return calibration.label_free_prior
    if estimator == "original":
        return calibration.original_prior
    released = PRESETS["released"]["lad"]
    column_means: NDArray[np.float64] = calibration.log_bias(
        released["mean"], released["bias"]
    ).mean(axis=0)
    return column_means
