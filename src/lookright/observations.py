"""What a calibration observes: means of labelled evidence, in log space and float64."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.errors import EvidenceWarning, InputError
from lookright.evidence import EvidenceArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Attention counts as at least this much, in a prior and inside logarithms; an exact zero is no
#: small attention but an image the layer cannot see, and stays zero.
ATTENTION_FLOOR = 1e-8

#: The logarithm that stands for an exact zero among observed probabilities.
LOG_FLOOR = float(np.log(1e-30))


def floored(log_probs: Floats) -> Floats:
    """Log-probabilities in which an exact zero is 1e-30."""
    return np.where(np.isneginf(log_probs), LOG_FLOOR, log_probs)


def covered(array: EvidenceArray) -> list[NDArray[np.bool_]]:
    """For each position, which (order, instance) have the target there: equally many for each."""
    positions = array.target_positions  # [P, M]
    if (positions < 0).any():
        unknown = array.instance_ids[int(np.argmax((positions < 0).any(axis=0)))]
        raise InputError(
            f"calibration: instance {unknown!r} has no target; calibrate on labelled instances"
        )
    covered = [positions == position for position in range(array.n)]
    counts = [int(where.sum()) for where in covered]
    if len(set(counts)) > 1:
        raise InputError(
            "calibration: the target must stand at every position equally often, and it stands "
            f"{', '.join(map(str, counts))} times at positions 1 to {array.n}; give each sample in "
            f"its {array.n} cyclic orders (EvidenceArray.cyclic() takes them out)"
        )
    return covered


def log_mean_exp(rows: Floats) -> Floats:
    """[samples, N] -> [N], the log of the mean probability (equation 1)."""
    total: Floats = np.logaddexp.reduce(rows, axis=0)
    return total - math.log(len(rows))


def floored_cells(log_observed: Floats) -> Floats:
    """The matrix with 1e-30 for every exact zero, and a warning that names the cells."""
    zero = np.argwhere(np.isneginf(log_observed)) + 1
    if len(zero):
        cells = ", ".join(f"P_obs({j}|{i})" for i, j in zero[:4])
        rest = f" and {len(zero) - 4} more" if len(zero) > 4 else ""
        warnings.warn(
            f"calibration: {cells}{rest} is exactly 0 (said position | target's position, counted "
            "from 1); it is taken as 1e-30",
            EvidenceWarning,
            stacklevel=3,
        )
    return floored(log_observed)


def original_prior(log_probs: Floats) -> Floats:
    """[P, M, N] -> [N] log of PriDe's own prior.

    The mean over samples of each sample's softmax(mean over orders of log P).
    """
    per_sample: Floats = log_probs.mean(axis=0)  # [M, N]
    per_sample = per_sample - np.logaddexp.reduce(per_sample, axis=-1, keepdims=True)
    return log_mean_exp(per_sample)


def attention_per_token(evidence: EvidenceArray) -> Floats:
    """[P, M, L, N] the mean attention on a visual token of each image, instead of the sum."""
    if evidence.image_tokens is None:
        raise InputError(
            "reduce=mean needs the number of visual tokens of each image, and this evidence does "
            "not have it; use reduce=sum"
        )
    if (evidence.image_tokens < 1).any():
        raise InputError("evidence, field 'image_tokens': an image of no tokens")
    per_token: Floats = evidence.attention / evidence.image_tokens[:, :, None, :].astype(np.float64)
    return per_token


def attention_prior(attention: NDArray[np.floating[Any]]) -> Floats:
    """[P, M, L, N] -> [L, N], the mean over all samples and orders (equation 7)."""
    seen = np.where(attention > 0, np.maximum(attention, ATTENTION_FLOOR, dtype=np.float64), 0.0)
    prior: Floats = seen.mean(axis=(0, 1))
    return prior


def token_attention_prior(array: EvidenceArray) -> Floats | None:
    if array.image_tokens is None:
        return None
    return attention_prior(attention_per_token(array))
