"""A multimodal LLM as a source of evidence: load it, ask it, read it out in one forward pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise, starmap
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import LogitsProcessorList, StoppingCriteriaList

from lookright.backbone import Backbone, Reading, load_backbone, load_config
from lookright.candidates import Trie, build_trie
from lookright.encoding import Encoder, Prompt
from lookright.errors import EvidenceWarning, InputError
from lookright.evidence import Evidence, instance_hash
from lookright.families import ALONE, released_options
from lookright.identifiers import identifiers_for
from lookright.images import Picture, read
from lookright.instance import Instance, Order, check_order
from lookright.processors import load_processor
from lookright.sampling import Complete, Sampling, SeededDraw
from lookright.selfcheck import check_backbone
from lookright.settings import EvidenceSettings
from lookright.vision import FeatureCache

T = TypeVar("T")

#: Called with an instance that cannot be asked and the reason; without it the reason is raised.
Skip = Callable[[Instance, InputError], None]

GiB = 1 << 30


@dataclass(frozen=True)
class Generated:
    """A generated answer to one (instance, order)."""

    instance_id: str
    order: Order
    text: str


class Model:
    """A Hugging Face image-text-to-text model and its processor, ready to give evidence."""

    def __init__(
        self,
        backbone: Backbone,
        processor: Any,
        *,
        name: str,
        batch_tokens: int | None = None,
        vision_cache: int = GiB,
        self_check: bool = True,
    ) -> None:
        self.backbone = backbone
        self.name = name
        self.revision = backbone.fingerprint()  # what was loaded, whatever a branch is at now
        self.encoder = Encoder(
            processor,
            backbone.image_token,
            backbone.takes("mm_token_type_ids"),
            partial(released_options, backbone.family),
        )
        self.batch_tokens = batch_tokens or token_budget(backbone.device.type)
        self.vision = FeatureCache(vision_cache)
        self._check_due = self_check
        self._tries: dict[tuple[Any, ...], Trie] = {}

    @classmethod
    def load(
        cls,
        name: str,
        *,
        device: str | None = None,
        dtype: str | torch.dtype | None = None,
        revision: str | None = None,
        base_attention: str | None = None,
        trust_remote_code: bool = False,
        self_check: bool = True,
        batch_tokens: int | None = None,
        **from_pretrained: Any,
    ) -> Model:
        """Load a model by hub name or folder; what is not named here goes to `from_pretrained`.

        `dtype` is float32 on a CPU and the checkpoint's own elsewhere; `base_attention` is the
        attention the probe stands beside (SDPA where the model has it).
        """
        # What the configuration or the processor refuses need not wait for the weights.
        config = load_config(name, revision, trust_remote_code)
        processor = load_processor(name, revision=revision, trust_remote_code=trust_remote_code)
        backbone = load_backbone(
            name,
            config,
            device,
            dtype,
            revision,
            base_attention,
            trust_remote_code,
            from_pretrained,
        )
        folder = Path(name)
        return cls(
            backbone,
            processor,
            name=folder.resolve().name if folder.is_dir() else name,
            batch_tokens=batch_tokens,
            self_check=self_check,
        )

    @classmethod
    def wrap(
        cls, hf_model: Any, processor: Any, *, name: str | None = None, **options: Any
    ) -> Model:
        """A model and a processor that are loaded already; `options` as of the constructor."""
        known = name or hf_model.config.name_or_path or type(hf_model).__name__
        return cls(Backbone(hf_model), processor, name=known, **options)

    def settings(self, settings: EvidenceSettings | None = None) -> EvidenceSettings:
        """The settings with this model's name, revision and number format filled in."""
        return (settings or EvidenceSettings()).with_changes(
            model=self.name, revision=self.revision, dtype=self.backbone.dtype_name
        )

    def evidence(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings | None = None,
        *,
        heads: bool = False,
        maps: bool = False,
    ) -> list[Evidence]:
        """Evidence of instance i shown in `orders[i]`, one forward pass for each."""
        batches = self.evidence_iter(instances, orders, settings, heads=heads, maps=maps)
        return [piece for batch in batches for piece in batch]

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
        """The same, one list for each batch as it is computed, in the order asked.

        `windows` says how many of the questions belong together, one window after another: no batch
        reaches from one into the next, no features are kept for the next, and an empty list follows
        each. So what a window gives does not depend on what was asked before it.
        """
        settings = self.settings(settings)
        self._check_once(settings)
        if windows is not None:
            self.vision.clear()
        for batch in self._batches(instances, orders, settings, skip, windows):
            if not batch:
                self.vision.clear()
                yield []
                continue
            yield self._halving(
                batch, lambda part: self._evidence(part, settings, skip, heads=heads, maps=maps)
            )

    def generate(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings | None = None,
        *,
        max_new_tokens: int = 16,
        **options: Any,
    ) -> list[Generated]:
        """Generated answers, greedy unless `options` (of transformers' `generate`) say else."""
        batches = self.generate_iter(
            instances, orders, settings, max_new_tokens=max_new_tokens, **options
        )
        return [answer for batch in batches for _, answer in batch]

    def generate_iter(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings | None = None,
        *,
        max_new_tokens: int = 16,
        sampling: Sampling | None = None,
        seeds: Sequence[str] = (),
        done: Callable[[str], bool] | None = None,
        skip: Skip | None = None,
        **options: Any,
    ) -> Iterator[list[tuple[int, Generated]]]:
        """The same batch by batch, each answer with its place among the questions.

        With `sampling`, every answer is drawn by its own one of `seeds`, whatever its company. An
        answer ends early where `done` says, after a line, that it is complete.
        """
        settings = self.settings(settings)
        if settings.sofa_sigma is not None:
            raise InputError("settings, field 'sofa_sigma': SoFA is for evidence, not for answers")
        if sampling is not None and len(seeds) != len(instances):
            raise InputError(f"{len(instances)} sampled answers need as many seeds")

        def answers(batch: list[Prompt]) -> list[tuple[int, Generated]]:
            inputs, _ = self.encoder.collate(batch)
            width = inputs["input_ids"].shape[1]
            told: dict[str, Any] = {"do_sample": False, **options}
            if sampling is not None:
                own = [seeds[prompt.place] for prompt in batch]
                told["logits_processor"] = LogitsProcessorList([SeededDraw(sampling, own, width)])
            if done is not None:
                complete = Complete(done, self.encoder.decode, width)
                told["stopping_criteria"] = StoppingCriteriaList([complete])
            rows = self.backbone.generate(inputs, self._features(batch), max_new_tokens, told)
            texts = self.encoder.decode(rows)
            return [
                (p.place, Generated(p.instance.id, p.order, text))
                for p, text in zip(batch, texts, strict=True)
            ]

        for batch in self._batches(instances, orders, settings, skip):
            yield self._halving(batch, answers)

    # -- from instances to batches of prompts ---------------------------------------------------

    def _batches(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings,
        skip: Skip | None,
        windows: Sequence[int] | None = None,
    ) -> Iterator[list[Prompt]]:
        """Batches within the token budget; the next is prepared while one is computed.

        An empty one ends each window, where there are any.
        """
        if len(instances) != len(orders):
            raise InputError(f"{len(instances)} instances need as many orders, not {len(orders)}")
        if windows is None:
            return _ahead(self._budgeted(self._prompts(instances, orders, settings, skip)))

        def by_window() -> Iterator[list[Prompt]]:
            ends = list(accumulate(windows, initial=0))
            for window in starmap(slice, pairwise(ends)):
                prompts = self._prompts(instances[window], orders[window], settings, skip)
                yield from self._budgeted(prompts)
                yield []

        return _ahead(by_window())

    def _prompts(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings,
        skip: Skip | None,
    ) -> Iterator[Prompt]:
        last: Instance | None = None
        own: list[Picture] = []
        for place, (instance, order) in enumerate(zip(instances, orders, strict=True)):
            try:
                n = len(instance.images)
                shown = check_order(order, n)
                identifiers_for(settings.identifiers, n)
                if instance is not last:  # the orders of one instance stand together
                    own = pictures(instance)
                    last = instance
                prompt = self.encoder.prompt(
                    instance,
                    shown,
                    settings,
                    [picture.hash for picture in own],
                    [partial(picture.decode, settings.image_size) for picture in own],
                )
                self.backbone.check_length(len(prompt.tokens), instance.id)
            except InputError as error:
                if skip is None:
                    raise
                skip(instance, error)
                continue
            yield replace(prompt, place=place)

    def _budgeted(self, prompts: Iterator[Prompt]) -> Iterator[list[Prompt]]:
        batch: list[Prompt] = []
        longest = 0
        try:
            for prompt in prompts:
                longer = max(longest, len(prompt.tokens))
                if batch and (
                    self.backbone.family in ALONE
                    or self._asked(batch[0]) != self._asked(prompt)
                    or longer * (len(batch) + 1) > self.batch_tokens
                ):
                    yield batch
                    batch, longer = [], len(prompt.tokens)
                batch.append(prompt)
                longest = longer
        except InputError:  # what stood before it is still good
            if batch:
                yield batch
            raise
        if batch:
            yield batch

    def _halving(self, batch: list[Prompt], work: Callable[[list[Prompt]], list[T]]) -> list[T]:
        """`work` on the batch, or on its halves where the device's memory does not suffice."""
        tokens = max(len(prompt.tokens) for prompt in batch)
        middle = len(batch) // 2
        if middle == 0 or len(batch) * tokens <= self.batch_tokens:  # else made before it shrank
            try:
                return work(batch)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _out_of_memory(error):
                    raise
                if middle == 0:
                    raise InputError(
                        f"instance {batch[0].instance.id!r}: one prompt of {tokens} tokens does "
                        "not fit into the device's memory; take smaller or fewer images"
                    ) from None
            self.vision.clear()
            if self.backbone.device.type == "cuda":
                torch.cuda.empty_cache()
            self.batch_tokens = middle * tokens
            warnings.warn(
                f"out of memory with {len(batch)} prompts at once: from here on {middle}",
                EvidenceWarning,
                stacklevel=2,
            )
        return self._halving(batch[:middle], work) + self._halving(batch[middle:], work)

    # -- from a batch of prompts to evidence ----------------------------------------------------

    def _evidence(
        self,
        batch: list[Prompt],
        settings: EvidenceSettings,
        skip: Skip | None,
        *,
        heads: bool,
        maps: bool,
    ) -> list[Evidence]:
        inputs, regions = self.encoder.collate(batch)
        trie = self._trie(batch[0], settings)
        reading = self.backbone.read(
            inputs,
            self._features(batch),
            regions,
            len(batch[0].order),
            trie,
            heads,
            maps,
            self.backbone.repetition_penalty if settings.scoring == "released" else 1.0,
            settings.sofa_sigma,
        )
        found = []
        for index, prompt in enumerate(batch):
            try:
                found.append(self._piece(prompt, index, reading, regions[index], settings))
            except InputError as error:
                if skip is None:
                    raise
                skip(prompt.instance, error)
        return found

    def _piece(
        self,
        prompt: Prompt,
        index: int,
        reading: Reading,
        regions: Tensor,
        settings: EvidenceSettings,
    ) -> Evidence:
        log_probs = reading.log_probs[index]
        if bool(torch.isnan(log_probs).any()) or bool(torch.isnan(reading.attention[index]).any()):
            raise InputError(
                f"instance {prompt.instance.id!r}: the model's numbers are not finite (NaN) in "
                f"{settings.dtype}; try another --dtype"
            )
        n = len(prompt.order)
        members = [torch.nonzero(regions == position)[:, 0] for position in range(n)]
        tokens = reading.tokens
        return Evidence(
            instance_id=prompt.instance.id,
            order=prompt.order,
            log_probs=log_probs.numpy(),
            attention=reading.attention[index].numpy(),
            layers=self.backbone.layers,
            image_tokens=torch.tensor([len(m) for m in members]).numpy(),
            settings=settings.hash,
            instance=instance_hash(prompt.instance, in_original_order(prompt)),
            target=prompt.instance.answer,
            heads=None if reading.heads is None else reading.heads[index].numpy(),
            maps=None
            if tokens is None
            else tuple(tokens[index][:, member].numpy() for member in members),
        )

    def _features(self, batch: Sequence[Prompt]) -> list[Any] | None:
        """Vision features of the batch's images in the prompts' order; None where not ours."""
        if not self.encoder.copies:
            return None
        found: dict[str, Any] = {}
        missing: dict[str, Any] = {}
        wanted = [pair for p in batch for pair in zip(p.keys, p.pieces, strict=True)]
        for key, piece in wanted:
            kept = self.vision.get(key)
            if kept is None:
                missing[key] = piece.tensors
            else:
                found[key] = kept
        if missing:
            encoded = self.backbone.encode(list(missing.values()))
            for key, features in zip(missing, encoded, strict=True):
                found[key] = features
                self.vision.put(key, features)
            self.vision.encoded += len(missing)
        return [found[key] for key, _ in wanted]

    def _asked(self, prompt: Prompt) -> tuple[int, str]:
        """What decides how the candidates stand in tokens: their number, and what they follow."""
        return len(prompt.order), self.encoder.tail(prompt.text)[-8:]

    def _trie(self, prompt: Prompt, settings: EvidenceSettings) -> Trie:
        names = identifiers_for(settings.identifiers, len(prompt.order))
        key = (names, self._asked(prompt), settings.hash)
        if key not in self._tries:
            tail = self.encoder.tail(prompt.text)
            lead, after = self.encoder.answer_lead(prompt.instance, settings)
            tokens = [self.encoder.answer_tokens(tail, lead + name) for name in names]
            ends = {*self.backbone.ends(self.encoder.tokenizer), *after}
            shared = settings.scoring == "released"
            self._tries[key] = build_trie(names, tokens, sorted(ends), shared=shared)
        return self._tries[key]

    def _check_once(self, settings: EvidenceSettings) -> None:
        if self._check_due:
            check_backbone(self, settings)
            self._check_due = False


def token_budget(device_type: str) -> int:
    """Tokens of one batch where nobody says how many."""
    return 8192 if device_type == "cuda" else 2048


def pictures(instance: Instance) -> list[Picture]:
    """The images of an instance, read and not yet decoded."""
    return [
        read(source, name=f"image {index} of instance {instance.id!r}")
        for index, source in enumerate(instance.images)
    ]


def in_original_order(prompt: Prompt) -> list[str]:
    """The content hashes of a prompt's images, as the instance lists them."""
    hashes = [""] * len(prompt.order)
    for position, index in enumerate(prompt.order):
        hashes[index] = prompt.images[position]
    return hashes


def _ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, the next one already in the making."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


def _out_of_memory(error: BaseException) -> bool:
    said = str(error)  # each kind of device has words of its own
    return isinstance(error, torch.OutOfMemoryError) or any(
        words in said for words in ("out of memory", "allocate memory", "not enough memory")
    )
