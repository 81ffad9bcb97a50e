"""Families that cut an image into tiles of one size, with markers of their own around them."""

from __future__ import annotations

import transformers as tf

from lookright.processors import compose_processor
from zoo.text import chat_template, make_tokenizer
from zoo.tiny import VISION, decoder, random_model

#: A tower of the SAM kind: 64 x 64 pixels become 2 x 2 tokens.
SAM = {
    "hidden_size": 16,
    "output_channels": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 64,
    "patch_size": 8,
    "mlp_dim": 24,
    "window_size": 4,
    "global_attn_indexes": [1],
}

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def internvl() -> Pair:
    names = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tokenizer = make_tokenizer(names=names)
    processor = compose_processor(
        tf.InternVLProcessor,
        tf.GotOcr2ImageProcessorPil(
            size={"height": 32, "width": 32}, crop_to_patches=True, max_patches=2
        ),
        tokenizer,
        image_seq_length=4,
        chat_template=chat_template("<IMG_CONTEXT>\n"),
    )
    config = tf.InternVLConfig(
        vision_config=VISION,
        text_config=decoder(tokenizer, model_type="qwen2"),
        image_token_id=tokenizer.context_image_token_id,
        image_seq_length=4,
        tie_word_embeddings=False,
    )
    return random_model(tf.InternVLForConditionalGeneration, config, tokenizer), processor


def aya_vision() -> Pair:
    """A decoder whose sliding layers have rotary positions and whose full layers have none."""
    markers = ["<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>"]
    tiles = [f"TILE_{tile}" for tile in range(1, 5)]
    tokenizer = make_tokenizer(["<image>", *markers, *tiles, "TILE_GLOBAL"])
    processor = tf.AyaVisionProcessor(
        tf.GotOcr2ImageProcessorPil(
            size={"height": 32, "width": 32}, crop_to_patches=True, max_patches=2
        ),
        tokenizer,
        patch_size=8,
        img_size=32,
        downsample_factor=2,
        chat_template=chat_template("<image>"),
    )
    config = tf.AyaVisionConfig(
        vision_config=VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        text_config=decoder(
            tokenizer,
            model_type="cohere2",
            num_hidden_layers=3,
            sliding_window=64,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            logit_scale=1.0,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<|IMG_PATCH|>"),
        downsample_factor=2,
    )
    return random_model(tf.AyaVisionForConditionalGeneration, config, tokenizer), processor


def got_ocr2() -> Pair:
    tokenizer = make_tokenizer(["<img>", "</img>", "<imgpad>"])
    processor = tf.GotOcr2Processor(
        tf.GotOcr2ImageProcessorPil(size={"height": 64, "width": 64}),
        tokenizer,
        chat_template=chat_template("<img><imgpad></img>\n"),
    )
    processor.num_image_tokens = 4
    config = tf.GotOcr2Config(
        vision_config=SAM,
        text_config=decoder(tokenizer, model_type="qwen2"),
        image_token_index=processor.image_token_id,
        image_seq_length=4,
    )
    return random_model(tf.GotOcr2ForConditionalGeneration, config, tokenizer), processor


def ovis2() -> Pair:
    """Visual tokens are mixtures of a visual vocabulary, between indicator tokens."""
    indicators = ["<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"]
    tokenizer = make_tokenizer(["<image>", "<IMG_ATOM>", *indicators])
    processor = tf.Ovis2Processor(
        tf.Ovis2ImageProcessorPil(
            size={"height": 32, "width": 32}, crop_to_patches=True, max_patches=2
        ),
        tokenizer,
        image_seq_length=4,
        chat_template=chat_template("<image>\n"),
    )
    config = tf.Ovis2Config(
        vision_config=VISION | {"vocab_size": 40, "hidden_stride": 2},
        text_config=decoder(tokenizer, model_type="qwen2"),
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_ATOM>"),
        visual_indicator_token_ids=tokenizer.convert_tokens_to_ids(indicators),
        vocab_size=len(tokenizer),
        hidden_size=32,
    )
    return random_model(tf.Ovis2ForConditionalGeneration, config, tokenizer), processor


def qianfan_ocr() -> Pair:
    names = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
    }
    tokenizer = make_tokenizer(["<image>"], names)
    processor = tf.QianfanOCRProcessor(
        tf.GotOcr2ImageProcessorPil(
            size={"height": 32, "width": 32}, crop_to_patches=True, max_patches=2
        ),
        tokenizer,
        image_seq_length=4,
        chat_template=chat_template("<image>\n"),
    )
    config = tf.QianfanOCRConfig(
        vision_config=VISION | {"drop_path_rate": 0.0},
        text_config=decoder(tokenizer, model_type="qwen3", head_dim=8),
        image_token_id=tokenizer.context_image_token_id,
        image_seq_length=4,
    )
    return random_model(tf.QianfanOCRForConditionalGeneration, config, tokenizer), processor


def pp_chart2table() -> Pair:
    """GOT-OCR's model; the prompt holds every image token beforehand."""
    tokenizer = make_tokenizer(["<img>", "</img>", "<imgpad>"])
    processor = tf.PPChart2TableProcessor(
        tf.PPChart2TableImageProcessorPil(size={"height": 64, "width": 64}),
        tokenizer,
        chat_template=chat_template("<img>" + "<imgpad>" * 4 + "</img>\n"),
    )
    config = tf.PPChart2TableConfig(
        vision_config=SAM,
        text_config=decoder(tokenizer, model_type="qwen2"),
        image_token_index=tokenizer.convert_tokens_to_ids("<imgpad>"),
        image_seq_length=4,
    )
    return random_model(tf.GotOcr2ForConditionalGeneration, config, tokenizer), processor
