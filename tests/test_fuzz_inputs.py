"""Malformed input of every kind ends in a sentence, and the script that finds out is honest."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lookright.errors import InputError

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "fuzz_inputs.py"


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_inputs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def test_nothing_malformed_gives_a_traceback(fuzz: Any) -> None:
    report = fuzz.run(range(400), seed=1)
    assert report.failures == []
    assert report.total("accepted") + report.total("refused") == 400
    assert report.total("refused") > 250
    assert all(counter["accepted"] and counter["refused"] for counter in report.outcomes.values())


def test_the_material_is_good_before_it_is_spoilt(fuzz: Any, tmp_path: Path) -> None:
    for number in range(10):
        fuzz._write(fuzz._files(fuzz.Random(number)), tmp_path / str(number))
        fuzz.read_and_load(tmp_path / str(number))


def test_the_same_seed_makes_the_same_cases(fuzz: Any) -> None:
    def ended(seed: int) -> list[Any]:
        return [(kind, dict(c)) for kind, c in fuzz.run(range(80), seed=seed).outcomes.items()]

    assert ended(3) == ended(3)
    assert ended(3) != ended(4)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (KeyError("x"), "traceback"),
        (SystemExit(2), "traceback"),
        (InputError("something somewhere cannot be used"), "refused in bad words"),
        (InputError(""), "refused in bad words"),
    ],
)
def test_a_target_that_fails_is_found(fuzz: Any, error: BaseException, outcome: str) -> None:
    def target(folder: Path) -> None:
        raise error

    report = fuzz.run(range(6), seed=0, target=target)
    assert len(report.failures) == 6
    assert report.total(outcome) == 6
    assert report.failures[2].startswith(f"case 2, path of an image: {outcome}\n")
