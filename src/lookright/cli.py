"""The command line: thin typer commands over the library."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lookright import __version__
from lookright.errors import InputError

app = typer.Typer(
    name="lookright",
    help="Multimodal LLMs that answer by what they look at, not by where it stands.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lookright {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measure and remove position bias in multimodal LLMs."""


def main() -> None:
    """Run the command line; what a person can mend ends in one sentence and exit code 2."""
    try:
        app()
    except InputError as error:
        typer.echo(f"lookright: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("lookright: stopped; what was finished is saved", err=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
