"""Differences between runs, or between methods, as a table in the terminal."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from lookright.comparison import Comparison, Difference

if TYPE_CHECKING:
    from rich.console import RenderableType

_LEGEND = (
    "In points of accuracy, on the same instances; Interval: 95%, instances resampled in pairs. "
    "Bold: the interval leaves out 0."
)


def differences_table(comparison: Comparison) -> RenderableType:
    """A table for each pair of runs and each benchmark, and what else differs between the runs."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for heading, rows in groupby(comparison.rows, key=_heading):
        table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
        table.add_column("Method", overflow="fold")
        table.add_column("Less", overflow="fold")
        for name in ("Accuracy", "Other", "Difference", "Interval"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(
                row.method,
                row.against_method,
                f"{row.accuracy:.2f}",
                f"{row.against_accuracy:.2f}",
                f"{row.difference:+.2f}",
                "{:+.1f} to {:+.1f}".format(*row.interval),
                style="bold" if row.clear else None,
            )
        parts += [Text(heading), Text(), table, Text()]
    parts += [Text(note) for note in comparison.notes]
    return Group(*parts, Text(_LEGEND, style="dim"))


def _heading(row: Difference) -> str:
    runs = row.run if row.run == row.against_run else f"{row.run} less {row.against_run}"
    return f"{row.benchmark}, N = {row.n}, {row.instances} instances: {runs}"
