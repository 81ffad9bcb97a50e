"""Everything that changes evidence, and the hash that keeps different evidence apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from typing import Any

from lookright.errors import InputError, shown
from lookright.identifiers import Identifiers, identifiers_for
from lookright.instance import Instance
from lookright.prompts import check_template, conversation

_TOKENS = ("visual", "delimited")
_SCORINGS = ("joint", "released")
#: Fields by what they must be: they also come from files and from the command line.
_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("prompt", str, "no text"),
    *((name, bool, "neither true nor false") for name in ("trailing_space", "line_break")),
    ("labelled", bool, "neither true nor false"),
    *((name, str | None, "no text") for name in ("system", "model", "revision", "dtype")),
    ("sofa_sigma", int | float | None, "no number"),
)


@dataclass(frozen=True, slots=True)
class EvidenceSettings:
    """How a question is put to a model and read out.

    `model`, `revision` and `dtype` are filled in by the model that computes the evidence.
    """

    prompt: str = "vanilla"  # a template's name, or a template of one's own
    trailing_space: bool = False  # the prompt ends in "Answer: " instead of "Answer:"
    line_break: bool = False  # a line break before the chain-of-thought sentence
    labelled: bool = False  # "Image k:" before each image
    system: str | None = None
    identifiers: Identifiers = "numbers"
    image_size: tuple[int, int] | None = None  # squash to (width, height), bicubic
    processor_options: str = "{}"  # for the image processor: a mapping, kept as its JSON
    image_tokens: str = "visual"  # or "delimited": the tokens around an image count as its own
    scoring: str = "joint"  # or "released": the released code's rule for N >= 10
    sofa_sigma: float | None = None
    model: str | None = None
    revision: str | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name, kind, word in _KINDS:
            if not isinstance(getattr(self, name), kind):
                given = shown(repr(getattr(self, name)))
                raise InputError(f"settings, field '{name}': {given} is {word}")
        try:
            identifiers_for(self.identifiers, 0)
        except InputError as error:
            raise InputError(f"settings, field 'identifiers': {error}") from None
        if not isinstance(self.identifiers, str):
            put(self, "identifiers", tuple(self.identifiers))
        if self.image_size is not None:
            put(self, "image_size", _two_sides(self.image_size))
        put(self, "processor_options", _canonical(self.processor_options))
        check_template(self.prompt)
        for name, value, allowed in (
            ("image_tokens", self.image_tokens, _TOKENS),
            ("scoring", self.scoring, _SCORINGS),
        ):
            if value not in allowed:
                raise InputError(
                    f"settings, field '{name}': {shown(repr(value))} is none of "
                    f"{', '.join(allowed)}"
                )
        if self.sofa_sigma is not None:
            if isinstance(self.sofa_sigma, bool) or not 0 < self.sofa_sigma <= 1:
                raise InputError(
                    f"settings, field 'sofa_sigma': {self.sofa_sigma} is not in (0, 1]"
                )
            put(self, "sofa_sigma", float(self.sofa_sigma))
        for name, value in self.to_dict().items():
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise InputError(
                    f"settings, field '{name}': holds half a character (a lone surrogate)"
                ) from None

    @classmethod
    def paper(cls, **changes: Any) -> EvidenceSettings:
        """The paper's wording, and the model's own image processing."""
        return cls(**changes)

    @classmethod
    def released(cls, **changes: Any) -> EvidenceSettings:
        """What the released code does where it differs from the paper."""
        preset: dict[str, Any] = {
            "trailing_space": True,
            "line_break": True,
            "image_size": (336, 336),
            "image_tokens": "delimited",
            "scoring": "released",
        }
        return cls(**(preset | changes))

    @classmethod
    def preset(cls, name: str, **changes: Any) -> EvidenceSettings:
        if name not in ("paper", "released"):
            raise InputError(f"unknown preset {shown(repr(name))}: use paper or released")
        return cls.paper(**changes) if name == "paper" else cls.released(**changes)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EvidenceSettings:
        """Settings from JSON; a field that does not exist is named."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InputError(
                f"settings: no field {shown(repr(unknown[0]))}; "
                f"the fields are {', '.join(sorted(known))}"
            )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """As JSON: tuples are lists, processor options an object."""
        values = asdict(self)
        values["processor_options"] = self.processor_kwargs
        return dict(json.loads(json.dumps(values)))

    @property
    def processor_kwargs(self) -> dict[str, Any]:
        """The options for the image processor as a mapping."""
        return dict(json.loads(self.processor_options))

    def conversation(self, instance: Instance) -> list[dict[str, Any]]:
        """The chat of one instance in these words."""
        return conversation(
            instance,
            prompt=self.prompt,
            identifiers=self.identifiers,
            trailing_space=self.trailing_space,
            line_break=self.line_break,
            labelled=self.labelled,
            system=self.system,
        )

    def with_changes(self, **changes: Any) -> EvidenceSettings:
        return replace(self, **changes)

    @property
    def hash(self) -> str:
        """Stable over platforms and versions: fields at their default do not enter it."""
        defaults = EvidenceSettings().to_dict()
        changed = {k: v for k, v in self.to_dict().items() if v != defaults[k]}
        return sha256(_canonical(changed).encode()).hexdigest()[:16]

    def differences(self, other: EvidenceSettings) -> list[str]:
        """One line for each field that differs, for messages."""
        mine, theirs = self.to_dict(), other.to_dict()
        return [f"{k}: {mine[k]!r} against {theirs[k]!r}" for k in mine if mine[k] != theirs[k]]


def _two_sides(size: Any) -> tuple[int, int]:
    """A side alone is a square's."""
    sides = (size, size) if isinstance(size, int) else size
    good = isinstance(sides, (tuple, list)) and len(sides) == 2
    if not good or not all(type(side) is int and side > 0 for side in sides):
        raise InputError(f"settings, field 'image_size': {shown(repr(size))} is no (width, height)")
    return (sides[0], sides[1])


def _canonical(value: Any) -> str:
    """One JSON text for one mapping, whatever the order of its keys."""
    try:
        mapping = json.loads(value) if isinstance(value, str) else dict(value)
        if not isinstance(mapping, dict):
            raise TypeError("it is no mapping")
        return json.dumps(mapping, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"settings, field 'processor_options': {error}") from None
