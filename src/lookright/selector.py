"""Selector: which of N images matches a caption, whatever the order they come in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from lookright import selector_file
from lookright.calibration import Calibration
from lookright.choice import Choice, Ranking, choose, rank
from lookright.errors import InputError
from lookright.evidence import Evidence
from lookright.instance import ImageSource, Instance, Order, cyclic_orders, identity
from lookright.methods import METHODS
from lookright.presets import check_preset
from lookright.samples import Samples, cut, labelled
from lookright.settings import EvidenceSettings

if TYPE_CHECKING:
    from lookright.model import Model

#: What is asked: the images and their caption, or an instance.
Query = tuple[Sequence[ImageSource], str] | Instance


@dataclass(frozen=True, eq=False, repr=False)
class Selector:
    """A model, a method, and the calibrations the method needs: one for each number of candidates.

    `Selector.calibrate`, `Selector.load` and `Selector.uncalibrated` make one.
    """

    model: Model
    method: str
    settings: EvidenceSettings  # with the model's name, revision and number format
    calibrations: Mapping[int, Calibration] = field(default_factory=dict)  # by N
    preset: str = "paper"
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of the method; else the preset's

    def __post_init__(self) -> None:
        method = METHODS[self.method]
        if method.calibrated and not self.calibrations:
            raise InputError(
                f"method {self.method} needs a calibration: Selector.calibrate makes one from 5 "
                "labelled samples; permutation_average does without"
            )
        chosen = method.parameters(self.preset, self.parameters)
        object.__setattr__(self, "parameters", chosen)

    @classmethod
    def calibrate(
        cls,
        model: Model,
        samples: Samples,
        candidates: int | Sequence[int] = 4,
        method: str = "lad",
        preset: str = "paper",
        settings: EvidenceSettings | None = None,
        *,
        seed: int = 0,
        progress: bool = True,
    ) -> Selector:
        """Learn the model's habits from labelled samples, each shown in its N cyclic orders.

        `samples` with more images than `candidates` are cut down, the target staying (which others
        stay is drawn with `seed`). Several `candidates` calibrate for each. Without `settings`,
        the preset's wording and the benchmark's identifiers.
        """
        METHODS[method]
        check_preset(preset)
        instances, identifiers = labelled(samples)
        if settings is None:
            named = {} if identifiers is None else {"identifiers": identifiers}
            settings = EvidenceSettings.preset(preset, **named)
        settings = model.settings(settings)
        shown = [
            (sample, order)
            for n in _counts(candidates)
            for sample in [cut(instance, n, seed) for instance in instances]
            for order in cyclic_orders(n)
        ]
        found: defaultdict[int, list[Evidence]] = defaultdict(list)
        for piece in _evidence(model, shown, settings, "Calibrating" if progress else None):
            found[len(piece.order)].append(piece)
        fitted = {n: Calibration.fit(found[n], preset, settings=settings) for n in found}
        return cls(model, method, settings, fitted, preset)

    @classmethod
    def uncalibrated(
        cls,
        model: Model,
        method: str = "permutation_average",
        preset: str = "paper",
        settings: EvidenceSettings | None = None,
    ) -> Selector:
        """A selector without any labels, for any number of candidates.

        Permutation averaging takes N passes for a decision; vanilla and raw_attention take one.
        """
        settings = model.settings(settings or EvidenceSettings.preset(preset))
        return cls(model, method, settings, preset=preset)

    @classmethod
    def load(
        cls,
        model: Model,
        path: str | PathLike[str],
        settings: EvidenceSettings | None = None,
    ) -> Selector:
        """A saved selector, refused where this model (or `settings`, if given) is not what it was
        calibrated for; the message names the fields that differ.
        """
        calibrations, method, parameters = selector_file.load(path)
        first = next(iter(calibrations.values()))
        settings = model.settings(settings or first.settings)
        try:
            for n, calibration in calibrations.items():
                calibration.check_settings(n, settings)
            return cls(model, method, settings, calibrations, first.preset, parameters)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything but the model to one .safetensors file."""
        if not self.calibrations:
            raise InputError("an uncalibrated selector has nothing to save")
        selector_file.save(self.calibrations, self.method, self.parameters, path)

    def with_method(self, method: str, **parameters: Any) -> Selector:
        """The same selector deciding by another method, or by other parameters of its own."""
        kept = self.parameters if method == self.method else {}
        return replace(self, method=method, parameters={**kept, **parameters})

    def select(self, images: Sequence[ImageSource], caption: str) -> Choice:
        """The image that matches the caption."""
        (choice,) = self.select_many([(images, caption)], progress=False)
        return choice

    def rank(self, images: Sequence[ImageSource], caption: str, top: int | None = None) -> Ranking:
        """The images by how well they match the caption, best first."""
        return rank(self.select(images, caption), top)

    def select_many(self, queries: Sequence[Query], progress: bool = True) -> list[Choice]:
        """The choice for each (images, caption) or instance, computed in batches."""
        instances = [_instance(query, number) for number, query in enumerate(queries)]
        for instance in instances:
            self._calibration(len(instance.images))
        orders = [self._orders(len(instance.images)) for instance in instances]
        shown = [
            (instance, order)
            for instance, own in zip(instances, orders, strict=True)
            for order in own
        ]
        title = "Selecting" if progress else None
        with closing(_evidence(self.model, shown, self.settings, title)) as pieces:
            return [
                choose(
                    instance,
                    [next(pieces) for _ in own],
                    self.method,
                    self.parameters,
                    self._calibration(len(instance.images)),
                    self.preset,
                )
                for instance, own in zip(instances, orders, strict=True)
            ]

    def _orders(self, n: int) -> list[Order]:
        return cyclic_orders(n) if METHODS[self.method].over_shifts else [identity(n)]

    def _calibration(self, n: int) -> Calibration | None:
        if not self.calibrations:
            return None
        if n not in self.calibrations:
            known = sorted(self.calibrations)
            raise InputError(
                f"{n} images are given, and this selector is calibrated for "
                f"{' or '.join(map(str, known))}: give as many, or calibrate for {n} too "
                f"(candidates={sorted([*known, n])})"
            )
        return self.calibrations[n]

    def __repr__(self) -> str:
        if not self.calibrations:
            return f"Selector({self.settings.model!r}, {self.method}, uncalibrated)"
        samples = len(next(iter(self.calibrations.values())).samples)
        return (
            f"Selector({self.settings.model!r}, {self.method}, candidates="
            f"{sorted(self.calibrations)}, from {samples} samples)"
        )


def _evidence(
    model: Model,
    shown: Sequence[tuple[Instance, Order]],
    settings: EvidenceSettings,
    title: str | None,
) -> Generator[Evidence]:
    """Evidence of each (instance, order) in turn, batch by batch, under a bar if it has a title."""
    batches = model.evidence_iter([i for i, _ in shown], [order for _, order in shown], settings)
    if title is None:
        for batch in batches:
            yield from batch
        return
    from lookright.progress import progress

    with progress(title, len(shown)) as step:
        for batch in batches:
            step(len(batch))
            yield from batch


def _counts(candidates: int | Sequence[int]) -> list[int]:
    """The numbers of candidates to calibrate for, each once."""
    counts = [candidates] if isinstance(candidates, int) else list(candidates)
    for n in counts:
        if isinstance(n, bool) or not isinstance(n, int) or n < 2:
            raise InputError(f"candidates={candidates!r}: must be 2 or more, or a list of such")
    if not counts:
        raise InputError("candidates=[]: name at least one number of candidates")
    return list(dict.fromkeys(counts))


def _instance(query: Any, number: int) -> Instance:
    if isinstance(query, Instance):
        return query
    if not isinstance(query, Sequence) or isinstance(query, (str, bytes)) or len(query) != 2:
        raise InputError(
            f"query {number}: must be (images, caption) or an Instance, not {query!r:.80}"
        )
    images, caption = query
    return Instance(f"query-{number}", images, caption=caption)
