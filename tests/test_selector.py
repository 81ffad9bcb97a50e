"""Selector: what it learns, what it answers, and what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lookright import EvidenceSettings, InputError, Instance, Model, Selector, selector_file
from lookright.benchmarks.folder import read_benchmark
from lookright.calibration import Calibration
from lookright.calibration_file import read_parts, write_parts
from lookright.choice import choose, image_names
from lookright.evidence import Evidence, EvidenceArray
from lookright.instance import cyclic_orders
from lookright.methods import METHODS
from lookright.recordings import load_evidence
from lookright.samples import cut

HABIT = np.array([0.3, -0.2, 0.1, 0.9, -0.6, 0.2, -0.1, 1.5])  # of the logits, by position
GAZE = np.array([0.5, 0.2, 0.3, 0.8, 0.4, 0.3, 0.2, 0.9])  # of the attention, by position


class Biased:
    """Stands for a model: it leans to some positions, and looks at the image named in the caption.

    Images are file names; the one that begins with the caption's first word is the target.
    """

    def __init__(self, name: str = "biased", revision: str = "1", dtype: str = "float32") -> None:
        self.facts = {"model": name, "revision": revision, "dtype": dtype}
        self.passes = 0
        self.calls = 0
        self.settings_seen: list[EvidenceSettings] = []

    def settings(self, settings: EvidenceSettings | None = None) -> EvidenceSettings:
        return (settings or EvidenceSettings()).with_changes(**self.facts)

    def evidence_iter(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings | None = None,
    ) -> Iterator[list[Evidence]]:
        self.calls += 1
        settings = self.settings(settings)
        self.settings_seen.append(settings)
        pieces = [self.piece(i, tuple(o), settings) for i, o in zip(instances, orders, strict=True)]
        for start in range(0, len(pieces), 3):
            self.passes += len(pieces[start : start + 3])
            yield pieces[start : start + 3]

    def piece(self, instance: Instance, order: tuple[int, ...], settings: Any) -> Evidence:
        n = len(order)
        word = (instance.caption or instance.question or "").split()[0]
        hit = np.array([str(instance.images[image]).startswith(word) for image in order])
        logits = 2 * HABIT[:n] + 0.7 * hit
        attention = np.outer([0.1, 0.4, 0.2], GAZE[:n] * np.where(hit, 3.0, 1.0)) / n
        return Evidence(
            instance_id=instance.id,
            order=order,
            log_probs=logits - np.logaddexp.reduce(logits),
            attention=attention,
            layers=(3, 7, 11),
            image_tokens=np.full(n, 49),
            settings=settings.hash,
            target=instance.answer,
        )


def photos(word: str, n: int, at: int) -> list[str]:
    return [f"{word}.jpg" if k == at else f"other-{word}-{k}.jpg" for k in range(n)]


def samples(n: int = 4, count: int = 5) -> list[tuple[str, list[str], int]]:
    words = [f"w{index}" for index in range(count)]
    return [(f"{w} here", photos(w, n, i % n), i % n) for i, w in enumerate(words)]


@pytest.fixture
def model() -> Any:
    return Biased()


@pytest.fixture
def selector(model: Any) -> Selector:
    return Selector.calibrate(model, samples(), progress=False)


# -- what it answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(4))
def test_lad_finds_the_target_wherever_it_stands(selector: Selector, at: int) -> None:
    choice = selector.select(photos("cat", 4, at), "cat on a mat")
    assert choice.index == at
    assert choice.names[choice.index] == "cat.jpg"
    assert choice.vanilla.argmax() == 3  # the habit, whatever is shown
    assert choice.attention.argmax() == at
    assert choice.diverged == choice.corrected == (at != 3)


def test_the_distributions_are_distributions_and_confidence_is_the_winners_share(
    selector: Selector,
) -> None:
    choice = selector.select(photos("cat", 4, 1), "cat")
    for shares in (choice.scores, choice.vanilla, choice.attention):
        assert shares.shape == (4,)
        assert shares.sum() == pytest.approx(1, abs=1e-12)
    assert choice.confidence == choice.scores[choice.index] == choice.scores.max()
    assert choice.warning is None


def test_a_choice_is_what_the_method_says_of_the_evidence(model: Any, selector: Selector) -> None:
    images = photos("cat", 4, 2)
    choice = selector.select(images, "cat")
    instance = Instance("x", tuple(images), caption="cat")
    evidence = EvidenceArray.of([model.piece(instance, (0, 1, 2, 3), selector.settings)])
    calibration = selector.calibrations[4]
    scores = METHODS["lad"](evidence, calibration)[0, 0]
    looked = METHODS["purified_attention"](evidence, calibration)[0, 0]
    for shares, by_method in ((choice.scores, scores), (choice.attention, looked)):
        np.testing.assert_allclose(np.log(shares), by_method - np.logaddexp.reduce(by_method))
    np.testing.assert_allclose(np.log(choice.vanilla), evidence.log_probs[0, 0])


def test_the_attention_shown_follows_the_parameters_of_lad(selector: Selector) -> None:
    images = photos("cat", 4, 0)
    usual = selector.select(images, "cat").attention
    softer = selector.with_method("lad", tau=1.0).select(images, "cat").attention
    raw = selector.with_method("lad", prior=False).select(images, "cat").attention
    assert softer.max() < usual.max()
    np.testing.assert_allclose(np.log(usual / usual[0]), 5 * np.log(softer / softer[0]))
    expected = (GAZE[:4] * np.array([3.0, 1, 1, 1])) ** 5
    np.testing.assert_allclose(raw, expected / expected.sum())


def test_without_calibration_the_attention_is_the_raw_share(model: Any) -> None:
    choice = Selector.uncalibrated(model, "vanilla").select(photos("cat", 4, 1), "cat")
    expected = GAZE[:4] * np.array([1, 3.0, 1, 1])
    np.testing.assert_allclose(choice.attention, expected / expected.sum())
    assert not choice.corrected


@pytest.mark.parametrize("shift", range(4))
def test_permutation_averaging_gives_each_image_the_same_scores_in_every_cyclic_order(
    model: Any, shift: int
) -> None:
    selector = Selector.uncalibrated(model)
    images = photos("cat", 4, 2)
    first = selector.select(images, "cat")
    turned = selector.select(images[shift:] + images[:shift], "cat")
    np.testing.assert_allclose(np.roll(turned.scores, shift), first.scores)
    np.testing.assert_allclose(np.roll(turned.attention, shift), first.attention)
    assert first.index == 2
    assert turned.names[turned.index] == "cat.jpg"


def test_a_decision_takes_one_pass_and_permutation_averaging_n(selector: Selector) -> None:
    model: Any = selector.model
    model.passes = 0
    selector.select(photos("cat", 4, 0), "cat")
    assert model.passes == 1
    selector.with_method("permutation_average").select(photos("cat", 4, 0), "cat")
    assert model.passes == 5


def test_calibrating_takes_the_n_cyclic_orders_of_each_sample(model: Any) -> None:
    Selector.calibrate(model, samples(), progress=False)
    assert model.passes == 5 * 4


def test_many_queries_are_one_batched_call_and_give_what_single_ones_give(model: Any) -> None:
    selector = Selector.calibrate(model, samples(8), candidates=[2, 4, 8], progress=False)
    queries = [(photos("cat", n, n - 1), "cat") for n in (4, 2, 8, 4)]
    model.calls = 0
    together = selector.select_many(queries, progress=False)
    assert model.calls == 1
    for choice, query in zip(together, queries, strict=True):
        np.testing.assert_array_equal(choice.scores, selector.select(*query).scores)
        assert choice.index == len(query[0]) - 1


def test_queries_may_be_instances_also_of_equal_ids(selector: Selector) -> None:
    asked = [Instance("same", tuple(photos("cat", 4, at)), question="cat ?") for at in (1, 2)]
    assert [choice.index for choice in selector.select_many(asked, progress=False)] == [1, 2]


def test_no_queries_give_no_choices(selector: Selector) -> None:
    assert selector.select_many([], progress=False) == []


def test_a_ranking_is_best_first_and_its_best_is_the_choice(selector: Selector) -> None:
    images = photos("cat", 4, 1)
    ranking = selector.rank(images, "cat")
    assert [image.rank for image in ranking] == [1, 2, 3, 4]
    assert sorted(image.index for image in ranking) == [0, 1, 2, 3]
    scores = [image.score for image in ranking]
    assert scores == sorted(scores, reverse=True)
    best = selector.rank(images, "cat", top=1)
    assert len(best) == 1
    assert best[0].index == selector.select(images, "cat").index == 1
    assert best[0].name == "cat.jpg"


def test_equal_scores_go_to_the_lowest_image() -> None:
    evidence = Evidence(
        instance_id="x",
        order=(0, 1, 2),
        log_probs=np.log([0.2, 0.4, 0.4]),
        attention=np.ones((2, 3)),
        layers=(0, 1),
        image_tokens=np.ones(3, dtype=int),
    )
    instance = Instance("x", ("a", "b", "c"), caption="c")
    choice = choose(instance, [evidence], "vanilla", {}, None)
    assert choice.ranking == (1, 2, 0)


def test_a_model_with_one_layer_can_be_asked_without_calibration() -> None:
    evidence = Evidence(
        instance_id="x",
        order=(0, 1),
        log_probs=np.log([0.4, 0.6]),
        attention=np.array([[0.3, 0.1]]),
        layers=(0,),
        image_tokens=np.ones(2, dtype=int),
    )
    choice = choose(Instance("x", ("a", "b"), caption="c"), [evidence], "vanilla", {}, None)
    np.testing.assert_allclose(choice.attention, [0.75, 0.25])


def test_an_explanation_shows_every_image_and_says_what_diverged(selector: Selector) -> None:
    choice = selector.select(photos("cat", 4, 1), "cat [on] a mat")
    text = choice.explain()
    assert '"cat [on] a mat"' in text
    assert f"image 1 (counted from 0), cat.jpg, with {100 * choice.confidence:.1f}%" in text
    for name, share in zip(choice.names, choice.vanilla, strict=True):
        row = next(line for line in text.splitlines()[4:] if name in line)
        assert f"{100 * share:.1f}%" in row
        assert row.startswith(">") == (name == "cat.jpg")
    assert "The logits alone say image 3, the attention image 1: they diverge." in text
    assert "lad corrects the answer to image 1." in text
    assert str(choice) == text
    assert repr(choice).startswith("Choice(index=1, image='cat.jpg', confidence=0.")


def test_an_explanation_of_agreement_says_so(selector: Selector) -> None:
    text = selector.select(photos("cat", 4, 3), "cat").explain()
    assert "The logits alone and the attention both say image 3." in text
    assert "lad keeps the logits' answer." in text


def test_a_warning_stands_under_the_table(selector: Selector) -> None:
    choice = replace(selector.select(photos("cat", 4, 3), "cat"), warning="Ask again.")
    assert choice.explain().splitlines()[-1] == "Ask again."
    assert choice.to_dict()["warning"] == "Ask again."


def test_a_ranking_prints_its_best_and_says_of_how_many(selector: Selector) -> None:
    ranking = selector.rank(photos("cat", 4, 1), "cat", top=2)
    assert "the best 2 of 4" in str(ranking)
    assert str(ranking).count(".jpg") == 2
    assert repr(ranking) == f"Ranking(1: {ranking[0].score:.3f}, 2: {ranking[1].score:.3f})"
    assert "all 4 images" in str(selector.rank(photos("cat", 4, 1), "cat"))


def test_choices_and_rankings_are_json(selector: Selector) -> None:
    choice = selector.select(photos("cat", 4, 1), "cat")
    said = json.loads(json.dumps(choice.to_dict()))
    assert said["index"] == 1
    assert said["images"][1] == "cat.jpg"
    assert said["corrected"] is said["diverged"] is True
    assert said["scores"] == choice.scores.tolist()
    ranked = json.loads(json.dumps(selector.rank(photos("cat", 4, 1), "cat", 2).to_dict()))
    assert [row["index"] for row in ranked["ranking"]] == [1, 2]


def test_a_choice_draws_itself_with_its_target_marked(selector: Selector) -> None:
    figure = selector.select(photos("cat", 4, 1), "cat").plot(target=1)
    assert [axis.get_title("left") for axis in figure.axes] == ["logits", "attention", "lad"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[1] == "cat.jpg (target)"


@pytest.mark.parametrize(
    ("images", "names"),
    [
        (["a/x.jpg", Path("b/y.jpg")], ("x.jpg", "y.jpg")),
        (["a/x.jpg", "b/x.jpg"], ("a/x.jpg", "b/x.jpg")),
        ([b"jpeg", "data:image/png;base64,AA", "x.jpg"], ("image 0", "image 1", "x.jpg")),
        (["x\udcff.jpg", "y.jpg"], ("x\\udcff.jpg", "y.jpg")),
        (["same.jpg", "same.jpg"], ("same.jpg", "same.jpg")),
    ],
)
def test_images_are_called_by_what_tells_them_apart(images: Any, names: tuple[str, ...]) -> None:
    assert image_names(images) == names


# -- samples --------------------------------------------------------------------------------------


def test_a_sample_is_cut_to_its_target_and_the_same_others_every_time() -> None:
    instance = Instance("s", tuple("abcdefgh"), answer=5, caption="c")
    small, large = cut(instance, 3, seed=0), cut(instance, 5, seed=0)
    assert small == cut(instance, 3, seed=0)
    assert len(small.images) == 3
    assert small.answer is not None
    assert small.images[small.answer] == "f"
    assert list(small.images) == sorted(small.images)  # in the order they stood in
    assert set(small.images) < set(large.images)
    assert any(cut(instance, 3, seed=s).images != small.images for s in range(1, 6))
    assert cut(instance, 8, seed=0) is instance


def test_several_numbers_of_candidates_are_calibrated_from_the_same_samples(model: Any) -> None:
    selector = Selector.calibrate(model, samples(8), candidates=[2, 4, 8], progress=False)
    assert list(selector.calibrations) == [2, 4, 8]
    assert model.passes == 5 * (2 + 4 + 8)
    for n, calibration in selector.calibrations.items():
        assert calibration.n == n
        assert calibration.samples == tuple(f"sample-{k}" for k in range(5))


def test_one_sample_alone_can_be_cut_to_several_sizes(model: Any) -> None:
    selector = Selector.calibrate(model, samples(8, count=1), [2, 8], progress=False)
    assert [c.log_observed.shape for c in selector.calibrations.values()] == [(2, 2), (8, 8)]


def test_samples_are_instances_triples_a_benchmark_or_its_folder(
    model: Any, tmp_path: Path
) -> None:
    folder = benchmark_folder(tmp_path)
    benchmark = read_benchmark(folder)[0]
    instances = list(benchmark.calibration[:5])
    triples = [(i.caption, i.images, np.int64(i.answer or 0)) for i in instances]
    fitted = [
        Selector.calibrate(model, given, progress=False).calibrations[4]
        for given in (folder, str(folder), benchmark, instances, triples)
    ]
    for calibration in fitted:
        np.testing.assert_array_equal(calibration.log_observed, fitted[0].log_observed)
    assert fitted[0].samples == tuple(f"c{k}" for k in range(5))  # the first five of seven


def test_a_file_of_samples_is_calibrated_from(model: Any, tmp_path: Path) -> None:
    file = benchmark_folder(tmp_path) / "calibration.jsonl"
    selector = Selector.calibrate(model, file, progress=False)
    assert selector.calibrations[4].samples[0] == "c0"


def test_a_benchmarks_identifiers_go_into_the_settings(model: Any, tmp_path: Path) -> None:
    folder = benchmark_folder(tmp_path, identifiers="letters")
    assert Selector.calibrate(model, folder, progress=False).settings.identifiers == "letters"
    own = EvidenceSettings(identifiers="roman")
    selector = Selector.calibrate(model, folder, settings=own, progress=False)
    assert selector.settings.identifiers == "roman"


def benchmark_folder(path: Path, identifiers: str = "numbers") -> Path:
    folder = path / "benchmark"
    folder.mkdir()

    def line(name: str, at: int) -> str:
        images = [image.replace("/", "-") for image in photos(name, 4, at)]
        for number, image in enumerate(images):
            Image.new("RGB", (8, 8), (number, at, 0)).save(folder / image)
        return json.dumps({"id": name, "caption": name, "images": images, "answer": at})

    (folder / "instances.jsonl").write_text(line("i0", 0))
    (folder / "calibration.jsonl").write_text("\n".join(line(f"c{k}", k % 4) for k in range(7)))
    (folder / "benchmark.json").write_text(json.dumps({"identifiers": identifiers}))
    return folder


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "no samples"),
        (5, "must be a list"),
        ([("a", ["x", "y", "z", "w"])], "sample 0: must be"),
        (["abc"], "sample 0: must be"),
        ([("a", ["x", "y", "z"], 0)], "'images': holds 3, too few to calibrate for 4"),
        ([("a", ["x", "y", "z", "w"], 4)], "'answer': is 4"),
        ([("a", ["x", "y", "z", "w"], None)], "'answer': is not known"),
        ([("", ["x", "y", "z", "w"], 1)], "'caption': is empty"),
        ([Instance("s", tuple("abcd"), answer=1, caption="c")] * 2, "stands there twice"),
        (
            [Instance("s", tuple("abcde"), answer=1, question="which of the 5?")],
            "'question': was written for its 5 images",
        ),
        ("no/such/folder", "no/such/folder"),
    ],
)
def test_samples_that_cannot_be_used_are_refused_before_any_pass(
    model: Any, given: Any, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        Selector.calibrate(model, given, progress=False)
    assert model.passes == 0


def test_a_benchmark_without_calibration_is_refused(model: Any, tmp_path: Path) -> None:
    folder = benchmark_folder(tmp_path)
    (folder / "calibration.jsonl").unlink()
    with pytest.raises(InputError, match=r"has no calibration\.jsonl"):
        Selector.calibrate(model, folder, progress=False)


@pytest.mark.parametrize("candidates", [1, 0, -4, True, [4, 1], [], ["4"], [2.0]])
def test_numbers_of_candidates_that_are_none_are_refused(model: Any, candidates: Any) -> None:
    with pytest.raises(InputError, match="candidates="):
        Selector.calibrate(model, samples(), candidates, progress=False)


# -- methods and presets --------------------------------------------------------------------------


def test_the_preset_is_that_of_the_wording_and_of_the_method(model: Any) -> None:
    paper = Selector.calibrate(model, samples(), progress=False)
    released = Selector.calibrate(model, samples(), preset="released", progress=False)
    assert not paper.settings.trailing_space
    assert released.settings.trailing_space
    assert released.settings.image_size == (336, 336)
    assert (paper.parameters["mixture"], released.parameters["mixture"]) == (
        "arithmetic",
        "geometric",
    )
    assert released.calibrations[4].preset == "released"
    assert Selector.uncalibrated(model, preset="released").settings.trailing_space


def test_another_method_needs_no_other_calibration(selector: Selector) -> None:
    images = photos("cat", 4, 1)
    by_attention = selector.with_method("purified_attention", tau=2).select(images, "cat")
    np.testing.assert_allclose(by_attention.scores, by_attention.attention)
    assert selector.with_method("lad", k=1).parameters["k"] == 1
    assert selector.with_method("lad", k=1).with_method("lad", tau=2).parameters["k"] == 1
    assert selector.with_method("pride").with_method("lad").parameters["k"] == 2


def test_a_method_that_needs_a_calibration_is_refused_without(model: Any) -> None:
    with pytest.raises(InputError, match=r"method lad needs a calibration: Selector\.calibrate"):
        Selector.uncalibrated(model, "lad")
    with pytest.raises(InputError, match="method pride needs a calibration"):
        Selector.uncalibrated(model).with_method("pride")


def test_an_unknown_method_is_refused_with_the_nearest_before_any_pass(model: Any) -> None:
    with pytest.raises(InputError, match="did you mean purified_attention"):
        Selector.calibrate(model, samples(), method="purifed_attention", progress=False)
    with pytest.raises(InputError, match="unknown preset 'papers'"):
        Selector.calibrate(model, samples(), preset="papers", progress=False)
    assert model.passes == 0


def test_unfit_parameters_are_refused(selector: Selector) -> None:
    with pytest.raises(InputError, match=r"lad\.tau=0"):
        selector.with_method("lad", tau=0)
    with pytest.raises(InputError, match="no parameter 'kk'"):
        selector.with_method("lad", kk=1)


# -- what it refuses ------------------------------------------------------------------------------


def test_another_number_of_candidates_is_refused_with_what_to_do(selector: Selector) -> None:
    selector.model.passes = 0  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"5 images are given.*for 4.*candidates=\[4, 5\]"):
        selector.select_many(
            [(photos("cat", 4, 0), "cat"), (photos("cat", 5, 0), "cat")], progress=False
        )
    assert selector.model.passes == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("images", "caption", "reason"),
    [
        (["a.jpg"], "cat", "at least two images"),
        ("a.jpg", "cat", "must be a list of images"),
        (["a", "b", "c", "d"], "", "is empty"),
        (["a", "b", "c", "d"], "   ", "is empty"),
        (["a", "b", "c", "d"], 5, "must be text"),
        ("cat", ["a", "b", "c", "d"], "must be a list of images"),
    ],
)
def test_a_question_that_is_none_is_refused(
    selector: Selector, images: Any, caption: Any, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        selector.select(images, caption)


@pytest.mark.parametrize("query", ["cat", ("cat",), 7, (["a", "b"], "cat", 0)])
def test_a_query_of_another_form_is_refused_by_its_number(selector: Selector, query: Any) -> None:
    with pytest.raises(InputError, match="query 1: must be"):
        selector.select_many([(photos("cat", 4, 0), "cat"), query], progress=False)


@pytest.mark.parametrize("top", [0, -1, True, 1.5])
def test_a_ranking_of_no_images_is_refused(selector: Selector, top: Any) -> None:
    with pytest.raises(InputError, match="top="):
        selector.rank(photos("cat", 4, 0), "cat", top=top)


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("candidates", [4, [2, 4]])
def test_a_loaded_selector_decides_like_the_saved_one(
    model: Any, tmp_path: Path, candidates: Any
) -> None:
    saved = Selector.calibrate(model, samples(), candidates, progress=False)
    saved = saved.with_method("lad", k=1, tau=3.0)
    saved.save(tmp_path / "s.safetensors")
    loaded = Selector.load(model, tmp_path / "s.safetensors")
    assert loaded.method == "lad"
    assert dict(loaded.parameters) == dict(saved.parameters)
    assert list(loaded.calibrations) == list(saved.calibrations)
    assert loaded.settings == saved.settings
    query = (photos("cat", 4, 1), "cat")
    np.testing.assert_array_equal(loaded.select(*query).scores, saved.select(*query).scores)


def test_for_one_number_of_candidates_the_file_is_a_calibration_file(
    selector: Selector, tmp_path: Path
) -> None:
    selector.with_method("pride").save(tmp_path / "s.safetensors")
    read = Calibration.load(tmp_path / "s.safetensors")
    np.testing.assert_array_equal(read.log_observed, selector.calibrations[4].log_observed)
    assert Selector.load(selector.model, tmp_path / "s.safetensors").method == "pride"


def test_a_calibration_saved_by_itself_is_loaded_with_the_papers_method(
    selector: Selector, tmp_path: Path
) -> None:
    selector.calibrations[4].save(tmp_path / "c.safetensors")
    loaded = Selector.load(selector.model, tmp_path / "c.safetensors")
    assert loaded.method == "lad"
    assert loaded.select(photos("cat", 4, 2), "cat").index == 2


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (Biased(name="other"), "model: 'biased' against 'other'"),
        (Biased(revision="2"), "revision: '1' against '2'"),
        (Biased(dtype="bfloat16"), "dtype: 'float32' against 'bfloat16'"),
    ],
)
def test_a_calibration_made_for_another_model_is_refused(
    selector: Selector, tmp_path: Path, other: Any, field: str
) -> None:
    selector.save(tmp_path / "s.safetensors")
    with pytest.raises(InputError, match=field) as error:
        Selector.load(other, tmp_path / "s.safetensors")
    assert str(tmp_path / "s.safetensors") in str(error.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"identifiers": "letters"}, "identifiers: 'numbers' against 'letters'"),
        ({"prompt": "instruction"}, "prompt: 'vanilla' against 'instruction'"),
        ({"trailing_space": True}, "trailing_space: False against True"),
    ],
)
def test_a_calibration_made_with_other_words_is_refused(
    selector: Selector, tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    selector.save(tmp_path / "s.safetensors")
    with pytest.raises(InputError, match=field):
        Selector.load(
            selector.model, tmp_path / "s.safetensors", EvidenceSettings().with_changes(**changes)
        )


def test_a_loaded_selector_asks_in_the_words_it_was_calibrated_with(
    model: Any, tmp_path: Path
) -> None:
    words = EvidenceSettings(trailing_space=True, identifiers="letters")
    Selector.calibrate(model, samples(), settings=words, progress=False).save(
        tmp_path / "s.safetensors"
    )
    Selector.load(model, tmp_path / "s.safetensors").select(photos("cat", 4, 0), "cat")
    assert model.settings_seen[-1] == words.with_changes(**model.facts)


def test_an_uncalibrated_selector_has_nothing_to_save(model: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to save"):
        Selector.uncalibrated(model).save(tmp_path / "s.safetensors")


def test_files_that_hold_no_selector_are_named(
    model: Any, selector: Selector, tmp_path: Path
) -> None:
    path = tmp_path / "s.safetensors"
    with pytest.raises(InputError, match="there is no such file"):
        Selector.load(model, path)
    selector.save(path)
    arrays, metadata = read_parts(path)
    for said, reason in [
        ("{", "its method cannot be read"),
        ('{"name": "lad"}', "its method cannot be read"),
        ('{"name": "ladd", "parameters": {}}', "did you mean lad"),
        ('{"name": "lad", "parameters": {"k": -1}}', r"lad\.k=-1"),
    ]:
        write_parts(path, arrays, metadata | {"method": said})
        with pytest.raises(InputError, match=reason) as error:
            Selector.load(model, path)
        assert str(path) in str(error.value)
    write_parts(path, {}, metadata)
    with pytest.raises(InputError, match="missing from the calibration"):
        Selector.load(model, path)


def test_calibrations_of_different_presets_do_not_share_a_file(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    fitted = Selector.calibrate(model, samples(), [2, 4], progress=False).calibrations
    mixed = {2: fitted[2], 4: replace(fitted[4], preset="released")}
    selector_file.save(mixed, "lad", {}, path)
    with pytest.raises(InputError, match="for 2 and 4 candidates were made with different"):
        Selector.load(model, path)


def test_a_calibration_for_one_candidate_is_refused(selector: Selector, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    found = selector.calibrations[4]
    small = replace(
        found,
        log_observed=found.log_observed[:1, :1],
        mean_log_probs=found.mean_log_probs[:1, :1],
        original_prior=found.original_prior[:1],
        attention_prior=found.attention_prior[:, :1],
        token_attention_prior=None,
    )
    small.save(path)
    with pytest.raises(InputError, match="is for 1 candidates"):
        Selector.load(selector.model, path)


def test_a_selector_says_what_it_is(selector: Selector) -> None:
    assert repr(selector) == "Selector('biased', lad, candidates=[4], from 5 samples)"
    assert repr(Selector.uncalibrated(selector.model)) == (
        "Selector('biased', permutation_average, uncalibrated)"
    )


def test_progress_is_shown_on_standard_error_where_it_is_wanted(
    model: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    selector = Selector.calibrate(model, samples(), progress=False)
    assert capfd.readouterr() == ("", "")
    selector.select_many([(photos("cat", 4, 0), "cat")] * 3, progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "Selecting" in shown.err
    assert "3/3" in shown.err


# -- with a real model ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny() -> Any:
    from zoo import build

    return Model.wrap(*build("llava"), self_check=False)


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    return [generator.integers(0, 255, (32, 32, 3), dtype=np.uint8) for _ in range(8)]


@pytest.mark.filterwarnings("ignore:calibration")  # random weights know nothing
def test_a_real_model_encodes_each_image_once_in_all_cyclic_orders_and_sizes(
    tiny: Any, pictures: list[Any]
) -> None:
    before = tiny.vision.encoded
    selector = Selector.calibrate(
        tiny, [("a", pictures, 3), ("b", pictures, 5)], [2, 4, 8], progress=False
    )
    assert tiny.vision.encoded - before == 8
    assert list(selector.calibrations) == [2, 4, 8]


def test_a_real_models_permutation_average_chooses_the_same_image_in_every_cyclic_order(
    tiny: Any, pictures: list[Any]
) -> None:
    selector = Selector.uncalibrated(tiny)
    queries = [([pictures[k] for k in order], "a cat") for order in cyclic_orders(5)]
    found = selector.select_many(queries, progress=False)
    assert len({order[c.index] for order, c in zip(cyclic_orders(5), found, strict=True)}) == 1
    assert len({int(c.vanilla.argmax()) for c in found}) == 1  # a position, not an image


@pytest.mark.filterwarnings("ignore:calibration")
def test_a_real_model_decides_alike_in_a_batch_and_alone(tiny: Any, pictures: list[Any]) -> None:
    selector = Selector.calibrate(tiny, [("a", pictures[:4], 3)], progress=False)
    queries = [(pictures[k : k + 4], f"caption {'long ' * k}") for k in range(4)]
    for choice, query in zip(selector.select_many(queries, progress=False), queries, strict=True):
        alone = selector.select(*query)
        np.testing.assert_allclose(choice.scores, alone.scores, atol=1e-5)
        np.testing.assert_allclose(choice.attention, alone.attention, atol=1e-4)


# -- with the photo test bed ----------------------------------------------------------------------

SHARED = Path(__file__).parents[2] / "shared"
QUESTIONS = SHARED / "testbed" / "live" / "random_4.jsonl"
PHOTOS = SHARED / "data" / "coco-val2014-6k.parquet"


def live_questions(count: int) -> list[Instance]:
    """The first recorded questions, with their photos as encoded bytes."""
    import pyarrow.parquet as pq

    table = pq.read_table(PHOTOS, columns=["file_name", "image"])
    row_of = {name: row for row, name in enumerate(table["file_name"].to_pylist())}
    records = [json.loads(line) for line in QUESTIONS.read_text().splitlines()[:count]]
    return [
        Instance(
            record["id"],
            tuple(table["image"][row_of[name]].as_py()["bytes"] for name in record["images"]),
            answer=record["answer"],
            caption=record["caption"],
        )
        for record in records
    ]


@pytest.mark.testbed
@pytest.mark.skipif("LOOKRIGHT_TESTBED" not in os.environ, reason="LOOKRIGHT_TESTBED is not set")
@pytest.mark.skipif(not (QUESTIONS.exists() and PHOTOS.exists()), reason="no recorded questions")
def test_a_real_model_is_calibrated_and_decides_as_its_recordings_say() -> None:
    recorded = load_evidence(QUESTIONS.parent / "ev_random_4.npz").cyclic
    assert recorded is not None
    model = Model.load(os.environ["LOOKRIGHT_TESTBED"])
    questions = live_questions(8)
    selector = Selector.calibrate(
        model, questions[:5], settings=EvidenceSettings(trailing_space=True), progress=False
    )
    calibration = Calibration.fit(recorded.take(instances=range(5)))
    assert selector.calibrations[4].gamma == pytest.approx(calibration.gamma, rel=0.02)
    expected = METHODS["lad"](recorded.take(orders=[0], instances=range(5, 8)), calibration)[0]
    found = selector.select_many(questions[5:], progress=False)
    assert [choice.index for choice in found] == expected.argmax(axis=-1).tolist()
    for choice, scores in zip(found, expected, strict=True):
        shares = np.exp(scores - np.logaddexp.reduce(scores))
        np.testing.assert_allclose(choice.scores, shares, atol=0.05)
