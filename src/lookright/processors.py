"""A model's processor, also where torchvision does not work: then without its video part."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from lookright.errors import InputError

_NOT_HERE = ("missing_entries", "connection_errors", "gated_repo")
_CONFIG_FILES = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")


@cache
def torchvision_works() -> bool:
    """Whether torchvision imports; where it is installed but broken, it is hidden from others.

    A torchvision built for another torch fails on its compiled operators, and transformers would
    meet that failure in every vision module. So ask this before any of them is imported.
    """
    try:
        importlib.import_module("torchvision")
    except Exception:  # a broken build raises anything: RuntimeError, OSError, AttributeError
        sys.modules["torchvision"] = None  # type: ignore[assignment]
        if "transformers" in sys.modules:
            known = importlib.import_module("transformers.utils.import_utils")
            for question in ("", "_v2"):
                getattr(known, f"is_torchvision{question}_available").cache_clear()
            known.is_torchvision_greater_or_equal.cache_clear()
        return False
    return True


def load_processor(
    name_or_folder: str | PathLike[str],
    revision: str | None = None,
    trust_remote_code: bool = False,
    **options: Any,
) -> Any:
    """The processor of a model, by name or folder: text and images together, or a refusal."""
    works = torchvision_works()
    from transformers import AutoProcessor, ProcessorMixin

    auto: Any = AutoProcessor
    name = fspath(name_or_folder)
    options = {"revision": revision, "trust_remote_code": trust_remote_code} | options
    try:
        found = None if works else _class_named_by(name, options)
        if found is not None and "video_processor" in found.get_attributes():
            processor = _load_without_video(found, name, options)
        elif found is not None:
            processor = found.from_pretrained(name, **options)
        else:
            processor = auto.from_pretrained(name, **options)
    except InputError:
        raise
    except Exception as error:  # damaged files make transformers raise anything
        raise InputError(_why_not(name, error, works)) from error
    if not isinstance(processor, ProcessorMixin) or not hasattr(processor, "image_processor"):
        raise InputError(
            f"{name}: its files give a {type(processor).__name__}, no processor for text and "
            "images together; give a vision-language model with its processor's files"
        )
    return processor


def compose_processor(
    processor_class: type[Any], image_processor: Any, tokenizer: Any, **parts: Any
) -> Any:
    """A processor of that class for text and images, made without its video part.

    All that stands in the way is the class's check of its parts, which wants a video processor
    (and that needs torchvision); a subclass made on the fly accepts what stands in for it.
    """
    parts = {"image_processor": image_processor, "tokenizer": tokenizer} | parts
    if "video_processor" not in processor_class.get_attributes():
        return processor_class(**parts)
    module = sys.modules[processor_class.__module__]
    if getattr(module, "num2words", module) is None:  # SmolVLM's spells out a video's times
        module.num2words = _NoVideo()  # type: ignore[attr-defined]
    return _image_only(processor_class)(**parts, video_processor=_NoVideo())


def processor_class(name: str) -> type[Any] | None:
    """transformers' processor class of that name, imported without torchvision where need be."""
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    for model_type, class_name in _classes_by_type().items():
        folder = model_type_to_module_name(model_type)
        module = f"transformers.models.{folder}.processing_{folder}"
        if class_name == name and find_spec(module) is not None:
            with _pil_for_torchvision(f"transformers.models.{folder}", folder):
                found: type[Any] | None = getattr(importlib.import_module(module), name, None)
            if found is not None:
                return found
    return None


class _NoVideo:
    """Stands where a processor keeps its video part; every setting of it reads as None."""

    _auto_class = None
    model_input_names: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise InputError("this processor was composed without its video part: give it images")


def _image_only(processor_class: type[Any]) -> type[Any]:
    """A subclass of the same name that accepts the stand-in and saves nothing of it."""

    def check(self: Any, name: str, part: Any) -> Any:
        if isinstance(part, _NoVideo):
            return _NoVideo
        return processor_class.check_argument_for_proper_class(self, name, part)

    def to_dict(self: Any) -> dict[str, Any]:
        values = dict(processor_class.to_dict(self))
        values.pop("video_processor", None)
        return values

    methods = {
        "__module__": processor_class.__module__,
        "check_argument_for_proper_class": check,
        "to_dict": to_dict,
    }
    return type(processor_class.__name__, (processor_class,), methods)


@contextmanager
def _pil_for_torchvision(package: str, folder: str) -> Iterator[None]:
    """Let a processor's module import: what it takes from torchvision's image module, PIL's has."""
    name = f"{package}.image_processing_{folder}"
    pil = f"{package}.image_processing_pil_{folder}"
    swap = not torchvision_works() and name not in sys.modules and find_spec(pil) is not None
    if swap:
        sys.modules[name] = importlib.import_module(pil)
    try:
        yield
    finally:
        if swap:
            del sys.modules[name]


def _class_named_by(name: str, options: dict[str, Any]) -> type[Any] | None:
    """The library's processor class that a model's files name, or its model type has."""
    from transformers import AutoConfig
    from transformers.utils.hub import cached_file

    quiet = {f"_raise_exceptions_for_{what}": False for what in _NOT_HERE}
    wanted = {k: v for k, v in options.items() if k != "trust_remote_code"}
    for file in _CONFIG_FILES:
        path = cached_file(name, file, **wanted, **quiet)
        if path is not None:
            with open(path, encoding="utf-8") as stream:
                if class_name := json.load(stream).get("processor_class"):
                    return processor_class(class_name)
    class_name = _classes_by_type().get(AutoConfig.from_pretrained(name, **options).model_type)
    return processor_class(class_name) if class_name else None


def _classes_by_type() -> dict[str, str]:
    """The name of the processor class of each model type."""
    auto = importlib.import_module("transformers.models.auto.processing_auto")
    return dict(auto.PROCESSOR_MAPPING_NAMES)


def _load_without_video(found: type[Any], name: str, options: dict[str, Any]) -> Any:
    from transformers import AutoFeatureExtractor, AutoTokenizer

    # Older versions give a stand-in for it at the top where torchvision is missing.
    from transformers.models.auto.image_processing_auto import AutoImageProcessor

    loaders: dict[str, Any] = {
        "tokenizer": AutoTokenizer,
        "image_processor": AutoImageProcessor,
        "feature_extractor": AutoFeatureExtractor,
    }
    wanted = [part for part in found.get_attributes() if part != "video_processor"]
    if unknown := sorted({"image_processor", "tokenizer"} - {*wanted} | {*wanted} - {*loaders}):
        raise InputError(
            f"{name}: {found.__name__} cannot be composed without its video part "
            f"(its {unknown[0]}); install a torchvision that works"
        )
    parts = {part: loaders[part].from_pretrained(name, **options) for part in wanted}
    values, _ = found.get_processor_dict(name, **options)
    accepted = inspect.signature(found.__init__).parameters.keys() - {*found.get_attributes()}
    return compose_processor(found, **parts, **{k: v for k, v in values.items() if k in accepted})


def _why_not(name: str, error: Exception, works: bool) -> str:
    reason = " ".join(str(error).split())
    if not Path(name).exists():
        reason = f"there is no such folder here, and on the hub: {reason}"
    if works or "torchvision" not in reason.lower():
        return f"{name}: its processor cannot be loaded ({type(error).__name__}): {reason}"
    import torch

    return (
        f"{name}: its images have no processor that does without torchvision, and torchvision "
        f"does not work here; install the torchvision made for torch {torch.__version__}"
    )
