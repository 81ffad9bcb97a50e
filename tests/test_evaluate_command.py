"""`lookright evaluate` as a person calls it, on a tiny real model with random weights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from asking import noise, question
from lookright import Instance, Model
from lookright.benchmarks.folder import write_benchmark
from lookright.cli import main
from lookright.collect import windows_of
from lookright.evidence import Evidence
from lookright.forecast import in_words
from lookright.instance import cyclic_orders
from lookright.store import Store
from zoo import build, save

pytestmark = pytest.mark.filterwarnings("ignore:calibration", "ignore:rstd")  # random weights

Run = Callable[..., tuple[int, str, str]]
N, COUNT, SAMPLES = 3, 4, 4


@pytest.fixture(scope="module")
def tiny() -> Model:
    return Model.wrap(*build("llava"), name="tiny", self_check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same kind of model, saved."""
    path = tmp_path_factory.mktemp("tiny")
    save("llava", path)
    return path


@pytest.fixture
def loaded(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """With what options a model was loaded; it always is the tiny one."""
    options: list[dict[str, Any]] = []

    def load(name: str, **given: Any) -> Model:
        options.append({"name": name, **given})
        return tiny

    monkeypatch.setattr(Model, "load", load)
    return options


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `lookright evaluate`; its exit code, standard output and standard error."""
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lookright", "evaluate", *map(str, arguments)])
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return command


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pictures = [noise(k) for k in range(N * (COUNT + SAMPLES))]
    four = [
        Instance(f"i{i}", tuple(pictures[N * i : N * i + N]), answer=i % N, caption=f"number {i}")
        for i in range(COUNT + SAMPLES)
    ]
    path = tmp_path_factory.mktemp("benchmarks") / "noise"
    write_benchmark(path, four[:COUNT], four[COUNT:], meta={"setting": "random"})
    return path


@pytest.fixture
def call(benchmark: Path, tmp_path: Path) -> list[object]:
    return [
        *("--model", "tiny", "--benchmark", benchmark, "--run", tmp_path / "run"),
        *("--orders", 2, "--samples", 2),
    ]


def test_all_methods_are_in_the_table_the_results_and_the_record(
    run: Run, loaded: list[dict[str, Any]], call: list[object], tmp_path: Path
) -> None:
    code, out, err = run(*call, "--device", "cpu")
    assert code == 0
    assert "Evidence" in err
    assert "notes" not in err
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert [row["method"] for row in rows] == [
        *("vanilla", "pride", "raw_attention", "purified_attention", "lad", "permutation_average")
    ]
    for row in rows:
        (line,) = [line for line in out.splitlines() if line.startswith(row["method"] + " ")]
        assert f"{row['accuracy']:.2f}" in line
        assert (row["model"], row["benchmark"], row["setting"]) == ("tiny", "noise", "random")
    assert "noise, tiny, N = 3, 4 instances, 2 orders, preset paper" in out
    assert "calibrated on 2 samples, mean of 2 draws" in out
    assert "holds 4 samples to calibrate from: 2 draws of 2, not 5" in err
    asked = len(Store(tmp_path / "run").read())
    assert f"{asked} passes: {asked} computed" in out
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["invocations"][0]["computed"] == asked
    assert record["invocations"][0]["versions"]["torch"]
    assert loaded == [
        {
            "name": "tiny",
            "device": "cpu",
            "dtype": None,
            "revision": None,
            "trust_remote_code": False,
            "batch_tokens": None,
        }
    ]


def test_json_is_what_is_in_the_file_and_asking_again_asks_nothing(
    run: Run, loaded: list[dict[str, Any]], call: list[object], tmp_path: Path
) -> None:
    _, first, _ = run(*call, "--json")
    saved = (tmp_path / "run" / "results.json").read_bytes()
    assert json.loads(first) == json.loads(saved)
    code, out, _ = run(*call)
    assert code == 0
    assert " 0 computed in " in out
    assert (tmp_path / "run" / "results.json").read_bytes() == saved


def test_parameters_settings_and_methods_are_told_apart(
    run: Run, loaded: list[dict[str, Any]], call: list[object], tmp_path: Path
) -> None:
    code, out, _ = run(
        *(*call, "--methods", "vanilla, lad", "--json"),
        *("--set", "lad.k=1", "--set", "identifiers=letters", "--draws", 1),
    )
    assert code == 0
    vanilla, lad = json.loads(out)["rows"]
    assert (vanilla["method"], lad["method"]) == ("vanilla", "lad")
    assert lad["parameters"]["k"] == 1
    assert vanilla["identifiers"] == "letters"
    assert lad["calibration"]["draws"] == 1


def test_a_saved_calibration_is_told_by_its_suffix(
    run: Run, loaded: list[dict[str, Any]], tiny: Model, call: list[object], tmp_path: Path
) -> None:
    from lookright import Selector

    samples = [question(k, N, answer=k % N) for k in range(2)]
    path = tmp_path / "made.safetensors"
    Selector.calibrate(tiny, samples, N).save(path)
    code, out, err = run(*call, "--methods", "lad", "--calibration", path, "--json")
    assert code == 0, err
    (row,) = json.loads(out)["rows"]
    assert row["calibration"]["benchmark"] == "made.safetensors"
    assert row["instances"] == COUNT


def test_a_dry_run_tells_the_cost_and_leaves_nothing(
    run: Run, folder: Path, call: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str, **options: Any) -> Model:
        raise AssertionError("weights were read")

    monkeypatch.setattr(Model, "load", load)
    code, out, err = run(*call, "--model", folder, "--device", "cpu", "--dry-run", "--json")
    assert code == 0, err
    told = json.loads(out)
    (share,) = told["shares"]
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    monkeypatch.setenv("COLUMNS", "80")
    prompts: list[int] = []
    whole = Model.evidence_iter

    def counted(self: Model, *args: Any, **kwargs: Any) -> Iterator[list[Evidence]]:
        for batch in whole(self, *args, **kwargs):
            prompts.extend(int(piece.image_tokens.sum()) for piece in batch)
            yield batch

    monkeypatch.setattr(Model, "evidence_iter", counted)
    run(*call, "--model", folder, "--device", "cpu")
    assert (share["passes"], share["present"]) == (len(prompts), 0)
    assert sum(prompts) < share["tokens"] < 3 * sum(prompts)
    assert told["seconds"] > 0
    assert told["memory"] > 0
    _, out, _ = run(*call, "--model", folder, "--device", "cpu", "--dry-run")
    assert f"{len(prompts)} passes, {len(prompts)} of them there already; 0 tokens" in out
    assert "memory on cpu in float32: about" in out
    assert "time: about 1 s" in out


def test_a_time_is_said_in_the_unit_that_suits_it() -> None:
    assert [in_words(s) for s in (0.1, 100, 500, 7300, 400000)] == [
        *("1 s", "100 s", "8 minutes", "2 hours", "5 days")
    ]


def test_baselines_ask_questions_of_their_own_and_stand_in_the_order_named(
    run: Run, loaded: list[dict[str, Any]], call: list[object], tmp_path: Path
) -> None:
    asked = [*call, "--methods", "pointwise,vanilla,instruction,vanilla_generate,sofa"]
    asked += ["--set", "sofa.sigma=1", "--set", "vanilla_generate.max_new_tokens=3"]
    code, out, err = run(*asked)
    assert code == 0, err
    saved = (tmp_path / "run" / "results.json").read_bytes()
    rows = {row["method"]: row for row in json.loads(saved)["rows"]}
    assert list(rows) == ["pointwise", "vanilla", "instruction", "vanilla_generate", "sofa"]
    assert {name: (row["orders"], row["passes"]) for name, row in rows.items()} == {
        "pointwise": (1, N),
        "vanilla": (2, 1),
        "instruction": (2, 1),
        "vanilla_generate": (2, 1),
        "sofa": (2, 1),
    }
    assert rows["pointwise"]["recall"] == [None] * N
    assert [row["parse_rate"] is None for row in rows.values()] == [True, True, True, False, True]
    assert f"{rows['vanilla_generate']['parse_rate']:.1f}% of its texts" in out
    assert "sofa sigma=1.0 " in out
    texts = (tmp_path / "run" / "vanilla_generate").glob("*.jsonl")
    assert sum(len(path.read_text().splitlines()) - 1 for path in texts) == 2 * COUNT
    code, out, _ = run(*asked)
    assert " 0 computed in " in out
    assert (tmp_path / "run" / "results.json").read_bytes() == saved


def test_a_baseline_alone_asks_nothing_for_the_methods(
    run: Run, loaded: list[dict[str, Any]], call: list[object], tmp_path: Path
) -> None:
    code, _, err = run(*call, "--methods", "instruction")
    assert code == 0, err
    assert Store(tmp_path / "run").read() == []
    assert len(Store(tmp_path / "run" / "instruction").read()) == 2 * COUNT


def test_interrupted_baselines_write_no_answer_twice_and_end_in_the_same_bytes(
    run: Run,
    loaded: list[dict[str, Any]],
    call: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = [*call, "--methods", "self_consistency"]
    for change in ("samples=3", "max_new_tokens=3"):
        asked += ["--set", f"self_consistency.{change}"]
    monkeypatch.setattr("lookright.trials.windows_of", lambda q: [(one,) for one in q])
    whole, written = Model.generate_iter, []

    def interrupted(self: Model, *args: Any, **kwargs: Any) -> Iterator[Any]:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(kwargs["seeds"])
        yield from whole(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Model, "generate_iter", interrupted)
        assert run(*asked)[0] == 130
        written.append(None)
        assert run(*asked)[0] == 0
    del written[3]
    assert len(written) == len({str(seeds) for seeds in written}) == 2 * COUNT
    other = [argument if argument != tmp_path / "run" else tmp_path / "w" for argument in asked]
    assert run(*other)[0] == 0
    for name in ("results.json", "decisions.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "w" / name).read_bytes()


def test_ctrl_c_keeps_what_was_finished(
    run: Run,
    loaded: list[dict[str, Any]],
    call: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Model.evidence_iter

    def interrupted(self: Model, *args: Any, **kwargs: Any) -> Iterator[list[Evidence]]:
        ends = 0
        for batch in whole(self, *args, **kwargs):
            yield batch
            ends += not batch
            if ends == 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Model, "evidence_iter", interrupted)
        code, _, err = run(*call)
    assert code == 130
    assert "what was saved by then is kept" in err
    assert len(Store(tmp_path / "run").read()) == 2 * 2 * N
    assert not (tmp_path / "run" / "results.json").exists()
    assert run(*call)[0] == 0
    assert run(*(argument if argument != tmp_path / "run" else tmp_path / "w" for argument in call))
    for name in ("results.json", "decisions.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "w" / name).read_bytes()


def test_a_window_gives_the_same_bits_whatever_was_asked_before_it(tiny: Model) -> None:
    instances = [question(k, N, answer=0) for k in range(4)]
    orders = cyclic_orders(N)
    asked = [instance for instance in instances for _ in orders]
    shown = [order for _ in instances for order in orders]
    half = len(asked) // 2

    def windows(part: slice) -> list[list[Evidence]]:
        sizes = [half] * (len(asked[part]) // half)
        found: list[list[Evidence]] = [[]]
        for batch in tiny.evidence_iter(asked[part], shown[part], windows=sizes):
            found[-1] += batch
            if not batch:
                found.append([])
        assert found.pop() == []
        return found

    both = windows(slice(None))
    (second,) = windows(slice(half, None))
    assert [len(window) for window in both] == [half, half]
    for one, two in zip(both[1], second, strict=True):
        assert one.key == two.key
        assert one.log_probs.tobytes() == two.log_probs.tobytes()
        assert one.attention.tobytes() == two.attention.tobytes()


def test_images_go_through_the_vision_tower_once_in_a_window(tiny: Model) -> None:
    instances = [question(k, N, answer=0) for k in range(2)]
    asked = [instance for instance in instances for _ in range(N)]
    before = tiny.vision.encoded
    list(tiny.evidence_iter(asked, cyclic_orders(N) * 2, windows=[N, N]))
    distinct = {image.tobytes() for i in instances for image in i.images}  # type: ignore[union-attr]
    assert tiny.vision.encoded - before == len(distinct)


def test_windows_of_nothing_are_none() -> None:
    assert windows_of([]) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--benchmark", "nowhere"], "nowhere"),
        (["--methods", "vanila"], "did you mean vanilla?"),
        (["--methods", "instructions"], "did you mean instruction?"),
        (["--methods", "vanilla", "--set", "sofa.sigma=1"], "not among the methods"),
        (["--methods", "sofa", "--set", "sofa.sigma=2"], "above 0, at most 1"),
        (["--methods", ""], "unknown method ''"),
        (["--set", "trailing_space=maybe"], "'maybe' is neither true nor false"),
        (["--set", "lad.k=0"], "must be a number of layers"),
        (["--orders", "random"], "say how many"),
        (["--calibration", "nowhere"], "nowhere"),
        (["--calibration", "nowhere.safetensors"], "there is no such file"),
        (["--limit", "0"], "--limit"),
        (["--preset", "mine"], "use paper or released"),
        (["--dry-run", "--dtype", "float99"], "unknown number format 'float99'"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_exit_code_2(
    run: Run,
    loaded: list[dict[str, Any]],
    folder: Path,
    call: list[object],
    tmp_path: Path,
    change: list[str],
    said: str,
) -> None:
    code, out, err = run(*call, "--model", folder, *change)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
    assert loaded == []
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_killed_evaluations_end_in_the_same_bytes_and_repeat_only_what_was_in_flight(
    folder: Path,
) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "kill_resume.py"
    command = [sys.executable, str(script), "--model", str(folder)]
    command += ["--kills", "3", "--instances", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "results.json: the same, byte for byte" in done.stdout
