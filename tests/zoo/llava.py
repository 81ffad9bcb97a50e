"""LLaVA and what is built like it."""

from __future__ import annotations

import transformers as tf

from lookright.processors import compose_processor
from zoo.text import chat_template, make_tokenizer
from zoo.tiny import VISION, decoder, random_model
from zoo.tower import TowerConfig

CLIP = VISION | {"model_type": "clip_vision_model", "projection_dim": 16}


Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def llava() -> Pair:
    tokenizer = make_tokenizer(names={"image_token": "<image>"})
    processor = tf.LlavaProcessor(
        tf.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat_template("<image>"),
    )
    config = tf.LlavaConfig(
        vision_config=CLIP,
        text_config=decoder(tokenizer, model_type="llama"),
        image_token_index=tokenizer.image_token_id,
        image_seq_length=16,
    )
    return random_model(tf.LlavaForConditionalGeneration, config, tokenizer), processor


def vipllava() -> Pair:
    """The features of several vision layers side by side."""
    _, processor = llava()
    tokenizer = processor.tokenizer
    config = tf.VipLlavaConfig(
        vision_config=CLIP,
        text_config=decoder(tokenizer, model_type="llama"),
        image_token_index=tokenizer.image_token_id,
        image_seq_length=16,
        vision_feature_layer=[-1, -2],
    )
    return random_model(tf.VipLlavaForConditionalGeneration, config, tokenizer), processor


def llava_next() -> Pair:
    """An image becomes a small picture of the whole and as many tiles as its shape asks for."""
    tokenizer = make_tokenizer(names={"image_token": "<image>"})
    pinpoints = [[32, 64], [64, 32]]
    processor = tf.LlavaNextProcessor(
        tf.LlavaNextImageProcessorPil(
            size={"shortest_edge": 32},
            crop_size={"height": 32, "width": 32},
            image_grid_pinpoints=pinpoints,
        ),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat_template("<image>\n"),
    )
    config = tf.LlavaNextConfig(
        vision_config=CLIP,
        text_config=decoder(tokenizer, model_type="llama"),
        image_token_index=tokenizer.image_token_id,
        image_grid_pinpoints=pinpoints,
        image_seq_length=16,
    )
    return random_model(tf.LlavaNextForConditionalGeneration, config, tokenizer), processor


def llava_onevision() -> Pair:
    """With several images in a prompt each is one tile and a line break of its own."""
    tokenizer = make_tokenizer(names={"image_token": "<image>", "video_token": "<video>"})
    pinpoints = [[32, 32], [32, 64], [64, 32]]
    processor = compose_processor(
        tf.LlavaOnevisionProcessor,
        tf.LlavaOnevisionImageProcessorPil(
            size={"height": 32, "width": 32}, image_grid_pinpoints=pinpoints
        ),
        tokenizer,
        num_image_tokens=16,
        vision_feature_select_strategy="full",
        chat_template=chat_template("<image>\n"),
    )
    config = tf.LlavaOnevisionConfig(
        vision_config=VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        text_config=decoder(tokenizer, model_type="qwen2"),
        image_token_index=tokenizer.image_token_id,
        video_token_index=tokenizer.video_token_id,
        image_grid_pinpoints=pinpoints,
    )
    return random_model(tf.LlavaOnevisionForConditionalGeneration, config, tokenizer), processor


def granite4_vision() -> Pair:
    """Query transformers fold windows of the tower's features; they enter at several layers."""
    tokenizer = make_tokenizer(names={"image_token": "<image>"})
    pinpoints = [[32, 64], [64, 32]]
    processor = tf.Granite4VisionProcessor(
        tf.LlavaNextImageProcessorPil(
            size={"shortest_edge": 32},
            crop_size={"height": 32, "width": 32},
            image_grid_pinpoints=pinpoints,
        ),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="full",
        downsample_rate="1/2",
        chat_template=chat_template("<image>\n"),
    )
    config = tf.Granite4VisionConfig(
        vision_config=VISION
        | {"model_type": "siglip_vision_model", "vision_use_head": False, "hidden_size": 64},
        text_config=decoder(tokenizer, num_hidden_layers=3),
        qformer_config={
            "model_type": "blip_2_qformer",
            "num_hidden_layers": 1,
            "intermediate_size": 24,
            "cross_attention_frequency": 1,
        },
        image_token_index=tokenizer.image_token_id,
        image_grid_pinpoints=pinpoints,
        vision_feature_select_strategy="full",
        downsample_rate="1/2",
        deepstack_layer_map=[[-2, 0], [-1, 1]],
    )
    return random_model(tf.Granite4VisionForConditionalGeneration, config, tokenizer), processor


def fast_vlm() -> Pair:
    """A tower that gives a map; its own comes from timm."""
    tokenizer = make_tokenizer(names={"image_token": "<image>"})
    processor = tf.LlavaProcessor(
        tf.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="full",
        chat_template=chat_template("<image>"),
    )
    config = tf.FastVlmConfig(
        vision_config=TowerConfig(),
        text_config=decoder(tokenizer, model_type="qwen2"),
        image_token_index=tokenizer.image_token_id,
    )
    return random_model(tf.FastVlmForConditionalGeneration, config, tokenizer), processor


def llava_next_video() -> Pair:
    tokenizer = make_tokenizer(names={"image_token": "<image>", "video_token": "<video>"})
    pinpoints = [[32, 64], [64, 32]]
    processor = compose_processor(
        tf.LlavaNextVideoProcessor,
        tf.LlavaNextImageProcessorPil(
            size={"shortest_edge": 32},
            crop_size={"height": 32, "width": 32},
            image_grid_pinpoints=pinpoints,
        ),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat_template("<image>\n"),
    )
    config = tf.LlavaNextVideoConfig(
        vision_config=CLIP,
        text_config=decoder(tokenizer, model_type="llama"),
        image_token_index=tokenizer.image_token_id,
        video_token_index=tokenizer.video_token_id,
        image_grid_pinpoints=pinpoints,
        image_seq_length=16,
    )
    return random_model(tf.LlavaNextVideoForConditionalGeneration, config, tokenizer), processor


def video_llava() -> Pair:
    tokenizer = make_tokenizer(names={"image_token": "<image>", "video_token": "<video>"})
    processor = compose_processor(
        tf.VideoLlavaProcessor,
        tf.VideoLlavaImageProcessor(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        ),
        tokenizer,
        patch_size=8,
        chat_template=chat_template("<image>"),
    )
    config = tf.VideoLlavaConfig(
        vision_config=CLIP,
        text_config=decoder(tokenizer, model_type="llama"),
        image_token_index=tokenizer.image_token_id,
        video_token_index=tokenizer.video_token_id,
        image_seq_length=16,
    )
    return random_model(tf.VideoLlavaForConditionalGeneration, config, tokenizer), processor
