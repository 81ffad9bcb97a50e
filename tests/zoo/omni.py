"""The part of the omni models that reads: text, images, sound."""

from __future__ import annotations

import transformers as tf

from lookright.processors import compose_processor
from zoo.text import chat_template, make_tokenizer
from zoo.tiny import decoder, random_model

NAMES = {
    "image_token": "<|IMAGE|>",
    "video_token": "<|VIDEO|>",
    "audio_token": "<|AUDIO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}
MROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
TOWER = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "patch_size": 8,
    "spatial_merge_size": 2,
    "out_hidden_size": 32,
}
AUDIO = {
    "d_model": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "output_dim": 32,
}

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def _processor(processor_class: type, tokenizer: tf.PreTrainedTokenizerBase) -> tf.ProcessorMixin:
    return compose_processor(
        processor_class,
        tf.Qwen2VLImageProcessorPil(
            patch_size=8, merge_size=2, size={"shortest_edge": 16 * 16, "longest_edge": 48 * 48}
        ),
        tokenizer,
        feature_extractor=tf.WhisperFeatureExtractor(feature_size=128),
        chat_template=chat_template("<|vision_bos|><|IMAGE|><|vision_eos|>"),
    )


def qwen2_5_omni_thinker() -> Pair:
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Qwen2_5OmniThinkerConfig(
        vision_config=TOWER | {"window_size": 32, "fullatt_block_indexes": [1]},
        text_config=decoder(tokenizer, rope_parameters=MROPE),
        audio_config=AUDIO,
        image_token_index=tokenizer.image_token_id,
        video_token_index=tokenizer.video_token_id,
        audio_token_index=tokenizer.audio_token_id,
        audio_start_token_id=tokenizer.audio_bos_token_id,
        vision_start_token_id=tokenizer.vision_bos_token_id,
        vision_end_token_id=tokenizer.vision_eos_token_id,
        audio_end_token_id=tokenizer.audio_eos_token_id,
    )
    model = random_model(tf.Qwen2_5OmniThinkerForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Qwen2_5OmniProcessor, tokenizer)


def qwen3_omni_moe_thinker() -> Pair:
    tokenizer = make_tokenizer(names=NAMES)
    config = tf.Qwen3OmniMoeThinkerConfig(
        vision_config=TOWER
        | {"depth": 3, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]},
        text_config=decoder(
            tokenizer,
            head_dim=8,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            rope_parameters=MROPE | {"mrope_interleaved": True},
        ),
        audio_config=AUDIO | {"downsample_hidden_size": 8},
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.video_token_id,
        audio_token_id=tokenizer.audio_token_id,
        audio_start_token_id=tokenizer.audio_bos_token_id,
        vision_start_token_id=tokenizer.vision_bos_token_id,
        vision_end_token_id=tokenizer.vision_eos_token_id,
    )
    model = random_model(tf.Qwen3OmniMoeThinkerForConditionalGeneration, config, tokenizer)
    return model, _processor(tf.Qwen3OmniMoeProcessor, tokenizer)
