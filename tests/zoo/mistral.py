"""Models on the Pixtral tower: an image's rows end in tokens that are not the image's own."""

from __future__ import annotations

import transformers as tf

from lookright.processors import compose_processor, processor_class
from zoo.text import chat_template, make_tokenizer
from zoo.tiny import VISION, decoder, random_model

MARKERS = ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]
PIXTRAL = VISION | {"model_type": "pixtral", "head_dim": 8}

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def mistral3() -> Pair:
    tokenizer = make_tokenizer(MARKERS)
    processor = compose_processor(
        processor_class("PixtralProcessor"),
        tf.PixtralImageProcessorPil(size={"longest_edge": 32}, patch_size=8),
        tokenizer,
        patch_size=8,
        spatial_merge_size=2,
        chat_template=chat_template("[IMG]"),
    )
    config = tf.Mistral3Config(
        vision_config=PIXTRAL,
        text_config=decoder(tokenizer, model_type="mistral", head_dim=8, sliding_window=None),
        image_token_index=processor.image_token_id,
        spatial_merge_size=2,
        tie_word_embeddings=False,
    )
    return random_model(tf.Mistral3ForConditionalGeneration, config, tokenizer), processor


def lighton_ocr() -> Pair:
    """The same tower before a Qwen3 decoder; no marks at the ends of rows."""
    names = dict(zip(["image_token", "image_break_token", "image_end_token"], MARKERS, strict=True))
    tokenizer = make_tokenizer(names=names)
    processor = tf.LightOnOcrProcessor(
        tf.PixtralImageProcessorPil(size={"longest_edge": 32}, patch_size=16),
        tokenizer,
        patch_size=8,
        spatial_merge_size=2,
        chat_template=chat_template("[IMG]"),
    )
    config = tf.LightOnOcrConfig(
        vision_config=PIXTRAL,
        text_config=decoder(tokenizer, model_type="qwen3", head_dim=8),
        image_token_id=tokenizer.image_token_id,
        spatial_merge_size=2,
    )
    return random_model(tf.LightOnOcrForConditionalGeneration, config, tokenizer), processor


def mistral_large4() -> Pair:
    """Latent attention that looks at the tokens an indexer picks; experts."""
    tokenizer = make_tokenizer(MARKERS)
    processor = compose_processor(
        processor_class("PixtralProcessor"),
        tf.PixtralImageProcessorPil(size={"longest_edge": 32}, patch_size=8),
        tokenizer,
        patch_size=8,
        spatial_merge_size=2,
        chat_template=chat_template("[IMG]"),
    )
    config = tf.MistralLarge4Config(
        vision_config=PIXTRAL,
        text_config=decoder(
            tokenizer,
            num_key_value_heads=4,
            kv_lora_rank=8,
            qk_rope_head_dim=4,
            v_head_dim=8,
            qk_nope_head_dim=8,
            head_dim=4,
            n_routed_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            mlp_layer_types=["dense", "sparse"],
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            index_topk=48,
            index_head_dim=8,
            index_n_heads=8,
        ),
        image_token_index=processor.image_token_id,
        spatial_merge_size=2,
    )
    return random_model(tf.MistralLarge4ForConditionalGeneration, config, tokenizer), processor
