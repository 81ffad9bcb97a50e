"""The parameters of methods: what each may be, one check a name, and reading them from text."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from lookright.calibration import BIASES, MEANS
from lookright.errors import InputError, shown
from lookright.methods.lad import MIXTURES
from lookright.methods.permutation_average import ORDERS
from lookright.methods.posterior import AGGREGATES, REDUCTIONS
from lookright.methods.pride import ESTIMATORS


def from_assignments(assignments: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What `method.parameter=value` on a command line gives to each method."""
    given: dict[str, dict[str, Any]] = {}
    for assignment in assignments:
        target, equals, text = assignment.partition("=")
        method, dot, parameter = target.strip().partition(".")
        if not (equals and dot and method and parameter):
            raise InputError(f"'{shown(assignment)}': give method.parameter=value, as in lad.k=4")
        given.setdefault(method, {})[parameter] = _from_text(text.strip())
    return given


def _from_text(text: str) -> Any:
    """true, false, a number, or the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _k(value: Any) -> int | str:
    if value == "all":
        return "all"
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("must be a number of layers, 1 or more, or 'all'")
    return value


def _tau(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("must be a number")
    if not 0 < value <= sys.float_info.max:
        raise ValueError("must be above 0 and finite")
    return float(value)


def _prior(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _layers(value: Any) -> str:
    """A spec of `allowed_layers`, also from a range or a list of layer numbers."""
    if isinstance(value, range) and value.step == 1:
        value = f"{value.start}:{value.stop}"
    elif isinstance(value, (list, tuple, range)):
        value = ",".join(map(str, value))
    text = str(value)
    if text == "all" or re.fullmatch(r"\d{1,6}(,\d{1,6})*", text, re.ASCII):
        return text
    ends = re.fullmatch(r"(\d{0,6}):(\d{0,6})", text, re.ASCII)
    if ends is None:
        raise ValueError("must be 'all', layer numbers as in '3,7', or a range as in '21:36'")
    if ends[2] and int(ends[1] or 0) >= int(ends[2]):
        raise ValueError("is an empty range (the end is not part of it)")
    return text


def _one_of(allowed: tuple[str, ...], value: Any) -> str:
    if value not in allowed:
        raise ValueError(f"must be {' or '.join(allowed)}")
    return str(value)


#: parameter -> what makes its value canonical, or says in a ValueError what it must be.
CHECKS: dict[str, Callable[[Any], Any]] = {
    "k": _k,
    "tau": _tau,
    "prior": _prior,
    "layers": _layers,
    "reduce": partial(_one_of, REDUCTIONS),
    "aggregate": partial(_one_of, AGGREGATES),
    "mean": partial(_one_of, MEANS),
    "bias": partial(_one_of, BIASES),
    "mixture": partial(_one_of, MIXTURES),
    "estimator": partial(_one_of, ESTIMATORS),
    "orders": partial(_one_of, ORDERS),
}
