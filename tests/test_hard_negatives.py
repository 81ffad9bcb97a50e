"""Hard negatives: the paper's three constraints, and a search that equals brute force."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from lookright.benchmarks import hard_negatives
from lookright.benchmarks.build import Recipe, draw
from lookright.benchmarks.hard_negatives import RULES, allowed, nearest, unit
from lookright.benchmarks.parquet import pool_of, read_parquet
from lookright.benchmarks.pool import Pool
from lookright.errors import InputError

COCO = Path(__file__).parents[2] / "shared" / "data" / "coco-val2014-6k.parquet"


def png(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (number % 256, number // 256, 7)).save(buffer, "PNG")
    return buffer.getvalue()


def pool(
    images: Any, captions: Any, categories: Sequence[set[str]] | None = None, **more: Any
) -> Pool:
    count = len(images)
    return Pool(
        source="made here",
        ids=[f"i{k}" for k in range(count)],
        images=[png(k) for k in range(count)],
        captions=[f"caption {k}" for k in range(count)],
        categories=None if categories is None else [frozenset(c) for c in categories],
        image_vectors=np.asarray(images, np.float32),
        caption_vectors=np.asarray(captions, np.float32),
        **more,
    )


def turned(degrees: float) -> tuple[float, float]:
    angle = np.deg2rad(degrees)
    return float(np.cos(angle)), float(np.sin(angle))


def everyone(_: int, candidates: Sequence[int]) -> list[int]:
    return list(candidates)


def by_brute_force(
    pool: Pool, anchor: int, count: int, contains: bool, images: NDArray[Any], words: NDArray[Any]
) -> list[int]:
    """The rule as the paper writes it, over every row of the pool, with no block and no depth."""
    assert pool.categories is not None
    order = np.lexsort((np.arange(len(pool)), -(images @ images[anchor])))
    found = []
    for other in map(int, order):
        ours, theirs = pool.categories[anchor], pool.categories[other]
        alike = ours <= theirs if contains else ours == theirs
        if other != anchor and not alike and float(words[other] @ words[anchor]) < 0.9:
            found.append(other)
    return found[:count]


# The rule


def test_the_nearest_images_are_taken_and_the_farther_ones_are_not() -> None:
    angles = [0, 40, 10, 90, 25]
    images = [turned(angle) for angle in angles]
    assert nearest(np.asarray(images), [0, 3], 2, everyone) == [[2, 4], [1, 4]]


def test_the_length_of_a_vector_does_not_count() -> None:
    images = np.asarray([turned(0), turned(40), turned(10)]) * [[3.0], [9.0], [0.1]]
    assert nearest(images, [0], 1, everyone) == [[2]]


def test_of_images_equally_near_the_first_comes_first() -> None:
    images = [turned(0), turned(20), turned(20), turned(20)]
    assert nearest(np.asarray(images), [0], 2, everyone) == [[1, 2]]


def test_an_image_is_never_its_own_negative() -> None:
    found = nearest(np.ones((5, 3)), range(5), 4, everyone)
    assert all(anchor not in others for anchor, others in enumerate(found))


def test_a_caption_as_similar_as_the_threshold_is_left_out() -> None:
    limit = RULES["paper"].caption_cosine
    near, far = np.arccos(limit + 1e-4), np.arccos(limit - 1e-4)
    words = [(1.0, 0.0), (np.cos(near), np.sin(near)), (np.cos(far), np.sin(far))]
    made = pool([turned(0), turned(1), turned(2)], words)
    assert limit == 0.9
    assert allowed(made, RULES["paper"], 0, [1, 2]) == [2]


def test_equal_categories_are_left_out_by_the_paper_and_larger_ones_by_the_released_code() -> None:
    kinds = [{"dog"}, {"dog"}, {"dog", "ball"}, {"cat"}, set[str]()]
    made = pool([turned(k) for k in range(5)], [turned(60 * k) for k in range(5)], kinds)
    assert allowed(made, RULES["paper"], 0, [1, 2, 3, 4]) == [2, 3, 4]
    assert allowed(made, RULES["released"], 0, [1, 2, 3, 4]) == [3, 4]
    assert allowed(made, RULES["released"], 2, [0, 1]) == [0, 1]


@pytest.mark.parametrize("kinds", [None, [set[str]()] * 3])
def test_a_source_without_categories_has_the_caption_rule_alone(kinds: Any) -> None:
    made = pool([turned(k) for k in range(3)], [turned(0), turned(5), turned(80)], kinds)
    assert allowed(made, RULES["paper"], 0, [1, 2]) == [2]


def test_a_pool_that_knows_which_captions_fit_needs_no_caption_vectors() -> None:
    made = pool(
        [turned(k) for k in range(4)], np.ones((4, 2)), fits=lambda anchor, other: other == 2
    )
    assert allowed(made, RULES["paper"], 0, [1, 2, 3]) == [1, 3]


# The search


@pytest.mark.parametrize("rows", [5, 40, 300])
def test_blocks_and_depth_change_nothing(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hard_negatives, "_ROWS", 37)
    monkeypatch.setattr(hard_negatives, "_ANCHORS", 7)
    monkeypatch.setattr(hard_negatives, "_DEPTH", 1)
    chance = np.random.default_rng(rows)
    vectors = chance.normal(size=(rows, 6))
    taken = chance.random(rows) < 0.8  # most rows are refused, so that the search goes deep

    def choose(_: int, candidates: Sequence[int]) -> list[int]:
        return [row for row in candidates if not taken[row]]

    found = nearest(vectors, range(rows), 3, choose)
    cosines = unit(vectors) @ unit(vectors).T
    for anchor, others in enumerate(found):
        order = np.lexsort((np.arange(rows), -cosines[anchor]))
        assert others == [int(k) for k in order if k != anchor and not taken[k]][:3]


def test_rows_too_near_each_other_for_float32_stand_in_their_true_order() -> None:
    angles = np.concatenate([[0.0], 1e-3 + 1e-7 * np.random.default_rng(0).permutation(200)])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    (found,) = nearest(vectors, [0], 5, everyone)
    assert found == [int(k) for k in np.argsort(angles)[1:6]]


def test_an_anchor_that_the_rule_leaves_too_few_gives_all_there_are() -> None:
    assert nearest(np.eye(4), [0], 3, lambda _, rows: [r for r in rows if r == 2]) == [[2]]


@pytest.mark.skipif(not COCO.exists(), reason="the COCO rows are not here")
@pytest.mark.parametrize("preset", ["paper", "released"])
def test_on_photos_the_lists_equal_those_of_a_brute_force_search(preset: str) -> None:
    made = pool_of(read_parquet(COCO, {}))
    assert made.image_vectors is not None
    assert made.caption_vectors is not None
    images, words = unit(made.image_vectors), unit(made.caption_vectors)
    anchors = list(range(0, len(made), 60))

    def choose(anchor: int, candidates: Sequence[int]) -> list[int]:
        return allowed(made, RULES[preset], anchor, candidates)

    found = nearest(made.image_vectors, anchors, 7, choose)
    wanted = [by_brute_force(made, a, 7, preset == "released", images, words) for a in anchors]
    assert found == wanted
    assert len(found) == 100


# In a benchmark


def test_hard_questions_show_the_nearest_allowed_images() -> None:
    images = [turned(angle) for angle in (0, 5, 10, 15, 20, 170)]
    words = np.eye(6)
    made = pool(images, words)
    drawn = draw(made, Recipe("hard", 3, 6, 0))
    shown = {
        instance.id: {made.images.index(image) for image in instance.images}
        for instance in drawn.instances
    }
    assert shown["i0"] == {0, 1, 2}
    assert shown["i5"] == {5, 4, 3}
    assert drawn.facts["similarity"]["nearest_caption"] == 0


def test_an_anchor_left_with_too_few_is_skipped_and_counted() -> None:
    words = [turned(0), turned(1), turned(2), turned(90), turned(91), turned(180), turned(270)]
    made = pool([turned(10 * k) for k in range(7)], words)
    drawn = draw(made, Recipe("hard", 6, 4, 0))
    assert {instance.id for instance in drawn.instances} == {"i3", "i4", "i5", "i6"}
    assert set(drawn.skipped) <= {"too few candidates"}
    with pytest.raises(InputError, match=r"give 4 of the 5 samples .* \(3 skipped: too few"):
        draw(made, Recipe("hard", 6, 5, 0))


def test_hard_negatives_without_vectors_are_refused() -> None:
    bare = Pool("made here", ["a", "b", "c"], [png(1), png(2), png(3)], ["x", "y", "z"])
    with pytest.raises(InputError, match="need a vector of each image"):
        draw(bare, Recipe("hard", 2, 1, 0))
    half = Pool("made here", ["a", "b"], [png(1), png(2)], ["x", "y"], image_vectors=np.eye(2))
    with pytest.raises(InputError, match="need a vector of each caption"):
        draw(half, Recipe("hard", 2, 1, 0))
