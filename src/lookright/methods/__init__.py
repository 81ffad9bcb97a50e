"""The methods: pure functions of evidence and calibration, by name.

`METHODS[name](evidence, calibration, **parameters)` gives scores [orders, instances, N] by position
in the order shown. The highest wins, the lowest position among equals; the softmax of the scores is
the method's distribution. Parameters not given are those of the calibration's preset.
`permutation_average` alone decides for base orders instead of the orders shown: see there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from lookright.errors import InputError, shown
from lookright.methods.attention import purified_attention, raw_attention
from lookright.methods.lad import lad
from lookright.methods.parameters import CHECKS
from lookright.methods.permutation_average import permutation_average
from lookright.methods.pride import pride
from lookright.methods.vanilla import vanilla
from lookright.presets import PRESETS, check_preset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lookright.calibration import Calibration
    from lookright.evidence import EvidenceArray


@dataclass(frozen=True)
class Method:
    """One method: its function, and what can be known of it without calling it."""

    function: Callable[..., NDArray[np.float64]]
    over_shifts: bool = False  # decides from the N cyclic shifts together, not order by order

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def calibrated(self) -> bool:
        """Whether it cannot do without a calibration."""
        return inspect.signature(self.function).parameters["calibration"].default is not None

    @property
    def reads_attention(self) -> bool:
        return "layers" in self.defaults

    @property
    def defaults(self) -> dict[str, Any]:
        """Its parameters with the values of the paper."""
        signature = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY}

    def parameters(
        self, preset: str = "paper", given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """All parameters: what is given, else what the preset chooses; unfit values are refused."""
        defaults = self.defaults | PRESETS[check_preset(preset)].get(self.name, {})
        chosen = defaults | dict(given or {})
        for parameter, value in chosen.items():
            if parameter not in defaults:
                raise InputError(
                    f"method {self.name} has no parameter {shown(parameter)!r}"
                    + suggestion(parameter, defaults, "it has none")
                )
            try:
                chosen[parameter] = CHECKS[parameter](value)
            except ValueError as error:
                raise InputError(f"{self.name}.{parameter}={shown(str(value))}: {error}") from None
        return chosen

    def __call__(
        self, evidence: EvidenceArray, calibration: Calibration | None = None, **parameters: Any
    ) -> NDArray[np.float64]:
        """Scores [orders, instances, N], float64."""
        if calibration is not None:
            calibration.check(evidence)
        elif self.calibrated:
            raise InputError(f"method {self.name} needs a calibration: Calibration.fit makes one")
        preset = "paper" if calibration is None else calibration.preset
        return self.function(evidence, calibration, **self.parameters(preset, parameters))


class _Methods(dict[str, Method]):
    """The methods by name; an unknown one is answered with the nearest there is."""

    def __missing__(self, name: object) -> Method:
        text = shown(str(name))
        raise InputError(f"unknown method {text!r}" + suggestion(text, self, "there is none"))


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """The end of a sentence about an unknown name: the nearest one, or all there are."""
    names = list(known)
    if close := get_close_matches(name, names, n=1):
        return f"; did you mean {close[0]}?"
    return f"; use {', '.join(names)}" if names else f"; {otherwise}"


METHODS: Mapping[str, Method] = _Methods(
    {
        method.name: method
        for method in (
            Method(vanilla),
            Method(pride),
            Method(raw_attention),
            Method(purified_attention),
            Method(lad),
            Method(permutation_average, over_shifts=True),
        )
    }
)
