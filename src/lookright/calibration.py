"""Calibration: what a model says and where it looks by habit, from a few labelled samples."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.errors import EvidenceWarning, InputError
from lookright.evidence import Evidence, EvidenceArray
from lookright.observations import (
    attention_prior,
    covered,
    floored,
    floored_cells,
    log_mean_exp,
    original_prior,
    token_attention_prior,
)
from lookright.presets import check_preset
from lookright.settings import EvidenceSettings

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


MEANS = ("arithmetic", "geometric")
BIASES = ("gamma", "margin")


@dataclass(frozen=True, eq=False)
class Calibration:
    """The statistics of m labelled samples in their N cyclic orders, enough for either preset.

    Rows are the target's position i, columns the chosen position j. What a method makes of them
    is its own choice (`lookright.presets` holds the choices of `preset`).
    """

    log_observed: Floats  # [N, N] log of the mean probability P_obs(j|i)
    mean_log_probs: Floats  # [N, N] mean of the log-probabilities
    original_prior: Floats  # [N] log of PriDe's own prior
    attention_prior: Floats  # [L, N] mean attention mass on each position
    token_attention_prior: Floats | None  # [L, N] mean attention per visual token, where known
    layers: tuple[int, ...]  # [L] the decoder's own layer numbers
    samples: tuple[str, ...]  # ids of the calibration instances
    preset: str = "paper"
    settings_hash: str = ""  # of the evidence
    settings: EvidenceSettings | None = None  # in full, where they are known

    @classmethod
    def fit(
        cls,
        evidence: Sequence[Evidence] | EvidenceArray,
        preset: str = "paper",
        *,
        settings: EvidenceSettings | None = None,
    ) -> Calibration:
        """Take the statistics of labelled evidence in which every position is covered equally.

        `settings` are those the evidence was made with: given, they are saved in full, and a
        later refusal can name the field that differs.
        """
        check_preset(preset)
        array = evidence if isinstance(evidence, EvidenceArray) else EvidenceArray.of(evidence)
        array = array.checked()
        if settings is not None and settings.hash != array.settings:
            raise InputError(
                f"calibration: the evidence was made with the settings {array.settings!r}, not "
                f"with the ones given ({settings.hash!r})"
            )
        log_probs = array.log_probs.astype(np.float64)  # [P, M, N]
        by_target = [log_probs[where] for where in covered(array)]  # N times [samples, N]
        calibration = cls(
            log_observed=floored_cells(np.array([log_mean_exp(rows) for rows in by_target])),
            mean_log_probs=np.array([floored(rows).mean(axis=0) for rows in by_target]),
            original_prior=original_prior(floored(log_probs)),
            attention_prior=attention_prior(array.attention),
            token_attention_prior=token_attention_prior(array),
            layers=array.layers,
            samples=array.instance_ids,
            preset=preset,
            settings_hash=array.settings,
            settings=settings,
        )
        if margin(calibration.log_observed) <= 0:
            warnings.warn(
                "calibration: no position is said more often when the target stands there than "
                "when it does not: the logits carry no signal of the target, and gamma is set to 1",
                EvidenceWarning,
                stacklevel=2,
            )
        return calibration

    @property
    def n(self) -> int:
        """Number of candidates."""
        return len(self.log_observed)

    @cached_property
    def log_gamma(self) -> float:
        """Log of the visual gain: how much more often than any other position the target's own
        is said, where that difference is largest (equation 4); at least 0."""
        return max(0.0, margin(self.log_observed))

    @property
    def gamma(self) -> float:
        """The visual gain (equation 4), by the paper's definition under either preset."""
        with np.errstate(over="ignore"):
            return float(np.exp(self.log_gamma))

    @property
    def label_free_prior(self) -> Floats:
        """[N] mean log-probability of each position over all orders: it needs no target.

        Every target position being covered equally, this is the mean of the rows.
        """
        prior: Floats = self.mean_log_probs.mean(axis=0)
        return prior

    def log_bias(self, mean: str = "arithmetic", bias: str = "gamma") -> Floats:
        """[N, N] log P_bias(j|i), what is said once the visual gain is taken away (equation 5).

        `mean`: of the probabilities ("arithmetic", the paper) or of their logarithms
        ("geometric", released). `bias`: "gamma" takes the gain off the diagonal (the paper);
        "margin" the released code's ideal matrix, whose gain may be below 1.
        """
        observed = self.log_observed if mean == "arithmetic" else self.mean_log_probs
        gain = margin(observed)
        if bias == "gamma":
            return observed - max(0.0, gain) * np.eye(self.n)
        level = float(observed.mean()) - gain / self.n
        return observed - (level + gain * np.eye(self.n))

    def check(self, evidence: EvidenceArray) -> None:
        """Refuse evidence of another number of candidates, other settings or other layers."""
        self.check_settings(evidence.n, evidence.settings)
        if self.layers != evidence.layers:
            raise InputError(
                f"calibration: its layers are {_named(self.layers)}, those of the evidence "
                f"{_named(evidence.layers)}; calibrate with evidence of the same model"
            )

    def check_settings(self, n: int, settings: EvidenceSettings | str) -> None:
        """Refuse use for another number of candidates or other settings (given whole, or by hash).

        The message names every field that differs where both settings are known in full.
        """
        if n != self.n:
            raise InputError(
                f"calibration: it is for {self.n} candidates, not for {n}; calibrate for {n}"
            )
        theirs = settings if isinstance(settings, str) else settings.hash
        if theirs == self.settings_hash:
            return
        fields = [f"settings: {self.settings_hash or 'unknown'!r} against {theirs or 'unknown'!r}"]
        if self.settings is not None and not isinstance(settings, str):
            fields = self.settings.differences(settings)
        raise InputError(
            f"calibration: made for something else ({'; '.join(fields)}); calibrate again for this"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write one .safetensors file, whole or not at all."""
        from lookright.calibration_file import save

        save(self, path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        expect: EvidenceSettings | None = None,
        n: int | None = None,
    ) -> Calibration:
        """Read a saved calibration; refuse one made for other settings or another N than named."""
        from lookright.calibration_file import load

        calibration = load(path)
        try:
            calibration.check_settings(
                calibration.n if n is None else n,
                calibration.settings_hash if expect is None else expect,
            )
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        return calibration

    def explain(self) -> str:
        """A page for a person: gamma, what it suggests, the bias, and where the model looks."""
        from lookright.calibration_text import explain

        return explain(self)


def margin(log_observed: Floats) -> float:
    """The largest log-ratio of a position's share when the target is there to another's.

    max over i and j != i of observed[i, i] - observed[i, j] (equation 4).
    """
    own = np.diagonal(log_observed)
    others = np.where(np.eye(len(own), dtype=bool), np.inf, log_observed)
    return float((own - others.min(axis=1)).max())


def _named(layers: Sequence[Any]) -> str:
    """Layer numbers in few words."""
    if not layers:
        return "none"
    return f"{len(layers)} ({layers[0]} to {layers[-1]})"
