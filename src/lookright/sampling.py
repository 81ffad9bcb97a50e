"""Sampled answers that hang on their own seed alone, and answers that end once they are complete.

A token is drawn by one number in [0, 1) that SHA-256 makes of the answer's seed and the step. So an
answer is the same alone, in a batch, and after an interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria

from lookright.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float
    top_k: int | None = None  # only among so many of the likeliest

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise InputError(f"temperature {self.temperature}: must be above 0")
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top_k {self.top_k}: must be 1 or more")


class SeededDraw(LogitsProcessor):
    """Leaves of every row of logits the one token that its seed draws, for greedy decoding."""

    def __init__(self, sampling: Sampling, seeds: Sequence[str], prompt: int) -> None:
        """`prompt`: how many tokens the (padded) prompts have; `seeds`: one for each row."""
        self.sampling = sampling
        self._seeds, self._prompt = seeds, prompt

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """[batch, vocabulary] -> the same, -inf but for the drawn token."""
        step = input_ids.shape[1] - self._prompt
        at = [uniform(f"{seed}/{step}") for seed in self._seeds]
        numbers = torch.tensor(at, dtype=torch.float64)
        chosen = drawn(scores, numbers, self.sampling)[:, None]
        return torch.full_like(scores, -torch.inf).scatter(1, chosen, 0.0)


class Complete(StoppingCriteria):
    """Ends a row once its text is complete, which is looked at after each line."""

    def __init__(
        self, done: Callable[[str], bool], decode: Callable[[Tensor], list[str]], prompt: int
    ) -> None:
        self._done, self._decode, self._prompt = done, decode, prompt

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        """[batch, tokens] -> [batch] whether a row has ended."""
        said = input_ids[:, self._prompt :].cpu()
        ended = [
            "\n" in newest and self._done(self._decode(row[None])[0])
            for newest, row in zip(self._decode(said[:, -1:]), said, strict=True)
        ]
        return torch.tensor(ended, device=input_ids.device)


def uniform(key: str) -> float:
    """A number in [0, 1), the same for the same key everywhere."""
    return (int.from_bytes(sha256(key.encode()).digest()[:8], "big") >> 11) / 2**53


def drawn(logits: Tensor, numbers: Tensor, sampling: Sampling) -> Tensor:
    """The token that each row's number falls on, on the line of its probabilities. [batch]

    logits [batch, vocabulary]; numbers [batch] in [0, 1), float64 or what was made of it.
    """
    device = "cpu" if logits.device.type == "mps" else logits.device  # which knows no float64
    scaled = logits.to(device, torch.float64) / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < scaled.shape[-1]:
        lowest = scaled.topk(sampling.top_k, -1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < lowest, -torch.inf)
    line = scaled.softmax(-1).cumsum(-1)  # [batch, vocabulary]
    falls = numbers.to(device, torch.float64)[:, None] * line[:, -1:]
    return torch.searchsorted(line, falls, right=True)[:, 0].to(logits.device)
