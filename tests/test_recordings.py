"""Recordings: orders are told apart by what they are, and damaged files are named."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lookright.errors import EvidenceWarning, InputError
from lookright.evidence import EvidenceArray
from lookright.instance import cyclic_orders, random_orders
from lookright.recordings import instance_range, load_evidence, split_orders
from lookright.settings import EvidenceSettings
from lookright.store import Store
from made_evidence import TESTBED, drawn_evidence, pieces_of

SETTINGS = EvidenceSettings(model="tiny", dtype="float32")
RANDOM = [(1, 0, 2, 3), (3, 1, 0, 2), (2, 1, 3, 0)]
SHOWN = [*cyclic_orders(4), *RANDOM]


def arrays_of(array: EvidenceArray) -> dict[str, Any]:
    """The arrays of the test bed's form."""
    return {
        "logp": array.log_probs.astype(np.float16),
        "attn": array.attention.astype(np.float16),
        "perms": array.orders[:, 0],
        "y": array.targets,
    }


def saved(tmp_path: Path, **changes: Any) -> Path:
    """A recording of 4 cyclic and 3 other orders, some arrays replaced; None leaves one out."""
    path = tmp_path / "recorded.npz"
    arrays = arrays_of(drawn_evidence(0, orders=SHOWN)) | changes
    np.savez(path, allow_pickle=True, **{k: v for k, v in arrays.items() if v is not None})
    return path


def test_the_cyclic_orders_are_calibration_and_the_others_are_evaluated(tmp_path: Path) -> None:
    recording = load_evidence(saved(tmp_path))
    assert recording.name == "recorded"
    assert recording.cyclic is not None
    assert [tuple(o) for o in recording.cyclic.orders[:, 0]] == cyclic_orders(4)
    assert [tuple(o) for o in recording.evaluated.orders[:, 3]] == RANDOM
    made = drawn_evidence(0, orders=SHOWN)
    np.testing.assert_array_equal(recording.cyclic.log_probs, made.log_probs[:4].astype(np.float16))
    np.testing.assert_array_equal(
        recording.evaluated.attention, made.attention[4:].astype(np.float16)
    )
    assert recording.evaluated.instance_ids == ("0", "1", "2", "3", "4")
    assert recording.evaluated.layers == tuple(range(6))


@pytest.mark.parametrize("rows", [[6, 2, 0, 5, 1, 4, 3], [4, 5, 6, 3, 2, 1, 0]])
def test_cyclic_orders_are_found_wherever_they_stand(rows: list[int]) -> None:
    recording = split_orders("made", drawn_evidence(0, orders=SHOWN).take(orders=rows))
    assert recording.cyclic is not None
    assert [tuple(o) for o in recording.cyclic.orders[:, 0]] == cyclic_orders(4)
    evaluated = [tuple(o) for o in recording.evaluated.orders[:, 0]]
    assert evaluated == [SHOWN[row] for row in rows if row > 3]


def test_a_cyclic_order_recorded_again_is_an_evaluated_one() -> None:
    recording = split_orders("made", drawn_evidence(0, orders=[*cyclic_orders(4), (1, 2, 3, 0)]))
    assert recording.evaluated.orders[:, 0].tolist() == [[1, 2, 3, 0]]


def test_without_all_cyclic_orders_every_order_is_evaluated() -> None:
    recording = split_orders("made", drawn_evidence(0, orders=SHOWN[1:]))
    assert recording.cyclic is None
    assert len(recording.evaluated.orders) == 6


def test_cyclic_orders_alone_are_evaluated_too_and_said_to_be() -> None:
    with pytest.warns(EvidenceWarning, match="made: holds the 4 cyclic orders alone"):
        recording = split_orders("made", drawn_evidence(0))
    assert recording.evaluated is recording.cyclic


# Damaged files -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logp", "attn", "perms", "y"])
def test_a_missing_array_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"has no array '{name}'"):
        load_evidence(saved(tmp_path, **{name: None}))


@pytest.mark.parametrize("name", ["logp", "attn", "perms", "y"])
def test_an_array_of_python_objects_is_never_unpickled(tmp_path: Path, name: str) -> None:
    trap = np.array([Trap()], dtype=object)
    with pytest.raises(InputError, match=f"'{name}' cannot be read .it holds Python objects"):
        load_evidence(saved(tmp_path, **{name: trap}))
    assert not Trap.sprung


class Trap:
    sprung = False

    def __reduce__(self) -> Any:
        return (setattr, (Trap, "sprung", True))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("logp", np.zeros((7, 5)), r"'logp' is float64 with the shape \(7, 5\); it must be float"),
        ("logp", np.zeros((7, 5, 4), dtype=int), "'logp' is int64"),
        ("logp", np.array([["a"]]), "'logp' is <U1"),
        ("logp", np.zeros((7, 5, 3)), "array 'attn' has the shape"),
        ("attn", np.zeros((7, 4, 6, 4)), r"array 'attn' has the shape \(7, 4, 6, 4\)"),
        ("perms", np.zeros((6, 4), dtype=int), r"array 'perms' has the shape \(6, 4\)"),
        ("perms", np.zeros((7, 4), dtype=int), "'orders': not every row is an order"),
        ("perms", np.zeros((7, 4)), "'perms' is float64"),
        ("y", np.zeros(4, dtype=int), r"array 'y' has the shape \(4,\)"),
        ("y", np.full(5, 4), "'targets': 4 for instance '0'"),
        ("y", np.zeros(5, dtype=bool), "'y' is bool"),
        ("logp", np.full((7, 5, 4), np.nan), "'log_probs': nan at order 0 of instance '0'"),
        ("attn", np.full((7, 5, 6, 4), -1.0), "'attention': -1.0"),
        ("attn", np.full((7, 5, 6, 4), np.inf), "'attention': inf"),
        ("logp", np.full((7, 5, 4), -9.0), "sum to"),
        ("logp", np.full((7, 5, 4), 1e6), "sum to inf"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, name: str, value: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as refusal:
        load_evidence(saved(tmp_path, **{name: value}))
    assert "recorded.npz" in str(refusal.value)


def test_one_candidate_is_no_choice(tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    np.savez(
        path,
        logp=np.zeros((1, 2, 1)),
        attn=np.ones((1, 2, 3, 1)),
        perms=np.zeros((1, 1), dtype=int),
        y=np.zeros(2, dtype=int),
    )
    with pytest.raises(InputError, match="at least two"):
        load_evidence(path)


def test_no_instances_are_no_evidence(tmp_path: Path) -> None:
    nothing = {"logp": np.zeros((7, 0, 4)), "attn": np.zeros((7, 0, 6, 4)), "y": np.zeros(0, int)}
    with pytest.raises(InputError, match="there is no evidence here"):
        load_evidence(saved(tmp_path, **nothing))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.npz: there is no such file"):
        load_evidence(tmp_path / "absent.npz")


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip at all" * 10, b"\x80\x04K\x00."])
def test_a_foreign_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"foreign\.npz: is no \.npz file"):
        load_evidence(path)


def test_a_single_array_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "single.npy"
    np.save(path, np.zeros(3))
    with pytest.raises(InputError, match="is one array"):
        load_evidence(path)


def test_a_file_in_an_archive_that_is_no_array_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, y=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("y", b"plain text")
    with pytest.raises(InputError, match="'y' is no array"):
        load_evidence(path)


def test_damaged_data_inside_the_archive_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    middle = content.index(b"logp") + 400
    content[middle : middle + 50] = bytes(50)
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        load_evidence(path)


def test_a_shape_larger_than_the_data_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, y=None)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<i8", "fortran_order": False, "shape": (10**15,)}
    )
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("y.npy", header.getvalue() + b"short")
    with pytest.raises(InputError, match="'y' cannot be read"):
        load_evidence(path)


# Slices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"), [("0:5", range(5)), ("7:", range(7, 9)), (":2", range(2)), (":", range(9))]
)
def test_a_slice_names_instances(text: str, found: range) -> None:
    assert instance_range(text, 9) == found


@pytest.mark.parametrize("text", ["", "5", "a:b", "-3:", "0:5:2", "1:2,3:4", "1.0:2"])
def test_what_is_no_slice_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="give a slice, as in 0:5"):
        instance_range(text, 9)


@pytest.mark.parametrize("text", ["5:5", "6:5", "0:10", "9:", "99:"])
def test_a_slice_of_nothing_or_beyond_the_end_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="names none, or more than there are"):
        instance_range(text, 9)


# Evidence folders ----------------------------------------------------------------------------


def stored(folder: Path, array: EvidenceArray, settings: EvidenceSettings = SETTINGS) -> Path:
    Store(folder).append(pieces_of(replace(array, settings=settings.hash)), settings)
    return folder


def test_a_folder_and_a_file_of_the_same_evidence_are_read_alike(tmp_path: Path) -> None:
    made = drawn_evidence(0, orders=SHOWN, tokens=True)
    recording = load_evidence(stored(tmp_path / "run", made))
    assert recording.name == "run"
    assert recording.settings == SETTINGS
    assert recording.cyclic is not None
    for read, rows in ((recording.cyclic, slice(0, 4)), (recording.evaluated, slice(4, None))):
        wanted = made.take(orders=rows)
        np.testing.assert_allclose(read.log_probs, wanted.log_probs, rtol=1e-6)
        np.testing.assert_array_equal(read.orders, wanted.orders)
        np.testing.assert_array_equal(read.targets, wanted.targets)
        np.testing.assert_array_equal(read.image_tokens, wanted.image_tokens)


def test_each_instance_of_a_folder_may_have_its_own_random_orders(tmp_path: Path) -> None:
    per_instance = np.stack(
        [[*cyclic_orders(4), RANDOM[m % 3], RANDOM[(m + 1) % 3]] for m in range(5)], axis=1
    )
    made = replace(drawn_evidence(0, orders=SHOWN[:6]), orders=per_instance)
    recording = load_evidence(stored(tmp_path / "run", made))
    np.testing.assert_array_equal(recording.evaluated.orders, per_instance[4:])


def test_random_orders_that_happen_to_be_cyclic_are_named_by_their_spec(tmp_path: Path) -> None:
    made = drawn_evidence(0, n=3, instances=4)
    pieces = []
    for m, name in enumerate(made.instance_ids):
        drawn = random_orders(3, 2, 0, name)
        orders = [*cyclic_orders(3), *(o for o in drawn if o not in cyclic_orders(3))]
        part = drawn_evidence(m, n=3, instances=4, orders=orders).take(instances=[m])
        pieces += pieces_of(replace(part, settings=SETTINGS.hash))
    renumbered = [replace(piece, instance=piece.instance_id.zfill(32)) for piece in pieces]
    Store(tmp_path).append(renumbered, SETTINGS)
    with pytest.raises(InputError, match=r"different numbers of orders.*--orders random:5"):
        load_evidence(tmp_path)
    recording = load_evidence(tmp_path, "random:2", seed=0)
    for m, name in enumerate(made.instance_ids):
        shown = [tuple(order) for order in recording.evaluated.orders[:, m]]
        assert shown == random_orders(3, 2, 0, name)


def test_orders_a_folder_does_not_hold_are_refused(tmp_path: Path) -> None:
    stored(tmp_path, drawn_evidence(0, orders=SHOWN))
    with pytest.raises(InputError, match=r"no evidence of the order .* \(17 of 24 orders"):
        load_evidence(tmp_path, "all")


def test_a_folder_of_mixed_settings_is_refused_naming_them(tmp_path: Path) -> None:
    stored(tmp_path, drawn_evidence(0, orders=SHOWN))
    stored(tmp_path, drawn_evidence(0, orders=SHOWN), replace(SETTINGS, trailing_space=True))
    with pytest.raises(InputError, match=r"2 settings, which do not mix .trailing_space"):
        load_evidence(tmp_path)


def test_an_empty_folder_holds_no_evidence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no evidence in this folder"):
        load_evidence(tmp_path)


def test_the_orders_of_a_file_cannot_be_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found by value"):
        load_evidence(saved(tmp_path), "random:3")


def test_a_folder_without_all_cyclic_orders_is_evaluated_whole(tmp_path: Path) -> None:
    recording = load_evidence(stored(tmp_path / "run", drawn_evidence(0, orders=SHOWN[1:])))
    assert recording.cyclic is None
    assert len(recording.evaluated.orders) == 6


def test_a_folder_of_cyclic_orders_alone_is_evaluated_on_them(tmp_path: Path) -> None:
    with pytest.warns(EvidenceWarning, match="cyclic orders alone"):
        recording = load_evidence(stored(tmp_path / "run", drawn_evidence(0)))
    assert len(recording.evaluated.orders) == 4


def test_a_damaged_value_in_a_folder_is_named(tmp_path: Path) -> None:
    made = drawn_evidence(0, orders=SHOWN)
    log_probs = made.log_probs.copy()
    log_probs[2, 1, 0] = np.nan
    with pytest.raises(InputError, match=r"run: .*'log_probs': nan"):
        load_evidence(stored(tmp_path / "run", replace(made, log_probs=log_probs)))


def run_folder(folder: Path, orders: list[str], seed: int = 3, **more: Any) -> Path:
    """What `lookright evidence` leaves: two samples in cyclic orders, four instances in others."""
    folder.mkdir()
    made = drawn_evidence(0, instances=6)
    names = [f"instance-{m}" for m in range(6)]
    shown = {name: random_orders(4, 3, seed, name) for name in names[:4]}
    shown |= {name: cyclic_orders(4) for name in names[4:]}
    pieces = []
    for m, name in enumerate(names):
        part = drawn_evidence(m, instances=6, orders=shown[name]).take(instances=[m])
        pieces += [
            replace(piece, instance=f"{m:032x}", settings=SETTINGS.hash)
            for piece in pieces_of(part)
        ]
    Store(folder).append(pieces, SETTINGS)
    content = {f"instance-{m}": [f"{m:032x}", int(made.targets[m])] for m in range(6)}
    request = {"part": "instances", "orders": orders, "seed": seed}
    run = {
        "format": 1,
        "settings": SETTINGS.to_dict(),
        "benchmark": {"path": "somewhere/coco", "meta": {"setting": "hard"}},
        "instances": {
            "calibration": {name: content[name] for name in names[4:]},
            "instances": {name: content[name] for name in names[:4]},
        },
        "invocations": [
            {"id": "0", "request": {"part": "calibration", "orders": ["cyclic"], "seed": 0}},
            {"id": "1", "request": request},
        ],
    }
    (folder / "run.json").write_text(json.dumps(run | more))
    return folder


def test_a_run_says_what_is_evaluated_and_what_it_is_calibrated_on(tmp_path: Path) -> None:
    recording = load_evidence(run_folder(tmp_path / "run", ["random:3"]))
    assert (recording.name, recording.setting) == ("coco", "hard")
    assert recording.ids == tuple(f"instance-{m}" for m in (4, 5, 0, 1, 2, 3))
    assert recording.calibration == ("instance-4", "instance-5")
    assert recording.cyclic is not None
    assert recording.cyclic.instance_ids == ("instance-4", "instance-5")
    assert recording.evaluated.instance_ids == tuple(f"instance-{m}" for m in range(4))
    for m in range(4):
        shown = [tuple(order) for order in recording.evaluated.orders[:, m]]
        assert shown == random_orders(4, 3, 3, f"instance-{m}")


def test_an_instance_asked_under_another_name_has_its_evidence_and_its_own_answer(
    tmp_path: Path,
) -> None:
    """Equal content is asked and saved once, under the name that came first."""
    folder = run_folder(tmp_path / "run", ["random:3"])
    run = json.loads((folder / "run.json").read_text())
    content, answer = run["instances"]["calibration"]["instance-4"]
    run["instances"]["calibration"]["twin"] = [content, (answer + 1) % 4]
    (folder / "run.json").write_text(json.dumps(run))
    recording = load_evidence(folder)
    assert recording.calibration == ("instance-4", "instance-5", "twin")
    assert recording.cyclic is not None
    one, _, other = (recording.cyclic.take(instances=[m]) for m in range(3))
    np.testing.assert_array_equal(one.log_probs, other.log_probs)
    assert other.targets.tolist() == [(answer + 1) % 4]
    assert one.targets.tolist() == [answer]


def test_orders_named_go_before_those_of_the_run(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", ["random:3"])
    assert len(load_evidence(folder, "random:2", seed=3).evaluated.orders) == 2


def test_a_run_of_several_orders_needs_one_named(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", ["random:3", "cyclic", "random:2"])
    with pytest.raises(InputError, match=r"random:2 with seed 3, random:3 with seed 3\); name one"):
        load_evidence(folder)
    assert len(load_evidence(folder, "random:3", seed=3).evaluated.orders) == 3


def test_an_instance_that_a_run_left_half_done_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run: instance 'instance-0': no evidence of the order"):
        load_evidence(run_folder(tmp_path / "run", ["random:5"]))


def test_orders_that_no_instance_was_asked_for_are_refused(tmp_path: Path) -> None:
    folder = stored(tmp_path / "run", drawn_evidence(0, instances=1, orders=SHOWN[4:6]))
    with pytest.raises(InputError, match=r"no instance has evidence of the orders 'cyclic'"):
        load_evidence(folder, "cyclic")


@pytest.mark.parametrize(
    "changed",
    [
        {"benchmark": None},
        {"benchmark": {"path": 7, "meta": []}},
        {"instances": {"calibration": {}}},
        {"invocations": [{"id": "0"}, {"id": "1", "request": 3}]},
        {"invocations": [{"id": "0", "request": {"orders": ["random:3"], "seed": "x"}}]},
    ],
)
def test_a_run_that_says_little_is_read_by_the_values_of_its_orders(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    folder = run_folder(tmp_path / "run", ["random:3"], **changed)
    assert load_evidence(folder, "random:3", seed=3).evaluated.log_probs.shape == (3, 4, 4)


@pytest.mark.skipif(not TESTBED.is_dir(), reason="the recordings are not here")
def test_every_recording_of_the_test_bed_is_read() -> None:
    for path in sorted(TESTBED.glob("*/ev_*.npz")):
        recording = load_evidence(path)
        assert recording.cyclic is not None
        n = recording.evaluated.n
        orders = {tuple(order) for order in recording.evaluated.orders[:, 0]}
        assert len(recording.cyclic.orders) == n
        assert len(orders) == len(recording.evaluated.orders)
        assert not orders & set(cyclic_orders(n))
