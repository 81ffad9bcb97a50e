"""From a pool to a benchmark: exactly as many questions, no leak, the same on every platform."""

from __future__ import annotations

import io
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lookright.benchmarks.build import Recipe, build, draw, split, write_questions
from lookright.benchmarks.draws import Draws
from lookright.benchmarks.pool import Pool
from lookright.errors import InputError
from lookright.images import content_hash
from lookright.instance import Instance


def png(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (number % 256, number // 256, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def pool(count: int = 60, **changes: Any) -> Pool:
    columns: dict[str, Any] = {
        "source": "made here",
        "ids": [f"i{k}" for k in range(count)],
        "images": [png(k) for k in range(count)],
        "captions": [f"caption {k}" for k in range(count)],
    }
    return Pool(**(columns | changes))


def shown(instances: tuple[Instance, ...]) -> set[bytes]:
    return {bytes(image) for i in instances for image in i.images if isinstance(image, bytes)}


# Draws


def test_draws_are_the_same_for_ever() -> None:
    draws = Draws("0/example")
    assert [draws.below(1000) for _ in range(6)] == [961, 464, 949, 132, 40, 488]
    assert Draws("0/example").shuffled("abcdef") == ["b", "e", "f", "a", "c", "d"]


def test_draws_of_another_key_are_others() -> None:
    assert Draws("a").below(2**60) != Draws("b").below(2**60)


def test_each_item_is_drawn_once_and_equally_often_first() -> None:
    assert sorted(Draws("x").each_once(range(100))) == list(range(100))
    firsts = [next(Draws(f"k{k}").each_once(range(5))) for k in range(2000)]
    assert min(np.bincount(firsts, minlength=5)) > 340
    seconds = [tuple(islice(Draws(f"k{k}").each_once(range(3)), 2)) for k in range(3000)]
    assert len(set(seconds)) == 6
    assert min(seconds.count(pair) for pair in set(seconds)) > 420


# Drawing


@pytest.mark.parametrize("n", [2, 4, 10])
def test_there_are_exactly_as_many_questions_as_asked_for(n: int) -> None:
    drawn = draw(pool(), Recipe("random", n, 30, 6))
    assert len(drawn.instances) == 30
    assert len(drawn.calibration) == 6
    for instance in (*drawn.instances, *drawn.calibration):
        assert len(set(instance.images)) == n


def test_a_question_has_its_anchors_caption_and_image() -> None:
    made = pool()
    for instance in draw(made, Recipe("random", 4, 20, 5)).instances:
        row = made.ids.index(instance.id)
        assert instance.answer is not None
        assert instance.images[instance.answer] == made.images[row]
        assert instance.caption == made.captions[row]


def test_calibration_and_evaluation_share_neither_ids_nor_images() -> None:
    for seed in range(5):
        drawn = draw(pool(), Recipe("random", 3, 30, 6, seed))
        assert shown(drawn.instances).isdisjoint(shown(drawn.calibration))
        ids = [i.id for i in (*drawn.instances, *drawn.calibration)]
        assert len(set(ids)) == len(ids)


def test_one_picture_under_two_names_is_one_picture() -> None:
    twins = pool(40, images=[png(k // 2) for k in range(40)])
    drawn = draw(twins, Recipe("random", 4, 12, 3))
    assert shown(drawn.instances).isdisjoint(shown(drawn.calibration))
    for instance in drawn.instances:
        assert len(set(instance.images)) == 4
    targets = [i.images[i.answer] for i in drawn.instances if i.answer is not None]
    assert len(set(targets)) == 12


def test_an_image_with_the_same_caption_is_no_negative() -> None:
    made = pool(8, captions=["A  dog", "a dog", "a DOG", "a cat", "a cow", "a fox", "a hen", "x"])
    (first,) = [i for i in draw(made, Recipe("random", 6, 8, 0)).instances if i.id == "i0"]
    assert not {made.images[1], made.images[2]} & set(first.images)


def test_the_seed_decides_everything() -> None:
    assert draw(pool(), Recipe(seed=3, samples=9, calibration_samples=2)) == draw(
        pool(), Recipe(seed=3, samples=9, calibration_samples=2)
    )
    one, other = (draw(pool(), Recipe(samples=9, calibration_samples=2, seed=s)) for s in (3, 4))
    assert [i.id for i in one.instances] != [i.id for i in other.instances]


def test_targets_stand_at_every_place() -> None:
    drawn = draw(pool(400), Recipe("random", 4, 300, 0))
    counts = np.bincount([i.answer for i in drawn.instances if i.answer is not None], minlength=4)
    assert counts.min() > 50


def test_negatives_are_drawn_from_the_whole_pool() -> None:
    drawn = draw(pool(50), Recipe("random", 5, 40, 0))
    assert len(shown(drawn.instances)) == 50


def test_a_pool_too_small_says_how_far_it_goes() -> None:
    with pytest.raises(InputError, match=r"60 images give \d+ of the 80 samples for evaluation"):
        draw(pool(), Recipe(samples=80, calibration_samples=5))
    with pytest.raises(InputError, match="samples for calibration with 12 candidates"):
        draw(pool(6), Recipe(n=12, samples=2, calibration_samples=2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"setting": "easy"}, "unknown setting"),
        ({"preset": "mine"}, "unknown preset"),
        ({"n": 1}, "2 to 26"),
        ({"n": 27}, "2 to 26"),
        ({"samples": 0}, "at least one"),
        ({"calibration_samples": -1}, "0 or more"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe(**changes)


# The pool


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"captions": ["x"] * 59}, "60 ids but 59 captions"),
        ({"captions": [*["x"] * 59, "  "]}, "'i59': its caption is empty"),
        ({"ids": ["same"] * 60}, "stands there 60 times"),
        ({"ids": ["", *"abcdefg", *(f"i{k}" for k in range(52))]}, "must have 1 to 500"),
        ({"image_vectors": np.ones((59, 3))}, "59 image vectors"),
        ({"image_vectors": np.ones(60)}, "all of one length"),
        ({"image_vectors": np.ones((60, 3), int)}, "all of one length"),
        ({"image_vectors": np.vstack([np.ones((59, 3)), np.zeros((1, 3))])}, "'i59' is all zeros"),
        ({"caption_vectors": np.full((60, 3), np.nan)}, "'i0' is not finite"),
    ],
)
def test_a_pool_that_cannot_be_right_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pool(**changes)


def test_a_pool_of_one_image_is_no_pool() -> None:
    with pytest.raises(InputError, match="at least two"):
        pool(1)


# Ready-made questions


def questions(count: int) -> list[Instance]:
    return [
        Instance(f"q{k}", (png(3 * k), png(3 * k + 1)), answer=k % 2, question="Which?")
        for k in range(count)
    ]


def test_ready_made_questions_are_split_without_a_leak() -> None:
    made = questions(20)
    leaking = Instance("leak", (*made[3].images, png(900)), answer=0, question="Which?")
    for seed in range(8):
        drawn = split([*made, leaking], "made here", None, 10, seed)
        assert len(drawn.calibration) == 10
        assert shown(drawn.instances).isdisjoint(shown(drawn.calibration))
        assert len(drawn.instances) + sum(drawn.skipped.values()) == 11


def test_questions_without_an_answer_are_not_calibrated_on() -> None:
    made = [*questions(4), Instance("u", (png(800), png(801)), question="Which?")]
    for seed in range(6):
        assert "u" not in {i.id for i in split(made, "made here", None, 4, seed).calibration}
    with pytest.raises(InputError, match="has 4 labelled questions"):
        split(made, "made here", None, 5, 0)


def test_more_ready_made_questions_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="5 are left to evaluate"):
        split(questions(9), "made here", 6, 4, 0)


# Writing


def test_a_benchmark_says_what_it_was_made_from(tmp_path: Path) -> None:
    made = build(pool(), Recipe(samples=7, calibration_samples=3, seed=5), tmp_path / "b")
    facts = {name: made.meta[name] for name in ("source", "setting", "seed", "n", "skipped")}
    assert facts == {
        "source": "made here",
        "setting": "random",
        "seed": 5,
        "n": 4,
        "skipped": {},
    }
    assert len(made.instances) == 7
    again = build(pool(), Recipe(samples=7, calibration_samples=3, seed=5), tmp_path / "again")
    assert again.meta["content_hash"] == made.meta["content_hash"]


def test_written_questions_keep_their_images_byte_for_byte(tmp_path: Path) -> None:
    drawn = split(questions(6), "made here", None, 2, 0)
    made = write_questions(drawn, tmp_path / "b", facts={}, identifiers="letters")
    written = [[content_hash(str(image)) for image in i.images] for i in made.instances]
    assert written == [[content_hash(image) for image in i.images] for i in drawn.instances]
    assert made.identifiers == "letters"
