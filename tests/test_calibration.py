"""Calibration: its statistics are those of the paper, and its file is used for nothing else."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from lookright.calibration import Calibration, margin
from lookright.calibration_file import prompt_hash
from lookright.errors import EvidenceWarning, InputError
from lookright.evidence import EvidenceArray
from lookright.settings import EvidenceSettings
from made_evidence import drawn_evidence, evidence_of, normalised, pieces_of

SETTINGS = EvidenceSettings(model="tiny", revision="abc", dtype="float32")
seeds = st.integers(0, 2**32 - 1)

#: Two samples of three candidates; row s is cyclic shift s. Sample 0 has its target at index 0,
#: so at position (0 - s) mod 3; sample 1 at index 2.
HAND = np.array(
    [
        [[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]],  # targets at positions 0 and 2
        [[0.1, 0.1, 0.8], [0.3, 0.6, 0.1]],  # at 2 and 1
        [[0.4, 0.5, 0.1], [0.9, 0.05, 0.05]],  # at 1 and 0
    ]
)
#: Row: where the target stood; column: what was said.
HAND_OBSERVED = np.array([[0.7, 0.175, 0.125], [0.35, 0.55, 0.1], [0.15, 0.15, 0.7]])


def by_hand(**changes: Any) -> EvidenceArray:
    return replace(evidence_of(np.log(HAND), targets=[0, 2]), **changes)


def test_the_observed_matrix_is_the_mean_probability_by_target_position_and_answer() -> None:
    fitted = Calibration.fit(by_hand())  # equation 1
    np.testing.assert_allclose(np.exp(fitted.log_observed), HAND_OBSERVED, rtol=1e-12)


def test_the_geometric_matrix_is_the_mean_of_the_log_probabilities() -> None:
    fitted = Calibration.fit(by_hand())
    wanted = np.log([[0.5 * 0.9, 0.3 * 0.05, 0.2 * 0.05], [0.4 * 0.3, 0.5 * 0.6, 0.1 * 0.1]]) / 2
    np.testing.assert_allclose(fitted.mean_log_probs[:2], wanted, rtol=1e-12)


def test_gamma_is_the_largest_ratio_of_the_targets_own_position_to_another() -> None:
    fitted = Calibration.fit(by_hand())  # equation 4
    assert fitted.gamma == pytest.approx(0.7 / 0.125, rel=1e-12)
    assert fitted.log_gamma == pytest.approx(math.log(0.7 / 0.125), rel=1e-12)


def test_gamma_compares_within_a_row_not_within_a_column() -> None:
    # Within the columns the largest ratio would be 0.6 / 0.1.
    observed = np.log([[0.6, 0.25, 0.15], [0.3, 0.4, 0.3], [0.1, 0.3, 0.6]])
    assert margin(observed) == pytest.approx(math.log(6))
    observed = np.log([[0.6, 0.2, 0.2], [0.1, 0.5, 0.4], [0.3, 0.3, 0.4]])
    assert margin(observed) == pytest.approx(math.log(5))


def test_the_bias_matrix_has_the_gain_taken_off_its_diagonal_alone() -> None:
    fitted = Calibration.fit(by_hand())  # equation 5
    wanted = HAND_OBSERVED.copy()
    wanted[np.diag_indices(3)] /= 0.7 / 0.125
    np.testing.assert_allclose(np.exp(fitted.log_bias()), wanted, rtol=1e-12)


def test_by_the_gain_no_position_is_favoured_where_the_target_stands() -> None:
    bias = Calibration.fit(drawn_evidence(3)).log_bias()
    off = bias[~np.eye(4, dtype=bool)].reshape(4, 3)
    assert (np.diagonal(bias)[:, None] <= off + 1e-12).all()


def test_the_released_bias_matrix_is_what_is_left_of_an_ideal_one() -> None:
    fitted = Calibration.fit(by_hand())
    observed = fitted.mean_log_probs
    gains = [observed[i, i] - observed[i, j] for i in range(3) for j in range(3) if i != j]
    gain = max(gains)
    level = observed.mean() - gain / 3
    ideal = np.full((3, 3), level) + gain * np.eye(3)
    np.testing.assert_allclose(fitted.log_bias("geometric", "margin"), observed - ideal, rtol=1e-12)


def without_signal() -> EvidenceArray:
    """The target's own position is always said least."""
    at_target = np.array([[0], [2], [1]])[:, :, None] == np.arange(3)
    return evidence_of(normalised(np.where(at_target, -1.0, 0.0)))


def test_logits_without_signal_get_the_gain_1_and_a_warning() -> None:
    said = (
        "^calibration: no position is said more often when the target stands there than when it "
        "does not: the logits carry no signal of the target, and gamma is set to 1$"
    )
    with pytest.warns(EvidenceWarning, match=said):
        fitted = Calibration.fit(without_signal())
    assert fitted.gamma == 1
    np.testing.assert_array_equal(fitted.log_bias(), fitted.log_observed)


def test_a_gain_of_exactly_1_is_no_signal() -> None:
    with pytest.warns(EvidenceWarning, match="no signal"):
        Calibration.fit(evidence_of(normalised(np.zeros((3, 2, 3)))))


def test_the_released_gain_may_be_below_1() -> None:
    with pytest.warns(EvidenceWarning):
        fitted = Calibration.fit(without_signal())
    bias = fitted.log_bias("geometric", "margin")
    np.testing.assert_allclose(bias, bias[0, 0], rtol=1e-9)  # the gain of -1 explains all of it


def test_an_exact_zero_is_floored_and_its_cell_is_named() -> None:
    probabilities = HAND.copy()
    probabilities[0, 0] = probabilities[2, 1] = [1.0, 0.0, 0.0]  # both with the target at 0
    with np.errstate(divide="ignore"):
        evidence = by_hand(log_probs=np.log(probabilities))
    said = (
        r"^calibration: P_obs\(2\|1\), P_obs\(3\|1\) is exactly 0 \(said position \| "
        r"target's position, counted from 1\); it is taken as 1e-30$"
    )
    with pytest.warns(EvidenceWarning, match=said):
        fitted = Calibration.fit(evidence)
    np.testing.assert_allclose(fitted.log_observed[0], [0, math.log(1e-30), math.log(1e-30)])
    np.testing.assert_allclose(fitted.mean_log_probs[0], [0, math.log(1e-30), math.log(1e-30)])
    assert fitted.gamma == pytest.approx(1e30)


@pytest.mark.parametrize(
    ("cells", "ending"), [(4, r"P_obs\(3\|2\) is"), (5, r"P_obs\(3\|2\) and 1 more is")]
)
def test_of_many_zero_cells_the_first_four_are_named(cells: int, ending: str) -> None:
    observed = np.eye(3)
    observed[2] = [0.5, 0, 0.5] if cells == 5 else [0.25, 0.25, 0.5]
    with np.errstate(divide="ignore"):
        evidence = evidence_of(np.log(observed[[0, 2, 1]])[:, None])
    with pytest.warns(EvidenceWarning, match=ending):
        Calibration.fit(evidence)


def test_a_zero_beside_other_samples_needs_no_floor() -> None:
    probabilities = HAND.copy()
    probabilities[0, 0] = [0.9, 0.1, 0.0]
    with np.errstate(divide="ignore"):
        fitted = Calibration.fit(by_hand(log_probs=np.log(probabilities)))
    assert math.exp(fitted.log_observed[0, 2]) == pytest.approx(0.025)
    assert fitted.mean_log_probs[0, 2] == pytest.approx((math.log(1e-30) + math.log(0.05)) / 2)


def test_probabilities_too_small_for_a_float_are_kept_in_log_space() -> None:
    logits = np.where(np.array([[0], [2], [1]])[:, :, None] == np.arange(3), 0.0, -2000.0)
    fitted = Calibration.fit(evidence_of(normalised(logits)))
    np.testing.assert_allclose(fitted.log_observed, -2000.0 * (1 - np.eye(3)), atol=1e-9)
    assert fitted.log_gamma == pytest.approx(2000)
    assert fitted.gamma == math.inf


def test_the_attention_prior_is_the_mean_over_samples_and_orders() -> None:
    attention = drawn_evidence(1, n=3, instances=2, layers=4).attention
    fitted = Calibration.fit(by_hand(attention=attention, layers=(2, 3, 5, 8)))  # equation 7
    wanted = sum(attention[p, m] for p in range(3) for m in range(2)) / 6
    np.testing.assert_allclose(fitted.attention_prior, wanted, rtol=1e-12)
    assert fitted.layers == (2, 3, 5, 8)


def test_attention_below_the_floor_counts_as_the_floor_but_zero_stays_zero() -> None:
    attention = np.full((3, 2, 2, 3), 0.1, dtype=np.float32)
    attention[:, :, 0, 1] = 1e-12
    attention[:, :, 1, 2] = 0
    prior = Calibration.fit(by_hand(attention=attention, layers=(0, 1))).attention_prior
    assert prior.dtype == np.float64
    assert float(prior[0, 1]) == pytest.approx(1e-8, rel=1e-12)
    assert prior[1, 2] == 0


def test_the_prior_per_token_is_the_mean_of_attention_over_tokens() -> None:
    made = drawn_evidence(4, n=3, instances=2, layers=2, tokens=True)
    assert made.image_tokens is not None
    fitted = Calibration.fit(made)
    assert fitted.token_attention_prior is not None
    wanted = np.mean(
        [made.attention[p, m] / made.image_tokens[p, m] for p in range(3) for m in range(2)], axis=0
    )
    np.testing.assert_allclose(fitted.token_attention_prior, wanted, rtol=1e-12)
    assert Calibration.fit(by_hand()).token_attention_prior is None


def test_the_label_free_prior_is_the_mean_log_probability_over_all_orders() -> None:
    fitted = Calibration.fit(by_hand())
    np.testing.assert_allclose(fitted.label_free_prior, np.log(HAND).mean(axis=(0, 1)), rtol=1e-12)


def test_prides_own_prior_averages_each_samples_distribution() -> None:
    fitted = Calibration.fit(by_hand())
    of_samples = []
    for m in range(2):
        geometric = np.exp(np.log(HAND[:, m]).mean(axis=0))
        of_samples.append(geometric / geometric.sum())
    np.testing.assert_allclose(
        np.exp(fitted.original_prior), (of_samples[0] + of_samples[1]) / 2, rtol=1e-12
    )


def test_single_pieces_of_evidence_and_columns_give_the_same() -> None:
    made = drawn_evidence(5, tokens=True)
    by_columns, by_pieces = Calibration.fit(made), Calibration.fit(pieces_of(made)[::-1])
    for name in ("log_observed", "mean_log_probs", "original_prior", "attention_prior"):
        np.testing.assert_allclose(getattr(by_pieces, name), getattr(by_columns, name), rtol=1e-12)


@given(seed=seeds)
def test_the_order_of_samples_and_of_their_shifts_changes_nothing(seed: int) -> None:
    made = drawn_evidence(seed)
    draw = np.random.default_rng(seed)
    shuffled = made.take(orders=draw.permutation(4), instances=draw.permutation(5))
    first, second = Calibration.fit(made), Calibration.fit(shuffled)
    for name in ("log_observed", "mean_log_probs", "original_prior", "attention_prior"):
        np.testing.assert_allclose(getattr(second, name), getattr(first, name), rtol=1e-9)


@given(seed=seeds)
def test_new_names_for_the_images_of_a_sample_change_nothing(seed: int) -> None:
    made = drawn_evidence(seed)
    names = np.random.default_rng(seed).permutation(4)
    renamed = replace(made, orders=names[made.orders], targets=names[made.targets])
    np.testing.assert_array_equal(
        Calibration.fit(renamed).log_observed, Calibration.fit(made).log_observed
    )


@given(seed=seeds)
def test_observed_probabilities_sum_to_1_for_every_target_position(seed: int) -> None:
    fitted = Calibration.fit(drawn_evidence(seed))
    np.testing.assert_allclose(np.exp(fitted.log_observed).sum(axis=1), 1, rtol=1e-12)
    assert np.exp(fitted.original_prior).sum() == pytest.approx(1, rel=1e-12)


# What cannot be calibrated on ----------------------------------------------------------------


def test_samples_that_do_not_cover_every_position_equally_are_refused() -> None:
    said = (
        "^calibration: the target must stand at every position equally often, and it stands "
        "1, 1, 2 times at positions 1 to 3; give each sample in its 3 cyclic orders"
    )
    with pytest.raises(InputError, match=said):
        Calibration.fit(by_hand().take(orders=slice(0, 2)))


def test_one_position_covered_once_too_often_is_refused() -> None:
    made = drawn_evidence(0, instances=1)
    with pytest.raises(InputError, match="equally often"):
        Calibration.fit(made.take(orders=[0, 1, 2, 3, 3]))


def test_a_sample_without_a_target_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="instance 'instance-1' has no target"):
        Calibration.fit(by_hand(targets=np.array([0, -1])))


@pytest.mark.parametrize("evidence", [[], evidence_of(np.zeros((3, 0, 3)))])
def test_no_samples_at_all_are_refused(evidence: Any) -> None:
    with pytest.raises(InputError, match="no evidence"):
        Calibration.fit(evidence)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_refused(value: float) -> None:
    log_probs = np.log(HAND)
    log_probs[1, 0, 2] = value
    with pytest.raises(InputError, match="log_probs"):
        Calibration.fit(by_hand(log_probs=log_probs))


def test_a_target_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="targets"):
        Calibration.fit(by_hand(targets=np.array([0, 3])))


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(InputError, match="unknown preset 'papers': use paper or released"):
        Calibration.fit(by_hand(), "papers")


def test_settings_other_than_those_of_the_evidence_are_refused() -> None:
    with pytest.raises(InputError, match="was made with the settings"):
        Calibration.fit(by_hand(settings="0123"), settings=SETTINGS)


def test_an_image_of_no_tokens_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"^evidence, field 'image_tokens': an image of no tokens$"
    ):
        Calibration.fit(by_hand(image_tokens=np.zeros((3, 2, 3), dtype=int)))


# What it may be used for ---------------------------------------------------------------------


def fitted_with_settings(**changes: Any) -> Calibration:
    settings = replace(SETTINGS, **changes)
    evidence = replace(drawn_evidence(2, tokens=True), settings=settings.hash)
    return Calibration.fit(evidence, settings=settings)


def test_a_calibration_fits_evidence_like_its_own() -> None:
    fitted_with_settings().check(replace(drawn_evidence(9), settings=SETTINGS.hash))


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (drawn_evidence(0, n=3), "for 4 candidates, not for 3; calibrate for 3"),
        (replace(drawn_evidence(0), settings="feed"), "settings: '[0-9a-f]{16}' against 'feed'"),
        (drawn_evidence(0), "settings: '[0-9a-f]{16}' against 'unknown'"),
        (
            replace(drawn_evidence(0, layers=7), settings=SETTINGS.hash),
            r"its layers are 6 \(0 to 5\), those of the evidence 7 \(0 to 6\)",
        ),
        (
            replace(drawn_evidence(0, layers=0), settings=SETTINGS.hash),
            r"its layers are 6 \(0 to 5\), those of the evidence none",
        ),
    ],
)
def test_evidence_of_something_else_is_refused(evidence: EvidenceArray, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        fitted_with_settings().check(evidence)


def test_a_calibration_of_unknown_settings_is_not_used_for_known_ones() -> None:
    with pytest.raises(InputError, match="settings: 'unknown' against 'feed'"):
        Calibration.fit(drawn_evidence(2)).check(replace(drawn_evidence(9), settings="feed"))


def test_a_calibration_made_for_another_model_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tiny.safetensors"
    fitted_with_settings().save(path)
    other = replace(SETTINGS, model="large", trailing_space=True)
    said = r"tiny\.safetensors.*trailing_space: False against True; model: 'tiny' against 'large'\)"
    with pytest.raises(InputError, match=said):
        Calibration.load(path, expect=other)


def test_a_calibration_for_another_number_of_candidates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "four.safetensors"
    fitted_with_settings().save(path)
    with pytest.raises(InputError, match="for 4 candidates, not for 8; calibrate for 8"):
        Calibration.load(path, expect=SETTINGS, n=8)
    assert Calibration.load(path, expect=SETTINGS, n=4).n == 4


# The file ------------------------------------------------------------------------------------


@given(seed=seeds, tokens=st.booleans(), preset=st.sampled_from(["paper", "released"]))
def test_saved_and_loaded_it_is_the_same(
    seed: int, tokens: bool, preset: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("calibration") / "saved.safetensors"
    fitted = Calibration.fit(drawn_evidence(seed, tokens=tokens), preset)
    fitted.save(path)
    loaded = Calibration.load(path)
    for name, value in vars(fitted).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(loaded, name), value)
        else:
            assert getattr(loaded, name) == value


def test_the_file_says_what_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "saved.safetensors"
    fitted_with_settings(identifiers="letters").save(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    read = {name: json.loads(metadata[name]) for name in ("model", "revision", "n", "identifiers")}
    assert read == {
        "model": "tiny",
        "revision": "abc",
        "n": 4,
        "identifiers": ["A", "B", "C", "D"],
    }
    assert json.loads(metadata["layers"]) == [0, 1, 2, 3, 4, 5]
    assert json.loads(metadata["samples"]) == [f"instance-{m}" for m in range(5)]
    assert json.loads(metadata["settings"])["dtype"] == "float32"
    assert len(json.loads(metadata["prompt_hash"])) == 16
    assert Calibration.load(path).settings == replace(SETTINGS, identifiers="letters")


def test_the_prompt_hash_changes_with_the_words_alone() -> None:
    assert prompt_hash(SETTINGS) == prompt_hash(replace(SETTINGS, model="other", dtype=None))
    changed = [
        replace(SETTINGS, trailing_space=True),
        replace(SETTINGS, prompt="instruction"),
        replace(SETTINGS, identifiers="letters"),
        replace(SETTINGS, labelled=True),
        replace(SETTINGS, system="Be brief."),
    ]
    assert len({prompt_hash(settings) for settings in (SETTINGS, *changed)}) == 6


def test_saving_where_no_file_can_be_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        fitted_with_settings().save(tmp_path / "no such folder" / "a.safetensors")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.safetensors: there is no such file"):
        Calibration.load(tmp_path / "absent.safetensors")


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.safetensors"
    fitted_with_settings().save(path)
    whole = path.read_bytes()
    for length in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"no whole \.safetensors file"):
            Calibration.load(path)


def test_weights_of_a_model_are_no_calibration(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"weight": np.zeros(3)}, path)
    with pytest.raises(InputError, match="is no calibration of this version"):
        Calibration.load(path)


def tampered(path: Path, arrays: dict[str, Any], metadata: dict[str, str]) -> None:
    """Write the file anew with some arrays and metadata replaced; None leaves one out."""
    fitted_with_settings().save(path)
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    header = json.loads(path.read_bytes()[8 : 8 + length])
    kept = {k: v for k, v in (load_file(path) | arrays).items() if v is not None}
    save_file(kept, path, metadata=header["__metadata__"] | metadata)


@pytest.mark.parametrize(
    ("arrays", "metadata", "reason"),
    [
        ({"log_observed": None}, {}, "'log_observed' is missing"),
        ({"log_observed": np.zeros((4, 3))}, {}, r"log_observed is float64 \(4, 3\)"),
        ({"attention_prior": np.zeros((5, 4))}, {}, r"attention_prior is float64 \(5, 4\)"),
        ({"original_prior": np.zeros(4, dtype=np.float32)}, {}, "original_prior is float32"),
        ({"mean_log_probs": np.full((4, 4), np.nan)}, {}, "mean_log_probs holds a value"),
        ({}, {"layers": "[1, 2"}, "cannot be read"),
        ({}, {"layers": "7"}, "cannot be read"),
        ({}, {"preset": "mine"}, "unknown preset 'mine'"),
        ({}, {"settings": '{"colour": "red"}'}, "no field 'colour'"),
        ({}, {"format": "lookright calibration 999"}, "is no calibration of this version"),
    ],
)
def test_a_file_that_was_changed_is_refused(
    tmp_path: Path, arrays: dict[str, Any], metadata: dict[str, str], reason: str
) -> None:
    path = tmp_path / "changed.safetensors"
    tampered(path, arrays, metadata)
    with pytest.raises(InputError, match=reason) as refusal:
        Calibration.load(path)
    assert "changed.safetensors" in str(refusal.value)


# In words ------------------------------------------------------------------------------------


def test_the_explanation_shows_gamma_the_matrices_and_the_heaviest_layers() -> None:
    text = fitted_with_settings(identifiers="letters").explain()
    fitted = fitted_with_settings(identifiers="letters")
    assert f"gamma = {fitted.gamma:,.4f}" in text
    assert "model tiny at abc" in text
    assert "4 candidates from 5 samples" in text
    row = "".join(f"{100 * math.exp(value):8.2f}" for value in fitted.log_observed[2])
    assert f"C{row}\n" in text
    row = "".join(f"{value:8.2f}" for value in fitted.log_bias()[3])
    assert f"D{row}\n" in text
    heaviest = int(fitted.attention_prior.sum(axis=1).argmax())
    assert f"highest: {heaviest} (" in text


def test_the_explanation_shows_the_bias_of_its_preset() -> None:
    fitted = Calibration.fit(drawn_evidence(2), "released")
    row = "".join(f"{value:8.2f}" for value in fitted.log_bias("geometric", "margin")[0])
    assert row in fitted.explain()


@pytest.mark.parametrize(
    ("probabilities", "advice"),
    [
        ([0.2, 0.4, 0.4], "carry no signal"),
        ([0.4, 0.3, 0.3], "know little"),
        ([0.98, 0.01, 0.01], "may be good enough"),
    ],
)
def test_the_explanation_says_how_much_the_logits_know(
    probabilities: list[float], advice: str
) -> None:
    own, *others = probabilities
    rows = [np.insert(others, position, own) for position in (0, 2, 1)]
    evidence = evidence_of(np.log(rows)[:, None])
    if own < max(others):
        with pytest.warns(EvidenceWarning):
            text = Calibration.fit(evidence).explain()
    else:
        text = Calibration.fit(evidence).explain()
    assert advice in text.replace("\n", " ")
    assert "No attention was recorded" in text
    assert "Calibration for 3 candidates from 1 sample\n" in text


def test_the_explanation_names_the_positions_at_which_another_is_likelier() -> None:
    observed = np.log([[0.9, 0.05, 0.05], [0.6, 0.35, 0.05], [0.6, 0.1, 0.3]])
    text = Calibration.fit(evidence_of(observed[[0, 2, 1]][:, None])).explain().replace("\n", " ")
    assert "with the target at 2, 3 another position is likelier" in text
