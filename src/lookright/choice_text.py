"""Decisions and rankings as tables with bars, for the terminal and as plain text."""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO
from typing import TYPE_CHECKING

from lookright.report.look import shortened
from lookright.report.tables import bar

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lookright.choice import Choice, Ranked, Ranking

_WIDTH = 100  # of plain text
_NAME = 24  # characters of a file name


def choice_table(choice: Choice) -> RenderableType:
    """All images in the order given, the chosen one marked, and what to make of it."""
    from lookright.choice import rank

    return _page(
        choice,
        sorted(rank(choice, None), key=lambda image: image.index),
        _answer(choice),
        verdict(choice),
    )


def ranking_table(ranking: Ranking) -> RenderableType:
    """The images best first."""
    total = len(ranking.choice.names)
    shown = f"the best {len(ranking)} of {total}" if len(ranking) < total else f"all {total} images"
    return _page(ranking.choice, ranking, shown, verdict(ranking.choice))


def _answer(choice: Choice) -> str:
    called, name = f"image {choice.index}", choice.names[choice.index]
    named = "" if name == called else f", {name}"
    return f"{called} (counted from 0){named}, with {100 * choice.confidence:.1f}%"


def verdict(choice: Choice) -> str:
    """Whether logits and attention agree, and whether the answer is the logits' own."""
    said, seen = int(choice.vanilla.argmax()), int(choice.attention.argmax())
    if choice.diverged:
        first = f"The logits alone say image {said}, the attention image {seen}: they diverge."
    else:
        first = f"The logits alone and the attention both say image {said}."
    if not choice.corrected:
        return f"{first}\n{choice.method} keeps the logits' answer."
    return f"{first}\n{choice.method} corrects the answer to image {choice.index}."


def as_text(table: RenderableType) -> str:
    """A table as plain text, without colours."""
    from rich.console import Console

    out = StringIO()
    Console(file=out, width=_WIDTH, color_system=None, legacy_windows=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _page(choice: Choice, images: Iterable[Ranked], shown: str, below: str) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column(" Image", overflow="ellipsis", no_wrap=True)
    for name in (choice.method, "vanilla", "attention"):
        table.add_column(" " + name.replace("_", "_\n "), no_wrap=True, style="cyan")
        table.add_column("", justify="right", no_wrap=True)
    for image in images:
        row: list[str | Text] = ["> " if image.index == choice.index else "", str(image.index)]
        row.append(Text(f" {shortened(image.name, _NAME)}"))
        for share in (image.score, image.vanilla, image.attention):
            row += [f" {bar(100 * share)}", f"{100 * share:.1f}%"]
        table.add_row(*row, style="bold" if image.index == choice.index else None)
    heading = [Text(f'"{choice.text}"'), Text(shown, style="bold"), Text()]
    parts: list[RenderableType] = [*heading, table, Text(), Text(below)]
    if choice.warning is not None:
        parts.append(Text(choice.warning, style="bold"))
    return Group(*parts)
