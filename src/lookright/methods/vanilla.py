"""Vanilla: what the model says, as it says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lookright.calibration import Calibration
    from lookright.evidence import EvidenceArray


def vanilla(evidence: EvidenceArray, calibration: Calibration | None = None) -> NDArray[np.float64]:
    """[P, M, N] the log-probabilities themselves; no calibration is used."""
    return evidence.log_probs.astype(np.float64)
