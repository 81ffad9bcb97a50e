"""The probe: one row of the model's own attention, exactly, beside an untouched pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from asking import QUIET, asked, fresh, prompt_of, question, stock_inputs
from lookright import attention
from lookright.attention import Probe, collected, last_row, probing
from lookright.errors import InputError
from lookright.model import Model
from lookright.selfcheck import difference, stock_eager
from lookright.settings import EvidenceSettings
from zoo.gemma import paligemma
from zoo.tiles import internvl
from zoo.tiny import decoder, random_model

pytestmark = QUIET

BATCH, HEADS, GROUPS, TOKENS, DIM = 2, 4, 2, 11, 8


# One row, by plain formulas


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


QUERY = drawn(BATCH, HEADS, TOKENS, DIM, seed=1)
KEY = drawn(BATCH, GROUPS, TOKENS, DIM, seed=2)


def by_loops(
    allowed: Callable[[int, int], bool] = lambda batch, token: True,
    scale: float = DIM**-0.5,
    bend: Callable[[float, int, int, int], float] = lambda score, *_: score,
    sink: Callable[[int], float | None] = lambda head: None,
) -> NDArray[np.float64]:
    """softmax over the tokens that are allowed, written out. [batch, heads, tokens]"""
    q, k = QUERY.double().numpy(), KEY.double().numpy()
    row = np.zeros((BATCH, HEADS, TOKENS))
    for b in range(BATCH):
        for h in range(HEADS):
            group = h // (HEADS // GROUPS)
            for t in range(TOKENS):
                if allowed(b, t):
                    score = bend(float(q[b, h, -1] @ k[b, group, t]) * scale, b, h, t)
                    row[b, h, t] = np.exp(score)
            given = sink(h)
            row[b, h] /= row[b, h].sum() + (0.0 if given is None else np.exp(given))
    return row


def same(found: Tensor, expected: NDArray[np.float64]) -> None:
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-6)


def test_grouped_heads_share_their_group_s_keys_in_blocks() -> None:
    same(last_row(QUERY, KEY, None), by_loops())


def test_the_scale_is_the_layer_s_own() -> None:
    same(last_row(QUERY, KEY, None, scaling=0.7), by_loops(scale=0.7))


def seen(batch: int, token: int) -> bool:
    """A mask with no pattern that a formula could have by chance."""
    return (batch + 2) * token % 3 != 1


def mask_of(allowed: Callable[[int, int], bool]) -> Tensor:
    """[batch, 1, tokens, tokens] of which only the last row tells the truth."""
    mask = torch.zeros(BATCH, 1, TOKENS, TOKENS, dtype=torch.bool)
    mask[:, 0, -1] = torch.tensor([[allowed(b, t) for t in range(TOKENS)] for b in range(BATCH)])
    return mask


def test_a_boolean_mask_says_which_tokens_are_seen() -> None:
    same(last_row(QUERY, KEY, mask_of(seen)), by_loops(seen))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_additive_mask_is_added(dtype: torch.dtype) -> None:
    hidden = torch.where(mask_of(seen), 0.0, torch.finfo(dtype).min).to(dtype)
    same(last_row(QUERY, KEY, hidden), by_loops(seen))


def test_a_mask_may_differ_between_heads() -> None:
    bias = drawn(BATCH, HEADS, TOKENS, TOKENS, seed=3)
    bent = by_loops(bend=lambda score, b, h, t: score + float(bias[b, h, -1, t]))
    same(last_row(QUERY, KEY, bias), bent)


def test_a_padding_mask_of_flash_attention_hides_what_is_zero() -> None:
    left = torch.tensor([[0] * 4 + [1] * 7, [1] * 11])
    same(last_row(QUERY, KEY, left), by_loops(lambda b, t: b == 1 or t >= 4))


def test_a_mask_longer_than_the_keys_is_cut() -> None:
    longer = torch.cat([mask_of(seen), mask_of(lambda *_: True)], -1)
    same(last_row(QUERY, KEY, longer), by_loops(seen))


@pytest.mark.parametrize("mask", [None, torch.ones(BATCH, TOKENS, dtype=torch.long)])
def test_a_sliding_window_without_a_mask_of_its_own_shows_the_last_tokens(
    mask: Tensor | None,
) -> None:
    same(last_row(QUERY, KEY, mask, sliding_window=4), by_loops(lambda b, t: t >= TOKENS - 4))
    same(last_row(QUERY, KEY, mask, sliding_window=TOKENS + 5), by_loops())


def test_a_sliding_window_is_in_the_mask_where_there_is_one() -> None:
    same(last_row(QUERY, KEY, mask_of(seen), sliding_window=4), by_loops(seen))


def test_a_softcap_bends_the_scores_before_the_mask() -> None:
    capped = by_loops(seen, bend=lambda score, *_: 0.5 * np.tanh(score / 0.5))
    same(last_row(QUERY, KEY, mask_of(seen), softcap=0.5), capped)


def test_a_position_bias_is_added_to_the_scores() -> None:
    bias = drawn(BATCH, HEADS, TOKENS, TOKENS, seed=3)
    bent = by_loops(seen, bend=lambda score, b, h, t: score + float(bias[b, h, -1, t]))
    same(last_row(QUERY, KEY, mask_of(seen), position_bias=bias), bent)


def test_sinks_take_their_share_and_show_no_token() -> None:
    sinks = drawn(HEADS, seed=4)
    row = last_row(QUERY, KEY, None, s_aux=sinks)
    same(row, by_loops(sink=lambda head: float(sinks[head])))
    assert (row.sum(-1) < 0.999).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_of_half_formats_are_computed_in_float32(dtype: torch.dtype) -> None:
    query, key = QUERY.to(dtype), KEY.to(dtype)
    row = last_row(query, key, None)
    assert row.dtype == torch.float32
    assert torch.equal(row, last_row(query.float(), key.float(), None))
    assert not torch.equal(row, row.to(dtype).float())


# Within a model


class Largest(TorchDispatchMode):
    """Remembers the largest tensor any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for item in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(item, Tensor):
                self.elements = max(self.elements, item.numel())
        return made


def test_the_probe_makes_no_map_of_tokens_by_tokens() -> None:
    tokens = 2000
    query, key = drawn(1, HEADS, tokens, DIM), drawn(1, GROUPS, tokens, DIM)
    regions = torch.arange(tokens)[None] % 3 - 1
    with Largest() as largest:
        Probe(regions, 2, keep_heads=True, keep_tokens=True).keep(0, last_row(query, key, None))
    assert 0 < largest.elements <= HEADS * DIM * tokens


def test_eager_attention_beneath_the_probe_makes_no_map_of_all_heads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attention, "EAGER_ROWS", 32)
    model = fresh("llava")
    model.backbone.hf.set_attn_implementation("eager")
    instance = question(n=8)
    tokens = len(prompt_of(model, instance, range(8)).tokens)
    with Largest() as largest:
        model.evidence([instance], [range(8)])
    assert largest.elements < HEADS * tokens * tokens


def whole_and_by_rows(model: Model, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """The model's own eager attention against ours, `rows` of the query at once."""
    assert model.backbone.attention == "eager"
    monkeypatch.setattr(attention, "EAGER_ROWS", rows)
    found = difference(model, EvidenceSettings())
    assert found.attention < 1e-5
    assert found.log_probs < 1e-5


def paligemma2() -> Model:
    """A Gemma 2 decoder: a softcap on the scores, which SDPA cannot have, and sliding windows."""
    first, processor = paligemma()
    tokenizer = processor.tokenizer
    config = tf.PaliGemmaConfig(
        vision_config=first.config.vision_config.to_dict(),
        text_config=decoder(
            tokenizer,
            model_type="gemma2",
            head_dim=8,
            query_pre_attn_scalar=4,
            attn_logit_softcapping=0.5,
            final_logit_softcapping=0.4,
            sliding_window=64,
            layer_types=["sliding_attention", "full_attention"],
        ),
        image_token_index=tokenizer.image_token_id,
        projection_dim=32,
        hidden_size=32,
        attn_implementation="eager",
    )
    hf = random_model(tf.PaliGemmaForConditionalGeneration, config, tokenizer)
    hf.set_attn_implementation("eager")
    return Model.wrap(hf, processor, name="paligemma2", self_check=False)


def internvl_of_sinks() -> Model:
    """A gpt-oss decoder: attention sinks, sliding windows, experts."""
    first, processor = internvl()
    tokenizer = processor.tokenizer
    config = tf.InternVLConfig(
        vision_config=first.config.vision_config.to_dict(),
        text_config=decoder(
            tokenizer,
            model_type="gpt_oss",
            head_dim=8,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=64,
            layer_types=["sliding_attention", "full_attention"],
        ),
        image_token_id=tokenizer.context_image_token_id,
        image_seq_length=4,
    )
    hf = random_model(tf.InternVLForConditionalGeneration, config, tokenizer)
    with torch.no_grad():
        for layer in hf.get_decoder().layers:
            layer.self_attn.sinks.normal_()
    return Model.wrap(hf, processor, name="internvl of sinks", self_check=False)


@pytest.mark.parametrize("rows", [1, 16, 10_000])
@pytest.mark.parametrize("make", [paligemma2, internvl_of_sinks])
def test_eager_attention_by_rows_is_eager_attention(
    make: Callable[[], Model], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With softcaps and with sinks, which need it: no other attention has them on a CPU."""
    whole_and_by_rows(make(), monkeypatch, rows)


def test_sinks_and_softcaps_are_in_the_rows() -> None:
    """So that the tests above can fail: without either, the rows would be others."""
    for model, bend in ((paligemma2(), "attn_logit_softcapping"), (internvl_of_sinks(), "sinks")):
        instance = question()
        (bent,) = model.evidence([instance], [(0, 1, 2, 3)])
        for layer in model.backbone.decoder.layers:  # type: ignore[union-attr]
            plain = (
                None if bend == "attn_logit_softcapping" else nn.Parameter(torch.full((4,), -50.0))
            )
            setattr(layer.self_attn, bend, plain)  # type: ignore[union-attr]
        (plain_evidence,) = model.evidence([instance], [(0, 1, 2, 3)])
        assert np.abs(bent.attention - plain_evidence.attention).max() > 1e-3


def test_a_row_of_eager_attention_is_float32_where_the_model_is_not() -> None:
    model = fresh("llava")
    model.backbone.hf.bfloat16().set_attn_implementation("eager")
    (found,) = model.evidence([question()], [(0, 1, 2, 3)], maps=True)
    assert found.maps is not None
    values = torch.from_numpy(np.concatenate(found.maps, -1))
    assert values.dtype == torch.float32
    single = values[:, :1]
    assert not torch.equal(single, single.bfloat16().float())


def test_heads_and_maps_sum_to_the_mass() -> None:
    (found,) = asked("gemma3").evidence([question()], [(2, 0, 3, 1)], heads=True, maps=True)
    assert found.heads is not None
    assert found.maps is not None
    assert found.heads.shape == (3, 4, 4)  # layers, heads, images
    np.testing.assert_allclose(found.heads.mean(1), found.attention, rtol=0, atol=1e-6)
    assert [m.shape for m in found.maps] == [(3, count) for count in found.image_tokens]
    sums = np.stack([m.sum(-1) for m in found.maps], -1)
    np.testing.assert_allclose(sums, found.attention, rtol=0, atol=1e-6)
    assert np.ptp(found.heads[1], axis=0).min() > 1e-4, "heads that all say the same"
    (plain,) = asked("gemma3").evidence([question()], [(2, 0, 3, 1)])
    assert plain.heads is None
    assert plain.maps is None


def test_hybrid_decoders_keep_their_layers_true_numbers() -> None:
    model = asked("qwen3_5")
    kinds = model.backbone.text_config.layer_types
    assert [kinds[layer] for layer in (1, 3)] == ["full_attention"] * 2
    (found,) = model.evidence([question()], [(0, 1, 2, 3)])
    assert found.layers == (1, 3)
    assert found.attention.shape == (2, 4)
    assert found.attention.min() > 1e-4


def test_a_layer_that_delivers_no_row_is_an_error_that_names_it() -> None:
    model = fresh("llava")
    layer = model.backbone.decoder.layers[1].self_attn  # type: ignore[index,union-attr]
    layer.forward = lambda hidden_states, **_: (hidden_states, None)  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"llava: layer 1 \(1 of 2\) delivered no attention row"):
        model.evidence([question()], [(0, 1, 2, 3)])


def test_a_layer_that_delivers_two_rows_is_an_error_that_names_it() -> None:
    probe = Probe(torch.zeros(1, 5, dtype=torch.long), 1)
    probe.keep(3, torch.ones(1, 2, 5))
    with pytest.raises(InputError, match="layer 3 delivered two"):
        probe.keep(3, torch.ones(1, 2, 5))


def test_rows_come_back_in_the_order_of_their_layers() -> None:
    rows = {7: torch.full((1, 2), 7.0), 3: torch.full((1, 2), 3.0)}
    assert collected(rows, (3, 7), "x")[0, :, 0].tolist() == [3.0, 7.0]


# What is put in the model's place, and taken away again


@contextmanager
def registered(name: str) -> Iterator[Any]:
    """The attention function of that name, which must be the same afterwards."""
    before = ALL_ATTENTION_FUNCTIONS.get(name)
    yield before
    assert ALL_ATTENTION_FUNCTIONS.get(name) is before
    assert (name in ALL_ATTENTION_FUNCTIONS) == (before is not None)


def some_probe() -> Probe:
    return Probe(torch.zeros(1, 5, dtype=torch.long), 1)


@pytest.mark.parametrize("base", ["sdpa", "eager"])
def test_the_registry_is_as_before_even_after_an_exception(base: str) -> None:
    decoder_of_llava = asked("llava").backbone.decoder
    with registered(base) as before:
        with probing(decoder_of_llava, base, some_probe()):
            assert ALL_ATTENTION_FUNCTIONS.get(base) is not before
        with pytest.raises(KeyError), probing(decoder_of_llava, base, some_probe()):
            raise KeyError("in the middle of a pass")


def test_a_pass_that_fails_leaves_nothing_behind() -> None:
    model = fresh("llava")
    expected = model.evidence([question()], [(0, 1, 2, 3)])[0]
    head = model.backbone.hf.lm_head
    own = head.forward

    def broken(*_: Any) -> Tensor:
        raise RuntimeError("broken")

    with registered("sdpa"):
        head.forward = broken
        with pytest.raises(RuntimeError, match="broken"):
            model.evidence([question()], [(0, 1, 2, 3)])
        head.forward = own
    assert "get_image_features" not in model.backbone.base.__dict__
    again = model.evidence([question()], [(0, 1, 2, 3)])[0]
    np.testing.assert_array_equal(again.attention, expected.attention)


def forward_of(model: Model) -> Tensor:
    with torch.no_grad():
        output = model.backbone.hf(**stock_inputs(model, question(), (0, 1, 2, 3)))
    logits: Tensor = output.logits
    return logits


def regions_of(model: Model) -> Tensor:
    return torch.tensor([prompt_of(model, question(), (0, 1, 2, 3)).regions])


def test_watching_changes_nothing_of_a_pass() -> None:
    model = asked("llava")
    before = forward_of(model)
    with probing(model.backbone.decoder, "sdpa", Probe(regions_of(model), 4)) as probe:
        assert torch.equal(forward_of(model), before)
    assert set(probe.rows) == {0, 1}


def test_modules_of_others_pass_through_untouched() -> None:
    """The vision tower's layers, another model's, and the other's own rows when probes nest."""
    outer, inner = asked("llava"), asked("qwen2_vl")
    alone = forward_of(inner)
    one, other = Probe(regions_of(outer), 4), Probe(regions_of(inner), 4)
    with registered("sdpa"), probing(outer.backbone.decoder, "sdpa", one):
        assert torch.equal(forward_of(inner), alone)
        assert one.rows == {}
        with probing(inner.backbone.decoder, "sdpa", other):
            assert torch.equal(forward_of(inner), alone)
        assert set(other.rows) == {0, 1}
        assert one.rows == {}
        forward_of(outer)
    rows, _ = stock_eager(outer.backbone, stock_inputs(outer, question(), (0, 1, 2, 3)))
    member = torch.nn.functional.one_hot(regions_of(outer)[0] + 1, 5)[:, 1:].float()
    for layer, row in zip((0, 1), rows, strict=True):
        torch.testing.assert_close(one.rows[layer][0], row.mean(0) @ member, atol=1e-5, rtol=0)


def test_two_threads_never_see_each_other_s_probe() -> None:
    """The second waits for the first, and both leave the registry as it was."""
    first, second = asked("llava").backbone.decoder, asked("qwen2_vl").backbone.decoder
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with probing(first, "sdpa", some_probe()):
            entered.set()
            leave.wait(10)

    with registered("sdpa") as before:
        holder = threading.Thread(target=hold)
        holder.start()
        entered.wait(10)
        found: list[Any] = []

        def look() -> None:
            with probing(second, "sdpa", some_probe()):
                found.append(ALL_ATTENTION_FUNCTIONS.get("sdpa"))

        looker = threading.Thread(target=look)
        looker.start()
        looker.join(0.05)
        assert found == [], "it did not wait"
        leave.set()
        holder.join()
        looker.join()
        assert len(found) == 1
        assert found[0] is not before
