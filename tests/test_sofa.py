"""SoFA's softened masks: the same as masks written out by hand in the stock model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from asking import QUIET, asked, fresh, prompt_of, question, stock_inputs
from lookright.candidates import joint_log_probs, node_log_probs, node_tokens
from lookright.errors import InputError
from lookright.evidence import Evidence
from lookright.instance import Instance, Order, random_orders
from lookright.model import Model
from lookright.selfcheck import stock_eager
from lookright.settings import EvidenceSettings
from lookright.softened import Softening, softened

pytestmark = QUIET

#: Plain, three-axis positions, sliding windows with images that see themselves, softcaps, tiles.
KINDS = ["llava", "qwen2_5_vl", "gemma3", "gemma3n", "gemma4", "mistral3", "internvl", "idefics3"]


@contextmanager
def by_hand(model: Model, visual: Tensor, value: float) -> Iterator[None]:
    """While inside, the attention of layers 0, 2, 4, ... gets `value` in its additive mask where
    one of the `visual` tokens [tokens] was hidden from another."""

    def soften(_: nn.Module, args: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        mask = named["attention_mask"].clone()
        pairs = visual[:, None] & visual[None, :]
        mask[:, :, pairs & (mask[0, 0] < -1e30)] = value
        return args, named | {"attention_mask": mask}

    hooks = [
        module.register_forward_pre_hook(soften, with_kwargs=True)
        for module in model.backbone.decoder.modules()
        if type(module).__name__.endswith("Attention") and module.layer_idx % 2 == 0  # type: ignore
    ]
    assert hooks
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def reference(
    model: Model, instance: Instance, order: Order, sigma: float
) -> tuple[Tensor, Tensor]:
    """Attention [layers, images] and log-probabilities [images] of the stock model by hand."""
    prompt = prompt_of(model, instance, order)
    visual = torch.tensor(prompt.tokens) == model.encoder.image_token
    with by_hand(model, visual, math.log(sigma)):
        rows, logits = stock_eager(model.backbone, stock_inputs(model, instance, order))
    owners = torch.tensor(prompt.regions)
    member = torch.stack([(owners == k).float() for k in range(len(order))], -1)
    trie = model._trie(prompt, EvidenceSettings())
    root = node_log_probs(trie, trie.nodes[0], logits[None, node_tokens(trie, trie.nodes[0])])
    return torch.stack(rows).mean(1) @ member, joint_log_probs(trie, [root])[0]


def mixed() -> tuple[list[Instance], list[Order]]:
    """Prompts of different lengths, so that a batch of them is padded."""
    instances = [question(0), question(1), question(2)]
    return instances, [random_orders(4, 1, seed=k)[0] for k in range(3)]


def distance(found: Sequence[Evidence], other: Sequence[Evidence]) -> float:
    return max(
        float(np.abs(mine.log_probs - theirs.log_probs).max())
        for mine, theirs in zip(found, other, strict=True)
    )


@pytest.mark.parametrize("sigma", [1.0, 0.5])
@pytest.mark.parametrize("model_type", KINDS)
def test_softened_evidence_is_that_of_a_mask_written_by_hand(model_type: str, sigma: float) -> None:
    """sigma = 1: visual tokens see each other both ways, in every second layer."""
    model = asked(model_type)
    instances, orders = mixed()
    found = model.evidence(instances, orders, EvidenceSettings(sofa_sigma=sigma))
    for piece, instance, order in zip(found, instances, orders, strict=True):
        attention, log_probs = reference(model, instance, order, sigma)
        np.testing.assert_allclose(piece.attention, attention.numpy(), rtol=0, atol=1e-5)
        np.testing.assert_allclose(piece.log_probs, log_probs.numpy(), rtol=0, atol=1e-5)
    assert distance(found, model.evidence(instances, orders)) > 1e-4


@pytest.mark.parametrize("model_type", KINDS)
def test_a_sigma_near_zero_is_vanilla(model_type: str) -> None:
    model = asked(model_type)
    instances, orders = mixed()
    plain = model.evidence(instances, orders)
    found = model.evidence(instances, orders, EvidenceSettings(sofa_sigma=1e-30))
    assert distance(found, plain) < 1e-5
    for mine, theirs in zip(found, plain, strict=True):
        np.testing.assert_allclose(mine.attention, theirs.attention, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model_type", ["llava", "gemma3"])
def test_softening_under_eager_attention_is_softening_under_sdpa(model_type: str) -> None:
    model, other = asked(model_type), fresh(model_type)
    other.backbone.hf.set_attn_implementation("eager")
    assert (model.backbone.attention, other.backbone.attention) == ("sdpa", "eager")
    instances, orders = mixed()
    settings = EvidenceSettings(sofa_sigma=0.5)
    found = other.evidence(instances, orders, settings)
    assert distance(found, model.evidence(instances, orders, settings)) < 1e-5


def test_the_last_row_of_the_first_layer_is_untouched() -> None:
    """What the last token looks at there hangs on no mask between images."""
    model = asked("llava")
    instances, orders = mixed()
    plain = model.evidence(instances, orders)
    found = model.evidence(instances, orders, EvidenceSettings(sofa_sigma=1))
    for mine, theirs in zip(found, plain, strict=True):
        np.testing.assert_allclose(mine.attention[0], theirs.attention[0], rtol=0, atol=1e-6)
        assert np.abs(mine.attention[1] - theirs.attention[1]).max() > 1e-4


def test_softened_evidence_knows_only_visual_tokens_not_what_stands_around_them() -> None:
    model = asked("internvl")
    instances, orders = mixed()
    settings = EvidenceSettings(sofa_sigma=0.5)
    delimited = settings.with_changes(image_tokens="delimited")
    found = model.evidence(instances, orders, settings)
    assert distance(found, model.evidence(instances, orders, delimited)) == 0


def test_softened_evidence_of_candidates_of_several_tokens_sums_to_one() -> None:
    model = asked("llava")
    settings = EvidenceSettings(sofa_sigma=0.5, identifiers="roman")
    (found,) = model.evidence([question()], [(2, 0, 1, 3)], settings)
    (plain,) = model.evidence([question()], [(2, 0, 1, 3)], settings.with_changes(sofa_sigma=None))
    assert np.exp(found.log_probs).sum() == pytest.approx(1, abs=1e-5)
    assert distance([found], [plain]) > 1e-4
    assert found.settings != plain.settings


def test_a_pass_after_a_softened_one_is_vanilla_again() -> None:
    model = asked("llava")
    before = model.evidence([question()], [(0, 1, 2, 3)])
    model.evidence([question()], [(0, 1, 2, 3)], EvidenceSettings(sofa_sigma=1))
    assert distance(model.evidence([question()], [(0, 1, 2, 3)]), before) == 0


def test_an_attention_that_takes_no_mask_is_refused() -> None:
    model = fresh("llava")
    model.backbone.text_config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(InputError, match="flash_attention_2 attention takes no mask"):
        model.evidence([question()], [(0, 1, 2, 3)], EvidenceSettings(sofa_sigma=0.5))


def test_a_model_that_attends_in_odd_layers_only_is_refused() -> None:
    model = fresh("llava")
    model.backbone.layers = (1,)
    with pytest.raises(InputError, match="llava attends in the layers 1 only"):
        model.evidence([question()], [(0, 1, 2, 3)], EvidenceSettings(sofa_sigma=0.5))


# The mask itself


VISUAL = torch.tensor([[False, True, True, False], [False, False, True, True]])
LOWEST = torch.finfo(torch.float32).min


def test_only_pairs_of_visual_tokens_are_softened() -> None:
    mask = softened(None, VISUAL, 4, 0.25, torch.float32, causal=True)
    assert mask is not None
    for b in range(2):
        for i in range(4):
            for j in range(4):
                pair = bool(VISUAL[b, i] and VISUAL[b, j])
                expected = 0.0 if j <= i else math.log(0.25) if pair else LOWEST
                assert float(mask[b, 0, i, j]) == pytest.approx(expected)
    assert torch.equal(softened(None, VISUAL, 2, 0.25, torch.float32, True), mask[:, :, 2:])  # type: ignore[arg-type]


@pytest.mark.parametrize("lowest", [LOWEST, -torch.inf])
def test_a_boolean_and_an_additive_mask_soften_alike(lowest: float) -> None:
    seen = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    additive = torch.zeros(2, 1, 4, 4).masked_fill(~seen, lowest)
    expected = softened(seen, VISUAL, 4, 0.5, torch.float32, causal=True)
    found = softened(additive, VISUAL, 4, 0.5, torch.float32, causal=True)
    assert torch.equal(found, expected)  # type: ignore[arg-type]


def test_where_nothing_is_hidden_nothing_is_softened() -> None:
    assert softened(None, VISUAL, 4, 0.5, torch.float32, causal=False) is None


def test_layers_that_share_a_mask_share_the_softened_one() -> None:
    softening = Softening(VISUAL, 0.5)
    query, given = torch.zeros(2, 1, 4, 8), torch.ones(2, 1, 4, 4, dtype=torch.bool)
    first = softening.mask(given, query, causal=True)
    assert softening.mask(given, query, causal=True) is first
    assert softening.mask(given.clone(), query, causal=True) is not first
    assert [layer for layer in range(6) if Softening.applies(layer)] == [0, 2, 4]
