"""Options that several commands share, and reading settings from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from lookright.errors import InputError, shown

Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Device = Annotated[
    str | None,
    typer.Option(help="Where the model runs [default: cuda, mps or cpu, as there is]."),
]
Dtype = Annotated[
    str | None,
    typer.Option(help="Number format [default: float32 on a CPU, else the checkpoint's]."),
]
Revision = Annotated[str | None, typer.Option(help="The model's revision on the hub.")]
BatchTokens = Annotated[
    int | None, typer.Option(min=1, help="Tokens of one batch [default: by the device].")
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
]
Preset = Annotated[str, typer.Option(help="paper or released.")]
PresetOfCalibration = Annotated[
    str | None,
    typer.Option("--preset", help="paper or released [default: the calibration's, else paper]."),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", help="The model's name on the hub, or its folder."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="field=value of the settings, as in trailing_space=true."),
]
Given = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="method.parameter=value, as in lad.k=4, or field=value of the settings; repeatable.",
    ),
]
Caption = Annotated[str, typer.Argument(help="What the image is to show.")]
Images = Annotated[list[str], typer.Argument(help="Image files, or one folder of them.")]
CalibrationFile = Annotated[
    Path | None, typer.Option("--calibration", help="What `lookright calibrate` saved.")
]
MethodName = Annotated[
    str | None,
    typer.Option("--method", help="[default: the calibration's, else permutation_average]."),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Save a figure too (.png, .svg or .pdf).")
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Skip instances that cannot be used; exit code 1 then.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_OF_THE_MODEL = ("model", "revision", "dtype")


def settings_changes(assignments: Iterable[str]) -> dict[str, Any]:
    """What `field=value` on a command line changes in the settings; values are JSON or text."""
    changes: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        given = shown(repr(assignment))
        if not equals or not name.strip():
            raise InputError(f"--set {given}: give field=value, as in trailing_space=true")
        if name.strip() in _OF_THE_MODEL:
            raise InputError(f"--set {given}: say it by the option --{name.strip()}")
        changes[name.strip()] = _value(text)
    return changes


def names_a_method(assignment: str) -> bool:
    """Whether `name=value` is of a method (lad.k=4), not of the settings."""
    return "." in assignment.partition("=")[0]


def _value(text: str) -> Any:
    if sides := re.fullmatch(r"(\d{1,6})x(\d{1,6})", text):
        return [int(side) for side in sides.groups()]
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except (ValueError, RecursionError):
        return text
