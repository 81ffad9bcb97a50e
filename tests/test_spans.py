"""Spans: every visual token belongs to the right image, and to one."""

from __future__ import annotations

import pytest

from asking import asked, prompt_of, question
from lookright.errors import InputError
from lookright.settings import EvidenceSettings
from lookright.spans import counts_by_runs, visual_regions, with_delimiters

IMG, OPEN, CLOSE, BREAK, TEXT = 9, 7, 8, 6, 1
SPECIAL = {IMG, OPEN, CLOSE, BREAK}


def regions(tokens: list[int], counts: list[int]) -> list[int]:
    return visual_regions(tokens, IMG, counts)


def test_images_that_touch_are_told_apart_by_their_counts() -> None:
    assert regions([TEXT, IMG, IMG, IMG, TEXT], [1, 2]) == [-1, 0, 1, 1, -1]


def test_an_image_of_many_tiles_is_one_image() -> None:
    tokens = [IMG, IMG, BREAK, IMG, TEXT, IMG, BREAK, IMG]
    assert regions(tokens, [3, 2]) == [0, 0, -1, 0, -1, 1, -1, 1]


@pytest.mark.parametrize("counts", [[1, 1], [2, 2], [3]])
def test_a_prompt_of_more_or_fewer_visual_tokens_than_its_images_have_is_refused(
    counts: list[int],
) -> None:
    tokens = [IMG, IMG, IMG, TEXT, *([IMG] if counts == [3] else [])]
    with pytest.raises(InputError, match=f"its {len(counts)} images have {sum(counts)}"):
        regions(tokens, counts)


def test_unbroken_runs_are_images_where_nothing_else_is_known() -> None:
    tokens = [IMG, IMG, TEXT, IMG, OPEN, IMG, IMG, IMG]
    assert counts_by_runs(tokens, IMG, 3) == [2, 1, 3]


@pytest.mark.parametrize("images", [1, 3])
def test_runs_that_are_not_as_many_as_the_images_are_refused(images: int) -> None:
    with pytest.raises(InputError, match=f"shows {images} images, but 2 runs"):
        counts_by_runs([IMG, TEXT, IMG], IMG, images)


# With delimiters


def widened(tokens: list[int], counts: list[int]) -> list[int]:
    return with_delimiters(regions(tokens, counts), tokens, SPECIAL)


def test_the_token_that_opens_every_image_and_the_one_that_closes_it_count_as_its_own() -> None:
    tokens = [TEXT, OPEN, IMG, IMG, CLOSE, OPEN, IMG, CLOSE, TEXT]
    assert widened(tokens, [2, 1]) == [-1, 0, 0, 0, 0, 1, 1, 1, -1]


def test_what_stands_between_an_image_s_tiles_counts_as_its_own() -> None:
    tokens = [OPEN, IMG, BREAK, TEXT, IMG, CLOSE, OPEN, IMG, CLOSE]
    assert widened(tokens, [2, 1]) == [0] * 6 + [1] * 3


def test_a_token_between_two_images_that_closes_each_is_not_the_next_one_s() -> None:
    tokens = [TEXT, IMG, CLOSE, IMG, CLOSE, TEXT]
    assert widened(tokens, [1, 1]) == [-1, 0, 0, 1, 1, -1]


def test_a_token_between_two_images_that_opens_each_is_not_the_last_one_s() -> None:
    tokens = [OPEN, IMG, OPEN, IMG, TEXT]
    assert widened(tokens, [1, 1]) == [0, 0, 1, 1, -1]


def test_a_special_token_before_the_first_image_alone_is_not_its_own() -> None:
    """Such as the one that begins the text: it draws attention of its own."""
    tokens = [BREAK, IMG, CLOSE, IMG, CLOSE, BREAK]
    assert widened(tokens, [1, 1]) == [-1, 0, 0, 1, 1, -1]
    assert widened([BREAK, IMG, IMG, BREAK], [1, 1]) == [-1, 0, 1, -1]


def test_words_around_images_are_never_their_own() -> None:
    assert widened([TEXT, IMG, TEXT, IMG, TEXT], [1, 1]) == [-1, 0, -1, 1, -1]
    assert widened([IMG, IMG], [1, 1]) == [0, 1]


@pytest.mark.parametrize(
    ("model_type", "first", "last"),
    [
        ("qwen2_vl", "<|vision_start|>", "<|vision_end|>"),
        ("internvl", "<img>", "</img>"),
        ("mistral3", "[IMG]", "[IMG_END]"),
        ("llava", "<image>", "<image>"),
    ],
)
def test_delimited_spans_of_real_prompts_begin_and_end_with_their_markers(
    model_type: str, first: str, last: str
) -> None:
    model = asked(model_type)
    plain = prompt_of(model, question(), (3, 1, 0, 2))
    prompt = prompt_of(model, question(), (3, 1, 0, 2), EvidenceSettings(image_tokens="delimited"))
    names = model.encoder.tokenizer.convert_ids_to_tokens(prompt.tokens)
    assert prompt.tokens == plain.tokens
    for position in range(4):
        own = [index for index, region in enumerate(prompt.regions) if region == position]
        assert own == list(range(own[0], own[-1] + 1))
        assert (names[own[0]], names[own[-1]]) == (first, last)
        assert {index for index, r in enumerate(plain.regions) if r == position} <= set(own)


def test_evidence_counts_the_delimiters_when_they_are_asked_for() -> None:
    model = asked("qwen2_vl")
    order = (0, 1, 2, 3)
    (plain,) = model.evidence([question()], [order])
    (wide,) = model.evidence([question()], [order], EvidenceSettings(image_tokens="delimited"))
    assert list(wide.image_tokens - plain.image_tokens) == [2, 2, 2, 2]
    assert (wide.attention > plain.attention + 1e-4).any()
    assert (wide.attention >= plain.attention).all()
    assert wide.settings != plain.settings
