"""The methods: each equation by hand or by plain loops, and what must never change a decision."""

from __future__ import annotations

import inspect
import math
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lookright.calibration import Calibration
from lookright.errors import EvidenceWarning, InputError
from lookright.evidence import EvidenceArray
from lookright.instance import cyclic_orders, random_orders
from lookright.methods import METHODS
from lookright.methods.lad import expected_bias
from lookright.methods.parameters import CHECKS, from_assignments
from lookright.methods.permutation_average import base_orders
from lookright.methods.posterior import allowed_layers, heaviest_layers, log_posterior
from lookright.presets import PRESETS
from made_evidence import (
    drawn_evidence,
    evaluated_and_calibration,
    evidence_of,
    normalised,
)
from plain_loops import paper_lad, released_lad

seeds = st.integers(0, 2**32 - 1)
Array = np.ndarray[Any, Any]


def calibration_of(
    observed: Any, prior: Any, preset: str = "paper", layers: tuple[int, ...] | None = None
) -> Calibration:
    """A calibration with these probabilities and this attention prior."""
    log_observed = np.log(np.asarray(observed, dtype=np.float64))
    prior = np.asarray(prior, dtype=np.float64)
    return Calibration(
        log_observed=log_observed,
        mean_log_probs=log_observed,
        original_prior=normalised(log_observed.mean(axis=0)),
        attention_prior=prior,
        token_attention_prior=None,
        layers=tuple(range(len(prior))) if layers is None else layers,
        samples=("a",),
        preset=preset,
    )


def one(log_probs: Any, attention: Any, layers: tuple[int, ...] | None = None) -> EvidenceArray:
    """Evidence of one order of one instance."""
    return evidence_of(
        np.asarray(log_probs)[None, None], np.asarray(attention)[None, None], layers=layers
    )


def softmax(scores: Array) -> Array:
    return np.exp(normalised(scores))


# Against plain loops -------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("tau", [0.5, 5.0])
@pytest.mark.parametrize("seed", range(4))
def test_lad_is_what_plain_loops_make_of_the_equations(seed: int, k: int, tau: float) -> None:
    evidence, samples = evaluated_and_calibration(seed, n=3)
    scores = METHODS["lad"](evidence, Calibration.fit(samples), k=k, tau=tau)
    for p in range(3):
        for m in range(7):
            wanted = paper_lad(
                evidence.log_probs[p, m].tolist(),
                evidence.attention[p, m].tolist(),
                samples,
                k,
                tau,
            )
            np.testing.assert_allclose(scores[p, m], wanted, rtol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_released_lad_is_what_plain_loops_make_of_it(seed: int) -> None:
    evidence, samples = evaluated_and_calibration(seed, n=3)
    numbers = (5, 20, 21, 30, 35, 36)
    evidence, samples = replace(evidence, layers=numbers), replace(samples, layers=numbers)
    scores = METHODS["lad"](evidence, Calibration.fit(samples, "released"))
    for p in range(3):
        for m in range(7):
            wanted = released_lad(
                evidence.log_probs[p, m].tolist(), evidence.attention[p, m].tolist(), samples
            )
            np.testing.assert_allclose(scores[p, m], wanted, rtol=1e-9)


def test_each_preset_difference_is_a_choice_of_its_own() -> None:
    evidence, samples = evaluated_and_calibration(1)
    evidence = replace(evidence, layers=(20, 21, 22, 23, 24, 25))
    paper = Calibration.fit(replace(samples, layers=evidence.layers))
    released = replace(paper, preset="released")
    chosen = PRESETS["released"]["lad"]
    np.testing.assert_array_equal(
        METHODS["lad"](evidence, paper, **chosen), METHODS["lad"](evidence, released)
    )
    usual = METHODS["lad"](evidence, paper)
    for name, value in chosen.items():
        if name != "bias":  # with a gain above 1 it shifts all scores by one constant
            assert not np.allclose(METHODS["lad"](evidence, paper, **{name: value}), usual)


# Each equation by hand -----------------------------------------------------------------------


def test_the_layers_of_largest_mass_are_chosen_for_each_instance() -> None:
    attention = np.array(
        [[[0.1, 0.1], [0.3, 0.2], [0.2, 0.2], [0.0, 0.41]], [[0.9, 0], [0.1, 0], [0.2, 0], [0, 0]]]
    )[None]  # [1, 2, 4, 2]; masses .2 .5 .4 .41 and .9 .1 .2 0
    seen = np.ones((1, 2, 4), dtype=bool)
    assert heaviest_layers(attention, seen, 2).tolist() == [[[1, 3], [0, 2]]]  # equations 8, 9
    assert heaviest_layers(attention, seen, 3).tolist() == [[[1, 3, 2], [0, 2, 1]]]


def test_of_layers_with_equal_mass_the_lower_comes_first() -> None:
    attention = np.full((1, 1, 20, 2), 0.25)
    attention[0, 0, 7] = 0.3
    seen = np.ones((1, 1, 20), dtype=bool)
    assert heaviest_layers(attention, seen, 3).tolist() == [[[7, 0, 1]]]


def test_a_mass_is_summed_exactly_however_coarse_the_recording() -> None:
    attention = np.array([[0.5, 2**-13], [0.5, 2**-12]], dtype=np.float16)[None, None]
    seen = np.ones((1, 1, 2), dtype=bool)
    assert heaviest_layers(attention, seen, 1).tolist() == [[[1]]]  # equal, if summed in float16


def test_the_posterior_is_the_mean_log_ratio_over_the_chosen_layers() -> None:
    calibration = calibration_of(np.full((2, 2), 0.5), [[0.1, 0.2], [0.2, 0.1], [0.5, 0.4]])
    evidence = one([0.0, 0.0], [[0.1, 0.1], [0.4, 0.2], [0.3, 0.5]])  # layers 2 and 1 are chosen
    got = log_posterior(
        evidence, calibration, k=2, layers="all", reduce="sum", aggregate="ratios"
    )  # equation 11
    wanted = [(math.log(0.4 / 0.2) + math.log(0.3 / 0.5)) / 2, (math.log(2) + math.log(1.25)) / 2]
    np.testing.assert_allclose(got[0, 0], wanted, rtol=1e-12)


def test_the_released_posterior_averages_before_the_logarithm() -> None:
    calibration = calibration_of(np.full((2, 2), 0.5), [[0.1, 0.2], [0.2, 0.1], [0.5, 0.4]])
    evidence = one([0.0, 0.0], [[0.1, 0.1], [0.4, 0.2], [0.3, 0.5]])
    got = log_posterior(evidence, calibration, k=2, layers="all", reduce="sum", aggregate="means")
    wanted = [
        math.log(0.35) - (math.log(0.2) + math.log(0.5)) / 2,
        math.log(0.35) - (math.log(0.1) + math.log(0.4)) / 2,
    ]
    np.testing.assert_allclose(got[0, 0], wanted, rtol=1e-12)


def test_purified_attention_is_the_posterior_sharpened_by_tau() -> None:
    calibration = calibration_of(np.full((2, 2), 0.5), [[0.1, 0.2]])
    scores = METHODS["purified_attention"](one([0.0, 0.0], [[0.2, 0.3]]), calibration, k=1, tau=3)
    pi = np.array([(0.2 / 0.1) ** 3, (0.3 / 0.2) ** 3])  # equation 12
    np.testing.assert_allclose(softmax(scores[0, 0]), pi / pi.sum(), rtol=1e-12)


def test_the_temperature_is_5_unless_another_is_given() -> None:
    calibration = calibration_of(np.full((2, 2), 0.5), [[0.1, 0.2]])
    scores = METHODS["purified_attention"](one([0.0, 0.0], [[0.2, 0.3]]), calibration, k=1)
    np.testing.assert_allclose(scores[0, 0], [5 * math.log(2), 5 * math.log(1.5)], rtol=1e-12)


@pytest.mark.parametrize("aggregate", ["ratios", "means"])
def test_purified_attention_over_several_layers_is_of_the_posterior_asked_for(
    aggregate: str,
) -> None:
    evidence, samples = evaluated_and_calibration(6)
    fitted = Calibration.fit(samples)
    given = {"k": 3, "layers": "1:", "reduce": "sum", "aggregate": aggregate}
    np.testing.assert_array_equal(
        METHODS["purified_attention"](evidence, fitted, tau=2.0, **given),
        2.0 * log_posterior(evidence, fitted, **given),
    )


def test_the_expected_bias_mixes_the_rows_of_the_matrix_by_the_posterior() -> None:
    bias = np.array([[0.1, 0.7], [0.3, 0.2]])
    log_pi = np.log([[[0.9, 0.1]]])  # equation 13: over targets k, for each answer j
    got = expected_bias(log_pi, np.log(bias), "arithmetic")
    np.testing.assert_allclose(np.exp(got[0, 0]), [0.9 * 0.1 + 0.1 * 0.3, 0.9 * 0.7 + 0.1 * 0.2])
    got = expected_bias(log_pi, np.log(bias), "geometric")
    np.testing.assert_allclose(np.exp(got[0, 0]), [0.1**0.9 * 0.3**0.1, 0.7**0.9 * 0.2**0.1])


def test_the_expected_bias_does_not_underflow() -> None:
    bias = np.array([[-2000.0, -2010.0], [-3000.0, -1.0]])
    log_pi = np.array([[[0.0, -np.inf]]])
    got = expected_bias(log_pi, bias, "arithmetic")
    np.testing.assert_allclose(got[0, 0], [-2000, -2010])


def test_lad_takes_the_expected_bias_off_the_log_probabilities() -> None:
    observed = [[0.6, 0.4], [0.5, 0.5]]
    calibration = calibration_of(observed, [[0.1, 0.1]])
    scores = METHODS["lad"](one(np.log([0.7, 0.3]), [[0.2, 0.2]]), calibration, k=1)
    gamma = 0.6 / 0.4
    bias = np.array([[0.6 / gamma, 0.4], [0.5, 0.5 / gamma]]).mean(axis=0)  # pi is even
    np.testing.assert_allclose(scores[0, 0], np.log([0.7, 0.3]) - np.log(bias), rtol=1e-12)  # eq 14


def test_pride_takes_one_prior_off_every_question() -> None:
    evidence, samples = evaluated_and_calibration(0)
    fitted = Calibration.fit(samples)
    for estimator, prior in (
        ("mean", fitted.label_free_prior),
        ("original", fitted.original_prior),
        ("bias", fitted.log_bias("geometric", "margin").mean(axis=0)),
    ):
        np.testing.assert_array_equal(
            METHODS["pride"](evidence, fitted, estimator=estimator), evidence.log_probs - prior
        )


def test_vanilla_is_what_the_model_says() -> None:
    evidence, _ = evaluated_and_calibration(0)
    np.testing.assert_array_equal(METHODS["vanilla"](evidence), evidence.log_probs)


def test_raw_attention_is_the_mean_mass_over_the_chosen_layers() -> None:
    evidence = one([0.0, 0.0], [[0.1, 0.1], [0.4, 0.2], [0.1, 0.5]])
    scores = METHODS["raw_attention"](evidence)
    np.testing.assert_allclose(np.exp(scores[0, 0]), [0.25, 0.35], rtol=1e-12)
    scores = METHODS["raw_attention"](evidence, k="all")
    np.testing.assert_allclose(np.exp(scores[0, 0]), [0.2, 0.8 / 3], rtol=1e-12)


def test_without_its_prior_lad_reads_the_bare_attention() -> None:
    calibration = calibration_of([[0.6, 0.4], [0.5, 0.5]], [[0.1, 0.3], [0.2, 0.2]])
    evidence = one(np.log([0.7, 0.3]), [[0.2, 0.1], [0.1, 0.3]])
    bare = replace(calibration, attention_prior=np.ones((2, 2)))
    np.testing.assert_allclose(
        METHODS["lad"](evidence, calibration, prior=False), METHODS["lad"](evidence, bare)
    )
    assert not np.allclose(
        METHODS["lad"](evidence, calibration, prior=False), METHODS["lad"](evidence, calibration)
    )


def test_the_mean_over_tokens_is_one_division_away() -> None:
    evidence, samples = evaluated_and_calibration(3, tokens=True)
    assert evidence.image_tokens is not None
    assert samples.image_tokens is not None
    by_token = replace(evidence, attention=evidence.attention / evidence.image_tokens[:, :, None])
    calibrated_by_token = Calibration.fit(
        replace(samples, attention=samples.attention / samples.image_tokens[:, :, None])
    )
    for name in ("lad", "purified_attention", "raw_attention"):
        np.testing.assert_allclose(
            METHODS[name](evidence, Calibration.fit(samples), reduce="mean"),
            METHODS[name](by_token, calibrated_by_token),
            rtol=1e-9,
        )


# The facts of the page on the method ---------------------------------------------------------


def test_uninformative_attention_makes_the_correction_static() -> None:
    evidence, samples = evaluated_and_calibration(2)
    fitted = Calibration.fit(samples)
    as_prior = np.broadcast_to(fitted.attention_prior, evidence.attention.shape)
    scores = METHODS["lad"](replace(evidence, attention=0.5 * as_prior), fitted)
    static = np.log(np.exp(fitted.log_bias()).mean(axis=0))
    np.testing.assert_allclose(scores, evidence.log_probs - static, rtol=1e-9)


def matrices(n: int) -> st.SearchStrategy[Array]:
    """Observed matrices in which some position is said more often when the target stands there."""
    rows = st.lists(st.floats(-5, 5), min_size=n * n, max_size=n * n)
    return rows.map(lambda values: normalised(np.reshape(values, (n, n))))


@given(log_observed=matrices(4), target=st.integers(0, 3))
def test_gamma_makes_the_target_win_where_attention_is_sure_of_it(
    log_observed: Array, target: int
) -> None:
    calibration = calibration_of(np.exp(log_observed), np.full((1, 4), 0.1))
    assume(calibration.log_gamma > 1e-6)
    attention = np.full((1, 4), 1e-8)
    attention[0, target] = 0.9
    scores = METHODS["lad"](one(log_observed[target], attention), calibration, k=1, tau=50)
    assert scores[0, 0].argmax() == target
    margins = np.delete(scores[0, 0, target] - scores[0, 0], target)
    np.testing.assert_allclose(margins, calibration.log_gamma, rtol=1e-6)


def test_with_a_gain_of_1_sure_attention_leaves_a_tie() -> None:
    observed = [[0.25, 0.75], [0.75, 0.25]]
    attention = [[1e-8, 0.9]]
    scores = METHODS["lad"](
        one(np.log(observed[1]), attention), calibration_of(observed, [[0.1, 0.1]]), k=1, tau=50
    )
    np.testing.assert_allclose(scores[0, 0], 0, atol=1e-12)


@given(seed=seeds, scale=st.floats(0.01, 100))
def test_more_attention_on_everything_changes_no_posterior(seed: int, scale: float) -> None:
    evidence, samples = evaluated_and_calibration(seed)
    fitted = Calibration.fit(samples)
    scaled = replace(evidence, attention=evidence.attention * scale)
    for name in ("lad", "purified_attention"):
        np.testing.assert_allclose(
            softmax(METHODS[name](scaled, fitted)),
            softmax(METHODS[name](evidence, fitted)),
            rtol=1e-6,
            atol=1e-12,
        )


@given(seed=seeds)
def test_the_released_pride_and_the_label_free_one_decide_alike(seed: int) -> None:
    evidence, samples = evaluated_and_calibration(seed)
    fitted = Calibration.fit(samples)
    difference = METHODS["pride"](evidence, fitted) - METHODS["pride"](
        evidence, replace(fitted, preset="released")
    )
    np.testing.assert_allclose(difference, difference[0, 0, 0], rtol=1e-9, atol=1e-9)


@given(seed=seeds, shift=st.floats(-50, 50), preset=st.sampled_from(sorted(PRESETS)))
def test_a_constant_on_the_logits_of_a_sample_changes_no_decision(
    seed: int, shift: float, preset: str
) -> None:
    evidence, samples = evaluated_and_calibration(seed)
    evidence = replace(evidence, layers=tuple(range(21, 27)))
    samples = replace(samples, layers=evidence.layers)
    logits = samples.log_probs.copy()
    logits[1, 2] += shift
    shifted = Calibration.fit(replace(samples, log_probs=normalised(logits)), preset)
    fitted = Calibration.fit(samples, preset)
    for name, method in METHODS.items():
        if not method.over_shifts:
            np.testing.assert_allclose(
                method(evidence, shifted), method(evidence, fitted), atol=1e-8, err_msg=name
            )


@given(seed=seeds, preset=st.sampled_from(sorted(PRESETS)))
def test_new_names_for_the_images_change_no_score(seed: int, preset: str) -> None:
    evidence, samples = evaluated_and_calibration(seed)
    evidence = replace(evidence, layers=tuple(range(21, 27)))
    fitted = Calibration.fit(replace(samples, layers=evidence.layers), preset)
    names = np.random.default_rng(seed).permutation(4)
    renamed = replace(evidence, orders=names[evidence.orders], targets=names[evidence.targets])
    for method in METHODS.values():
        if not method.over_shifts:
            np.testing.assert_array_equal(method(renamed, fitted), method(evidence, fitted))


@given(seed=seeds)
def test_instances_are_scored_one_by_one(seed: int) -> None:
    evidence, samples = evaluated_and_calibration(seed)
    fitted = Calibration.fit(samples)
    part = evidence.take(orders=[1], instances=[4, 2])
    for method in METHODS.values():
        if not method.over_shifts:
            np.testing.assert_allclose(
                method(part, fitted), method(evidence, fitted)[[1]][:, [4, 2]], rtol=1e-12
            )


@given(seed=seeds)
def test_the_softmax_of_the_scores_is_a_distribution(seed: int) -> None:
    evidence, samples = evaluated_and_calibration(seed)
    fitted = Calibration.fit(samples)
    for method in METHODS.values():
        shown = samples if method.over_shifts else evidence
        scores = method(shown, fitted)
        assert scores.dtype == np.float64
        assert np.isfinite(scores).all()
        np.testing.assert_allclose(softmax(scores).sum(axis=-1), 1, rtol=1e-12)


@given(seed=seeds)
def test_float32_and_float16_recordings_are_computed_with_in_float64(seed: int) -> None:
    evidence, samples = evaluated_and_calibration(seed)
    fitted = Calibration.fit(samples)
    coarse = replace(
        evidence,
        log_probs=evidence.log_probs.astype(np.float16),
        attention=evidence.attention.astype(np.float16),
    )
    same = replace(
        evidence,
        log_probs=coarse.log_probs.astype(np.float64),
        attention=coarse.attention.astype(np.float64),
    )
    for method in METHODS.values():
        if not method.over_shifts:
            np.testing.assert_array_equal(method(coarse, fitted), method(same, fitted))


# Layers that cannot see an image -------------------------------------------------------------

BLIND = [[0.9, 0.0], [0.1, 0.2], [0.2, 0.2]]  # the heaviest layer does not see the second image


def blind_case() -> tuple[EvidenceArray, Calibration]:
    calibration = calibration_of([[0.6, 0.4], [0.5, 0.5]], [[0.1, 0.2], [0.2, 0.1], [0.3, 0.1]])
    return one(np.log([0.7, 0.3]), BLIND), calibration


@pytest.mark.parametrize("name", ["lad", "purified_attention", "raw_attention"])
@pytest.mark.parametrize("k", [2, 3, "all"])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_layer_that_does_not_see_an_image_is_left_out(name: str, k: Any, preset: str) -> None:
    evidence, calibration = blind_case()
    given = {"k": k, "layers": "all"}
    without = replace(evidence, attention=evidence.attention[:, :, 1:], layers=(1, 2))
    there = replace(calibration, attention_prior=calibration.attention_prior[1:], layers=(1, 2))
    np.testing.assert_allclose(
        METHODS[name](evidence, replace(calibration, preset=preset), **given),
        METHODS[name](without, replace(there, preset=preset), k="all", layers="all"),
    )


@pytest.mark.parametrize("name", ["lad", "purified_attention"])
@pytest.mark.parametrize("k", [2, "all"])
def test_a_layer_whose_prior_never_saw_a_position_is_left_out(name: str, k: Any) -> None:
    evidence = one(np.log([0.7, 0.3]), [[0.5, 0.4], [0.1, 0.2], [0.2, 0.2]])
    _, calibration = blind_case()
    prior = calibration.attention_prior.copy()
    prior[0] = [0.3, 0.0]
    blind = replace(calibration, attention_prior=prior)
    there = replace(calibration, attention_prior=prior[1:], layers=(1, 2))
    without = replace(evidence, attention=evidence.attention[:, :, 1:], layers=(1, 2))
    np.testing.assert_allclose(
        METHODS[name](evidence, blind, k=k), METHODS[name](without, there, k="all")
    )


def test_a_layer_may_be_blind_for_one_instance_and_not_for_another() -> None:
    evidence, calibration = blind_case()
    seeing = np.array([[0.9, 0.3], [0.1, 0.2], [0.2, 0.2]])
    both = evidence_of(
        np.log([[[0.7, 0.3], [0.7, 0.3]]]), np.array([[BLIND, seeing]]), targets=[0, 0]
    )
    scores = METHODS["lad"](both, calibration, k=1)
    np.testing.assert_array_equal(scores[:, :1], METHODS["lad"](evidence, calibration, k=1))
    np.testing.assert_array_equal(
        scores[:, 1:], METHODS["lad"](one(np.log([0.7, 0.3]), seeing), calibration, k=1)
    )


@pytest.mark.parametrize("k", [1, 2, "all"])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_where_no_layer_sees_every_image_the_posterior_is_even_and_said_to_be(
    k: Any, preset: str
) -> None:
    _, calibration = blind_case()
    calibration = replace(calibration, preset=preset)
    evidence = one(np.log([0.7, 0.3]), [[0.9, 0.0], [0.0, 0.2], [0.0, 0.0]])
    said = (
        r"^1 of 1 decisions: no layer \(of layers=all\) sees every image, so the attention speaks "
        "for all of them equally$"
    )
    with pytest.warns(EvidenceWarning, match=said):
        scores = METHODS["purified_attention"](evidence, calibration, k=k, layers="all")
    np.testing.assert_array_equal(scores, 0)
    with pytest.warns(EvidenceWarning):
        assert (METHODS["raw_attention"](evidence, calibration, k=k, layers="all") == 0).all()


def test_a_model_with_no_layer_in_the_released_range_has_an_even_posterior() -> None:
    evidence, samples = evaluated_and_calibration(0)
    fitted = Calibration.fit(samples, "released")
    with pytest.warns(EvidenceWarning, match=r"21 of 21 decisions: no layer \(of layers=21:36\)"):
        scores = METHODS["lad"](evidence, fitted)
    static = fitted.log_bias("geometric", "margin").mean(axis=0)
    np.testing.assert_allclose(scores, evidence.log_probs - static, rtol=1e-9)


def test_fewer_layers_in_the_range_than_k_are_all_used() -> None:
    evidence, samples = evaluated_and_calibration(0)
    numbers = (0, 1, 2, 21, 36, 37)
    evidence = replace(evidence, layers=numbers)
    fitted = Calibration.fit(replace(samples, layers=numbers), "released")
    np.testing.assert_array_equal(
        METHODS["lad"](evidence, fitted), METHODS["lad"](evidence, fitted, k=1)
    )


@pytest.mark.parametrize(("tiny", "as_if"), [(1e-12, 1e-8), (1e-8, 1e-8), (2e-8, 2e-8)])
def test_attention_is_floored_inside_the_logarithm(tiny: float, as_if: float) -> None:
    calibration = calibration_of(np.full((2, 2), 0.5), [[0.5, 0.5]])
    scores = METHODS["purified_attention"](one([0.0, 0.0], [[0.5, tiny]]), calibration, k=1, tau=1)
    np.testing.assert_allclose(scores[0, 0], [0, math.log(as_if / 0.5)], rtol=1e-12)


def test_the_floor_does_not_touch_the_choice_of_layers() -> None:
    attention = np.array([[4e-9, 5e-9], [3e-9, 5e-9]])[None, None]  # all below the floor
    assert heaviest_layers(attention, np.ones((1, 1, 2), dtype=bool), 1).tolist() == [[[0]]]
    attention = attention[:, :, ::-1]
    assert heaviest_layers(attention, np.ones((1, 1, 2), dtype=bool), 1).tolist() == [[[1]]]


# Allowed layers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("all", [0, 1, 2, 3]),
        ("21:36", [1, 2]),
        ("20:21", [0]),
        ("21:", [1, 2, 3]),
        (":21", [0]),
        (":", [0, 1, 2, 3]),
        ("36,20", [0, 3]),
        ("4", []),
    ],
)
def test_layers_are_named_by_the_decoders_own_numbers(spec: str, found: list[int]) -> None:
    assert allowed_layers(spec, (20, 21, 35, 36)) == found


def test_a_range_without_a_start_begins_at_layer_0() -> None:
    assert allowed_layers(":2", (0, 1, 2)) == [0, 1]
    assert METHODS["lad"].parameters("paper", {"layers": ":1"})["layers"] == ":1"
    with pytest.raises(InputError, match="is an empty range"):
        METHODS["lad"].parameters("paper", {"layers": ":0"})


def test_layers_not_allowed_are_as_if_they_were_not_there() -> None:
    evidence, samples = evaluated_and_calibration(5)
    numbers = (3, 7, 11, 15, 19, 23)  # a hybrid decoder's attention layers
    evidence, samples = replace(evidence, layers=numbers), replace(samples, layers=numbers)
    kept = [1, 2, 4]
    part = replace(evidence, attention=evidence.attention[:, :, kept], layers=(7, 11, 19))
    fitted_to_part = Calibration.fit(
        replace(samples, attention=samples.attention[:, :, kept], layers=(7, 11, 19))
    )
    np.testing.assert_array_equal(
        METHODS["lad"](evidence, Calibration.fit(samples), layers=(7, 11, 19)),
        METHODS["lad"](part, fitted_to_part),
    )


# Permutation averaging -----------------------------------------------------------------------


def test_permutation_averaging_maps_positions_back_to_images() -> None:
    log_probs = np.log(
        [[[0.5, 0.3, 0.2]], [[0.1, 0.2, 0.7]], [[0.6, 0.3, 0.1]]]
    )  # shift s shows image k + s at position k
    scores = METHODS["permutation_average"](evidence_of(log_probs))
    wanted = np.log([0.5 * 0.7 * 0.3, 0.3 * 0.1 * 0.1, 0.2 * 0.2 * 0.6]) / 3
    np.testing.assert_allclose(scores, wanted[None, None], rtol=1e-12)


def test_the_rows_of_the_shifts_may_stand_in_any_order_among_others() -> None:
    shown = [*cyclic_orders(4), *random_orders(4, 3, 0)]
    made = drawn_evidence(0, orders=shown)
    mixed = made.take(orders=[5, 2, 0, 4, 3, 1])
    np.testing.assert_array_equal(
        METHODS["permutation_average"](mixed), METHODS["permutation_average"](made)
    )


@given(seed=seeds)
def test_permutation_averaging_cannot_tell_positions(seed: int) -> None:
    made = drawn_evidence(seed)
    habit = np.random.default_rng(seed).standard_normal(4)  # by position, the same in all orders
    biased = replace(made, log_probs=normalised(made.log_probs + habit))
    np.testing.assert_allclose(
        softmax(METHODS["permutation_average"](biased)),
        softmax(METHODS["permutation_average"](made)),
        rtol=1e-9,
    )


@given(seed=seeds, shift=st.integers(0, 3))
def test_counting_the_images_from_another_one_turns_the_scores(seed: int, shift: int) -> None:
    made = drawn_evidence(seed)
    turned = replace(made, orders=(made.orders + shift) % 4)
    np.testing.assert_allclose(
        METHODS["permutation_average"](turned),
        np.roll(METHODS["permutation_average"](made), shift, axis=-1),
        rtol=1e-12,
    )


def test_over_all_orders_each_class_of_shifts_decides_by_itself() -> None:
    base = (2, 0, 1, 3)
    turned = [base[s:] + base[:s] for s in range(4)]
    shown = [turned[1], *cyclic_orders(4)[::-1], turned[3], turned[0], turned[2]]
    made = drawn_evidence(8, orders=shown)
    scores = METHODS["permutation_average"](made, orders="all")
    assert scores.shape == (2, 5, 4)
    orders = base_orders(made, "all")
    assert [tuple(orders[t, 0]) for t in (0, 1)] == [turned[1], (3, 0, 1, 2)]  # as first met
    by_image = METHODS["permutation_average"](made)[0]  # of the cyclic class
    for m in range(5):
        np.testing.assert_allclose(scores[1, m], by_image[m][orders[1, m]], rtol=1e-12)
    own = np.zeros((5, 4))
    for row in (0, 5, 6, 7):
        for m in range(5):
            own[m, list(shown[row])] += made.log_probs[row, m] / 4
    for m in range(5):
        np.testing.assert_allclose(scores[0, m], own[m][list(turned[1])], rtol=1e-12)


def test_of_all_orders_the_cyclic_one_is_the_instances_own() -> None:
    made = drawn_evidence(0, orders=[*random_orders(4, 24, 0)])
    orders = base_orders(made, "cyclic")
    np.testing.assert_array_equal(orders, np.broadcast_to(np.arange(4), (1, 5, 4)))
    assert len(base_orders(made, "all")) == 6


def test_an_exact_zero_vetoes_no_image() -> None:
    with np.errstate(divide="ignore"):
        log_probs = np.log([[[1.0, 0.0]], [[0.0, 1.0]]])
    scores = METHODS["permutation_average"](evidence_of(log_probs))
    np.testing.assert_allclose(scores[0, 0], [0, math.log(1e-30)])


def test_a_missing_shift_is_named() -> None:
    with pytest.raises(
        InputError, match=r"instance 'instance-0' has no evidence of \[3, 0, 1, 2\]"
    ):
        METHODS["permutation_average"](drawn_evidence(0).take(orders=slice(0, 3)))
    made = drawn_evidence(0, orders=[*cyclic_orders(4), (1, 0, 2, 3)])
    with pytest.raises(InputError, match="all 4 cyclic shifts of the order"):
        METHODS["permutation_average"](made, orders="all")


def test_instances_with_different_numbers_of_classes_do_not_mix() -> None:
    base = (1, 0, 2, 3)
    turned = [base[s:] + base[:s] for s in range(4)]
    one_class = np.array([*cyclic_orders(4), *cyclic_orders(4)])
    two_classes = np.array([*cyclic_orders(4), *turned])
    orders = np.stack([one_class, two_classes], axis=1)  # [8, 2, 4]
    evidence = evidence_of(normalised(np.zeros((8, 2, 4))), orders=orders)
    said = (
        "^permutation_average with orders=all: the instances have different numbers of orders with "
        "all their shifts; take instances with equally many$"
    )
    with pytest.raises(InputError, match=said):
        METHODS["permutation_average"](evidence, orders="all")


# Parameters and names ------------------------------------------------------------------------


def test_every_parameter_of_every_method_has_a_check_and_a_fit_default() -> None:
    for name, method in METHODS.items():
        assert name == method.name
        for preset in PRESETS:
            chosen = method.parameters(preset)
            assert chosen.keys() == method.defaults.keys() <= CHECKS.keys()
            keywords = set(inspect.signature(method.function).parameters)
            assert keywords == {"evidence", "calibration", *chosen}


def test_the_methods_of_the_paper_are_there() -> None:
    assert list(METHODS) == [
        "vanilla",
        "pride",
        "raw_attention",
        "purified_attention",
        "lad",
        "permutation_average",
    ]
    calibrated = {name for name, method in METHODS.items() if method.calibrated}
    assert calibrated == {"pride", "purified_attention", "lad"}
    reading = {name for name, method in METHODS.items() if method.reads_attention}
    assert reading == {"raw_attention", "purified_attention", "lad"}
    over_shifts = {name for name, method in METHODS.items() if method.over_shifts}
    assert over_shifts == {"permutation_average"}


def test_the_defaults_are_those_of_the_paper() -> None:
    assert METHODS["lad"].parameters() == {
        "k": 2,
        "tau": 5.0,
        "prior": True,
        "layers": "all",
        "reduce": "sum",
        "aggregate": "ratios",
        "mean": "arithmetic",
        "bias": "gamma",
        "mixture": "arithmetic",
    }


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_function_called_by_itself_is_the_papers(name: str) -> None:
    evidence, samples = evaluated_and_calibration(0)
    if METHODS[name].over_shifts:
        evidence = samples.take(orders=[2, 0, 3, 1])
    fitted = Calibration.fit(samples)
    np.testing.assert_array_equal(
        METHODS[name].function(evidence, fitted), METHODS[name](evidence, fitted)
    )


@pytest.mark.parametrize("name", ["raw_attention", "purified_attention"])
def test_attention_alone_is_read_as_lad_reads_it(name: str) -> None:
    for preset in PRESETS:
        in_lad = METHODS["lad"].parameters(preset)
        chosen = METHODS[name].parameters(preset)
        assert chosen == {parameter: in_lad[parameter] for parameter in chosen}


def test_what_is_given_goes_before_what_the_preset_chooses() -> None:
    chosen = METHODS["lad"].parameters("released", {"layers": "all", "k": 4})
    assert (chosen["layers"], chosen["k"], chosen["mixture"]) == ("all", 4, "geometric")


def test_an_unknown_method_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown method 'lda'; did you mean lad\?"):
        METHODS["lda"]
    with pytest.raises(InputError, match="unknown method 'zzz'; use vanilla, pride"):
        METHODS["zzz"]
    assert "lda" not in METHODS


def test_an_unknown_parameter_is_answered_with_the_nearest() -> None:
    evidence, samples = evaluated_and_calibration(0)
    with pytest.raises(InputError, match=r"lad has no parameter 'tua'; did you mean tau\?"):
        METHODS["lad"](evidence, Calibration.fit(samples), tua=3)
    with pytest.raises(InputError, match="vanilla has no parameter 'k'; it has none"):
        METHODS["vanilla"](evidence, k=3)


LAYERS = "must be 'all', layer numbers as in '3,7', or a range as in '21:36'"
EMPTY = "is an empty range (the end is not part of it)"
K = "must be a number of layers, 1 or more, or 'all'"


@pytest.mark.parametrize(
    ("method", "parameter", "value", "reason"),
    [
        ("lad", "k", 0, K),
        ("lad", "k", 2.0, K),
        ("lad", "k", True, K),
        ("lad", "k", "some", K),
        ("lad", "tau", 0, "must be above 0 and finite"),
        ("lad", "tau", -1.0, "must be above 0 and finite"),
        ("lad", "tau", math.inf, "must be above 0 and finite"),
        ("lad", "tau", math.nan, "must be above 0 and finite"),
        ("lad", "tau", 10**400, "must be above 0 and finite"),
        ("lad", "tau", "hot", "must be a number"),
        ("lad", "tau", True, "must be a number"),
        ("lad", "prior", 1, "must be true or false"),
        ("lad", "layers", "36:21", EMPTY),
        ("lad", "layers", "21:21", EMPTY),
        ("lad", "layers", "last", LAYERS),
        ("lad", "layers", (-1,), LAYERS),
        ("lad", "layers", (), LAYERS),
        ("lad", "layers", "\u0663", LAYERS),  # a digit, but none of ours
        ("lad", "layers", "\u0663:\u0665", LAYERS),
        ("lad", "reduce", "max", "must be sum or mean"),
        ("lad", "mixture", "harmonic", "must be arithmetic or geometric"),
        ("purified_attention", "aggregate", "sum", "must be ratios or means"),
        ("pride", "estimator", "mode", "must be mean or original or bias"),
        ("permutation_average", "orders", "random", "must be cyclic or all"),
    ],
)
def test_a_value_that_cannot_be_is_refused(
    method: str, parameter: str, value: Any, reason: str
) -> None:
    with pytest.raises(InputError) as refusal:
        METHODS[method].parameters("paper", {parameter: value})
    assert str(refusal.value).startswith(f"{method}.{parameter}={str(value)[:20]}")
    assert str(refusal.value).endswith(f": {reason}")


def test_the_temperature_may_be_as_large_as_a_float_can_be() -> None:
    assert METHODS["lad"].parameters("paper", {"tau": sys.float_info.max})["tau"] > 1e308


@pytest.mark.parametrize(
    ("value", "canonical"),
    [(range(21, 36), "21:36"), ((3, 7), "3,7"), ([3], "3"), (range(0, 6, 2), "0,2,4"), (7, "7")],
)
def test_layers_may_be_given_as_a_range_or_a_list(value: Any, canonical: str) -> None:
    assert METHODS["lad"].parameters("paper", {"layers": value})["layers"] == canonical


def test_more_layers_than_there_are_cannot_be_read() -> None:
    evidence, samples = evaluated_and_calibration(0)
    fitted = Calibration.fit(samples)
    with pytest.raises(InputError, match="k=7: the evidence has 6 layers"):
        METHODS["lad"](evidence, fitted, k=7)
    np.testing.assert_allclose(
        METHODS["lad"](evidence, fitted, k=6), METHODS["lad"](evidence, fitted, k="all"), rtol=1e-12
    )


def test_assignments_are_read_as_the_values_they_mean() -> None:
    assert from_assignments(
        ["lad.k=4", "lad.tau=2.5", "lad.prior=false", "lad.layers=21:36", "pride.estimator=mean"]
    ) == {
        "lad": {"k": 4, "tau": 2.5, "prior": False, "layers": "21:36"},
        "pride": {"estimator": "mean"},
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("True", True), ("FALSE", False), ("3", 3), (" 4 ", 4), ("1e-3", 0.001)],
)
def test_a_value_in_text_is_a_truth_value_or_a_number_where_it_reads_as_one(
    text: str, value: Any
) -> None:
    [(read,)] = [given.values() for given in from_assignments([f"lad.x={text}"]).values()]
    assert read == value
    assert type(read) is type(value)


def test_an_assignment_is_split_at_its_first_dot_and_its_first_equals_sign() -> None:
    assert from_assignments(["lad.a.b=c.d=e"]) == {"lad": {"a.b": "c.d=e"}}


@pytest.mark.parametrize("text", ["", "lad", "lad.k", "k=4", ".k=4", "lad.=4", "=", "lad=4"])
def test_an_assignment_that_names_no_parameter_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"give method\.parameter=value"):
        from_assignments([text])


# What is missing -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lad", "pride", "purified_attention"])
def test_a_method_without_the_calibration_it_needs_says_so(name: str) -> None:
    evidence, _ = evaluated_and_calibration(0)
    with pytest.raises(InputError, match=f"method {name} needs a calibration"):
        METHODS[name](evidence)


@pytest.mark.parametrize("name", ["lad", "raw_attention", "purified_attention"])
def test_a_method_without_the_attention_it_needs_says_so(name: str) -> None:
    evidence, samples = evaluated_and_calibration(0, layers=0)
    with pytest.raises(InputError, match=r"^this evidence has no attention; vanilla and pride do"):
        METHODS[name](evidence, Calibration.fit(samples))


def test_logits_alone_are_enough_for_vanilla_and_pride() -> None:
    evidence, samples = evaluated_and_calibration(0, layers=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert METHODS["pride"](evidence, Calibration.fit(samples)).shape == (3, 7, 4)


def test_the_mean_over_tokens_needs_their_number() -> None:
    evidence, samples = evaluated_and_calibration(0, tokens=True)
    fitted = Calibration.fit(samples)
    said = (
        "^reduce=mean needs the number of visual tokens of each image, and this evidence does not "
        "have it; use reduce=sum$"
    )
    with pytest.raises(InputError, match=said):
        METHODS["lad"](replace(evidence, image_tokens=None), fitted, reduce="mean")
    said = (
        "^reduce=mean needs a calibration made with the number of visual tokens of each image; "
        "calibrate again, or use reduce=sum$"
    )
    with pytest.raises(InputError, match=said):
        METHODS["lad"](evidence, replace(fitted, token_attention_prior=None), reduce="mean")


def test_a_calibration_of_another_model_is_refused_by_every_method() -> None:
    evidence, samples = evaluated_and_calibration(0)
    for method in METHODS.values():
        with pytest.raises(InputError, match="made for something else"):
            method(replace(evidence, settings="feed"), Calibration.fit(samples))
