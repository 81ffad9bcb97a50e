"""Prompts as tensors, for models whose processor cannot be had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Prompt:
    """A prompt's tensors, and where the tokens of each image stand: (start, stop)."""

    inputs: dict[str, torch.Tensor]
    spans: tuple[tuple[int, int], ...]


def prompt(image_token: int, tokens: Sequence[int], **others: torch.Tensor) -> Prompt:
    """A prompt with an image of that many tokens for each of `tokens`, and text around them."""
    draw = torch.Generator().manual_seed(0)
    ids = [_words(draw, 5)]
    spans = []
    for count in tokens:
        start = sum(len(part) for part in ids)
        spans.append((start, start + count))
        ids += [torch.full((count,), image_token), _words(draw, 3)]
    ids.append(_words(draw, 30))
    input_ids = torch.cat(ids)[None]  # [1, tokens]
    mask = torch.ones_like(input_ids)
    return Prompt({"input_ids": input_ids, "attention_mask": mask} | others, tuple(spans))


def _words(draw: torch.Generator, count: int) -> torch.Tensor:
    return torch.randint(10, 300, (count,), generator=draw)


def pixels(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def gridded(image_token: int, *patch: int) -> Prompt:
    """Three images of 4 x 4, 2 x 4 and 4 x 2 patches of this shape; four of them make a token."""
    grids = torch.tensor([[1, 4, 4], [1, 2, 4], [1, 4, 2]])
    patches = grids.prod(dim=1)
    return prompt(
        image_token,
        (patches // 4).tolist(),
        pixel_values=pixels(int(patches.sum()), *patch),
        image_grid_thw=grids,
    )
