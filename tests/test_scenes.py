"""Scenes: captions that single one out, changes that are what they say, pictures that stay."""

from __future__ import annotations

import io
import math
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lookright.benchmarks.build import Recipe, draw
from lookright.benchmarks.draws import Draws
from lookright.benchmarks.scenes import (
    ARRANGEMENTS,
    BACKGROUNDS,
    COLOURS,
    COUNTS,
    PATTERNS,
    SHAPES,
    SIZES,
    Scene,
    Thing,
    changed,
    differences,
    draw_scene,
)
from lookright.benchmarks.scenes_build import (
    KINDS,
    World,
    build_scenes,
    draw_question,
    draw_scenes,
    scene_pool,
)
from lookright.benchmarks.scenes_draw import layout, png, render
from lookright.benchmarks.scenes_words import (
    STYLES,
    description,
    full_description,
    odd_one_out,
    sentence,
    vocabulary,
    where_larger,
)
from lookright.errors import InputError

STAR = Thing("star", "red", "plain", "large", 1)
RINGS = Thing("ring", "blue", "dotted", "small", 2)
TWO = Scene((STAR, RINGS), "row", "sand")


def scenes(count: int, combinations: str = "all") -> list[Scene]:
    return [draw_scene(Draws(f"test/{k}"), combinations) for k in range(count)]


# Scenes


def test_every_value_of_every_attribute_is_drawn() -> None:
    drawn = scenes(600)
    things = [thing for scene in drawn for thing in scene.things]
    assert {len(scene.things) for scene in drawn} == {1, 2, 3}
    assert {scene.background for scene in drawn} == set(BACKGROUNDS)
    assert {scene.arrangement for scene in drawn} == set(ARRANGEMENTS)
    for name, values in {
        "shape": SHAPES,
        "colour": COLOURS,
        "pattern": PATTERNS,
        "size": SIZES,
        "count": COUNTS,
    }.items():
        assert {getattr(thing, name) for thing in things} == set(values)


def test_no_scene_has_two_things_that_words_may_not_tell_apart() -> None:
    for scene in scenes(600):
        kinds = [(thing.shape, thing.colour) for thing in scene.things]
        assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("changes", [1, 2])
def test_a_changed_scene_differs_in_so_many_attributes(changes: int) -> None:
    for number, scene in enumerate(scenes(300)):
        other = changed(scene, Draws(f"change/{number}"), changes)
        assert differences(scene, other) == changes
        assert full_description(other) != full_description(scene)


def test_an_eighth_of_the_combinations_is_kept_from_training_evenly() -> None:
    things = [Thing(s, c, p, "large", 1) for s in SHAPES for c in COLOURS for p in PATTERNS]
    kept = [thing for thing in things if thing.unseen]
    assert len(kept) * 8 == len(things)
    for name, values in (("shape", SHAPES), ("colour", COLOURS), ("pattern", PATTERNS)):
        counts = Counter(getattr(thing, name) for thing in kept)
        assert set(counts.values()) == {len(kept) // len(values)}


def test_training_never_sees_what_the_unseen_scenes_all_have() -> None:
    assert not any(thing.unseen for scene in scenes(300, "seen") for thing in scene.things)
    assert all(any(thing.unseen for thing in scene.things) for scene in scenes(300, "unseen"))
    for number, scene in enumerate(scenes(200, "seen")):
        other = changed(scene, Draws(f"seen/{number}"), 2, "seen")
        assert not any(thing.unseen for thing in other.things)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", ["random", "hard"])
def test_no_question_of_seen_combinations_shows_an_unseen_one(kind: str, setting: str) -> None:
    for number in range(60):
        world = World(kind=kind, combinations="seen")
        asked = draw_question(world, setting, 5, Draws(f"seen/{number}"))
        assert not any(thing.unseen for scene in asked.scenes for thing in scene.things)


# Words


def test_a_full_caption_says_everything() -> None:
    said = full_description(TWO)
    texts = {sentence(said, "a", Draws(f"s{k}")) for k in range(20)}
    assert texts == {
        "a large red plain star left of two small blue dotted rings on sand",
        "two small blue dotted rings right of a large red plain star on sand",
    }
    column = full_description(replace(TWO, arrangement="column", background="night"))
    assert "at night we see a large red plain star above two small blue dotted rings" in {
        sentence(column, "b", Draws(f"s{k}")) for k in range(20)
    }


def test_every_word_of_a_caption_is_in_the_vocabulary() -> None:
    words = vocabulary()
    assert len(words) < 70
    spoken = {
        word
        for number, scene in enumerate(scenes(1500))
        for style in STYLES
        for draws in [Draws(f"word/{number}")]
        for word in sentence(description(scene, [], draws), style, draws).split()
    }
    assert spoken == words


@pytest.mark.parametrize("other", [
    Scene((replace(STAR, colour="blue"), RINGS), "row", "sand"),
    Scene((replace(STAR, count=2), RINGS), "row", "sand"),
    Scene((RINGS, STAR), "row", "sand"),
    Scene((STAR, RINGS), "column", "sand"),
    Scene((STAR, RINGS), "row", "snow"),
    Scene((STAR,), "row", "sand"),
])  # fmt: skip
def test_a_full_description_fits_no_scene_that_differs(other: Scene) -> None:
    assert full_description(TWO).fits(TWO)
    assert not full_description(TWO).fits(other)


def test_a_description_fits_a_scene_that_shows_more() -> None:
    one = full_description(Scene((STAR,), "row", "sand"))
    assert one.fits(TWO)
    assert one.fits(Scene((RINGS, STAR), "column", "sand"))
    loose = replace(full_description(TWO), arrangement=None)
    assert loose.fits(Scene((RINGS, STAR), "column", "sand"))


def test_what_need_not_be_said_is_often_left_unsaid() -> None:
    plain = [description(TWO, [], Draws(f"d{k}")) for k in range(200)]
    unsaid = [said.background is None for said in plain]
    assert 60 < sum(unsaid) < 140
    other = replace(TWO, background="snow")
    assert all(description(TWO, [other], Draws(f"d{k}")).background == "sand" for k in range(50))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("setting", ["random", "hard"])
@pytest.mark.parametrize("n", [2, 4, 26])
def test_a_caption_fits_its_target_and_no_other_candidate(style: str, setting: str, n: int) -> None:
    for number in range(40):
        draws = Draws(f"{style}/{setting}/{n}/{number}")
        asked = draw_question(World(style), setting, n, draws)
        target = asked.scenes[asked.answer]
        others = [scene for k, scene in enumerate(asked.scenes) if k != asked.answer]
        assert len(asked.scenes) == n
        assert not any(full_description(target).fits(scene) for scene in others)
        if setting == "hard":
            assert {differences(target, scene) for scene in others} <= {1, 2}


def test_a_caption_that_is_read_back_fits_the_target_alone() -> None:
    for number in range(60):
        scene = draw_scene(Draws(f"t{number}"))
        others = [changed(scene, Draws(f"o{number}/{k}"), 1 + k % 2) for k in range(6)]
        said = description(scene, others, Draws(f"c{number}"))
        assert said.fits(scene)
        assert not any(said.fits(other) for other in others)


# Questions


@pytest.mark.parametrize("setting", ["random", "hard"])
def test_the_odd_one_out_alone_has_another_background(setting: str) -> None:
    for number in range(60):
        asked = draw_question(World(kind="odd"), setting, 5, Draws(f"odd/{number}"))
        grounds = [scene.background for scene in asked.scenes]
        target = grounds.pop(asked.answer)
        assert len(set(grounds)) == 1
        assert target not in grounds
        assert asked.question == odd_one_out(5)


@pytest.mark.parametrize("setting", ["random", "hard"])
def test_the_named_thing_is_larger_in_the_target_alone(setting: str) -> None:
    for number in range(60):
        asked = draw_question(World(kind="larger"), setting, 4, Draws(f"larger/{number}"))
        shape = next(s for s in SHAPES if asked.question == where_larger(s, 4))
        sizes = []
        for scene in asked.scenes:
            (thing,) = [thing for thing in scene.things if thing.shape == shape]
            assert thing.count == 1
            sizes.append(thing.size)
        assert [k for k, size in enumerate(sizes) if size == "large"] == [asked.answer]


def test_questions_name_the_images_by_letter_and_place() -> None:
    assert odd_one_out(3).splitlines() == [
        "Now you are given 3 images. Please examine the details and tell which one of them has a "
        "background that is different from the others.",
        "Select from the following choices.",
        "A: the first image",
        "B: the second image",
        "C: the third image",
        "",
        "Which image is most likely to show a different background from the other images?",
        "Please answer the option directly like A,B,C,D...",
    ]


# Pictures


@pytest.mark.parametrize("style", STYLES)
def test_a_picture_is_224_pixels_of_rgb_and_always_the_same(style: str) -> None:
    for scene in scenes(5):
        picture = render(scene, style)
        assert (picture.mode, picture.size) == ("RGB", (224, 224))
        assert picture.tobytes() == render(scene, style).tobytes()
        with Image.open(io.BytesIO(png(scene, style))) as read:
            assert read.convert("RGB").tobytes() == picture.tobytes()


def test_a_look_moves_things_and_changes_nothing_else() -> None:
    pictures = {render(replace(TWO, look=look)).tobytes() for look in range(20)}
    assert len(pictures) == 20
    assert replace(TWO, look=5) == TWO


@pytest.mark.parametrize("style", STYLES)
def test_every_change_of_an_attribute_shows(style: str) -> None:
    plain = np.asarray(render(TWO, style), np.int16)
    for other in (
        replace(TWO, things=(replace(STAR, shape="heart"), RINGS)),
        replace(TWO, things=(replace(STAR, colour="orange"), RINGS)),
        replace(TWO, things=(replace(STAR, pattern="striped"), RINGS)),
        replace(TWO, things=(replace(STAR, size="small"), RINGS)),
        replace(TWO, things=(replace(STAR, count=2), RINGS)),
        replace(TWO, arrangement="column"),
        replace(TWO, background="snow"),
    ):
        changes = np.abs(np.asarray(render(other, style), np.int16) - plain).max(axis=2) > 20
        assert changes.mean() > 0.005


def test_nothing_stands_over_the_edge_or_over_something_else() -> None:
    for scene in scenes(1000):
        places = layout(scene)
        assert Counter(place.thing for place in places) == {
            k: thing.count for k, thing in enumerate(scene.things)
        }
        for k, place in enumerate(places):
            assert place.radius <= min(place.x, place.y, 223 - place.x, 223 - place.y)
            for other in places[:k]:
                apart = math.dist((place.x, place.y), (other.x, other.y))
                assert apart >= place.radius + other.radius


def test_things_stand_in_their_order() -> None:
    for scene in scenes(500):
        axis = 1 if scene.arrangement == "row" else 2
        firsts = [
            next(p[axis] for p in layout(scene) if p.thing == k) for k in range(len(scene.things))
        ]
        assert firsts == sorted(firsts)


def test_small_things_are_smaller_than_large_ones_in_any_company() -> None:
    radii: dict[str, set[int]] = {"small": set(), "large": set()}
    for scene in scenes(600):
        for place in layout(scene):
            radii[scene.things[place.thing].size].add(place.radius)
    assert max(radii["small"]) * 1.3 < min(radii["large"])


def test_styles_look_different() -> None:
    scene = scenes(1)[0]
    assert render(scene, "a").tobytes() != render(scene, "b").tobytes()


# Benchmarks


def test_a_benchmark_of_scenes_has_what_was_asked_for(tmp_path: Path) -> None:
    recipe = Recipe("hard", 3, 6, 4, 9)
    made = build_scenes(World(), recipe, tmp_path / "b")
    assert (len(made.instances), len(made.calibration)) == (6, 4)
    assert made.identifiers == "numbers"
    assert made.meta["style"] == "a"
    assert made.meta["setting"] == "hard"
    drawn = draw_scenes(World(), recipe)
    assert drawn == draw_scenes(World(), recipe)
    assert [i.caption for i in made.instances] == [i.caption for i in drawn.instances]


def test_questions_use_letters(tmp_path: Path) -> None:
    made = build_scenes(World(kind="odd"), Recipe(samples=2, calibration_samples=1), tmp_path / "b")
    assert made.identifiers == "letters"
    assert {i.category for i in made.instances} == {"odd"}
    assert all(i.question and i.caption is None for i in made.instances)


def test_more_samples_leave_the_first_ones_as_they_were() -> None:
    few = draw_scenes(World(), Recipe(samples=3, calibration_samples=0)).instances
    many = draw_scenes(World(), Recipe(samples=5, calibration_samples=0)).instances
    assert many[:3] == few


def test_an_embedder_finds_hard_scenes_that_the_caption_does_not_fit() -> None:
    made = scene_pool(World(), Recipe("hard", 4, 4, 1))
    grey = [np.asarray(Image.open(io.BytesIO(bytes(image))).resize((8, 8)).convert("L"))  # type: ignore[arg-type]
            for image in made.images]  # fmt: skip
    vectors = np.stack(grey).reshape(len(made), -1).astype(np.float32)
    drawn = draw(replace(made, image_vectors=vectors), Recipe("hard", 4, 4, 1))
    assert len(drawn.instances) == 4
    assert drawn.facts["similarity"]["image"] > 0.9
    assert made.fits is not None
    for instance in drawn.instances:
        anchor = made.ids.index(instance.id)
        rows = [made.images.index(image) for image in instance.images]
        assert [made.fits(anchor, row) for row in rows].count(True) == 1


@pytest.mark.parametrize(
    "world", [{"style": "c"}, {"kind": "count"}, {"combinations": "some"}], ids=str
)
def test_a_world_there_is_not_is_refused(world: dict[str, str]) -> None:
    with pytest.raises(InputError, match="unknown"):
        World(**world)


def test_an_embedder_is_for_captions_alone() -> None:
    with pytest.raises(InputError, match="leave out --kind"):
        scene_pool(World(kind="odd"), Recipe())


def test_captions_do_not_change_between_versions() -> None:
    drawn = draw_scenes(World(), Recipe(n=2, samples=20, calibration_samples=0, seed=1)).instances
    text = "\n".join(f"{i.caption} {i.answer}" for i in drawn)
    assert sha256(text.encode()).hexdigest()[:16] == "37cce16dace03911"
