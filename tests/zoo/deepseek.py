"""DeepSeek-VL and Janus: a fixed number of tokens for each image."""

from __future__ import annotations

import transformers as tf

from zoo.text import chat_template, make_tokenizer
from zoo.tiny import VISION, decoder, random_model

NAMES = {"image_token": "<image_placeholder>", "boi_token": "<boi>", "eoi_token": "<eoi>"}
SIGLIP = VISION | {"model_type": "siglip_vision_model", "vision_use_head": False}

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def deepseek_vl() -> Pair:
    tokenizer = make_tokenizer(names=NAMES)
    processor = tf.DeepseekVLProcessor(
        tf.DeepseekVLImageProcessorPil(size={"height": 32, "width": 32}),
        tokenizer,
        num_image_tokens=16,
        chat_template=chat_template("<image_placeholder>"),
    )
    config = tf.DeepseekVLConfig(
        vision_config=SIGLIP,
        text_config=decoder(tokenizer, model_type="llama"),
        image_token_id=tokenizer.image_token_id,
    )
    return random_model(tf.DeepseekVLForConditionalGeneration, config, tokenizer), processor


def janus() -> Pair:
    tokenizer = make_tokenizer(names=NAMES)
    processor = tf.JanusProcessor(
        tf.JanusImageProcessorPil(size={"height": 32, "width": 32}),
        tokenizer,
        num_image_tokens=16,
        chat_template=chat_template("<image_placeholder>\n"),
    )
    config = tf.JanusConfig(
        vision_config=VISION | {"mlp_ratio": 2.0, "projection_dim": 32, "num_image_tokens": 16},
        text_config=decoder(tokenizer, model_type="llama"),
        vq_config={
            "embed_dim": 4,
            "num_embeddings": 8,
            "latent_channels": 8,
            "base_channels": 32,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 1,
            "num_patches": 4,
            "projection_dim": 32,
            "image_token_embed_dim": 32,
        },
        image_token_id=tokenizer.image_token_id,
    )
    return random_model(tf.JanusForConditionalGeneration, config, tokenizer), processor


def deepseek_vl_hybrid() -> Pair:
    """A second tower sees each image in a higher resolution."""
    tokenizer = make_tokenizer(names=NAMES)
    processor = tf.DeepseekVLHybridProcessor(
        tf.DeepseekVLHybridImageProcessorPil(
            size={"height": 32, "width": 32}, high_res_size={"height": 64, "width": 64}
        ),
        tokenizer,
        num_image_tokens=16,
        chat_template=chat_template("<image_placeholder>"),
    )
    config = tf.DeepseekVLHybridConfig(
        vision_config=SIGLIP,
        high_res_vision_config={
            "model_type": "sam_vision_model",
            "hidden_size": 16,
            "output_channels": 8,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 64,
            "patch_size": 8,
            "mlp_dim": 24,
            "window_size": 4,
            "global_attn_indexes": [1],
        },
        text_config=decoder(tokenizer, model_type="llama"),
        image_token_id=tokenizer.image_token_id,
    )
    model = random_model(tf.DeepseekVLHybridForConditionalGeneration, config, tokenizer)
    return model, processor


def deepseek_ocr2() -> Pair:
    """A causal encoder answers 256 queries an image, and one token ends it."""
    tokenizer = make_tokenizer(names={"image_token": "<image>"})
    processor = tf.DeepseekOcr2Processor(
        tf.DeepseekOcr2ImageProcessorPil(size={"height": 256, "width": 256}, crop_to_patches=False),
        tokenizer,
        patch_size=4,
        chat_template=chat_template("<image>\n"),
    )
    config = tf.DeepseekOcr2Config(
        vision_config={
            "sam_config": {
                "hidden_size": 16,
                "output_channels": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 256,
                "patch_size": 4,
                "window_size": 8,
                "global_attn_indexes": [],
                "mlp_dim": 24,
                "downsample_channels": [16, 32],
            },
            "encoder_config": decoder(tokenizer, num_hidden_layers=1),
        },
        text_config=decoder(
            tokenizer,
            n_routed_experts=4,
            n_shared_experts=1,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            mlp_layer_types=["dense", "sparse"],
        ),
        image_token_id=processor.image_token_id,
    )
    return random_model(tf.DeepseekOcr2ForConditionalGeneration, config, tokenizer), processor
