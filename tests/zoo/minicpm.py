"""MiniCPM-V: slices of an image, and a number of its own before it."""

from __future__ import annotations

import transformers as tf

from lookright.processors import compose_processor
from zoo.text import chat_template, make_tokenizer
from zoo.tiny import decoder, random_model

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def minicpmv4_6() -> Pair:
    """A hybrid decoder; an image has a number of its own in the prompt, and slices."""
    return _minicpm(
        tf.MiniCPMV4_6Config, tf.MiniCPMV4_6ForConditionalGeneration, "MiniCPMV4_6Processor"
    )


def minicpmv4_7() -> Pair:
    return _minicpm(
        tf.MiniCPMV4_7Config, tf.MiniCPMV4_7ForConditionalGeneration, "MiniCPMV4_7Processor"
    )


def _minicpm(config_class: type, model_class: type, processor_name: str) -> Pair:
    names = {
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "image_start_token": "<image>",
        "image_end_token": "</image>",
        "slice_start_token": "<slice>",
        "slice_end_token": "</slice>",
        "image_id_start_token": "<image_id>",
        "image_id_end_token": "</image_id>",
    }
    tokenizer = make_tokenizer(names=names)
    processor = compose_processor(
        getattr(tf, processor_name),
        tf.MiniCPMV4_6ImageProcessorPil(patch_size=4, scale_resolution=32, max_slice_nums=2),
        tokenizer,
        chat_template=chat_template("<|image_pad|>"),
    )
    config = config_class(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 4,
            "insert_layer_id": 0,
        },
        text_config=decoder(
            tokenizer,
            model_type="qwen3_5_text",
            head_dim=16,
            layer_types=["linear_attention", "full_attention"],
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
        ),
        image_size=32,
        insert_layer_id=0,
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.video_token_id,
    )
    return random_model(model_class, config, tokenizer), processor
