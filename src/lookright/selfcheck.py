"""A model is believed once its probe equals eager attention on one short prompt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import Tensor, nn

from lookright.attention import ONE_PASS
from lookright.candidates import joint_log_probs, node_log_probs, node_tokens
from lookright.errors import InputError
from lookright.families import ALONE
from lookright.instance import Instance
from lookright.settings import EvidenceSettings

if TYPE_CHECKING:
    from lookright.backbone import Backbone
    from lookright.model import Model

#: The largest difference believed: in float32, and in the half formats, whose products differ.
BOUNDS = {"float32": (1e-4, 1e-3), "half": (3e-2, 0.25)}


@dataclass(frozen=True)
class Difference:
    """The largest differences between the probe's evidence and stock eager attention."""

    attention: float
    log_probs: float


def check_backbone(model: Model, settings: EvidenceSettings) -> Difference:
    """Refuse a model whose evidence differs from its own eager attention, saying by how much."""
    found = difference(model, settings)
    kind = "float32" if model.backbone.dtype_name == "float32" else "half"
    for name, value, bound in zip(
        ("attention", "log-probabilities"),
        (found.attention, found.log_probs),
        BOUNDS[kind],
        strict=True,
    ):
        if not value <= bound:
            raise InputError(
                f"{model.backbone.family}: the self-check failed: its {name} differ from the "
                f"model's own eager attention by {value:.2g} (at most {bound:g} is believed); "
                "self_check=False skips this check at your own risk"
            )
    return found


def difference(model: Model, settings: EvidenceSettings) -> Difference:
    """Our pass beside the stock one, its own processor and eager attention, on two pictures.

    Ours is over two prompts, the stock one over the second and shorter of them alone: a family
    that answers otherwise in a left-padded batch is found out as well.
    """
    pictures = [
        Image.linear_gradient("L").resize((96, 64)).convert("RGB"),
        Image.radial_gradient("L").resize((64, 64)).convert("RGB"),
    ]
    plain = EvidenceSettings(processor_options=settings.processor_options)
    prompt, longer = (
        model.encoder.prompt(
            Instance("self-check", tuple(pictures), caption=caption),
            (0, 1),
            plain,
            ("check-0", "check-1"),
            [lambda: pictures[0], lambda: pictures[1]],
        )
        for caption in ("a grey gradient", "a grey gradient from top to bottom, and a round one")
    )
    prompts = [prompt] if model.backbone.family in ALONE else [longer, prompt]
    inputs, regions = model.encoder.collate(prompts)
    trie = model._trie(prompt, plain)
    reading = model.backbone.read(inputs, model._features(prompts), regions, 2, trie)
    stock = model.encoder.whole(prompt.text, pictures, plain.processor_kwargs)
    rows, logits = stock_eager(model.backbone, stock)
    owners = torch.tensor(prompt.regions)
    member = torch.stack([(owners == k).float() for k in range(2)], -1)  # [tokens, images]
    expected = torch.stack(rows).mean(1) @ member  # [layers, images]
    attention = float((reading.attention[-1] - expected).abs().max())
    if trie.later:  # the root does not decide alone: its logits are checked by the attention
        return Difference(attention, 0.0)
    root = node_log_probs(trie, trie.nodes[0], logits[None, node_tokens(trie, trie.nodes[0])])
    theirs = joint_log_probs(trie, [root])[0]
    return Difference(attention, float((reading.log_probs[-1] - theirs).abs().max()))


@torch.inference_mode()
def stock_eager(backbone: Backbone, inputs: dict[str, Any]) -> tuple[list[Tensor], Tensor]:
    """The last row of every attention layer [heads, tokens] and the last logits, stock eager."""
    moved = {
        k: v.to(backbone.device)
        for k, v in inputs.items()
        if isinstance(v, Tensor) and backbone.takes(k)
    }
    rows: dict[int, Tensor] = {}

    def keep(module: nn.Module, _: Any, output: Any) -> None:
        weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
        if isinstance(weights, Tensor):
            rows[module.layer_idx] = weights[0, :, -1].float().cpu()  # type: ignore[index]

    hooks = [
        module.register_forward_hook(keep)
        for module in backbone.decoder.modules()
        if type(module).__name__.endswith("Attention") and hasattr(module, "layer_idx")
    ]
    try:
        with eager(backbone):
            output = backbone.hf(**moved, use_cache=False, return_dict=True)
    finally:
        for hook in hooks:
            hook.remove()
    missing = [layer for layer in backbone.layers if layer not in rows]
    if missing:
        raise InputError(f"{backbone.family}: layer {missing[0]} has no eager attention")
    return [rows[layer] for layer in backbone.layers], output.logits[0, -1].float().cpu()


@contextmanager
def eager(backbone: Backbone) -> Iterator[None]:
    """While inside, the decoder runs transformers' own eager attention."""
    configs = {
        id(config): config
        for config in (
            backbone.text_config,
            *(getattr(module, "config", None) for module in backbone.decoder.modules()),
        )
        if config is not None
    }
    with ONE_PASS:
        before = {key: config._attn_implementation for key, config in configs.items()}
        for config in configs.values():
            config._attn_implementation = "eager"
        try:
            yield
        finally:
            for key, config in configs.items():
                config._attn_implementation = before[key]
