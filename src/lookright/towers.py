"""Two-tower models (CLIP, SigLIP and their like): vectors of images and of captions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from lookright.backbone import best_device, said_plainly
from lookright.errors import EvidenceWarning, InputError
from lookright.processors import load_processor

#: Images or captions that go through a tower at once.
BATCH = 32


class Towers:
    """A loaded two-tower model of transformers and its processor."""

    def __init__(self, hf: Any, processor: Any, *, name: str, revision: str | None = None) -> None:
        if not all(hasattr(hf, f"get_{tower}_features") for tower in ("image", "text")):
            raise InputError(
                f"{hf.config.model_type} models have no two towers; give a model such as "
                "openai/clip-vit-large-patch14"
            )
        self.hf, self.processor = hf.eval(), processor
        self.name, self.revision = name, revision
        text = getattr(hf.config, "text_config", hf.config)
        self._longest: int | None = getattr(text, "max_position_embeddings", None)

    @classmethod
    def load(cls, name: str, *, device: str | None = None, revision: str | None = None) -> Towers:
        """Load a model by hub name or folder (safetensors only), in float32."""
        processor = load_processor(name, revision=revision)
        from transformers import AutoModel

        with said_plainly(name):
            hf = AutoModel.from_pretrained(
                name, revision=revision, use_safetensors=True, dtype=torch.float32
            ).to(device or best_device())
        folder = Path(name)
        return cls(
            hf,
            processor,
            name=folder.resolve().name if folder.is_dir() else name,
            revision=revision or getattr(hf.config, "_commit_hash", None),
        )

    @property
    def scale(self) -> float:
        """What the model multiplies its cosines with, 1 where it says nothing."""
        scale = getattr(self.hf, "logit_scale", None)
        return 1.0 if scale is None else float(scale.detach().exp())

    def of_images(self, pictures: Sequence[Image.Image]) -> Tensor:
        """[images, width] vectors of length 1, float32 on the CPU."""

        def features(some: Sequence[Image.Image]) -> Any:
            made = self.processor.image_processor(images=list(some), return_tensors="pt")
            return self.hf.get_image_features(**made.to(self.hf.device))

        return _vectors(features, pictures)

    def of_captions(self, captions: Sequence[str]) -> Tensor:
        """[captions, width] vectors of length 1; captions beyond the text tower's reach are cut."""
        tokenizer = self.processor.tokenizer
        lengths = [len(tokenizer(caption)["input_ids"]) for caption in captions]
        if cut := sum(length > (self._longest or length) for length in lengths):
            warnings.warn(
                f"{self.name}: reads {self._longest} tokens of a caption, and {cut} of "
                f"{len(captions)} are longer: what stands beyond is not seen",
                EvidenceWarning,
                stacklevel=2,
            )

        def features(some: Sequence[str]) -> Any:
            padding: dict[str, Any] = {"padding": True}
            if self._longest is not None:  # as SigLIP was trained
                padding = {
                    "padding": "max_length",
                    "truncation": True,
                    "max_length": self._longest,
                }
            made = tokenizer(list(some), return_tensors="pt", **padding)
            return self.hf.get_text_features(**made.to(self.hf.device))

        return _vectors(features, captions)


@torch.inference_mode()
def _vectors(features: Callable[[Sequence[Any]], Any], items: Sequence[Any]) -> Tensor:
    found = []
    for start in range(0, len(items), BATCH):
        output = features(items[start : start + BATCH])
        vectors = output if isinstance(output, Tensor) else output.pooler_output
        found.append(torch.nn.functional.normalize(vectors.float(), dim=-1).cpu())
    return torch.cat(found)
