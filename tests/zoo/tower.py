"""Stands in for the vision towers that come from timm, which is not installed here."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    Gemma3nVisionConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling

PATCH = 8


class TowerConfig(PreTrainedConfig):
    """`flat` gives tokens, otherwise a map; `model_args` is where PerceptionLM looks."""

    model_type = "zoo_tower"
    hidden_size: int = 16
    flat: bool = False
    model_args: dict[str, int] | None = None


class Gemma3nTowerConfig(Gemma3nVisionConfig):
    """Gemma 3n accepts no configuration of another class than its own."""

    model_type = "zoo_gemma3n_tower"
    flat: bool = False


class Tower(PreTrainedModel):
    """One convolution: an image's patches, each a vector."""

    main_input_name = "pixel_values"
    _supports_sdpa = True

    def __init__(self, config: TowerConfig | Gemma3nTowerConfig) -> None:
        super().__init__(config)
        self.patches = nn.Conv2d(3, config.hidden_size, kernel_size=PATCH, stride=PATCH)
        self.post_init()

    def forward(self, pixel_values: torch.Tensor, **_: Any) -> BaseModelOutputWithPooling:
        states = self.patches(pixel_values)  # [images, channels, rows, columns]
        if self.config.flat:
            states = states.flatten(2).transpose(1, 2)
        return BaseModelOutputWithPooling(last_hidden_state=states)


class PlainTower(Tower):
    config_class = TowerConfig


class Gemma3nTower(Tower):
    config_class = Gemma3nTowerConfig


AutoConfig.register("zoo_tower", TowerConfig, exist_ok=True)
AutoModel.register(TowerConfig, PlainTower, exist_ok=True)
AutoConfig.register("zoo_gemma3n_tower", Gemma3nTowerConfig, exist_ok=True)
AutoModel.register(Gemma3nTowerConfig, Gemma3nTower, exist_ok=True)
