"""Families that turn an image into words of a visual vocabulary."""

from __future__ import annotations

import transformers as tf

from zoo.text import chat_template, make_tokenizer
from zoo.tiny import decoder, random_model

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def chameleon() -> Pair:
    codes = [f"IMGIMG{letter}Z" for letter in "ABCDEFGH"]
    names = {"image_token": "<image>", "boi_token": "<boi>", "eoi_token": "<eoi>"}
    tokenizer = make_tokenizer(codes, names)
    processor = tf.ChameleonProcessor(
        tf.ChameleonImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        ),
        tokenizer,
        image_seq_length=4,
    )
    processor.chat_template = tokenizer.chat_template = chat_template("<image>")
    vocabulary = {code: tokenizer.convert_tokens_to_ids(code) for code in codes}
    config = tf.ChameleonConfig(
        **decoder(tokenizer),
        vq_config={
            "embed_dim": 4,
            "num_embeddings": 8,
            "latent_channels": 4,
            "resolution": 32,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 1, 1, 1],
            "num_res_blocks": 1,
        },
        vocabulary_map=vocabulary | {"<image>": tokenizer.image_token_id},
    )
    return random_model(tf.ChameleonForConditionalGeneration, config, tokenizer), processor


def emu3() -> Pair:
    """The size of an image is written before its words; a line break ends each row of them."""
    codes = [f"<|visual token {code:06d}|>" for code in range(8)]
    names = {
        "image_token": "<image>",
        "boi_token": "<|image start|>",
        "eoi_token": "<|image end|>",
        "image_wrapper_token": "<|image token|>",
        "eof_token": "<|extra_201|>",
    }
    tokenizer = make_tokenizer([*codes, "<|extra_200|>"], names, bos=True)
    processor = tf.Emu3Processor(
        tf.Emu3ImageProcessor(min_pixels=16 * 16, max_pixels=32 * 32, spatial_factor=8),
        tokenizer,
        chat_template=chat_template("<image>"),
    )
    vocabulary = {
        token: tokenizer.convert_tokens_to_ids(token)
        for token in [*codes, "<|extra_200|>", "<image>"]
    }
    config = tf.Emu3Config(
        vq_config={
            "codebook_size": 8,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 1, 1],
            "num_res_blocks": 1,
            "hidden_size": 32,
            "attn_resolutions": [],
        },
        text_config=decoder(tokenizer),
        vocabulary_map=vocabulary,
    )
    return random_model(tf.Emu3ForConditionalGeneration, config, tokenizer), processor
