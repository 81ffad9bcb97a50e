"""The tokenizer and chat template of the tiny models: the same for every family but its markers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from lookright.prompts import TEMPLATES

END_OF_TURN = "<|im_end|>"
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<|im_start|>", END_OF_TURN]


@cache
def _trained() -> str:
    """A byte-level BPE over the words of our prompts; every digit is a token of its own."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEMPLATES.values(), trainer)
    return str(tokenizer.to_str())


def make_tokenizer(
    specials: Sequence[str] = (), names: dict[str, str] | None = None, bos: bool = False
) -> PreTrainedTokenizerFast:
    """A tokenizer with these special tokens; `names` makes attributes (image_token) of some."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained()),
        pad_token="<pad>",
        eos_token=END_OF_TURN,
        unk_token="<unk>",
        bos_token="<s>" if bos else None,
        padding_side="left",
        extra_special_tokens=names or {},
    )
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [*specials, "<|im_start|>"]},
        replace_extra_special_tokens=False,
    )
    return tokenizer


def chat_template(image: str) -> str:
    """A chat template of our own; `image` is what stands for one image in the prompt."""
    return (
        "{% for turn in messages %}<|im_start|>{{ turn.role }}\n"
        "{% if turn.content is string %}{{ turn.content }}{% else %}"
        "{% for part in turn.content %}"
        "{% if part.type == 'image' %}" + image + "{% else %}{{ part.text }}{% endif %}"
        "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
