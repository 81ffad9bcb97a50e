"""Rows of results: the recorded figures come out, and every row has the one shape."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lookright.calibration import Calibration
from lookright.errors import EvidenceWarning, InputError
from lookright.evaluation import Evaluation, Origin, draw, evaluation_of
from lookright.evidence import EvidenceArray
from lookright.instance import cyclic_orders, random_orders
from lookright.methods import METHODS
from lookright.metrics import accuracy, decide, interval
from lookright.presets import PRESETS
from lookright.recordings import Recording, load_evidence, split_orders
from lookright.scoring import (
    Variant,
    ablations,
    rows_of,
    score,
    variants,
)
from lookright.settings import EvidenceSettings
from made_evidence import TESTBED, drawn_evidence
from plain_loops import paper_lad

KEYS = (
    "model revision benchmark setting n identifiers method preset parameters calibration gamma "
    "instances orders accuracy accuracy_std draw_std interval rstd consistency recall selection "
    "confusion parse_rate tie_rate passes"
).split()

#: (folder, recording) -> what was computed from it independently.
EXPECTED: dict[tuple[str, str], dict[str, Any]] = {
    (folder, name): wanted
    for folder in ("evidence", "live", "tiny")
    if (TESTBED / folder / "expected.json").exists()
    for name, wanted in json.loads((TESTBED / folder / "expected.json").read_text()).items()
}


def made(instances: int = 20, n: int = 4, layers: int = 6) -> Recording:
    shown = [*cyclic_orders(n), *[o for o in random_orders(n, 9, 1) if o not in cyclic_orders(n)]]
    return split_orders("made", drawn_evidence(0, n, instances, layers, shown[: n + 3]))


def by_method(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in rows}


# The recorded figures ------------------------------------------------------------------------


def scored(path: Path, preset: str, **more: Any) -> dict[str, dict[str, Any]]:
    recording = load_evidence(path)
    return by_method(rows_of(recording, calibration="0:5", instances="20:", preset=preset, **more))


@pytest.mark.parametrize(
    ("folder", "name"), EXPECTED or [pytest.param("", "", marks=pytest.mark.skip)]
)
def test_the_figures_of_a_recording_come_out(folder: str, name: str) -> None:
    path, wanted = TESTBED / folder / f"ev_{name}.npz", EXPECTED[folder, name]
    rows = scored(path, "paper")
    assert rows["lad"]["gamma"] == pytest.approx(wanted["gamma"], abs=5.1e-5)
    assert (rows["lad"]["instances"], rows["lad"]["orders"]) == (
        wanted["instances"],
        wanted["orders"],
    )
    all_layers = {"lad": {"k": "all"}}
    rows["lad_all_layers"] = scored(path, "paper", methods=["lad"], given=all_layers)["lad"]
    figures = wanted.get("methods") or {m: {"accuracy": a} for m, a in wanted["accuracy"].items()}
    if any(method.startswith("released_") for method in figures):
        released = scored(path, "released")
        rows |= {f"released_{method}": row for method, row in released.items()}
    for method, values in figures.items():
        if method.startswith("layer_"):
            alone = {"purified_attention": {"layers": method.removeprefix("layer_"), "k": 1}}
            rows[method] = scored(path, "paper", methods=list(alone), given=alone)[
                "purified_attention"
            ]
        for figure, value in values.items():
            assert rows[method][figure] == pytest.approx(value, abs=0.00501), (method, figure)


#: A recording small enough to follow by hand: two images, four instances, both orders.
def hand_recording() -> Recording:
    """Calibration: instances 0 and 1 (targets 0 and 1); evaluated: 2 and 3, in both orders."""
    said = np.array(
        [
            [[0.8, 0.2], [0.6, 0.4], [0.9, 0.1], [0.7, 0.3]],  # order 0 1; targets at 0 1 0 1
            [[0.7, 0.3], [0.9, 0.1], [0.6, 0.4], [0.8, 0.2]],  # order 1 0; targets at 1 0 1 0
        ]
    )
    seen = np.array(
        [
            [[0.3, 0.1], [0.1, 0.1], [0.2, 0.1], [0.1, 0.2]],
            [[0.1, 0.1], [0.3, 0.1], [0.1, 0.2], [0.2, 0.1]],
        ]
    )[:, :, None]  # one layer; the first position gets twice the attention by habit
    evidence = EvidenceArray(
        log_probs=np.log(said),
        attention=seen,
        orders=np.array([[[0, 1]] * 4, [[1, 0]] * 4]),
        targets=np.array([0, 1, 0, 1]),
        layers=(0,),
        instance_ids=("a", "b", "c", "d"),
    )
    return Recording("hand", evidence.instance_ids, evidence, evidence)


def test_a_recording_small_enough_to_follow_by_hand() -> None:
    rows = by_method(
        rows_of(
            hand_recording(),
            calibration="0:2",
            instances="2:4",
            given={name: {"k": 1} for name in ("raw_attention", "purified_attention", "lad")},
        )
    )
    # P_obs: target at 0: (.8 .2) and (.9 .1); at 1: (.6 .4) and (.7 .3).
    assert rows["lad"]["gamma"] == pytest.approx(0.85 / 0.15)
    # Position 0 is always said; that is right where the target stands there.
    assert rows["vanilla"]["accuracy"] == 50
    assert rows["vanilla"]["recall"] == [100, 0]
    assert rows["vanilla"]["selection"] == [100, 0]
    assert rows["vanilla"]["confusion"] == [[100, 0], [100, 0]]
    assert rows["vanilla"]["consistency"] == 0
    assert rows["vanilla"]["rstd"] == pytest.approx(100 / math.sqrt(2))
    # The prior of the attention is (.2 .1): a ratio of (1 1) at worst, (.5 2) at best.
    assert rows["purified_attention"]["accuracy"] == 100
    assert rows["purified_attention"]["tie_rate"] == 50
    assert rows["lad"]["accuracy"] == 100
    assert rows["lad"]["consistency"] == 100
    # Averaged over both orders: c: .9 * .4 against .1 * .6; d: .7 * .2 against .3 * .8.
    assert rows["permutation_average"]["accuracy"] == 100
    assert rows["permutation_average"]["orders"] == 1


def test_lads_row_is_what_plain_loops_decide() -> None:
    recording = made()
    assert recording.cyclic is not None
    row = by_method(rows_of(recording, calibration="0:3", instances="4:"))["lad"]
    evidence = recording.evaluated.take(instances=slice(4, None))
    samples = recording.cyclic.take(instances=slice(0, 3))
    right = 0
    for p in range(3):
        for m in range(16):
            scores = paper_lad(
                evidence.log_probs[p, m].tolist(), evidence.attention[p, m].tolist(), samples
            )
            chosen = evidence.orders[p, m][scores.index(max(scores))]
            right += int(chosen == evidence.targets[m])
    assert row["accuracy"] == pytest.approx(100 * right / 48)


# The shape of a row --------------------------------------------------------------------------


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.filterwarnings("ignore::lookright.errors.EvidenceWarning")  # 6 layers: none in 21:36
def test_without_names_every_method_has_one_row_in_the_one_shape(preset: str) -> None:
    rows = rows_of(made(), preset=preset)
    assert [row["method"] for row in rows] == list(METHODS)
    for row in rows:
        assert list(row) == KEYS
        assert row["preset"] == preset
        assert (row["benchmark"], row["n"], row["instances"]) == ("made", 4, 15)
        assert row["model"] is row["revision"] is row["setting"] is row["identifiers"] is None
        assert row["parse_rate"] is None
        json.dumps(row, allow_nan=False)


def test_what_needs_no_calibration_names_none() -> None:
    rows = by_method(rows_of(made()))
    for name, row in rows.items():
        if METHODS[name].calibrated:
            assert row["calibration"] == {
                "benchmark": "made",
                "setting": None,
                "samples": 5,
                "draws": 1,
            }
            assert row["gamma"] > 1
        else:
            assert row["calibration"] is row["gamma"] is None
        assert row["draw_std"] is None


def test_permutation_averaging_reports_accuracy_alone_and_n_passes() -> None:
    row = by_method(rows_of(made()))["permutation_average"]
    assert (row["passes"], row["orders"]) == (4, 1)
    assert row["accuracy"] is not None
    assert row["interval"] is not None
    for figure in ("accuracy_std", "rstd", "consistency"):
        assert row[figure] is None
    assert row["recall"] == row["selection"] == [None] * 4
    assert row["confusion"] == [[None] * 4] * 4


def test_permutation_averaging_over_all_orders_has_figures_by_position() -> None:
    base = (1, 0, 2, 3)
    shown = [*cyclic_orders(4), *[base[s:] + base[:s] for s in range(4)]]
    recording = split_orders("made", drawn_evidence(0, instances=20, orders=shown))
    given = {"permutation_average": {"orders": "all"}}
    (row,) = rows_of(recording, methods=["permutation_average"], given=given)
    assert row["orders"] == 2
    assert None not in (row["rstd"], row["consistency"], row["accuracy_std"], *row["recall"])


def test_the_model_and_the_settings_stand_in_the_row_where_they_are_known() -> None:
    settings = EvidenceSettings(model="tiny", revision="abc", identifiers=("x", "y", "z", "w"))
    recording = made()
    assert recording.cyclic is not None
    known = Recording(
        "run",
        recording.ids,
        replace(recording.evaluated, settings=settings.hash),
        replace(recording.cyclic, settings=settings.hash),
        settings=settings,
    )
    for row in rows_of(known):
        assert (row["model"], row["revision"]) == ("tiny", "abc")
        assert row["identifiers"] == ["x", "y", "z", "w"]


def test_parameters_are_those_used() -> None:
    given = {"lad": {"k": 4, "prior": False}}
    rows = by_method(rows_of(made(), methods=["lad", "vanilla"], given=given))
    assert rows["lad"]["parameters"] == METHODS["lad"].parameters("paper", given["lad"])
    assert rows["vanilla"]["parameters"] == {}


def test_one_order_alone_has_no_deviation_and_no_consistency() -> None:
    shown = [*cyclic_orders(4), (1, 0, 2, 3)]
    recording = split_orders("made", drawn_evidence(0, instances=60, orders=shown))
    row = by_method(rows_of(recording))["vanilla"]
    assert row["accuracy_std"] is row["consistency"] is None


@pytest.mark.filterwarnings("ignore:rstd:lookright.errors.EvidenceWarning")
def test_a_gamma_beyond_all_numbers_is_null() -> None:
    at_target = np.array([[0], [3], [2], [1]])[:, :, None] == np.arange(4)
    sure = np.where(at_target, 0.0, -2000.0)
    recording = made(instances=6)
    assert recording.cyclic is not None
    targets = np.zeros(6, dtype=int)
    known = replace(recording.cyclic, log_probs=np.repeat(sure, 6, axis=1), targets=targets)
    evaluated = replace(recording.evaluated, targets=targets)
    row = by_method(rows_of(Recording("sure", recording.ids, evaluated, known), methods=["pride"]))[
        "pride"
    ]
    assert row["gamma"] is None


# Calibration and evaluated instances ---------------------------------------------------------


def test_by_default_the_first_five_calibrate_and_the_others_are_evaluated() -> None:
    recording = made()
    assert rows_of(recording) == rows_of(recording, calibration="0:5", instances="5:")


def test_an_instance_is_never_calibrated_on_and_evaluated() -> None:
    with pytest.raises(InputError, match="'instance-3' is to be calibrated on and evaluated"):
        rows_of(made(), calibration="0:5", instances="3:")


def test_calibrating_on_every_instance_leaves_none_to_evaluate() -> None:
    with pytest.raises(InputError, match="made: every instance is a calibration sample"):
        rows_of(made(), calibration="0:20")


def test_figures_need_labels() -> None:
    recording = made()
    unlabelled = replace(recording.evaluated, targets=np.full(20, -1))
    with pytest.raises(InputError, match="15 of 15 instances have no target"):
        rows_of(replace(recording, evaluated=unlabelled))


def test_a_method_that_the_evidence_lacks_something_for_says_what() -> None:
    recording = replace(made(), cyclic=None)
    with pytest.raises(InputError, match="pride needs calibration samples in their 4 cyclic"):
        rows_of(recording, methods=["pride"])
    with pytest.raises(InputError, match="permutation_average needs the 4 cyclic orders of every"):
        rows_of(recording, methods=["permutation_average"])
    with pytest.raises(InputError, match="raw_attention needs attention, and this evidence does"):
        rows_of(made(layers=0), methods=["raw_attention"])


def test_without_names_such_a_method_is_left_out_and_named() -> None:
    with pytest.warns(EvidenceWarning, match="left out: it needs") as said:
        rows = rows_of(replace(made(), cyclic=None))
    assert [row["method"] for row in rows] == ["vanilla", "raw_attention"]
    assert [str(one.message).split()[0] for one in said] == [
        *("pride", "purified_attention", "lad", "permutation_average")
    ]
    assert {row["instances"] for row in rows} == {20}  # nothing is kept for calibration


def samples_apart() -> Recording:
    """Six samples in their cyclic orders alone, and others in the evaluated orders alone."""
    recording = made(instances=60)
    assert recording.cyclic is not None
    return replace(
        recording,
        evaluated=recording.evaluated.take(instances=slice(6, None)),
        cyclic=recording.cyclic.take(instances=slice(0, 6)),
        calibration=recording.ids[:6],
        setting="hard",
    )


def test_samples_meant_to_calibrate_from_are_used_for_that() -> None:
    with pytest.warns(EvidenceWarning, match="permutation_average is left out"):
        rows = by_method(rows_of(samples_apart()))
    assert rows["lad"]["calibration"] == {
        "benchmark": "made",
        "setting": "hard",
        "samples": 5,
        "draws": 5,
    }
    assert (rows["lad"]["instances"], rows["lad"]["setting"]) == (54, "hard")


def test_an_instance_without_the_orders_to_evaluate_cannot_be_evaluated() -> None:
    with pytest.raises(InputError, match="orders are not there for instance 'instance-2'"):
        rows_of(samples_apart(), calibration="3:6", instances="2:3")


# Draws ---------------------------------------------------------------------------------------


def test_a_pool_no_larger_than_a_calibration_is_drawn_once_whole() -> None:
    assert draw(5, 5) == [[0, 1, 2, 3, 4]]
    assert draw(3, 5, draws=4) == [[0, 1, 2]]


def test_draws_are_different_subsets_and_the_same_for_the_same_seed() -> None:
    drawn = draw(20, 5)
    assert len(drawn) == 5
    assert len({tuple(chosen) for chosen in drawn}) == 5
    assert all(chosen == sorted(set(chosen)) and len(chosen) == 5 for chosen in drawn)
    assert draw(20, 5) == drawn != draw(20, 5, seed=1)
    assert draw(20, 5, draws=7)[:5] == drawn


def test_no_more_subsets_are_drawn_than_there_are() -> None:
    assert sorted(draw(4, 3, draws=99)) == [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]


def test_draws_are_the_same_on_every_platform() -> None:
    assert draw(10, 3, draws=2) == [[2, 4, 8], [1, 3, 4]]


def test_a_row_of_several_draws_is_the_mean_of_theirs() -> None:
    recording = made(instances=60)
    assert recording.cyclic is not None
    row = by_method(rows_of(recording, calibration="0:9", draws=3, seed=4))["lad"]
    assert row["calibration"]["draws"] == 3
    evidence = recording.evaluated.take(instances=slice(9, None))
    decisions, gammas = [], []
    for chosen in draw(9, 5, 3, seed=4):
        fitted = Calibration.fit(recording.cyclic.take(instances=chosen))
        gammas.append(fitted.gamma)
        scores = METHODS["lad"](evidence, fitted)
        decisions.append(decide(scores, evidence.orders, evidence.targets))
    accuracies = [accuracy(one) for one in decisions]
    assert row["accuracy"] == pytest.approx(statistics.fmean(accuracies))
    assert row["draw_std"] == pytest.approx(statistics.stdev(accuracies))
    assert row["gamma"] == pytest.approx(statistics.median(gammas))
    lows = [interval(one)[0] for one in decisions]
    assert row["interval"][0] == pytest.approx(statistics.fmean(lows))


def test_with_more_samples_than_a_calibration_has_five_are_drawn() -> None:
    row = by_method(rows_of(made(instances=60), calibration="0:9"))["pride"]
    assert row["calibration"] == {"benchmark": "made", "setting": None, "samples": 5, "draws": 5}
    row = by_method(rows_of(made(instances=60), calibration="0:9", samples=9))["pride"]
    assert row["calibration"] == {"benchmark": "made", "setting": None, "samples": 9, "draws": 1}


def test_what_is_calibrated_elsewhere_says_where() -> None:
    recording = made()
    assert recording.cyclic is not None
    evaluation = Evaluation(
        evaluated=recording.evaluated,
        pool=recording.cyclic.take(instances=slice(0, 3)),
        origin=Origin(benchmark="here", setting="hard"),
        pool_origin=Origin(benchmark="there", setting="random"),
    )
    (row,) = score(evaluation, [Variant("pride")])
    assert (row["benchmark"], row["setting"]) == ("here", "hard")
    assert row["calibration"]["benchmark"] == "there"
    assert row["calibration"]["setting"] == "random"


# Variants ------------------------------------------------------------------------------------


def test_a_method_named_twice_has_one_row() -> None:
    assert [v.method for v in variants(["lad", "vanilla", "lad"], {})] == ["lad", "vanilla"]


def test_unknown_methods_and_parameters_are_refused_before_anything_is_computed() -> None:
    with pytest.raises(InputError, match=r"unknown method 'lda'; did you mean lad\?"):
        rows_of(made(), methods=["lda"])
    with pytest.raises(InputError, match=r"unknown method 'lda'"):
        variants(["lad"], {"lda": {"k": 2}})
    with pytest.raises(InputError, match="lad has no parameter 'q'"):
        variants(["lad"], {"lad": {"q": 2}})
    with pytest.raises(InputError, match="given for pride, which is not among the methods"):
        variants(["lad"], {"pride": {"estimator": "original"}})
    with pytest.raises(InputError, match="unknown preset 'mine'"):
        rows_of(made(), preset="mine")


def test_ablations_change_one_thing_each() -> None:
    usual = METHODS["lad"].parameters()
    changed = []
    for variant in ablations(Variant("lad"), "paper", layers=6, pool=12):
        chosen = METHODS["lad"].parameters("paper", variant.given)
        differing = {k: v for k, v in chosen.items() if v != usual[k]}
        if variant.samples != 5:
            differing["samples"] = variant.samples
        assert len(differing) == 1
        changed.append(next(iter(differing.items())))
    assert changed == [
        ("k", "all"),
        ("k", 1),
        ("k", 4),
        ("prior", False),
        ("tau", 1.0),
        ("tau", 2.0),
        ("tau", 10.0),
        ("layers", "21:36"),
        ("aggregate", "means"),
        ("mean", "geometric"),
        ("bias", "margin"),
        ("mixture", "geometric"),
        ("samples", 1),
        ("samples", 2),
        ("samples", 3),
        ("samples", 10),
    ]


def test_the_released_presets_ablations_undo_its_choices_one_by_one() -> None:
    found = ablations(Variant("lad"), "released", layers=30, pool=5)
    assert {"layers": "all"} in [dict(v.given) for v in found]
    assert {"mixture": "arithmetic"} in [dict(v.given) for v in found]
    assert [v.samples for v in found if v.samples != 5] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::lookright.errors.EvidenceWarning")
def test_ablations_are_rows_after_the_others() -> None:
    rows = rows_of(made(), with_ablations=True, given={"lad": {"tau": 3}})
    assert [row["method"] for row in rows[: len(METHODS)]] == list(METHODS)
    added = rows[len(METHODS) :]
    assert {row["method"] for row in added} == {"lad"}
    assert all(row["parameters"]["tau"] in (1, 2, 3, 5, 10) for row in added)
    assert added[0]["parameters"]["tau"] == 3
    assert [row["calibration"]["samples"] for row in added[-3:]] == [1, 2, 3]


def test_no_layer_in_the_range_is_said_once_for_each_row() -> None:
    with pytest.warns(EvidenceWarning, match="layers=21:36"):
        rows_of(made(), methods=["lad"], preset="released")


def test_an_evaluation_takes_the_pool_and_the_evaluated_instances_apart() -> None:
    evaluation = evaluation_of(made(), "2:5", "7:9")
    assert evaluation.pool is not None
    assert evaluation.shifts is not None
    assert evaluation.pool.instance_ids == ("instance-2", "instance-3", "instance-4")
    assert evaluation.evaluated.instance_ids == evaluation.shifts.instance_ids
    assert evaluation.evaluated.instance_ids == ("instance-7", "instance-8")
