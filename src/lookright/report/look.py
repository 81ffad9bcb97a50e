"""The one look of all figures: what they are drawn with, and the parts they have in common.

A figure has nothing behind it and mid-grey words, so that it stands on a white page and on a dark
one; what counts is said by lightness and in words, never by hue alone.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.errors import InputError, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

#: Words: as dark on white as they are light on a dark page (about 4.3 to 1 on both).
WORDS = "#7a7a7a"
#: What stands out, what stands back on any page (half transparent), and hairlines.
INK, QUIET, HAIR = "#2f6fb5", "#7a7a7a73", "#7a7a7a80"
#: Little to much of anything, for tiles.
RAMP = ("#dfe9f4", "#9cc0e2", "#4f8cc9", "#22589c", "#0f2f5f")

#: What a figure can be saved as.
FORMATS = (".png", ".svg", ".pdf")

_WORDY = 12  # a matrix of more positions than this has tiles too small for numbers
_PANELS = 3  # side by side
_TITLE_INCHES = 0.1  # a character of a title, on average


def new_figure(
    columns: int, rows: int, panel: tuple[float, float], margin: float = 0.0, **shared: Any
) -> tuple[Figure, Sequence[Axes]]:
    """A transparent figure of so many panels, each of `panel` inches, row by row."""
    from matplotlib.figure import Figure

    ratios = {"height_ratios": shared.pop("height_ratios")} if "height_ratios" in shared else {}
    figure = Figure(
        (margin + panel[0] * columns, panel[1] * rows + 0.35),
        dpi=160,
        facecolor="none",
        layout="constrained",
    )
    axes = figure.subplots(rows, columns, squeeze=False, **shared, **ratios).ravel()
    for axis in axes:
        axis.set_facecolor("none")
        for side, spine in axis.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(HAIR)
        axis.tick_params(color=HAIR, labelcolor=WORDS, labelsize=8, length=0)
        axis.xaxis.label.set_color(WORDS)
        axis.yaxis.label.set_color(WORDS)
    return figure, list(axes)


def new_panels(
    named: Mapping[str, Any], panel: tuple[float, float], **shared: Any
) -> tuple[Figure, Sequence[Axes]]:
    """As many panels as there are names, in rows; what is left over is not drawn."""
    columns = 2 if len(named) == 4 else min(_PANELS, len(named))
    figure, axes = new_figure(columns, -(-len(named) // columns), panel, **shared)
    for axis in axes[len(named) :]:
        axis.set_axis_off()
    return figure, axes


def entitle(figure: Figure, text: str) -> None:
    """Words above everything, on as many lines as the width asks for."""
    if text:
        lines = wrap(literal(text), max(20, int(figure.get_figwidth() / _TITLE_INCHES)))
        figure.suptitle(
            "\n".join(lines), x=0.01, ha="left", fontsize=10, color=WORDS, fontweight="bold"
        )
        figure.set_figheight(figure.get_figheight() + 0.17 * (len(lines) - 1))


def draw_matrix(
    axis: Axes,
    values: Floats,
    names: Sequence[str],
    scale: tuple[float, float],
    number: Callable[[float], str],
) -> None:
    """[N, N] as tiles: a row for each position of the target, a column for each answer."""
    draw_tiles(axis, values, scale, number if len(names) <= _WORDY else None)
    axis.set_aspect("equal")
    places = np.arange(len(names))
    axis.set_xticks(places, names)
    axis.set_yticks(places, names)
    axis.set_xlabel("answer", fontsize=8)
    axis.set_ylabel("target's position", fontsize=8)
    if len(names) > _WORDY:
        draw_key(axis, scale, number)


def draw_tiles(
    axis: Axes,
    values: Floats,  # [rows, columns]
    scale: tuple[float, float],
    number: Callable[[float], str] | None = None,
) -> None:
    """A tile for each value, the first row on top; its number on it, in what reads on it."""
    from matplotlib.patches import Rectangle

    rows, columns = values.shape
    for row in range(rows):
        for column in range(columns):
            value = float(values[row, column])
            known = np.isfinite(value)
            colour = _colour(value, scale) if known else "none"
            axis.add_patch(
                Rectangle(
                    (column - 0.47, row - 0.47),
                    0.94,
                    0.94,
                    facecolor=colour,
                    edgecolor="none" if known else HAIR,
                    linewidth=0.6,
                )
            )
            if number is not None:
                axis.text(
                    column,
                    row,
                    number(value) if known else "none",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color=_readable_on(colour) if known else WORDS,
                )
    axis.set_xlim(-0.5, columns - 0.5)
    axis.set_ylim(rows - 0.5, -0.5)
    for spine in axis.spines.values():
        spine.set_visible(False)


def draw_key(
    axis: Axes,
    scale: tuple[float, float],
    number: Callable[[float], str],
    even: float | None = None,
) -> None:
    """What the tiles' lightness means, beside them; `even` marks the value of no preference."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    bar = axis.figure.colorbar(
        ScalarMappable(Normalize(*scale), _ramp()), ax=axis, fraction=0.04, pad=0.01, aspect=14
    )
    ticks = [scale[0], scale[1]] if even is None else [scale[0], even, scale[1]]
    bar.set_ticks(ticks, labels=[number(tick) for tick in ticks])
    bar.ax.tick_params(length=0, labelcolor=WORDS, labelsize=7)
    bar.outline.set_visible(False)


def _ramp() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("lookright", RAMP)


def _colour(value: float, scale: tuple[float, float]) -> tuple[float, float, float]:
    low, high = scale
    share = (value - low) / (high - low) if high > low else 0.5
    red, green, blue, _ = _ramp()(min(max(share, 0.0), 1.0))
    return red, green, blue


def _readable_on(colour: tuple[float, float, float] | str) -> str:
    """Dark words on a light tile, light words on a dark one."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return "#10243f" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#ffffff"


def matrix_size(n: int) -> tuple[float, float]:
    """Inches of a matrix of N positions, with a key where it has no numbers."""
    wordy = n <= _WORDY
    side = max(2.4, 0.7 + (0.42 if wordy else 0.2) * n)
    return side + (0 if wordy else 0.6), side


def position_names(identifiers: Sequence[str] | None, n: int) -> list[str]:
    """What positions are called: their identifiers, or 1 to N."""
    return [literal(name) for name in identifiers or [str(k + 1) for k in range(n)]]


def shortened(text: str, length: int) -> str:
    """The text on one line, its middle left out where it is longer."""
    text = " ".join(text.split())
    if len(text) > length:
        head = (length - 1) // 2
        text = f"{text[:head]}\N{HORIZONTAL ELLIPSIS}{text[head + 1 - length :]}"
    return text


def literal(text: str) -> str:
    """A "$" in it is a dollar, and no formula begins."""
    return text.replace("$", r"\$")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format its name ends in; a letter no font has is no reason to warn."""
    check_figure_path(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        try:
            figure.savefig(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{shown(str(path))}: cannot be written ({reason})") from None


def check_figure_path(path: Path) -> None:
    """Refuse a name no figure can be saved under, before there is one."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: a figure's name must end in {', '.join(FORMATS)}")
    if not os.path.isdir(path.parent):
        raise InputError(f"{path}: there is no folder {path.parent}; make it first")
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder; name a file in it")
