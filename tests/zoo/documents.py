"""Models made for documents, most of them on a tower for images of any size."""

from __future__ import annotations

import transformers as tf

from zoo.text import chat_template, make_tokenizer
from zoo.tiny import decoder, random_model

MROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def paddleocr_vl() -> Pair:
    tokenizer = make_tokenizer(
        ["<|IMAGE_START|>", "<|IMAGE_END|>", "<|video|>"], {"image_token": "<|IMAGE_PLACEHOLDER|>"}
    )
    start, end, video = tokenizer.convert_tokens_to_ids(
        ["<|IMAGE_START|>", "<|IMAGE_END|>", "<|video|>"]
    )
    processor = tf.PaddleOCRVLProcessor(
        tf.PaddleOCRVLImageProcessorPil(
            patch_size=8, merge_size=2, size={"shortest_edge": 256, "longest_edge": 2304}
        ),
        tokenizer,
        chat_template=chat_template("<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>"),
    )
    config = tf.PaddleOCRVLConfig(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
        },
        text_config=decoder(tokenizer, head_dim=8, rope_parameters=MROPE),
        image_token_id=tokenizer.image_token_id,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    return random_model(tf.PaddleOCRVLForConditionalGeneration, config, tokenizer), processor


def hunyuan_vl() -> Pair:
    """The rows of an image end in line breaks that count as its own tokens."""
    names = {
        "image_token": "<image>",
        "image_start_token": "<im_start>",
        "image_end_token": "<im_end>",
    }
    tokenizer = make_tokenizer(["<im_newline>"], names)
    processor = tf.HunYuanVLProcessor(
        tf.HunYuanVLImageProcessorPil(
            patch_size=8, size={"shortest_edge": 256, "longest_edge": 2304}
        ),
        tokenizer,
        chat_template=chat_template("<im_start><image><im_end>"),
    )
    config = tf.HunYuanVLConfig(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 8,
            "out_hidden_size": 32,
            "text_hidden_size": 32,
            "max_image_size": 64,
            "img_max_token_num": 64,
        },
        text_config=decoder(
            tokenizer,
            head_dim=8,
            rope_parameters=MROPE | {"mrope_section": [1, 1, 1, 1]},
        ),
        image_token_id=tokenizer.image_token_id,
        im_start_id=tokenizer.image_start_token_id,
        im_end_id=tokenizer.image_end_token_id,
        im_newline_id=tokenizer.convert_tokens_to_ids("<im_newline>"),
    )
    return random_model(tf.HunYuanVLForConditionalGeneration, config, tokenizer), processor
