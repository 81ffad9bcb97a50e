"""The table of model types in docs/models.md, measured anew.

    python tests/models_table.py

writes the page. A test compares it with what it measures, in all but the digits of differences.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from asking import asked, prompt_of, question, stock_inputs
from lookright.backbone import Backbone, Reading
from lookright.candidates import Trie, build_trie
from lookright.families import ALONE, REFUSED
from zoo import BARE, NOT_BUILT, ZOO, build

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
TYPES = sorted(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
CHECKED = sorted({*ZOO, *BARE})

#: Types whose layers have different numbers of heads, which cannot be kept.
UNEVEN = {"step3p7"}
#: All differences must stay below it.
BAR = 1e-5


@dataclass(frozen=True)
class Measured:
    """The largest differences of one tiny model's evidence, and what its masses are."""

    attention: float  # each head's mass and each token's weight, against stock eager attention
    scores: float  # the candidates' log-probabilities, against those of the same stock pass
    batch: float  # both, in a left-padded batch against alone
    mass: float  # the largest on an image, in the layer where it is smallest
    spread: float  # between the masses of the images, in the layer where it is smallest
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class _Asked:
    """A prompt about three images, alone and as the last and shorter of two."""

    backbone: Backbone
    stock: dict[str, Tensor]  # what the model's own forward takes
    regions: Tensor  # [tokens]
    trie: Trie
    alone: Reading
    together: Reading


@cache
def measured(model_type: str) -> Measured:
    """Our evidence of a prompt beside a pass of the model's own with stock eager attention."""
    made = _bare(model_type) if model_type in BARE else _with_processor(model_type)
    rows, logits = _stock(model_type, made)
    member = torch.stack([(made.regions == k).float() for k in range(3)], -1)  # [tokens, images]
    assert made.alone.tokens is not None
    means = torch.stack([row.mean(0) for row in rows])  # [layers, tokens]
    differences = [
        _apart(made.alone.tokens[0], means),
        _apart(made.alone.attention[0], means @ member),
    ]
    if made.alone.heads is not None:
        differences.append(_apart(made.alone.heads[0], torch.stack(rows) @ member))
    root = [node.children for node in made.trie.nodes]
    assert made.trie.later == ()
    scores = logits[list(root[0])].log_softmax(-1)
    in_batch = max(
        _apart(made.together.attention[-1], made.alone.attention[0]),
        _apart(made.together.log_probs[-1], made.alone.log_probs[0]),
    )
    masses = made.alone.attention[0]  # [layers, images]
    masses = masses[masses.sum(-1) > 0]  # windows may be shorter than the words after the images
    return Measured(
        max(differences),
        _apart(made.alone.log_probs[0], scores),
        in_batch,
        float(masses.amax(-1).min()),
        float((masses.amax(-1) - masses.amin(-1)).min()),
        tuple(_remarks(model_type, made.backbone)),
    )


def _with_processor(model_type: str) -> _Asked:
    model = asked(model_type)
    order = (1, 2, 0)
    prompts = [prompt_of(model, question(number, 3), order) for number in (1, 0)]
    alone, longer = prompts[1], prompts[0]
    trie = model._trie(alone, model.settings())
    together = [alone] if model_type in ALONE else [longer, alone]
    readings = []
    for batch in ([alone], together):
        inputs, regions = model.encoder.collate(batch)
        features = model._features(batch)
        readings.append(model.backbone.read(inputs, features, regions, 3, trie, True, True))
    stock = stock_inputs(model, question(0, 3), order)
    return _Asked(model.backbone, stock, torch.tensor(alone.regions), trie, *readings)


def _bare(model_type: str) -> _Asked:
    hf, prompt = BARE[model_type]()
    backbone = Backbone(hf)
    length = prompt.inputs["input_ids"].shape[1]
    regions = torch.full((1, length), -1)
    for position, (start, stop) in enumerate(prompt.spans):
        visual = prompt.inputs["input_ids"][0, start:stop] == backbone.image_token
        regions[0, start:stop] = torch.where(visual, position, -1)
    words = [int(token) for token in prompt.inputs["input_ids"][0, -30:].unique()[:4]]
    trie = build_trie("123", [[word] for word in words[:3]], words[3:])
    heads = model_type not in UNEVEN
    alone = backbone.read(prompt.inputs, None, regions, 3, trie, heads, True)
    together = alone
    if model_type not in ALONE:
        doubled, wider = _twice(prompt.inputs), torch.cat([torch.full((1, 4), -1), regions], 1)
        together = backbone.read(doubled, None, wider.repeat(2, 1), 3, trie)
    return _Asked(backbone, prompt.inputs, regions[0], trie, alone, together)


def _twice(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The prompt with four words more before it, and the prompt padded to that length."""
    length = inputs["input_ids"].shape[1]
    doubled = {}
    for name, value in inputs.items():
        if tuple(value.shape) != (1, length):
            doubled[name] = torch.cat([value, value])
            continue
        first = value[:, -4:] if name == "input_ids" else value[:, :1].expand(1, 4)
        longer = torch.cat([first, value], 1)
        padded = torch.cat([torch.zeros_like(first), value], 1)
        doubled[name] = torch.cat([longer, padded])
    return doubled


@torch.inference_mode()
def _stock(model_type: str, made: _Asked) -> tuple[list[Tensor], Tensor]:
    """The last row of each attention layer [heads, tokens] and the last logits, of another copy of
    the model, by transformers alone."""
    hf = build(model_type)[0]
    hf.set_attn_implementation("eager")
    output = hf(**made.stock, use_cache=False, output_attentions=True)
    rows = [weights[0, :, -1] for weights in output.attentions if weights is not None]
    assert len(rows) == len(made.backbone.layers)
    return rows, output.logits[0, -1]


def _apart(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max())


def _remarks(model_type: str, backbone: Backbone) -> list[str]:
    kinds = getattr(backbone.text_config, "layer_types", None) or []
    remarks = []
    if len(backbone.layers) < backbone.text_config.num_hidden_layers:
        remarks.append("evidence of its attention layers alone")
    if any("sliding" in kind or "chunk" in kind for kind in kinds):
        remarks.append("layers with windows do not see far images")
    if model_type in BARE:
        remarks.append("processor not checked")
    elif not asked(model_type).encoder.copies:
        remarks.append("images encoded with every prompt")
    if model_type in ALONE:
        remarks.append(ALONE[model_type])
    return remarks


# The page


_TEXT = """\
# Models

Which of the image-text-to-text model types of transformers ({version}) give evidence. A model's
type is the `model_type` in its `config.json`.

| verdict | types |
| --- | --- |
| [checked](#checked) | {checked} |
| [refused](#refused) | {refused} |
| [not checked](#not-checked) | {unchecked} |

This page is written by `python tests/models_table.py`; the tests fail when it says anything else
than what they measure.

## Checked

A tiny model of the real class, with random weights and its real processor, is asked about three
images in float32, and beside it transformers' own forward pass with eager attention and the whole
prompt from the processor. Three differences are taken, the largest of each, and all must stay below
1e-5:

- *attention*: the last prompt token's attention on each image, head by head and token by token, in
  every layer that attends to tokens;
- *scores*: the log-probabilities of the candidates;
- *batch*: both of them in a left-padded batch, against the same prompt alone. Where this says
  *alone*, prompts are asked one at a time: the model's own code answers otherwise in a batch.

Beyond the table, the tests compare the joint scores with brute force (4 and 12 numbers, letters,
Roman numerals, words and a list of one's own; every prefix by a plain forward pass) to 1e-5, and
change one image at a time to see which of the decoder's inputs change with it: its visual tokens
and no others.

What a check cannot say is whether a model is any good at the question, or whether somebody's
checkpoint was changed after it was published. That its evidence is what its own attention does is
tried again for every checkpoint at its first use: see [not checked](#not-checked).

Images are encoded once for all orders and prompts they appear in, unless the remark says otherwise.

| type | attention | scores | batch | remarks |
| --- | --- | --- | --- | --- |
{table_checked}

*Processor not checked*: its image processor needs torchvision, which the tests do without; the
model is checked on tensors made by hand.

## Refused

These give no evidence, whatever their weights: loading one ends with the reason.

| type | reason |
| --- | --- |
{table_refused}

## Not checked

| type | why there is no tiny model of it |
| --- | --- |
{table_unchecked}

A type that stands nowhere on this page (from a newer transformers, or with code of its own and
`trust_remote_code=True`) is not checked either. Nothing is needed to use one: at first use of any
loaded model its evidence on one short prompt is compared with its own eager attention, and it is
refused, saying by how much, where the two differ:

```python
from lookright import Model

model = Model.load("path/or/name")  # the check runs with the first model.evidence(...)
```

`lookright doctor --model path/or/name` says before any weights are loaded whether a type is refused
and what a model of that size needs. If the self-check fails, the numbers would have been wrong:
please report the type, the message and the version of transformers.
`Model.load(..., self_check=False)` skips the check at your own risk.
"""


def page() -> str:
    """The whole page as it should be."""
    import transformers

    unchecked = [name for name in TYPES if name not in CHECKED and name not in REFUSED]
    refused = [name for name in TYPES if name in REFUSED]
    checked = [name for name in TYPES if name in CHECKED]
    return _TEXT.format(
        version=transformers.__version__,
        checked=len(checked),
        refused=len(refused),
        unchecked=len(unchecked),
        table_checked="\n".join(_row(name) for name in checked),
        table_refused="\n".join(f"| {name} | {REFUSED[name]} |" for name in refused),
        table_unchecked="\n".join(
            f"| {name} | {NOT_BUILT.get(name, 'nobody has made one yet')} |" for name in unchecked
        ),
    )


def _row(model_type: str) -> str:
    found = measured(model_type)
    batch = "alone" if model_type in ALONE else _below(found.batch)
    cells = [model_type, _below(found.attention), _below(found.scores), batch]
    return f"| {' | '.join([*cells, '; '.join(found.remarks)])} |".replace("  ", " ")


def _below(difference: float) -> str:
    """A power of ten above it, so that the table is the same on every machine, or nearly."""
    power = math.ceil(math.log10(difference)) if difference > 1e-7 else -7
    return f"< 1e{power}"


def without_digits(text: str) -> str:
    """The page but for the exponents of differences."""
    return re.sub(r"< 1e-\d+", "< 1e-?", text)


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    for name in CHECKED:
        found = measured(name)
        print(f"{name:24} {found.attention:.1e} {found.scores:.1e} {found.batch:.1e}")


if __name__ == "__main__":
    main()
