"""pointwise: "Does this image match the caption?", each image alone; no order at all.

Its evidence of an instance is the softmax of log P(yes) - log P(no) over the images: what they
say together where exactly one of them matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.baselines.baseline import Baseline
from lookright.collect import Source
from lookright.errors import InputError
from lookright.evidence import Evidence, instance_hash
from lookright.instance import Instance, check_order
from lookright.settings import EvidenceSettings

if TYPE_CHECKING:
    from torch import Tensor

    from lookright.encoding import Prompt
    from lookright.model import Model

PROMPT = (
    "Does this image match the caption? Respond with yes or no only and nothing else."
    "\nCaption: {caption}\nAnswer:"
)
YES, NO = ("Yes", "yes"), ("No", "no")

Skip = Callable[[Instance, InputError], None]


class ImagesAlone:
    """Asks a model about each image alone; a `Source` of evidence without attention."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def settings(self, settings: EvidenceSettings | None = None) -> EvidenceSettings:
        return self.model.settings(settings)

    def evidence_iter(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings | None = None,
        *,
        heads: bool = False,
        maps: bool = False,
        skip: Skip | None = None,
        windows: Sequence[int] | None = None,
    ) -> Iterator[list[Evidence]]:
        """One list for each batch, of the instances that are complete with it; each order only
        says how an instance's answer is laid out. `windows` as of `Model.evidence_iter`."""
        if heads or maps:
            raise InputError("pointwise asks about images alone: it has no heads or maps to keep")
        settings = self.settings(settings)
        self.model._check_once(settings)
        ends = accumulate([len(instances)] if windows is None else windows, initial=0)
        for start, stop in pairwise(ends):
            if windows is not None:
                self.model.vision.clear()
            asked = _asked(self.model, instances[start:stop], orders[start:stop], settings, skip)
            yield from self._answered(asked, settings, skip)
            if windows is not None:
                yield []

    def _answered(
        self, asked: Iterator[Prompt], settings: EvidenceSettings, skip: Skip | None
    ) -> Iterator[list[Evidence]]:
        open_: dict[int, list[tuple[Prompt, float]]] = {}
        for batch in self.model._budgeted(asked):
            scores = self.model._halving(batch, lambda part: self._scores(part, settings))
            found = []
            for prompt, score in zip(batch, scores, strict=True):
                own = open_.setdefault(prompt.place, [])
                own.append((prompt, score))
                if len(own) < len(prompt.instance.images):
                    continue
                try:
                    found.append(_evidence(open_.pop(prompt.place), settings))
                except InputError as error:
                    if skip is None:
                        raise
                    skip(prompt.instance, error)
            yield found

    def _scores(self, batch: list[Prompt], settings: EvidenceSettings) -> list[float]:
        """log P(yes) - log P(no) of each prompt."""
        inputs, regions = self.model.encoder.collate(batch)
        names, trie = self._trie(batch[0], settings)
        reading = self.model.backbone.read(inputs, self.model._features(batch), regions, 1, trie)
        said = reading.log_probs.double()  # [batch, names]

        def log_prob(wanted: Sequence[str]) -> Tensor:
            return said[:, [names.index(name) for name in names if name in wanted]].logsumexp(-1)

        return [float(score) for score in log_prob(YES) - log_prob(NO)]

    def _trie(self, prompt: Prompt, settings: EvidenceSettings) -> tuple[list[str], Any]:
        """The ways of saying yes and no that are different tokens to this model."""
        from lookright.candidates import build_trie

        encoder = self.model.encoder
        tail = encoder.tail(prompt.text)
        lead, after = encoder.answer_lead(prompt.instance, settings)
        tokens: dict[str, list[int]] = {}
        for words in (YES, NO):
            own: dict[tuple[int, ...], str] = {}
            for word in words:
                own.setdefault(tuple(encoder.answer_tokens(tail, lead + word)), word)
            tokens |= {word: list(said) for said, word in own.items()}
        ends = {*self.model.backbone.ends(encoder.tokenizer), *after}
        return list(tokens), build_trie(list(tokens), list(tokens.values()), sorted(ends))


def _asked(
    model: Model,
    instances: Sequence[Instance],
    orders: Sequence[Sequence[int]],
    settings: EvidenceSettings,
    skip: Skip | None,
) -> Iterator[Prompt]:
    """One prompt for each image of each instance, in its order."""
    for place, (instance, order) in enumerate(zip(instances, orders, strict=True)):
        try:
            POINTWISE.check([instance])
            yield from _prompts(model, place, instance, order, settings)
        except InputError as error:
            if skip is None:
                raise
            skip(instance, error)


def _prompts(
    model: Model,
    place: int,
    instance: Instance,
    order: Sequence[int],
    settings: EvidenceSettings,
) -> list[Prompt]:
    from lookright.model import pictures

    own = pictures(instance)
    hashes = [picture.hash for picture in own]
    loads = [partial(picture.decode, settings.image_size) for picture in own]
    chat = _about_one_image(settings, instance)
    made = []
    for index in check_order(order, len(own)):
        prompt = model.encoder.prompt(instance, (index,), settings, hashes, loads, chat)
        model.backbone.check_length(len(prompt.tokens), instance.id)
        made.append(replace(prompt, place=place))
    return made


def _about_one_image(settings: EvidenceSettings, instance: Instance) -> list[dict[str, Any]]:
    """The chat in these settings, with one image instead of all."""
    turns = settings.conversation(instance)
    content = turns[-1]["content"]
    turns[-1]["content"] = [{"type": "image"}, content[-1]]
    return turns


def _evidence(own: list[tuple[Prompt, float]], settings: EvidenceSettings) -> Evidence:
    """The evidence of one instance, from the scores of its images in its order."""
    instance = own[0][0].instance
    order = tuple(prompt.order[0] for prompt, _ in own)
    scores = np.array([score for _, score in own])
    if not np.isfinite(scores).all():
        raise InputError(
            f"instance {instance.id!r}: the model's numbers are not finite in {settings.dtype}; "
            "try another --dtype"
        )
    hashes = {prompt.order[0]: prompt.images[0] for prompt, _ in own}
    return Evidence(
        instance_id=instance.id,
        order=order,
        log_probs=scores - np.logaddexp.reduce(scores),
        attention=np.zeros((0, len(order)), dtype=np.float32),
        layers=(),
        image_tokens=np.array([sum(r == 0 for r in prompt.regions) for prompt, _ in own]),
        settings=settings.hash,
        instance=instance_hash(instance, [hashes[k] for k in range(len(order))]),
        target=instance.answer,
    )


def _source(model: Any) -> Source:
    return ImagesAlone(model)


POINTWISE = Baseline(
    "pointwise",
    changes={
        "prompt": PROMPT,
        "labelled": False,
        "image_tokens": "visual",
        "scoring": "joint",
        "sofa_sigma": None,
    },
    own_prompt=True,
    once=True,
    costs=lambda n: n,
    source=_source,
)
