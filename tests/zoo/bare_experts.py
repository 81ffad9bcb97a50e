"""As in `bare`, decoders with a mixture of experts."""

from __future__ import annotations

import torch
import transformers as tf

from zoo.tensors import Prompt, gridded, pixels, prompt
from zoo.text import make_tokenizer
from zoo.tiny import VISION, decoder, random_model

Bare = tuple[tf.PreTrainedModel, Prompt]


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
    return model, prompt(tokenizer.image_token_id, [4, 4, 4], pixel_values=pixels(3, 3, 32, 32))


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
    return model, gridded(tokenizer.image_token_id, 3, 8, 8)


def minimax_m3_vl() -> Bare:
    """Attention to the blocks of tokens an indexer picks; experts."""
    tokenizer = make_tokenizer(["<video>"], {"image_token": "<image>"})
    config = tf.MiniMaxM3VLConfig(
        vision_config={
            "hidden_size": 24,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
        },
        text_config=decoder(
            tokenizer,
            head_dim=8,
            num_experts_per_tok=2,
            num_local_experts=4,
            dense_intermediate_size=48,
            shared_intermediate_size=16,
            rotary_dim=4,
            layer_types=["full_attention", "minimax_m3_sparse"],
            mlp_layer_types=["dense", "sparse"],
            index_n_heads=2,
            index_head_dim=8,
            index_block_size=8,
            index_topk_blocks=4,
        ),
        projector_hidden_size=32,
        image_token_index=tokenizer.image_token_id,
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"),
    )
    model = random_model(tf.MiniMaxM3SparseForConditionalGeneration, config, tokenizer)
    return model, gridded(tokenizer.image_token_id, 3 * 2 * 8 * 8)


def muse_spark() -> Bare:
    """As muse_glimmer, with experts."""
    tokenizer = make_tokenizer(["<video>", "<audio>"], {"image_token": "<image>"})
    config = tf.MuseSparkConfig(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 8,
            "pos_emb_height": 4,
            "pos_emb_width": 4,
        },
        audio_config={
            "patch_sizes": [2],
            "hidden_sizes": [8],
            "depths": [1],
            "num_hidden_layers": 1,
            "out_hidden_size": 32,
        },
        text_config=decoder(
            tokenizer,
            head_dim=8,
            sliding_window=32,
            layer_types=["sliding_attention", "full_attention"],
            moe_intermediate_size=16,
            moe_hidden_size=16,
            num_local_experts=4,
            num_experts_per_tok=2,
            mlp_layer_types=["dense", "sparse"],
        ),
        out_hidden_size=64,
        projector_hidden_size=24,
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
        audio_token_id=tokenizer.convert_tokens_to_ids("<audio>"),
    )
    model = random_model(tf.MuseSparkForConditionalGeneration, config, tokenizer)
    return model, gridded(tokenizer.image_token_id, 3 * 2 * 8 * 8)


def inkling2() -> Bare:
    """A learned bias of relative position and a sink in every row of attention."""
    tokenizer = make_tokenizer(names={"image_token": "<image>"})
    config = tf.Inkling2Config(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 8,
            "posemb_grid_size": 4,
            "projection_hidden_dim": 24,
            "text_hidden_size": 32,
        },
        text_config=decoder(
            tokenizer,
            unpadded_vocab_size=len(tokenizer),
            head_dim=8,
            swa_num_attention_heads=4,
            swa_num_key_value_heads=2,
            swa_head_dim=8,
            sliding_window_size=32,
            d_rel=4,
            rel_extent=16,
            layer_types=["hybrid_sliding", "hybrid"],
            moe_intermediate_size=16,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_layers_per_attn_res_block=1,
        ),
        image_token_id=tokenizer.image_token_id,
    )
    model = random_model(tf.Inkling2ForConditionalGeneration, config, tokenizer)
    grids = torch.tensor([[1, 2, 2], [1, 1, 2], [1, 2, 1]])
    return model, prompt(
        tokenizer.image_token_id,
        grids.prod(dim=1).tolist(),
        pixel_values=pixels(8, 16, 16, 3),
        image_grid_thw=grids,
    )


def step3p7() -> Bare:
    """Layers of different numbers of heads; experts."""
    tokenizer = make_tokenizer(names={"image_token": "<image>"})
    config = tf.Step3p7Config(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 64,
            "patch_size": 8,
            "max_position_embeddings": 64,
        },
        text_config=decoder(
            tokenizer,
            head_dim=8,
            num_sliding_attention_heads=8,
            sliding_window=32,
            layer_types=["sliding_attention", "full_attention"],
            mlp_layer_types=["dense", "sparse"],
            num_experts_per_tok=2,
            num_local_experts=4,
            n_routed_experts=4,
            moe_intermediate_size=16,
            share_expert_dim=16,
        ),
        image_token_id=tokenizer.image_token_id,
    )
    model = random_model(tf.Step3p7ForConditionalGeneration, config, tokenizer)
    return model, prompt(tokenizer.image_token_id, [4, 4, 4], pixel_values=pixels(3, 3, 64, 64))


def nemotron_h_omni() -> Bare:
    """State-space layers, one attention layer and feed-forward layers take turns."""
    tokenizer = make_tokenizer(["<video>", "<audio>"], {"image_token": "<image>"})
    config = tf.NemotronH_Omni_Reasoning_V3_Config(
        vision_config={
            "model_type": "radio",
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "mlp_ratio": 2.0,
            "patch_size": 8,
            "image_size": 32,
            "max_img_size": 64,
            "num_cls_tokens": 1,
            "num_registers": 1,
            "video_temporal_patch_size": 2,
            "summary_idxs": [0],
        },
        text_config=decoder(
            tokenizer,
            model_type="nemotron_h",
            num_hidden_layers=4,
            layer_types=["linear_attention", "mlp", "full_attention", "moe"],
            head_dim=8,
            ssm_state_size=8,
            mamba_num_heads=4,
            mamba_head_dim=8,
            n_groups=2,
            chunk_size=16,
            n_routed_experts=4,
            moe_intermediate_size=16,
            moe_shared_expert_intermediate_size=16,
        ),
        projector_hidden_size=32,
        vision_hidden_size=16,
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
        audio_token_id=tokenizer.convert_tokens_to_ids("<audio>"),
    )
    model = random_model(tf.NemotronH_Omni_Reasoning_V3, config, tokenizer)
    grids = torch.tensor([[4, 4], [2, 4], [4, 2]])
    patches = grids.prod(dim=1)
    return model, prompt(
        tokenizer.image_token_id,
        (patches // 4).tolist(),
        pixel_values=pixels(int(patches.sum()), 192),
        image_grid_hw=grids,
    )


def unlimited_ocr() -> Bare:
    """An image's rows end in line breaks and the image in a separator, all of them its tokens."""
    tokenizer = make_tokenizer(names={"image_token": "<image>"})
    config = tf.UnlimitedOcrConfig(
        vision_config={
            "sam_config": {
                "hidden_size": 16,
                "output_channels": 8,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 32,
                "patch_size": 4,
                "window_size": 4,
                "global_attn_indexes": [1],
                "mlp_dim": 24,
                "downsample_channels": [16, 16],
            },
            "encoder_config": VISION | {"image_size": 8, "patch_size": 4},
        },
        text_config=decoder(
            tokenizer,
            num_key_value_heads=4,
            n_routed_experts=4,
            n_shared_experts=1,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            mlp_layer_types=["dense", "sparse"],
            sliding_window=32,
        ),
        image_token_id=tokenizer.image_token_id,
    )
    model = random_model(tf.UnlimitedOcrForConditionalGeneration, config, tokenizer)
    return model, prompt(tokenizer.image_token_id, [7, 7, 7], pixel_values=pixels(3, 3, 32, 32))
