"""An evaluation as it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lookright.baselines import BASELINES
from lookright.calibration import Calibration
from lookright.evaluation import DRAWS, SAMPLES


@dataclass(frozen=True)
class Saved:
    """Calibrations from a file, by their number of candidates."""

    path: Path
    calibrations: Mapping[int, Calibration]


@dataclass(frozen=True)
class Job:
    """An evaluation as it is asked for: benchmarks, methods, and how to calibrate."""

    benchmarks: tuple[Path, ...]
    folder: Path
    methods: tuple[str, ...]  # and baselines
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # their parameters
    orders: str = "5"  # a number, of each instance's own (shared in preset released), or a spec
    calibration: Path | Saved | None = None  # another benchmark's samples, or ready; else its own
    samples: int = SAMPLES
    draws: int = DRAWS
    limit: int | None = None  # at most so many evaluated instances of each benchmark
    seed: int = 0
    preset: str = "paper"
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the preset's settings
    allow_leak: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The methods, without the baselines."""
        return tuple(name for name in self.methods if name not in BASELINES)

    @property
    def baselines(self) -> tuple[str, ...]:
        """The baselines, once each."""
        return tuple(dict.fromkeys(name for name in self.methods if name in BASELINES))

    @property
    def spec(self) -> str:
        """The orders as `orders_for` reads them."""
        if not self.orders.isdigit():
            return self.orders
        return f"{'shared' if self.preset == 'released' else 'random'}:{self.orders}"
