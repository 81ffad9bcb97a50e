"""The `scenes` benchmark: rendered pictures, captions that single one out, and questions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path

from lookright.benchmarks.build import Drawn, Recipe, write
from lookright.benchmarks.draws import Draws
from lookright.benchmarks.embed import Progress, silent
from lookright.benchmarks.folder import Benchmark, check_is_new
from lookright.benchmarks.pool import Pool
from lookright.benchmarks.scenes import (
    BACKGROUNDS,
    COMBINATIONS,
    SHAPES,
    Scene,
    allowed,
    changed,
    draw_scene,
)
from lookright.benchmarks.scenes_draw import png
from lookright.benchmarks.scenes_words import (
    STYLES,
    description,
    full_description,
    odd_one_out,
    sentence,
    where_larger,
)
from lookright.errors import InputError, shown
from lookright.instance import Instance

#: match: which image a caption fits; odd: which has another background; larger: in which a named
#: thing is larger.
KINDS = ("match", "odd", "larger")
_WORKERS = 2
_POOL = 10  # scenes rendered for each question, where an embedder chooses among them


@dataclass(frozen=True)
class World:
    """Which scenes are drawn, how they look and what is asked of them."""

    style: str = "a"
    kind: str = "match"
    combinations: str = "all"

    def __post_init__(self) -> None:
        for name, known in (("style", STYLES), ("kind", KINDS), ("combinations", COMBINATIONS)):
            if getattr(self, name) not in known:
                raise InputError(
                    f"unknown {name} {shown(repr(getattr(self, name)))}: use {', '.join(known)}"
                )


@dataclass(frozen=True)
class Question:
    """Scenes to choose from, before they are rendered."""

    scenes: tuple[Scene, ...]
    answer: int
    caption: str | None = None
    question: str | None = None


def draw_question(world: World, setting: str, n: int, draws: Draws) -> Question:
    """One question about n scenes; `hard` scenes differ from the target in 1 or 2 attributes."""
    if world.kind == "match":
        return _match(world, setting, n, draws)
    make = _odd if world.kind == "odd" else _larger
    return make(world, setting, n, draws)


def draw_scenes(world: World, recipe: Recipe, progress: Progress = silent) -> Drawn:
    """Questions about scenes, rendered; no picture is both calibrated on and evaluated."""
    wanted = recipe.calibration_samples + recipe.samples
    with ThreadPoolExecutor(_WORKERS) as pool, progress("Questions", wanted) as step:
        part = partial(_part, world, recipe, pool, step)
        calibration = part("calibration", recipe.calibration_samples, set())
        closed = {_key(image) for instance in calibration for image in instance.images}
        instances = part("evaluation", recipe.samples, closed)
    return Drawn(tuple(instances), tuple(calibration))


def build_scenes(
    world: World, recipe: Recipe, output: str | os.PathLike[str], progress: Progress = silent
) -> Benchmark:
    """Draw and render a benchmark of scenes and write its folder."""
    check_is_new(Path(output))
    return write(
        draw_scenes(world, recipe, progress),
        recipe,
        output,
        facts={"builder": "scenes", "source": "scenes", **asdict(world)},
        identifiers="numbers" if world.kind == "match" else "letters",
    )


def scene_pool(world: World, recipe: Recipe, progress: Progress = silent) -> Pool:
    """Rendered scenes with full captions, for an embedder to find each other's neighbours."""
    if world.kind != "match":
        raise InputError("an embedder chooses negatives for captions: leave out --kind")
    number = _POOL * (recipe.samples + recipe.calibration_samples) + recipe.n
    all_draws = [Draws(f"{recipe.seed}/scenes/pool/{k}") for k in range(number)]
    scenes = [draw_scene(draws, world.combinations) for draws in all_draws]
    said = [full_description(scene) for scene in scenes]
    images = []
    with ThreadPoolExecutor(_WORKERS) as pool, progress("Scenes", number) as step:
        for image in pool.map(partial(png, style=world.style), scenes):
            images.append(image)
            step(1)
    return Pool(
        source="scenes",
        ids=[f"scene-{k:06d}" for k in range(number)],
        images=images,
        captions=[
            sentence(text, world.style, draws) for text, draws in zip(said, all_draws, strict=True)
        ],
        fits=lambda anchor, other: said[anchor].fits(scenes[other]),
    )


def _part(
    world: World,
    recipe: Recipe,
    pool: ThreadPoolExecutor,
    step: Callable[[int], None],
    name: str,
    wanted: int,
    closed: set[bytes],
) -> list[Instance]:
    """The questions of one part; a question that shows a closed picture is drawn anew."""
    found: list[Instance] = []
    numbers = count()
    while len(found) < wanted:
        keys = [
            f"{recipe.seed}/scenes/{world.kind}/{name}/{next(numbers)}"
            for _ in range(wanted - len(found))
        ]
        for instance in pool.map(partial(_instance, world, recipe), keys):
            if closed.isdisjoint(map(_key, instance.images)):
                found.append(instance)
                step(1)
    return found


def _instance(world: World, recipe: Recipe, key: str) -> Instance:
    asked = draw_question(world, recipe.setting, recipe.n, Draws(key))
    part, number = key.split("/")[-2:]
    return Instance(
        f"{part}-{int(number):06d}",
        tuple(png(scene, world.style) for scene in asked.scenes),
        answer=asked.answer,
        caption=asked.caption,
        question=asked.question,
        category=None if world.kind == "match" else world.kind,
    )


def _key(image: object) -> bytes:
    assert isinstance(image, bytes)
    return sha256(image).digest()


def _match(world: World, setting: str, n: int, draws: Draws) -> Question:
    target = draw_scene(draws, world.combinations)
    said = full_description(target)
    others: list[Scene] = []
    while len(others) < n - 1:
        if setting == "hard":
            scene = changed(target, draws, 1 + draws.below(2), world.combinations)
        else:
            scene = draw_scene(draws, world.combinations)
        if not said.fits(scene) and scene not in others:
            others.append(scene)
    spoken = description(target, others, draws)
    scenes, answer = _placed(target, others, draws)
    return Question(scenes, answer, caption=sentence(spoken, world.style, draws))


def _odd(world: World, setting: str, n: int, draws: Draws) -> Question:
    usual, other = draws.shuffled(BACKGROUNDS)[:2]
    target = replace(draw_scene(draws, world.combinations), background=other)
    others = [
        replace(_company(target, world, setting, draws), background=usual) for _ in range(n - 1)
    ]
    scenes, answer = _placed(target, others, draws)
    return Question(scenes, answer, question=odd_one_out(n))


def _larger(world: World, setting: str, n: int, draws: Draws) -> Question:
    shape = draws.pick(SHAPES)
    target = draw_scene(draws, world.combinations)
    while not allowed(found := _with_one(target, shape, "large", draws), world.combinations):
        target = draw_scene(draws, world.combinations)
    others: list[Scene] = []
    while len(others) < n - 1:
        company = _company(found, world, setting, draws)
        other = _with_one(company, shape, "small", draws)
        if allowed(other, world.combinations):
            others.append(other)
    target = found
    scenes, answer = _placed(target, others, draws)
    return Question(scenes, answer, question=where_larger(shape, n))


def _company(target: Scene, world: World, setting: str, draws: Draws) -> Scene:
    """Another scene: any, or one that differs from the target a little."""
    if setting == "hard":
        return changed(target, draws, 1 + draws.below(2), world.combinations)
    return draw_scene(draws, world.combinations)


def _with_one(scene: Scene, shape: str, size: str, draws: Draws) -> Scene:
    """The scene with exactly one thing of this shape, alone of its kind and of this size."""
    rest = [thing for thing in scene.things if thing.shape != shape]
    kept = [thing for thing in scene.things if thing.shape == shape] or [scene.things[0]]
    one = replace(kept[0], shape=shape, size=size, count=1)
    others = rest if kept[0].shape == shape else rest[1:]
    return replace(scene, things=tuple(draws.shuffled([one, *others])))


def _placed(target: Scene, others: Sequence[Scene], draws: Draws) -> tuple[tuple[Scene, ...], int]:
    answer = draws.below(len(others) + 1)
    return (*others[:answer], target, *others[answer:]), answer
