"""Evaluations: what is asked, how often, what is refused first, and the same files every time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_source import FakeSource, make_benchmark, no_progress, rows_in, write_rows
from lookright.calibration import Calibration
from lookright.collect import WINDOW, Question, unfinished, windows_of
from lookright.errors import InputError
from lookright.evaluation import Evaluation
from lookright.evidence import EvidenceArray
from lookright.instance import Instance, cyclic_orders, identity, orders_for
from lookright.job import Job, Saved
from lookright.methods import METHODS
from lookright.plans import planned
from lookright.runner import LOCK, Outcome, evaluate
from lookright.runs import read_run
from lookright.scoring import Variant, score
from lookright.store import Store

pytestmark = pytest.mark.filterwarnings("ignore:rstd")  # ten instances do not cover all positions

ONE_PASS = ("vanilla", "pride", "raw_attention", "purified_attention", "lad")
EVERY = tuple(METHODS)


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    return make_benchmark(tmp_path / "photos", setting="random")


def job(benchmark: Path, folder: str = "run", **changes: Any) -> Job:
    asked = {"methods": EVERY, "orders": "2", "samples": 2, **changes}
    asked = {"benchmarks": (benchmark,), **asked}
    return Job(folder=benchmark.parent / folder, **asked)


def run(job: Job, source: FakeSource | None = None) -> Outcome:
    return evaluate(job, lambda: source or FakeSource(), no_progress, dict)


def asked(job: Job) -> list[tuple[str, tuple[int, ...]]]:
    source = FakeSource()
    run(job, source)
    return source.asked


def rows(outcome: Outcome) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in outcome.to_dict()["rows"]}


def written(job: Job, name: str = "results.json") -> bytes:
    return (job.folder / name).read_bytes()


# Windows


def questions(*sizes: int) -> list[Question]:
    return [
        Question(Instance(f"i{k}", ("a", "b"), caption="c"), f"content {k}", (order, -order))
        for k, size in enumerate(sizes)
        for order in range(size)
    ]


def test_a_window_holds_whole_instances_and_no_more_questions_than_it_may() -> None:
    windows = windows_of(questions(3, 3, 2, 1, 9, 1), size=6)
    assert [len(window) for window in windows] == [6, 3, 9, 1]
    assert [q for window in windows for q in window] == questions(3, 3, 2, 1, 9, 1)


def test_a_window_with_anything_missing_is_asked_whole() -> None:
    windows = windows_of(questions(2, 2, 2), size=2)
    present = {(q.content, q.order, "s") for window in windows for q in window}
    assert unfinished(windows, "s", present) == []
    assert unfinished(windows, "s", present - {("content 1", (0, 0), "s")}) == [windows[1]]
    assert unfinished(windows, "other", present) == windows


def test_windows_are_the_same_whatever_is_stored_or_asked_besides(tmp_path: Path) -> None:
    photos = make_benchmark(tmp_path / "photos", count=40, samples=10)

    def windows(**changes: Any) -> set[tuple[Question, ...]]:
        (plan,) = planned(job(photos, **changes), no_progress)
        return {window for part in plan.parts for window in part.windows}

    whole = windows()
    assert windows(methods=("vanilla",)) < windows(methods=ONE_PASS) < whole
    assert windows(draws=2) < whole
    assert len(windows(limit=20) - whole) == 2  # the last one of each kind is cut short
    assert max(map(len, whole)) <= WINDOW
    run(job(photos, limit=20))
    assert windows() == whole


# What is asked


def test_one_pass_methods_cost_the_orders_and_the_calibration_passes_once(benchmark: Path) -> None:
    found = asked(job(benchmark, methods=ONE_PASS))
    assert len(found) == len(set(found)) == 2 * 10 + 5 * 2 * 3
    samples = [f"calibration-{i}" for i in range(10)]
    assert found[:30] == [(name, order) for name in samples for order in cyclic_orders(3)]
    instances = [Instance(f"instances-{i}", ("",) * 3, caption="c") for i in range(10)]
    wanted = orders_for(instances, "random:2", 0)
    assert found[30:] == [(i.id, o) for i, two in zip(instances, wanted, strict=True) for o in two]


def test_permutation_average_costs_the_cyclic_orders_that_are_not_there(benchmark: Path) -> None:
    found = asked(job(benchmark, methods=(*ONE_PASS, "permutation_average")))
    assert len(found) == len(set(found))
    beside = found[50:]
    shown = set(found[30:50])
    every = {(f"instances-{i}", order) for i in range(10) for order in cyclic_orders(3)}
    assert set(beside) == every - shown
    assert 0 < len(beside) < 30


def test_methods_that_need_no_calibration_ask_no_samples(benchmark: Path) -> None:
    found = asked(job(benchmark, methods=("vanilla", "raw_attention", "permutation_average")))
    assert not any(name.startswith("calibration") for name, _ in found)


def test_more_methods_draws_and_instances_ask_only_what_is_missing(benchmark: Path) -> None:
    assert len(asked(job(benchmark, methods=("vanilla",)))) == 20
    assert len(asked(job(benchmark, methods=("vanilla", "lad"), draws=1))) == 2 * 3
    assert len(asked(job(benchmark, methods=("lad",), draws=3))) == 2 * 2 * 3
    assert asked(job(benchmark, methods=("lad",), draws=2)) == []


def test_an_image_is_encoded_once_in_each_window(benchmark: Path) -> None:
    outcome = run(job(benchmark, methods=("vanilla", "lad")))
    assert outcome.count.encoded == 10 * 3 + 10 * 3
    record = read_run(benchmark.parent / "run")
    assert record is not None
    (invocation,) = record["invocations"]
    assert (invocation["asked"], invocation["present"], invocation["computed"]) == (50, 0, 50)
    assert invocation["images_encoded"] == 60


def test_the_released_preset_shows_shared_orders_in_its_own_words(benchmark: Path) -> None:
    found = asked(job(benchmark, methods=("vanilla",), preset="released"))
    orders = {order for _, order in found}
    assert len(orders) == 2
    assert identity(3) in orders
    (settings,) = Store(benchmark.parent / "run").settings().values()
    assert settings.trailing_space


def test_orders_may_be_named(benchmark: Path) -> None:
    assert {order for _, order in asked(job(benchmark, methods=("vanilla",), orders="cyclic"))} == {
        *cyclic_orders(3)
    }


def test_several_benchmarks_share_one_model_and_each_has_a_folder(
    benchmark: Path, tmp_path: Path
) -> None:
    other = make_benchmark(tmp_path / "others", n=4, name="o-", identifiers="letters")
    loads: list[FakeSource] = []

    def load() -> FakeSource:
        loads.append(FakeSource())
        return loads[-1]

    both = job(benchmark, benchmarks=(benchmark, other))
    outcome = evaluate(both, load, no_progress, dict)
    assert len(loads) == 1
    assert [table[0]["n"] for table in outcome.tables] == [3, 4]
    assert [row["benchmark"] for row in json.loads(written(both))["rows"][::6]] == [
        "photos",
        "others",
    ]
    assert {row["identifiers"] for row in outcome.tables[1]} == {"letters"}
    assert read_run(both.folder / "photos") is not None
    assert read_run(both.folder / "others") is not None
    assert asked(job(benchmark)) == []  # it goes on where the benchmark's folder is


# What comes of it


def test_the_figures_are_those_of_the_evidence(benchmark: Path) -> None:
    outcome = run(job(benchmark))
    store = Store(benchmark.parent / "run")
    (settings,) = store.settings().values()
    pieces = store.read()
    instances = [Instance(f"instances-{i}", ("",) * 3, caption="c") for i in range(10)]

    def array(names: list[str], orders: list[Any]) -> EvidenceArray:
        return EvidenceArray.of(
            sorted((p for p in pieces if p.instance_id in names), key=lambda p: p.instance_id),
            orders,
        )

    names = [i.id for i in instances]
    cyclic = cyclic_orders(3)
    evaluation = Evaluation(
        evaluated=array(names, orders_for(instances, "random:2", 0)),
        shifts=array(names, [cyclic] * 10),
        calibrations=tuple(
            Calibration.fit(array([f"calibration-{2 * d + k}" for k in (0, 1)], [cyclic] * 2))
            for d in range(5)
        ),
    )
    wanted = score(evaluation, [Variant(name) for name in EVERY])
    for one, two in zip(outcome.to_dict()["rows"], wanted, strict=True):
        for figure in ("method", "accuracy", "interval", "recall", "gamma", "draw_std", "tie_rate"):
            assert one[figure] == two[figure]
        assert (one["model"], one["benchmark"], one["setting"]) == ("fake", "photos", "random")
    assert rows(outcome)["lad"]["calibration"] == {
        "benchmark": "photos",
        "setting": "random",
        "samples": 2,
        "draws": 5,
    }
    assert rows(outcome)["vanilla"]["calibration"] is None
    assert settings.model == "fake"


def test_results_hold_the_rows_and_no_times(benchmark: Path) -> None:
    asked = job(benchmark)
    outcome = run(asked)
    assert json.loads(written(asked)) == json.loads(json.dumps(outcome.to_dict()))
    assert b"seconds" not in written(asked)
    assert str(benchmark.parent).encode() not in written(asked)


def test_interrupted_evaluations_end_in_the_same_files_and_bits(tmp_path: Path) -> None:
    photos = make_benchmark(tmp_path / "photos", count=60, samples=10)
    whole, stopped = job(photos, "whole"), job(photos, "stopped")
    uninterrupted = FakeSource()
    run(whole, uninterrupted)
    finished: Counter[Any] = Counter()
    for stop_after in (20, 0, 17, 30):
        source = FakeSource(stop_after=stop_after)
        with pytest.raises(KeyboardInterrupt):
            run(stopped, source)
        finished.update(map(str, source.windows[:-1]))
    source = FakeSource()
    run(stopped, source)
    finished.update(map(str, source.windows))
    assert finished == Counter(map(str, uninterrupted.windows))  # none twice, none left out
    for name in ("results.json", "decisions.json"):
        assert written(stopped, name) == written(whole, name)
    first, second = (
        {e.key: e.log_probs.tobytes() for e in Store(one.folder).read()} for one in (whole, stopped)
    )
    assert first == second


def test_the_trace_of_company_is_real(tmp_path: Path) -> None:
    """Else the test before this one could not fail."""
    photos = make_benchmark(tmp_path / "photos", count=2, samples=0)
    (plan,) = planned(job(photos, methods=("vanilla",)), no_progress)
    asked = plan.parts[0].questions
    instances, orders = [q.instance for q in asked], [q.order for q in asked]
    together = [e for b in FakeSource().evidence_iter(instances, orders, windows=[4]) for e in b]
    apart = [e for b in FakeSource().evidence_iter(instances, orders, windows=[2, 2]) for e in b]
    assert any((a.log_probs != b.log_probs).any() for a, b in zip(together, apart, strict=True))
    for one, two in zip(together, apart, strict=True):
        np.testing.assert_allclose(one.log_probs, two.log_probs, atol=1e-6)


def test_equal_instances_of_two_names_are_asked_once_and_both_count(benchmark: Path) -> None:
    listed = rows_in(benchmark / "instances.jsonl")
    write_rows(benchmark / "instances.jsonl", [*listed, {**listed[0], "id": "twin"}])
    source = FakeSource()
    # Random orders go by the name, so the twin's are its own; the cyclic ones are the same.
    outcome = run(job(benchmark, methods=("vanilla",), orders="cyclic"), source)
    assert len(source.asked) == 30
    assert rows(outcome)["vanilla"]["instances"] == 11


def test_fewer_draws_than_asked_are_said(benchmark: Path) -> None:
    outcome = run(job(benchmark, samples=3))
    assert rows(outcome)["lad"]["calibration"]["draws"] == 3
    (note,) = outcome.notes
    assert "holds 10 samples to calibrate from: 3 draws of 3, not 5" in note


def test_fewer_orders_than_asked_are_said(tmp_path: Path) -> None:
    pairs = make_benchmark(tmp_path / "pairs", n=2)
    outcome = run(job(pairs, orders="5"))
    assert rows(outcome)["vanilla"]["orders"] == 2
    (note,) = outcome.notes
    assert note.startswith("2 images have 2 orders")


def test_parameters_reach_the_methods(benchmark: Path) -> None:
    found = rows(run(job(benchmark, given={"lad": {"k": 1}})))
    assert found["lad"]["parameters"]["k"] == 1
    assert found["purified_attention"]["parameters"]["k"] == 2


# Other calibrations


def test_a_calibration_from_another_benchmark_has_its_own_folder(
    benchmark: Path, tmp_path: Path
) -> None:
    other = make_benchmark(tmp_path / "others", name="o-", setting="hard")
    source = FakeSource()
    transfer = job(benchmark, calibration=other)
    outcome = run(transfer, source)
    names = {name for name, _ in source.asked}
    assert {f"o-calibration-{i}" for i in range(10)} <= names
    assert not any(name.startswith("calibration") for name in names)
    assert rows(outcome)["lad"]["calibration"] == {
        "benchmark": "others",
        "setting": "hard",
        "samples": 2,
        "draws": 5,
    }
    own = rows(run(job(benchmark)))
    assert own["lad"]["gamma"] != rows(outcome)["lad"]["gamma"]
    assert own["vanilla"]["accuracy"] == rows(outcome)["vanilla"]["accuracy"]
    assert asked(transfer) == []


def test_a_saved_calibration_is_used_and_checked(benchmark: Path, tmp_path: Path) -> None:
    run(job(benchmark))
    store = Store(benchmark.parent / "run")
    (settings,) = store.settings().values()
    samples = [e for e in store.read() if e.instance_id in ("calibration-0", "calibration-1")]
    made = Calibration.fit(samples, settings=settings)
    path, cyclic = tmp_path / "made.safetensors", cyclic_orders(3)
    outcome = run(job(benchmark, "fresh", calibration=Saved(path, {3: made})))
    assert outcome.count.asked == 20 + len(
        {(f"instances-{i}", o) for i in range(10) for o in cyclic_orders(3)}
        - set(asked(job(benchmark, "only", methods=("vanilla",))))
    )
    row = rows(outcome)["lad"]
    assert row["gamma"] == made.gamma
    assert row["calibration"] == {
        "benchmark": "made.safetensors",
        "setting": None,
        "samples": 2,
        "draws": 1,
    }
    with pytest.raises(InputError, match="model: 'fake' against 'other'"):
        run(job(benchmark, "other", calibration=Saved(path, {3: made})), FakeSource("other"))
    with pytest.raises(InputError, match="is for 4 candidates, and 3 are evaluated"):
        run(job(benchmark, "n", calibration=Saved(path, {4: made})))
    with pytest.raises(InputError, match="made with preset paper, not released"):
        run(job(benchmark, "p", calibration=Saved(path, {3: made}), preset="released"))
    leaking = Calibration.fit(
        [e for e in store.read() if e.instance_id == "instances-1" and e.order in cyclic]
    )
    with pytest.raises(InputError, match="'instances-1' is both calibrated on and evaluated"):
        run(job(benchmark, "l", calibration=Saved(path, {3: leaking})))


@pytest.mark.parametrize("leak", ["id", "image"])
def test_a_calibration_that_leaks_is_refused_unless_allowed_and_then_marked(
    benchmark: Path, tmp_path: Path, leak: str
) -> None:
    other = make_benchmark(tmp_path / "others", name="o-")
    samples = rows_in(other / "calibration.jsonl")
    if leak == "id":
        samples[1]["id"] = "instances-4"
    else:  # under another name, in another folder
        (other / "copy.png").write_bytes((benchmark / "instances-4-1.png").read_bytes())
        samples[1]["images"][0] = "copy.png"
    write_rows(other / "calibration.jsonl", samples)
    source = FakeSource()
    with pytest.raises(InputError, match=r"instances-4.*; calibrate from others, or say --allow"):
        run(job(benchmark, calibration=other), source)
    assert source.asked == []
    outcome = run(job(benchmark, calibration=other, allow_leak=True))
    assert rows(outcome)["lad"]["calibration"]["leaks"] is True
    assert "too good" in outcome.notes[0]


def test_a_benchmark_that_calibrates_on_itself_is_allowed_when_asked_for(benchmark: Path) -> None:
    first = rows_in(benchmark / "instances.jsonl")[:5]
    write_rows(benchmark / "calibration.jsonl", first)
    with pytest.raises(InputError, match="stands already in"):
        run(job(benchmark))
    source = FakeSource()
    outcome = run(job(benchmark, allow_leak=True, orders="cyclic"), source)
    assert len(source.asked) == 30  # the samples' cyclic orders are evaluated, too
    assert rows(outcome)["lad"]["calibration"]["leaks"] is True


# Refusals


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"methods": ("lda",)}, "did you mean lad"),
        ({"given": {"lad": {"q": 1}}}, "lad has no parameter 'q'"),
        ({"methods": ("lad",), "given": {"pride": {}}}, "not among the methods"),
        ({"given": {"permutation_average": {"orders": "all"}}}, "lookright evidence --orders all"),
        ({"orders": "0"}, "say how many"),
        ({"orders": "many"}, "unknown orders"),
        ({"samples": 11}, "has 10 samples to calibrate from, and 11 are asked for"),
        ({"preset": "mine"}, "unknown preset"),
        ({"changes": {"flavour": 1}}, "no field 'flavour'"),
    ],
)
def test_what_cannot_be_done_is_said_before_a_model_is_loaded(
    benchmark: Path, changes: dict[str, Any], said: str
) -> None:
    def load() -> FakeSource:
        raise AssertionError("loaded")

    with pytest.raises(InputError, match=said):
        evaluate(job(benchmark, **changes), load, no_progress, dict)
    assert not (benchmark.parent / "run").exists()


def test_instances_that_cannot_be_scored_together_are_refused(benchmark: Path) -> None:
    listed = rows_in(benchmark / "instances.jsonl")
    del listed[3]["answer"]
    write_rows(benchmark / "instances.jsonl", listed)
    with pytest.raises(InputError, match="the answer of 'instances-3' is not known"):
        run(job(benchmark))
    listed[3] |= {"answer": 0, "images": listed[3]["images"][:2]}
    write_rows(benchmark / "instances.jsonl", listed)
    with pytest.raises(InputError, match="'instances-0' has 3 images and 'instances-3' 2"):
        run(job(benchmark))


def test_without_samples_a_calibrated_method_is_refused_and_others_are_not(tmp_path: Path) -> None:
    bare = make_benchmark(tmp_path / "bare", samples=0)
    with pytest.raises(InputError, match=r"no calibration.jsonl, which is needed for pride, lad"):
        run(job(bare, methods=("vanilla", "pride", "lad")))
    assert list(rows(run(job(bare, methods=("vanilla",))))) == ["vanilla"]


def test_samples_of_another_number_of_candidates_are_refused(
    benchmark: Path, tmp_path: Path
) -> None:
    four = make_benchmark(tmp_path / "four", n=4, name="f-")
    with pytest.raises(InputError, match="have 4 images, and 3 are evaluated"):
        run(job(benchmark, calibration=four))


def test_a_run_folder_of_other_settings_is_refused_before_anything_is_asked(
    benchmark: Path,
) -> None:
    run(job(benchmark))
    before = written(job(benchmark))
    source = FakeSource()
    with pytest.raises(InputError, match=r"trailing_space: False against True\); choose another"):
        run(job(benchmark, changes={"trailing_space": True}), source)
    with pytest.raises(InputError, match="model: 'fake' against 'other'"):
        run(job(benchmark), FakeSource("other"))
    assert source.asked == []
    assert written(job(benchmark)) == before


def test_a_run_folder_of_another_benchmark_is_refused(benchmark: Path, tmp_path: Path) -> None:
    run(job(benchmark))
    other = make_benchmark(tmp_path / "others")
    with pytest.raises(InputError, match="holds evidence of another benchmark"):
        run(job(other))
    with pytest.raises(InputError, match="holds the run of one benchmark"):
        run(job(benchmark, benchmarks=(benchmark, other)))


def test_two_benchmarks_of_one_name_are_refused(benchmark: Path, tmp_path: Path) -> None:
    twin = make_benchmark(tmp_path / "elsewhere" / "photos")
    with pytest.raises(InputError, match="two benchmarks are called 'photos'"):
        run(job(benchmark, benchmarks=(benchmark, twin)))


def test_the_second_of_two_runs_on_one_folder_is_told_who_holds_it(benchmark: Path) -> None:
    told: list[str] = []

    class Meddling(FakeSource):
        def settings(self, settings: Any = None) -> Any:
            if not told:
                with pytest.raises(InputError) as refusal:
                    run(job(benchmark))
                told.append(str(refusal.value))
            return super().settings(settings)

    run(job(benchmark), Meddling())
    assert f"is worked on by process {os.getpid()} on {socket.gethostname()}" in told[0]
    assert asked(job(benchmark)) == []


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_a_killed_process_lets_go_of_its_folder(benchmark: Path) -> None:
    held = benchmark.parent / "run"
    held.mkdir()
    script = (
        "import os, signal, sys; from pathlib import Path; from lookright.files import sole\n"
        "with sole(Path(sys.argv[1]), 'is worked on'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(held / LOCK)], check=False)
    assert b"process" in (held / LOCK).read_bytes()
    assert len(asked(job(benchmark))) > 0


def test_a_folder_that_cannot_be_made_is_a_sentence(benchmark: Path) -> None:
    (benchmark.parent / "run").write_text("")
    with pytest.raises(InputError, match="cannot be made a folder"):
        run(job(benchmark))
