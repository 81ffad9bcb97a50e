"""From (instance, order) to the tensors a model takes, by the model's own processor.

Where the processor keeps a record of what it puts in an image's place, each image is processed
once, whatever the orders: its replacement is put into every prompt and its tensors are kept as a
`Piece`. Whether that equals the processor's own work is tried out when the encoder is made; where
it does not, the processor is given every prompt whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import torch
from jinja2 import TemplateError
from PIL import Image
from torch import Tensor

from lookright.errors import InputError, reason
from lookright.instance import Instance, Order
from lookright.recent import Recent
from lookright.settings import EvidenceSettings
from lookright.spans import counts_by_runs, visual_regions, with_delimiters

#: How much memory processed images may take that are kept for the orders to come.
PIECES_BYTES = 1 << 29


@dataclass(frozen=True, eq=False)
class Piece:
    """One image as the processor sees it."""

    replacement: str  # what stands in the prompt's text in its place
    tensors: dict[str, Tensor]  # what the vision tower takes
    visual: int  # how many visual tokens it has

    @property
    def bytes(self) -> int:
        return sum(value.numel() * value.element_size() for value in self.tensors.values())


@dataclass(frozen=True, eq=False)
class Prompt:
    """One (instance, order) as tokens."""

    instance: Instance
    order: Order
    text: str  # the chat with a placeholder for each image
    tokens: list[int]
    regions: list[int]  # per token: the position of its image, or -1
    images: tuple[str, ...]  # by position: the image's content hash
    keys: tuple[str, ...]  # by position: the same, with the options it is processed by
    pieces: tuple[Piece, ...] = ()  # by position; empty where prompts are processed whole
    whole: Mapping[str, Tensor] = field(default_factory=dict)  # the processor's work, else
    place: int = 0  # among the questions asked together


class Encoder:
    """A processor and what was found out about it."""

    def __init__(
        self,
        processor: Any,
        image_token: int,
        token_types: bool,
        released: Callable[[int], dict[str, Any]] = lambda n: {},
    ) -> None:
        """`token_types`: whether the model takes mm_token_type_ids; `released`: the image options
        the released code gives this family for n images."""
        self.processor = processor
        self._released = released
        self._options = {"return_mm_token_type_ids": True} if token_types else {}
        self.tokenizer = processor.tokenizer
        self._lock = RLock()
        self._nested = True
        self.image_token = image_token
        self.special = set(self.tokenizer.all_special_ids) | set(
            self.tokenizer.get_added_vocab().values()
        )
        self._control = {
            number
            for number, token in getattr(self.tokenizer, "added_tokens_decoder", {}).items()
            if token.special and number != self.tokenizer.unk_token_id
        }
        self.pad = next(
            t
            for t in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, 0)
            if t is not None
        )
        self._pieces: Recent[Piece] = Recent(PIECES_BYTES)
        self.placeholder, self.copies = self._way_of_working()

    def prompt(
        self,
        instance: Instance,
        order: Order,
        settings: EvidenceSettings,
        hashes: Sequence[str],
        loads: Sequence[Callable[[], Image.Image]],
        chat: list[dict[str, Any]] | None = None,
    ) -> Prompt:
        """Tokens of one (instance, order); `hashes[i]` and `loads[i]` are of image i.

        `chat` is a chat of one's own, with as many images as the order names.
        """
        self._check_words(instance)
        text = self.render(instance, settings) if chat is None else self._chat(chat)
        images = tuple(hashes[index] for index in order)
        options = settings.processor_kwargs
        if settings.scoring == "released":
            options = self._released(len(order)) | options
        keys = tuple(f"{h}/{settings.image_size}/{options}" for h in images)
        asked = f"instance {instance.id!r}"
        if self.copies:
            pieces = tuple(
                self._piece(key, loads[index], options, asked)
                for key, index in zip(keys, order, strict=True)
            )
            tokens = self._tokens(text, pieces)
            counts = [piece.visual for piece in pieces]
            whole: Mapping[str, Tensor] = {}
        else:
            pieces = ()
            made = self.whole(text, [loads[index]() for index in order], options, asked)
            tokens = made["input_ids"][0].tolist()
            counts = _recorded_counts(made, self.processor)
            counts = counts or counts_by_runs(tokens, self.image_token, len(order))
            whole = {k: v for k, v in made.items() if isinstance(v, Tensor)}
        regions = visual_regions(tokens, self.image_token, counts)
        if settings.image_tokens == "delimited":
            regions = with_delimiters(regions, tokens, self.special)
        return Prompt(instance, order, text, tokens, regions, images, keys, pieces, whole)

    def _check_words(self, instance: Instance) -> None:
        """Refuse words that are control tokens: they would end the turn or stand for an image."""
        words = instance.caption if instance.question is None else instance.question
        if found := self._control.intersection(self._ids(words or "")):
            token = self.tokenizer.convert_ids_to_tokens(min(found))
            raise InputError(
                f"instance {instance.id!r}: its words contain {token!r}, a control token of this "
                "model; write it in another way"
            )

    def render(self, instance: Instance, settings: EvidenceSettings) -> str:
        return self._chat(settings.conversation(instance))

    def collate(self, prompts: Sequence[Prompt]) -> tuple[dict[str, Tensor], Tensor]:
        """Left-padded model inputs without the pictures, and regions [batch, tokens]."""
        width = max(len(prompt.tokens) for prompt in prompts)

        def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
            return torch.tensor([[fill] * (width - len(row)) + list(row) for row in rows])

        tokens = padded([prompt.tokens for prompt in prompts], self.pad)
        regions = padded([prompt.regions for prompt in prompts], -1)
        mask = padded([[1] * len(prompt.tokens) for prompt in prompts], 0)
        inputs = {"input_ids": tokens, "attention_mask": mask}
        pieces = [piece for prompt in prompts for piece in prompt.pieces]
        if pieces:
            visual = (tokens == self.image_token).long()
            inputs |= dict.fromkeys(self._token_keys, visual)
            for name in pieces[0].tensors:
                if name.startswith("pixel_values"):
                    inputs[name] = torch.zeros(1)  # never looked at: the features are served
                elif len({piece.tensors[name].shape[1:] for piece in pieces}) == 1:
                    inputs[name] = torch.cat([piece.tensors[name] for piece in pieces])
        else:
            for name in prompts[0].whole:
                values = [prompt.whole[name] for prompt in prompts]
                if name in ("input_ids", "attention_mask"):
                    continue
                if name in self._token_keys:
                    inputs[name] = padded([value[0].tolist() for value in values], 0)
                else:
                    inputs[name] = _cat_padded(values)
        return inputs, regions

    def answer_lead(self, instance: Instance, settings: EvidenceSettings) -> tuple[str, list[int]]:
        """White space the chat template puts before an answer, and the special tokens after it."""
        chat = settings.conversation(instance)
        asked = self._chat(chat)
        word = "1"
        turn = {"role": "assistant", "content": [{"type": "text", "text": word}]}
        try:
            answered = self._chat([*chat, turn], add_generation_prompt=False)
        except Exception:  # a template that knows no assistant turn says so in its own way
            return "", []
        rest = answered.removeprefix(asked)
        lead = rest[: len(rest) - len(rest.lstrip())]
        if not answered.startswith(asked) or not rest.lstrip().startswith(word):
            return "", []
        after = self._ids(rest.lstrip()[len(word) :].lstrip())
        return lead, [token for token in after[:1] if token in self.special]

    def tail(self, text: str) -> str:
        """The words of a prompt after its last image."""
        return text.rsplit(self.placeholder, 1)[-1] if self.placeholder else text

    def answer_tokens(self, tail: str, answer: str) -> list[int]:
        """Tokens of `answer` in its place after a prompt's last words."""
        before, both = self._ids(tail), self._ids(tail + answer)
        return both[len(before) :] if both[: len(before)] == before else self._ids(answer)

    def decode(self, rows: Tensor) -> list[str]:
        with self._lock:
            return list(self.tokenizer.batch_decode(rows, skip_special_tokens=True))

    def _ids(self, text: str, special: bool = False) -> list[int]:
        with self._lock:  # a fast tokenizer cannot be used by two threads at once
            return list(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def _chat(self, turns: list[dict[str, Any]], add_generation_prompt: bool = True) -> str:
        try:
            text = self.processor.apply_chat_template(
                turns, add_generation_prompt=add_generation_prompt, tokenize=False
            )
        except (ValueError, TemplateError) as error:
            raise InputError(
                f"{type(self.processor).__name__} has no usable chat template: {error}"
            ) from None
        return str(text)

    def _special_tokens_wanted(self, text: str) -> bool:
        """Whether the tokenizer still has to add its own (a template may have written them)."""
        bos = self.tokenizer.bos_token
        return bos is None or not text.startswith(bos)

    def whole(
        self,
        text: str,
        pictures: Sequence[Image.Image],
        options: Mapping[str, Any],
        asked: str = "a trial prompt",
    ) -> dict[str, Any]:
        """The processor's own work on one whole prompt; `asked` is what messages call it."""
        try:
            with self._lock:
                made = self.processor(
                    text=[text],
                    images=[list(pictures)] if self._nested else list(pictures),
                    images_kwargs=dict(options),
                    add_special_tokens=self._special_tokens_wanted(text),
                    return_text_replacement_offsets=True,
                    return_tensors="pt",
                    **self._options,
                )
        except Exception as error:  # a processor stumbles over anything in its own way
            under = f" with the processor_options {dict(options)}" if options else ""
            raise InputError(
                f"{asked}: the processor cannot take its images{under} ({reason(error)})"
            ) from None
        return {name: value for name, value in made.items() if name != "labels"}

    def _piece(
        self, key: str, load: Callable[[], Image.Image], options: Mapping[str, Any], asked: str
    ) -> Piece:
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._made_alone(load(), options, self.copies, asked)
            self._pieces.put(key, piece)
        return piece

    def _made_alone(
        self, picture: Image.Image, options: Mapping[str, Any], copies: int, asked: str
    ) -> Piece:
        made = self.whole(self.placeholder * copies, [picture] * copies, options, asked)
        record = made["text_replacement_offsets"][0]
        tensors = {
            name: value.chunk(copies)[0]
            for name, value in made.items()
            if isinstance(value, Tensor) and name not in (*_TEXT_KEYS, *self._token_keys)
        }
        replacement = record[0]["replacement"]
        return Piece(replacement, tensors, self._ids(replacement).count(self.image_token))

    def _tokens(self, text: str, pieces: Sequence[Piece]) -> list[int]:
        parts = text.split(self.placeholder)
        if len(parts) != len(pieces) + 1:
            raise InputError(
                f"the prompt has {len(parts) - 1} places for {len(pieces)} images; does the "
                f"caption or question contain {self.placeholder!r}?"
            )
        expanded = parts[0] + "".join(
            piece.replacement + part for piece, part in zip(pieces, parts[1:], strict=True)
        )
        return self._ids(expanded, self._special_tokens_wanted(text))

    def _way_of_working(self) -> tuple[str, int]:
        """The placeholder of an image and how many copies make a piece; ("", 0): only whole.

        Some processors cut an image that stands alone into more tiles than one among others: a
        piece is then cut from a pair.
        """
        sizes = ((80, 48), (64, 64), (40, 96))
        pictures = [Image.linear_gradient("L").resize(size).convert("RGB") for size in sizes]
        trial = Instance("trial", ("a", "b", "c"), caption="a trial")
        text = self.render(trial, EvidenceSettings())
        try:
            whole = self.whole(text, pictures, {})
        except ValueError:  # a processor that takes the pictures of all prompts in one row
            self._nested = False
            whole = self.whole(text, pictures, {})
        length = whole["input_ids"].shape[1]
        self._token_keys = tuple(
            name
            for name, value in whole.items()
            if isinstance(value, Tensor)
            and tuple(value.shape) == (1, length)
            and name not in _TEXT_KEYS
        )
        record = whole.get("text_replacement_offsets")
        if not record or len(record[0]) != len(pictures):
            return "", 0
        self.placeholder = str(record[0][0]["text"])
        visual = (whole["input_ids"] == self.image_token).long()
        if any(not torch.equal(whole[name], visual) for name in self._token_keys):
            return "", 0
        for copies in (1, 2):
            try:
                pieces = [self._made_alone(p, {}, copies, "a trial prompt") for p in pictures]
            except ValueError:  # a processor that takes no placeholder without its surroundings
                break
            if self._tokens(text, pieces) == whole["input_ids"][0].tolist():
                return self.placeholder, copies
        return "", 0


_TEXT_KEYS = ("input_ids", "attention_mask")


def _recorded_counts(made: Mapping[str, Any], processor: Any) -> list[int]:
    """Visual tokens per image by the processor's record of its replacements, where it has one."""
    record = made.get("text_replacement_offsets")
    token = getattr(processor, "image_token", None)
    if not record or token is None:
        return []
    return [entry["replacement"].count(token) for entry in record[0]]


def _cat_padded(values: Sequence[Tensor]) -> Tensor:
    """Along the first dimension, the others padded with zeros to the largest."""
    shape = [max(sizes) for sizes in zip(*(value.shape[1:] for value in values), strict=True)]
    padded = [
        torch.nn.functional.pad(
            value,
            [
                n
                for have, want in zip(value.shape[:0:-1], shape[::-1], strict=True)
                for n in (0, want - have)
            ],
        )
        for value in values
    ]
    return torch.cat(padded)
