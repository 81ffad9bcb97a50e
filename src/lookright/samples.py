"""Labelled samples to calibrate from, whatever they are given as, and cut to N candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, TypeAlias

from lookright.benchmarks.folder import Benchmark, read_benchmark
from lookright.errors import InputError
from lookright.evaluation import SAMPLES
from lookright.identifiers import Identifiers
from lookright.instance import ImageSource, Instance, random_orders

#: (caption, images, index of the image it belongs to)
Triple: TypeAlias = "tuple[str, Sequence[ImageSource], int]"
#: What can be calibrated from: of a benchmark, or a benchmark's folder, the first samples.
Samples: TypeAlias = "Sequence[Instance | Triple] | Benchmark | str | PathLike[str]"


def labelled(samples: Samples) -> tuple[list[Instance], Identifiers | None]:
    """The samples as labelled instances, and the identifiers of the benchmark they come from."""
    identifiers: Identifiers | None = None
    if isinstance(samples, (str, PathLike)):
        samples = read_benchmark(samples)[0]
    if isinstance(samples, Benchmark):
        identifiers, samples = samples.identifiers, first_samples(samples)
    if not isinstance(samples, Sequence):
        raise InputError(
            "samples must be a list of (caption, images, answer), a list of Instance, a benchmark "
            f"or the path of its folder, not {type(samples).__name__}"
        )
    if not samples:
        raise InputError("there are no samples to calibrate from; 5 labelled ones are enough")
    instances = [_instance(sample, number) for number, sample in enumerate(samples)]
    seen: set[str] = set()
    for instance in instances:
        if instance.answer is None:
            raise InputError(
                f"sample {instance.id!r}, field 'answer': is not known; calibrate on labelled "
                "samples, or use Selector.uncalibrated"
            )
        if instance.id in seen:
            raise InputError(f"sample {instance.id!r}: stands there twice; give each its own id")
        seen.add(instance.id)
    return instances, identifiers


def first_samples(benchmark: Benchmark, count: int | None = None) -> list[Instance]:
    """The first of a benchmark's calibration samples, 5 by default."""
    kept = all_samples(benchmark)
    if count is not None and len(kept) < count:
        raise InputError(f"{benchmark.path}: has {len(kept)} calibration samples, not {count}")
    return list(kept[: count or SAMPLES])


def all_samples(benchmark: Benchmark) -> Sequence[Instance]:
    """A benchmark's calibration samples; all instances of a .jsonl file alone are such samples."""
    kept = benchmark.instances if benchmark.path.is_file() else benchmark.calibration
    if not kept:
        raise InputError(
            f"{benchmark.path}: has no calibration.jsonl; put labelled instances there that are "
            "never evaluated, about 5"
        )
    return kept


def cut(instance: Instance, n: int, seed: int) -> Instance:
    """The sample with its target and n - 1 of its other images, in the order they stood in.

    The same seed leaves the same images, and those left for a smaller n are among those left for a
    larger one.
    """
    total = len(instance.images)
    if total == n or instance.answer is None:
        return instance
    if total < n:
        raise InputError(
            f"sample {instance.id!r}, field 'images': holds {total}, too few to calibrate for {n} "
            f"candidates; give samples with {n} images or more"
        )
    if instance.question is not None:
        raise InputError(
            f"sample {instance.id!r}, field 'question': was written for its {total} images, so "
            f"it cannot be cut to {n}; calibrate for {total}, or give a caption instead"
        )
    others = [index for index in range(total) if index != instance.answer]
    (drawn,) = random_orders(len(others), 1, seed, f"samples/{instance.id}")
    kept = sorted([instance.answer, *(others[place] for place in drawn[: n - 1])])
    return replace(
        instance,
        images=tuple(instance.images[index] for index in kept),
        answer=kept.index(instance.answer),
    )


def _instance(sample: Any, number: int) -> Instance:
    if isinstance(sample, Instance):
        return sample
    if not isinstance(sample, Sequence) or isinstance(sample, (str, bytes)) or len(sample) != 3:
        raise InputError(
            f"sample {number}: must be (caption, images, answer) or an Instance, not {sample!r:.80}"
        )
    caption, images, answer = sample
    return Instance(f"sample-{number}", images, answer=answer, caption=caption)
