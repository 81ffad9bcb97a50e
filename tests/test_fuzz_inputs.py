"""Malformed input of every kind ends in a sentence, and the script that finds out is honest."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from in_process import called
from lookright import cli
from lookright.errors import InputError
from lookright.store import Store
from malformed_benchmarks import files, write
from malformed_runs import FOLDERS, contents, in_pieces, lost

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


@pytest.fixture(scope="module")
def ground(fuzz: Any) -> Iterator[Any]:
    with fuzz.ground() as made:
        yield made


@pytest.fixture
def entry(ground: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Puts something else in the place of the command line."""
    return lambda instead: monkeypatch.setattr(ground, "entry", instead)


def test_nothing_malformed_gives_a_traceback_or_loses_what_was_saved(
    fuzz: Any, ground: Any
) -> None:
    report = fuzz.run(range(240), 1, ground)
    assert report.failures == []
    assert report.outcomes.keys() == set(fuzz.KINDS)
    assert report.total("refused") > 150
    assert report.total("skipped")
    assert report.total("accepted")


def test_no_image_or_instance_in_memory_gives_a_traceback(fuzz: Any) -> None:
    report = fuzz.run_in_memory(range(400), 1)
    assert report.failures == []
    assert all(counter["accepted"] and counter["refused"] for counter in report.outcomes.values())


def test_the_material_is_good_before_it_is_spoilt(ground: Any, tmp_path: Path) -> None:
    for number in range(5):
        folder, run = tmp_path / f"{number}", tmp_path / f"run {number}"
        write(files(Random(number)), folder)
        ended = called(cli.main, [*ground.call(str(folder), str(run)), "--part", "both"])
        assert (ended.code, ended.trace) == (0, "")


def test_the_same_seed_makes_the_same_cases(fuzz: Any, ground: Any, entry: Any) -> None:
    entry(lambda: print('{"skipped": []}'))

    def drawn(seed: int) -> list[tuple[Any, ...]]:
        seen: list[tuple[Any, ...]] = []
        fuzz.run(range(24), seed, ground, seen=lambda case, ended: seen.append(case.arguments))
        return seen

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (KeyError("x"), "traceback"),
        (InputError("run.json: this did not come through the entry point"), "traceback"),
        (SystemExit(3), "exit code 3"),
        (SystemExit(2), "refused in bad words"),
    ],
)
def test_a_command_that_fails_is_found(
    fuzz: Any, ground: Any, entry: Any, said: BaseException, outcome: str
) -> None:
    def fail() -> None:
        raise said

    entry(fail)
    report = fuzz.run(range(6), 0, ground)
    assert report.total(outcome) == len(report.failures) == 6
    assert report.failures[2].startswith(f"case 2, path of an image: {outcome}\n")


@pytest.mark.parametrize(
    "message",
    [
        "lookright: something somewhere cannot be used",
        "lookright: {folder}",
        "lookright: {folder} holds \x1b[31m and cannot be used",
        "lookright: {folder} cannot be used\nbecause of this",
        "lookright: {folder} cannot be used" + "!" * 1000,
        "{folder} cannot be used for anything",
    ],
)
def test_a_refusal_in_bad_words_is_found(fuzz: Any, tmp_path: Path, message: str) -> None:
    case = fuzz.Case(["evidence"], tmp_path / "run", (str(tmp_path),))
    good = fuzz.Ended(2, "", f"lookright: {tmp_path} cannot be used; take another\n")
    assert fuzz.judged(case, good)[0] == "refused"
    ended = fuzz.Ended(2, "", message.format(folder=tmp_path) + "\n")
    assert fuzz.judged(case, ended)[0] == "refused in bad words"


@pytest.mark.parametrize(
    ("arguments", "code", "out", "outcome"),
    [
        ([], 0, "4 questions", "accepted"),
        ([], 1, "4 questions\n1 could not be used:\na: its image", "exit code 1"),
        (["--keep-going"], 1, "4 questions\n1 could not be used:\na: its image", "skipped"),
        (["--keep-going"], 1, "4 questions", "exit code 1 with 0 skipped"),
        (["--keep-going"], 0, "4 questions\n1:\na: its image", "exit code 0 with 1 skipped"),
        (["--keep-going"], 1, "4 questions\n1:\na: \x1b[2J", "skipped in bad words"),
        (["--keep-going", "--json"], 1, '{"skipped": ["a: its image"]}', "skipped"),
        (["--keep-going"], 2, "", "refused in bad words"),
    ],
)
def test_an_exit_code_must_be_that_of_what_is_printed(
    fuzz: Any, tmp_path: Path, arguments: list[str], code: int, out: str, outcome: str
) -> None:
    case = fuzz.Case(["evidence", *arguments], tmp_path, (str(tmp_path),))
    assert fuzz.judged(case, fuzz.Ended(code, out, ""))[0] == outcome


@pytest.mark.parametrize("what", ["*.parquet", "run.json", "notes.txt"])
def test_a_loss_is_found(fuzz: Any, ground: Any, entry: Any, what: str) -> None:
    def lose() -> None:
        run = Path(sys.argv[sys.argv.index("-o") + 1])
        try:
            cli.main()
        finally:
            for path in run.glob(what):
                path.unlink()

    def beside(folder: Path, random: Random) -> None:
        (folder / "notes.txt").write_text("kept")

    entry(lose)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FOLDERS, "a foreign file", beside)
        report = fuzz.run(range(1), 0, ground, kinds=("a foreign file",))
    assert report.total("lost what was saved") == 1


@pytest.mark.parametrize("changed", ["log_probs", "attention", "target", "instance_id"])
def test_a_row_that_changed_in_one_bit_is_a_row_lost(
    ground: Any, tmp_path: Path, changed: str
) -> None:
    store = Store(ground.held)
    first, *others = store.read()
    ((_, settings),) = store.settings().items()
    values = {"target": 0, "instance_id": "z"}
    for name in ("log_probs", "attention"):
        values[name] = np.nextafter(getattr(first, name), np.float32(0))
    Store(tmp_path / "same").append([first, *others], settings)
    Store(tmp_path / "other").append(
        [replace(first, **{changed: values[changed]}), *others], settings
    )
    assert lost(contents(tmp_path / "same"), contents(tmp_path / "same")) == ""
    assert lost(contents(tmp_path / "same"), contents(tmp_path / "other")).startswith("the row")


def test_shards_in_pieces_hold_the_same_evidence(ground: Any) -> None:
    before = contents(Path(ground.held))
    in_pieces(Path(ground.held))
    assert lost(before, contents(Path(ground.held))) == ""
    assert len(list(Path(ground.held).glob("*.parquet"))) == len(before[1]) == 2


def test_what_waits_for_ever_is_found(
    fuzz: Any, ground: Any, entry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait() -> None:
        (Path(sys.argv[sys.argv.index("--benchmark") + 1]) / "pipe").open("rb")

    entry(wait)
    monkeypatch.setattr(fuzz, "LONGEST", 1)
    report = fuzz.run(range(1), 0, ground)
    assert "TimeoutError" in report.failures[0]


def test_the_record_of_a_run_may_name_a_folder_that_is_no_text(
    ground: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for present in (0, 4):
        ended = called(cli.main, [*ground.call(ground.good, "\udcff"), "--json"])
        assert (ended.code, json.loads(ended.out)["present"]) == (0, present)
