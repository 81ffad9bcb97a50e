"""Vision features, computed once per distinct image and kept by content."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

#: What `get_image_features` returns beside the features the decoder takes in.
_NOT_KEPT = {"last_hidden_state", "hidden_states", "attentions"}


@dataclass(frozen=True, eq=False)
class PerImage:
    """One image's tensor in an output that lists a tensor for each image."""

    tensor: Tensor


#: One image's share of a field: rows of a tensor, its place in a list of images, or one share for
#: each vision layer that feeds the decoder.
Share: TypeAlias = "Tensor | PerImage | list[Share]"


@dataclass(frozen=True, eq=False)
class Features:
    """One image's share of what the model's own `get_image_features` returns."""

    output: type | None  # the class of that output; None for a bare tensor
    fields: dict[str, Share]

    @property
    def bytes(self) -> int:
        return sum(_bytes(share) for share in self.fields.values())


@dataclass
class FeatureCache:
    """Features by image content; the least recently used are forgotten beyond a limit of bytes."""

    limit: int
    encoded: int = 0  # images that went through the vision tower, ever
    _kept: OrderedDict[str, Features] = field(default_factory=OrderedDict)
    _bytes: int = 0

    def get(self, key: str) -> Features | None:
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: str, features: Features) -> None:
        self._kept[key] = features
        self._bytes += features.bytes
        while self._bytes > self.limit and self._kept:
            _, forgotten = self._kept.popitem(last=False)
            self._bytes -= forgotten.bytes

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0


def encode(base: nn.Module, images: Sequence[Mapping[str, Tensor]]) -> list[Features]:
    """Features of several images, those of equal shape through the vision tower in one call.

    Each image is what the processor made of it alone: tensors whose first dimension is its own.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, image in enumerate(images):
        shapes = tuple((name, tuple(value.shape)) for name, value in image.items())
        # Patches in one long row may have equal shapes and different grids.
        grids = tuple(tuple(v.flatten().tolist()) for v in image.values() if v.numel() <= 8)
        groups.setdefault((shapes, grids), []).append(index)
    features: dict[int, Features] = {}
    for members in groups.values():
        inputs = {
            name: torch.cat([images[index][name] for index in members])
            for name in images[members[0]]
        }
        output = base.get_image_features(**inputs, return_dict=True)  # type: ignore[operator]
        features.update(zip(members, split(output, len(members)), strict=True))
    return [features[index] for index in range(len(images))]


def split(output: Mapping[str, Any] | Tensor, count: int) -> list[Features]:
    """The output for `count` images of equal shape as one part for each."""
    kind = None if isinstance(output, Tensor) else type(output)
    named = {"pooler_output": output} if isinstance(output, Tensor) else output
    shares = {
        name: _shares(value, count, per_image=name == "pooler_output")
        for name, value in named.items()
        if value is not None and name not in _NOT_KEPT
    }
    return [Features(kind, {n: own[i] for n, own in shares.items()}) for i in range(count)]


def join(parts: Sequence[Features]) -> Any:
    """The features of several images as `get_image_features` would return them together."""
    kind = parts[0].output
    fields = {name: _joined([part.fields[name] for part in parts]) for name in parts[0].fields}
    return fields["pooler_output"] if kind is None else kind(**fields)


@contextmanager
def served(base: nn.Module, output: Any) -> Iterator[None]:
    """While inside, `base` takes `output` for the features of its images, whatever they are."""
    own = base.__dict__.get("get_image_features")
    base.__dict__["get_image_features"] = lambda *_, **__: output
    try:
        yield
    finally:
        if own is None:
            del base.__dict__["get_image_features"]
        else:
            base.__dict__["get_image_features"] = own


def _shares(value: Any, count: int, per_image: bool) -> list[Share]:
    """Each image's share; `per_image`: a sequence lists images (else it lists vision layers)."""
    if isinstance(value, Tensor):
        return list(_chunks(value, count))
    if per_image:
        own = list(value) if len(value) == count else _chunks(torch.cat(list(value)), count)
        return [PerImage(tensor) for tensor in own]
    layers = [_shares(layer, count, per_image=True) for layer in value]
    return [[layer[index] for layer in layers] for index in range(count)]


def _joined(shares: Sequence[Share]) -> Any:
    first = shares[0]
    if isinstance(first, Tensor):
        return _cat(shares)
    if isinstance(first, PerImage):
        return tuple(share.tensor for share in shares if isinstance(share, PerImage))
    layered = [share for share in shares if isinstance(share, list)]
    return [_joined([share[layer] for share in layered]) for layer in range(len(first))]


def _bytes(share: Share) -> int:
    if isinstance(share, list):
        return sum(_bytes(layer) for layer in share)
    tensor = share.tensor if isinstance(share, PerImage) else share
    return tensor.numel() * tensor.element_size()


def _chunks(value: Tensor, count: int) -> list[Tensor]:
    if value.shape[0] % count:
        raise ValueError(f"{value.shape[0]} rows of features for {count} images of equal shape")
    return [part.clone() for part in value.chunk(count)] if count > 1 else [value]


def _cat(values: Sequence[Any]) -> Tensor:
    """Along the first dimension; images of different sizes as one long row of features."""
    if len({value.shape[1:] for value in values}) > 1:
        values = [value.reshape(-1, value.shape[-1]) for value in values]
    return torch.cat(list(values))
