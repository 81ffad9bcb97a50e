"""Rows of results as a table in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lookright.baselines import BASELINES
from lookright.methods import METHODS

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR = 8  # characters that stand for 100%
_EIGHTHS = " ▏▎▍▌▋▊▉"


def results_table(rows: Sequence[dict[str, Any]]) -> RenderableType:
    """Rows of one benchmark and preset: a heading, the figures, and what the columns mean."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("Method", overflow="fold")
    table.add_column("", no_wrap=True, style="cyan")
    for name in ("Accuracy", "Interval", "RStd", "Cons.", "Ties", "Passes"):
        table.add_column(name, justify="right", no_wrap=True)
    samples = (_calibration(rows) or {}).get("samples")
    best = max(row["accuracy"] for row in rows)
    for row in rows:
        table.add_row(
            Text(_label(row, samples)),
            bar(row["accuracy"]),
            _with_deviation(row["accuracy"], row["accuracy_std"]),
            "{:.1f}–{:.1f}".format(*row["interval"]),  # noqa: RUF001
            _figure(row["rstd"]),
            _figure(row["consistency"]),
            _figure(row["tie_rate"]),
            f"{row['passes']:g}",
            style="bold" if row["accuracy"] == best else None,
        )
    return Group(Text(heading(rows)), Text(), table, Text(), Text(_legend(rows), style="dim"))


def bar(percent: float) -> str:
    """A bar of fixed width, to an eighth of a character."""
    eighths = round(percent / 100 * _BAR * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(_BAR)


def heading(rows: Sequence[dict[str, Any]]) -> str:
    """What was scored and with which calibration, in two lines."""
    row = rows[0]
    parts = [row["benchmark"], row["model"], f"N = {row['n']}", f"{row['instances']} instances"]
    orders = max(row["orders"] for row in rows)
    parts += [f"{orders} order{'s' if orders != 1 else ''}", f"preset {row['preset']}"]
    lines = [", ".join(part for part in parts if part)]
    used = _calibration(rows)
    if used:
        gamma = next(row["gamma"] for row in rows if row["calibration"])
        lines.append(
            f"calibrated on {used['samples']} sample{'s' if used['samples'] != 1 else ''}"
            + (f", mean of {used['draws']} draws" if used["draws"] > 1 else "")
            + ("" if gamma is None else f"; gamma {gamma:,.1f}")
        )
    return "\n".join(lines)


def _calibration(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """That of the first row that has one."""
    return next((row["calibration"] for row in rows if row["calibration"]), None)


def _label(row: dict[str, Any], samples: int | None) -> str:
    """The method, with what sets it apart: parameters its preset has not, or fewer samples."""
    table: Mapping[str, Any] = BASELINES if row["method"] in BASELINES else METHODS
    usual = table[row["method"]].parameters(row["preset"])
    changed = {k: v for k, v in row["parameters"].items() if v != usual[k]}
    if row["calibration"] and row["calibration"]["samples"] != samples:
        changed["samples"] = row["calibration"]["samples"]
    return " ".join([row["method"], *(f"{k}={str(v).lower()}" for k, v in changed.items())])


def _with_deviation(value: float, deviation: float | None) -> str:
    return f"{value:.2f}" if deviation is None else f"{value:.2f} ± {deviation:.2f}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _legend(rows: Sequence[dict[str, Any]]) -> str:
    return (
        f"In percent; chance is {100 / rows[0]['n']:.1f}. Accuracy ± its deviation over orders; "
        "Interval: 95%, instances resampled; RStd: deviation of the recall over positions (both "
        "with ddof = 1); Cons.: instances for which all orders lead to the same image; Ties: "
        "decisions between equal scores, which the lowest position wins; Passes: forward passes "
        "for one decision."
    ) + "".join(
        f"\n{row['method']}: {row['parse_rate']:.1f}% of its texts name an image."
        for row in rows
        if row["parse_rate"] is not None
    )
