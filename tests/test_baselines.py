"""The baselines: what they ask, what they read out of texts, and that company changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from asking import QUIET, asked, fresh, noise, question
from lookright.baselines import BASELINES
from lookright.baselines.answers import Answer, Answers, Writing
from lookright.baselines.embedding import Nearest
from lookright.baselines.pointwise import PROMPT, ImagesAlone
from lookright.baselines.reading import (
    after_the_answer_is,
    after_thought,
    last_digits,
    last_named,
    released_sample,
    thought_and_answered,
)
from lookright.baselines.voting import Voted, majority, voted
from lookright.baselines.writing import answered, unwritten, write
from lookright.collect import Question, Window, collect
from lookright.errors import EvidenceWarning, InputError
from lookright.evidence import EvidenceArray, instance_hash
from lookright.identifiers import identifiers_for
from lookright.images import content_hash
from lookright.instance import Instance, Order, cyclic_orders, identity
from lookright.methods import METHODS
from lookright.metrics import (
    Decisions,
    accuracy,
    confusion,
    consistency,
    decide,
    figures,
    recall,
    selection,
)
from lookright.model import Model
from lookright.sampling import Sampling, drawn, uniform
from lookright.settings import EvidenceSettings
from lookright.store import Store
from lookright.towers import Towers
from zoo.text import make_tokenizer
from zoo.tiny import STD

pytestmark = QUIET

FOUR = ("1", "2", "3", "4")
WRITING = Writing("vanilla_generate", EvidenceSettings(model="m"), max_new_tokens=8)


def said(
    instance: str = "i", order: Order = (0, 1, 2, 3), sample: int = 0, text: str = "1"
) -> Answer:
    return Answer(f"name of {instance}", instance, order, sample, text, WRITING.hash, target=2)


def asked_in(instance: Instance, order: Order) -> Question:
    hashes = [content_hash(image) for image in instance.images]
    return Question(instance, instance_hash(instance, hashes), order)


# The table


def test_the_baselines_are_those_of_the_method() -> None:
    assert list(BASELINES) == [
        "instruction",
        "chain_of_thought",
        "self_consistency",
        "vanilla_generate",
        "sofa",
        "pointwise",
        "embedding",
    ]
    assert all(name == baseline.name for name, baseline in BASELINES.items())
    generating = {name for name, baseline in BASELINES.items() if baseline.generates}
    assert generating == {"chain_of_thought", "self_consistency", "vanilla_generate"}
    once = {name for name, baseline in BASELINES.items() if baseline.once}
    assert once == {"pointwise", "embedding"}


def test_an_unknown_baseline_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown baseline 'sofas'; did you mean sofa\?"):
        BASELINES["sofas"]


def test_the_presets_differ_as_the_released_code_does() -> None:
    sampled, greedy = BASELINES["self_consistency"], BASELINES["vanilla_generate"]
    paper = {"samples": 10, "temperature": 0.7, "top_k": None, "max_new_tokens": 512}
    assert sampled.parameters() == paper
    assert sampled.parameters("released") == paper | {"top_k": 40}
    assert sampled.parameters("released", {"top_k": "none"})["top_k"] is None
    assert greedy.parameters("released") == {"max_new_tokens": 2}
    assert BASELINES["chain_of_thought"].parameters() == {"max_new_tokens": 1024}
    assert BASELINES["sofa"].parameters(given={"sigma": 1}) == {"sigma": 1.0}


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("sofa", {"sigm": 1}, "baseline sofa has no parameter 'sigm'; did you mean sigma?"),
        ("pointwise", {"k": 1}, "baseline pointwise has no parameter 'k'; it has none"),
        ("sofa", {"sigma": 0}, "sofa.sigma=0: must be a number above 0, at most 1"),
        ("sofa", {"sigma": "x"}, "sofa.sigma=x: must be a number"),
        ("self_consistency", {"samples": 0}, "self_consistency.samples=0: must be a whole number"),
        ("self_consistency", {"samples": True}, "samples=True: must be a whole number"),
        ("self_consistency", {"temperature": float("nan")}, "temperature=nan: must be a number"),
        ("self_consistency", {"top_k": 0.5}, "top_k=0.5: must be a whole number"),
    ],
)
def test_parameters_that_do_not_fit_are_sentences(
    name: str, given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence.replace("?", r"\?")):
        BASELINES[name].parameters(given=given)


def test_baselines_change_the_settings_they_are_asked_with() -> None:
    released = EvidenceSettings.released(labelled=True)
    changes = {name: b.settings(released).differences(released) for name, b in BASELINES.items()}
    changed = {name: [line.split(":")[0] for line in lines] for name, lines in changes.items()}
    assert changed == {
        "instruction": ["prompt"],
        "chain_of_thought": ["prompt", "trailing_space"],
        "self_consistency": ["prompt"],
        "vanilla_generate": [],
        "sofa": ["sofa_sigma"],
        "pointwise": ["prompt", "labelled", "image_tokens", "scoring"],
        "embedding": [],
    }
    assert BASELINES["sofa"].settings(released).sofa_sigma == 0.5
    assert BASELINES["sofa"].settings(released, {"sigma": 0.25}).sofa_sigma == 0.25


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_with_words_of_their_own_refuse_a_question(name: str) -> None:
    baseline = BASELINES[name]
    baseline.check([question(0)])
    other = Instance("odd", question(0).images, question="Which is the odd one out?")
    if name in ("vanilla_generate", "sofa"):
        baseline.check([other])
    else:
        with pytest.raises(InputError, match=f"'odd': asks a question.*leave {name} out"):
            baseline.check([question(0), other])


def test_what_a_decision_costs() -> None:
    costs = {name: baseline.passes(8) for name, baseline in BASELINES.items()}
    assert costs == dict.fromkeys(BASELINES, 1) | {
        "self_consistency": 10,
        "pointwise": 8,
        "embedding": 0,
    }
    assert BASELINES["self_consistency"].passes(8, {"samples": 3}) == 3


# Reading texts


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("I see 1 and 2.</think>3", 2),
        ("</think>\n\n**3**\n", 2),
        ("</think> The answer is 3.", 2),
        ("</think>3\n\nBecause image 2 shows a cat.", 2),
        ("</think>Image 1 is red, image 4 is not: image 4", 3),
        ("<think>1</think> hm <think>2</think> 4", 3),
        ("</think> none of them", None),
        ("</think> 7", None),
        ("I think it is 3", None),
        ("</think>", None),
        ("", None),
    ],
)
def test_a_chain_of_thought_is_read_after_its_end(text: str, position: int | None) -> None:
    assert after_thought(text, FOUR) == position


@pytest.mark.parametrize(
    ("text", "settled"),
    [
        ("so 3</think>3\n", True),
        ("so 3</think>\n\n**3**\nBecause", True),
        ("so 3</think>3", False),  # "3" may become "31"
        ("so 3</think>\n", False),
        ("so 3\n", False),
        ("so</think>Answer:\n3", False),
        ("so</think>Answer:\n3\n", True),
        ("so</think>7\n", False),
        ("so</think>3\n<think>no", True),
        ("so</think>3\n</think>", False),
    ],
)
def test_an_answer_is_complete_once_its_line_is(text: str, settled: bool) -> None:
    assert thought_and_answered(text, FOUR) == settled


def test_what_follows_a_complete_answer_does_not_change_it() -> None:
    complete = "so</think>\n(2)\n"
    for more in ("", "1", "3\n", "The answer is 4.", "\n\n4\n<think>"):
        assert thought_and_answered(complete + more, FOUR)
        assert after_thought(complete + more, FOUR) == 1


@pytest.mark.parametrize(
    ("text", "position", "released"),
    [
        ("The answer is <3>", 2, 2),
        ("the answer  is: **3**, not 2", 2, 2),
        ("The answer is 1. Wait. The answer is 3", 2, 2),
        ("The answer is Image 3 of 4", 2, 2),
        ("The answer is 12", None, 0),
        ("It is 2, I am sure", None, 1),
        ("The answer is none, so 4", 3, 3),
        ("The answer is none", None, 0),
        ("12 or image2 or 9", None, 1),
        ("no idea", None, 0),
    ],
)
def test_a_sampled_answer_is_read_after_the_answer_is(
    text: str, position: int | None, released: int
) -> None:
    assert after_the_answer_is(text, FOUR) == position
    assert released_sample(text, FOUR) == released


@pytest.mark.parametrize(
    ("text", "position", "digits"),
    [
        ("3", 2, 2),
        ("2 or 3", 2, 2),
        ("image3", None, 2),
        ("3, not 12", 2, 2),
        ("03", None, 2),
        ("0", None, None),
        ("three", None, None),
        ("٣", None, None),
    ],
)
def test_a_short_answer_is_its_last_number(
    text: str, position: int | None, digits: int | None
) -> None:
    assert last_named(text, FOUR) == position
    assert last_digits(text, FOUR) == digits


def test_identifiers_that_are_no_numbers_are_read_too() -> None:
    letters = identifiers_for("letters", 4)
    assert last_digits("A or C, 1", letters) == 2
    assert after_the_answer_is("The answer is a dog, so B, not C", letters) == 1
    assert after_thought("</think>\nD\nA was close", letters) == 3


# Votes


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([1], (1, False)),
        ([1, 2, 2], (2, False)),
        ([3, 1, 1, 3], (3, True)),
        ([1, 3, 3, 1], (1, True)),
        ([None, 2, None], (2, False)),
        ([0, None, 2, 2, 0], (0, True)),
        ([None, None], (-1, False)),
        ([], (-1, False)),
    ],
)
def test_the_most_named_wins_and_the_first_seen_among_equals(
    votes: Sequence[int | None], expected: tuple[int, bool]
) -> None:
    assert majority(votes) == expected


def two_instances() -> tuple[list[list[Question]], list[Answer]]:
    """Two instances in two orders, three samples each; the target of both is image 2."""
    orders: list[Order] = [(0, 1, 2, 3), (2, 3, 0, 1)]
    texts = {
        ("a", 0): "3 3 1",  # right
        ("a", 1): "1 2 1",  # right
        ("b", 0): "1 3 -",  # a tie, for image 0
        ("b", 1): "- - -",
    }
    questions, answers = [], []
    for name in ("a", "b"):
        instance = Instance(name, ("w", "x", "y", "z"), answer=2, caption="c")
        questions.append([Question(instance, name, order) for order in orders])
        for t, order in enumerate(orders):
            for sample, text in enumerate(texts[name, t].split()):
                answers.append(said(name, order, sample, text))
    return questions, answers


def test_texts_become_decisions() -> None:
    questions, answers = two_instances()
    found = voted(answers[::-1], questions, last_named, samples=3)
    assert found.decisions.chosen.tolist() == [[2, 0], [0, -1]]
    assert found.decisions.tied.tolist() == [[False, True], [False, False]]
    assert found.decisions.images.tolist() == [[2, 0], [2, -1]]
    assert found.decisions.right.tolist() == [[True, False], [True, False]]
    assert found.parse_rate == pytest.approx(100 * 8 / 12)


def test_an_answer_that_names_no_position_is_wrong_in_every_figure() -> None:
    questions, answers = two_instances()
    decisions = voted(answers, questions, last_named, samples=3).decisions
    assert accuracy(decisions) == 50
    assert consistency(decisions) == 50
    np.testing.assert_allclose(selection(decisions), [50, 0, 25, 0])
    np.testing.assert_allclose(recall(decisions)[[0, 2]], [50, 50])
    np.testing.assert_allclose(confusion(decisions)[0], [50, 0, 0, 0])
    with pytest.warns(EvidenceWarning, match="no target ever stood"):
        assert figures(decisions)["tie_rate"] == 25


def test_an_unnamed_image_is_no_steady_choice() -> None:
    """Neither the last image, which -1 would index, nor the same image in every order."""
    orders = np.array([[(0, 1)], [(1, 0)]])
    decisions = Decisions(np.array([[-1], [-1]]), orders, np.array([1]), np.zeros((2, 1), bool))
    assert accuracy(decisions) == 0
    assert consistency(decisions) == 0


def test_a_missing_sample_is_named() -> None:
    questions, answers = two_instances()
    with pytest.raises(InputError, match=r"instance 'b'.*\[2, 3, 0, 1\] \(1 of 3 samples"):
        voted(answers[:-1], questions, last_named, samples=3)


def test_an_instance_without_an_answer_cannot_be_counted() -> None:
    questions, answers = two_instances()
    unlabelled = replace(questions[0][0].instance, answer=None)
    row = [replace(q, instance=unlabelled) for q in questions[0]]
    with pytest.raises(InputError, match="'a' has no answer"):
        voted(answers, [row, questions[1]], last_named, samples=3)


# Answers on the disk


def test_answers_come_back_as_they_were(tmp_path: Path) -> None:
    wanted = [said("i", (1, 0), s, f'{s} "quoted"\n\u2028né\x00') for s in range(3)]
    store = Answers(tmp_path / "run" / "answers")
    assert store.read() == []
    store.append(wanted, WRITING)
    store.append([], WRITING)
    assert store.read() == wanted
    assert store.keys() == {answer.key for answer in wanted}
    assert store.read(instances=["other"]) == store.read("another writing") == []
    assert store.writings() == {WRITING.hash: WRITING}


def test_answers_lie_there_for_people_to_read(tmp_path: Path) -> None:
    Answers(tmp_path).append([said(text="né\n2")], WRITING)
    (file,) = tmp_path.iterdir()
    header, line = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert (header["baseline"], header["settings"]["model"]) == ("vanilla_generate", "m")
    assert line["text"] == "né\n2"


def test_of_two_answers_to_one_question_the_first_counts(tmp_path: Path) -> None:
    store = Answers(tmp_path)
    store.append([said(text="first"), said(sample=1, text="other")], WRITING)
    store.append([said(text="second")], WRITING)
    expected = [said(text="first"), said(sample=1, text="other")]
    assert store.read() == expected
    store.compact()
    assert store.read() == expected
    assert len(list(tmp_path.glob("*.jsonl"))) == 1


def test_merging_keeps_writings_apart_and_loses_nothing(tmp_path: Path) -> None:
    store, other = Answers(tmp_path), replace(WRITING, max_new_tokens=9)
    for k in range(3):
        store.append([said(f"i{k}")], WRITING)
        store.append([replace(said(f"i{k}"), writing=other.hash)], other)
    (tmp_path / f".dead.{'0' * 16}.tmp").write_bytes(b"half")
    before = sorted(store.read(), key=lambda answer: answer.key)
    store.compact()
    assert sorted(store.read(), key=lambda answer: answer.key) == before
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    assert not list(tmp_path.glob(".*.tmp"))
    assert [a.instance for a in store.read(other.hash)] == ["i0", "i1", "i2"]


def test_an_answer_of_another_writing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is of the writing"):
        Answers(tmp_path).append([said()], replace(WRITING, seed=1))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]\n",
        b"{\n",
        WRITING.to_header().replace(b'"format": 1', b'"format": 2'),
        WRITING.to_header() + b'{"instance": "i"}\n',
        WRITING.to_header() + b'{"text": 3}\n',
        WRITING.to_header() + said().to_line()[:-9],
        WRITING.to_header() + b"\xff\n",
    ],
)
def test_a_file_that_is_not_whole_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "1.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=r"1\.jsonl: is no whole file of answers"):
        Answers(tmp_path).read()


def test_a_folder_that_is_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="no folder can be made there"):
        Answers(tmp_path / "file").append([said()], WRITING)
    with pytest.raises(InputError, match="cannot be read as a folder"):
        Answers(tmp_path / "file").read()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").mkdir()
    with pytest.raises(InputError, match=r"1\.jsonl: is no whole file of answers \(Is a dir"):
        Answers(tmp_path).read()


def test_merging_where_there_is_nothing_does_nothing(tmp_path: Path) -> None:
    Answers(tmp_path / "none").compact()
    assert not (tmp_path / "none").exists()


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=r"1\.jsonl: is listed but cannot be found"):
        Answers(tmp_path).read()


def test_everything_that_changes_texts_changes_the_writing() -> None:
    changes: list[dict[str, Any]] = [
        {"baseline": "other"},
        {"settings": EvidenceSettings(model="n")},
        {"max_new_tokens": 9},
        {"temperature": 0.7},
        {"top_k": 40},
        {"seed": 1},
    ]
    assert len({WRITING.hash, *(replace(WRITING, **c).hash for c in changes)}) == 7
    greedy = BASELINES["vanilla_generate"]
    settings = EvidenceSettings(model="m")
    one, other = (greedy.writing(settings, greedy.parameters(), seed) for seed in (0, 1))
    assert one == other  # nothing is drawn
    sampled = BASELINES["self_consistency"]
    one, other = (sampled.writing(settings, sampled.parameters(), seed) for seed in (0, 1))
    assert one.hash != other.hash


# Drawing


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0, -torch.inf])
    for sampling, kept in ((Sampling(0.7), 5), (Sampling(1.5, 2), 2), (Sampling(0.7, 99), 5)):
        numbers = torch.tensor([uniform(f"draw {k}") for k in range(4000)], dtype=torch.float64)
        tokens = drawn(logits.expand(4000, 5), numbers, sampling)
        expected = (logits / sampling.temperature).double()
        expected[logits.argsort(descending=True)[kept:]] = -torch.inf
        found = torch.bincount(tokens, minlength=5) / 4000
        torch.testing.assert_close(found.double(), expected.softmax(0), atol=0.02, rtol=0)
        assert found[4] == 0


def test_the_ends_of_the_line_of_probabilities_are_tokens_too() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]])
    for number, token in ((0.0, 1), (0.4999, 1), (0.5, 2), (1 - 2**-53, 2)):
        numbers = torch.tensor([number], dtype=torch.float64)
        assert drawn(logits, numbers, Sampling(1.0)).tolist() == [token]


def test_numbers_are_uniform_and_their_own() -> None:
    numbers = [uniform(f"{k}/{j}") for k in range(50) for j in range(40)]
    assert len(set(numbers)) == 2000
    assert max(Counter(int(10 * number) for number in numbers).values()) < 260
    assert uniform("0/0") == numbers[0]


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 1.0, "top_k": 0}])
def test_sampling_that_means_nothing_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be"):
        Sampling(**options)


# Writing


def window(count: int = 3) -> Window:
    """Prompts of different lengths, so that batches of them are padded."""
    return tuple(
        asked_in(question(k, answer=0), order)
        for k in range(count)
        for order in cyclic_orders(4)[:2]
    )


def sampled_writing(model: Model, **changes: Any) -> Writing:
    settings = model.settings(EvidenceSettings(prompt="self_consistency"))
    writing = Writing("self_consistency", settings, 6, temperature=0.7, top_k=40)
    return replace(writing, **changes)


def texts(model: Model, writing: Writing, *windows: Window, **options: Any) -> dict[Any, str]:
    found = [a for w in windows for batch in answered(model, writing, w, **options) for a in batch]
    return {answer.key: answer.text for answer in found}


@pytest.mark.parametrize("model_type", ["llava", "qwen2_5_vl", "gemma3"])
def test_sampled_answers_are_the_same_alone_and_in_company(model_type: str) -> None:
    model = asked(model_type)
    writing = sampled_writing(model)
    together = texts(model, writing, window(), samples=3)
    alone = texts(model, writing, *((q,) for q in window()[::-1]), samples=3)
    fewer = texts(model, writing, window(), samples=2)
    assert together == alone
    assert fewer == {key: text for key, text in together.items() if key[-1] < 2}
    assert len(together) == 18
    assert len(set(together.values())) > 12


@pytest.mark.parametrize("model_type", ["llava", "qwen2_5_vl", "gemma3"])
def test_greedy_answers_are_the_same_alone_and_in_company(model_type: str) -> None:
    model = asked(model_type)
    writing = replace(WRITING, settings=model.settings())
    together = texts(model, writing, window())
    assert together == texts(model, writing, *((q,) for q in window()))
    expected = model.generate(
        [q.instance for q in window()], [q.order for q in window()], max_new_tokens=8
    )
    assert list(together.values()) == [answer.text for answer in expected]


def test_another_seed_draws_other_answers() -> None:
    model = asked("llava")
    one, other = (
        set(texts(model, sampled_writing(model, seed=seed), window(1)).values()) for seed in (0, 1)
    )
    assert not one & other


def test_a_draw_is_what_the_model_says_is_likely() -> None:
    """The first token of many samples, against the model's own probabilities."""
    model = fresh("llava", batch_tokens=40_000)
    (one, *_) = window(1)
    writing = sampled_writing(model, max_new_tokens=1, temperature=1.0, top_k=3)
    drawn_texts = Counter(texts(model, writing, (one,), samples=300).values())
    prompts = model._prompts([one.instance], [one.order], writing.settings, None)
    inputs, _ = model.encoder.collate(batch := list(prompts))
    with torch.inference_mode(), model.backbone._with_images(model._features(batch)):
        logits = model.backbone.hf(**inputs).logits[0, -1]
    top = logits.topk(3)
    likely: dict[str, float] = {}
    spelled = model.encoder.decode(top.indices[:, None])
    for text, probability in zip(spelled, top.values.softmax(0).tolist(), strict=True):
        likely[text] = likely.get(text, 0.0) + probability  # two tokens may spell the same
    assert set(drawn_texts) <= set(likely)
    for text, probability in likely.items():
        assert drawn_texts[text] / 300 == pytest.approx(probability, abs=0.09)


def test_an_answer_ends_once_it_is_complete() -> None:
    """A model whose likeliest next token is always a line break never says its end of turn."""
    model = fresh("llava")
    (line_break,) = model.encoder.tokenizer("\n", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        model.backbone.hf.lm_head.bias = torch.nn.Parameter(
            torch.zeros(model.backbone.hf.lm_head.out_features)
        )
        model.backbone.hf.lm_head.bias[line_break] = 1e4
    writing = replace(WRITING, settings=model.settings())
    seen: list[str] = []

    def third_line(text: str, identifiers: Sequence[str]) -> bool:
        assert identifiers == FOUR
        seen.append(text)
        return text.count("\n") >= 3

    assert set(texts(model, writing, window()).values()) == {"\n" * 8}
    assert set(texts(model, writing, window(), done=third_line).values()) == {"\n" * 3}
    assert set(seen) == {"\n", "\n\n", "\n\n\n"}


def test_one_complete_answer_does_not_end_the_others() -> None:
    model = asked("llava")
    writing = sampled_writing(model, temperature=5.0, top_k=None, max_new_tokens=24)
    free = texts(model, writing, window(), samples=4)

    def two_lines(text: str, identifiers: Sequence[str]) -> bool:
        return text.count("\n") >= 1

    held = texts(model, writing, window(), samples=4, done=two_lines)
    assert all(free[key].startswith(text) for key, text in held.items())
    shortened = {key for key in free if held[key] != free[key]}
    assert 0 < len(shortened) < len(free)
    assert all("\n" in held[key] for key in shortened)


def test_windows_are_written_whole_and_an_interruption_changes_nothing(tmp_path: Path) -> None:
    model = asked("llava")
    writing = sampled_writing(model)
    windows = [window()[:2], window()[2:4], window()[4:]]
    whole, broken = Answers(tmp_path / "whole"), Answers(tmp_path / "broken")
    steps: list[int] = []
    assert list(write(model, writing, windows, whole, samples=2, step=steps.append)) == [4, 4, 4]
    assert sum(steps) == 12

    def killed(_: int) -> None:
        steps.append(0)
        if len(steps) > before + 1:
            raise KeyboardInterrupt

    before = len(steps)
    with pytest.raises(KeyboardInterrupt):
        for _ in write(model, writing, windows, broken, samples=2, step=killed):
            pass
    saved = broken.keys(writing.hash)
    assert 0 < len(saved) < 12
    todo = unwritten(windows, writing.hash, 2, saved)
    assert [w for w in windows if w not in todo] == windows[: len(saved) // 4]
    assert sum(write(model, writing, todo, broken, samples=2)) == 12 - len(saved)
    assert broken.read() == whole.read()
    assert unwritten(windows, writing.hash, 2, broken.keys()) == []
    assert unwritten(windows, writing.hash, 3, broken.keys()) == windows


def test_what_cannot_be_asked_is_skipped_and_the_others_keep_their_answers(tmp_path: Path) -> None:
    model = asked("llava")
    writing = sampled_writing(model)
    gone = Question(Instance("gone", ("no such.png", noise(1)), caption="a"), "gone", (0, 1))
    expected = texts(model, writing, window(2), samples=2)
    skipped: list[str] = []
    first, *rest = window(2)
    found = texts(
        model,
        writing,
        (first, gone, *rest),
        samples=2,
        skip=lambda instance, error: skipped.append(instance.id),
    )
    assert found == expected
    assert skipped == ["gone", "gone"]


def test_what_generation_cannot_do_is_refused() -> None:
    model = asked("llava")
    with pytest.raises(InputError, match="sofa_sigma"):
        model.generate([question()], [(0, 1, 2, 3)], EvidenceSettings(sofa_sigma=0.5))
    with pytest.raises(InputError, match="1 sampled answers need as many seeds"):
        list(model.generate_iter([question()], [(0, 1, 2, 3)], sampling=Sampling(1.0)))


def test_a_whole_baseline_from_model_to_figures(tmp_path: Path) -> None:
    model, baseline = asked("qwen2_5_vl"), BASELINES["self_consistency"]
    parameters = baseline.parameters(given={"samples": 3, "max_new_tokens": 4})
    settings = model.settings(baseline.settings(EvidenceSettings(), parameters))
    writing = baseline.writing(settings, parameters, seed=7)
    store = Answers(tmp_path)
    assert list(write(model, writing, [window()], store, samples=3)) == [18]
    asked_ = [list(window()[k : k + 2]) for k in (0, 2, 4)]
    found = voted(store.read(writing.hash), asked_, baseline.read["released"], "numbers", 3)
    assert isinstance(found, Voted)
    assert found.parse_rate == 100  # the released rule always names one
    assert found.decisions.chosen.shape == (2, 3)


# Each image alone


def yes_or_no(model: Model, instance: Instance, index: int) -> float:
    """log P(yes) - log P(no) by the model's own processor and a plain forward."""
    caption = PROMPT.format(caption=instance.caption)
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": caption}]}
    text = model.encoder.processor.apply_chat_template(
        [turn], add_generation_prompt=True, tokenize=False
    )
    made = model.encoder.whole(text, [instance.images[index]], {})  # type: ignore[list-item]
    prompt = {k: v for k, v in made.items() if torch.is_tensor(v) and model.backbone.takes(k)}

    def log_prob(word: str) -> torch.Tensor:
        """Of all tokens of the word and the end of turn, not restricted to anything."""
        ids = model.encoder.tokenizer(word, add_special_tokens=False)["input_ids"]
        total = torch.zeros(())
        for depth, token in enumerate(ids):
            longer = dict(prompt)
            said = torch.tensor([ids[:depth]], dtype=torch.long)
            for name in ("input_ids", "attention_mask", "mm_token_type_ids"):
                if name in longer:
                    fill = {"input_ids": said, "attention_mask": torch.ones_like(said)}
                    more = fill.get(name, torch.zeros_like(said))
                    longer[name] = torch.cat([longer[name], more], 1)
            with torch.inference_mode():
                logits = model.backbone.hf(**longer).logits[0, -1]
            choices = sorted(
                {
                    other[depth]
                    for other in spelled.values()
                    if other[:depth] == ids[:depth] and len(other) > depth
                }
            )
            total = total + logits[token] - logits[choices].logsumexp(0)
        return total

    words = ("Yes", "yes", "No", "no")
    spelled = {
        word: model.encoder.tokenizer(word, add_special_tokens=False)["input_ids"] for word in words
    }
    yes, yes_small, no, no_small = (log_prob(word) for word in words)
    return float(torch.logaddexp(yes, yes_small) - torch.logaddexp(no, no_small))


def pointwise_settings() -> EvidenceSettings:
    return BASELINES["pointwise"].settings(EvidenceSettings())


@pytest.mark.parametrize("model_type", ["llava", "qwen2_5_vl"])
def test_pointwise_is_the_plain_answer_about_each_image(model_type: str) -> None:
    model, instance = asked(model_type), question(1)
    ((found,),) = ImagesAlone(model).evidence_iter([instance], [(0, 1, 2, 3)], pointwise_settings())
    scores = np.array([yes_or_no(model, instance, index) for index in range(4)])
    expected = scores - np.logaddexp.reduce(scores)
    np.testing.assert_allclose(found.log_probs, expected, rtol=0, atol=1e-5)
    assert np.ptp(expected) > 1e-3
    assert found.layers == ()
    assert (found.image_tokens > 0).all()


@pytest.mark.parametrize("model_type", ["llava", "qwen2_5_vl", "gemma3", "internvl"])
def test_pointwise_has_one_answer_whatever_the_order_and_the_company(model_type: str) -> None:
    model = asked(model_type)
    source, settings = ImagesAlone(model), pointwise_settings()
    instances, order = [question(k, n) for k, n in ((0, 4), (1, 3), (2, 5))], (2, 0, 3, 1)
    orders = [identity(len(i.images)) for i in instances]
    together = [e for batch in source.evidence_iter(instances, orders, settings) for e in batch]
    alone = [
        next(source.evidence_iter([i], [o], settings))[0]
        for i, o in zip(instances, orders, strict=True)
    ]
    for mine, theirs in zip(together, alone, strict=True):
        assert mine.key == theirs.key
        np.testing.assert_allclose(mine.log_probs, theirs.log_probs, rtol=0, atol=1e-5)
        assert np.exp(mine.log_probs).sum() == pytest.approx(1)
    ((turned,),) = source.evidence_iter(instances[:1], [order], settings)
    np.testing.assert_allclose(
        turned.log_probs, together[0].log_probs[list(order)], rtol=0, atol=1e-5
    )
    assert turned.instance == together[0].instance


def test_pointwise_shares_the_features_of_the_other_methods() -> None:
    model = fresh("llava")
    model.evidence([question(1)], [(0, 1, 2, 3)])
    encoded = model.vision.encoded
    list(ImagesAlone(model).evidence_iter([question(1)], [(0, 1, 2, 3)], pointwise_settings()))
    assert model.vision.encoded == encoded


def test_pointwise_goes_through_the_store_to_figures(tmp_path: Path) -> None:
    model, baseline = asked("llava"), BASELINES["pointwise"]
    assert baseline.source is not None
    source = baseline.source(model)
    settings = source.settings(baseline.settings(EvidenceSettings.released()))
    questions = [asked_in(question(k, answer=k), identity(4)) for k in range(3)]
    store = Store(tmp_path)
    assert sum(collect(source, questions, store, settings)) == 3
    evidence = EvidenceArray.of(store.read(settings.hash)).checked()
    decisions = decide(METHODS["vanilla"](evidence), evidence.orders, evidence.targets)
    assert 0 <= figures(decisions, by_position=False)["accuracy"] <= 100
    best = [int(np.argmax(piece.log_probs)) for piece in store.read()]
    assert decisions.images[0].tolist() == best


def test_pointwise_in_windows_ends_each_with_an_empty_list() -> None:
    source = ImagesAlone(asked("llava"))
    instances = [question(k) for k in range(3)]
    found = list(
        source.evidence_iter(instances, [identity(4)] * 3, pointwise_settings(), windows=[2, 1])
    )
    flat = [name for batch in found for name in [e.instance_id for e in batch] or ["end"]]
    assert flat == ["q0", "q1", "end", "q2", "end"]


def test_what_pointwise_cannot_ask_is_refused_or_skipped() -> None:
    source, settings = ImagesAlone(asked("llava")), pointwise_settings()
    odd = Instance("odd", question(0).images, question="Which is odd?")
    gone = Instance("gone", ("no such.png", noise(1)), caption="a")
    orders = [identity(4), identity(2), identity(4)]
    with pytest.raises(InputError, match="leave pointwise out"):
        list(source.evidence_iter([odd], [identity(4)], settings))
    with pytest.raises(InputError, match="no heads or maps"):
        list(source.evidence_iter([], [], settings, maps=True))
    skipped: list[str] = []
    batches = source.evidence_iter(
        [odd, gone, question(1)], orders, settings, skip=lambda i, error: skipped.append(i.id)
    )
    assert [e.instance_id for batch in batches for e in batch] == ["q1"]
    assert skipped == ["odd", "gone"]


def test_pointwise_numbers_that_are_not_finite_name_the_instance() -> None:
    model = fresh("llava")
    with torch.no_grad():
        model.backbone.hf.lm_head.weight.fill_(torch.nan)
    source, settings = ImagesAlone(model), pointwise_settings()
    with pytest.raises(InputError, match="'q0': the model's numbers are not finite"):
        list(source.evidence_iter([question()], [identity(4)], settings))
    skipped: list[str] = []
    batches = source.evidence_iter(
        [question()], [identity(4)], settings, skip=lambda i, error: skipped.append(i.id)
    )
    assert list(batches) == [[]]
    assert skipped == ["q0"]


# Two towers


@cache
def towers(kind: str = "clip") -> Towers:
    """A tiny random two-tower model."""
    tokenizer = make_tokenizer()
    shared = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    shared |= {"num_attention_heads": 2}
    vision = shared | {"image_size": 32, "patch_size": 8}
    text = shared | {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 48,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "projection_size": 16,
    }
    tokenizer.padding_side = "right"
    size = {"height": 32, "width": 32}
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        hf: Any
        if kind == "clip":
            config = tf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
            hf, images = tf.CLIPModel(config), tf.CLIPImageProcessorPil(size=size, crop_size=size)
            processor: Any = tf.CLIPProcessor(images, tokenizer)
        else:
            hf = tf.SiglipModel(tf.SiglipConfig(text_config=text, vision_config=vision))
            processor = tf.SiglipProcessor(tf.SiglipImageProcessorPil(size=size), tokenizer)
        for parameter in hf.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, STD)
    return Towers(hf, processor, name=kind)


def nearest(instance: Instance, order: Order, kind: str = "clip") -> Any:
    ((found,),) = Nearest(towers(kind)).evidence_iter([instance], [order])
    return found


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_the_embedding_answer_is_the_two_tower_model_s_own(kind: str) -> None:
    instance, model = question(2), towers(kind)
    made = model.processor(
        text=[instance.caption],
        images=list(instance.images),
        padding="max_length",
        max_length=48,
        truncation=True,
        return_tensors="pt",
    )
    with torch.inference_mode():
        expected = model.hf(**made).logits_per_text[0].double().log_softmax(0).numpy()
    found = nearest(instance, (0, 1, 2, 3), kind)
    np.testing.assert_allclose(found.log_probs, expected, rtol=0, atol=1e-5)
    assert np.ptp(expected) > 1e-3
    turned = nearest(instance, (3, 1, 0, 2), kind)
    np.testing.assert_allclose(turned.log_probs, found.log_probs[[3, 1, 0, 2]], atol=1e-12)


def test_vectors_do_not_depend_on_what_else_is_embedded() -> None:
    captions = ["a", "two dogs on a roof by the sea", "snow"]
    together = towers().of_captions(captions)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(3))
    for row, caption in zip(together, captions, strict=True):
        torch.testing.assert_close(row, towers().of_captions([caption])[0], atol=1e-6, rtol=0)


def test_each_image_goes_through_the_tower_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    own = towers().of_images

    def of_images(pictures: Sequence[Any]) -> torch.Tensor:
        counted.append(len(pictures))
        return own(pictures)

    monkeypatch.setattr(towers(), "of_images", of_images)
    one, other = question(1), replace(question(1), id="other", caption="snow")
    found = list(Nearest(towers()).evidence_iter([one, other], [identity(4)] * 2))
    assert counted == [len({content_hash(image) for image in one.images})]
    assert [e.instance_id for batch in found for e in batch] == ["q1", "other"]


def test_a_caption_beyond_the_tower_is_cut_with_a_warning() -> None:
    with pytest.warns(EvidenceWarning, match="reads 48 tokens of a caption, and 1 of 2"):
        towers().of_captions(["a", "a man next to a red motorcycle " * 9])


def test_embedding_goes_through_the_store_under_its_own_settings(tmp_path: Path) -> None:
    baseline = BASELINES["embedding"]
    assert baseline.source is not None
    assert baseline.of_towers
    source = baseline.source(towers())
    settings = source.settings(baseline.settings(EvidenceSettings.released(model="llava")))
    assert (settings.model, settings.prompt, settings.image_size) == (
        "clip",
        "{caption}",
        (336, 336),
    )
    questions = [asked_in(question(k, answer=k), identity(4)) for k in range(3)]
    store = Store(tmp_path)
    assert sum(collect(source, questions, store, settings)) == 3
    assert store.keys(settings.hash) == {(q.content, q.order, settings.hash) for q in questions}


def test_what_has_no_caption_is_refused_or_skipped_by_embedding() -> None:
    source = Nearest(towers())
    odd = Instance("odd", question(0).images, question="Which is odd?")
    gone = Instance("gone", ("no such.png", noise(1)), caption="a")
    with pytest.raises(InputError, match="leave embedding out"):
        list(source.evidence_iter([odd], [identity(4)]))
    with pytest.raises(InputError, match="no heads or maps"):
        list(source.evidence_iter([], [], heads=True))
    skipped: list[str] = []
    found = list(
        source.evidence_iter(
            [odd, gone, question(1)],
            [identity(4), identity(2), identity(4)],
            windows=[2, 1],
            skip=lambda i, error: skipped.append(i.id),
        )
    )
    assert [[e.instance_id for e in batch] for batch in found] == [[], [], ["q1"], []]
    assert skipped == ["odd", "gone"]


def test_a_two_tower_model_loads_from_its_folder(tmp_path: Path) -> None:
    towers().hf.save_pretrained(tmp_path / "tiny-clip")
    towers().processor.save_pretrained(tmp_path / "tiny-clip")
    loaded = Towers.load(str(tmp_path / "tiny-clip"), device="cpu")
    assert loaded.name == "tiny-clip"
    torch.testing.assert_close(loaded.of_captions(["snow"]), towers().of_captions(["snow"]))
    picture = [noise(3)]
    torch.testing.assert_close(loaded.of_images(picture), towers().of_images(picture))


def test_a_model_without_two_towers_is_refused(tmp_path: Path) -> None:
    model = asked("llava")
    with pytest.raises(InputError, match="llava models have no two towers"):
        Towers(model.backbone.hf, model.encoder.processor, name="llava")
    with pytest.raises(InputError):
        Towers.load(str(tmp_path / "nowhere"))
