"""SoFA's mask (Tian et al. 2025): in every second layer, images see what comes after them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Softening:
    """What is softened in one pass: the masks between visual tokens, in layers 0, 2, 4, ..."""

    visual: Tensor  # [batch, tokens] whether a token is an image's
    sigma: float
    _made: dict[tuple[int, int, torch.device], tuple[Tensor | None, Tensor | None]] = field(
        default_factory=dict
    )

    @staticmethod
    def applies(layer: int) -> bool:
        return layer % 2 == 0

    def mask(self, given: Tensor | None, query: Tensor, causal: bool) -> Tensor | None:
        """The mask of a layer softened; layers that share a mask share the softened one, too."""
        key = (id(given), query.shape[2], query.device)
        if key not in self._made:
            visual, rows = self.visual.to(query.device), query.shape[2]
            made = softened(given, visual, rows, self.sigma, query.dtype, causal)
            self._made[key] = (given, made)  # what is kept has an id of its own
        return self._made[key][1]


def softened(
    given: Tensor | None,
    visual: Tensor,
    rows: int,
    sigma: float,
    dtype: torch.dtype,
    causal: bool,
) -> Tensor | None:
    """An additive mask: log(sigma) where `given` hides a visual token from a visual token.

    `given` is [batch or 1, heads or 1, rows, tokens], True or near 0 where a token is seen, or
    None: then nothing is hidden but, where `causal`, what comes later. The rows are the last
    tokens (all of them, but in layers that a model runs for its last token alone).
    """
    if given is None:
        if not causal:
            return None
        length = visual.shape[1]
        given = visual.new_ones(length, length).tril()[None, None, length - rows :]
    lowest = torch.finfo(dtype).min
    if given.dtype == torch.bool:
        mask = torch.zeros(given.shape, dtype=dtype, device=given.device).masked_fill(
            ~given, lowest
        )
    else:
        mask = given.to(dtype).clamp(min=lowest)
    first = visual.shape[1] - rows
    pairs = visual[:, None, first:, None] & visual[:, None, None, :]  # [batch, 1, rows, tokens]
    return torch.where(pairs & (mask <= lowest / 2), math.log(sigma), mask)
