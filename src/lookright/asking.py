"""What `calibrate`, `select` and `rank` are given, checked before a model is loaded for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookright import selector_file
from lookright.benchmarks.folder import read_benchmark
from lookright.choice import Choice
from lookright.errors import InputError
from lookright.gather import wording_for
from lookright.identifiers import identifiers_for
from lookright.images import check_file, label_of
from lookright.images import load as load_image
from lookright.instance import Instance
from lookright.methods import METHODS
from lookright.methods.parameters import from_assignments
from lookright.options import names_a_method, settings_changes
from lookright.report.look import check_figure_path
from lookright.samples import cut, first_samples, labelled
from lookright.selector import Selector
from lookright.settings import EvidenceSettings

if TYPE_CHECKING:
    from lookright.calibration import Calibration
    from lookright.model import Model

#: Files of a folder that are taken for images.
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Asked:
    """One question on the command line, and how it is to be decided."""

    caption: str
    images: Sequence[str]  # files, or one folder
    model: str | None
    calibration: Path | None = None
    method: str | None = None
    preset: str | None = None
    given: Sequence[str] = ()  # method.parameter=value and field=value
    plot: Path | None = None


def answer(asked: Asked, load: Callable[[str], Model], note: Callable[[str], None]) -> Choice:
    """The choice; `note` is told what a person should know besides."""
    if asked.plot is not None:
        check_figure_path(asked.plot)
    files = image_files(asked.images)
    if len(files) < 2:
        raise InputError(
            "give the caption first, then at least two images, or one folder that holds them"
        )
    instance = Instance("the question", files, caption=asked.caption)
    for image in instance.images:
        load_image(image)
    n = len(instance.images)
    fields = [text for text in asked.given if not names_a_method(text)]
    parameters = from_assignments(text for text in asked.given if names_a_method(text))
    make = _uncalibrated if asked.calibration is None else _calibrated
    plan = make(asked, n, settings_changes(fields))
    own = parameters.pop(plan.method, {})
    METHODS[plan.method].parameters(plan.preset, own)
    for other in parameters:
        METHODS[other]
        raise InputError(
            f"--set gives parameters of {other}, and the method here is {plan.method}; choose the "
            f"other with --method {other}"
        )
    identifiers_for(plan.settings.identifiers, n)
    name = required_model(asked.model)
    if asked.calibration is None and asked.method is None:
        note(
            f"no calibration: averaging {n} passes, one for each cyclic order; one pass will do "
            f"after `lookright calibrate --model {name} --benchmark FOLDER -n {n} -o "
            "FILE.safetensors`, and with --calibration FILE.safetensors"
        )
    selector = plan.selector(load(name)).with_method(plan.method, **own)
    (choice,) = selector.select_many([instance], progress=False)
    return choice


def calibrate(
    model: str | None,
    benchmark: Path,
    output: Path,
    load: Callable[[str], Model],
    *,
    candidates: Sequence[int] = (),
    samples: int | None = None,
    preset: str = "paper",
    changes: dict[str, Any] | None = None,
    seed: int = 0,
) -> Selector:
    """A selector calibrated on the first samples of a benchmark, and saved."""
    _check_output(output)
    found, _ = read_benchmark(benchmark)
    instances, _ = labelled(first_samples(found, samples))
    counts = list(candidates) or sorted({len(instance.images) for instance in instances})
    if not candidates and len(counts) > 1:
        raise InputError(
            f"{benchmark}: its samples have {' or '.join(map(str, counts))} images; say for how "
            f"many candidates to calibrate, as in -n {counts[0]}"
        )
    for n in counts:
        for instance in instances:
            cut(instance, n, seed)
    settings = wording_for(found, preset, changes or {})
    identifiers_for(settings.identifiers, max(counts))
    loaded = load(required_model(model))
    selector = Selector.calibrate(
        loaded, instances, counts, preset=preset, settings=settings, seed=seed
    )
    selector.save(output)
    return selector


def image_files(arguments: Sequence[str]) -> tuple[str, ...]:
    """Files as they are given; of one folder, its images in the order of their names."""
    if len(arguments) == 1 and os.path.isdir(arguments[0]):
        folder = arguments[0]
        try:
            names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
        except OSError as error:
            raise InputError(f"{folder}: cannot be read ({error.strerror})") from None
        found = [os.path.join(folder, n) for n in names if n.lower().endswith(SUFFIXES)]
        if len(found) < 2:
            raise InputError(
                f"{label_of(folder, None)}: holds too few images ({len(found)}, by the endings "
                f"{', '.join(SUFFIXES)}); choosing needs at least two"
            )
        return tuple(found)
    for argument in arguments:
        if argument[:5].lower() != "data:":
            check_file(Path(argument), label_of(argument, None))
    return tuple(arguments)


def required_model(name: str | None) -> str:
    """The model named, or a sentence asking for one."""
    if not name:
        raise InputError(
            "name a model: --model with a Hugging Face image-text-to-text model, such as "
            "Qwen/Qwen2.5-VL-3B-Instruct, or its folder"
        )
    return name


@dataclass(frozen=True)
class _Plan:
    """What is known of a selector without its model."""

    method: str
    preset: str
    settings: EvidenceSettings
    selector: Callable[[Model], Selector]


def _uncalibrated(asked: Asked, n: int, changes: dict[str, Any]) -> _Plan:
    method = "permutation_average" if asked.method is None else asked.method
    if METHODS[method].calibrated:
        raise InputError(
            f"method {method} needs a calibration: `lookright calibrate --benchmark FOLDER -n {n} "
            "-o FILE.safetensors` makes one, --calibration FILE.safetensors names it; or choose "
            f"{', '.join(name for name in METHODS if not METHODS[name].calibrated)}"
        )
    preset = "paper" if asked.preset is None else asked.preset
    settings = _settings(preset, changes)
    return _Plan(
        method,
        preset,
        settings,
        lambda model: Selector.uncalibrated(model, method, preset, settings),
    )


def _calibrated(asked: Asked, n: int, changes: dict[str, Any]) -> _Plan:
    path = asked.calibration
    assert path is not None
    calibrations, method, _ = selector_file.load(path)
    first: Calibration = next(iter(calibrations.values()))
    if n not in calibrations:
        raise InputError(
            f"{path}: is for {' or '.join(map(str, sorted(calibrations)))} images, and {n} are "
            f"given; calibrate for {n} too, with -n {n}"
        )
    if asked.preset not in (None, first.preset):
        raise InputError(
            f"{path}: was made with preset {first.preset}, not {asked.preset}; leave --preset out, "
            "or calibrate again"
        )
    saved = first.settings or _settings(first.preset, {})
    settings = EvidenceSettings.from_dict({**saved.to_dict(), **changes})
    return _Plan(
        method if asked.method is None else asked.method,
        first.preset,
        settings,
        lambda model: Selector.load(model, path, settings),
    )


def _settings(preset: str, changes: dict[str, Any]) -> EvidenceSettings:
    return EvidenceSettings.from_dict({**EvidenceSettings.preset(preset).to_dict(), **changes})


def _check_output(path: Path) -> None:
    """Refuse a file that cannot be written, before the passes are spent."""
    if path.suffix != ".safetensors":
        raise InputError(f"{path}: a calibration's name must end in .safetensors")
    if not os.path.isdir(path.parent):
        raise InputError(f"{path}: there is no folder {path.parent}; make it first")
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder; name a file in it")
