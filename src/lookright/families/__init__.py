"""What one architecture truly needs, and those whose evidence cannot be had."""

from __future__ import annotations

from typing import Any

from lookright.errors import InputError

_CROSS = "its text reaches the image through cross-attention layers, never among its own tokens"
_QUERIES = "a query transformer sums up one image ahead of the prompt: several have no tokens there"
_ENCODER = "it is an encoder-decoder: the answer is not said by the tokens that see the images"
_ONE = "its processor takes one image with a prompt"
_ROW = "the pixels of all its images lie in one row"

#: model_type -> why its prompts are asked one at a time.
ALONE = {
    "hunyuan_vl": "an axis of its positions numbers the images of a batch, not those of a prompt",
    "minicpm_ocr": _ROW,
    "minicpmv4_6": _ROW,
    "minicpmv4_7": _ROW,
    "minimax_m3_vl": "it picks tokens in blocks that are counted from where the padding begins",
}

#: model_type -> why its evidence cannot be had, whatever its weights.
REFUSED = {
    "blip": _CROSS,
    "blip-2": _QUERIES,
    "diffusion_gemma": "it answers in whole blocks of tokens: no last prompt token says the answer",
    "evolla": "it reads proteins, not images",
    "florence2": _ENCODER,
    "fuyu": _ONE,
    "git": _ONE,
    "idefics": _CROSS,
    "instructblip": _QUERIES,
    "instructblipvideo": _QUERIES,
    "kosmos-2": _ONE,
    "kosmos-2.5": _ONE,
    "mistral4": "it reads text alone",
    "mllama": _CROSS,
    "pi0": "it answers in a robot's movements, not in words",
    "pix2struct": _ENCODER,
    "pp_formulanet": _ENCODER,
    "shieldgemma2": _ONE,
    "t5gemma2": _ENCODER,
    "udop": _ENCODER,
    "vision-encoder-decoder": _ENCODER,
}


def check_family(config: Any) -> None:
    """Refuse a family that gives no evidence, by name and with the reason."""
    reason = REFUSED.get(config.model_type)
    if reason is None and getattr(config, "is_encoder_decoder", False):
        reason = _ENCODER
    if reason is not None:
        raise InputError(f"{config.model_type} models give no evidence: {reason}")


def released_options(family: str, n: int) -> dict[str, Any]:
    """The image processor's options with which the released code shows n images to a family."""
    return {"max_patches": min(12, max(1, 28 // n))} if family == "internvl" else {}
