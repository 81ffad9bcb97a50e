"""The Gemma family: sliding windows, and image tokens that see each other both ways."""

from __future__ import annotations

import transformers as tf

from lookright.processors import compose_processor, processor_class
from zoo.text import chat_template, make_tokenizer
from zoo.tiny import VISION, decoder, random_model
from zoo.tower import Gemma3nTowerConfig

NAMES = {"image_token": "<image_soft_token>", "boi_token": "<boi>", "eoi_token": "<eoi>"}

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def gemma3() -> Pair:
    tokenizer = make_tokenizer(names=NAMES)
    processor = tf.Gemma3Processor(
        tf.Gemma3ImageProcessorPil(size={"height": 32, "width": 32}),
        tokenizer,
        image_seq_length=4,
        chat_template=chat_template("<boi>"),
    )
    text = decoder(
        tokenizer,
        model_type="gemma3_text",
        num_hidden_layers=3,
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=64,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )
    config = tf.Gemma3Config(
        vision_config=VISION | {"model_type": "siglip_vision_model"},
        text_config=text,
        mm_tokens_per_image=4,
        image_token_index=tokenizer.image_token_id,
        boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
    )
    return random_model(tf.Gemma3ForConditionalGeneration, config, tokenizer), processor


def gemma4() -> Pair:
    """Every token has an embedding a layer; the last two layers use the keys of the first two."""
    names = NAMES | {"audio_token": "<audio>", "boa_token": "<boa>", "eoa_token": "<eoa>"}
    tokenizer = make_tokenizer(["<|video|>"], names)
    processor = compose_processor(
        processor_class("Gemma4Processor"),
        tf.Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70, pooling_kernel_size=2),
        tokenizer,
        feature_extractor=tf.Gemma4AudioFeatureExtractor(),
        image_seq_length=70,
        chat_template=chat_template("<image_soft_token>"),
    )
    text = decoder(
        tokenizer,
        num_hidden_layers=4,
        num_kv_shared_layers=2,
        head_dim=8,
        global_head_dim=8,
        sliding_window=64,
        layer_types=["sliding_attention", "full_attention"] * 2,
        vocab_size_per_layer_input=len(tokenizer),
        hidden_size_per_layer_input=8,
    )
    config = tf.Gemma4Config(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "patch_size": 4,
            "pooling_kernel_size": 2,
            "position_embedding_size": 64,
        },
        text_config=text,
        audio_config=None,
        image_token_id=tokenizer.image_token_id,
        boi_token_id=tokenizer.boi_token_id,
        eoi_token_id=tokenizer.eoi_token_id,
        video_token_id=processor.video_token_id,
        audio_token_id=tokenizer.audio_token_id,
        boa_token_id=tokenizer.boa_token_id,
        eoa_token_index=tokenizer.eoa_token_id,
    )
    return random_model(tf.Gemma4ForConditionalGeneration, config, tokenizer), processor


def paligemma() -> Pair:
    """The whole prompt sees itself both ways."""
    tokenizer = make_tokenizer(names={"image_token": "<image>"}, bos=True)
    images = tf.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    images.image_seq_length = 16
    processor = tf.PaliGemmaProcessor(images, tokenizer, chat_template=chat_template("<image>"))
    config = tf.PaliGemmaConfig(
        vision_config=VISION
        | {"model_type": "siglip_vision_model", "vision_use_head": False, "projection_dim": 32},
        text_config=decoder(tokenizer, model_type="gemma", head_dim=8),
        image_token_index=tokenizer.image_token_id,
        projection_dim=32,
        hidden_size=32,
    )
    return random_model(tf.PaliGemmaForConditionalGeneration, config, tokenizer), processor


def gemma3n() -> Pair:
    """Four streams of hidden states; the last layers use the keys of earlier ones."""
    names = NAMES | {"audio_token": "<audio>", "boa_token": "<boa>", "eoa_token": "<eoa>"}
    tokenizer = make_tokenizer(names=names)
    processor = tf.Gemma3nProcessor(
        tf.Gemma3nAudioFeatureExtractor(),
        tf.SiglipImageProcessorPil(size={"height": 32, "width": 32}),
        tokenizer,
        image_seq_length=16,
        chat_template=chat_template("<image_soft_token>"),
    )
    text = decoder(
        tokenizer,
        num_hidden_layers=4,
        num_kv_shared_layers=2,
        head_dim=8,
        sliding_window=64,
        layer_types=["sliding_attention", "full_attention"] * 2,
        vocab_size_per_layer_input=len(tokenizer),
        hidden_size_per_layer_input=8,
        laurel_rank=4,
        intermediate_size=[48] * 4,
        activation_sparsity_pattern=[0.5, 0.5, 0.0, 0.0],
    )
    config = tf.Gemma3nConfig(
        vision_config=Gemma3nTowerConfig(hidden_size=16, vocab_offset=len(tokenizer)),
        text_config=text,
        audio_config={
            "hidden_size": 16,
            "input_feat_size": 32,
            "conf_num_attention_heads": 2,
            "conf_num_hidden_layers": 1,
            "sscp_conv_channel_size": [4, 4],
            "vocab_offset": len(tokenizer) + 128,
        },
        vision_soft_tokens_per_image=16,
        image_token_id=tokenizer.image_token_id,
        boi_token_id=tokenizer.boi_token_id,
        eoi_token_id=tokenizer.eoi_token_id,
        audio_token_id=tokenizer.audio_token_id,
        boa_token_id=tokenizer.boa_token_id,
        eoa_token_id=tokenizer.eoa_token_id,
    )
    return random_model(tf.Gemma3nForConditionalGeneration, config, tokenizer), processor
