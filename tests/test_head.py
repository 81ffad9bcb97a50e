"""The head: logits of the candidates in float32, finished as the model's own code finishes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from asking import QUIET, asked, brute_force, fresh, question
from lookright.errors import InputError
from lookright.head import Said, candidate_logits, find_head, heard
from lookright.settings import EvidenceSettings

pytestmark = QUIET

IDS = [3, 11, 4]
ORDER = (2, 0, 3, 1)


def said_by(head: nn.Module, finish: Any, dtype: torch.dtype = torch.float32) -> Said:
    """A pass of two prompts, three tokens each, whose logits a model finishes in some way."""
    hidden = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    with torch.no_grad(), heard(head) as said:
        said.logits = finish(head(hidden))
    return said


def linear(bias: bool = False, dtype: torch.dtype = torch.float32) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(8, 20, bias=bias).to(dtype)


def candidates(head: nn.Module, said: Said, **config: Any) -> Tensor:
    with torch.no_grad():
        return candidate_logits(head, SimpleNamespace(**config), said, slice(None), -1, IDS)


FINISHES = {
    "nothing": ({}, lambda x: x),
    "a factor": ({"logit_scale": 0.25}, lambda x: 0.25 * x),
    "a divisor": ({"logits_scaling": 8.0}, lambda x: x / 8.0),
    "a cap": ({"final_logit_softcapping": 0.5}, lambda x: 0.5 * torch.tanh(x / 0.5)),
    "a factor and a cap": (
        {"output_multiplier": 0.3, "final_logit_softcapping": 0.5},
        lambda x: 0.5 * torch.tanh(0.3 * x / 0.5),
    ),
    "a factor that is not used": ({"logit_scale": 0.25}, lambda x: x),
    "a cap that is not used": ({"final_logit_softcapping": 0.5}, lambda x: x),
    "a factor without its cap": (
        {"logit_scale": 0.25, "final_logit_softcapping": 0.5},
        lambda x: 0.25 * x,
    ),
    "something of its own": ({}, lambda x: x.exp()),
}


@pytest.mark.parametrize("name", FINISHES)
def test_logits_are_finished_as_the_model_finishes_its_own(name: str) -> None:
    config, finish = FINISHES[name]
    head = linear(bias=True)
    said = said_by(head, finish)
    expected = said.logits[:, -1, IDS]
    torch.testing.assert_close(candidates(head, said, **config), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in FINISHES if name != "something of its own"])
def test_logits_of_half_formats_are_those_of_float32(name: str) -> None:
    """Finer than the model's own, which its format has rounded."""
    config, finish = FINISHES[name]
    head = linear(dtype=torch.bfloat16)
    said = said_by(head, finish, torch.bfloat16)
    found = candidates(head, said, **config)
    exact = finish(said.hidden[:, -1].float() @ head.weight.float().T)[:, IDS]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-6)
    assert not torch.equal(found, found.bfloat16().float())


def test_a_head_that_is_no_plain_matrix_gives_its_own_numbers() -> None:
    class Quantised(nn.Linear):
        pass

    head = Quantised(8, 20)
    said = said_by(head, lambda x: 2 * x)
    assert torch.equal(candidates(head, said), said.logits[:, -1, IDS])


def test_each_prompt_and_place_is_read_for_itself() -> None:
    head = linear()
    said = said_by(head, lambda x: x)
    found = candidate_logits(head, SimpleNamespace(), said, slice(1, None, 2), 1, IDS)
    torch.testing.assert_close(found, said.logits[1:2, 1, IDS])


def test_a_head_within_the_decoder_is_found_and_none_is_an_error() -> None:
    head = linear()
    none = SimpleNamespace(
        get_output_embeddings=lambda: None, config=SimpleNamespace(model_type="x")
    )
    within = SimpleNamespace(get_output_embeddings=lambda: head)
    assert find_head(none, within) is head
    with pytest.raises(InputError, match="x models give no evidence: no output head"):
        find_head(none, SimpleNamespace())


@pytest.mark.parametrize(
    ("model_type", "name", "value"),
    [
        ("aya_vision", "logit_scale", 0.25),  # in its configuration, but not in its code
        ("cohere_compass", "logit_scale", 0.25),
        ("granite4_vision", "logits_scaling", 4.0),
        ("gemma4", "final_logit_softcapping", 1.5),
    ],
)
def test_scales_and_caps_of_real_families_are_theirs(
    model_type: str, name: str, value: float
) -> None:
    model = fresh(model_type)
    (usual,) = asked(model_type).evidence([question()], [ORDER])
    setattr(model.backbone.text_config, name, value)
    if hasattr(model.backbone.hf, name):
        setattr(model.backbone.hf, name, value)
    (found,) = model.evidence([question()], [ORDER])
    expected = brute_force(model, question(), ORDER, EvidenceSettings())
    np.testing.assert_allclose(found.log_probs, expected, rtol=0, atol=1e-5)
    changed = np.abs(found.log_probs - usual.log_probs).max() > 1e-3
    assert changed == (model_type != "aya_vision")
