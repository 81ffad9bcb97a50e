"""Sizes and random weights of the tiny models."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

#: A decoder with grouped heads, in the names nearly every text configuration has.
DECODER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "attention_dropout": 0.0,
}

#: A vision tower of the CLIP and SigLIP kind for images of 32 x 32 in patches of 8.
VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}

#: The standard deviation of a random matrix: attention rows come out far from uniform.
STD = 0.2


def decoder(tokenizer: PreTrainedTokenizerBase, **changes: Any) -> dict[str, Any]:
    """A text configuration for this tokenizer."""
    ids = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
    }
    return DECODER | ids | changes


def random_model(
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
) -> PreTrainedModel:
    """The model in float32 with seeded weights wide enough to tell one token from another."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = model_class(config)
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, STD)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model.float().eval()
