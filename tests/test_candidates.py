"""Candidates: their joint scores are what enumerating every answer by plain forwards would give."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asking import QUIET, SLOW, asked, brute_force, question
from lookright.candidates import (
    END,
    Node,
    build_trie,
    joint_log_probs,
    node_log_probs,
    node_tokens,
)
from lookright.errors import InputError
from lookright.identifiers import Identifiers, identifiers_for
from lookright.instance import random_orders
from lookright.settings import EvidenceSettings
from zoo import ZOO

pytestmark = QUIET

VOCABULARY = 50

#: name -> (identifiers, how many): single tokens, shared first tokens, answers within answers.
SETS: dict[str, tuple[Identifiers, int]] = {
    "4 numbers": ("numbers", 4),
    "12 numbers": ("numbers", 12),
    "letters": ("letters", 4),
    "roman": ("roman", 4),
    "words": ("words", 4),
    "a list": (("al", "alpha", "alphabet", "beta gamma"), 4),
}


def letters(*words: str) -> list[list[int]]:
    """Each letter a token."""
    return [[ord(letter) - ord("a") + 10 for letter in word] for word in words]


# The trie


def test_candidates_that_part_at_the_first_token_need_the_root_alone() -> None:
    trie = build_trie("abc", letters("a", "bx", "cyz"), [2])
    assert trie.nodes == (Node((), (10, 11, 12)),)
    assert trie.later == ()
    assert trie.paths == (((0, 0),), ((0, 1),), ((0, 2),))


def test_an_answer_within_an_answer_parts_from_it_at_its_end() -> None:
    trie = build_trie(["1", "12", "2"], [[5], [5, 6], [6]], [2])
    assert trie.nodes == (Node((), (5, 6)), Node((5,), (END, 6)))
    assert trie.later == (1,)
    assert trie.paths == (((0, 0), (1, 0)), ((0, 0), (1, 1)), ((0, 1),))


def test_a_token_without_an_alternative_is_free() -> None:
    """As in "seco" + "nd": once begun there is nothing else to say."""
    trie = build_trie(["abc", "abd"], letters("abc", "abd"), [2])
    assert trie.nodes == (Node(tuple(letters("ab")[0]), tuple(letters("cd")[0])),)
    assert trie.later == (0,)


def test_the_end_of_a_turn_is_all_the_tokens_that_end_it() -> None:
    trie = build_trie(["1", "12"], [[5], [5, 6]], [9, 2, 9])
    assert trie.ends == (2, 9)
    (node,) = trie.nodes
    assert node_tokens(trie, node) == [2, 9, 6]
    scores = node_log_probs(trie, node, torch.tensor([[1.0, 0.5, 2.0]]))
    end, on = math.exp(1.0) + math.exp(0.5), math.exp(2.0)
    expected = [[math.log(end / (end + on)), math.log(on / (end + on))]]
    torch.testing.assert_close(scores, torch.tensor(expected))


def test_scores_are_float32_whatever_the_logits_are() -> None:
    trie = build_trie("ab", [[5], [6]], [2])
    logits = torch.tensor([[1.0, 1.0078125]], dtype=torch.bfloat16)
    scores = node_log_probs(trie, trie.nodes[0], logits)
    assert scores.dtype == torch.float32
    assert float(scores[0, 1] - scores[0, 0]) == pytest.approx(0.0078125, abs=1e-6)


def test_two_identifiers_of_equal_tokens_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"'A' and 'a' are the same tokens"):
        build_trie(["A", "b", "a"], [[5], [6], [5]], [2])


def test_an_identifier_without_tokens_is_refused() -> None:
    with pytest.raises(InputError, match=r"'\?' has no token"):
        build_trie(["a", "?"], [[5], []], [2])


def test_an_identifier_that_would_end_the_turn_is_refused() -> None:
    with pytest.raises(InputError, match=r"'b' contains the end-of-turn token"):
        build_trie(["a", "b"], [[5], [6, 2]], [2])


def test_a_model_that_ends_no_turn_is_refused() -> None:
    with pytest.raises(InputError, match="end-of-turn"):
        build_trie(["a", "b"], [[5], [6]], [])


WORDS = st.lists(
    st.lists(st.integers(5, 8), min_size=1, max_size=4).map(tuple),
    min_size=2,
    max_size=8,
    unique=True,
)


@given(WORDS, st.integers(0, 2**32 - 1))
def test_candidates_share_a_probability_of_one_whatever_their_lengths(
    words: list[tuple[int, ...]], seed: int
) -> None:
    """And each has the product, along its way, of its share among what may follow there."""
    ends = [2, 3]
    trie = build_trie([str(word) for word in words], words, ends)
    draw = torch.Generator().manual_seed(seed)
    logits = {node.prefix: torch.randn(1, VOCABULARY, generator=draw) for node in trie.nodes}
    per_node = [
        node_log_probs(trie, node, logits[node.prefix][:, node_tokens(trie, node)])
        for node in trie.nodes
    ]
    found = joint_log_probs(trie, per_node)[0].double()
    assert float(found.exp().sum()) == pytest.approx(1.0, abs=1e-6)

    def weight(prefix: tuple[int, ...], token: int | None) -> float:
        row = logits[prefix][0].double().exp()
        return float(row[ends].sum() if token is None else row[token])

    for word, score in zip(words, found, strict=True):
        expected = 0.0
        for depth, token in enumerate((*word, None)):
            prefix = word[:depth]
            others = {w[depth] if len(w) > depth else None for w in words if w[:depth] == prefix}
            if len(others) > 1:
                share = weight(prefix, token) / sum(weight(prefix, other) for other in others)
                expected += math.log(share)
        assert float(score) == pytest.approx(expected, abs=1e-5)


# Against brute force


@pytest.mark.parametrize("model_type", ZOO)
def test_joint_scores_equal_enumeration_by_plain_forwards(model_type: str) -> None:
    """For every set of identifiers, in a batch whose other prompt is longer: left-padded."""
    model = asked(model_type)
    sets = ["roman"] if model_type in SLOW else list(SETS)
    for name in sets:
        identifiers, n = SETS[name]
        settings = EvidenceSettings(identifiers=identifiers)
        instances = [question(0, n), question(1, n)]
        orders = [random_orders(n, 1, seed=number)[0] for number in range(2)]
        found = model.evidence(instances, orders, settings)[0].log_probs
        expected = brute_force(model, instances[0], orders[0], settings)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        assert found.dtype == np.float32
        assert np.ptp(expected) > 0.01, "too even to tell one candidate from another"
        assert np.exp(expected).sum() == pytest.approx(1.0)


def test_the_sets_put_every_kind_of_trie_to_the_test() -> None:
    tokenizer = asked("llava").encoder.tokenizer

    def trie_of(name: str) -> list[Node]:
        identifiers, n = SETS[name]
        names = identifiers_for(identifiers, n)
        return list(build_trie(names, [tokenizer(n)["input_ids"] for n in names], [5]).nodes)

    assert [len(node.prefix) for node in trie_of("4 numbers")] == [0]
    assert [END in node.children for node in trie_of("12 numbers")] == [False, True]
    depths = [len(node.prefix) for node in trie_of("a list")]
    assert max(depths) > 2, "a prefix of several tokens"
    assert any(END in node.children for node in trie_of("a list"))
    assert [len(node.prefix) for node in trie_of("roman")] == [1, 2]


def test_several_tokens_that_end_an_answer_count_together() -> None:
    """With a generation config that lists two of them."""
    model = asked("qwen2_vl")
    settings = EvidenceSettings(identifiers="roman")
    order = (2, 0, 3, 1)
    config = model.backbone.hf.generation_config
    usual = config.eos_token_id
    (before,) = model.evidence([question()], [order], settings)
    config.eos_token_id = [usual, model.encoder.tokenizer.convert_tokens_to_ids("?")]
    model._tries.clear()
    try:
        (after,) = model.evidence([question()], [order], settings)
        expected = brute_force(model, question(), order, settings)
    finally:
        config.eos_token_id = usual
        model._tries.clear()
    np.testing.assert_allclose(after.log_probs, expected, rtol=0, atol=1e-5)
    assert np.abs(after.log_probs - before.log_probs).max() > 1e-3
