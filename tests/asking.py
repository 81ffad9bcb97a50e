"""Tiny models ready to be asked, questions for them, and the same answers by plain forwards."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel

from lookright.encoding import Prompt
from lookright.identifiers import identifiers_for
from lookright.instance import Instance
from lookright.model import Model, pictures
from lookright.settings import EvidenceSettings
from zoo import build

#: Sizes of the pictures of a question, again and again; two are equal.
SIZES = ((48, 32), (32, 64), (48, 32), (40, 30))
#: Some processors of transformers turn tensors into arrays the way NumPy 1 did.
QUIET = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
#: Types whose images cannot be made small: a second of work each.
SLOW = {"aria", "deepseek_ocr2"}
#: Types whose processor says nothing of one image alone: it is given every prompt whole.
WHOLE = {
    "chameleon",
    "emu3",
    "ernie4_5_vl_moe",
    "hunyuan_vl",
    "idefics2",
    "minicpmv4_6",
    "minicpmv4_7",
    "paligemma",
    "pp_chart2table",
}
CAPTIONS = ("a", "a man next to a red motorcycle by the sea", "two dogs", "snow on a roof")


@cache
def asked(model_type: str) -> Model:
    """The tiny model of a type, the same one for all who ask for it."""
    hf, processor = build(model_type)
    return Model.wrap(hf, processor, name=model_type, self_check=False)


def fresh(model_type: str, **options: Any) -> Model:
    """A tiny model of one's own, to be changed."""
    hf, processor = build(model_type)
    return Model.wrap(hf, processor, name=model_type, **{"self_check": False, **options})


def noise(seed: int, size: tuple[int, int] = SIZES[0]) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    return Image.fromarray(values)


def question(number: int = 0, n: int = 4, **fields: Any) -> Instance:
    """A question about n pictures of several sizes, with a caption unless `fields` name another."""
    shown = tuple(noise(100 * number + k, SIZES[k % len(SIZES)]) for k in range(n))
    fields = {"caption": CAPTIONS[number % len(CAPTIONS)]} | fields
    return Instance(f"q{number}", shown, **fields)


def prompt_of(
    model: Model,
    instance: Instance,
    order: Sequence[int],
    settings: EvidenceSettings | None = None,
) -> Prompt:
    """The prompt as the model makes it."""
    shown = pictures(instance)
    loads = [picture.decode for picture in shown]
    return model.encoder.prompt(
        instance,
        tuple(order),
        settings or EvidenceSettings(),
        [picture.hash for picture in shown],
        loads,
    )


def stock_inputs(
    model: Model,
    instance: Instance,
    order: Sequence[int],
    settings: EvidenceSettings | None = None,
) -> dict[str, Tensor]:
    """What the model's own processor makes of the whole prompt, for the model's own forward."""
    chat = (settings or EvidenceSettings()).conversation(instance)
    text = model.encoder.processor.apply_chat_template(
        chat, add_generation_prompt=True, tokenize=False
    )
    made = model.encoder.whole(text, [instance.images[index] for index in order], {})  # type: ignore[misc]
    return {k: v for k, v in made.items() if isinstance(v, Tensor) and model.backbone.takes(k)}


@torch.inference_mode()
def brute_force(
    model: Model,
    instance: Instance,
    order: Sequence[int],
    settings: EvidenceSettings,
    lead: str = "",
) -> NDArray[np.float64]:
    """log P of every candidate by one plain forward of prompt and prefix for each node. [N]"""
    names = identifiers_for(settings.identifiers, len(order))
    tokenizer: Any = model.encoder.tokenizer
    prompt = stock_inputs(model, instance, order, settings)
    ends = model.backbone.ends(tokenizer)
    said = [tuple(tokenizer(lead + name, add_special_tokens=False)["input_ids"]) for name in names]
    following: dict[tuple[int, ...], dict[int | None, float]] = {}  # prefix -> next or end -> log P

    def children(prefix: tuple[int, ...]) -> dict[int | None, float]:
        if prefix not in following:
            depth = len(prefix)
            here = [tokens for tokens in said if tokens[:depth] == prefix]
            choices = sorted({t[depth] for t in here if len(t) > depth})
            logits = _next_logits(model.backbone.hf, prompt, prefix)
            scores: dict[int | None, Tensor] = {token: logits[token] for token in choices}
            if prefix in said:
                scores[None] = torch.logsumexp(torch.stack([logits[end] for end in ends]), 0)
            total = torch.logsumexp(torch.stack(list(scores.values())), 0)
            following[prefix] = {k: float(score - total) for k, score in scores.items()}
        return following[prefix]

    return np.array(
        [
            sum(
                children(tokens[:depth])[token]
                for depth, token in enumerate((*tokens, None))  # type: ignore[arg-type]
            )
            for tokens in said
        ]
    )


def _next_logits(hf: PreTrainedModel, prompt: dict[str, Tensor], prefix: tuple[int, ...]) -> Tensor:
    """The logits after prompt and prefix, by the stock forward without a cache. [vocabulary]"""
    length = prompt["input_ids"].shape[1]
    said = torch.tensor([prefix], dtype=torch.long)
    after = {"input_ids": said, "attention_mask": torch.ones_like(said)}
    if hf.config.model_type == "paligemma":  # its prompt sees itself both ways, its answer does not
        after["token_type_ids"] = torch.ones_like(said)
    inputs = {
        name: torch.cat([value, after.get(name, torch.zeros_like(said))], 1)
        if value.shape == (1, length)
        else value
        for name, value in prompt.items()
    }
    logits: Tensor = hf(**inputs, use_cache=False, logits_to_keep=1).logits
    return logits[0, -1].double()
