"""`lookright evidence` as a person calls it, on a tiny model of a real family."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lookright import Instance, Model, cli
from lookright.benchmarks.folder import read_benchmark, write_benchmark
from lookright.evidence import Evidence
from lookright.instance import orders_for
from lookright.store import Store
from zoo import save


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `lookright evidence` with these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["lookright", "evidence", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
    shown = capsys.readouterr()
    return int(end.value.code or 0), shown.out, shown.err


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tiny")
    save("qwen2_5_vl", folder)
    return str(folder)


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    pictures = [Image.fromarray(draw.integers(0, 256, (32, 32, 3), np.uint8)) for _ in range(9)]
    instances = [
        Instance(f"i{i}", tuple(pictures[i : i + 3]), answer=i % 3, caption=f"number {i}")
        for i in range(5)
    ]
    write_benchmark(tmp_path / "benchmark", instances)
    return tmp_path / "benchmark"


def test_the_command_saves_what_the_model_gives_and_goes_on_where_it_stopped(
    tiny: str, benchmark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["--model", tiny, "--benchmark", str(benchmark), "-o", str(tmp_path / "run"), "--json"]
    call += ["--orders", "random:2", "--seed", "3", "--device", "cpu", "--batch-tokens", "300"]
    first, out, err = run(capsys, *call, "--limit", "2")
    assert (first, json.loads(out)["computed"]) == (0, 4)
    assert "Evidence" in err
    second, out, _ = run(capsys, *call)
    assert (second, json.loads(out)["present"], json.loads(out)["computed"]) == (0, 4, 6)
    instances = read_benchmark(benchmark)[0].instances
    orders = orders_for(instances, "random:2", 3)
    wanted = Model.load(tiny, device="cpu").evidence(
        [instance for instance in instances for _ in range(2)], [o for two in orders for o in two]
    )
    found = Store(tmp_path / "run").read()
    assert [e.key for e in found] == [e.key for e in wanted]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-5)
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-5)


def test_a_bad_image_is_a_sentence_or_skipped_and_listed(
    tiny: str, benchmark: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Path(str(read_benchmark(benchmark)[0].instances[4].images[2]))
    bad.write_bytes(b"no picture")
    call = ["--model", tiny, "--benchmark", str(benchmark), "-o", str(tmp_path / "run")]
    code, _, err = run(capsys, *call)
    assert code == 2
    assert str(bad) in err
    assert "Traceback" not in err
    code, out, _ = run(capsys, *call, "--keep-going")
    assert code == 1
    assert "1 could not be used" in out
    assert str(bad) in out
    assert len(Store(tmp_path / "run").read()) == 4 * 3


def test_ctrl_c_keeps_what_was_finished(
    tiny: str,
    benchmark: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = ["--model", tiny, "--benchmark", str(benchmark), "-o", str(tmp_path / "run")]
    whole = Model.evidence_iter

    def interrupted(self: Model, *args: Any, **kwargs: Any) -> Iterator[list[Evidence]]:
        yield next(whole(self, *args, **kwargs))
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "evidence_iter", interrupted)
    code, _, err = run(capsys, *call, "--batch-tokens", "300")
    assert code == 130
    assert "what was saved by then is kept" in err
    assert 0 < len(Store(tmp_path / "run").read()) < 15
    monkeypatch.undo()
    assert run(capsys, *call)[0] == 0
    assert len(Store(tmp_path / "run").read()) == 15


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_killed_runs_end_in_the_same_evidence_and_repeat_only_what_was_in_flight(tiny: str) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "kill_evidence.py"
    command = [sys.executable, str(script), "--model", tiny, "--kills", "3", "--instances", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "240 rows equal the uninterrupted ones: 240 in every bit" in done.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--benchmark", "nowhere"], "nowhere"),
        (["--model", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--set", "trailing_space=maybe"], "'maybe' is neither true nor false"),
        (["--orders", "random"], "say how many"),
        (["--part", "calibration"], "has no calibration"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_exit_code_2(
    tiny: str,
    benchmark: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: list[str],
    said: str,
) -> None:
    call = ["--model", tiny, "--benchmark", str(benchmark), "-o", str(tmp_path / "run")]
    code, out, err = run(capsys, *call, *change)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()
