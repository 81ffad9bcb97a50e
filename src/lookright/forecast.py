"""What an evaluation will cost, told before anything of it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from lookright import machine
from lookright.backbone import Backbone
from lookright.capacity import Capacity, capacity, empty_model, patches_of
from lookright.collect import Window, unfinished
from lookright.encoding import Encoder, Prompt
from lookright.errors import InputError
from lookright.instance import identity
from lookright.model import pictures, token_budget
from lookright.plans import Part, Plan
from lookright.processors import load_processor
from lookright.settings import EvidenceSettings
from lookright.store import Store

#: Prompts whose tokens are counted; the others are taken to be like them.
COUNTED = 8


@dataclass(frozen=True)
class Share:
    """What one benchmark needs."""

    benchmark: str | None
    passes: int
    present: int  # of them saved already
    tokens: int  # of the prompts that are left
    images: int  # to encode, at most


@dataclass(frozen=True)
class Forecast:
    """What a job needs on a device; seconds and bytes are estimates."""

    model: str
    device: str
    dtype: str
    shares: tuple[Share, ...]
    seconds: float
    memory: int | None  # bytes; None where the model does not tell
    free: int | None  # bytes of the device
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def as_text(self) -> str:
        lines = []
        for share in self.shares:
            lines.append(
                f"{share.benchmark}: {share.passes:,} passes, {share.present:,} of them there "
                f"already; {share.tokens:,} tokens to read, up to {share.images:,} images to encode"
            )
        free = "" if self.free is None else f" of {self.free / 2**30:.1f} GiB free"
        memory = "unknown" if self.memory is None else f"about {self.memory / 2**30:.1f} GiB{free}"
        lines.append(f"memory on {self.device} in {self.dtype}: {memory}")
        lines.append(f"time: about {in_words(self.seconds)}, and that of loading the model")
        return "\n".join([*lines, *self.notes])


def forecast(
    plans: Sequence[Plan],
    model: str,
    *,
    revision: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    batch_tokens: int | None = None,
) -> Forecast:
    """What the plans will cost: from the model's configuration and processor, without its weights.

    The time is that of the multiplications alone, at the speed this device does them now.
    """
    hf = empty_model(model, revision)
    place = machine.chosen(machine.devices(), device)
    need = capacity(hf, model, revision, on_cpu=place.name == "cpu", memory=place.free)
    number = _number_format(dtype or need.dtype)
    scale = number.itemsize / _number_format(need.dtype).itemsize
    backbone = Backbone(hf)
    encoder = Encoder(
        load_processor(model, revision=revision),
        backbone.image_token,
        backbone.takes("mm_token_type_ids"),
    )
    decoder, tower = _sizes(backbone)
    budget = batch_tokens or token_budget(place.name.split(":")[0])
    shares, operations, largest = [], 0.0, 0.0
    for plan in plans:
        prompts = [_prompt(encoder, plan, index) for index in _spread(len(plan.instances))]
        lengths = [len(prompt.tokens) for prompt in prompts]
        share = _share(plan, sum(lengths) / len(lengths))
        patches = patches_of(hf.config, prompts[0]) or 0
        operations += 2 * (share.tokens * decoder + share.images * patches * tower)
        batch = max(1, budget // max(lengths))
        largest = max(largest, scale * _working(need, batch, max(lengths), plan.n))
        shares.append(share)
    return Forecast(
        model=model,
        device=place.name,
        dtype=str(number).removeprefix("torch."),
        shares=tuple(shares),
        seconds=operations / _speed(place.name, number, backbone.text_config.hidden_size),
        memory=None if need.weights is None else round(scale * need.weights + largest),
        free=place.free,
        notes=tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
    )


def in_words(seconds: float) -> str:
    """A time as a person says it."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} s"


def _share(plan: Plan, mean: float) -> Share:
    passes = sum(len(part.questions) for part in plan.parts)
    windows = [window for part in plan.parts for window in _left(part, plan.wording)]
    left = sum(map(len, windows))
    images = [
        {image for question in window for image in question.instance.images} for window in windows
    ]
    return Share(
        plan.origin.benchmark, passes, passes - left, round(left * mean), sum(map(len, images))
    )


def _left(part: Part, wording: EvidenceSettings) -> list[Window]:
    """The windows to be asked: of evidence in a folder, the model is taken for the same one."""
    store = Store(part.folder)
    for hashed, held in store.settings().items():
        if held.with_changes(model=None, revision=None, dtype=None) == wording:
            return unfinished(part.windows, hashed, store.keys(hashed))
    return list(part.windows)


def _spread(count: int) -> Iterator[int]:
    """Some of so many, evenly."""
    return iter(range(0, count, -(-count // COUNTED)))


def _prompt(encoder: Encoder, plan: Plan, index: int) -> Prompt:
    instance = plan.instances[index]
    own = pictures(instance)
    return encoder.prompt(
        instance,
        identity(plan.n),
        plan.wording,
        [picture.hash for picture in own],
        [partial(picture.decode, plan.wording.image_size) for picture in own],
    )


def _sizes(backbone: Backbone) -> tuple[int, int]:
    """Parameters every token is multiplied with, and those every patch of an image is."""
    hf = backbone.hf
    tables = {id(p) for p in hf.get_input_embeddings().parameters()}
    if (head := hf.get_output_embeddings()) is not None:
        tables |= {id(p) for p in head.parameters()}
    decoder = {id(p): p.numel() for p in backbone.decoder.parameters() if id(p) not in tables}
    others = [p for p in hf.parameters() if id(p) not in tables and id(p) not in decoder]
    return sum(decoder.values()), sum(p.numel() for p in others)


def _working(need: Capacity, batch: int, tokens: int, n: int) -> int:
    """Bytes of one batch, all its images going through the vision tower at once."""
    tower = 0
    if need.bytes_per_image is not None:
        tower = need.bytes_per_image - need.image_tokens * need.bytes_per_token
    return batch * (tokens * need.bytes_per_token + n * tower)


def _number_format(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"unknown number format {name!r}: use float32, bfloat16 or float16")
    return found


def _speed(device: str, number: torch.dtype, width: int) -> float:
    """Multiplications and additions a second, of matrices as wide as the model's."""
    with torch.inference_mode():
        tokens = torch.ones(512, width, dtype=number, device=device)
        weights = torch.ones(width, 4 * width, dtype=number, device=device)
        best, ends = float("inf"), time.monotonic() + 0.3
        while time.monotonic() < ends:
            started = time.perf_counter()
            float((tokens @ weights)[0, 0])  # reading a number waits for a GPU
            best = min(best, time.perf_counter() - started)
    return 2 * tokens.numel() * 4 * width / best
