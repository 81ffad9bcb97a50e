"""What the preset `released` changes in evidence: its scoring of long lists, penalties, tiles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from lookright import EvidenceSettings, Instance, Model
from lookright.candidates import build_trie, joint_log_probs, node_log_probs, penalised
from lookright.families import released_options
from zoo import build

DIGITS = {str(digit): 10 + digit for digit in range(10)}
END = 2


def numbers(n: int, shared: bool):  # type: ignore[no-untyped-def]
    names = [str(k + 1) for k in range(n)]
    return build_trie(names, [[DIGITS[d] for d in name] for name in names], [END], shared=shared)


def scores(n: int, shared: bool) -> np.ndarray:
    """Joint probabilities where the logit of every vocabulary id is the id's sine."""
    trie = numbers(n, shared)
    logits = torch.sin(torch.arange(30.0))
    nodes = []
    for node in trie.nodes:
        ids = [END if child < 0 else child for child in node.children]
        nodes.append(node_log_probs(trie, node, logits[None, ids]))
    return joint_log_probs(trie, nodes)[0].exp().numpy()


def test_up_to_nineteen_numbers_the_released_scoring_is_the_joint_one() -> None:
    np.testing.assert_allclose(scores(12, shared=True), scores(12, shared=False), rtol=1e-6)


def test_from_twenty_numbers_on_every_first_digit_shares_all_the_second_ones() -> None:
    """Written out: P(first) / Z over 1..9, P(second) / Z over the end and all of 0..9."""
    p = np.exp(np.sin(np.arange(30.0)))
    first = {d: p[10 + d] / p[11:20].sum() for d in range(1, 10)}
    second = p[10:20] / (p[10:20].sum() + p[END])
    ends = p[END] / (p[10:20].sum() + p[END])
    expected = [first[k] * (ends if k in (1, 2) else 1.0) for k in range(1, 10)]
    expected += [first[k // 10] * second[k % 10] for k in range(10, 27)]
    found = scores(26, shared=True)
    np.testing.assert_allclose(found, np.array(expected) / sum(expected), rtol=1e-5)
    assert np.abs(found - scores(26, shared=False)).max() > 1e-3


def test_a_penalty_lowers_what_the_prompt_holds_and_nothing_else() -> None:
    logits = torch.tensor([[2.0, -2.0, 3.0]])
    found = penalised(logits, [5, 6, 7], torch.tensor([[1, 5, 6]]), 2.0)
    assert found.tolist() == [[1.0, -4.0, 3.0]]
    assert penalised(logits, [5, 6, 7], torch.tensor([[1, 5, 6]]), 1.0) is logits


@pytest.mark.parametrize(("n", "patches"), [(2, 12), (4, 7), (8, 3), (12, 2), (28, 1), (40, 1)])
def test_internvl_gets_fewer_tiles_the_more_images_there_are(n: int, patches: int) -> None:
    assert released_options("internvl", n) == {"max_patches": patches}
    assert released_options("llava", n) == {}


@pytest.fixture(scope="module")
def penalising() -> Model:
    """A model whose generation config lowers what the prompt holds."""
    hf, processor = build("internvl")
    hf.generation_config.repetition_penalty = 1.5
    return Model.wrap(hf, processor, name="internvl", self_check=False)


def question(n: int) -> Instance:
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 256, (40, 96, 3), np.uint8)) for _ in range(n)]
    return Instance("q", tuple(pictures), caption="a picture")


def test_the_prompt_s_own_digits_are_lowered_under_released_alone(penalising: Model) -> None:
    """The prompt names 1 and 4, so the penalty moves probability to 2 and 3."""
    asked = ([question(4)], [range(4)])
    (paper,) = penalising.evidence(*asked)
    same = EvidenceSettings(scoring="released")
    (released,) = penalising.evidence(*asked, same)
    moved = released.log_probs - paper.log_probs
    assert not np.allclose(moved, 0, atol=1e-3)
    np.testing.assert_allclose(moved[1], moved[2], atol=1e-5)


def test_released_tiles_show_in_the_number_of_visual_tokens(penalising: Model) -> None:
    released = EvidenceSettings(scoring="released")
    (own,) = penalising.evidence([question(12)], [range(12)], released)
    two = EvidenceSettings(scoring="released", processor_options={"max_patches": 2})
    (given,) = penalising.evidence([question(12)], [range(12)], two)
    np.testing.assert_array_equal(own.image_tokens, given.image_tokens)  # 28 // 12 is 2
    (fewer,) = penalising.evidence([question(2)], [range(2)], released)
    assert fewer.image_tokens.max() > own.image_tokens.max()


def test_a_penalty_leaves_padding_alone(penalising: Model) -> None:
    """The pad token is made an end of turn: prompts padded for a longer one must not lower it."""
    hf, tokenizer = penalising.backbone.hf, penalising.encoder.tokenizer
    hf.generation_config.eos_token_id = [tokenizer.eos_token_id, penalising.encoder.pad]
    released = EvidenceSettings(scoring="released", processor_options={"max_patches": 1})
    short = question(12)
    long = Instance("long", short.images, caption="a much longer caption " * 20)
    (alone,) = penalising.evidence([short], [range(12)], released)
    _, beside = penalising.evidence([long, short], [range(12)] * 2, released)
    np.testing.assert_allclose(beside.log_probs, alone.log_probs, atol=1e-5)
