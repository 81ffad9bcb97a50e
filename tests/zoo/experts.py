"""Decoders with a mixture of experts."""

from __future__ import annotations

import transformers as tf

from lookright.processors import compose_processor
from zoo.text import chat_template, make_tokenizer
from zoo.tiny import VISION, decoder, random_model

Pair = tuple[tf.PreTrainedModel, tf.ProcessorMixin]


def aria() -> Pair:
    """Images of 980 pixels in 49 patches, from which a projector asks 4 tokens."""
    tokenizer = make_tokenizer(names={"image_token": "<image>"})
    processor = tf.AriaProcessor(
        tf.AriaImageProcessorPil(),
        tokenizer,
        size_conversion={980: 4},
        chat_template=chat_template("<image>"),
    )
    config = tf.AriaConfig(
        vision_config=VISION
        | {"model_type": "idefics3_vision", "image_size": 980, "patch_size": 140},
        text_config=decoder(tokenizer, moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1),
        projector_patch_to_query_dict={49: 4},
        image_token_index=tokenizer.image_token_id,
    )
    return random_model(tf.AriaForConditionalGeneration, config, tokenizer), processor


def ernie4_5_vl_moe() -> Pair:
    """Text and image tokens have experts of their own."""
    names = {
        f"{kind}_{what}": f"<|{kind.upper()}_{what}|>"
        for kind in ("image", "video")
        for what in ("token", "start_token", "end_token")
    }
    tokenizer = make_tokenizer(names=names)
    processor = compose_processor(
        tf.Ernie4_5_VLMoeProcessor,
        tf.Ernie4_5_VLMoeImageProcessorPil(
            patch_size=8, merge_size=2, size={"shortest_edge": 256, "longest_edge": 2304}
        ),
        tokenizer,
        chat_template=chat_template(
            "<|IMAGE_start_token|><|IMAGE_token|><|IMAGE_end_token|>",
        ),
    )
    processor.video_processor.font = ""  # saving looks for it
    config = tf.Ernie4_5_VLMoeConfig(
        vision_config={
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_heads": 2,
            "patch_size": 8,
        },
        text_config=decoder(
            tokenizer,
            moe_intermediate_size=[16, 8],
            moe_k=2,
            moe_num_experts=4,
            moe_num_shared_experts=1,
            mlp_layer_types=["dense", "sparse"],
            rope_parameters={
                "rope_type": "default",
                "mrope_section": [1, 1, 2],
                "rope_theta": 10000.0,
            },
        ),
        **{f"{name}_id": getattr(tokenizer, f"{name}_id") for name in names},
    )
    return random_model(tf.Ernie4_5_VLMoeForConditionalGeneration, config, tokenizer), processor
