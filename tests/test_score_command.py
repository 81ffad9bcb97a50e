"""`lookright score`: JSON of the one shape, a table to read, and refusals in a sentence."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lookright.cli import main
from lookright.instance import cyclic_orders
from lookright.recordings import load_evidence
from lookright.report.tables import bar, heading
from lookright.scoring import rows_of
from made_evidence import drawn_evidence
from malformed import cases

OTHERS = [(1, 0, 2, 3), (3, 1, 0, 2), (2, 1, 3, 0)]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    made = drawn_evidence(0, instances=60, orders=[*cyclic_orders(4), *OTHERS])
    path = tmp_path / "photos.npz"
    np.savez(
        path,
        logp=made.log_probs.astype(np.float16),
        attn=made.attention.astype(np.float16),
        perms=made.orders[:, 0],
        y=made.targets,
    )
    return path


class Command:
    """Calls `lookright score` through its own entry point."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: Any) -> tuple[int, str, str]:
        """The exit code, what was printed, and what was said beside it."""
        self.monkeypatch.setattr(sys, "argv", ["lookright", "score", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = self.capsys.readouterr()
        return int(end.value.code or 0), out, err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("COLUMNS", "80")
    return Command(monkeypatch, capsys)


def test_json_is_the_rows_and_nothing_else(command: Command, recording: Path) -> None:
    code, out, err = command(recording, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"rows": json.loads(json.dumps(rows_of(load_evidence(recording))))}


def test_the_same_call_prints_the_same_bytes(command: Command, recording: Path) -> None:
    arguments = (recording, "--calibration-instances", "0:20", "--ablations", "--json")
    assert command(*arguments) == command(*arguments)


def test_every_option_reaches_the_rows(command: Command, recording: Path) -> None:
    _, out, _ = command(
        *(recording, "--calibration-instances", "10:20", "--instances", "20:50"),
        *("--methods", "vanilla,lad", "--set", "lad.k=4", "--set", "lad.layers=1:6"),
        *("--samples", 4, "--draws", 3, "--json"),
    )
    vanilla, lad = json.loads(out)["rows"]
    assert (vanilla["method"], vanilla["instances"]) == ("vanilla", 30)
    assert lad["method"] == "lad"
    assert lad["parameters"]["k"] == 4
    assert lad["parameters"]["layers"] == "1:6"
    assert (lad["calibration"]["samples"], lad["calibration"]["draws"]) == (4, 3)
    _, other, _ = command(
        *(recording, "--calibration-instances", "10:20", "--instances", "20:50"),
        *("--methods", "vanilla,lad", "--set", "lad.k=4", "--set", "lad.layers=1:6"),
        *("--samples", 4, "--draws", 3, "--seed", 9, "--json"),
    )
    assert json.loads(other)["rows"][1]["gamma"] != lad["gamma"]


def test_the_released_preset_says_that_the_model_lacks_its_layers(
    command: Command, recording: Path
) -> None:
    code, out, err = command(recording, "--preset", "released", "--json")
    assert code == 0
    assert {row["preset"] for row in json.loads(out)["rows"]} == {"released"}
    notes = err.splitlines()
    assert all(note.startswith("lookright: note: ") for note in notes)
    assert "no layer (of layers=21:36) sees every image" in err


def test_the_table_fits_the_terminal_and_shows_every_method(
    command: Command, recording: Path
) -> None:
    code, out, _ = command(recording)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    rows = {row["method"]: row for row in rows_of(load_evidence(recording))}
    for method, row in rows.items():
        (line,) = [line for line in out.splitlines() if line.startswith(method)]
        assert f"{row['accuracy']:.2f}" in line
        if row["rstd"] is not None:
            assert f"± {row['accuracy_std']:.2f}" in line
            assert f"{row['rstd']:.2f}" in line
    assert "photos, N = 4, 55 instances, 3 orders, preset paper" in out
    assert f"calibrated on 5 samples; gamma {rows['lad']['gamma']:,.1f}" in out
    assert "chance is 25.0" in out
    assert "ddof = 1" in out


def test_the_table_tells_ablations_apart(command: Command, recording: Path) -> None:
    _, out, _ = command(recording, "--ablations", "--calibration-instances", "0:10")
    for label in ("lad k=all", "lad prior=false", "lad tau=10.0", "lad samples=1"):
        assert f"\n{label} " in out
    assert "mean of 5 draws" in out


def test_the_table_does_without_a_calibration(command: Command, recording: Path) -> None:
    code, out, _ = command(recording, "--methods", "vanilla")
    assert code == 0
    assert "calibrated" not in out


def test_a_bar_is_as_long_as_its_share() -> None:
    assert [bar(percent).rstrip() for percent in (0, 50, 100)] == ["", "████", "████████"]
    assert bar(100 / 64) == "▏       "
    assert bar(56.25) == "████▌   "
    assert {len(bar(percent / 3)) for percent in range(301)} == {8}


def test_a_gamma_beyond_all_numbers_is_left_out_of_the_heading(recording: Path) -> None:
    rows = rows_of(load_evidence(recording), methods=["lad"])
    rows[0]["gamma"] = None
    assert heading(rows).endswith("calibrated on 5 samples")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--methods", "lda"], "unknown method 'lda'; did you mean lad?"),
        (["--set", "lad.tau=0"], "lad.tau=0: must be above 0 and finite"),
        (["--set", "lad.tau=-1"], "lad.tau=-1: must be above 0 and finite"),
        (["--set", "lad.k=7"], "k=7: the evidence has 6 layers; use fewer or all"),
        (["--set", "lad.q=7"], "method lad has no parameter 'q'"),
        (["--set", "lad.reduce=mean"], "needs the number of visual tokens"),
        (["--preset", "mine"], "unknown preset 'mine': use paper or released"),
        (["--instances", "0:9"], "instance '0' is to be calibrated on and evaluated"),
        (["--instances", "0:99"], "names none, or more than there are (0 to 59;"),
        (["--orders", "random:5"], "found by value"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_exit_code_2(
    command: Command, recording: Path, arguments: list[str], sentence: str
) -> None:
    code, out, err = command(recording, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("lookright: ")
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_evidence_that_is_not_there_is_a_sentence(command: Command, tmp_path: Path) -> None:
    code, _, err = command(tmp_path / "absent.npz")
    assert code == 2
    assert "there is no such file or folder" in err


def test_malformed_input_never_ends_in_a_traceback(command: Command, tmp_path: Path) -> None:
    refused = 0
    for case in islice(cases(tmp_path, seed=3), 260):
        code, out, err = command(*case.arguments)
        assert code in (0, 2), case
        assert "Traceback" not in out + err, case
        refused += code == 2
    assert refused > 240
