"""The two presets as named choices: what the paper says, and what its released code does."""

from __future__ import annotations

from typing import Any

from lookright.errors import InputError, shown

#: preset -> method -> the parameters in which it leaves the methods' own defaults, the paper's.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {},
    "released": {
        "pride": {"estimator": "bias"},
        "raw_attention": {"layers": "21:36"},
        "purified_attention": {"layers": "21:36", "aggregate": "means"},
        "lad": {
            "layers": "21:36",
            "aggregate": "means",
            "mean": "geometric",
            "bias": "margin",
            "mixture": "geometric",
        },
    },
}


def check_preset(name: str) -> str:
    """`name`, if there is such a preset."""
    if name not in PRESETS:
        raise InputError(f"unknown preset {shown(name)!r}: use {' or '.join(PRESETS)}")
    return name
