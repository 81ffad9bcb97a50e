"""Families whose processor needs torchvision: their models on tensors made here."""

from __future__ import annotations

import torch
import transformers as tf

from zoo.tensors import Prompt, gridded, pixels, prompt
from zoo.text import make_tokenizer
from zoo.tiny import VISION, decoder, random_model
from zoo.tower import TowerConfig

Bare = tuple[tf.PreTrainedModel, Prompt]


def cohere2_vision() -> Bare:
    tokenizer = make_tokenizer(names={"image_token": "<|IMG_PATCH|>"})
    config = tf.Cohere2VisionConfig(
        vision_config=VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        text_config=decoder(
            tokenizer,
            model_type="cohere2",
            sliding_window=32,
            layer_types=["sliding_attention", "full_attention"],
            logit_scale=1.0,
        ),
        image_token_id=tokenizer.image_token_id,
        alignment_intermediate_size=32,
    )
    model = random_model(tf.Cohere2VisionForConditionalGeneration, config, tokenizer)
    return model, prompt(tokenizer.image_token_id, [4, 4, 4], pixel_values=pixels(3, 3, 32, 32))


def lfm2_vl() -> Bare:
    """Short convolutions, and one attention layer among them."""
    tokenizer = make_tokenizer(names={"image_token": "<image>"})
    config = tf.Lfm2VlConfig(
        vision_config={
            "model_type": "siglip2_vision_model",
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 8,
            "num_patches": 16,
            "vision_use_head": False,
        },
        text_config=decoder(
            tokenizer,
            model_type="lfm2",
            num_hidden_layers=3,
            layer_types=["conv", "full_attention", "conv"],
        ),
        image_token_id=tokenizer.image_token_id,
        projector_hidden_size=32,
    )
    model = random_model(tf.Lfm2VlForConditionalGeneration, config, tokenizer)
    shapes = torch.tensor([[4, 4], [2, 4], [4, 2]])
    lengths = shapes.prod(dim=1)
    return model, prompt(
        tokenizer.image_token_id,
        (lengths // 4).tolist(),
        pixel_values=pixels(3, 16, 192),
        spatial_shapes=shapes,
        pixel_attention_mask=(torch.arange(16) < lengths[:, None]).int(),
    )


def perception_lm() -> Bare:
    """Each image is a batch of tiles, pooled two by two."""
    tokenizer = make_tokenizer(["<video>"], {"image_token": "<image>"})
    config = tf.PerceptionLMConfig(
        vision_config=TowerConfig(flat=True, model_args={"embed_dim": 16}),
        text_config=decoder(tokenizer, model_type="llama"),
        vision_use_cls_token=False,
        projector_pooling_ratio=2,
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
        tie_word_embeddings=False,
    )
    model = random_model(tf.PerceptionLMForConditionalGeneration, config, tokenizer)
    return model, prompt(tokenizer.image_token_id, [8, 8, 8], pixel_values=pixels(3, 2, 3, 32, 32))


def gemma4_unified() -> Bare:
    """No vision tower: the decoder takes an image's pixels; keys serve as values."""
    tokenizer = make_tokenizer(["<video>", "<audio>"], {"image_token": "<image>"})
    config = tf.Gemma4UnifiedConfig(
        vision_config={
            "patch_size": 4,
            "pooling_kernel_size": 2,
            "mm_embed_dim": 16,
            "mm_posemb_size": 16,
            "output_proj_dims": 16,
        },
        audio_config=None,
        text_config=decoder(
            tokenizer,
            head_dim=8,
            global_head_dim=8,
            num_global_key_value_heads=2,
            attention_k_eq_v=True,
            sliding_window=32,
            layer_types=["sliding_attention", "full_attention"],
        ),
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
        audio_token_id=tokenizer.convert_tokens_to_ids("<audio>"),
    )
    model = random_model(tf.Gemma4UnifiedForConditionalGeneration, config, tokenizer)
    places = torch.stack(
        torch.meshgrid(torch.arange(4), torch.arange(4), indexing="xy"), dim=-1
    ).reshape(1, 16, 2)
    made = prompt(
        tokenizer.image_token_id,
        [16, 16, 16],
        pixel_values=pixels(3, 16, 192),
        image_position_ids=places.expand(3, -1, -1),
    )
    visual = (made.inputs["input_ids"] == tokenizer.image_token_id).long()
    return model, Prompt(made.inputs | {"mm_token_type_ids": visual}, made.spans)


def muse_glimmer() -> Bare:
    """Sliding layers with rotary positions, full layers without; scaled queries and keys."""
    tokenizer = make_tokenizer(["<video>"], {"image_token": "<image>"})
    config = tf.MuseGlimmerConfig(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 8,
            "pos_emb_height": 4,
            "pos_emb_width": 4,
        },
        text_config=decoder(
            tokenizer,
            head_dim=8,
            sliding_window=32,
            layer_types=["sliding_attention", "full_attention"],
        ),
        out_hidden_size=64,
        projector_hidden_size=24,
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
    )
    model = random_model(tf.MuseGlimmerForConditionalGeneration, config, tokenizer)
    return model, gridded(tokenizer.image_token_id, 3 * 2 * 8 * 8)


def minicpm_ocr() -> Bare:
    """A hybrid decoder; the pixels of all images lie in one row."""
    tokenizer = make_tokenizer(["<video>"], {"image_token": "<image>"})
    config = tf.MiniCPMOcrConfig(
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
        insert_layer_id=0,
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
    )
    model = random_model(tf.MiniCPMOcrForConditionalGeneration, config, tokenizer)
    sizes = torch.tensor([[4, 4], [2, 4], [4, 2]], dtype=torch.int32)
    patches = sizes.prod(dim=1)
    return model, prompt(
        tokenizer.image_token_id,
        (patches // 4).tolist(),
        pixel_values=pixels(1, 3, 4, 4 * int(patches.sum())),
        target_sizes=sizes,
    )


def molmo2() -> Bare:
    """Features are added to the placeholder's embedding; all image tokens see each other."""
    tokenizer = make_tokenizer(names={"image_token": "<im_patch>"})
    config = tf.Molmo2Config(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "image_size": [32, 32],
            "patch_size": 8,
        },
        adapter_config={
            "vision_feature_layer": [1, 0],
            "hidden_size": 16,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "intermediate_size": 24,
            "text_hidden_size": 32,
        },
        text_config=decoder(tokenizer, head_dim=8, additional_vocab_size=0),
        image_patch_id=tokenizer.image_token_id,
    )
    model = random_model(tf.Molmo2ForConditionalGeneration, config, tokenizer)
    pooling = torch.arange(48).reshape(12, 4)  # each token pools four patches
    made = prompt(
        tokenizer.image_token_id,
        [4, 4, 4],
        pixel_values=pixels(3, 16, 192),
        image_token_pooling=pooling,
        image_grids=torch.tensor([[2, 2, 0, 0]] * 3),
        image_num_crops=torch.ones(3, dtype=torch.long),
    )
    visual = (made.inputs["input_ids"] == tokenizer.image_token_id).long()
    return model, Prompt(made.inputs | {"mm_token_type_ids": visual}, made.spans)
