"""The self-check: a model whose evidence is not its own eager attention's is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asking import QUIET, asked, fresh, question
from lookright import attention, backbone, selfcheck, vision
from lookright.errors import InputError
from lookright.model import Model
from lookright.selfcheck import BOUNDS, check_backbone, eager
from lookright.settings import EvidenceSettings

pytestmark = QUIET

SETTINGS = EvidenceSettings()


def refused(model: Model, what: str) -> float:
    """By how much the refusal says that its `what` differ."""
    with pytest.raises(InputError) as error:
        check_backbone(model, SETTINGS)
    pattern = rf"{model.backbone.family}: the self-check failed: its {what} differ .* by (\S+) \(at"
    found = re.match(pattern, str(error.value))
    assert found, error.value
    return float(found[1])


def test_a_sound_model_passes_and_says_how_closely() -> None:
    found = check_backbone(asked("llava"), SETTINGS)
    assert 0 <= found.attention < 1e-6
    assert 0 <= found.log_probs < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("model_type", ["llava", "qwen2_5_vl", "qwen3_5", "gemma3", "internvl"])
def test_sound_models_pass_in_half_formats(model_type: str, dtype: torch.dtype) -> None:
    model = fresh(model_type)
    model.backbone.hf.to(dtype)
    found = check_backbone(model, SETTINGS)
    assert 0 < found.attention < BOUNDS["half"][0]
    assert 0 < found.log_probs < BOUNDS["half"][1]


def test_a_probe_that_forgets_the_mask_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = attention.last_row
    monkeypatch.setattr(
        attention, "last_row", lambda query, key, mask, **bends: own(query, key, None, **bends)
    )
    assert refused(asked("llava"), "attention") > 1e-3


def test_a_probe_that_takes_another_scale_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = attention.last_row

    def wrong(*args: Any, scaling: float, **bends: Any) -> Tensor:
        return own(*args, scaling=1.01 * scaling, **bends)

    monkeypatch.setattr(attention, "last_row", wrong)
    assert 1e-4 < refused(asked("llava"), "attention") < 1e-2


def test_a_head_read_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = backbone.candidate_logits
    monkeypatch.setattr(backbone, "candidate_logits", lambda *args: own(*args) * 1.1)
    assert refused(asked("llava"), "log-probabilities") > 1e-3


def test_features_put_in_each_other_s_place_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbone, "join", lambda parts: vision.join(parts[::-1]))
    assert refused(asked("llava"), "attention") > 1e-3


def test_numbers_that_are_not_finite_are_refused() -> None:
    model = fresh("llava")
    with torch.no_grad():
        model.backbone.hf.lm_head.weight.fill_(torch.nan)
    assert str(refused(model, "log-probabilities")) == "nan"


def own_attention(layer: nn.Module) -> Callable[..., tuple[Tensor, None]]:
    """Attention as good as any, that asks no interface."""

    def forward(hidden_states: Tensor, **_: Any) -> tuple[Tensor, None]:
        shape = (*hidden_states.shape[:-1], -1, layer.head_dim)
        q, k, v = (
            project(hidden_states).view(shape).transpose(1, 2)  # type: ignore[operator]
            for project in (layer.q_proj, layer.k_proj, layer.v_proj)
        )
        made = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return layer.o_proj(made.transpose(1, 2).flatten(-2)), None  # type: ignore[operator]

    return forward


def test_attention_that_asks_no_interface_is_refused_by_its_layer() -> None:
    model = fresh("llava", self_check=True)
    layer = model.backbone.decoder.layers[1].self_attn  # type: ignore[index,union-attr]
    layer.forward = own_attention(layer)  # type: ignore[assignment,arg-type]
    with pytest.raises(InputError, match=r"llava: layer 1 .* delivered no attention row"):
        model.evidence([question()], [(0, 1, 2, 3)])


def test_a_family_that_answers_otherwise_in_a_batch_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one of transformers' own does, were it not asked one prompt at a time."""
    model = asked("hunyuan_vl")
    assert check_backbone(model, SETTINGS).attention < 1e-6
    monkeypatch.setattr(selfcheck, "ALONE", {})
    assert refused(model, "attention") > 1e-4


def test_who_skips_the_check_gets_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    own = attention.last_row
    monkeypatch.setattr(attention, "last_row", lambda *args, **bends: 2 * own(*args, **bends))
    assert fresh("llava", self_check=False).evidence([question()], [(0, 1, 2, 3)])
    with pytest.raises(InputError, match="self_check=False skips this check at your own risk"):
        fresh("llava", self_check=True).evidence([question()], [(0, 1, 2, 3)])


def test_eager_attention_lasts_as_long_as_the_check() -> None:
    model = asked("gemma3")
    within = []

    def fail() -> None:
        with eager(model.backbone):
            within.append(model.backbone.attention)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert within == ["eager"]
    assert model.backbone.attention == "sdpa"
