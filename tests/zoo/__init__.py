"""Tiny models with random weights: the real model and processor classes of each family.

`ZOO` has the families with their processors, `BARE` those whose processor cannot be had without
torchvision: their models with tensors made by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedModel, ProcessorMixin

from zoo import (
    anysize,
    bare,
    bare_experts,
    deepseek,
    discrete,
    documents,
    experts,
    gemma,
    glm,
    idefics,
    llava,
    minicpm,
    mistral,
    omni,
    qwen,
    tiles,
)
from zoo.bare import Bare

Pair = tuple[PreTrainedModel, ProcessorMixin]

#: How to build each transformers model type.
ZOO: dict[str, Callable[[], Pair]] = {
    "aria": experts.aria,
    "aya_vision": tiles.aya_vision,
    "chameleon": discrete.chameleon,
    "cohere_compass": anysize.cohere_compass,
    "cosmos3_edge": anysize.cosmos3_edge,
    "cosmos3_omni": qwen.cosmos3_omni,
    "deepseek_ocr2": deepseek.deepseek_ocr2,
    "deepseek_vl": deepseek.deepseek_vl,
    "deepseek_vl_hybrid": deepseek.deepseek_vl_hybrid,
    "dots3_note": anysize.dots3_note,
    "emu3": discrete.emu3,
    "ernie4_5_vl_moe": experts.ernie4_5_vl_moe,
    "exaone4_5": anysize.exaone4_5,
    "fast_vlm": llava.fast_vlm,
    "gemma3": gemma.gemma3,
    "gemma3n": gemma.gemma3n,
    "gemma4": gemma.gemma4,
    "glm46v": glm.glm46v,
    "glm4v": glm.glm4v,
    "glm4v_moe": glm.glm4v_moe,
    "glm5_next": glm.glm5_next,
    "glm_ocr": glm.glm_ocr,
    "glmga": glm.glmga,
    "got_ocr2": tiles.got_ocr2,
    "granite4_vision": llava.granite4_vision,
    "granite_docling": idefics.granite_docling,
    "hunyuan_vl": documents.hunyuan_vl,
    "hyperclovax_vision_v2": anysize.hyperclovax_vision_v2,
    "idefics2": idefics.idefics2,
    "idefics3": idefics.idefics3,
    "internvl": tiles.internvl,
    "janus": deepseek.janus,
    "lfm3_vl": anysize.lfm3_vl,
    "lighton_ocr": mistral.lighton_ocr,
    "llava": llava.llava,
    "llava_next": llava.llava_next,
    "llava_next_video": llava.llava_next_video,
    "llava_onevision": llava.llava_onevision,
    "minicpmv4_6": minicpm.minicpmv4_6,
    "minicpmv4_7": minicpm.minicpmv4_7,
    "mistral3": mistral.mistral3,
    "mistral_large4": mistral.mistral_large4,
    "ovis2": tiles.ovis2,
    "paddleocr_vl": documents.paddleocr_vl,
    "paligemma": gemma.paligemma,
    "pp_chart2table": tiles.pp_chart2table,
    "qianfan_ocr": tiles.qianfan_ocr,
    "qwen2_5_omni_thinker": omni.qwen2_5_omni_thinker,
    "qwen2_5_vl": qwen.qwen2_5_vl,
    "qwen2_vl": qwen.qwen2_vl,
    "qwen3_5": qwen.qwen3_5,
    "qwen3_5_moe": qwen.qwen3_5_moe,
    "qwen3_omni_moe_thinker": omni.qwen3_omni_moe_thinker,
    "qwen3_vl": qwen.qwen3_vl,
    "qwen3_vl_moe": qwen.qwen3_vl_moe,
    "qwen4_exp": qwen.qwen4_exp,
    "smolvlm": idefics.smolvlm,
    "video_llama_3": anysize.video_llama_3,
    "video_llava": llava.video_llava,
    "vipllava": llava.vipllava,
}


#: Model types whose processor is not checked, with the tensors of a prompt.
BARE: dict[str, Callable[[], Bare]] = {
    "cohere2_vision": bare.cohere2_vision,
    "gemma4_unified": bare.gemma4_unified,
    "inkling2": bare_experts.inkling2,
    "kimi_k25": bare_experts.kimi_k25,
    "lfm2_vl": bare.lfm2_vl,
    "llama4": bare_experts.llama4,
    "minicpm_ocr": bare.minicpm_ocr,
    "minimax_m3_vl": bare_experts.minimax_m3_vl,
    "molmo2": bare.molmo2,
    "muse_glimmer": bare.muse_glimmer,
    "muse_spark": bare_experts.muse_spark,
    "nemotron_h_omni": bare_experts.nemotron_h_omni,
    "perception_lm": bare.perception_lm,
    "step3p7": bare_experts.step3p7,
    "unlimited_ocr": bare_experts.unlimited_ocr,
}


#: Model types that are in neither, and why.
NOT_BUILT = {
    "inkling_mm_model": "its vision tower needs SciPy, which is not installed",
}

#: What their files cannot bring back, and why.
NOT_SAVED = {
    "chameleon": "its processor's class keeps no chat template",
    "gemma3n": "its configuration makes a tower of timm's again, not the one that stands in",
    "got_ocr2": "its processor's number of tokens an image is fixed, and far from tiny",
}

#: Which of transformers' own models answer otherwise in a batch, and why.
WRONG_IN_A_BATCH = {
    "hunyuan_vl": "one axis of its positions numbers the images of the whole batch, not a prompt's",
}


def build(model_type: str) -> tuple[PreTrainedModel, ProcessorMixin | None]:
    """The tiny model and its processor, None where it is not checked."""
    if model_type in BARE:
        return BARE[model_type]()[0], None
    return ZOO[model_type]()


def save(model_type: str, folder: Path) -> None:
    """Write model and processor so that both can be loaded from the folder."""
    model, processor = build(model_type)
    model.save_pretrained(folder)
    if processor is not None:
        processor.save_pretrained(folder)
