"""A calibration in words and small tables, for a person at a terminal."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from lookright.identifiers import identifiers_for
from lookright.presets import PRESETS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lookright.calibration import Calibration

#: Below this gain the logits of the models measured so far knew less than their attention.
LITTLE_GAIN = 5.0
_LAYERS_SHOWN = 5


def explain(calibration: Calibration) -> str:
    """What was learned, in the order in which a person asks: how much, from what, what now."""
    parts = [
        _heading(calibration),
        f"gamma = {calibration.gamma:,.4f}",
        _suggestion(calibration),
        "Observed: mean probability of each answer, in percent\n"
        + _matrix(calibration, 100 * np.exp(calibration.log_observed)),
        f"Bias: log P_bias, preset {calibration.preset}\n"
        + _matrix(calibration, _preset_bias(calibration)),
        _layers(calibration),
    ]
    return "\n\n".join(parts) + "\n"


def _heading(calibration: Calibration) -> str:
    samples = len(calibration.samples)
    lines = [
        f"Calibration for {calibration.n} candidates from {samples} "
        f"sample{'s' if samples != 1 else ''}"
    ]
    if calibration.settings is not None and calibration.settings.model:
        revision = calibration.settings.revision
        lines.append(
            f"model {calibration.settings.model}" + (f" at {revision}" if revision else "")
        )
    return "\n".join(lines)


def _suggestion(calibration: Calibration) -> str:
    """What gamma and the matrix suggest to do."""
    gamma = calibration.gamma
    overruled = _overruled(calibration)
    if gamma <= 1:
        text = (
            "The logits carry no signal of the target: no position is said more often when the "
            "target stands there. Compare purified_attention, which does without them."
        )
    elif gamma < LITTLE_GAIN:
        text = (
            "The logits know little: at best, they make the target's position "
            f"{gamma:.1f} times as likely as another. Compare purified_attention, which may beat "
            "lad here."
        )
    elif overruled:
        text = (
            "The logits know something of the target, but with the target at "
            f"{', '.join(overruled)} another position is likelier on average: vanilla tends to err "
            "there, and lad corrects for it."
        )
    else:
        text = (
            "On these samples the target's own position is the likeliest answer everywhere: the "
            "position bias is mild, and vanilla may be good enough."
        )
    return fill(text, 88)


def _overruled(calibration: Calibration) -> list[str]:
    """The positions at which, with the target there, another is likelier on average."""
    best = calibration.log_observed.argmax(axis=1)
    names = _names(calibration)
    return [names[i] for i in range(calibration.n) if best[i] != i]


def _preset_bias(calibration: Calibration) -> NDArray[np.float64]:
    chosen = PRESETS[calibration.preset].get("lad", {})
    return calibration.log_bias(**{k: chosen[k] for k in ("mean", "bias") if k in chosen})


def _matrix(calibration: Calibration, values: NDArray[np.float64]) -> str:
    """A row for each position of the target, a column for each answer."""
    names = _names(calibration)
    width = max(8, *(len(name) + 1 for name in names))
    corner = max(len("target at"), *(len(name) for name in names))
    head = "target at".rjust(corner) + "".join(name.rjust(width) for name in names)
    rows = [
        name.rjust(corner) + "".join(f"{value:{width}.2f}" for value in row)
        for name, row in zip(names, values, strict=True)
    ]
    return "\n".join([head, *rows])


def _layers(calibration: Calibration) -> str:
    if not calibration.layers:
        return "No attention was recorded: only vanilla, pride and permutation_average apply."
    mass = calibration.attention_prior.sum(axis=1)  # [L]
    heaviest = np.argsort(-mass, kind="stable")[:_LAYERS_SHOWN]
    shown = ", ".join(f"{calibration.layers[i]} ({100 * mass[i]:.1f}%)" for i in heaviest)
    return fill(
        f"Attention on the images, by layer (mean over the {len(calibration.layers)}: "
        f"{100 * mass.mean():.1f}%); highest: {shown}",
        88,
    )


def _names(calibration: Calibration) -> tuple[str, ...]:
    if calibration.settings is None:
        return tuple(str(position + 1) for position in range(calibration.n))
    return identifiers_for(calibration.settings.identifiers, calibration.n)
