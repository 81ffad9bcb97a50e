"""`lookright doctor`: it tells what is there, and it notices a probe that is wrong."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Blip2Config

from lookright import attention, backbone, capacity, cli, doctor, machine, tiny
from lookright.errors import InputError
from lookright.families import REFUSED
from lookright.processors import load_processor
from zoo import save

GIB = 1 << 30


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `lookright` with these arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["lookright", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
    shown = capsys.readouterr()
    return int(end.value.code or 0), shown.out, shown.err


@pytest.fixture(scope="session")
def internvl(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("internvl")
    save("internvl", folder)
    return str(folder)


# -- the machine ----------------------------------------------------------------------------------


def test_a_container_s_limit_counts_as_the_machine_s_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = {"memory.max": 4 * GIB, "memory.current": GIB}
    monkeypatch.setattr(machine, "_number", lambda path: limits[path.name])
    monkeypatch.setattr(machine, "_system_memory", lambda: (64 * GIB, 60 * GIB))
    assert machine.host_memory() == (4 * GIB, 3 * GIB)
    monkeypatch.setattr(machine, "_system_memory", lambda: (64 * GIB, 2 * GIB))
    assert machine.host_memory() == (4 * GIB, 2 * GIB)


def test_without_a_container_the_system_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_number", lambda path: None)
    monkeypatch.setattr(machine, "_system_memory", lambda: (64 * GIB, 60 * GIB))
    assert machine.host_memory() == (64 * GIB, 60 * GIB)


def test_where_there_is_no_proc_the_total_is_still_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(path: Path) -> str:
        raise FileNotFoundError(path)

    total = machine._system_memory()[0]
    monkeypatch.setattr(Path, "read_text", absent)
    size, free = machine._system_memory()
    assert free is None
    assert size == pytest.approx(total, rel=0.1)


def test_every_gpu_is_listed_with_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (index * GIB, 8 * GIB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"card {index}")
    _, first, second = machine.devices()
    assert first == machine.Device("cuda:0", "card 0", 8 * GIB, 0)
    assert second == machine.Device("cuda:1", "card 1", 8 * GIB, GIB)


def test_an_apple_gpu_is_listed_with_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 8 * GIB)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 3 * GIB)
    assert machine.devices()[-1] == machine.Device("mps", "Apple GPU", 8 * GIB, 5 * GIB)


def test_a_package_too_old_and_one_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "requirements", lambda: ["torch>=99", "nosuch>=1", "numpy>=1"])
    old, missing = machine.unmet()
    assert old == f"torch>=99 is needed, and {torch.__version__} is installed"
    assert missing == "nosuch>=1 is needed, and nothing is installed"


def test_a_source_tree_that_is_not_installed_states_no_requirements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(machine, "requires", absent)
    assert machine.unmet() == []
    assert "python" in machine.versions()


def test_this_project_s_own_requirements_are_met() -> None:
    assert machine.unmet() == []
    assert {"torch", "transformers", "numpy"} <= machine.versions().keys()


def test_the_first_accelerator_is_taken_and_else_the_processor() -> None:
    cpu, first, second = (machine.Device(n, "", None, None) for n in ("cpu", "cuda:0", "cuda:1"))
    assert machine.chosen([cpu], None) is cpu
    assert machine.chosen([cpu, first, second], None) is first
    assert machine.chosen([cpu, first, second], "cuda") is first
    assert machine.chosen([cpu, first, second], "cuda:1") is second
    with pytest.raises(InputError, match="no device 'mps' here, only cpu, cuda:0"):
        machine.chosen([cpu, first], "mps")


def test_a_folder_that_is_not_there_yet_has_the_space_of_its_disk(tmp_path: Path) -> None:
    folder = machine._folder("HF_HOME", tmp_path / "not" / "yet")
    assert (folder.exists, folder.writable) == (False, True)
    assert folder.free > 0


@pytest.mark.parametrize(
    ("works", "version", "said"),
    [
        (True, "0.26", "works"),
        (False, "0.26", "installed, but does not work"),
        (False, None, "not installed"),
    ],
)
def test_torchvision_is_tried_and_not_only_looked_up(
    monkeypatch: pytest.MonkeyPatch, works: bool, version: str | None, said: str
) -> None:
    monkeypatch.setattr(machine, "torchvision_works", lambda: works)
    monkeypatch.setattr(machine, "installed", lambda package: version)
    assert machine.torchvision() == said


# -- the probe ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_probe_equals_eager_attention(family: str) -> None:
    attention_off, log_probs_off = doctor.probe_differences(family, "cpu")
    assert attention_off < doctor.BOUND
    assert log_probs_off < doctor.BOUND


def test_a_probe_that_is_wrong_is_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = attention.last_row

    def without_scaling(query: Any, key: Any, mask: Any, scaling: Any, *rest: Any) -> Any:
        return right(query, key, mask, 1.001 * query.shape[-1] ** -0.5, *rest)

    monkeypatch.setattr(attention, "last_row", without_scaling)
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert out.count("FAILED  probe") == len(tiny.FAMILIES)
    assert "checks failed" in out.splitlines()[-1]


def test_log_probabilities_that_are_not_numbers_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "probe_differences", lambda *_: (0.0, float("nan")))
    assert not any(check.passed for check in doctor._probes({"cpu"}))


def test_a_probe_that_crashes_is_a_failed_check_and_no_crash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise RuntimeError("no kernel image\nfor this device")

    monkeypatch.setattr(backbone.Backbone, "read", crash)
    code, out, err = run(capsys, "doctor", "--json")
    assert (code, err) == (1, "")
    probes = [check for check in json.loads(out)["checks"] if check["name"].startswith("probe")]
    assert {check["detail"] for check in probes} == {"RuntimeError: no kernel image"}


# -- the command ----------------------------------------------------------------------------------


def test_a_sound_machine_passes_and_json_says_all_the_page_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, "doctor", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["ok"] is True
    assert report["versions"]["torch"] == torch.__version__
    assert report["devices"][0]["name"] == "cpu"
    assert report["device"] in [device["name"] for device in report["devices"]]
    code, page, _ = run(capsys, "doctor")
    assert code == 0
    assert page.splitlines()[-1] == "all is well"
    for name in ("torchvision", "HF_HOME", *(check["name"] for check in report["checks"])):
        assert name in page


def test_the_page_says_what_is_switched_off_and_what_is_not_known() -> None:
    report = doctor.Report(
        versions={"torchvision": None},
        torchvision="not installed",
        devices=[machine.Device("cpu", "an abacus", None, None)],
        device="cpu",
        folders=[machine.Folder("HF_HOME", "/read/only", True, False, 2_000_000_000)],
        offline=True,
        checks=[doctor.Check("one", False, "it is broken"), doctor.Check("two", True, "fine")],
        model=None,
    )
    page = doctor.as_text(report)
    assert "an abacus; unknown of unknown free" in page
    assert "NOT WRITABLE, 2.0 GB free" in page
    assert "HF_HUB_OFFLINE" in page
    assert page.endswith("1 of 2 checks failed")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--device", "abacus"), "there is no device 'abacus' here"),
        (("--model", "no/such/folder"), "cannot read the model 'no/such/folder'"),
    ],
)
def test_bad_input_ends_in_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, str], sentence: str
) -> None:
    code, out, err = run(capsys, "doctor", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err


# -- a model's needs ------------------------------------------------------------------------------


def test_a_model_s_needs_are_told_without_its_weights(
    internvl: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for weights in Path(internvl).glob("*.safetensors"):
        weights.unlink()
    code, out, _ = run(capsys, "doctor", "--model", internvl, "--device", "cpu", "--json")
    told = json.loads(out)["model"]
    assert code == 0
    assert (told["family"], told["layers"], told["decoder_layers"]) == ("internvl", [0, 1], 2)
    assert told["dtype"] == "float32"
    assert told["image_tokens"] > 0
    assert told["largest_n"] == min(told["largest_n_context"], told["largest_n_memory"])
    assert "largest N" in run(capsys, "doctor", "--model", internvl)[1]


def test_the_largest_n_fits_the_context_and_one_more_image_does_not(internvl: str) -> None:
    hf = capacity.empty_model(internvl, None)
    encoder = capacity.Encoder(load_processor(internvl), hf.config.image_token_id, False)
    lengths = {n: len(capacity._prompt(encoder, n).tokens) for n in (2, 3, 9)}
    for n, tokens in lengths.items():
        hf.config.text_config.max_position_embeddings = tokens
        assert largest(hf, internvl) == n
        hf.config.text_config.max_position_embeddings = tokens - 1
        assert largest(hf, internvl) == n - 1


def test_the_largest_n_fits_the_memory_and_one_byte_less_does_not(internvl: str) -> None:
    hf = capacity.empty_model(internvl, None)
    needs = capacity.capacity(hf, internvl, None, on_cpu=True, memory=None)
    encoder = capacity.Encoder(load_processor(internvl), hf.config.image_token_id, False)
    two, three = (len(capacity._prompt(encoder, n).tokens) for n in (2, 3))
    wording = (two - 2 * (three - two)) * needs.bytes_per_token
    assert needs.weights == sum(4 * parameter.numel() for parameter in hf.parameters())
    five = needs.weights + wording + 5 * needs.bytes_per_image
    assert largest(hf, internvl, five) == 5
    assert largest(hf, internvl, five - 1) == 4
    assert largest(hf, internvl, needs.weights) == 0


def test_a_vision_tower_of_unknown_sizes_leaves_the_memory_open(internvl: str) -> None:
    hf = capacity.empty_model(internvl, None)
    vars(hf.config)["vision_config"] = None
    needs = capacity.capacity(hf, internvl, None, on_cpu=True, memory=GIB)
    assert (needs.bytes_per_image, needs.largest_n_memory) == (None, None)
    assert needs.largest_n == needs.largest_n_context


def largest(hf: Any, folder: str, memory: int | None = None) -> int:
    return capacity.capacity(hf, folder, None, on_cpu=True, memory=memory).largest_n


def test_a_model_that_does_not_fit_fails_the_check(
    internvl: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "host_memory", lambda: (GIB, 1000))
    code, out, _ = run(capsys, "doctor", "--model", internvl, "--device", "cpu")
    assert code == 1
    assert "a prompt of two images does not fit into the memory of cpu" in out


def test_a_refused_family_fails_the_check_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Blip2Config().save_pretrained(tmp_path)
    code, out, _ = run(capsys, "doctor", "--model", str(tmp_path), "--json")
    verdict = json.loads(out)["checks"][-1]
    assert code == 1
    assert not verdict["passed"]
    assert REFUSED["blip-2"] in verdict["detail"]
