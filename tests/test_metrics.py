"""Metrics: each by hand or by counting, and what is undefined is said to be."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookright.errors import EvidenceWarning, InputError
from lookright.instance import cyclic_orders, random_orders
from lookright.metrics import (
    RESAMPLES,
    Decisions,
    accuracy,
    accuracy_std,
    circular_accuracy,
    confusion,
    consistency,
    decide,
    figures,
    interval,
    over_draws,
    paired_difference,
    paired_shares,
    recall,
    rstd,
    selection,
    tie_rate,
)

seeds = st.integers(0, 2**32 - 1)


def chose(positions: Any, orders: Any, targets: Any) -> Decisions:
    """Decisions for these positions [T][M] in the orders [T][N], shared by all instances."""
    positions, shown = np.array(positions), np.array(orders)
    return Decisions(
        chosen=positions,
        orders=np.repeat(shown[:, None], positions.shape[1], axis=1),
        targets=np.array(targets),
        tied=np.zeros(positions.shape, dtype=bool),
    )


#: Four instances of three images in three orders. Targets stand at
#: [0 1 2 0], [1 2 0 1] (order 2 0 1), [0 2 1 0] (order 0 2 1).
HAND = chose(
    [[0, 1, 0, 1], [1, 0, 0, 1], [0, 1, 2, 2]],
    [(0, 1, 2), (2, 0, 1), (0, 2, 1)],
    [0, 1, 2, 0],
)


def drawn(seed: int, n: int = 3, orders: int = 4, instances: int = 9) -> Decisions:
    draw = np.random.default_rng(seed)
    shown = np.array(random_orders(n, orders, seed))
    scores = draw.integers(0, 4, (len(shown), instances, n)).astype(float)
    return decide(
        scores, np.repeat(shown[:, None], instances, axis=1), draw.integers(n, size=instances)
    )


def test_where_the_targets_stand() -> None:
    assert HAND.target_positions.tolist() == [[0, 1, 2, 0], [1, 2, 0, 1], [0, 2, 1, 0]]


def test_the_image_chosen_is_the_one_shown_at_the_position() -> None:
    assert HAND.images.tolist() == [[0, 1, 0, 1], [0, 2, 2, 0], [0, 2, 1, 1]]


def test_accuracy_is_the_mean_over_orders_with_its_deviation() -> None:
    assert HAND.right.sum(axis=1).tolist() == [2, 3, 1]
    assert accuracy(HAND) == pytest.approx(50)
    assert accuracy_std(HAND) == pytest.approx(statistics.stdev([50, 75, 25]))


def test_confusion_is_by_the_targets_position_and_the_one_chosen() -> None:
    # Target at 0 in five decisions: chose 0, 1 (order 0), 0 (order 1), 0, 2 (order 2).
    # At 1 in four: 1; 1, 1; 2. At 2 in three: 0; 0; 1.
    wanted = [[60, 20, 20], [0, 75, 25], [200 / 3, 100 / 3, 0]]
    np.testing.assert_allclose(confusion(HAND), wanted)
    np.testing.assert_allclose(recall(HAND), [60, 75, 0])


def test_selection_is_over_all_decisions() -> None:
    np.testing.assert_allclose(selection(HAND), [500 / 12, 500 / 12, 200 / 12])


def test_a_position_never_chosen_is_selected_in_none_of_the_decisions() -> None:
    np.testing.assert_array_equal(selection(chose([[0, 0]], [(0, 1, 2)], [0, 1])), [100, 0, 0])


def test_rstd_is_the_deviation_of_the_recalls() -> None:
    assert rstd(HAND) == pytest.approx(statistics.stdev([60, 75, 0]))
    assert rstd(HAND, ddof=0) == pytest.approx(statistics.pstdev([60, 75, 0]))


def test_a_position_without_targets_is_left_out_of_rstd_with_a_warning() -> None:
    decisions = chose([[0, 1, 1]], [(0, 1, 2)], [0, 1, 0])
    assert math.isnan(recall(decisions)[2])
    assert np.isnan(confusion(decisions)[2]).all()
    with pytest.warns(EvidenceWarning, match="no target ever stood at position 3 of 3"):
        assert rstd(decisions) == pytest.approx(statistics.stdev([50, 100]))


def test_with_targets_at_one_position_there_is_no_rstd() -> None:
    with pytest.warns(EvidenceWarning, match="no target ever stood at position 2, 3 of 3"):
        assert math.isnan(rstd(chose([[0, 1]], [(0, 1, 2)], [0, 0])))


def test_consistency_counts_instances_with_one_image_in_all_orders() -> None:
    assert consistency(HAND) == pytest.approx(25)  # instance 0 alone
    assert consistency(chose([[0, 1], [1, 0]], [(0, 1), (1, 0)], [0, 0])) == 100


def test_one_order_alone_has_no_consistency_and_no_deviation() -> None:
    decisions = chose([[0, 1]], [(0, 1)], [0, 1])
    assert math.isnan(consistency(decisions))
    assert math.isnan(accuracy_std(decisions))


def test_circular_accuracy_asks_for_all_cyclic_orders_right() -> None:
    # Targets 0 and 1: at positions 0 2 1 and 1 0 2 in the shifts 0 1 2.
    shifts = cyclic_orders(3)
    decisions = chose([[0, 1], [2, 0], [1, 0]], shifts, [0, 1])
    assert circular_accuracy(decisions) == 50
    turned = chose([[1, 0], [0, 1], [2, 0]], [shifts[2], shifts[0], shifts[1]], [0, 1])
    assert circular_accuracy(turned) == 50


@pytest.mark.parametrize("orders", [[(0, 1, 2), (1, 2, 0)], [(0, 1, 2), (1, 2, 0), (2, 1, 0)]])
def test_circular_accuracy_of_other_orders_is_refused(orders: Any) -> None:
    with pytest.raises(InputError, match="exactly the 3 cyclic orders"):
        circular_accuracy(chose([[0]] * len(orders), orders, [0]))


def test_the_lowest_position_wins_a_tie_and_the_tie_is_counted() -> None:
    scores = np.array([[[1.0, 3.0, 3.0], [2.0, 2.0, 1.0]], [[1.0, 1.0, 5.0], [0.0, 0.0, 0.0]]])
    orders = np.repeat(np.array([(0, 1, 2), (2, 1, 0)])[:, None], 2, axis=1)
    decisions = decide(scores, orders, np.array([1, 1]))
    assert decisions.chosen.tolist() == [[1, 0], [2, 0]]
    assert decisions.tied.tolist() == [[True, True], [False, True]]
    assert tie_rate(decisions) == 75


def test_decisions_need_labels() -> None:
    with pytest.raises(
        InputError, match=r"^1 of 2 instances have no target: figures need labelled"
    ):
        decide(np.zeros((1, 2, 2)), np.zeros((1, 2, 2), dtype=int), np.array([0, -1]))


@given(seed=seeds)
def test_every_figure_is_what_counting_gives(seed: int) -> None:
    decisions = drawn(seed)
    t, m = decisions.chosen.shape
    cells: Counter[tuple[int, int]] = Counter()
    right_by_order, same = [0] * t, 0
    for j in range(m):
        images = set()
        for i in range(t):
            order = list(decisions.orders[i, j])
            where, chosen = order.index(decisions.targets[j]), int(decisions.chosen[i, j])
            cells[where, chosen] += 1
            right_by_order[i] += where == chosen
            images.add(order[chosen])
        same += len(images) == 1
    assert accuracy(decisions) == pytest.approx(100 * sum(right_by_order) / (t * m))
    by_order = [100 * right / m for right in right_by_order]
    assert accuracy_std(decisions) == pytest.approx(statistics.stdev(by_order))
    assert consistency(decisions) == pytest.approx(100 * same / m)
    for i in range(3):
        held = sum(cells[i, j] for j in range(3))
        for j in range(3):
            if held:
                assert confusion(decisions)[i, j] == pytest.approx(100 * cells[i, j] / held)
        chosen = sum(cells[j, i] for j in range(3))
        assert selection(decisions)[i] == pytest.approx(100 * chosen / (t * m))


@given(seed=seeds)
def test_the_order_of_instances_and_of_orders_changes_no_figure(seed: int) -> None:
    decisions = drawn(seed)
    draw = np.random.default_rng(seed)
    rows, columns = draw.permutation(4), draw.permutation(9)
    shuffled = Decisions(
        chosen=decisions.chosen[rows][:, columns],
        orders=decisions.orders[rows][:, columns],
        targets=decisions.targets[columns],
        tied=decisions.tied[rows][:, columns],
    )
    for metric in (accuracy, accuracy_std, consistency, confusion, selection, tie_rate):
        np.testing.assert_allclose(metric(shuffled), metric(decisions))


@given(seed=seeds)
def test_the_new_names_of_images_change_no_figure(seed: int) -> None:
    decisions = drawn(seed)
    names = np.random.default_rng(seed).permutation(3)
    renamed = Decisions(
        decisions.chosen, names[decisions.orders], names[decisions.targets], decisions.tied
    )
    for metric in (accuracy, accuracy_std, consistency, confusion):
        np.testing.assert_array_equal(metric(renamed), metric(decisions))


# Intervals -----------------------------------------------------------------------------------


def plain_interval(by_instance: list[float], seed: int = 0) -> tuple[float, float]:
    """Percentiles of resampled means, one resample after the other."""
    draw = np.random.default_rng(seed)
    m = len(by_instance)
    means = sorted(
        statistics.fmean(by_instance[index] for index in draw.integers(m, size=m))
        for _ in range(RESAMPLES)
    )
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def test_the_interval_resamples_instances_not_decisions() -> None:
    assert RESAMPLES == 2_000
    decisions = drawn(0)
    by_instance = (100 * decisions.right.mean(axis=0)).tolist()
    assert interval(decisions) == pytest.approx(plain_interval(by_instance))
    assert interval(decisions, seed=1) == pytest.approx(plain_interval(by_instance, seed=1))
    assert interval(decisions) != interval(decisions, seed=1)


def test_the_interval_is_about_two_standard_errors_each_way() -> None:
    right = np.arange(400) % 4 == 0  # 25%
    low, high = interval(chose([np.where(right, 0, 1)], [(0, 1)], [0] * 400))
    error = 100 * math.sqrt(0.25 * 0.75 / 400)
    assert low == pytest.approx(25 - 1.96 * error, abs=0.5)
    assert high == pytest.approx(25 + 1.96 * error, abs=0.5)


def test_a_method_compared_with_itself_differs_by_nothing() -> None:
    assert paired_difference(HAND, HAND) == (0, (0, 0))


def test_a_paired_difference_is_resampled_by_instance() -> None:
    first, second = drawn(1), drawn(1)
    second = Decisions((first.chosen + 1) % 3, first.orders, first.targets, first.tied)
    difference, ends = paired_difference(first, second)
    by_instance = 100 * (first.right.mean(axis=0) - second.right.mean(axis=0))
    assert difference == pytest.approx(accuracy(first) - accuracy(second))
    assert ends == pytest.approx(plain_interval(by_instance.tolist()))
    _, other = paired_difference(first, second, seed=1)
    assert other == pytest.approx(plain_interval(by_instance.tolist(), seed=1))
    shares = first.right.mean(axis=0), second.right.mean(axis=0)
    assert paired_shares(*shares) == (difference, ends)


def test_only_decisions_on_the_same_instances_can_be_paired() -> None:
    other = Decisions(HAND.chosen, HAND.orders, np.array([1, 1, 2, 0]), HAND.tied)
    with pytest.raises(InputError, match=r"^a paired comparison needs two methods' decisions"):
        paired_difference(HAND, other)


# All together --------------------------------------------------------------------------------


def test_all_figures_of_decisions_in_several_orders() -> None:
    result = figures(HAND)
    assert list(result) == [
        "accuracy",
        "accuracy_std",
        "interval",
        "rstd",
        "consistency",
        "recall",
        "selection",
        "confusion",
        "tie_rate",
    ]
    assert result["rstd"] == rstd(HAND)
    assert tuple(result["interval"]) == interval(HAND)
    for by_position in (recall, selection, confusion):
        np.testing.assert_array_equal(result[by_position.__name__], by_position(HAND))


def test_one_decision_per_instance_has_no_figures_by_position() -> None:
    result = figures(chose([[0, 1]], [(0, 1)], [0, 1]), by_position=False)
    assert result["accuracy"] == 100
    for name in ("rstd", "consistency", "accuracy_std", "recall", "selection", "confusion"):
        assert np.isnan(result[name]).all(), name
    assert result["confusion"].shape == (2, 2)


def test_over_draws_each_figure_is_the_mean_and_accuracys_deviation_is_added() -> None:
    draws = [
        {"accuracy": 50.0, "recall": np.array([10.0, np.nan]), "interval": np.array([40.0, 60.0])},
        {"accuracy": 53.0, "recall": np.array([20.0, np.nan]), "interval": np.array([44.0, 62.0])},
        {"accuracy": 59.0, "recall": np.array([60.0, np.nan]), "interval": np.array([48.0, 64.0])},
    ]
    result = over_draws(draws)
    assert result["accuracy"] == pytest.approx(54)
    assert result["draw_std"] == pytest.approx(statistics.stdev([50, 53, 59]))
    np.testing.assert_allclose(result["recall"], [30, np.nan])
    np.testing.assert_allclose(result["interval"], [44, 62])
    assert math.isnan(over_draws(draws[:1])["draw_std"])
