"""Pictures made on the spot, and prompts about them as a model's inputs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image
from transformers import PreTrainedModel, ProcessorMixin

from lookright.instance import Instance
from lookright.prompts import conversation

SIZES = ((40, 30), (32, 64), (50, 50), (64, 40), (30, 30))


def pictures(count: int, seed: int = 0) -> list[Image.Image]:
    """Pictures of different sizes, each noise around a colour of its own."""
    draw = np.random.default_rng(seed)
    made = []
    for width, height in SIZES[:count]:
        colour = draw.integers(40, 216, size=3)
        noise = draw.integers(-40, 40, size=(height, width, 3))
        made.append(Image.fromarray((colour + noise).astype(np.uint8)))
    return made


def inputs(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    questions: Sequence[Sequence[Image.Image]],
    **options: Any,
) -> dict[str, Any]:
    """The tensors of one prompt for each of `questions` (its pictures), left-padded."""
    options |= {"return_tensors": "pt", "padding": True}
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        options["return_mm_token_type_ids"] = True
    texts = [
        processor.apply_chat_template(
            conversation(
                Instance("a", tuple(images), caption="a red ball on the grass"), system="Be brief."
            ),
            add_generation_prompt=True,
            tokenize=False,
        )
        for images in questions
    ]
    nested = [list(images) for images in questions]
    try:
        made = processor(images=nested, text=texts, **options)
    except ValueError as error:  # GOT-OCR takes the pictures of all prompts in one row
        if "Nested images" not in str(error):
            raise
        made = processor(
            images=[image for images in nested for image in images], text=texts, **options
        )
    return {name: value for name, value in made.items() if name != "labels"}
