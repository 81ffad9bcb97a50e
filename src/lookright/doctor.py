"""Whether lookright works here: what there is, and the probe tried on two tiny models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lookright import machine
from lookright.errors import InputError

if TYPE_CHECKING:
    from lookright.capacity import Capacity

#: The probe may differ from eager attention by this much in float32.
BOUND = 1e-5


@dataclass(frozen=True)
class Check:
    """Something that was tried; `detail` says what came out."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Report:
    """All that was found."""

    versions: dict[str, str | None]
    torchvision: str
    devices: list[machine.Device]
    device: str  # the one a model would be put on
    folders: list[machine.Folder]
    offline: bool
    checks: list[Check]
    model: Capacity | None  # of the model asked about, where it is supported

    @property
    def ok(self) -> bool:
        return all(check.passed for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        values = asdict(self) | {"ok": self.ok}
        if self.model is not None:
            values["model"]["largest_n"] = self.model.largest_n
        return values


def examine(
    model: str | None = None, *, revision: str | None = None, device: str | None = None
) -> Report:
    """Look at everything; with `model`, also at what that model needs on the device."""
    torchvision = machine.torchvision()  # first: transformers must not meet a broken one
    devices = machine.devices()
    place = machine.chosen(devices, device)
    checks = [_versions(), *_probes({"cpu", place.name})]
    verdict = None
    if model is not None:
        verdict, check = _model(model, revision, place)
        checks.append(check)
    return Report(
        versions=machine.versions(),
        torchvision=torchvision,
        devices=devices,
        device=place.name,
        folders=machine.folders(),
        offline=machine.offline(),
        checks=checks,
        model=verdict,
    )


def probe_differences(family: str, device: str) -> tuple[float, float]:
    """The largest differences of attention and log-probabilities from stock eager attention."""
    import torch

    from lookright import tiny
    from lookright.backbone import Backbone
    from lookright.candidates import build_trie
    from lookright.selfcheck import stock_eager

    hf, inputs = tiny.build(family)
    backbone = Backbone(hf.to(device))
    trie = build_trie(("1", "2"), [[token] for token in tiny.ANSWERS], [tiny.END])
    regions = torch.tensor([tiny.REGIONS])
    reading = backbone.read(inputs, None, regions, 2, trie)
    rows, logits = stock_eager(backbone, inputs)
    members = torch.stack([(regions[0] == image).float() for image in range(2)], -1)
    attention = torch.stack(rows).mean(1) @ members  # [layers, images]
    log_probs = logits[list(tiny.ANSWERS)].log_softmax(-1)
    return (
        float((reading.attention[0] - attention).abs().max()),
        float((reading.log_probs[0] - log_probs).abs().max()),
    )


def _versions() -> Check:
    unmet = machine.unmet()
    return Check("versions", not unmet, "; ".join(unmet) or "all that is needed is installed")


def _probes(places: set[str]) -> Iterator[Check]:
    from lookright.tiny import FAMILIES

    for place in sorted(places):
        for family in FAMILIES:
            name = f"probe, {family} on {place}"
            try:
                attention, log_probs = probe_differences(family, place)
            except Exception as error:  # whatever it is, it is what the doctor is asked for
                yield Check(name, False, f"{type(error).__name__}: {error}".splitlines()[0])
                continue
            detail = (
                f"attention differs from eager by {attention:.1e}, "
                f"log-probabilities by {log_probs:.1e} (at most {BOUND:g})"
            )
            yield Check(name, attention <= BOUND and log_probs <= BOUND, detail)


def _model(name: str, revision: str | None, place: machine.Device) -> tuple[Capacity | None, Check]:
    from lookright.capacity import capacity, empty_model

    hf = empty_model(name, revision)
    try:
        found = capacity(hf, name, revision, on_cpu=place.name == "cpu", memory=place.free)
    except InputError as error:
        return None, Check(f"model {name}", False, str(error))
    detail = f"{found.family} is supported"
    if found.largest_n < 2:
        detail += f", but a prompt of two images does not fit into the memory of {place.name}"
    return found, Check(f"model {name}", found.largest_n >= 2, detail)


def as_text(report: Report) -> str:
    """The report as a page for a person."""
    sections: dict[str, dict[str, str | None]] = {
        "packages": report.versions | {"torchvision": report.torchvision},
        "devices": {device.name: _device(device, report) for device in report.devices},
        "folders": {folder.name: _folder(folder) for folder in report.folders},
    }
    if report.offline:
        sections["folders"]["HF_HUB_OFFLINE"] = "set: nothing is downloaded"
    if report.model is not None:
        sections["model"] = _capacity(report.model)
    lines = []
    for title, rows in sections.items():
        lines += [title, *(f"  {name:18}{text or 'not installed'}" for name, text in rows.items())]
    lines.append("checks")
    lines += [f"  {'ok' if c.passed else 'FAILED':8}{c.name}: {c.detail}" for c in report.checks]
    failed = sum(not check.passed for check in report.checks)
    lines.append(f"{failed} of {len(report.checks)} checks failed" if failed else "all is well")
    return "\n".join(lines)


def _device(device: machine.Device, report: Report) -> str:
    here = "; models go here" if device.name == report.device else ""
    return f"{device.description}; {_size(device.free)} of {_size(device.memory)} free{here}"


def _folder(folder: machine.Folder) -> str:
    state = "" if folder.exists else "not there yet, "
    rights = "" if folder.writable else "NOT WRITABLE, "
    return f"{folder.path}: {state}{rights}{_size(folder.free)} free"


def _capacity(model: Capacity) -> dict[str, str | None]:
    width, height = model.picture
    every = len(model.layers) == model.decoder_layers
    numbers = "all" if every else ", ".join(map(str, model.layers))
    context = "not stated" if model.context is None else f"{model.context} tokens"
    return {
        "family": model.family,
        "layers": f"{len(model.layers)} of {model.decoder_layers} give evidence ({numbers})",
        "visual tokens": f"{model.image_tokens} for a picture of {width} x {height}",
        "weights": f"{_size(model.weights)} in {model.dtype}",
        "working memory": f"about {_size(model.bytes_per_image)} for an image",
        "context": f"{context}, enough for {model.largest_n_context} images",
        "largest N": str(model.largest_n),
    }


def _size(size: int | None) -> str:
    if size is None:
        return "unknown"
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.2g} MB"
