"""LAD: the bias expected at the places the model looks at, taken off what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lookright.methods.posterior import log_posterior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lookright.calibration import Calibration
    from lookright.evidence import EvidenceArray

    Doubles = NDArray[np.float64]

MIXTURES = ("arithmetic", "geometric")


def lad(
    evidence: EvidenceArray,
    calibration: Calibration,
    *,
    k: int | str = 2,
    tau: float = 5.0,
    prior: bool = True,
    layers: str = "all",
    reduce: str = "sum",
    aggregate: str = "ratios",
    mean: str = "arithmetic",
    bias: str = "gamma",
    mixture: str = "arithmetic",
) -> Doubles:
    """[P, M, N] log P_vis: the log-probabilities less the expected bias (equation 14).

    `prior` False reads the attention without its prior. The other names are choices of
    `log_posterior`, `Calibration.log_bias` and `expected_bias`.
    """
    log_pi = tau * log_posterior(
        evidence,
        calibration if prior else None,
        k=k,
        layers=layers,
        reduce=reduce,
        aggregate=aggregate,
    )
    log_pi -= np.logaddexp.reduce(log_pi, axis=-1, keepdims=True)
    expected = expected_bias(log_pi, calibration.log_bias(mean, bias), mixture)
    return evidence.log_probs.astype(np.float64) - expected


def expected_bias(log_pi: Doubles, log_bias: Doubles, mixture: str) -> Doubles:
    """[P, M, N] log P_prior(j) of a posterior [P, M, N] over targets k (equation 13).

    "arithmetic": log of sum_k pi_k P_bias(j|k) (the paper); "geometric": sum_k pi_k log P_bias(j|k)
    (released).
    """
    if mixture == "geometric":
        return np.exp(log_pi) @ log_bias
    joint = log_pi[..., :, None] + log_bias  # [P, M, N targets, N answers]
    expected: Doubles = np.logaddexp.reduce(joint, axis=-2)
    return expected
