"""What commands share beside their options: loading a model when it is time to, and printing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from lookright.model import Model


def loader(
    device: str | None,
    dtype: str | None,
    revision: str | None,
    trust_remote_code: bool,
    batch_tokens: int | None = None,
) -> Callable[[str], Model]:
    """What loads a model by its name, once everything else is known to be in order."""

    def load(name: str) -> Model:
        from lookright.model import Model

        return Model.load(
            name,
            device=device,
            dtype=dtype,
            revision=revision,
            trust_remote_code=trust_remote_code,
            batch_tokens=batch_tokens,
        )

    return load


def installed_versions() -> dict[str, str | None]:
    """Versions for a run's record, looked up when they are needed."""
    from lookright.machine import versions

    return versions()


def show(*results: RenderableType | dict[str, Any]) -> None:
    """JSON for a machine, tables and text for a person."""
    for result in results:
        if isinstance(result, dict):
            typer.echo(json.dumps(result, indent=2, allow_nan=False))
        elif isinstance(result, str):
            typer.echo(result)
        else:
            from rich.console import Console

            Console().print(result)
