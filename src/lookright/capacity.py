"""What can be told of a model from its configuration and processor, before any weights are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from lookright.backbone import Backbone
from lookright.encoding import Encoder, Prompt
from lookright.errors import InputError, reason
from lookright.instance import Instance, identity
from lookright.processors import load_processor
from lookright.settings import EvidenceSettings

#: The picture tokens are counted on, as large as most photos in COCO.
PICTURE = (640, 480)
#: No set of identifiers names more images.
MOST = 26


@dataclass(frozen=True)
class Capacity:
    """A supported model's layers and tokens, and how many images it takes at once."""

    family: str
    layers: tuple[int, ...]  # those that give evidence
    decoder_layers: int
    picture: tuple[int, int]  # width and height of the picture tokens are counted on
    image_tokens: int  # its visual tokens
    context: int | None  # tokens the model reads at most
    dtype: str
    weights: int | None  # bytes; None where they are quantised
    bytes_per_token: int  # working memory of one pass, estimated from above
    bytes_per_image: int | None  # the same for an image with its tokens; None where not known
    largest_n_context: int  # at most 26, the names there are
    largest_n_memory: int | None  # None where memory or weights are not known

    @property
    def largest_n(self) -> int:
        """The largest number of images that fits both."""
        memory = self.largest_n_memory
        return self.largest_n_context if memory is None else min(self.largest_n_context, memory)


def empty_model(name: str, revision: str | None) -> Any:
    """The model's modules with no numbers in them; InputError where there is no such model."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    try:
        config = AutoConfig.from_pretrained(name, revision=revision)
        with torch.device("meta"):
            return AutoModelForImageTextToText.from_config(config)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, KeyError, ImportError) as error:
        where = "" if Path(name).exists() else "there is no such folder here, and on the hub: "
        raise InputError(f"cannot read the model {name!r}: {where}{reason(error)}") from None


def capacity(
    hf: Any, name: str, revision: str | None, *, on_cpu: bool, memory: int | None
) -> Capacity:
    """What a model needs; InputError where its family gives no evidence, with the reason.

    `memory` is what is free for the weights and one prompt.
    """
    backbone = Backbone(hf)
    config, text = hf.config, backbone.text_config
    processor = load_processor(name, revision=revision)
    encoder = Encoder(processor, backbone.image_token, backbone.takes("mm_token_type_ids"))
    two, three = _prompt(encoder, 2), _prompt(encoder, 3)
    image = len(three.tokens) - len(two.tokens)
    wording = len(two.tokens) - 2 * image

    dtype = torch.float32 if on_cpu else (config.dtype or text.dtype or torch.float32)
    quantised = getattr(config, "quantization_config", None) is not None
    parameters = sum(parameter.numel() for parameter in hf.parameters())
    weights = None if quantised else parameters * dtype.itemsize
    per_token = _values_per_token(text) * dtype.itemsize
    tower = _values_per_image(config, three)
    per_image = None if tower is None else tower * dtype.itemsize + image * per_token
    context = getattr(text, "max_position_embeddings", None)
    in_memory = None
    if memory is not None and weights is not None and per_image is not None:
        in_memory = _fit(memory - weights - wording * per_token, per_image)
    return Capacity(
        family=backbone.family,
        layers=backbone.layers,
        decoder_layers=int(text.num_hidden_layers),
        picture=PICTURE,
        image_tokens=three.regions.count(0),
        context=context,
        dtype=str(dtype).removeprefix("torch."),
        weights=weights,
        bytes_per_token=per_token,
        bytes_per_image=per_image,
        largest_n_context=MOST if context is None else _fit(context - wording, image),
        largest_n_memory=in_memory,
    )


def _fit(room: int, each: int) -> int:
    return max(0, min(MOST, room // each))


def _prompt(encoder: Encoder, n: int) -> Prompt:
    """A prompt that shows n pictures."""
    picture = Image.linear_gradient("L").resize(PICTURE).convert("RGB")
    instance = Instance("capacity", (picture,) * n, caption="a man next to a red motorcycle")
    loads = [lambda: picture] * n
    return encoder.prompt(instance, identity(n), EvidenceSettings(), ["picture"] * n, loads)


def _values_per_token(text: Any) -> int:
    """Numbers kept per token at the widest place of one pass, and its keys and values.

    Those of all layers are kept where identifiers have several tokens.
    """
    heads = text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    cached = 2 * (getattr(text, "num_key_value_heads", None) or heads) * width
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    return int(_widest(text.hidden_size, inner) + text.num_hidden_layers * cached)


def patches_of(config: Any, prompt: Prompt) -> int | None:
    """Patches per image that go through the vision tower.

    None where its configuration has other names for its sizes.
    """
    tower = getattr(config, "vision_config", None)
    size = getattr(tower, "patch_size", None)
    side = size if isinstance(size, int) else size[0] if size else None
    if not isinstance(side, int):
        return None
    deep = getattr(tower, "temporal_patch_size", None) or 1
    return _pixels(prompt) // (3 * side**2 * deep)


def _values_per_image(config: Any, prompt: Prompt) -> int | None:
    """Numbers kept per image in the vision tower, all images going through it at once.

    None where its configuration has other names for its sizes.
    """
    tower, patches = getattr(config, "vision_config", None), patches_of(config, prompt)
    width = getattr(tower, "embed_dim", None) or getattr(tower, "hidden_size", None)
    if patches is None or not isinstance(width, int):
        return None
    inner = getattr(tower, "intermediate_size", None) or 4 * width
    return _pixels(prompt) + patches * _widest(width, inner)


def _pixels(prompt: Prompt) -> int:
    """Numbers of one image, as its processor makes them."""
    made: list[Mapping[str, Tensor]] = [piece.tensors for piece in prompt.pieces]
    made = made or [prompt.whole]
    pixels = [v for tensors in made for k, v in tensors.items() if k.startswith("pixel_values")]
    return sum(values.numel() for values in pixels) // len(prompt.order)


def _widest(hidden: int, inner: int) -> int:
    """Numbers per token inside a transformer block: residual, norms, query, key, value and output,
    and three rows of the feed-forward block."""
    return 8 * hidden + 3 * inner
