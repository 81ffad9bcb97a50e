"""A calibration as one .safetensors file: its arrays, and metadata that say what it is for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lookright.calibration import Calibration
from lookright.errors import InputError
from lookright.files import write_atomically
from lookright.identifiers import identifiers_for
from lookright.presets import check_preset
from lookright.settings import EvidenceSettings

#: Arrays by name, and metadata.
Parts: TypeAlias = "tuple[dict[str, Any], dict[str, str]]"

FORMAT = "lookright calibration 1"
_ARRAYS = ("log_observed", "mean_log_probs", "original_prior", "attention_prior")
_PROMPT_FIELDS = ("prompt", "trailing_space", "line_break", "labelled", "system", "identifiers")


def save(calibration: Calibration, path: str | PathLike[str]) -> None:
    """Write the file whole, or leave what was there."""
    write_parts(Path(path), *to_parts(calibration))


def load(path: str | PathLike[str]) -> Calibration:
    """Read the file; what is no calibration, or a damaged one, is named."""
    return from_parts(*read_parts(Path(path)), path)


def to_parts(calibration: Calibration) -> Parts:
    """A calibration as a file holds it."""
    arrays = {
        name: np.ascontiguousarray(value)
        for name in (*_ARRAYS, "token_attention_prior")
        if (value := getattr(calibration, name)) is not None
    }
    return arrays, _metadata(calibration)


def from_parts(
    arrays: Mapping[str, Any], metadata: Mapping[str, str], path: str | PathLike[str]
) -> Calibration:
    """A calibration from what a file holds; `path` is for messages."""
    if metadata.get("format") != FORMAT:
        raise InputError(
            f"{path}: is no calibration of this version of lookright ({FORMAT!r} is missing from "
            "its metadata); calibrate again"
        )
    try:
        settings = json.loads(metadata["settings"])
        calibration = Calibration(
            **{name: arrays[name] for name in _ARRAYS},
            token_attention_prior=arrays.get("token_attention_prior"),
            layers=tuple(int(layer) for layer in json.loads(metadata["layers"])),
            samples=tuple(str(sample) for sample in json.loads(metadata["samples"])),
            preset=check_preset(metadata["preset"]),
            settings_hash=metadata["settings_hash"],
            settings=None if settings is None else EvidenceSettings.from_dict(settings),
        )
    except KeyError as error:
        raise InputError(f"{path}: {error} is missing from the calibration") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: the calibration cannot be read ({error})") from None
    _check_arrays(calibration, path)
    return calibration


def _metadata(calibration: Calibration) -> dict[str, str]:
    """What the calibration is of, for whoever opens the file with anything."""
    settings = calibration.settings
    known: dict[str, Any] = {}
    if settings is not None:
        known = {
            "model": settings.model,
            "revision": settings.revision,
            "identifiers": list(identifiers_for(settings.identifiers, calibration.n)),
            "prompt_hash": prompt_hash(settings),
        }
    values = {
        "n": calibration.n,
        "layers": calibration.layers,
        "samples": calibration.samples,
        "settings": None if settings is None else settings.to_dict(),
    }
    plain = {
        "format": FORMAT,
        "preset": calibration.preset,
        "settings_hash": calibration.settings_hash,
    }
    return plain | {name: json.dumps(value) for name, value in (known | values).items()}


def prompt_hash(settings: EvidenceSettings) -> str:
    """Of everything in the settings that decides the words of the prompt."""
    values = settings.to_dict()
    words = json.dumps({name: values[name] for name in _PROMPT_FIELDS}, sort_keys=True)
    return sha256(words.encode()).hexdigest()[:16]


def write_parts(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Write one .safetensors file, whole or not at all."""
    from safetensors.numpy import save as to_bytes

    write_atomically(path, to_bytes(dict(arrays), metadata=dict(metadata)))


def read_parts(path: Path) -> Parts:
    """The arrays and the metadata of one .safetensors file."""
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):
        raise InputError(f"{path}: there is no such file; `lookright calibrate` writes one")
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise InputError(f"{path}: is no whole .safetensors file ({error})") from None


def _check_arrays(calibration: Calibration, path: str | PathLike[str]) -> None:
    """Shapes that fit each other, float64, and no value that cannot be computed with."""
    n, layers = calibration.original_prior.size, len(calibration.layers)
    shapes = {
        "log_observed": (n, n),
        "mean_log_probs": (n, n),
        "original_prior": (n,),
        "attention_prior": (layers, n),
        "token_attention_prior": (layers, n),
    }
    for name, shape in shapes.items():
        value = getattr(calibration, name)
        if value is None:
            continue
        if value.shape != shape or value.dtype != np.float64:
            raise InputError(
                f"{path}: {name} is {value.dtype} {value.shape}, not float64 {shape}; "
                "calibrate again"
            )
        if not np.isfinite(value).all():
            raise InputError(f"{path}: {name} holds a value that is no number; calibrate again")
