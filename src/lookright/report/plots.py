"""Figures of calibrations, results and single decisions, all with the look of `report.look`.

Every function returns a matplotlib Figure of its own, made without pyplot, so that nothing outside
it changes; `figure.savefig` or `save_figure` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.errors import InputError
from lookright.report.look import (
    INK,
    QUIET,
    WORDS,
    draw_key,
    draw_matrix,
    draw_tiles,
    entitle,
    literal,
    matrix_size,
    new_figure,
    new_panels,
    position_names,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


def logits_against_attention(
    logits: Floats,  # [N] probabilities
    attention: Floats,  # [N] shares
    *,
    names: Sequence[str] | None = None,
    target: int | None = None,
    debiased: tuple[str, Floats] | None = None,  # a method's name and its probabilities [N]
    title: str = "",
) -> Figure:
    """What a model says beside where it looks, for one question; with the method's own answer."""
    panels = {"logits": np.asarray(logits), "attention": np.asarray(attention)}
    if debiased is not None:
        panels[debiased[0]] = np.asarray(debiased[1])
    n = len(logits)
    called = names or [f"image {image}" for image in range(n)]
    labels = [literal(shortened(name, 28)) for name in called]
    if target is not None:
        labels[target] += " (target)"
    margin = 0.08 * max(map(len, labels))
    figure, axes = new_figure(len(panels), 1, (2.3, 0.25 + 0.3 * n), margin, sharey=True)
    rows = np.arange(n)
    for axis, (name, shares) in zip(axes, panels.items(), strict=True):
        pick = int(shares.argmax())
        colours = [INK if row == pick else QUIET for row in rows]
        axis.barh(rows, 100 * shares, height=0.66, color=colours)
        if target is not None:
            axis.axhspan(target - 0.5, target + 0.5, color=WORDS, alpha=0.14, linewidth=0, zorder=0)
        for row in rows:
            says = f"{100 * shares[row]:.0f}%"
            axis.annotate(
                f"{says} pick" if row == pick else says,
                (100 * shares[row], row),
                (4, 0),
                textcoords="offset points",
                va="center",
                color=WORDS,
                fontsize=8,
                fontweight="bold" if row == pick else "normal",
            )
        axis.set_xlim(0, 142)  # room for the words after a full bar
        axis.set_xticks([])
        axis.set_title(name, loc="left", fontsize=9, color=WORDS)
        axis.spines["bottom"].set_visible(False)
    axes[0].set_ylim(n - 0.5, -0.5)
    axes[0].set_yticks(rows, labels)
    if target is not None:
        axes[0].get_yticklabels()[target].set_fontweight("bold")
    entitle(figure, shortened(title, 160))
    return figure


def bias_matrix(
    log_bias: Floats,  # [N, N] log P_bias(j|i)
    *,
    identifiers: Sequence[str] | None = None,
    title: str = "log P_bias by position",
) -> Figure:
    """What is said when the target stands at each position, its own pull taken away."""
    names = position_names(identifiers, len(log_bias))
    figure, (axis,) = new_figure(1, 1, matrix_size(len(names)))
    low, high = float(log_bias.min()), float(log_bias.max())
    draw_matrix(axis, log_bias, names, (low, high), "{:.1f}".format)
    entitle(figure, title)
    return figure


def confusion(
    matrices: Mapping[str, Floats],  # name -> [N, N] percent of the target's position
    *,
    identifiers: Sequence[str] | None = None,
    title: str = "Answers by position, in percent",
) -> Figure:
    """What was chosen when the target stood at each position, a panel for each method."""
    known = _known(matrices)
    names = position_names(identifiers, len(next(iter(known.values()))))
    figure, axes = new_panels(known, matrix_size(len(names)))
    for axis, (name, values) in zip(axes, known.items(), strict=False):
        draw_matrix(axis, values, names, (0.0, 100.0), "{:.0f}".format)
        axis.set_title(name, loc="left", fontsize=9, color=WORDS)
    entitle(figure, title)
    return figure


def recall_by_position(
    recalls: Mapping[str, Floats],  # name -> [N] percent
    *,
    identifiers: Sequence[str] | None = None,
    title: str = "Recall by position, in percent",
) -> Figure:
    """How evenly each method is right: a panel for each, the others faint behind it."""
    known = _known(recalls)
    n = len(next(iter(known.values())))
    names = position_names(identifiers, n)
    figure, axes = new_panels(known, (max(2.2, 0.6 + 0.3 * n), 1.9))
    places = np.arange(n)
    for axis, (name, recall) in zip(axes, known.items(), strict=False):
        for other, behind in known.items():
            if other != name:
                axis.plot(places, behind, color=QUIET, linewidth=0.8, zorder=1)
        axis.axhline(100 / n, color=WORDS, linewidth=0.8, linestyle=(0, (2, 3)), zorder=1)
        axis.plot(places, recall, color=INK, linewidth=2, marker="o", markersize=4.5, zorder=3)
        _mark_ends(axis, recall)
        axis.set_title(f"{name}: {np.nanmean(recall):.1f}", loc="left", fontsize=9, color=WORDS)
        axis.set_ylim(-17, 116)  # room for a number under 0 and over 100
        axis.set_yticks([0, 50, 100])
        axis.set_xlim(-0.4, n - 0.6)
        axis.set_xticks(places, names)
    axes[0].annotate(
        "chance", (0, 100 / n), (-2, 3), textcoords="offset points", fontsize=7, color=WORDS
    )
    entitle(figure, title)
    return figure


def prior_by_layer(
    prior: Floats,  # [L, N] mean attention on each position
    layers: Sequence[int],  # [L] the decoder's own numbers
    *,
    identifiers: Sequence[str] | None = None,
    heaviest: int = 2,
    title: str = "Attention by habit: where the last token looks, whatever is shown",
) -> Figure:
    """How much each layer looks at images at all, and how it spreads that over the positions."""
    depth, n = prior.shape
    if depth == 0:
        raise InputError("there is no attention to plot: this calibration has no layers")
    names = position_names(identifiers, n)
    mass = 100 * prior.sum(axis=1)  # [L]
    width = min(9.0, max(4.2, 1.2 + 0.2 * depth))
    figure, (above, below) = new_figure(
        1, 2, (width, 0.9 + 0.13 * n), sharex=True, height_ratios=[1.2, max(1.0, 0.3 * n)]
    )
    above.spines["left"].set_visible(False)
    places = np.arange(depth)
    top = set(np.argsort(-mass, kind="stable")[:heaviest].tolist())
    above.bar(places, mass, width=0.8, color=[INK if p in top else QUIET for p in places])
    for place in top:
        above.annotate(
            f"{layers[place]}: {mass[place]:.0f}%",
            (place, mass[place]),
            (0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=7,
            color=WORDS,
        )
    above.set_ylim(0, 1.25 * float(mass.max()) or 1.0)
    above.set_yticks([])
    above.set_ylabel("mass on\nimages", rotation=0, ha="right", va="center", fontsize=8)
    shares = 100 * prior / np.where(mass > 0, mass / 100, 1.0)[:, None]  # [L, N]
    high = float(shares.max())
    draw_tiles(below, shares.T, (0.0, high))
    below.set_yticks(np.arange(n), names)
    below.set_ylabel("share of\nposition", rotation=0, ha="right", va="center", fontsize=8)
    step = max(1, -(-depth // 16))
    below.set_xticks(places[::step], [str(layers[place]) for place in places[::step]])
    below.set_xlabel("layer", fontsize=8)
    draw_key(below, (0.0, high), "{:.0f}%".format, even=100 / n)
    entitle(figure, title)
    return figure


def _mark_ends(axis: Axes, values: Floats) -> None:
    """The best and the worst value written beside their points."""
    best, worst = int(np.nanargmax(values)), int(np.nanargmin(values))
    for place in {best, worst}:
        above = place == best
        axis.annotate(
            f"{values[place]:.0f}",
            (place, values[place]),
            (0, 6 if above else -6),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            fontsize=8,
            color=WORDS,
        )


def _known(named: Mapping[str, Any]) -> dict[str, Floats]:
    """The arrays in which there is a number; null is none."""
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in named.items()}
    known: dict[str, Floats] = {
        name: values for name, values in arrays.items() if np.isfinite(values).any()
    }
    if not known:
        raise InputError("there is nothing to plot: no method has figures by position")
    return known
