"""More families on a tower for images of any size, built like Qwen-VL's."""

from __future__ import annotations

from typing import Any

import transformers as tf

from lookright.processors import compose_processor
from zoo.text import chat_template, make_tokenizer
from zoo.tiny import decoder, random_model

NAMES = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_start_token": "<|vision_start|>",
    "vision_end_token": "<|vision_end|>",
}
TEMPLATE = chat_template("<|vision_start|><|image_pad|><|vision_end|>")
TOWER = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "patch_size": 8,
    "spatial_merge_size": 2,
    "out_hidden_size": 32,
}

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def _processor(
    processor_class: type, images: type, tokenizer: Any, frames: int = 2, **options: Any
) -> Any:
    """`frames`: how many copies of a picture make a patch, where the tower knows videos."""
    size = {"shortest_edge": 16 * 16, "longest_edge": 48 * 48}
    return compose_processor(
        processor_class,
        images(patch_size=8, merge_size=2, temporal_patch_size=frames, size=size),
        tokenizer,
        **({"chat_template": TEMPLATE} | options),
    )


def exaone4_5() -> Pair:
    """Sliding layers have rotary positions; the full one has none."""
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Exaone4_5_Config(
        vision_config=TOWER
        | {"window_size": 32, "fullatt_block_indexes": [1], "num_key_value_heads": 1},
        text_config=decoder(
            tokenizer,
            model_type="exaone4",
            num_hidden_layers=3,
            sliding_window=32,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.video_token_id,
    )
    model = random_model(tf.Exaone4_5_ForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Exaone4_5_Processor, tf.Qwen2VLImageProcessorPil, tokenizer)


def video_llama_3() -> Pair:
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.VideoLlama3Config(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 8,
        },
        text_config=decoder(tokenizer, model_type="qwen2"),
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.video_token_id,
    )
    model = random_model(tf.VideoLlama3ForConditionalGeneration, config, tokenizer)
    images = tf.VideoLlama3ImageProcessorPil
    return model, _processor(tf.VideoLlama3Processor, images, tokenizer, frames=1)


def cohere_compass() -> Pair:
    """Features of two vision layers enter the decoder again."""
    names = {name: token.upper() for name, token in NAMES.items()}
    tokenizer = make_tokenizer(names=names)
    config = tf.CohereCompassConfig(
        vision_config=TOWER
        | {"depth": 3, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]},
        text_config=decoder(
            tokenizer,
            num_hidden_layers=3,
            sliding_window=32,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters={
                kind: {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
                for kind in ("sliding_attention", "full_attention")
            },
        ),
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.video_token_id,
        vision_start_token_id=tokenizer.vision_start_token_id,
        vision_end_token_id=tokenizer.vision_end_token_id,
    )
    model = random_model(tf.CohereCompassForConditionalGeneration, config, tokenizer)
    processor = _processor(
        tf.CohereCompassProcessor,
        tf.CohereCompassImageProcessorPil,
        tokenizer,
        chat_template=chat_template("<|VISION_START|><|IMAGE_PAD|><|VISION_END|>"),
    )
    return model, processor


def cosmos3_edge() -> Pair:
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Cosmos3EdgeConfig(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 8,
            "num_patches": 16,
            "spatial_merge_size": 2,
        },
        text_config=decoder(
            tokenizer,
            head_dim=8,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [2, 1, 1],
            },
        ),
        projector_hidden_size=32,
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.video_token_id,
        vision_start_token_id=tokenizer.vision_start_token_id,
        vision_end_token_id=tokenizer.vision_end_token_id,
    )
    model = random_model(tf.Cosmos3EdgeForConditionalGeneration, config, tokenizer)
    images = tf.Cosmos3EdgeImageProcessorPil
    return model, _processor(tf.Cosmos3EdgeProcessor, images, tokenizer, frames=1)


def hyperclovax_vision_v2() -> Pair:
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.HyperCLOVAXVisionV2Config(
        vision_config=TOWER
        | {"model_type": "qwen2_5_vl_vision", "window_size": 32, "fullatt_block_indexes": [1]},
        text_config=decoder(tokenizer, model_type="hyperclovax"),
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.video_token_id,
    )
    model = random_model(tf.HyperCLOVAXVisionV2ForConditionalGeneration, config, tokenizer)
    images = tf.Qwen2VLImageProcessorPil
    return model, _processor(tf.HyperCLOVAXVisionV2Processor, images, tokenizer)


def lfm3_vl() -> Pair:
    """Short convolutions, sliding and full attention in one decoder."""
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Lfm3VlConfig(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "patch_size": 8,
            "spatial_merge_size": 2,
        },
        text_config=decoder(
            tokenizer,
            model_type="lfm3",
            num_hidden_layers=3,
            head_dim=8,
            sliding_window=32,
            layer_types=["conv", "sliding_attention", "full_attention"],
        ),
        projector_hidden_size=32,
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.video_token_id,
        vision_start_token_id=tokenizer.vision_start_token_id,
        vision_end_token_id=tokenizer.vision_end_token_id,
    )
    model = random_model(tf.Lfm3VlForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Lfm3VlProcessor, tf.Qwen2VLImageProcessorPil, tokenizer)


def dots3_note() -> Pair:
    """Latent attention: one layer in a sliding window, one over the tokens an indexer picks."""
    markers = ["<|imgpad|>", "<|video_pad|>", "<|audio_comp_pad|>", "<|img|>", "<|endofimg|>"]
    tokenizer = make_tokenizer(markers)
    image, video, audio = tokenizer.convert_tokens_to_ids(markers[:3])
    config = tf.Dots3NoteConfig(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 8,
            "moe_intermediate_size": 8,
            "mlp_layer_types": ["dense", "sparse"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "adapter_in_dim": 16,
            "adapter_out_dim": 32,
        },
        audio_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "downsample_hidden_size": 8,
            "adapter_input_size": 16,
            "adapter_out_dim": 32,
        },
        text_config=decoder(
            tokenizer,
            num_key_value_heads=4,
            layer_types=["indexed_attention", "sliding_attention"],
            mlp_layer_types=["dense", "sparse"],
            sliding_window=48,
            swa_num_attention_heads=4,
            swa_num_key_value_heads=4,
            swa_q_lora_rank=8,
            swa_kv_lora_rank=8,
            swa_head_dim=12,
            swa_qk_nope_head_dim=8,
            swa_v_head_dim=8,
            kv_lora_rank=8,
            q_lora_rank=8,
            qk_rope_head_dim=4,
            v_head_dim=8,
            qk_nope_head_dim=8,
            head_dim=8,
            n_routed_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            shared_experts_intermediate_size=16,
            index_topk=48,
            index_head_dim=8,
            index_n_heads=8,
        ),
        image_token_id=image,
        video_token_id=video,
        audio_token_id=audio,
    )
    model = random_model(tf.Dots3NoteForConditionalGeneration, config, tokenizer)
    processor = _processor(
        tf.Dots3NoteProcessor,
        tf.Qwen2VLImageProcessorPil,
        tokenizer,
        frames=1,
        feature_extractor=tf.WhisperFeatureExtractor(),
        chat_template=chat_template("<|img|><|imgpad|><|endofimg|>"),
    )
    return model, processor
