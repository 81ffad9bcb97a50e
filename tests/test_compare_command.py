"""`lookright compare`: paired differences, what else differs, and runs that do not compare."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_source import FakeSource, make_benchmark, no_progress, rows_in, write_rows
from lookright.cli import main
from lookright.comparison import compare, read_decisions
from lookright.errors import InputError
from lookright.job import Job
from lookright.metrics import paired_shares
from lookright.runner import DECISIONS, evaluate

pytestmark = pytest.mark.filterwarnings("ignore:rstd")

METHODS = ("vanilla", "lad", "permutation_average")


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    return make_benchmark(tmp_path / "photos", count=12)


def evaluated(benchmark: Path, name: str, model: str = "fake", **changes: Any) -> Path:
    """A finished run of this name."""
    folder = benchmark.parent / name
    asked = {"methods": METHODS, "orders": "2", "samples": 2, **changes}
    job = Job(benchmarks=(benchmark,), folder=folder, **asked)
    evaluate(job, lambda: FakeSource(model), no_progress, dict)
    return folder


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lookright", "compare", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


def right(folder: Path, method: str) -> np.ndarray[Any, Any]:
    saved = json.loads((folder / DECISIONS).read_text())["benchmarks"][0]
    return np.array(next(row["right"] for row in saved["rows"] if row["method"] == method))


def test_the_same_method_of_two_runs_is_compared_instance_by_instance(benchmark: Path) -> None:
    first, second = evaluated(benchmark, "first"), evaluated(benchmark, "second", "other")
    found = compare([first, second])
    assert [(r.method, r.against_method) for r in found.rows] == [(m, m) for m in METHODS]
    for row in found.rows:
        one, two = right(second, row.method), right(first, row.method)
        assert (row.difference, row.interval) == paired_shares(one, two)
        assert row.accuracy == 100 * one.mean()
        assert row.against_accuracy == 100 * two.mean()
        assert row.instances == 12
    assert found.notes == (f"{second} against {first}: model: 'other' against 'fake'",)


def test_what_is_saved_of_decisions_is_what_the_results_say(benchmark: Path) -> None:
    folder = evaluated(benchmark, "run")
    rows = json.loads((folder / "results.json").read_text())["rows"]
    for row in rows:
        assert 100 * right(folder, row["method"]).mean() == pytest.approx(row["accuracy"])


def test_the_methods_of_one_run_are_compared_with_vanilla_or_another(benchmark: Path) -> None:
    folder = evaluated(benchmark, "run")
    assert [(r.method, r.against_method) for r in compare([folder]).rows] == [
        ("lad", "vanilla"),
        ("permutation_average", "vanilla"),
    ]
    rows = compare([folder], "lad").rows
    assert [r.method for r in rows] == ["vanilla", "permutation_average"]
    wanted = paired_shares(right(folder, "vanilla"), right(folder, "lad"))
    assert (rows[0].difference, rows[0].interval) == wanted


def test_with_a_base_every_method_of_every_run_is_compared_with_the_first_run_s(
    benchmark: Path,
) -> None:
    first, second = evaluated(benchmark, "first"), evaluated(benchmark, "second", "other")
    rows = compare([first, second], "vanilla").rows
    assert [(Path(r.run).name, r.method) for r in rows] == [
        ("first", "lad"),
        ("first", "permutation_average"),
        *(("second", method) for method in METHODS),
    ]
    assert {(Path(r.against_run).name, r.against_method) for r in rows} == {("first", "vanilla")}


def test_only_shared_instances_count(benchmark: Path) -> None:
    first, second = evaluated(benchmark, "first"), evaluated(benchmark, "second", limit=5)
    (row, *_) = compare([second, first]).rows
    assert row.instances == 5
    assert row.difference == 0
    assert row.accuracy == 100 * right(first, "vanilla")[:5].mean()


def test_what_else_differs_is_said(benchmark: Path) -> None:
    first = evaluated(benchmark, "first")
    second = evaluated(
        benchmark, "second", seed=1, changes={"labelled": True}, given={"lad": {"k": 1}}, draws=2
    )
    notes = "\n".join(compare([first, second]).notes)
    assert "orders: random:2, seed 1 against random:2, seed 0" in notes
    assert "labelled: True against False" in notes
    assert "lad, parameters: " in notes
    assert "'draws': 2} against " in notes


def test_the_table_says_it_all_and_marks_nothing_else(
    benchmark: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    first, second = evaluated(benchmark, "first"), evaluated(benchmark, "second", "other")
    code, out, err = command(first, second)
    assert (code, err) == (0, "")
    for row in compare([first, second]).rows:
        (line,) = [line for line in out.splitlines() if line.startswith(row.method)]
        assert f"{row.difference:+.2f}" in line
        assert "{:+.1f} to {:+.1f}".format(*row.interval) in line
    assert "photos, N = 3, 12 instances: " in out.replace("\n", " ")
    assert "resampled in pairs" in out


def test_json_holds_the_rows_and_the_notes(
    benchmark: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    folder = evaluated(benchmark, "run")
    code, out, _ = command(folder, "--base", "lad", "--json")
    assert code == 0
    assert json.loads(out) == json.loads(json.dumps(compare([folder], "lad").to_dict()))
    assert json.loads(out)["rows"][0]["against_method"] == "lad"


def test_a_difference_is_clear_where_its_interval_leaves_out_zero(benchmark: Path) -> None:
    folder = evaluated(benchmark, "run")
    path = folder / DECISIONS
    saved = json.loads(path.read_text())
    saved["benchmarks"][0]["rows"][0]["right"] = [0.0] * 12
    saved["benchmarks"][0]["rows"][1]["right"] = [1.0] * 12
    saved["benchmarks"][0]["rows"][2]["right"] = [0.0] * 6 + [1e-9] * 6
    path.write_text(json.dumps(saved))
    assert [row.clear for row in compare([folder]).rows] == [True, True]
    saved["benchmarks"][0]["rows"][2]["right"] = [0.0] * 12
    path.write_text(json.dumps(saved))
    assert [row.clear for row in compare([folder]).rows] == [True, False]


# Runs that cannot be compared


def test_runs_without_a_common_instance_are_refused(benchmark: Path, tmp_path: Path) -> None:
    other = make_benchmark(tmp_path / "others", n=4)
    runs = [evaluated(benchmark, "first"), evaluated(other, "second")]
    with pytest.raises(InputError, match=r"no instance in common .others, N = 4 against photos, N"):
        compare(runs)


def test_runs_that_disagree_on_an_answer_are_refused(benchmark: Path) -> None:
    first = evaluated(benchmark, "first")
    rows = rows_in(benchmark / "instances.jsonl")
    rows[3]["answer"] = 1
    write_rows(benchmark / "instances.jsonl", rows)
    with pytest.raises(InputError, match=r"do not agree on an answer \(1 against 0"):
        compare([first, evaluated(benchmark, "second")])


def test_runs_without_a_common_method_are_refused(benchmark: Path) -> None:
    runs = [
        evaluated(benchmark, "first", methods=("vanilla",)),
        evaluated(benchmark, "second", methods=("lad", "pride")),
    ]
    with pytest.raises(InputError, match=r"no method in common \(lad, pride against vanilla\)"):
        compare(runs)
    with pytest.raises(InputError, match="has no figures of 'lda' to compare with"):
        compare(runs, "lda")
    assert len(compare(runs, "vanilla").rows) == 2


def test_a_run_does_not_differ_from_itself(benchmark: Path) -> None:
    folder = evaluated(benchmark, "run")
    with pytest.raises(InputError, match="is named twice"):
        compare([folder, folder])


def test_an_unfinished_run_is_a_sentence_and_exit_code_2(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = command(tmp_path / "nothing")
    assert (code, out) == (2, "")
    assert "`lookright evaluate` writes it when it ends" in err


@pytest.mark.parametrize(
    "spoil",
    [
        lambda saved: saved.clear(),
        lambda saved: saved.update(benchmarks=[]),
        lambda saved: saved.update(format="new"),
        lambda saved: saved["benchmarks"][0].update(settings={"flavour": 1}),
        lambda saved: saved["benchmarks"][0].update(instances=[["a"]]),
        lambda saved: saved["benchmarks"][0]["rows"][0]["right"].pop(),
        lambda saved: saved["benchmarks"][0]["rows"][0].update(right=["no"] * 12),
        lambda saved: saved["benchmarks"][0].update(rows=3),
    ],
)
def test_decisions_changed_by_hand_are_a_sentence(
    benchmark: Path, spoil: Callable[[dict[str, Any]], None]
) -> None:
    path = evaluated(benchmark, "run") / DECISIONS
    saved = json.loads(path.read_text())
    spoil(saved)
    path.write_text(json.dumps(saved))
    with pytest.raises(InputError, match=r"decisions\.json|settings"):
        read_decisions(path.parent)


def test_decisions_of_a_newer_lookright_are_refused(benchmark: Path) -> None:
    path = evaluated(benchmark, "run") / DECISIONS
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(InputError, match="newer lookright"):
        read_decisions(path.parent)
