"""Figures: what they show, and that they can be read on white, on dark and in greyscale."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb, to_rgba
from matplotlib.figure import Figure
from PIL import Image

from lookright import InputError
from lookright.report import plots
from lookright.report.look import INK, QUIET, RAMP, WORDS, save_figure, shortened

RANDOM = np.random.default_rng(0)


def shares(n: int) -> Any:
    return RANDOM.dirichlet(np.ones(n))


def matrix(n: int) -> Any:
    return 100 * RANDOM.dirichlet(np.ones(n), size=n)


FIGURES: dict[str, Callable[[int], Figure]] = {
    "logits_against_attention": lambda n: plots.logits_against_attention(
        shares(n), shares(n), target=n - 1, debiased=("lad", shares(n)), title="a cat"
    ),
    "bias_matrix": lambda n: plots.bias_matrix(np.log(matrix(n) / 100)),
    "confusion": lambda n: plots.confusion({"vanilla": matrix(n), "lad": matrix(n)}),
    "recall_by_position": lambda n: plots.recall_by_position(
        {name: 100 * shares(n) for name in ("vanilla", "pride", "lad", "other")}
    ),
    "prior_by_layer": lambda n: plots.prior_by_layer(matrix(n)[:, :n] / 100, range(n)),
}


def drawn(figure: Figure) -> np.ndarray[Any, Any]:
    """[height, width, 4]"""
    out = BytesIO()
    figure.savefig(out, format="png")
    return np.array(Image.open(out).convert("RGBA"))


def texts(figure: Figure) -> list[str]:
    """Every word a figure shows but its axes' ticks."""
    return [text.get_text() for axis in figure.axes for text in axis.texts]


def luminance(colour: str) -> float:
    """As accessibility guidelines define it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("n", [2, 4, 12, 26])
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_with_nothing_behind_it(name: str, n: int) -> None:
    pixels = drawn(FIGURES[name](n))
    corners = pixels[[0, 0, -1, -1], [0, -1, 0, -1]]
    assert (corners[:, 3] == 0).all()
    assert (pixels[..., 3] == 255).any()


@pytest.mark.parametrize("name", FIGURES)
def test_no_word_leaves_its_figure(name: str) -> None:
    figure = FIGURES[name](4)
    pixels = drawn(figure)
    assert (pixels[:, [0, -1], 3] == 0).all()
    assert (pixels[[0, -1], :, 3] == 0).all()


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117", "#000000"])
def test_words_can_be_read_on_a_white_and_on_a_dark_page(page: str) -> None:
    assert contrast(WORDS, page) > 4
    assert contrast(INK, page) > 3


def test_all_words_outside_tiles_are_of_that_grey() -> None:
    figure = FIGURES["recall_by_position"](4)
    for axis in figure.axes:
        assert {label.get_color() for label in axis.get_xticklabels()} == {WORDS}
        assert {text.get_color() for text in axis.texts} == {WORDS}
    assert figure._suptitle is not None
    assert figure._suptitle.get_color() == WORDS


def test_more_is_darker_also_without_colour() -> None:
    light = [luminance(colour) for colour in RAMP]
    assert light == sorted(light, reverse=True)
    assert contrast(RAMP[0], RAMP[-1]) > 10


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
def test_what_stands_back_is_fainter_than_what_stands_out_on_any_page(page: str) -> None:
    *grey, alpha = to_rgba(QUIET)
    seen = [alpha * g + (1 - alpha) * p for g, p in zip(grey, to_rgb(page), strict=True)]
    assert 1.3 < contrast(to_hex(seen), page) < 0.6 * contrast(INK, page)


def test_numbers_can_be_read_on_every_tile() -> None:
    figure = plots.bias_matrix(np.linspace(0, 1, 144).reshape(12, 12))
    (axis,) = figure.axes
    for patch, text in zip(axis.patches, axis.texts, strict=True):
        assert contrast(patch.get_facecolor()[:3], text.get_color()) > 3  # type: ignore[arg-type]


def test_the_divergence_picture_marks_the_target_and_both_picks() -> None:
    figure = plots.logits_against_attention(
        np.array([0.1, 0.2, 0.7]), np.array([0.2, 0.5, 0.3]), names=["a", "b", "c"], target=1
    )
    logits, attention = figure.axes
    assert [text.get_text() for text in logits.texts] == ["10%", "20%", "70% pick"]
    assert [text.get_text() for text in attention.texts] == ["20%", "50% pick", "30%"]
    assert [label.get_text() for label in logits.get_yticklabels()] == ["a", "b (target)", "c"]
    widths = [bar.get_width() for bar in logits.containers[0]]
    assert widths == pytest.approx([10, 20, 70])
    assert [logits.get_title("left"), attention.get_title("left")] == ["logits", "attention"]
    for axis, pick in ((logits, 2), (attention, 1)):
        inked = [bar.get_facecolor()[:3] == to_rgb(INK) for bar in axis.containers[0]]
        assert inked == [row == pick for row in range(3)]


def test_images_stand_from_top_to_bottom_as_they_were_given() -> None:
    figure = plots.logits_against_attention(shares(3), shares(3))
    low, high = figure.axes[0].get_ylim()
    assert low > high
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["image 0", "image 1", "image 2"]


def test_a_matrix_has_a_row_for_each_target_and_a_column_for_each_answer() -> None:
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    figure = plots.confusion({"vanilla": values}, identifiers=["A", "B"])
    (axis,) = figure.axes
    places = {text.get_text(): text.get_position() for text in axis.texts}
    assert places == {"1": (0, 0), "2": (1, 0), "3": (0, 1), "4": (1, 1)}
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("answer", "target's position")
    assert [label.get_text() for label in axis.get_xticklabels()] == ["A", "B"]


def test_positions_that_never_held_a_target_say_so() -> None:
    values = np.array([[50.0, 50.0], [np.nan, np.nan]])
    assert texts(plots.confusion({"vanilla": values})) == ["50", "50", "none", "none"]


def test_a_large_matrix_has_a_key_instead_of_numbers() -> None:
    figure = plots.bias_matrix(np.log(matrix(16) / 100))
    assert texts(figure) == []
    assert len(figure.axes) == 2


def test_each_method_has_a_panel_with_its_mean_and_the_others_behind() -> None:
    recalls = {"vanilla": np.array([90.0, 10.0]), "lad": np.array([70.0, 60.0])}
    figure = plots.recall_by_position(recalls)
    assert [axis.get_title("left") for axis in figure.axes] == ["vanilla: 50.0", "lad: 65.0"]
    for axis, own in zip(figure.axes, recalls.values(), strict=True):
        inked = [line for line in axis.lines if line.get_color() == INK]
        np.testing.assert_array_equal(inked[0].get_ydata(), own)
        assert len(axis.lines) == 3  # the other method, chance, its own
    assert {"90", "10", "chance"} <= set(texts(figure))


def test_a_panel_left_over_is_empty() -> None:
    figure = plots.recall_by_position({name: shares(4) for name in "abcde"})
    assert [axis.axison for axis in figure.axes] == [True] * 5 + [False]


def test_methods_without_figures_by_position_are_left_out() -> None:
    recalls: Any = {"lad": [70.0, 60.0], "permutation_average": [None, None]}
    assert len(plots.recall_by_position(recalls).axes) == 1
    with pytest.raises(InputError, match="nothing to plot"):
        plots.recall_by_position({"permutation_average": np.full(4, np.nan)})
    with pytest.raises(InputError, match="nothing to plot"):
        plots.confusion({})


def test_the_heaviest_layers_are_named_by_the_decoders_numbers() -> None:
    prior = np.array([[0.01, 0.02], [0.2, 0.3], [0.1, 0.1]])
    figure = plots.prior_by_layer(prior, [3, 7, 11])
    above, below, _ = figure.axes
    assert sorted(text.get_text() for text in above.texts) == ["11: 20%", "7: 50%"]
    assert [label.get_text() for label in below.get_xticklabels()] == ["3", "7", "11"]
    darkest = max(below.patches, key=lambda tile: -sum(tile.get_facecolor()[:3]))
    assert darkest.get_xy() == pytest.approx((-0.47, 0.53))  # layer 3, position 2: two thirds


def test_a_layer_that_never_looks_at_an_image_is_drawn() -> None:
    drawn(plots.prior_by_layer(np.zeros((2, 4)), [0, 1]))
    with pytest.raises(InputError, match="no layers"):
        plots.prior_by_layer(np.zeros((0, 4)), [])


def test_dollars_and_letters_no_font_has_are_drawn_as_they_are(tmp_path: Path) -> None:
    figure = plots.logits_against_attention(
        shares(2), shares(2), names=["$a_1$.jpg", "\u732b.jpg"], title="for $5 or $6 a \u732b"
    )
    save_figure(figure, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 0


def test_a_long_caption_goes_on_on_another_line() -> None:
    short = plots.logits_against_attention(shares(2), shares(2), title="a cat")
    long = plots.logits_against_attention(shares(2), shares(2), title="a cat on a mat " * 8)
    assert long._suptitle is not None
    assert "\n" in long._suptitle.get_text()
    assert long.get_figheight() > short.get_figheight()


def test_a_long_name_keeps_its_ends() -> None:
    assert shortened("COCO_val2014_000000271977.jpg", 20) == "COCO_val2…271977.jpg"
    assert len(shortened("x" * 50, 20)) == 20
    assert shortened("a\n b", 20) == "a b"


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_figure_is_saved_in_the_format_of_its_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"figure{suffix}"
    save_figure(FIGURES["bias_matrix"](2), path)
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    assert path.read_bytes().startswith(starts[suffix])


@pytest.mark.parametrize(
    ("name", "reason"),
    [("figure.jpg", "must end in"), ("figure", "must end in"), ("no/figure.png", "no folder")],
)
def test_a_figure_that_cannot_be_saved_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        save_figure(FIGURES["bias_matrix"](2), tmp_path / name)
    with pytest.raises(InputError, match="cannot be written"):
        save_figure(FIGURES["bias_matrix"](2), tmp_path / f"{'x' * 300}.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        save_figure(FIGURES["bias_matrix"](2), tmp_path / "folder.png")


def test_drawing_loads_no_pyplot() -> None:
    code = (
        "import sys, io, numpy as np; from lookright.report import plots\n"
        "plots.bias_matrix(np.eye(3)).savefig(io.BytesIO())\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
