"""The commands `calibrate`, `select` and `rank`, through the command line's own entry point."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lookright import InputError, Model, Selector
from lookright.asking import image_files
from lookright.calibration import Calibration
from lookright.cli import main
from zoo import build

pytestmark = pytest.mark.filterwarnings("ignore:calibration")  # random weights know nothing

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def tiny() -> Model:
    return Model.wrap(*build("llava"), name="tiny", self_check=False)


@pytest.fixture
def loaded(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models that were loaded; all of them are the tiny one."""
    names: list[str] = []

    def load(name: str, **options: Any) -> Model:
        names.append(name)
        return tiny

    monkeypatch.setattr(Model, "load", load)
    return names


@pytest.fixture
def run(
    loaded: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a command; its exit code, standard output and standard error."""

    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lookright", *map(str, arguments)])
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return command


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four images, and no other file with an image's ending."""
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for name in ("b.png", "a.png", "d.JPG", "c.png"):
        pixels = generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / ".hidden.png").touch()
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven labelled samples of six images each, and one instance to evaluate."""
    folder = tmp_path_factory.mktemp("benchmark")
    generator = np.random.default_rng(1)
    rows = []
    for index in range(8):
        names = [f"{index}-{k}.png" for k in range(6)]
        for name in names:
            pixels = generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name)
        row = {"id": f"q{index}", "caption": "a cat", "images": names, "answer": index % 6}
        rows.append(json.dumps(row))
    (folder / "calibration.jsonl").write_text("\n".join(rows[:7]))
    (folder / "instances.jsonl").write_text(rows[7])
    return folder


@pytest.fixture
def calibration(run: Run, benchmark: Path, tmp_path: Path) -> Path:
    file = tmp_path / "four.safetensors"
    code, _, err = run("calibrate", "--model", "m", "--benchmark", benchmark, "-n", 4, "-o", file)
    assert code == 0, err
    return file


# -- calibrate ------------------------------------------------------------------------------------


def test_calibrate_saves_a_file_and_explains_it(run: Run, benchmark: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.safetensors"
    code, out, _ = run("calibrate", "--model", "m", "--benchmark", benchmark, "-n", 4, "-o", file)
    assert code == 0
    found = Calibration.load(file)
    assert found.samples == ("q0", "q1", "q2", "q3", "q4")
    assert "Calibration for 4 candidates from 5 samples" in out
    assert f"saved in {file}" in out


def test_calibrate_takes_as_many_candidates_as_the_samples_have_images(
    run: Run, benchmark: Path, tmp_path: Path
) -> None:
    file = tmp_path / "c.safetensors"
    assert run("calibrate", "--model", "m", "--benchmark", benchmark, "-o", file)[0] == 0
    assert Calibration.load(file).n == 6


def test_calibrate_for_several_numbers_writes_one_file(
    run: Run, benchmark: Path, tmp_path: Path, tiny: Model
) -> None:
    file = tmp_path / "c.safetensors"
    code, out, _ = run(
        *("calibrate", "--model", "m", "--benchmark", benchmark, "-n", 2, "-n", 5),
        *("--samples", 3, "-o", file, "--set", "trailing_space=true", "--json"),
    )
    assert code == 0
    said = json.loads(out)
    assert said["path"] == str(file)
    selector = Selector.load(tiny, file)
    assert said["gamma"] == {str(n): c.gamma for n, c in selector.calibrations.items()}
    assert sorted(selector.calibrations) == [2, 5]
    assert selector.settings.trailing_space
    assert all(len(found.samples) == 3 for found in selector.calibrations.values())


# -- select and rank ------------------------------------------------------------------------------


def test_select_prints_all_images_and_marks_the_chosen_one(
    run: Run, images: Path, calibration: Path
) -> None:
    code, out, err = run("select", "a cat", images, "--model", "m", "--calibration", calibration)
    assert code == 0
    assert "no calibration" not in err
    rows = [line for line in out.splitlines() if line.rstrip().endswith("%")][1:]
    assert [next(name for name in "abcd" if f"{name}." in row.lower()) for row in rows] == [*"abcd"]
    assert sum(row.startswith(">") for row in rows) == 1


def test_select_gives_json_that_says_what_the_selector_says(
    run: Run, images: Path, calibration: Path, tiny: Model
) -> None:
    files = [str(images / name) for name in ("d.JPG", "c.png", "b.png", "a.png")]
    arguments = ("select", "a cat", *files, "--model", "m", "--calibration", calibration)
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    expected = Selector.load(tiny, calibration).select(files, "a cat").to_dict()
    said = json.loads(out)
    assert said.keys() == expected.keys()
    for field in ("scores", "vanilla", "attention", "confidence"):
        assert said.pop(field) == pytest.approx(expected.pop(field), abs=1e-5)
    assert said == expected
    assert said["images"] == ["d.JPG", "c.png", "b.png", "a.png"]
    assert said["method"] == "lad"


def test_without_calibration_select_averages_all_cyclic_orders_and_says_what_saves_them(
    run: Run, images: Path, tiny: Model
) -> None:
    code, out, err = run("select", "a cat", images, "--model", "some/model", "--json")
    assert code == 0
    assert json.loads(out)["method"] == "permutation_average"
    (note,) = [line for line in err.splitlines() if "no calibration" in line]
    assert "averaging 4 passes" in note
    assert "lookright calibrate --model some/model --benchmark FOLDER -n 4 -o FILE" in note
    files = [str(images / name) for name in ("a.png", "b.png", "c.png", "d.JPG")]
    expected = Selector.uncalibrated(tiny).select(files, "a cat")
    assert json.loads(out)["scores"] == pytest.approx(expected.scores.tolist())


def test_a_method_chosen_needs_no_note(run: Run, images: Path) -> None:
    _, out, err = run("select", "a cat", images, "--model", "m", "--method", "vanilla", "--json")
    assert json.loads(out)["method"] == "vanilla"
    assert "no calibration" not in err


def test_parameters_and_settings_are_set_by_the_same_option(
    run: Run, images: Path, calibration: Path, tiny: Model
) -> None:
    files = [str(images / name) for name in ("a.png", "b.png", "c.png", "d.JPG")]
    arguments = ("select", "a cat", images, "--model", "m", "--calibration", calibration)
    _, out, _ = run(*arguments, "--set", "lad.tau=1.0", "--set", "trailing_space=false", "--json")
    softer = Selector.load(tiny, calibration).with_method("lad", tau=1.0).select(files, "a cat")
    assert json.loads(out)["attention"] == pytest.approx(softer.attention.tolist())
    _, out, _ = run(*arguments, "--method", "pride", "--json")
    assert json.loads(out)["method"] == "pride"


def test_rank_puts_the_best_first_and_top_cuts_the_rest(
    run: Run, images: Path, calibration: Path
) -> None:
    arguments = ("rank", "a cat", images, "--model", "m", "--calibration", calibration)
    _, out, _ = run(*arguments, "--json")
    ranking = json.loads(out)["ranking"]
    scores = [row["score"] for row in ranking]
    assert scores == sorted(scores, reverse=True)
    assert [row["rank"] for row in ranking] == [1, 2, 3, 4]
    _, out, _ = run("select", *arguments[1:], "--json")
    assert json.loads(out)["index"] == ranking[0]["index"]
    code, out, _ = run(*arguments, "--top", 2)
    assert code == 0
    assert "the best 2 of 4" in out


def test_a_figure_is_saved_beside_the_table(
    run: Run, images: Path, calibration: Path, tmp_path: Path
) -> None:
    file = tmp_path / "choice.png"
    arguments = ("a cat", images, "--model", "m", "--calibration", calibration, "--plot", file)
    assert run("select", *arguments)[0] == 0
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_folder_gives_its_images_in_the_order_of_their_names(images: Path) -> None:
    names = [Path(file).name for file in image_files([str(images)])]
    assert names == ["a.png", "b.png", "c.png", "d.JPG"]


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["select", "a cat", "@images"], "name a model: --model"),
        (["rank", "a cat", "@images", "--model", ""], "name a model: --model"),
        (["select", "a cat", "nowhere.png", "@a", "--model", "m"], "nowhere.png: there is no such"),
        (["select", "a cat", "@a", "@images", "--model", "m"], "is a folder; name a file"),
        (["select", "a cat", "@a", "--model", "m"], "at least two images"),
        (["select", "a cat", "@empty", "--model", "m"], "holds too few images (0"),
        (["select", "a cat", "@notes", "@a", "--model", "m"], "notes.txt: is no image"),
        (["select", " ", "@images", "--model", "m"], "'caption': is empty"),
        (["select", "x", "@images", "--model", "m", "--method", "lad"], "lad needs a calibration"),
        (["select", "x", "@images", "--model", "m", "--method", "prid"], "did you mean pride"),
        (["select", "x", "@images", "--model", "m", "--preset", "papers"], "unknown preset"),
        (["select", "x", "@images", "--model", "m", "--set", "k"], "give field=value"),
        (["select", "x", "@images", "--model", "m", "--set", "foo=1"], "no field 'foo'"),
        (["select", "x", "@images", "--model", "m", "--set", "lad.k=4"], "parameters of lad"),
        (["select", "x", "@images", "--model", "m", "--set", "system=\udcff"], "half a character"),
        (["select", "x", "@images", "--model", "m", "--set", "ladd.k=4"], "did you mean lad"),
        (["select", "x", "@images", "--model", "m", "--calibration", "none"], "no such file"),
        (["select", "x", "@images", "--model", "m", "--calibration", "@notes"], "no whole .safe"),
        (["select", "x", "@images", "--model", "m", "--plot", "a.gif"], "must end in .png"),
        (["select", "x", "@images", "--model", "m", "--plot", "no/a.png"], "there is no folder no"),
        (["rank", "x", "@images", "--model", "m", "--top", "0"], "greater than or equal to 1"),
        (["calibrate", "--benchmark", "none", "-o", "x.safetensors"], "none: there is no such"),
        (["calibrate", "--benchmark", "@images", "-o", "x.safetensors"], "holds no instances"),
        (["calibrate", "--benchmark", "@benchmark", "-o", "x.safetensors"], "name a model"),
        (["calibrate", "--benchmark", "@benchmark", "-o", "x.bin"], "must end in .safetensors"),
        (["calibrate", "--benchmark", "@benchmark", "-o", "no/x.safetensors"], "no folder no"),
        (["calibrate", "--benchmark", "@benchmark", "-o", "d.safetensors"], "is a folder; name"),
        (["calibrate", "--benchmark", "@benchmark", "-n", "7", "-o", "x.safetensors"], "too few"),
        (["calibrate", "--benchmark", "@benchmark", "-n", "1", "-o", "x.safetensors"], "than or"),
        (
            ["calibrate", "--benchmark", "@benchmark", "--samples", "8", "-o", "x.safetensors"],
            "has 7 calibration samples, not 8",
        ),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2_before_a_model_is_loaded(
    run: Run,
    loaded: list[str],
    images: Path,
    benchmark: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "d.safetensors").mkdir()
    named = {
        "@images": images,
        "@a": images / "a.png",
        "@notes": images / "notes.txt",
        "@benchmark": benchmark,
        "@empty": tmp_path / "empty",
    }
    code, out, err = run(*[named.get(argument, argument) for argument in arguments])
    assert code == 2
    assert reason in err
    assert "Traceback" not in err
    assert out == ""
    assert loaded == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--preset", "released"], "was made with preset paper, not released"),
        (["--set", "prompt=instruction"], "prompt: 'vanilla' against 'instruction'"),
        (["--set", "lad.k=99"], "k=99: the evidence has 2 layers"),
        (["--set", "lad.tau=-1"], "lad.tau=-1"),
        (["--method", "pried"], "did you mean pride"),
    ],
)
def test_what_does_not_fit_a_calibration_is_refused(
    run: Run, images: Path, calibration: Path, arguments: list[str], reason: str
) -> None:
    code, _, err = run(
        "select", "x", images, "--model", "m", "--calibration", calibration, *arguments
    )
    assert code == 2
    assert reason in err


def test_another_number_of_images_than_calibrated_is_refused_with_what_to_do(
    run: Run, images: Path, calibration: Path, loaded: list[str]
) -> None:
    loaded.clear()
    files = [images / name for name in ("a.png", "b.png", "c.png")]
    code, _, err = run("select", "x", *files, "--model", "m", "--calibration", calibration)
    assert code == 2
    assert "is for 4 images, and 3 are given; calibrate for 3 too, with -n 3" in err
    assert loaded == []


def test_samples_of_different_sizes_ask_for_a_number(
    run: Run, benchmark: Path, tmp_path: Path
) -> None:
    lines = (benchmark / "calibration.jsonl").read_text().splitlines()
    row = json.loads(lines[0]) | {"images": ["0-0.png", "0-1.png"], "answer": 0}
    file = benchmark / "mixed.jsonl"
    file.write_text("\n".join([json.dumps(row), *lines[1:3]]))
    output = tmp_path / "c.safetensors"
    code, _, err = run("calibrate", "--model", "m", "--benchmark", file, "-o", output)
    assert code == 2
    assert "its samples have 2 or 6 images; say for how many candidates" in err
    assert run("calibrate", "--model", "m", "--benchmark", file, "-n", 2, "-o", output)[0] == 0


def test_a_model_that_answers_nan_is_refused(
    run: Run, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf, processor = build("llava")
    hf.get_output_embeddings().weight.data.fill_(float("nan"))
    sick = Model.wrap(hf, processor, self_check=False)
    monkeypatch.setattr(Model, "load", lambda *_, **__: sick)
    code, _, err = run("select", "a cat", images, "--model", "m")
    assert code == 2
    assert "not finite (NaN)" in err


def test_a_folder_that_cannot_be_read_is_named(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.listdir", refuse)
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
        image_files([str(images)])


# -- malformed input ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzz_select() -> Iterator[ModuleType]:
    path = Path(__file__).parents[1] / "benchmarks" / "fuzz_select.py"
    spec = importlib.util.spec_from_file_location("fuzz_select", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_select"] = module
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        spec.loader.exec_module(module)
        yield module
    del sys.modules["fuzz_select"]


def test_malformed_input_of_every_kind_ends_in_a_sentence(fuzz_select: ModuleType) -> None:
    outcomes = list(fuzz_select.fuzz(inputs=110, seed=7))
    assert [outcome for outcome in outcomes if outcome.failure] == []
    refused = Counter(outcome.kind for outcome in outcomes if outcome.code == 2)
    assert set(refused) == {make.__name__ for make in fuzz_select.KINDS}


def test_the_fuzz_sees_a_traceback_and_a_silent_failure(
    fuzz_select: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise KeyError("lost")

    def hush() -> None:
        sys.exit(2)

    monkeypatch.setattr(fuzz_select, "lookright", fail)
    assert "KeyError: 'lost'" in fuzz_select.run(["select"], "x").failure
    monkeypatch.setattr(fuzz_select, "lookright", hush)
    assert fuzz_select.run(["select"], "x").failure == "exit code 2 without a word"
