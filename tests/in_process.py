"""A command of lookright in this process, as the shell would start it, on tiny real models."""

from __future__ import annotations

import io
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import typer.main
from huggingface_hub import constants

from lookright import Model
from zoo import build

#: What typer makes of a command line; to make it anew would take half the time of a tiny command.
_built_once = cache(typer.main.get_command)

TINY, SICK = "tiny", "nan"  # names of the models there are; the second answers NaN


@dataclass(frozen=True)
class Ended:
    """What a command did."""

    code: int | str | None  # None where it raised something else than SystemExit
    out: str
    err: str
    trace: str = ""  # of what it raised


def called(entry: Callable[[], None], arguments: list[str]) -> Ended:
    """Run the entry point of a command line with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    code: int | str | None = 0
    trace = ""
    with (
        patch.object(sys, "argv", ["lookright", *arguments]),
        patch.object(typer.main, "get_command", _built_once),
    ):
        try:
            with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
                entry()
        except SystemExit as end:
            code = end.code or 0
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            code, trace = None, traceback.format_exc()
    return Ended(code, out.getvalue(), err.getvalue(), trace)


def tiny_models() -> dict[str, Model]:
    """A tiny real model with random weights, and one whose last matrix holds NaN."""
    hf, processor = build("llava")
    sick, _ = build("llava")
    sick.get_output_embeddings().weight.data.fill_(float("nan"))
    return {
        TINY: Model.wrap(hf, processor, name=TINY),
        SICK: Model.wrap(sick, processor, name=SICK, self_check=False),
    }


@contextmanager
def loaded(models: Mapping[str, Model]) -> Iterator[None]:
    """`Model.load` gives these by their names, and looks up no others on the hub.

    Where a device or a number format is asked for, it does its own work.
    """
    load = Model.load

    def ready(name: str, **options: Any) -> Model:
        if name in models and not (options.get("device") or options.get("dtype")):
            return models[name]
        return load(name, **options)

    with patch.object(constants, "HF_HUB_OFFLINE", True), patch.object(Model, "load", ready):
        yield
