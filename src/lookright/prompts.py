"""The paper's four prompt templates and their variants, nothing else."""

from __future__ import annotations

from typing import Any

from lookright.errors import InputError, shown
from lookright.identifiers import Identifiers, identifiers_for, noun_for
from lookright.instance import Instance

_FIELDS = "{caption} (and, where wanted, {n}, {first}, {last} and {noun})"

_ASK = (
    "Given {n} images indexed from {first} to {last}, identify the image that best matches the "
    "provided caption. "
)
_FAIR = (
    "Please note that the provided images have been randomly shuffled, so it is essential to "
    "consider them fairly and without bias. Analyze the visual content objectively and do not be "
    "influenced by the order of the images. "
)
_ONLY = "Respond with the {noun} only and nothing else."
_THINK = (
    "Please think step by step. First, write your reasoning inside <think> and </think> tags. "
    "Then, after the closing </think> tag, output only the final answer {single}."
)
_REASON = (
    "Think step by step to analyze the content of the images. After your reasoning, provide the "
    'final answer in the exact format: "The answer is <{short}>".'
)
_END = "\nCaption: {caption}\nAnswer:"

#: The templates of the paper's appendix. {gap} is a space, or a line break where asked for.
TEMPLATES = {
    "vanilla": _ASK + _ONLY + _END,
    "instruction": _ASK + _FAIR + _ONLY + _END,
    "chain_of_thought": _ASK.rstrip() + "{gap}" + _THINK + _END + " <think>",
    "self_consistency": _ASK.rstrip() + "{gap}" + _REASON + _END,
}


def conversation(
    instance: Instance,
    *,
    prompt: str = "vanilla",
    identifiers: Identifiers = "numbers",
    trailing_space: bool = False,
    line_break: bool = False,
    labelled: bool = False,
    system: str | None = None,
) -> list[dict[str, Any]]:
    """The chat of one instance: images first, then the text, in one user turn.

    The image parts hold no picture: they mark where the processor's placeholder goes.
    """
    names = identifiers_for(identifiers, len(instance.images))
    content: list[dict[str, str]] = []
    for name in names:
        if labelled:
            content.append({"type": "text", "text": f"Image {name}:"})
        content.append({"type": "image"})
    text = instance.question
    if text is None:
        text = _filled(prompt, identifiers, names, line_break, instance.caption or "")
    content.append({"type": "text", "text": text + " " if trailing_space else text})
    turns: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if system is not None:
        turns.insert(0, {"role": "system", "content": [{"type": "text", "text": system}]})
    return turns


def check_template(prompt: str) -> None:
    """Refuse an unknown template, or one of one's own that names something no instance has."""
    if prompt not in TEMPLATES and "{caption}" not in prompt:
        raise InputError(
            f"unknown prompt {shown(repr(prompt))}: use one of {', '.join(TEMPLATES)}, "
            f"or a template of your own that holds {_FIELDS}"
        )
    try:
        _filled(prompt, "numbers", ("1", "2"), False, "")
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise InputError(
            f"prompt template: {error} has no meaning there; it may hold {_FIELDS}"
        ) from None


def _filled(
    prompt: str, identifiers: Identifiers, names: tuple[str, ...], line_break: bool, caption: str
) -> str:
    noun = noun_for(identifiers)
    number = identifiers == "numbers"
    span = f"from {names[0]} to {names[-1]}"
    return TEMPLATES.get(prompt, prompt).format(
        n=len(names),
        first=names[0],
        last=names[-1],
        noun=noun,
        short="index" if number else noun,
        single=f"index (a single integer {span})" if number else f"{noun} ({span})",
        gap="\n" if line_break else " ",
        caption=caption,
    )
