"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from zoo import save

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\s*^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block of Python, and what the README says it prints (None where it says nothing)."""

    line: int
    code: str
    output: str | None


def python_blocks(text: str) -> list[Block]:
    """Every ```python block; a ```text block straight after it holds what it prints."""
    return [
        Block(text.count("\n", 0, found.start()) + 1, found["code"], found["output"])
        for found in BLOCK.finditer(text)
    ]


BLOCKS = python_blocks(README.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with photos, and with a tiny model under the name of the one the README loads."""
    place = tmp_path_factory.mktemp("readme")
    save("qwen2_5_vl", place / "Qwen" / "Qwen2.5-VL-3B-Instruct")
    for name in ("a", "b", "c", "d"):
        Image.linear_gradient("L").resize((64, 48)).save(place / f"{name}.jpg")
    return place


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"line {block.line}")
def test_a_block_of_the_readme_runs_and_prints_what_stands_below_it(
    block: Block, folder: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.code], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    if block.output is not None:
        assert done.stdout == block.output


def test_the_first_block_of_the_readme_shows_its_output() -> None:
    assert BLOCKS[0].output


def test_the_readme_names_only_make_targets_that_exist() -> None:
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", README.read_text(encoding="utf-8"))) <= targets


def test_the_readme_names_only_commands_that_exist() -> None:
    named = set(re.findall(r"`lookright ([a-z]+)", README.read_text(encoding="utf-8")))
    done = subprocess.run(
        [sys.executable, "-m", "lookright.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    listed = set(re.findall(r"^  ([a-z]+)", done.stdout, re.MULTILINE))
    assert named <= listed


def test_blocks_are_found_with_their_output() -> None:
    text = "a\n```python\nx\n```\n\n```text\n1\n```\nb\n```python\ny\n```\nc\n```text\n2\n```\n"
    assert python_blocks(text) == [Block(2, "x\n", "1\n"), Block(10, "y\n", None)]
