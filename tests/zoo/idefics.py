"""Idefics and SmolVLM: tiles with markers, pixels shuffled or resampled into few tokens."""

from __future__ import annotations

import transformers as tf

from lookright.processors import compose_processor
from zoo.text import chat_template, make_tokenizer
from zoo.tiny import VISION, decoder, random_model

TILES = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
SPECIALS = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *TILES]
TEMPLATE = chat_template("<image>")

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def idefics2() -> Pair:
    """A perceiver makes the same few tokens of an image of any size."""
    tokenizer = make_tokenizer(["<image>", "<fake_token_around_image>"])
    processor = tf.Idefics2Processor(
        tf.Idefics2ImageProcessorPil(size={"shortest_edge": 24, "longest_edge": 32}),
        tokenizer,
        image_seq_len=4,
        chat_template=TEMPLATE,
    )
    config = tf.Idefics2Config(
        vision_config=VISION,
        perceiver_config={
            "hidden_size": 32,
            "resampler_n_latents": 4,
            "resampler_depth": 1,
            "resampler_n_heads": 4,
            "resampler_head_dim": 8,
            "num_key_value_heads": 2,
        },
        text_config=decoder(tokenizer, model_type="mistral"),
        image_token_id=processor.image_token_id,
    )
    return random_model(tf.Idefics2ForConditionalGeneration, config, tokenizer), processor


def idefics3() -> Pair:
    tokenizer = make_tokenizer(SPECIALS)
    processor = tf.Idefics3Processor(
        tf.Idefics3ImageProcessorPil(
            size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
        ),
        tokenizer,
        image_seq_len=4,
        chat_template=TEMPLATE,
    )
    config = tf.Idefics3Config(
        vision_config=VISION,
        text_config=decoder(tokenizer, model_type="llama"),
        image_token_id=processor.image_token_id,
    )
    return random_model(tf.Idefics3ForConditionalGeneration, config, tokenizer), processor


def smolvlm() -> Pair:
    tokenizer = make_tokenizer(SPECIALS)
    processor = compose_processor(
        tf.SmolVLMProcessor,
        tf.SmolVLMImageProcessorPil(size={"longest_edge": 64}, max_image_size={"longest_edge": 32}),
        tokenizer,
        image_seq_len=4,
        chat_template=TEMPLATE,
    )
    config = tf.SmolVLMConfig(
        vision_config=VISION,
        text_config=decoder(tokenizer, model_type="llama"),
        image_token_id=processor.image_token_id,
    )
    return random_model(tf.SmolVLMForConditionalGeneration, config, tokenizer), processor


def granite_docling() -> Pair:
    tokenizer = make_tokenizer(SPECIALS)
    processor = tf.GraniteDoclingProcessor(
        tf.GraniteDoclingImageProcessorPil(size={"height": 32, "width": 32}, max_patches=2),
        tokenizer,
        image_seq_len=4,
        chat_template=TEMPLATE,
    )
    config = tf.GraniteDoclingConfig(
        vision_config=VISION
        | {"out_hidden_size": 32, "scale_factor": 2, "deepstack_visual_indexes": [0]},
        text_config=decoder(tokenizer, logits_scaling=1.0, attention_multiplier=0.35),
        image_token_id=processor.image_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return random_model(tf.GraniteDoclingForConditionalGeneration, config, tokenizer), processor
