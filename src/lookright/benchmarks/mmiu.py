"""Benchmarks from MMIU: the six tasks of the paper, whose options are the images by position."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lookright.errors import InputError, shown
from lookright.identifiers import identifiers_for
from lookright.images import check_file, resolve
from lookright.instance import Instance

#: The paper's name of a task -> MMIU's.
TASKS = {
    "forensic_forgerynet": "forensic_detection_forgerynet",
    "forensic_blink": "forensic_detection_blink",
    "emotion_expw": "emotion_recognition_expw",
    "emotion_findingemo": "emotion_recognition_findingemo",
    "text2image_retrieval": "text2image_retrieval",
    "visual_quality": "visual_quality_assessment_ve_lol_l",
}
#: Tasks whose question stands before the context; in all others it stands after it.
_QUESTION_FIRST = ("text2image_retrieval",)
_ANSWER = "Please answer the option directly like A,B,C,D..."
_OPTION = re.compile(r"([A-Z]):\s*(.*)")
_IMAGE = re.compile(r"(?:the )?([a-z-]+) image", re.IGNORECASE)
_MAX_BYTES = 1 << 28


def joined(question: str, context: str, question_first: bool = False) -> str:
    """The whole prompt, as MMIU's own evaluation script joins it."""
    parts = (question, context) if question_first else (context, question)
    return "\n".join([*parts, _ANSWER])


def read_mmiu(annotations: Path, images: Path, task: str) -> tuple[list[Instance], dict[int, str]]:
    """The usable questions of a task (by the paper's name or MMIU's), and why others are not.

    A row is refused where its options are not the images in their order: then showing the images
    in another order would not move the answer with them.
    """
    wanted = TASKS.get(task, task)
    rows = [
        (number, row) for number, row in enumerate(_rows(annotations)) if row.get("task") == wanted
    ]
    if not rows:
        raise InputError(
            f"{annotations}: has no rows of the task {shown(repr(task))}; the paper's are "
            f"{', '.join(TASKS)}"
        )
    found: list[Instance] = []
    refused: dict[int, str] = {}
    for index, (number, row) in enumerate(rows):
        reason = _unusable(row)
        if reason is not None:
            refused[number] = reason
            continue
        where = f"{annotations}, row {number}"
        found.append(_instance(row, f"{wanted}-{index}", images, where))
    if not found:
        number, reason = next(iter(refused.items()))
        raise InputError(
            f"{annotations}: no row of {wanted} can be used ({len(refused)} refused); "
            f"row {number}: {reason}"
        )
    return found, refused


def _instance(row: Mapping[str, Any], name: str, images: Path, where: str) -> Instance:
    letters = identifiers_for("letters", len(row["input_image_path"]))
    files = []
    for path in row["input_image_path"]:
        # The annotations start from a folder beside the images' own.
        inside = re.sub(r"^(\.\./|\./)*(MMIU-Benchmark/)?", "", path)
        file = resolve(inside, images, f"{where}, image {shown(path)}")
        check_file(file, f"{where}, image {shown(str(file))}")
        files.append(os.fspath(file))
    return Instance(
        name,
        tuple(files),
        answer=letters.index(row["output"].strip()),
        question=joined(row["question"], row["context"], row["task"] in _QUESTION_FIRST),
        category=row["task"],
    )


def _unusable(row: Mapping[str, Any]) -> str | None:
    """Why a row cannot be asked in other orders of its images, or None where it can."""
    texts = [row.get(name) for name in ("question", "context", "options", "output")]
    paths = row.get("input_image_path")
    if not all(isinstance(text, str) for text in texts):
        return "question, context, options and output must be texts"
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        return "input_image_path must be a list of paths"
    if not 2 <= len(paths) <= 26:
        return f"has {len(paths)} images, not 2 to 26"
    options = [_OPTION.fullmatch(line.strip()) for line in row["options"].strip().splitlines()]
    if not all(options):
        return "its options are not lines of the form 'A: ...'"
    pairs = [(found[1], found[2]) for found in options if found]
    if len(pairs) != len(paths):
        return f"its {len(pairs)} options are not its {len(paths)} images"
    letters, ordinals = (identifiers_for(name, len(paths)) for name in ("letters", "words"))
    named = [_IMAGE.fullmatch(text.strip()) for _, text in pairs]
    if not all(named):
        other = next(text for (_, text), match in zip(pairs, named, strict=True) if not match)
        return f"its options are not the images (one is {shown(repr(other))})"
    if [found[1].lower() for found in named if found] != list(ordinals) or [
        letter for letter, _ in pairs
    ] != list(letters):
        return "its options name the images in another order than they stand"
    if row["output"].strip() not in letters:
        return f"its output {shown(repr(row['output']))} is none of its options"
    return None


def _rows(path: Path) -> list[dict[str, Any]]:
    if check_file(path, str(path)) > _MAX_BYTES:
        raise InputError(f"{path}: is larger than {_MAX_BYTES:,} bytes, so no MMIU annotations")
    try:
        rows = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON that can be read ({error})") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: must be a list of rows, as MMIU's all.json is")
    return rows
