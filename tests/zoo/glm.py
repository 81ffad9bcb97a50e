"""The GLM-V family: images of any size, positions of several axes."""

from __future__ import annotations

from typing import Any

import transformers as tf

from lookright.processors import compose_processor
from zoo.text import chat_template, make_tokenizer
from zoo.tiny import decoder, random_model

MARKERS = ["<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"]
NAMES = {"image_token": "<|image|>", "video_token": "<|video|>"}
TEMPLATE = chat_template("<|begin_of_image|><|image|><|end_of_image|>")
TOWER = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "image_size": 32,
    "patch_size": 8,
    "out_hidden_size": 32,
}
MROPE = {
    "rope_type": "default",
    "mrope_section": [1, 1, 0],
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
}

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def _ids(tokenizer: tf.PreTrainedTokenizerBase) -> dict[str, int]:
    start, end, video_start, video_end = tokenizer.convert_tokens_to_ids(MARKERS)
    return {
        "image_token_id": tokenizer.image_token_id,
        "video_token_id": tokenizer.video_token_id,
        "image_start_token_id": start,
        "image_end_token_id": end,
        "video_start_token_id": video_start,
        "video_end_token_id": video_end,
    }


def _processor(processor_class: type, images: type, tokenizer: Any) -> Any:
    size = {"shortest_edge": 2 * 16 * 16, "longest_edge": 2 * 40 * 40}
    return compose_processor(
        processor_class,
        images(patch_size=8, merge_size=2, size=size),
        tokenizer,
        chat_template=TEMPLATE,
    )


def glm4v() -> Pair:
    tokenizer = make_tokenizer(MARKERS, NAMES)
    config = tf.Glm4vConfig(
        vision_config=TOWER,
        text_config=decoder(tokenizer, rope_parameters=MROPE),
        **_ids(tokenizer),
    )
    model = random_model(tf.Glm4vForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Glm4vProcessor, tf.Glm4vImageProcessorPil, tokenizer)


def glm46v() -> Pair:
    tokenizer = make_tokenizer(MARKERS, NAMES)
    config = tf.Glm46VConfig(
        vision_config=TOWER | {"model_type": "glm4v_vision"},
        text_config=decoder(tokenizer, model_type="glm4v_text", rope_parameters=MROPE),
        **_ids(tokenizer),
    )
    model = random_model(tf.Glm46VForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Glm46VProcessor, tf.Glm46VImageProcessorPil, tokenizer)


def glm4v_moe() -> Pair:
    """A dense first layer, then experts beside a shared one."""
    tokenizer = make_tokenizer(MARKERS, NAMES)
    config = tf.Glm4vMoeConfig(
        vision_config=TOWER,
        text_config=decoder(
            tokenizer,
            head_dim=8,
            n_routed_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            first_k_dense_replace=1,
            rope_parameters=MROPE,
        ),
        **_ids(tokenizer),
    )
    model = random_model(tf.Glm4vMoeForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Glm4vProcessor, tf.Glm4vImageProcessorPil, tokenizer)


def glm_ocr() -> Pair:
    tokenizer = make_tokenizer(MARKERS, NAMES)
    config = tf.GlmOcrConfig(
        vision_config=TOWER,
        text_config=decoder(tokenizer, head_dim=8, rope_parameters=MROPE),
        **_ids(tokenizer),
    )
    model = random_model(tf.GlmOcrForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Glm46VProcessor, tf.Glm46VImageProcessorPil, tokenizer)


def glmga() -> Pair:
    """GLM-4.6V's model, with an image processor of its own."""
    tokenizer = make_tokenizer(MARKERS, NAMES)
    config = tf.GlmgaConfig(
        vision_config=TOWER | {"model_type": "glm4v_vision"},
        text_config=decoder(tokenizer, model_type="glm4v_text", rope_parameters=MROPE),
        **_ids(tokenizer),
    )
    model = random_model(tf.Glm46VForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Glm46VProcessor, tf.GlmgaImageProcessorPil, tokenizer)


def glm5_next() -> Pair:
    """Linear attention, and latent attention that looks at the tokens an indexer picks."""
    tokenizer = make_tokenizer(MARKERS, NAMES)
    config = tf.Glm5NextConfig(
        vision_config=TOWER | {"projection_intermediate_size": 24},
        text_config=decoder(
            tokenizer,
            num_hidden_layers=3,
            num_key_value_heads=4,
            layer_types=["indexed_attention", "linear_attention", "indexed_attention"],
            indexer_types=["full", "full", "full"],
            mlp_layer_types=["dense", "sparse", "sparse"],
            kv_lora_rank=8,
            q_lora_rank=8,
            v_head_dim=8,
            qk_nope_head_dim=8,
            n_routed_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            index_topk=48,
            index_head_dim=8,
            index_n_heads=8,
            index_kpool=4,
            linear_head_dim=8,
            linear_num_heads=2,
            hc_mult=2,
        ),
        **_ids(tokenizer),
    )
    model = random_model(tf.Glm5NextForConditionalGeneration, config, tokenizer)
    images = tf.Glm5NextImageProcessorPil(
        patch_size=8, merge_size=2, min_image_tokens=1, max_image_tokens=9
    )
    processor = compose_processor(tf.Glm5NextProcessor, images, tokenizer, chat_template=TEMPLATE)
    return model, processor
