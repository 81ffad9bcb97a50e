"""Tiny models of real families with random weights: what the doctor tries the probe on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

#: Token ids of the prompt: 1 is the image token, 7 ends an answer, the rest are words.
IMAGE, END, VOCABULARY = 1, 7, 32
#: A word, four visual tokens, a word, four visual tokens, three words.
PROMPT = (9, *[IMAGE] * 4, 10, *[IMAGE] * 4, 11, 12, 13)
#: The image each token belongs to.
REGIONS = (-1, *[0] * 4, -1, *[1] * 4, -1, -1, -1)
ANSWERS = (2, 3)

_TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": None,
    "eos_token_id": END,
}
_TOWER = {"hidden_size": 16, "intermediate_size": 24, "patch_size": 4}
#: Wide enough for attention far from uniform.
_STD = 0.2


@dataclass(frozen=True)
class Tiny:
    """A configuration, and what the model takes beside the prompt's tokens for two images."""

    config: Callable[[], Any]
    images: Callable[[], dict[str, Tensor]]


def _internvl() -> Any:
    from transformers import InternVLConfig

    tower = _TOWER | {"num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16}
    text = _TEXT | {"model_type": "qwen2"}
    return InternVLConfig(vision_config=tower, text_config=text, image_token_id=IMAGE)


def _internvl_images() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 16, 16)}


def _qwen2_5_vl() -> Any:
    from transformers import Qwen2_5_VLConfig

    tower = _TOWER | {"depth": 2, "num_heads": 2, "out_hidden_size": 32, "window_size": 16}
    axes = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    return Qwen2_5_VLConfig(
        vision_config=tower | {"fullatt_block_indexes": [1]},
        text_config=_TEXT | {"rope_parameters": axes},
        image_token_id=IMAGE,
        video_token_id=4,
        vision_start_token_id=5,
        vision_end_token_id=6,
    )


def _qwen2_5_vl_images() -> dict[str, Tensor]:
    """Two images of 4 x 4 patches, each of two frames of 3 x 4 x 4 pixels."""
    return {
        "pixel_values": torch.randn(2 * 16, 2 * 3 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 4, 4]] * 2),
        "mm_token_type_ids": (torch.tensor([PROMPT]) == IMAGE).long(),
    }


FAMILIES = {
    "internvl": Tiny(_internvl, _internvl_images),
    "qwen2_5_vl": Tiny(_qwen2_5_vl, _qwen2_5_vl_images),
}


def build(family: str) -> tuple[Any, dict[str, Tensor]]:
    """The model and its inputs, the same numbers every time."""
    from transformers import AutoModelForImageTextToText

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        config = FAMILIES[family].config()
        model = AutoModelForImageTextToText.from_config(  # type: ignore[no-untyped-call]
            config, attn_implementation="sdpa"
        )
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, _STD)
        tokens = torch.tensor([PROMPT])
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        return model.float().eval(), inputs | FAMILIES[family].images()
