"""Families whose processor needs torchvision: their models on tensors made here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import transformers as tf

from zoo.text import make_tokenizer
from zoo.tiny import VISION, decoder, random_model
from zoo.tower import TowerConfig


@dataclass(frozen=True)
class Prompt:
    """A prompt's tensors, and where the tokens of each image stand: (start, stop)."""

    inputs: dict[str, torch.Tensor]
    spans: tuple[tuple[int, int], ...]


Bare = tuple[tf.PreTrainedModel, Prompt]


def prompt(image_token: int, tokens: Sequence[int], **pixels: torch.Tensor) -> Prompt:
    """A prompt with an image of that many tokens for each of `tokens`, and text around them."""
    draw = torch.Generator().manual_seed(0)
    ids = [_words(draw, 5)]
    spans = []
    for count in tokens:
        start = sum(len(part) for part in ids)
        spans.append((start, start + count))
        ids += [torch.full((count,), image_token), _words(draw, 3)]
    ids.append(_words(draw, 30))
    input_ids = torch.cat(ids)[None]  # [1, tokens]
    mask = torch.ones_like(input_ids)
    return Prompt({"input_ids": input_ids, "attention_mask": mask} | pixels, tuple(spans))


def _words(draw: torch.Generator, count: int) -> torch.Tensor:
    return torch.randint(10, 300, (count,), generator=draw)


def _pixels(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


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
    return model, prompt(tokenizer.image_token_id, [4, 4, 4], pixel_values=_pixels(3, 3, 32, 32))


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
        pixel_values=_pixels(3, 16, 192),
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
    return model, prompt(tokenizer.image_token_id, [8, 8, 8], pixel_values=_pixels(3, 2, 3, 32, 32))


def llama4() -> Bare:
    """Chunked attention with rotary positions, full attention without."""
    tokenizer = make_tokenizer(names={"image_token": "<|patch|>"})
    config = tf.Llama4Config(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
            "vision_output_dim": 24,
            "projector_input_dim": 24,
            "projector_output_dim": 24,
        },
        text_config=decoder(
            tokenizer,
            num_hidden_layers=3,
            head_dim=8,
            intermediate_size_mlp=48,
            num_local_experts=2,
            moe_layers=[1],
            attention_chunk_size=32,
            no_rope_layers=[1, 0, 1],
        ),
        image_token_index=tokenizer.image_token_id,
    )
    model = random_model(tf.Llama4ForConditionalGeneration, config, tokenizer)
    return model, prompt(tokenizer.image_token_id, [4, 4, 4], pixel_values=_pixels(3, 3, 32, 32))


def kimi_k25() -> Bare:
    """Latent attention: a head's keys are wider than its values."""
    tokenizer = make_tokenizer(["<video>"], {"image_token": "<|media_pad|>"})
    config = tf.Kimi_K25Config(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 8,
            "pos_emb_height": 8,
            "pos_emb_width": 8,
        },
        text_config=decoder(
            tokenizer,
            model_type="deepseek_v3",
            num_key_value_heads=4,
            kv_lora_rank=8,
            q_lora_rank=8,
            qk_rope_head_dim=4,
            qk_nope_head_dim=8,
            v_head_dim=8,
            n_routed_experts=4,
            n_group=1,
            topk_group=1,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            first_k_dense_replace=1,
        ),
        projection_hidden_size=16,
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
    )
    model = random_model(tf.Kimi_K25ForConditionalGeneration, config, tokenizer)
    grids = torch.tensor([[1, 4, 4], [1, 2, 4], [1, 4, 2]])
    return model, prompt(
        tokenizer.image_token_id,
        (grids.prod(dim=1) // 4).tolist(),
        pixel_values=_pixels(int(grids.prod(dim=1).sum()), 3, 8, 8),
        image_grid_thw=grids,
    )
