"""The Qwen-VL family: images of any size, positions of several axes."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf

from lookright.processors import compose_processor
from zoo.text import chat_template, make_tokenizer
from zoo.tiny import decoder, random_model

NAMES = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
}
TEMPLATE = chat_template("<|vision_start|><|image_pad|><|vision_end|>")
MROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
#: A vision tower of two blocks for patches of 8 pixels, four of which make one token.
TOWER = {"depth": 2, "num_heads": 2, "patch_size": 8, "spatial_merge_size": 2}

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def _processor(processor_class: type, tokenizer: tf.PreTrainedTokenizerBase) -> Any:
    images = tf.Qwen2VLImageProcessorPil(
        patch_size=8, merge_size=2, size={"shortest_edge": 16 * 16, "longest_edge": 48 * 48}
    )
    return compose_processor(processor_class, images, tokenizer, chat_template=TEMPLATE)


def _ids(tokenizer: tf.PreTrainedTokenizerBase) -> dict[str, int]:
    return {
        "image_token_id": tokenizer.image_token_id,
        "video_token_id": tokenizer.video_token_id,
        "vision_start_token_id": tokenizer.vision_bos_token_id,
        "vision_end_token_id": tokenizer.vision_eos_token_id,
    }


def qwen2_vl() -> Pair:
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Qwen2VLConfig(
        vision_config=TOWER | {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2},
        text_config=decoder(tokenizer, rope_parameters=MROPE),
        **_ids(tokenizer),
    )
    model = random_model(tf.Qwen2VLForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Qwen2VLProcessor, tokenizer)


def qwen2_5_vl() -> Pair:
    """The first block of the vision tower attends within windows."""
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Qwen2_5_VLConfig(
        vision_config=TOWER
        | {"hidden_size": 16, "intermediate_size": 24, "out_hidden_size": 32}
        | {"window_size": 32, "fullatt_block_indexes": [1]},
        text_config=decoder(tokenizer, rope_parameters=MROPE),
        **_ids(tokenizer),
    )
    model = random_model(tf.Qwen2_5_VLForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Qwen2_5_VLProcessor, tokenizer)


def qwen3_vl() -> Pair:
    """Features of two vision layers enter the decoder again (deepstack)."""
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Qwen3VLConfig(
        vision_config=TOWER
        | {"depth": 3, "hidden_size": 16, "intermediate_size": 24, "out_hidden_size": 32}
        | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]},
        text_config=decoder(
            tokenizer,
            num_hidden_layers=3,
            head_dim=8,
            rope_parameters=MROPE | {"mrope_interleaved": True},
        ),
        **_ids(tokenizer),
    )
    model = random_model(tf.Qwen3VLForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Qwen3VLProcessor, tokenizer)


def qwen3_vl_moe() -> Pair:
    """As qwen3_vl, with experts in the decoder."""
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Qwen3VLMoeConfig(
        vision_config=TOWER
        | {"depth": 3, "hidden_size": 16, "intermediate_size": 24, "out_hidden_size": 32}
        | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]},
        text_config=decoder(
            tokenizer,
            head_dim=8,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            rope_parameters=MROPE | {"mrope_interleaved": True},
        ),
        **_ids(tokenizer),
    )
    model = random_model(tf.Qwen3VLMoeForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Qwen3VLProcessor, tokenizer)


def qwen3_5() -> Pair:
    """Linear attention in every layer but the second and the last, which see all tokens."""
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Qwen3_5Config(
        vision_config=TOWER
        | {"hidden_size": 16, "intermediate_size": 24, "out_hidden_size": 32}
        | {"num_position_embeddings": 16},
        text_config=decoder(
            tokenizer,
            num_hidden_layers=4,
            head_dim=16,
            layer_types=["linear_attention", "full_attention"] * 2,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            rope_parameters=MROPE | {"mrope_interleaved": True, "partial_rotary_factor": 0.5},
        ),
        **_ids(tokenizer),
    )
    model = random_model(tf.Qwen3_5ForConditionalGeneration, config, tokenizer)
    for layer in model.get_decoder().layers[::2]:  # states that last longer than a token: what is
        torch.nn.init.constant_(layer.linear_attn.A_log, -2.0)  # left of others is rounding alone
    return model, _processor(tf.Qwen3VLProcessor, tokenizer)


def qwen3_5_moe() -> Pair:
    """As qwen3_5, with experts."""
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Qwen3_5MoeConfig(
        vision_config=TOWER
        | {"hidden_size": 16, "intermediate_size": 24, "out_hidden_size": 32}
        | {"num_position_embeddings": 16},
        text_config=decoder(
            tokenizer,
            head_dim=16,
            layer_types=["linear_attention", "full_attention"],
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
            rope_parameters=MROPE | {"mrope_interleaved": True, "partial_rotary_factor": 0.5},
        ),
        **_ids(tokenizer),
    )
    model = random_model(tf.Qwen3_5MoeForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Qwen3VLProcessor, tokenizer)


def qwen4_exp() -> Pair:
    """Linear attention, and attention to the blocks of tokens an indexer picks."""
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Qwen4ExpConfig(
        vision_config=TOWER
        | {"hidden_size": 16, "intermediate_size": 24, "out_hidden_size": 32}
        | {"num_position_embeddings": 16},
        text_config=decoder(
            tokenizer,
            head_dim=16,
            layer_types=["linear_attention", "indexed_attention"],
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
            hc_count=2,
            hc_lowrank=8,
            indexer_n_heads=8,
            indexer_kv_heads=1,
            indexer_head_dim=8,
            indexer_budget=64,
            indexer_compress_ratio=4,
            rope_parameters=MROPE | {"mrope_interleaved": True, "partial_rotary_factor": 0.5},
        ),
        **_ids(tokenizer),
    )
    model = random_model(tf.Qwen4ExpForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Qwen3VLProcessor, tokenizer)


def cosmos3_omni() -> Pair:
    """Qwen3-VL's reader, as part of a world model."""
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Cosmos3OmniConfig(
        vision_config=TOWER
        | {"depth": 3, "hidden_size": 16, "intermediate_size": 24, "out_hidden_size": 32}
        | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]},
        text_config=decoder(
            tokenizer, head_dim=8, rope_parameters=MROPE | {"mrope_interleaved": True}
        ),
        **_ids(tokenizer),
    )
    model = random_model(tf.Cosmos3OmniForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Qwen3VLProcessor, tokenizer)
