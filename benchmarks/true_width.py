"""Random-weight models of published widths, for measuring cost where no weights are at hand.

    from true_width import build
    hf_model, processor = build("qwen2.5-vl-3b", device="cuda", dtype=torch.bfloat16)

Classes, widths and image processing are the published ones; `layers` cuts the decoder short (cost
per layer is what grows). The tokenizer is a small one made here: only the length of a prompt
matters for cost, and its pictures make nearly all of it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import transformers as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from lookright.processors import compose_processor
from zoo.text import chat_template, make_tokenizer

TEXT: dict[str, dict[str, Any]] = {
    "qwen2.5-vl-3b": {
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128000,
        "rope_parameters": {
            "rope_type": "default",
            "mrope_section": [16, 24, 24],
            "rope_theta": 1000000.0,
        },
    },
    "internvl3-8b": {
        "model_type": "qwen2",
        "vocab_size": 151674,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
    },
}


def build(
    name: str, device: str = "cpu", dtype: torch.dtype = torch.float32, layers: int | None = None
) -> tuple[Any, Any]:
    """The model, its weights random, on the device, and its processor."""
    if name not in TEXT:
        sys.exit(f"no model {name!r}: use one of {', '.join(TEXT)}")
    text = TEXT[name] | ({"num_hidden_layers": layers} if layers else {})
    config, processor = _qwen(text) if name.startswith("qwen") else _internvl(text)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = tf.AutoModelForImageTextToText.from_config(config, attn_implementation="sdpa")
    finally:
        torch.set_default_dtype(before)
    end = processor.tokenizer.eos_token_id
    model.generation_config = tf.GenerationConfig(eos_token_id=end, pad_token_id=0)
    return model.eval(), processor


def _qwen(text: dict[str, Any]) -> tuple[Any, Any]:
    tokenizer = make_tokenizer(
        names={
            "image_token": "<|image_pad|>",
            "video_token": "<|video_pad|>",
            "vision_bos_token": "<|vision_start|>",
            "vision_eos_token": "<|vision_end|>",
        }
    )
    pictures = tf.Qwen2VLImageProcessorPil(patch_size=14, merge_size=2)
    template = chat_template("<|vision_start|><|image_pad|><|vision_end|>")
    processor = compose_processor(
        tf.Qwen2_5_VLProcessor, pictures, tokenizer, chat_template=template
    )
    config = tf.Qwen2_5_VLConfig(
        vision_config={
            "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
            "patch_size": 14, "spatial_merge_size": 2, "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31], "out_hidden_size": text["hidden_size"],
        },
        text_config=text,
        tie_word_embeddings=True,
        image_token_id=tokenizer.image_token_id,
        video_token_id=tokenizer.video_token_id,
        vision_start_token_id=tokenizer.vision_bos_token_id,
        vision_end_token_id=tokenizer.vision_eos_token_id,
    )  # fmt: skip
    return config, processor


def _internvl(text: dict[str, Any]) -> tuple[Any, Any]:
    tokenizer = make_tokenizer(
        names={
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        }
    )
    processor = compose_processor(
        tf.InternVLProcessor,
        tf.GotOcr2ImageProcessorPil(size={"height": 448, "width": 448}, crop_to_patches=False),
        tokenizer,
        image_seq_length=256,
        chat_template=chat_template("<IMG_CONTEXT>\n"),
    )
    config = tf.InternVLConfig(
        vision_config={
            "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
            "num_attention_heads": 16, "patch_size": [14, 14], "image_size": [448, 448],
            "attention_bias": True, "use_qk_norm": False,
        },
        text_config=text,
        tie_word_embeddings=False,
        image_token_id=tokenizer.context_image_token_id,
        image_seq_length=256,
    )  # fmt: skip
    return config, processor
