"""The page on the method: every equation, function and test that it names is there."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
import torch

from lookright.attention import Probe

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "method.md").read_text(encoding="utf-8")
PAPER = TESTS.parents[1] / "shared" / "paper" / "paper.tex"


def test_attention_is_summed_over_an_images_tokens_and_averaged_over_heads() -> None:
    regions = torch.tensor([[-1, 0, 0, 1, -1, 1, 1]])  # which image each token belongs to
    weights = torch.tensor(
        [[[0.1, 0.2, 0.1, 0.3, 0.1, 0.1, 0.1], [0.2, 0.1, 0.1, 0.1, 0.1, 0.2, 0.2]]]
    )
    probe = Probe(regions, images=2)
    probe.keep(7, weights)  # equation 6
    wanted = [[((0.2 + 0.1) + (0.1 + 0.1)) / 2, ((0.3 + 0.1 + 0.1) + (0.1 + 0.2 + 0.2)) / 2]]
    torch.testing.assert_close(probe.rows[7], torch.tensor(wanted))


def test_every_equation_of_the_paper_has_its_row() -> None:
    rows = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    assert sorted(rows) == list(range(1, 17))


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not here")
def test_the_paper_has_as_many_equations_as_the_page() -> None:
    assert PAPER.read_text(encoding="utf-8").count(r"\begin{equation}") == 16


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(lookright(?:\.\w+)+)`", PAGE))))
def test_a_function_named_on_the_page_exists(name: str) -> None:
    names = name.split(".")
    for count in range(len(names), 0, -1):
        with suppress(ModuleNotFoundError):
            found = import_module(".".join(names[:count]))
            break
    for attribute in names[count:]:
        found = getattr(found, attribute)


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(test_\w+\.py::test_\w+)`", PAGE))))
def test_a_test_named_on_the_page_exists(named: str) -> None:
    file, name = named.split("::")
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
