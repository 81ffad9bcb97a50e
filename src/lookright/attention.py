"""The last-row probe: the last prompt token's attention on every image, layer by layer.

While a model runs inside `probing`, the attention function it would call anyway is called and its
result passed on untouched; beside it, the probe computes one row of softmax(q K^T) in float32 and
keeps only its sums over each image. No T x T map is made, no attention is computed twice.

The function is put in the place of the model's own in transformers' attention registry, under the
same name, for the time of one pass. A name of our own would need a mask function of that name and
would miss what some models do only under the names "sdpa" and "eager".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lookright.errors import InputError
from lookright.softened import Softening

AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]

#: Rows of the query taken at once where a model needs eager attention (softcaps, sinks).
EAGER_ROWS = 128

#: What is put in a model's place for one pass is the whole process's: one pass at a time.
ONE_PASS = RLock()


@dataclass
class Probe:
    """What one pass is watched for, and the rows seen so far (by the decoder's layer number)."""

    regions: Tensor  # [batch, tokens] position of the image a token belongs to, -1 for none
    images: int
    keep_heads: bool = False
    keep_tokens: bool = False
    rows: dict[int, Tensor] = field(default_factory=dict)  # layer -> [batch, images]
    heads: dict[int, Tensor] = field(default_factory=dict)  # layer -> [batch, heads, images]
    tokens: dict[int, Tensor] = field(default_factory=dict)  # layer -> [batch, tokens]
    _membership: dict[torch.device, Tensor] = field(default_factory=dict)

    def membership(self, device: torch.device) -> Tensor:
        """[batch, tokens, images] 1 where a token is an image's, on this device."""
        if device not in self._membership:
            images = torch.arange(self.images, device=self.regions.device)
            one_hot = (self.regions[..., None] == images).to(device, torch.float32)
            self._membership[device] = one_hot
        return self._membership[device]

    def keep(self, layer: int, weights: Tensor) -> None:
        """Reduce one layer's last row; `weights` is [batch, heads, tokens] in float32."""
        if layer in self.rows:
            raise InputError(f"layer {layer} delivered two attention rows: which of them counts?")
        member = self.membership(weights.device)
        mean = weights.mean(1)  # [batch, tokens]
        if self.keep_heads:
            self.heads[layer] = torch.bmm(weights, member)
        if self.keep_tokens:
            self.tokens[layer] = mean
        self.rows[layer] = torch.bmm(mean[:, None], member)[:, 0]


def last_row(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
) -> Tensor:
    """softmax(q_last K^T * scaling + mask row) in float32, with grouped heads.

    query [batch, heads, tokens, dim], key [batch, kv heads, tokens, dim]; mask as SDPA takes it
    (boolean or additive, [batch, 1 or heads, tokens, tokens]), as flash attention takes it
    ([batch, tokens], padding), or None for plain causal. The names are those of transformers'
    attention functions: a softcap bends the scores, a position bias [batch, heads, tokens, tokens]
    is added to them, sinks (s_aux, [heads]) take their share. Returns [batch, heads, tokens].
    """
    batch, heads, _, dim = query.shape
    groups, length = key.shape[1], key.shape[2]
    row = query[:, :, -1].reshape(batch, groups, heads // groups, dim).float()
    scores = torch.matmul(row, key.float().transpose(-1, -2)).view(batch, heads, length)
    scores *= dim**-0.5 if scaling is None else scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if position_bias is not None:
        scores = scores + position_bias[:, :, -1, :length].float()
    if mask is not None:
        last = mask[:, None] if mask.dim() == 2 else mask[:, :, -1]
        last = last[..., :length]
        if last.dtype == torch.bool or mask.dim() == 2:
            scores = scores.masked_fill(~last.bool(), -torch.inf)
        else:
            scores = scores + last.float()
    if sliding_window is not None and (mask is None or mask.dim() == 2):
        scores[..., : max(0, length - sliding_window)] = -torch.inf
    if s_aux is not None:
        sinks = s_aux.float().view(1, heads, 1).expand(batch, heads, 1)
        return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
    return scores.softmax(-1)


#: What bends an attention row beside the mask, by the names of transformers' attention functions.
_BENDS = ("scaling", "sliding_window", "softcap", "position_bias", "s_aux")


@contextmanager
def probing(
    decoder: nn.Module, base: str, probe: Probe, softening: Softening | None = None
) -> Iterator[Probe]:
    """Watch the attention layers of `decoder`, whose attention is `base`, while inside.

    With `softening`, every second layer attends by a softened mask.
    """
    watched = {id(module) for module in decoder.modules()}

    def watching(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        layer = getattr(module, "layer_idx", None)
        if id(module) not in watched or layer is None:
            return own(module)(module, query, key, value, attention_mask, **options)
        if softening is not None and softening.applies(layer):
            causal = base != "eager" and _is_causal(module, options)
            attention_mask = softening.mask(attention_mask, query, causal)
        if base == "eager":
            output, weights = _eager_by_rows(
                own(module), module, query, key, value, attention_mask, options
            )
        else:
            output, _ = own(module)(module, query, key, value, attention_mask, **options)
            weights = last_row(
                query, key, attention_mask, **{name: options.get(name) for name in _BENDS}
            )
        probe.keep(layer, weights)
        return output, None

    def own(module: nn.Module) -> AttentionFunction:
        """The function this module would have called."""
        return previous if previous is not None else _eager_function(module)

    with ONE_PASS:
        previous: AttentionFunction | None = ALL_ATTENTION_FUNCTIONS.get(base)
        ALL_ATTENTION_FUNCTIONS[base] = watching
        try:
            yield probe
        finally:
            if previous is None:
                ALL_ATTENTION_FUNCTIONS.pop(base)
            else:
                ALL_ATTENTION_FUNCTIONS[base] = previous


def _is_causal(module: nn.Module, options: Mapping[str, Any]) -> bool:
    """Whether SDPA without a mask hides later tokens here, by its own rule."""
    said = options.get("is_causal")
    return bool(getattr(module, "is_causal", True) if said is None else said)


def attention_layers(decoder: nn.Module) -> tuple[int, ...]:
    """The true numbers of the layers that attend to tokens, by the decoder's own modules.

    Layers of linear attention, convolutions and state spaces have a number but no row to give.
    """
    found = set()
    for module in decoder.modules():
        name, number = type(module).__name__, getattr(module, "layer_idx", None)
        if isinstance(number, int) and name.endswith("Attention") and "Linear" not in name:
            found.add(number)
    return tuple(sorted(found))


def collected(rows: dict[int, Tensor], layers: tuple[int, ...], family: str) -> Tensor:
    """Rows of all layers as one tensor [batch, layers, ...]; a layer that gave none is named."""
    missing = [layer for layer in layers if layer not in rows]
    if missing:
        raise InputError(
            f"{family}: layer {missing[0]} ({len(missing)} of {len(layers)}) delivered no "
            "attention row, so its evidence cannot be trusted; this family needs support of its own"
        )
    found = [rows[layer].cpu() for layer in layers]
    if len({row.shape for row in found}) > 1:
        raise InputError(
            f"{family}: its layers have different numbers of heads, so they cannot be kept apart; "
            "ask without heads"
        )
    return torch.stack(found, 1)


def _eager_function(module: nn.Module) -> AttentionFunction:
    """The eager attention a transformers module falls back to, which stands in its own file."""
    home = sys.modules[type(module).__module__]
    function: AttentionFunction | None = getattr(home, "eager_attention_forward", None)
    if function is None:
        raise InputError(f"{type(module).__name__} does not call transformers' attention interface")
    return function


def _eager_by_rows(
    eager: AttentionFunction,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    options: dict[str, Any],
) -> tuple[Tensor, Tensor]:
    """Eager attention over blocks of query rows: equal to the whole, without its T x T map.

    Also returns the last row's weights [batch, heads, tokens], which it computes in float32.
    """
    length = query.shape[2]

    def some(rows: slice, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        by_row = {
            name: value[:, :, rows]
            for name, value in options.items()
            if isinstance(value, Tensor) and value.dim() == 4 and value.shape[2] == length
        }
        part = None if mask is None else mask[:, :, rows]
        output, weights = eager(module, *tensors, part, **(options | by_row))
        assert weights is not None
        return output, weights

    blocks = [slice(start, start + EAGER_ROWS) for start in range(0, length, EAGER_ROWS)]
    output = torch.cat([some(rows, query[:, :, rows], key, value)[0] for rows in blocks], 1)
    last = slice(length - 1, length)
    _, weights = some(last, query[:, :, last].float(), key.float(), value.float())
    return output, weights[:, :, -1]
