"""What one architecture truly needs, and those whose evidence cannot be had."""

from __future__ import annotations

_CROSS = "its text reaches the image through cross-attention layers, never among its own tokens"
_QUERIES = "a query transformer stands between image and text: no token belongs to an image"
_ENCODER = "it is an encoder-decoder: the answer is not said by the tokens that see the images"
_ONE = "it takes one image at a time"
_OTHER = "it does not answer questions about several images in words"

#: model_type -> why its evidence cannot be had, whatever its weights.
REFUSED = {
    "mllama": _CROSS,
    "idefics": _CROSS,
    "evolla": _CROSS,
    "blip": _CROSS,
    "blip-2": _QUERIES,
    "instructblip": _QUERIES,
    "instructblipvideo": _QUERIES,
    "florence2": _ENCODER,
    "udop": _ENCODER,
    "pix2struct": _ENCODER,
    "t5gemma2": _ENCODER,
    "vision-encoder-decoder": _ENCODER,
    "pp_formulanet": _ENCODER,
    "git": _ONE,
    "pi0": _OTHER,
    "diffusion_gemma": _OTHER,
}
