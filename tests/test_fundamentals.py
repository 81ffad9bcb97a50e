"""Instances, orders, identifiers, prompts, settings and evidence: the words all else is said in."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookright.errors import InputError, told
from lookright.evidence import Evidence, EvidenceArray, instance_hash
from lookright.identifiers import IDENTIFIER_SETS, identifiers_for, noun_for, parse_answer
from lookright.instance import (
    Instance,
    check_order,
    cyclic_orders,
    identity,
    inverse,
    orders_for,
    random_orders,
    shift_of,
)
from lookright.prompts import TEMPLATES, check_template, conversation
from lookright.settings import EvidenceSettings

PUBLISHED = Path(__file__).parents[2] / "shared" / "paper" / "published_results.json"

orders = st.integers(2, 12).flatmap(lambda n: st.permutations(range(n)))


def instance(n: int = 3, **changes: Any) -> Instance:
    values: dict[str, Any] = {
        "id": "q",
        "images": tuple(f"{k}.png" for k in range(n)),
        "caption": "a red wall",
    }
    return Instance(**(values | changes))


# Messages


def test_a_message_is_told_as_it_is() -> None:
    text = "caf\u00e9.png: there is no such file; check the path"
    assert told(InputError(text)) == text


def test_nothing_in_a_message_moves_the_cursor_or_cannot_be_printed() -> None:
    assert told("a\nb \x1b[31m \u202e \udcff") == r"a\nb \x1b[31m \u202e \udcff"


def test_of_an_endless_message_the_start_and_the_end_are_told() -> None:
    text = told(f"{'x/' * 3000}: cannot be made a folder; choose another")
    assert len(text) < 1000
    assert text.startswith("x/x/x/")
    assert text.endswith("x/: cannot be made a folder; choose another")


# Instances


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": ""}, "an instance's id must be a non-empty string, not ''"),
        ({"id": 5}, "an instance's id must be a non-empty string, not 5"),
        ({"id": "\ud800"}, "field 'id': holds half a character"),
        ({"images": ()}, "field 'images': holds 0; choosing needs at least two"),
        ({"images": ("a.png",)}, "field 'images': holds 1"),
        ({"images": "ab"}, "field 'images': must be a list of images"),
        ({"images": b"ab"}, "field 'images': must be a list of images"),
        ({"images": None}, "field 'images': must be a list of images"),
        ({"images": np.zeros((2, 4, 4))}, "field 'images': must be a list of images"),
        ({"caption": None}, "field 'caption': give exactly one of 'caption' and 'question'"),
        ({"question": "Which?"}, "field 'caption': give exactly one of"),
        ({"caption": " \n"}, "field 'caption': is empty"),
        ({"caption": None, "question": ""}, "field 'question': is empty"),
        ({"caption": 5}, "field 'caption': must be text, not int"),
        ({"caption": "half \udfff"}, "field 'caption': holds half a character"),
        ({"category": ["x"]}, "field 'category': must be text, not list"),
        ({"answer": 3}, "field 'answer': is 3, but the 3 images have the indices 0 to 2"),
        ({"answer": -1}, "field 'answer': is -1, but"),
        ({"answer": 1.0}, "field 'answer': must be the target's index (an integer), not 1.0"),
        ({"answer": True}, "field 'answer': must be the target's index"),
        ({"answer": "1"}, "field 'answer': must be the target's index"),
    ],
)
def test_an_instance_that_asks_nothing_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        instance(**changes)


def test_an_instance_keeps_its_images_as_a_tuple_and_its_answer_as_an_int() -> None:
    made = instance(images=["a.png", "b.png"], answer=np.int64(1))
    assert made.images == ("a.png", "b.png")
    assert made.answer == 1
    assert type(made.answer) is int
    assert hash(made) == hash(instance(images=("a.png", "b.png"), answer=1))


# Orders


@given(orders)
def test_the_inverse_undoes_an_order(order: list[int]) -> None:
    n = len(order)
    assert [order[inverse(order)[i]] for i in range(n)] == list(range(n))
    assert inverse(inverse(order)) == tuple(order)


@given(st.integers(2, 30))
def test_cyclic_orders_put_every_image_once_in_every_position(n: int) -> None:
    shifts = np.array(cyclic_orders(n))
    assert (np.sort(shifts, axis=0) == np.arange(n)[:, None]).all()
    assert (np.sort(shifts, axis=1) == np.arange(n)[None, :]).all()


@given(st.integers(2, 12), st.data())
def test_a_cyclic_order_shifts_left_and_moves_the_target_down(n: int, data: Any) -> None:
    s, target = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    order = cyclic_orders(n)[s]
    assert order[0] == s
    assert inverse(order)[target] == (target - s) % n
    assert shift_of(order) == shift_of(np.array(order)) == s


def test_an_order_that_is_no_shift_has_none() -> None:
    assert shift_of((0, 2, 1)) is None
    assert shift_of((2, 1, 0)) is None
    assert shift_of((3, 0, 1)) is None


@given(st.integers(2, 7), st.integers(0, 40), st.integers(0, 5), st.text(max_size=5))
def test_random_orders_are_different_orders_and_as_many_as_there_are(
    n: int, count: int, seed: int, key: str
) -> None:
    drawn = random_orders(n, count, seed, key)
    assert len(drawn) == len(set(drawn)) == min(count, math.factorial(n))
    assert all(check_order(order, n) == order for order in drawn)
    assert drawn[: count // 2] == random_orders(n, count // 2, seed, key)


def test_random_orders_are_the_same_on_every_platform() -> None:
    assert random_orders(4, 5, 0) == [
        (2, 3, 0, 1),
        (1, 3, 0, 2),
        (1, 0, 2, 3),
        (1, 0, 3, 2),
        (3, 1, 2, 0),
    ]
    assert random_orders(8, 2, 1, "q7") == [(5, 2, 7, 6, 0, 3, 4, 1), (6, 4, 2, 0, 1, 3, 7, 5)]
    assert random_orders(12, 1, 0, "x") == [(1, 3, 0, 9, 8, 2, 6, 11, 7, 5, 4, 10)]
    assert random_orders(40, 1, 0)[0][:8] == (13, 30, 21, 6, 36, 18, 29, 8)


def test_random_orders_favour_no_position() -> None:
    for n, count in ((3, 6), (60, 1)):
        drawn = np.array(
            [order for k in range(400) for order in random_orders(n, count, 0, str(k))]
        )
        first = np.bincount(drawn[:, 0], minlength=n) / len(drawn)
        last = np.bincount(drawn[:, -1], minlength=n) / len(drawn)
        assert abs(first - 1 / n).max() < 5 * math.sqrt(1 / n / len(drawn))
        assert abs(last - 1 / n).max() < 5 * math.sqrt(1 / n / len(drawn))


def test_no_orders_are_drawn_where_none_are_wanted() -> None:
    assert random_orders(4, 0, 0) == []
    assert random_orders(4, -1, 0) == []


def test_orders_are_made_by_their_name() -> None:
    three = [instance(id="a"), instance(id="b")]
    assert orders_for(three, "identity") == [[(0, 1, 2)]] * 2
    assert orders_for(three, "cyclic") == [[(0, 1, 2), (1, 2, 0), (2, 0, 1)]] * 2
    assert orders_for(three, "all")[0] == [
        (0, 1, 2),
        (0, 2, 1),
        (1, 0, 2),
        (1, 2, 0),
        (2, 0, 1),
        (2, 1, 0),
    ]
    own = orders_for(three, "random:2", seed=3)
    assert own == [random_orders(3, 2, 3, "a"), random_orders(3, 2, 3, "b")]
    assert own[0] != own[1], "each instance gets its own"


@pytest.mark.parametrize(("n", "count"), [(3, 4), (3, 6), (3, 9), (8, 5), (2, 5)])
def test_shared_orders_are_the_identity_and_the_same_shuffles_for_all(n: int, count: int) -> None:
    first, second = orders_for([instance(n, id="a"), instance(n, id="b")], f"shared:{count}")
    assert first == second
    assert first[0] == identity(n)
    assert len(set(first)) == len(first) == min(count, math.factorial(n))


def test_orders_follow_each_instance_s_own_number_of_images() -> None:
    made = orders_for([instance(2), instance(5)], "cyclic")
    assert [len(orders) for orders in made] == [2, 5]


@pytest.mark.parametrize(
    "spec", ["random", "random:", "random:0", "random:-1", "random:x", "random:٣", "shared:1.5"]
)
def test_random_orders_want_a_number(spec: str) -> None:
    with pytest.raises(InputError, match="say how many"):
        orders_for([instance()], spec)


@pytest.mark.parametrize("spec", ["", "cycle", "cyclic:3", "all:2", "Random:3"])
def test_unknown_orders_are_refused_with_those_there_are(spec: str) -> None:
    with pytest.raises(InputError, match="use cyclic, identity, all, random:T or shared:T"):
        orders_for([instance()], spec)


def test_all_orders_of_many_images_and_absurd_counts_are_refused() -> None:
    with pytest.raises(InputError, match="9 images have 362,880 orders; use random:T"):
        orders_for([instance(9)], "all")
    with pytest.raises(InputError, match="say how many"):
        orders_for([instance()], "random:" + "9" * 5000)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((0, 0, 1), "[0, 0, 1] is not an order of 3 images (each of 0..2 once)"),
        ((0, 1), "is not an order of 3 images"),
        ((0, 1, 3), "is not an order of 3 images"),
        ((0.0, 1.5, 2.2), "must be a list of integers"),
        (("0", "1", "2"), "must be a list of integers"),
        ("012", "must be a list of integers"),
        (None, "must be a list of integers"),
    ],
)
def test_what_is_no_order_is_refused(order: Any, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        check_order(order, 3)


def test_an_order_may_be_an_array() -> None:
    checked = check_order(np.array([2, 0, 1], dtype=np.int8), 3)
    assert checked == (2, 0, 1)
    assert all(type(image) is int for image in checked)


# Identifiers


def test_the_named_sets_of_identifiers() -> None:
    assert identifiers_for("numbers", 12)[:2] + identifiers_for("numbers", 12)[-2:] == (
        "1",
        "2",
        "11",
        "12",
    )
    assert identifiers_for("letters", 26)[::25] == ("A", "Z")
    assert identifiers_for("lowercase", 26)[::25] == ("a", "z")
    assert identifiers_for("roman", 14) == tuple(
        "I II III IV V VI VII VIII IX X XI XII XIII XIV".split()
    )
    assert identifiers_for("roman", 26)[18:] == tuple("XIX XX XXI XXII XXIII XXIV XXV XXVI".split())
    assert identifiers_for("words", 4) == ("first", "second", "third", "fourth")
    assert identifiers_for("words", 26)[-1] == "twenty-sixth"
    assert identifiers_for(["x", "y", "z"], 2) == ("x", "y")


@pytest.mark.parametrize("name", IDENTIFIER_SETS)
def test_every_named_set_has_26_different_names(name: str) -> None:
    names = identifiers_for(name, 26)
    assert len({n.lower() for n in names}) == 26
    if name == "numbers":
        assert identifiers_for(name, 30)[-1] == "30"
        return
    with pytest.raises(InputError, match="27 images, but there are names for 26"):
        identifiers_for(name, 27)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("nubmers", "unknown identifiers 'nubmers': use one of numbers, letters"),
        (("a",), "2 images need 2 identifiers, and the list names 1"),
        (("a", "a"), "one stands there twice"),
        (("a", ""), "identifier '': must be text without outer spaces"),
        (("a", " b"), "identifier ' b': must be text"),
        (("a", 2), "identifier 2: must be text"),
        (("a", ["b"]), "identifier ['b']: must be text"),
        (5, "must be the name of a set or a list, not 5"),
    ],
)
def test_identifiers_that_cannot_be_said_are_refused(choice: Any, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        identifiers_for(choice, 2)


NUMBERS, LETTERS = identifiers_for("numbers", 12), identifiers_for("letters", 9)
LOWER, ROMAN, WORDS = (identifiers_for(name, 9) for name in ("lowercase", "roman", "words"))


@pytest.mark.parametrize(
    ("text", "names", "position"),
    [
        ("3", NUMBERS, 2),
        (" 3\n", NUMBERS, 2),
        ("10", NUMBERS, 9),
        ("1", NUMBERS, 0),
        ("10", NUMBERS[:4], None),
        ("100", NUMBERS, None),
        ("Not 2 but 3.", NUMBERS, 2),
        ("**4**", NUMBERS, 3),
        ("<4>", NUMBERS, 3),
        ("The answer is (2).", NUMBERS, 1),
        ("2.5", NUMBERS, None),
        ("-2", NUMBERS, None),
        ("2nd", NUMBERS, None),
        ("0", NUMBERS, None),
        ("", NUMBERS, None),
        ("no idea", NUMBERS, None),
        ("B", LETTERS, 1),
        ("B.", LETTERS, 1),
        ("a red B", LETTERS, 1),
        ("b", LETTERS, None),
        ("Bad", LETTERS, None),
        ("B. A man is riding a horse", LETTERS, 1),
        ("The answer is A", LETTERS, 0),
        ("A is the best match", LETTERS, 0),
        ("A fits", LETTERS, 0),
        ("B, I think", LETTERS, 1),
        ("b, because it shows a man", LOWER, 1),
        ("a", LOWER, 0),
        ("The answer is a.", LOWER, 0),
        ("II", ROMAN, 1),
        ("VIII", ROMAN, 7),
        ("III, I think", ROMAN, 2),
        ("I", ROMAN, 0),
        ("ii", ROMAN, None),
        ("first", WORDS, 0),
        ("The Second image", WORDS, 1),
        ("THIRD", WORDS, 2),
        ("firsthand", WORDS, None),
        ("the twenty-first", identifiers_for("words", 26), 20),
        ("the fir\u017ft", WORDS, 0),
        ("left. No: Right", ("left", "right"), 1),
        ("x", ("X", "x"), 1),
        ("upper left", ("left", "upper left"), 1),
        ("c++", ("c", "c++"), 1),
    ],
)
def test_an_answer_is_read_back(text: str, names: tuple[str, ...], position: int | None) -> None:
    assert parse_answer(text, names) == position


@given(st.sampled_from(IDENTIFIER_SETS), st.integers(2, 26), st.data())
def test_every_identifier_is_read_as_itself(name: str, n: int, data: Any) -> None:
    names = identifiers_for(name, n)
    k = data.draw(st.integers(0, n - 1))
    for text in ("{}", "{}.", "The answer is <{}>", 'I say "{}"\n', "**{}**"):
        assert parse_answer(text.format(names[k]), names) == k


@given(st.text(), st.sampled_from(IDENTIFIER_SETS))
def test_whatever_a_model_says_is_read_as_a_position_or_none(text: str, name: str) -> None:
    position = parse_answer(text, identifiers_for(name, 26))
    assert position is None or 0 <= position < 26


# Prompts

PAPER = {
    "vanilla": "Given 4 images indexed from 1 to 4, identify the image that best matches the "
    "provided caption. Respond with the index number only and nothing else.\n"
    "Caption: a {red} wall\nAnswer:",
    "instruction": "Given 4 images indexed from 1 to 4, identify the image that best matches the "
    "provided caption. Please note that the provided images have been randomly shuffled, so it is "
    "essential to consider them fairly and without bias. Analyze the visual content objectively "
    "and do not be influenced by the order of the images. Respond with the index number only and "
    "nothing else.\nCaption: a {red} wall\nAnswer:",
    "chain_of_thought": "Given 4 images indexed from 1 to 4, identify the image that best matches "
    "the provided caption. Please think step by step. First, write your reasoning inside <think> "
    "and </think> tags. Then, after the closing </think> tag, output only the final answer index "
    "(a single integer from 1 to 4).\nCaption: a {red} wall\nAnswer: <think>",
    "self_consistency": "Given 4 images indexed from 1 to 4, identify the image that best matches "
    "the provided caption. Think step by step to analyze the content of the images. After your "
    'reasoning, provide the final answer in the exact format: "The answer is <index>".\n'
    "Caption: a {red} wall\nAnswer:",
}


def text_of(n: int = 4, caption: str = "a {red} wall", **options: Any) -> str:
    (turn,) = conversation(instance(n, caption=caption), **options)
    text: str = turn["content"][-1]["text"]
    return text


@pytest.mark.parametrize("name", PAPER)
def test_the_four_prompts_are_the_paper_s(name: str) -> None:
    assert PAPER.keys() == TEMPLATES.keys()
    assert text_of(prompt=name) == PAPER[name]


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published results are not at hand")
def test_the_prompts_are_those_of_the_published_results() -> None:
    published = json.loads(PUBLISHED.read_text())["prompts"]
    for name, text in published.items():
        filled = text.replace("{n}", "4").replace("{caption}", "a {red} wall")
        assert text_of(prompt=name) == filled


def test_one_user_turn_holds_the_images_and_then_the_text() -> None:
    (turn,) = conversation(instance(3))
    assert turn["role"] == "user"
    assert [part["type"] for part in turn["content"]] == ["image", "image", "image", "text"]


def test_the_variants_of_a_prompt() -> None:
    assert text_of(trailing_space=True) == PAPER["vanilla"] + " "
    for name, sentence in (("chain_of_thought", "Please"), ("self_consistency", "Think")):
        broken = PAPER[name].replace(f"caption. {sentence}", f"caption.\n{sentence}")
        assert text_of(prompt=name, line_break=True) == broken != PAPER[name]
    assert text_of(line_break=True) == PAPER["vanilla"]
    (turn,) = conversation(instance(2), labelled=True)
    assert [part.get("text") for part in turn["content"][:-1]] == [
        "Image 1:",
        None,
        "Image 2:",
        None,
    ]
    system, user = conversation(instance(2), system="Be brief.")
    assert (system["role"], system["content"][0]["text"]) == ("system", "Be brief.")
    assert user == conversation(instance(2))[0]


@pytest.mark.parametrize(
    ("identifiers", "span", "noun"),
    [
        ("letters", "from A to D", "letter"),
        ("lowercase", "from a to d", "letter"),
        ("roman", "from I to IV", "Roman numeral"),
        ("words", "from first to fourth", "ordinal word"),
        (("w", "x", "y", "z"), "from w to z", "identifier"),
    ],
)
def test_the_words_of_a_prompt_follow_the_identifiers(
    identifiers: Any, span: str, noun: str
) -> None:
    text = text_of(identifiers=identifiers)
    assert text.startswith(f"Given 4 images indexed {span}, identify")
    assert f"Respond with the {noun} only" in text
    assert noun_for(identifiers) == noun
    thought = text_of(identifiers=identifiers, prompt="chain_of_thought")
    assert f"output only the final answer {noun} ({span})." in thought
    assert f'"The answer is <{noun}>"' in text_of(
        identifiers=identifiers, prompt="self_consistency"
    )
    (turn,) = conversation(instance(4), identifiers=identifiers, labelled=True)
    first = span.split()[1]
    assert turn["content"][0] == {"type": "text", "text": f"Image {first}:"}


def test_a_question_of_one_s_own_replaces_the_template() -> None:
    asked = instance(caption=None, question="Which {one} is older?")
    (turn,) = conversation(asked, prompt="chain_of_thought", trailing_space=True)
    assert turn["content"][-1]["text"] == "Which {one} is older? "


def test_a_template_of_one_s_own_is_filled() -> None:
    own = "{n} of {noun} {first}..{last}: {caption}"
    assert text_of(prompt=own) == "4 of index number 1..4: a {red} wall"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("vanila", "unknown prompt 'vanila': use one of vanilla, instruction"),
        ("no field", "unknown prompt"),
        ("{caption} {cpation}", "prompt template: 'cpation' has no meaning there"),
        ("{caption} {}", "prompt template: "),
        ("{caption} {", "prompt template: "),
        ("{caption} {caption.red}", "prompt template: "),
        ("{caption} {caption[red]}", "prompt template: "),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(template: str, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        check_template(template)


def test_more_images_than_identifiers_are_refused() -> None:
    with pytest.raises(InputError, match="3 images need 3 identifiers"):
        conversation(instance(3), identifiers=("a", "b"))


# Settings


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (EvidenceSettings(), "44136fa355b3678a"),
        (EvidenceSettings.released(), "1526a953329843cf"),
        (EvidenceSettings(identifiers="letters"), "b312716c29092f9c"),
        (EvidenceSettings(identifiers=("x", "y")), "837558e6aaa966a0"),
        (EvidenceSettings(image_size=(448, 448)), "0294e15d55cf10ce"),
        (EvidenceSettings(processor_options='{"b":1,"a":2}'), "55ea6b9ecc60cef1"),
        (EvidenceSettings(system="é"), "b316130fb8f68dbc"),
        (EvidenceSettings(model="m", revision="r", dtype="bfloat16"), "4cf933691e3321ec"),
        (EvidenceSettings(sofa_sigma=0.5), "8b4896eacf9402be"),
        (
            EvidenceSettings(prompt="Which fits {caption}?", labelled=True),
            "91bc5ecd2f092045",
        ),
    ],
)
def test_a_hash_of_settings_never_changes(settings: EvidenceSettings, expected: str) -> None:
    assert settings.hash == expected


def test_every_field_of_the_settings_changes_the_hash() -> None:
    changes: dict[str, Any] = {
        "prompt": "instruction",
        "trailing_space": True,
        "line_break": True,
        "labelled": True,
        "system": "Be brief.",
        "identifiers": "letters",
        "image_size": (336, 336),
        "processor_options": {"max_patches": 4},
        "image_tokens": "delimited",
        "scoring": "released",
        "sofa_sigma": 0.5,
        "model": "a",
        "revision": "b",
        "dtype": "float32",
    }
    assert changes.keys() == EvidenceSettings().to_dict().keys()
    made = [EvidenceSettings(**{name: value}) for name, value in changes.items()]
    assert len({settings.hash for settings in [EvidenceSettings(), *made]}) == len(changes) + 1
    for name, settings in zip(changes, made, strict=True):
        assert EvidenceSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
        (difference,) = settings.differences(EvidenceSettings())
        assert difference.startswith(f"{name}: ")


def test_one_meaning_has_one_hash() -> None:
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"image_size": 336}, {"image_size": [336, 336]}),
        ({"processor_options": '{"b": 1, "a": 2}'}, {"processor_options": {"a": 2, "b": 1}}),
        ({"sofa_sigma": 1}, {"sofa_sigma": 1.0}),
        ({"identifiers": ["x", "y"]}, {"identifiers": ("x", "y")}),
    ]
    for one, other in pairs:
        assert EvidenceSettings(**one) == EvidenceSettings(**other)
        assert EvidenceSettings(**one).hash == EvidenceSettings(**other).hash


def test_the_presets() -> None:
    assert EvidenceSettings.preset("paper") == EvidenceSettings.paper() == EvidenceSettings()
    released = EvidenceSettings.preset("released", labelled=True, trailing_space=False)
    assert released.labelled
    assert not released.trailing_space
    assert released.differences(EvidenceSettings(labelled=True)) == [
        "line_break: True against False",
        "image_size: [336, 336] against None",
        "image_tokens: 'delimited' against 'visual'",
        "scoring: 'released' against 'joint'",
    ]
    with pytest.raises(InputError, match="unknown preset 'relased': use paper or released"):
        EvidenceSettings.preset("relased")


def test_settings_put_a_question_in_their_own_words() -> None:
    settings = EvidenceSettings(trailing_space=True, labelled=True, identifiers="letters")
    system = settings.with_changes(system="Be brief.")
    wanted = conversation(
        instance(), trailing_space=True, labelled=True, identifiers="letters", system="Be brief."
    )
    assert system.conversation(instance()) == wanted


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"identifiers": "nubmers"}, "field 'identifiers': unknown identifiers 'nubmers'"),
        ({"identifiers": ["a", "a"]}, "field 'identifiers': identifiers ['a', 'a']: one stands"),
        ({"identifiers": 5}, "field 'identifiers': "),
        ({"image_size": 0}, "field 'image_size': 0 is no (width, height)"),
        ({"image_size": (336,)}, "field 'image_size': (336,) is no"),
        ({"image_size": (336, -1)}, "field 'image_size': "),
        ({"image_size": 33.5}, "field 'image_size': "),
        ({"image_size": True}, "field 'image_size': "),
        ({"image_size": "336"}, "field 'image_size': "),
        ({"processor_options": "[1]"}, "field 'processor_options': it is no mapping"),
        ({"processor_options": "{"}, "field 'processor_options': "),
        ({"processor_options": 5}, "field 'processor_options': "),
        ({"processor_options": {"x": object()}}, "field 'processor_options': "),
        ({"prompt": "vanila"}, "unknown prompt 'vanila'"),
        ({"prompt": 5}, "field 'prompt': 5 is no text"),
        ({"system": 5}, "field 'system': 5 is no text"),
        ({"trailing_space": "yes"}, "field 'trailing_space': 'yes' is neither true nor false"),
        ({"image_tokens": "all"}, "field 'image_tokens': 'all' is none of visual, delimited"),
        ({"scoring": "sum"}, "field 'scoring': 'sum' is none of joint, released"),
        ({"sofa_sigma": 0}, "field 'sofa_sigma': 0 is not in (0, 1]"),
        ({"sofa_sigma": 1.5}, "field 'sofa_sigma': 1.5 is not in (0, 1]"),
        ({"sofa_sigma": float("nan")}, "field 'sofa_sigma': nan is not in (0, 1]"),
        ({"sofa_sigma": True}, "field 'sofa_sigma': True"),
        ({"sofa_sigma": "x"}, "field 'sofa_sigma': 'x' is no number"),
        ({"trailing_spcae": True}, "settings: no field 'trailing_spcae'; the fields are dtype"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        EvidenceSettings.from_dict(changes)


# Evidence


def piece(
    name: str = "a", order: tuple[int, ...] = (0, 1, 2), salt: int = 0, **changes: Any
) -> Evidence:
    random = np.random.default_rng([*map(ord, name), *order, salt])
    n = len(order)
    values: dict[str, Any] = {
        "instance_id": name,
        "order": order,
        "log_probs": np.log(random.dirichlet(np.ones(n))),
        "attention": random.random((2, n)),
        "layers": (3, 7),
        "image_tokens": np.full(n, 49),
        "settings": "s",
        "target": 1,
    }
    return Evidence(**(values | changes))


def cyclic_array(names: str = "abc") -> EvidenceArray:
    return EvidenceArray.of([piece(name, order) for name in names for order in cyclic_orders(3)])


def test_an_instance_s_hash_is_of_its_words_and_images_alone() -> None:
    one = instance()
    first = instance_hash(one, ["x", "y"])
    assert first == sha256(b"x\ny\nc\na red wall").hexdigest()[:32]
    assert instance_hash(replace(one, id="other", answer=1, category="c"), ["x", "y"]) == first
    others = [
        instance_hash(one, ["y", "x"]),
        instance_hash(one, ["x"]),
        instance_hash(replace(one, caption="other"), ["x", "y"]),
        instance_hash(replace(one, caption=None, question=one.caption), ["x", "y"]),
    ]
    assert len({first, *others}) == 5


def test_evidence_serves_another_instance_of_equal_content() -> None:
    moved = piece().for_instance(instance(id="other", answer=2))
    assert (moved.instance_id, moved.target) == ("other", 2)
    assert moved.key == piece().key
    assert (moved.log_probs == piece().log_probs).all()


def test_columns_hold_what_the_pieces_held() -> None:
    array = cyclic_array()
    assert array.log_probs.shape == (3, 3, 3)
    assert array.attention.shape == (3, 3, 2, 3)
    assert array.n == 3
    assert array.instance_ids == ("a", "b", "c")
    assert (array.layers, array.settings) == ((3, 7), "s")
    for p, order in enumerate(cyclic_orders(3)):
        for m, name in enumerate("abc"):
            one = piece(name, order)
            assert (array.log_probs[p, m] == one.log_probs).all()
            assert (array.attention[p, m] == one.attention).all()
            assert tuple(array.orders[p, m]) == order
    assert array.checked() is array


def test_chosen_orders_become_the_rows() -> None:
    pieces = [piece(name, order) for order in reversed(cyclic_orders(3)) for name in "ab"]
    wanted = [[(1, 2, 0), (0, 1, 2)], [(2, 0, 1), (1, 2, 0)]]
    array = EvidenceArray.of(pieces, wanted)
    assert array.orders.transpose(1, 0, 2).tolist() == [[list(o) for o in row] for row in wanted]
    assert (array.log_probs[0, 1] == piece("b", (2, 0, 1)).log_probs).all()


def test_the_target_stands_where_the_order_put_it() -> None:
    array = EvidenceArray.of(
        [piece("a", order) for order in cyclic_orders(3)]
        + [piece("b", order, target=None) for order in cyclic_orders(3)]
    )
    assert array.target_positions.tolist() == [[1, -1], [0, -1], [2, -1]]
    assert array.targets.tolist() == [1, -1]


@pytest.mark.parametrize("rows", [slice(1, 3), [2, 0], (2, 0), np.array([0]), [], (1,)])
@pytest.mark.parametrize("chosen", [slice(None), [2], (0, 2), np.array([1, 1]), []])
def test_taking_some_is_indexing_each_axis(rows: Any, chosen: Any) -> None:
    array = cyclic_array()
    p = np.arange(3)[rows if isinstance(rows, slice) else list(rows)].astype(int)
    m = np.arange(3)[chosen if isinstance(chosen, slice) else list(chosen)].astype(int)
    taken = array.take(rows, chosen)
    assert (taken.log_probs == array.log_probs[np.ix_(p, m)]).all()
    assert (taken.attention == array.attention[np.ix_(p, m)]).all()
    assert (taken.orders == array.orders[np.ix_(p, m)]).all()
    assert taken.targets.tolist() == array.targets[m].tolist()
    assert taken.instance_ids == tuple(array.instance_ids[k] for k in m)
    assert taken.image_tokens is not None
    assert taken.image_tokens.shape == taken.log_probs.shape


def test_taking_by_a_mask_works() -> None:
    taken = cyclic_array().take(instances=np.array([True, False, True]))
    assert taken.instance_ids == ("a", "c")


def test_the_cyclic_rows_are_found_whatever_stands_between_them() -> None:
    mixed = [(2, 0, 1), (1, 0, 2), (0, 1, 2), (0, 2, 1), (1, 2, 0)]
    other = [(1, 2, 0), (0, 1, 2), (2, 1, 0), (2, 0, 1), (1, 0, 2)]
    array = EvidenceArray.of([*(piece("a", o) for o in mixed), *(piece("b", o) for o in other)])
    cyclic = array.cyclic()
    for s, order in enumerate(cyclic_orders(3)):
        for m, name in enumerate("ab"):
            assert tuple(cyclic.orders[s, m]) == order
            assert (cyclic.log_probs[s, m] == piece(name, order).log_probs).all()
            assert (cyclic.attention[s, m] == piece(name, order).attention).all()
    assert cyclic.image_tokens is not None
    without = replace(array, image_tokens=None)
    assert without.cyclic().image_tokens is without.take([0]).image_tokens is None


def test_a_missing_cyclic_shift_is_named() -> None:
    array = cyclic_array().take([0, 2])
    with pytest.raises(InputError, match=r"instance 'a' has no evidence of cyclic shift 1: all 3"):
        array.cyclic()


@pytest.mark.parametrize(
    ("pieces", "orders", "words"),
    [
        ([], None, "there is no evidence here"),
        ([piece("a"), piece("a", (1, 2, 0)), piece("b")], None, "'b' has evidence of 1 orders, "),
        ([piece("a"), piece("b", (0, 1))], None, "'b' has 2 candidates, others 3"),
        ([piece("a"), piece("b", settings="t")], None, "other settings (t against s)"),
        ([piece("a"), piece("b", layers=(3, 8))], None, "other layers does not mix"),
        ([piece("a", (0, 0, 1))], None, "[0, 0, 1] is not an order of 3 images"),
        ([piece("a")], [[(0, 1, 2), (1, 2, 0)]], "no evidence of the order [1, 2, 0] (1 of 2 "),
        ([piece("a"), piece("b")], [[(0, 1, 2)]], "orders of 1 instances for 2"),
    ],
)
def test_evidence_that_does_not_mix_is_refused(pieces: Any, orders: Any, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        EvidenceArray.of(pieces, orders)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("attention", np.zeros((3, 3, 1, 3)), "attention has the shape (3, 3, 1, 3), not "),
        ("orders", np.zeros((3, 2, 3)), "orders has the shape (3, 2, 3), not (3, 3, 3)"),
        ("targets", np.zeros(2), "targets has the shape (2,), not (3,)"),
        ("image_tokens", np.zeros((3, 3)), "image_tokens has the shape (3, 3), not (3, 3, 3)"),
        ("instance_ids", ("a",), "1 ids for 3 instances"),
        ("log_probs", np.zeros((3, 3)), "log_probs has the shape (3, 3), not [orders, "),
    ],
)
def test_columns_of_other_shapes_are_refused(field: str, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        replace(cyclic_array(), **{field: value})


def changed(field: str, place: tuple[int, ...], value: float) -> EvidenceArray:
    array = cyclic_array()
    values = getattr(array, field).copy()
    values[place] = value
    return replace(array, **{field: values})


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (changed("log_probs", (1, 2, 0), np.nan), "'log_probs': nan at order 1 of instance 'c'"),
        (changed("log_probs", (1, 2, 0), np.inf), "'log_probs': inf at order 1 of instance 'c'"),
        (changed("attention", (2, 1, 0, 0), np.nan), "'attention': nan at order 2 of instance 'b'"),
        (changed("attention", (2, 1, 0, 0), -0.1), "'attention': -0.1 at order 2 of instance 'b'"),
        (changed("attention", (2, 1, 0, 0), -np.inf), "'attention': -inf at order 2"),
        (changed("attention", (2, 1, 0, 0), np.inf), "'attention': inf at order 2"),
        (changed("log_probs", (0, 1, 2), 0.1), "order 0 of instance 'b': the probabilities sum to"),
        (changed("log_probs", (0, 1, 2), 900.0), "the probabilities sum to inf, not 1"),
        (changed("orders", (0, 0, 0), 2), "'orders': not every row is an order of 3 images"),
        (changed("targets", (1,), 3), "'targets': 3 for instance 'b' is no index of 3 images"),
        (changed("targets", (1,), -2), "'targets': -2 for instance 'b' is no index"),
        (cyclic_array().take([]), "there is no evidence here"),
        (cyclic_array().take(instances=[]), "there is no evidence here"),
        (EvidenceArray.of([piece("a", (0,), target=0)]), "evidence of 1 candidates: choosing"),
    ],
)
def test_evidence_that_cannot_be_computed_with_is_refused(array: Any, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        array.checked()


def test_what_recordings_hold_is_no_reason_to_refuse() -> None:
    halves = replace(cyclic_array(), log_probs=cyclic_array().log_probs.astype(np.float16))
    assert halves.checked() is halves
    certain = np.full((3, 3, 3), -np.inf)
    certain[:, :, 1] = 0
    assert replace(cyclic_array(), log_probs=certain).checked().n == 3
    assert changed("targets", (1,), -1).checked().targets[1] == -1
    unseen = changed("attention", (2, 1, 0, 0), 0.0)
    assert unseen.checked() is unseen
