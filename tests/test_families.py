"""Every family: its evidence is its own attention and its own logits, alone and in company."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from asking import QUIET, asked, question
from lookright.backbone import Backbone
from lookright.candidates import build_trie
from lookright.families import ALONE, REFUSED
from lookright.model import Model
from lookright.selfcheck import check_backbone, difference
from lookright.settings import EvidenceSettings
from models_table import BAR, CHECKED, PAGE, TYPES, measured, page, without_digits
from zoo import BARE, NOT_SAVED, WRONG_IN_A_BATCH, ZOO, save

pytestmark = QUIET


@pytest.mark.parametrize("model_type", CHECKED)
def test_evidence_is_the_last_row_of_stock_eager_attention(model_type: str) -> None:
    found = measured(model_type)
    assert found.attention < BAR
    assert found.scores < BAR
    assert found.mass > 1e-3, "too little attention on any image to compare anything"
    assert found.spread > 1e-4, "too even to tell one image from another"


@pytest.mark.parametrize("model_type", CHECKED)
def test_evidence_in_a_left_padded_batch_is_evidence_alone(model_type: str) -> None:
    assert measured(model_type).batch < BAR


@pytest.mark.parametrize("model_type", ZOO)
def test_the_self_check_agrees(model_type: str) -> None:
    found = difference(asked(model_type), EvidenceSettings())
    assert found.attention < BAR
    assert found.log_probs < BAR
    assert check_backbone(asked(model_type), EvidenceSettings()) == found


def test_families_that_answer_otherwise_in_a_batch_are_asked_alone() -> None:
    assert set(WRONG_IN_A_BATCH) <= set(ALONE)


@pytest.mark.parametrize("model_type", BARE)
def test_joint_scores_of_bare_models_equal_enumeration_by_plain_forwards(model_type: str) -> None:
    """The others are in test_candidates, with their processors."""
    hf, prompt = BARE[model_type]()
    backbone = Backbone(hf)
    a, b, c, end = (int(t) for t in prompt.inputs["input_ids"][0, -30:].unique()[:4])
    trie = build_trie(["a", "ab", "abc", "c"], [[a], [a, b], [a, b, c], [c]], [end])
    regions = torch.full_like(prompt.inputs["input_ids"], -1)
    for position, (start, stop) in enumerate(prompt.spans):
        regions[0, start:stop] = position
    found = backbone.read(prompt.inputs, None, regions, len(prompt.spans), trie)

    def after(*prefix: int) -> Tensor:
        said = torch.tensor([prefix], dtype=torch.long)
        inputs = dict(prompt.inputs)
        for name, value in prompt.inputs.items():
            if value.shape == regions.shape:
                more = {"input_ids": said, "attention_mask": torch.ones_like(said)}
                inputs[name] = torch.cat([value, more.get(name, torch.zeros_like(said))], 1)
        with torch.no_grad():
            return hf(**inputs, use_cache=False).logits[0, -1].double()

    root = after()[[a, c]].log_softmax(-1)
    first = after(a)[[end, b]].log_softmax(-1)
    second = after(a, b)[[end, c]].log_softmax(-1)
    expected = [root[0] + first[0], root[0] + first[1] + second[0], root[0] + first[1] + second[1]]
    np.testing.assert_allclose(
        found.log_probs[0], torch.stack([*expected, root[1]]), rtol=0, atol=BAR
    )


@pytest.mark.parametrize("model_type", [name for name in ZOO if name not in NOT_SAVED])
def test_a_family_loads_from_a_folder_as_it_is(model_type: str, tmp_path: Path) -> None:
    """And passes its self-check at first use."""
    save(model_type, tmp_path)
    loaded = Model.load(str(tmp_path), device="cpu")
    instances, orders = [question(1, 3), question(0, 3)], [(2, 0, 1), (0, 1, 2)]
    found = loaded.evidence(instances, orders)
    expected = asked(model_type).evidence(instances, orders)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.log_probs, theirs.log_probs, rtol=0, atol=BAR)
        np.testing.assert_allclose(mine.attention, theirs.attention, rtol=0, atol=BAR)


# The page


def test_every_type_of_the_installed_transformers_has_one_verdict() -> None:
    assert not set(CHECKED) & set(REFUSED)
    assert {*CHECKED, *REFUSED} <= set(TYPES)
    rows = [line.split(" | ")[0] for line in page().splitlines() if line.startswith("| ")]
    for name in TYPES:
        assert rows.count(f"| {name}") == 1, name


def test_enough_types_are_checked() -> None:
    assert len(CHECKED) >= 18


def test_the_page_says_what_was_measured() -> None:
    """If not: python tests/models_table.py"""
    assert without_digits(PAGE.read_text(encoding="utf-8")) == without_digits(page())
