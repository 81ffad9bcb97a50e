"""The head: the candidates' logits in float32, scaled and capped as the model does its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lookright.errors import InputError

#: What a configuration may call the number its logits are multiplied with, and divided by.
_FACTORS = ("logit_scale", "output_multiplier", "lm_head_multiplier")
_DIVISORS = ("logits_scaling",)
_CAP = "final_logit_softcapping"


@dataclass
class Said:
    """What a pass put into the head and what came of it: [batch, tokens kept, ...]."""

    hidden: Tensor = field(default_factory=lambda: torch.empty(0))  # into the head
    raw: Tensor = field(default_factory=lambda: torch.empty(0))  # out of the head
    logits: Tensor = field(default_factory=lambda: torch.empty(0))  # the model's own


def find_head(hf: Any, decoder: Any) -> nn.Module:
    """What makes logits of the decoder's last states."""
    for part in (hf, decoder):  # some keep it within their language model
        head = part.get_output_embeddings() if hasattr(part, "get_output_embeddings") else None
        if isinstance(head, nn.Module):
            return head
    raise InputError(f"{hf.config.model_type} models give no evidence: no output head was found")


@contextmanager
def heard(head: nn.Module) -> Iterator[Said]:
    """What goes through the head while inside; the caller adds the model's own logits."""
    said = Said()

    def hear(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        said.hidden, said.raw = args[0], output

    hook = head.register_forward_hook(hear)
    try:
        yield said
    finally:
        hook.remove()


def candidate_logits(
    head: nn.Module, config: Any, said: Said, rows: slice, at: int, ids: Sequence[int]
) -> Tensor:
    """Logits of some vocabulary ids at one place of some prompts, in float32. [rows, ids]

    The head's rows are computed in float32, and what the model's own code does to its logits after
    the head is found out by what it did: it is one of a scale, a cap or both, or nothing. Where it
    is something else, or the head no plain matrix at hand, they are the model's own logits.
    """
    index = torch.tensor(ids, device=said.raw.device)
    own = said.logits[rows, at].index_select(-1, index.to(said.logits.device))
    if type(head) is not nn.Linear or head.weight.device.type == "meta":
        return own.float()
    hidden = said.hidden[rows, at].float()
    weight = head.weight[index.to(head.weight.device)].float().to(hidden.device)
    bias = None if head.bias is None else head.bias[index].float().to(hidden.device)
    ours = nn.functional.linear(hidden, weight, bias)
    raw = said.raw[rows, at].index_select(-1, index)
    return _finished(ours, raw, own, config).to(ours.device)


def _finished(ours: Tensor, raw: Tensor, own: Tensor, config: Any) -> Tensor:
    """`ours` with the scale and cap that made `own` of `raw`; `own` where something else did."""
    raw, own, eps = raw.float().to(own.device), own.float(), _precision(raw, own)
    finishes = [(1.0, None), *((s, c) for c in _caps(config) for s in _scales(config))]
    misses = [float((_finish(raw, *finish) - own).abs().max()) for finish in finishes]
    best = min(range(len(finishes)), key=misses.__getitem__)
    if not misses[best] <= 4 * eps * float(own.abs().max()):
        return own
    return _finish(ours, *finishes[best])


def _finish(logits: Tensor, scale: float, cap: float | None) -> Tensor:
    logits = logits * scale
    return logits if cap is None else torch.tanh(logits / cap) * cap


def _scales(config: Any) -> list[float]:
    factors = [getattr(config, name, None) for name in _FACTORS]
    divisors = [getattr(config, name, None) for name in _DIVISORS]
    return [1.0, *(float(f) for f in factors if f), *(1 / d for d in divisors if d)]


def _caps(config: Any) -> list[float | None]:
    cap = getattr(config, _CAP, None)
    return [None] if not cap else [None, float(cap)]


def _precision(*values: Tensor) -> float:
    """The coarsest of their formats: the distance of 1 to the next number."""
    return max(torch.finfo(value.dtype).eps for value in values)
