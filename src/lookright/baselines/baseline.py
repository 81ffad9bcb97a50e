"""What a baseline is: its parameters, what it changes in the question, and how it is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lookright.baselines.answers import Writing
from lookright.collect import Source
from lookright.errors import InputError, shown
from lookright.instance import Instance
from lookright.methods import suggestion
from lookright.presets import check_preset
from lookright.settings import EvidenceSettings

#: The position a generated text names, by the identifiers of the instance; None where none is.
Reader = Callable[[str, Sequence[str]], int | None]

#: Whether a text is complete, asked after each of its lines.
Done = Callable[[str, Sequence[str]], bool]


@dataclass(frozen=True)
class Baseline:
    """One baseline. With `read` it generates texts; else it gives evidence, scored like vanilla.

    `source` makes what is asked for that evidence of the loaded model, or (`of_towers`) of loaded
    `Towers`; None where it is the model itself.
    """

    name: str
    defaults: Mapping[str, Any] = field(default_factory=dict)  # its parameters in the paper
    released: Mapping[str, Any] = field(default_factory=dict)  # where the released code differs
    changes: Mapping[str, Any] = field(default_factory=dict)  # in the settings of the evidence
    own_prompt: bool = False  # asks in words of its own, so of captions only
    once: bool = False  # one answer an instance, whatever the order
    costs: Callable[[int], int] = lambda n: 1  # passes of the model for n images
    source: Callable[[Any], Source] | None = None
    of_towers: bool = False
    read: Mapping[str, Reader] = field(default_factory=dict)  # by preset
    done: Done | None = None

    @property
    def generates(self) -> bool:
        """Whether its answers are texts."""
        return bool(self.read)

    def parameters(
        self, preset: str = "paper", given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """All parameters: what is given, else what the preset chooses; unfit values are refused."""
        check_preset(preset)
        chosen = {**self.defaults, **(self.released if preset == "released" else {})}
        for name, value in (given or {}).items():
            if name not in self.defaults:
                raise InputError(
                    f"baseline {self.name} has no parameter {shown(name)!r}"
                    + suggestion(name, self.defaults, "it has none")
                )
            chosen[name] = value
        for name, value in chosen.items():
            try:
                chosen[name] = _CHECKS[name](value)
            except ValueError as error:
                raise InputError(f"{self.name}.{name}={shown(str(value))}: {error}") from None
        return chosen

    def settings(
        self, settings: EvidenceSettings, parameters: Mapping[str, Any] | None = None
    ) -> EvidenceSettings:
        """The settings its questions are asked with, made of those of the other methods."""
        changes = dict(self.changes)
        if "sigma" in self.defaults:
            changes["sofa_sigma"] = (parameters or self.parameters())["sigma"]
        return settings.with_changes(**changes)

    def writing(
        self, settings: EvidenceSettings, parameters: Mapping[str, Any], seed: int = 0
    ) -> Writing:
        """How its texts are written; `settings` are its own, the model's name filled in."""
        temperature = parameters.get("temperature")
        return Writing(
            baseline=self.name,
            settings=settings,
            max_new_tokens=parameters["max_new_tokens"],
            temperature=temperature,
            top_k=parameters.get("top_k"),
            seed=0 if temperature is None else seed,
        )

    def passes(self, n: int, parameters: Mapping[str, Any] | None = None) -> int:
        """What one decision costs: forward passes over a prompt, or answers generated."""
        return self.costs(n) * int((parameters or self.parameters()).get("samples", 1))

    def check(self, instances: Iterable[Instance]) -> None:
        """Refuse an instance that it has no words for."""
        for instance in instances:
            if self.own_prompt and instance.question is not None:
                raise InputError(
                    f"instance {instance.id!r}: asks a question in its own words, and baseline "
                    f"{self.name} has words of its own for captions only; leave {self.name} out"
                )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("must be a whole number, 1 or more")
    return value


def _count_or_none(value: Any) -> int | None:
    return None if value in (None, "none") else _count(value)


def _number(value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise ValueError(f"must be a number above 0, at most {most:g}")
    return float(value)


#: parameter -> what makes its value canonical, or says in a ValueError what it must be.
_CHECKS: dict[str, Callable[[Any], Any]] = {
    "max_new_tokens": _count,
    "samples": _count,
    "temperature": lambda value: _number(value, 100),
    "top_k": _count_or_none,
    "sigma": lambda value: _number(value, 1),
}
