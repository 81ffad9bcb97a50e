"""Vision features, computed once per distinct image and kept by content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from lookright.recent import Recent

#: Ends of the names of what `get_image_features` returns beside the features the decoder takes in.
_NOT_KEPT = ("last_hidden_state", "hidden_states", "attentions")
#: What it returns once for all images.
_OF_ALL = ("visual_indicator_features",)


@dataclass(frozen=True, eq=False)
class PerImage:
    """One image's tensor in an output that lists a tensor for each image."""

    tensor: Tensor


@dataclass(frozen=True, eq=False)
class Same:
    """What is the same for all images, such as the number of a layer."""

    value: Any


#: One image's share of a field: rows of a tensor, its place in a list of images, what all images
#: have in common, or one share for each vision layer that feeds the decoder.
Share: TypeAlias = "Tensor | PerImage | Same | list[Share]"


@dataclass(frozen=True, eq=False)
class Features:
    """One image's share of what the model's own `get_image_features` returns."""

    output: type | None  # the class of that output; None for a bare tensor
    fields: dict[str, Share]

    @property
    def bytes(self) -> int:
        return sum(_bytes(share) for share in self.fields.values())


@dataclass
class FeatureCache(Recent[Features]):
    """Features by image content."""

    encoded: int = 0  # images that went through the vision tower, ever


def encode(
    base: nn.Module, images: Sequence[Mapping[str, Tensor]], device: torch.device
) -> list[Features]:
    """Features of several images, those of equal shape through the vision tower in one call.

    Each image is what the processor made of it alone: tensors whose first dimension is its own.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, image in enumerate(images):
        shapes = tuple((name, tuple(value.shape)) for name, value in image.items())
        # Patches in one long row may have equal shapes and different grids, sizes or masks.
        grids = tuple(v.numpy().tobytes() for v in image.values() if not v.is_floating_point())
        groups.setdefault((shapes, grids), []).append(index)
    features: dict[int, Features] = {}
    for members in groups.values():
        own = [images[index] for index in members]
        try:
            parts = split(_tower(base, own, device), len(own))
        except InseparableError:
            parts = [split(_tower(base, [image], device), 1)[0] for image in own]
        features.update(zip(members, parts, strict=True))
    return [features[index] for index in range(len(images))]


class InseparableError(ValueError):
    """A tower laid the features of several images out so that they cannot be told apart."""


def _tower(base: nn.Module, images: Sequence[Mapping[str, Tensor]], device: torch.device) -> Any:
    inputs = {name: _gathered([image[name] for image in images], device) for name in images[0]}
    return base.get_image_features(**inputs, return_dict=True)  # type: ignore[operator]


def _gathered(parts: Sequence[Tensor], device: torch.device) -> Tensor:
    """The parts as one tensor on the device, never gathered on the CPU first."""
    if device.type == "cpu":
        return torch.cat(list(parts))
    rows = sum(len(part) for part in parts)
    whole = torch.empty((rows, *parts[0].shape[1:]), dtype=parts[0].dtype, device=device)
    start = 0
    for part in parts:
        whole[start : start + len(part)].copy_(part)
        start += len(part)
    return whole


def split(output: Mapping[str, Any] | Tensor, count: int) -> list[Features]:
    """The output for `count` images of equal shape as one part for each."""
    kind = None if isinstance(output, Tensor) else type(output)
    named = {"pooler_output": output if kind is None else getattr(output, "pooler_output", None)}
    named |= {} if isinstance(output, Tensor) else output
    own = "pooler_output" if named.get("pooler_output") is not None else "last_hidden_state"
    shares = {
        name: [Same(value)] * count
        if name in _OF_ALL
        else _shares(value, count, per_image=name == own)
        for name, value in named.items()
        if value is not None and (name == own or not name.endswith(_NOT_KEPT))
    }
    return [Features(kind, {n: own[i] for n, own in shares.items()}) for i in range(count)]


def join(parts: Sequence[Features]) -> Any:
    """The features of several images as `get_image_features` would return them together."""
    kind = parts[0].output
    fields = {name: _joined([part.fields[name] for part in parts]) for name in parts[0].fields}
    if kind is None:
        return fields["pooler_output"]
    output = kind()
    for name, value in fields.items():  # some families add a field that their class does not name
        setattr(output, name, value)
    return output


@contextmanager
def served(base: nn.Module, output: Any) -> Iterator[None]:
    """While inside, `base` takes `output` for the features of its images, whatever they are."""
    before = base.__dict__.get("get_image_features")

    @wraps(base.get_image_features)  # type: ignore[arg-type]  # `generate` reads its signature
    def serve(*_: Any, **__: Any) -> Any:
        return output

    base.__dict__["get_image_features"] = serve
    try:
        yield
    finally:
        if before is None:
            del base.__dict__["get_image_features"]
        else:
            base.__dict__["get_image_features"] = before


def _shares(value: Any, count: int, per_image: bool) -> list[Share]:
    """Each image's share; `per_image`: a sequence lists images (else it lists vision layers)."""
    if isinstance(value, Tensor):
        return list(_chunks(value, count))
    if not isinstance(value, (list, tuple)):
        return [Same(value)] * count
    if per_image and all(isinstance(item, Tensor) for item in value):
        own = value if len(value) == count else _chunks(torch.cat(list(value)), count)
        return [PerImage(tensor.clone()) for tensor in own]  # not a view into all of them
    layers = [_shares(layer, count, per_image=True) for layer in value]
    return [[layer[index] for layer in layers] for index in range(count)]


def _joined(shares: Sequence[Share]) -> Any:
    first = shares[0]
    if isinstance(first, Tensor):
        return _cat(shares)
    if isinstance(first, PerImage):
        return tuple(share.tensor for share in shares if isinstance(share, PerImage))
    if isinstance(first, Same):
        return first.value
    layered = [share for share in shares if isinstance(share, list)]
    return [_joined([share[layer] for share in layered]) for layer in range(len(first))]


def _bytes(share: Share) -> int:
    if isinstance(share, list):
        return sum(_bytes(layer) for layer in share)
    if isinstance(share, Same):
        return 0
    tensor = share.tensor if isinstance(share, PerImage) else share
    return tensor.numel() * tensor.element_size()


def _chunks(value: Tensor, count: int) -> list[Tensor]:
    if value.shape[0] % count:
        raise InseparableError(
            f"{value.shape[0]} rows of features for {count} images of equal shape"
        )
    return [part.clone() for part in value.chunk(count)] if count > 1 else [value]


def _cat(values: Sequence[Any]) -> Tensor:
    """Along the first dimension; images of different sizes as one long row of features."""
    if len({value.shape[1:] for value in values}) > 1:
        values = [value.reshape(-1, value.shape[-1]) for value in values]
    return torch.cat(list(values))
