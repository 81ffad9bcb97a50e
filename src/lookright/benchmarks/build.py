"""From a pool of captioned images to a benchmark: random or hard negatives, exactly as many."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lookright.benchmarks.draws import Draws
from lookright.benchmarks.folder import Benchmark, check_is_new, write_benchmark
from lookright.benchmarks.hard_negatives import RULES, allowed, nearest, unit
from lookright.benchmarks.pool import Pool
from lookright.errors import InputError, shown
from lookright.identifiers import Identifiers
from lookright.images import content_hash
from lookright.instance import Instance

SETTINGS = ("random", "hard")
MAX_N = 26
#: The calibration of five draws of five samples each.
CALIBRATION_SAMPLES = 25

_ALIKE = "the same image as another"
_LEAK = "shows an image to calibrate from"
_FEW = "too few candidates"


@dataclass(frozen=True)
class Recipe:
    """What a benchmark is to be."""

    setting: str = "random"
    n: int = 4
    samples: int = 200
    calibration_samples: int = CALIBRATION_SAMPLES
    seed: int = 0
    preset: str = "paper"  # which rule of hard negatives

    def __post_init__(self) -> None:
        if self.setting not in SETTINGS:
            raise InputError(f"unknown setting {shown(repr(self.setting))}: use random or hard")
        if self.preset not in RULES:
            raise InputError(f"unknown preset {shown(repr(self.preset))}: use paper or released")
        if not 2 <= self.n <= MAX_N:
            raise InputError(f"n = {self.n}: a question has 2 to {MAX_N} candidates")
        if self.samples < 1:
            raise InputError(f"samples = {self.samples}: a benchmark has at least one")
        if self.calibration_samples < 0:
            raise InputError(f"calibration samples = {self.calibration_samples}: 0 or more")


@dataclass(frozen=True)
class Drawn:
    """The questions of a benchmark, before they are written."""

    instances: tuple[Instance, ...]
    calibration: tuple[Instance, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)  # reason -> anchors passed over
    facts: Mapping[str, Any] = field(default_factory=dict)  # for benchmark.json


def draw(pool: Pool, recipe: Recipe) -> Drawn:
    """Questions about a pool: an anchor's caption, its image, and n - 1 negatives.

    Those to calibrate from are drawn first and close their images to the evaluated ones. The same
    pool, recipe and seed give the same questions on every platform.
    """
    rows = Draws(f"{recipe.seed}/pool").shuffled(range(len(pool)))
    drawer = _Drawer(pool, recipe)
    drawer.wanted("calibration", recipe.calibration_samples, rows[::-1])
    drawer.wanted("evaluation", recipe.samples, rows)
    parts = [drawer.parts[name] for name in ("evaluation", "calibration")]
    facts = {"similarity": _similarity(pool, parts[0])} if pool.image_vectors is not None else {}
    return Drawn(
        tuple(drawer.instance(part) for part in parts[0]),
        tuple(drawer.instance(part) for part in parts[1]),
        dict(drawer.skipped),
        facts,
    )


def build(
    pool: Pool,
    recipe: Recipe,
    output: str | os.PathLike[str],
    *,
    facts: Mapping[str, Any] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Benchmark:
    """Draw a benchmark from a pool and write its folder; images in `root` stay where they are."""
    check_is_new(Path(output))
    facts = {"source": pool.source, **(facts or {}), "embedder": pool.embedder}
    if recipe.setting == "hard":
        facts["rule"] = asdict(RULES[recipe.preset])
    return write(draw(pool, recipe), recipe, output, facts=facts, root=root)


def write(
    drawn: Drawn,
    recipe: Recipe,
    output: str | os.PathLike[str],
    *,
    facts: Mapping[str, Any],
    identifiers: Identifiers = "numbers",
    root: str | os.PathLike[str] | None = None,
) -> Benchmark:
    """Write questions drawn by a recipe, which `benchmark.json` tells."""
    told = {"setting": recipe.setting, "preset": recipe.preset, "seed": recipe.seed}
    facts = {**facts, **told}
    return write_questions(drawn, output, facts=facts, identifiers=identifiers, root=root)


def write_questions(
    drawn: Drawn,
    output: str | os.PathLike[str],
    *,
    facts: Mapping[str, Any],
    identifiers: Identifiers = "numbers",
    root: str | os.PathLike[str] | None = None,
) -> Benchmark:
    """Write questions as a benchmark folder; `benchmark.json` says what they came from."""
    return write_benchmark(
        output,
        drawn.instances,
        drawn.calibration,
        identifiers=identifiers,
        meta={**facts, **drawn.facts, "skipped": drawn.skipped},
        root=root,
    )


def split(
    instances: Sequence[Instance],
    source: str,
    samples: int | None,
    calibration: int,
    seed: int,
    skipped: Mapping[str, int] | None = None,
) -> Drawn:
    """Ready-made questions as evaluated ones (all that are left, or `samples`) and calibration.

    No image to calibrate from is evaluated.
    """
    rows = Draws(f"{seed}/questions").shuffled(range(len(instances)))
    hashed = cache(content_hash)

    def shown_by(row: int) -> set[str]:
        images = instances[row].images
        return {hashed(i) if isinstance(i, (str, bytes)) else content_hash(i) for i in images}

    kept = [row for row in rows[::-1] if instances[row].answer is not None][:calibration]
    if len(kept) < calibration:
        raise InputError(
            f"{source}: has {len(kept):,} labelled questions, and {calibration:,} are to calibrate "
            "from; ask for less by --calibration-samples"
        )
    closed = {content for row in kept for content in shown_by(row)}
    evaluated: list[int] = []
    leaking = 0
    for row in [row for row in rows if row not in frozenset(kept)]:
        if len(evaluated) == samples:
            break
        if shown_by(row) & closed:
            leaking += 1
        else:
            evaluated.append(row)
    if not evaluated or (samples is not None and len(evaluated) < samples):
        raise InputError(
            f"{source}: beside the {calibration:,} questions to calibrate from, "
            f"{len(evaluated):,} are left to evaluate ({leaking:,} more show an image of those), "
            f"and {samples or 'at least one'} asked for; "
            "ask for less by --samples or --calibration-samples"
        )
    return Drawn(
        tuple(instances[row] for row in sorted(evaluated)),
        tuple(instances[row] for row in kept),
        {**(skipped or {}), **({_LEAK: leaking} if leaking else {})},
    )


Group = tuple[int, ...]  # the rows of one question, the anchor first


class _Drawer:
    """Draws part after part; what one part shows is closed to the next."""

    def __init__(self, pool: Pool, recipe: Recipe) -> None:
        self.pool, self.recipe = pool, recipe
        self.words = [" ".join(caption.casefold().split()) for caption in pool.captions]
        self.parts: dict[str, list[Group]] = {}
        self.skipped: Counter[str] = Counter()
        self.closed: set[str] = set()  # contents of images shown by an earlier part

    def wanted(self, name: str, count: int, rows: Sequence[int]) -> None:
        """Draw the groups of one part: the anchors in the order of `rows`."""
        groups: list[Group] = []
        anchored: set[str] = set()
        reach = self._reach(name, count, rows)
        waiting = iter(reach)
        while len(groups) < count:
            anchors = self._anchors(waiting, count - len(groups), anchored)
            if not anchors:
                self._refuse(name, count, len(groups))
            for anchor, others in zip(anchors, self._negatives(anchors, reach), strict=True):
                if len(others) == self.recipe.n - 1:
                    groups.append((anchor, *others))
                else:
                    self.skipped[_FEW] += 1
        self.parts[name] = groups
        self.closed |= {self.pool.content(row) for group in groups for row in group}

    def instance(self, group: Group) -> Instance:
        """The group as a question, its images in an order that nothing can be read from."""
        anchor = group[0]
        images = Draws(f"{self.recipe.seed}/places/{self.pool.ids[anchor]}").shuffled(group)
        return Instance(
            self.pool.ids[anchor],
            tuple(self.pool.images[row] for row in images),
            answer=images.index(anchor),
            caption=self.pool.captions[anchor],
        )

    def _reach(self, name: str, count: int, rows: Sequence[int]) -> Sequence[int]:
        """The rows a part may use: random calibration leaves a fair share to the evaluation."""
        if name != "calibration" or self.recipe.setting == "hard":
            return rows
        share = len(rows) * count // (count + self.recipe.samples)
        return rows[: max(self.recipe.n, count, share)]

    def _anchors(self, waiting: Iterable[int], count: int, anchored: set[str]) -> list[int]:
        """The next rows that can be a target: no two of one part are the same image."""
        found: list[int] = []
        for row in waiting:
            content = self.pool.content(row)
            if content in self.closed:
                continue
            if content in anchored:
                self.skipped[_ALIKE] += 1
                continue
            anchored.add(content)
            found.append(row)
            if len(found) == count:
                break
        return found

    def _negatives(self, anchors: Sequence[int], reach: Sequence[int]) -> list[list[int]]:
        pool, recipe = self.pool, self.recipe
        if recipe.setting == "random":
            draws = [Draws(f"{recipe.seed}/negatives/{pool.ids[anchor]}") for anchor in anchors]
            return [
                self._distinct(anchor, draw.each_once(reach))
                for anchor, draw in zip(anchors, draws, strict=True)
            ]
        if pool.image_vectors is None:
            raise InputError(f"{pool.source}: hard negatives need a vector of each image")
        rule = RULES[recipe.preset]

        def choose(anchor: int, candidates: Sequence[int]) -> list[int]:
            return self._distinct(anchor, allowed(pool, rule, anchor, candidates))

        return nearest(pool.image_vectors, anchors, recipe.n - 1, choose)

    def _distinct(self, anchor: int, candidates: Iterable[int]) -> list[int]:
        """The first n - 1 candidates that are neither closed nor the same as one taken already."""
        taken = {self.pool.content(anchor)}
        found: list[int] = []
        for row in candidates:
            if len(found) == self.recipe.n - 1:
                break
            if row == anchor or self.words[row] == self.words[anchor]:
                continue
            content = self.pool.content(row)
            if content not in taken and content not in self.closed:
                taken.add(content)
                found.append(row)
        return found

    def _refuse(self, name: str, count: int, found: int) -> None:
        option = "--calibration-samples" if name == "calibration" else "--samples"
        reasons = "; ".join(f"{number:,} skipped: {why}" for why, number in self.skipped.items())
        raise InputError(
            f"{self.pool.source}: its {len(self.pool):,} images give {found:,} of the {count:,} "
            f"samples for {name} with {self.recipe.n} candidates"
            + (f" ({reasons})" if reasons else "")
            + f"; give more images, or ask for less by {option}"
            + (", --calibration-samples" if name == "evaluation" and self.closed else "")
            + " or -n"
        )


def _similarity(pool: Pool, groups: Sequence[Group]) -> dict[str, float]:
    """Mean cosines between the target and its negatives: how hard the questions are."""
    found: dict[str, float] = {}
    for name, vectors in (("image", pool.image_vectors), ("caption", pool.caption_vectors)):
        if vectors is None:
            continue
        cosines = []
        for group in groups:
            rows = unit(vectors[list(group)])
            cosines.append(rows[1:] @ rows[0])
        found[name] = round(float(np.mean(cosines)), 4)
        found[f"nearest_{name}"] = round(float(np.mean([max(row) for row in cosines])), 4)
    return found
