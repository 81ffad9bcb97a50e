"""A selector's calibrations as one .safetensors file, for one number of candidates or for several.

For one, it is a calibration file like any other. For several, the number of candidates stands
before every name in it, as in "8/log_observed". The method travels along in the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from lookright.calibration import Calibration
from lookright.calibration_file import from_parts, read_parts, to_parts, write_parts
from lookright.errors import InputError

_METHOD = "method"  # in the metadata: its name and its parameters, as JSON


def save(
    calibrations: Mapping[int, Calibration],
    method: str,
    parameters: Mapping[str, Any],
    path: str | PathLike[str],
) -> None:
    """Write the file whole, or leave what was there."""
    arrays: dict[str, Any] = {}
    metadata = {_METHOD: json.dumps({"name": method, "parameters": dict(parameters)})}
    for n, calibration in calibrations.items():
        before = "" if len(calibrations) == 1 else f"{n}/"
        values, facts = to_parts(calibration)
        arrays |= {before + name: value for name, value in values.items()}
        metadata |= {before + name: value for name, value in facts.items()}
    write_parts(Path(path), arrays, metadata)


def load(path: str | PathLike[str]) -> tuple[dict[int, Calibration], str, dict[str, Any]]:
    """The calibrations by their number of candidates, the method and its parameters."""
    arrays, metadata = read_parts(Path(path))
    calibrations: dict[int, Calibration] = {}
    for group in sorted({_group(name) for name in arrays}) or [""]:
        calibration = from_parts(_of(arrays, group), _of(metadata, group), path)
        if calibration.n < 2:
            raise InputError(f"{path}: is for {calibration.n} candidates; calibrate for 2 or more")
        calibrations[calibration.n] = calibration
    first, *others = calibrations.values()
    for other in others:
        if (first.settings_hash, first.preset) != (other.settings_hash, other.preset):
            raise InputError(
                f"{path}: its calibrations for {first.n} and {other.n} candidates were made with "
                "different settings; calibrate again"
            )
    return calibrations, *_method(metadata, path)


def _group(name: str) -> str:
    return name.rpartition("/")[0]


def _of(values: Mapping[str, Any], group: str) -> dict[str, Any]:
    """What belongs to one calibration, under its plain names."""
    return {name.rpartition("/")[2]: v for name, v in values.items() if _group(name) == group}


def _method(metadata: Mapping[str, str], path: str | PathLike[str]) -> tuple[str, dict[str, Any]]:
    """The method saved; the paper's, where a calibration was saved without one."""
    if _METHOD not in metadata:
        return "lad", {}
    try:
        said = json.loads(metadata[_METHOD])
        return str(said["name"]), dict(said["parameters"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: its method cannot be read ({error}); calibrate again") from None
