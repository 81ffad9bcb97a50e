"""Rows of results: every method's figures from evidence alone, in the shape used everywhere."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.calibration import Calibration
from lookright.errors import EvidenceWarning, InputError
from lookright.evaluation import SAMPLES, Evaluation, Origin, draw, evaluation_of
from lookright.evidence import EvidenceArray
from lookright.methods import METHODS
from lookright.methods.permutation_average import base_orders
from lookright.metrics import Decisions, decide, figures, over_draws
from lookright.presets import PRESETS, check_preset
from lookright.recordings import Recording

if TYPE_CHECKING:
    from numpy.typing import NDArray

Row = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """A method with parameters of its own, and calibrated on `samples` samples."""

    method: str
    given: Mapping[str, Any] = field(default_factory=dict)
    samples: int = SAMPLES


@dataclass(frozen=True, eq=False)
class Scored:
    """A row of results, and how often each of its instances was decided right."""

    row: Row
    right: NDArray[np.float64]  # [M] share of the orders, mean over draws


def score(
    evaluation: Evaluation,
    variants: Sequence[Variant],
    *,
    preset: str = "paper",
    draws: int | None = None,
    seed: int = 0,
) -> list[Row]:
    """One row for each variant, the mean over calibration draws where it needs a calibration.

    `draws` None: one where the pool is no larger than a calibration, else 5.
    """
    return [one.row for one in scored(evaluation, variants, preset=preset, draws=draws, seed=seed)]


def scored(
    evaluation: Evaluation,
    variants: Sequence[Variant],
    *,
    preset: str = "paper",
    draws: int | None = None,
    seed: int = 0,
) -> list[Scored]:
    """The same, each row with what it was computed from."""
    for variant in variants:
        if lack := lacking(evaluation, variant.method):
            raise InputError(
                f"method {variant.method} needs {lack}, and this evidence does not have that; "
                "choose other methods"
            )
    calibrations = _Calibrations(evaluation, check_preset(preset), draws, seed)
    return [_scored(evaluation, variant, calibrations) for variant in variants]


def rows_of(
    recording: Recording,
    *,
    calibration: str | None = None,
    instances: str | None = None,
    preset: str = "paper",
    methods: Sequence[str] | None = None,
    given: Mapping[str, Mapping[str, Any]] | None = None,
    with_ablations: bool = False,
    samples: int = SAMPLES,
    draws: int | None = None,
    seed: int = 0,
) -> list[Row]:
    """The rows of a recording, and of LAD's ablations.

    Without names, of every method; one that the evidence lacks something for is left out then,
    with a warning.
    """
    check_preset(preset)
    wanted = variants(list(METHODS) if methods is None else methods, given or {}, samples)
    evaluation = evaluation_of(recording, calibration, instances)
    if methods is None:
        wanted = [variant for variant in wanted if _possible(evaluation, variant.method)]
    if with_ablations:
        base = next((v for v in wanted if v.method == "lad"), Variant("lad", samples=samples))
        pool = 0 if evaluation.pool is None else len(evaluation.pool.instance_ids)
        wanted += ablations(base, preset, len(evaluation.evaluated.layers), pool)
    return score(evaluation, wanted, preset=preset, draws=draws, seed=seed)


def lacking(evaluation: Evaluation, name: str) -> str | None:
    """What a method needs that is not there."""
    method, n = METHODS[name], evaluation.evaluated.n
    if method.over_shifts and evaluation.shifts is None:
        return f"the {n} cyclic orders of every instance"
    if method.calibrated and evaluation.pool is None and not evaluation.calibrations:
        return f"calibration samples in their {n} cyclic orders"
    if method.reads_attention and not evaluation.evaluated.layers:
        return "attention"
    return None


def _possible(evaluation: Evaluation, name: str) -> bool:
    lack = lacking(evaluation, name)
    if lack:
        warnings.warn(
            f"{name} is left out: it needs {lack}, and this evidence does not have that",
            EvidenceWarning,
            stacklevel=3,
        )
    return lack is None


def variants(
    methods: Sequence[str], given: Mapping[str, Mapping[str, Any]], samples: int = SAMPLES
) -> list[Variant]:
    """The methods named, with the parameters given for some; what cannot be used is refused."""
    named = list(dict.fromkeys(methods))
    for name in (*named, *given):
        METHODS[name].parameters(given=given.get(name))
    if unused := [name for name in given if name not in named]:
        raise InputError(f"parameters are given for {unused[0]}, which is not among the methods")
    return [Variant(name, given.get(name, {}), samples) for name in named]


def ablations(base: Variant, preset: str, layers: int, pool: int) -> list[Variant]:
    """Variants of LAD that each change one thing, as far as evidence of `layers` layers allows.

    The number of layers, no prior, the temperature, the number of samples (from a pool of so
    many), and one by one the choices in which the other preset differs.
    """
    chosen = METHODS["lad"].parameters(preset, base.given)
    other = METHODS["lad"].parameters("released" if preset == "paper" else "paper")
    changes: list[dict[str, Any]] = [{"k": k} for k in ("all", 1, 2, 4, 8)]
    changes += [{"prior": not chosen["prior"]}]
    changes += [{"tau": tau} for tau in (1.0, 2.0, 5.0, 10.0)]
    changes += [{name: other[name]} for name in PRESETS["released"]["lad"]]
    usable = [
        change
        for change in changes
        if all(chosen[name] != value for name, value in change.items())
        and (change.get("k", "all") == "all" or change["k"] <= layers)
    ]
    sizes = [m for m in (1, 2, 3, 5, 10, 20) if m != base.samples and m <= pool]
    return [
        *(Variant("lad", {**base.given, **change}, base.samples) for change in usable),
        *(Variant("lad", base.given, m) for m in sizes),
    ]


class _Calibrations:
    """The calibrations of each size drawn from the pool, fitted once each."""

    def __init__(self, evaluation: Evaluation, preset: str, draws: int | None, seed: int) -> None:
        self.preset = preset
        self._evaluation, self._draws, self._seed = evaluation, draws, seed
        self._fitted: dict[int, list[Calibration]] = {}

    def of(self, samples: int) -> list[Calibration]:
        if samples not in self._fitted:
            self._fitted[samples] = list(self._fit(samples))
        return self._fitted[samples]

    def _fit(self, samples: int) -> Iterator[Calibration]:
        if self._evaluation.calibrations:
            yield from self._evaluation.calibrations
            return
        pool = self._evaluation.pool
        assert pool is not None, "a method is asked first what it lacks"
        for chosen in draw(len(pool.instance_ids), samples, self._draws, self._seed):
            yield Calibration.fit(
                pool.take(instances=chosen),
                self.preset,
                settings=self._evaluation.pool_origin.settings,
            )


def _scored(evaluation: Evaluation, variant: Variant, calibrations: _Calibrations) -> Scored:
    method = METHODS[variant.method]
    parameters = method.parameters(calibrations.preset, variant.given)
    used = calibrations.of(variant.samples) if method.calibrated else []
    needed: Sequence[Calibration | None] = used or [None]
    drawn = [_decisions(evaluation, variant.method, one, parameters) for one in needed]
    return described(
        evaluation.origin,
        variant.method,
        calibrations.preset,
        parameters,
        drawn,
        by_position=not method.over_shifts or parameters["orders"] == "all",
        passes=evaluation.evaluated.n if method.over_shifts else 1,
        calibration=_calibration(evaluation.pool_origin, used),
        gamma=float(np.median([c.gamma for c in used])) if used else None,
    )


def described(
    origin: Origin,
    name: str,
    preset: str,
    parameters: Mapping[str, Any],
    drawn: Sequence[Decisions],
    *,
    by_position: bool,
    passes: int,
    calibration: Mapping[str, Any] | None = None,
    gamma: float | None = None,
    parse_rate: float | None = None,
) -> Scored:
    """A row of results from decisions, those of each calibration draw where there are any.

    Its keys stand in the order in which they are always written.
    """
    result = over_draws([figures(decisions, by_position=by_position) for decisions in drawn])
    settings = origin.settings
    row = {
        "model": None if settings is None else settings.model,
        "revision": None if settings is None else settings.revision,
        "benchmark": origin.benchmark,
        "setting": origin.setting,
        "n": drawn[0].n,
        "identifiers": None if settings is None else settings.to_dict()["identifiers"],
        "method": name,
        "preset": preset,
        "parameters": dict(parameters),
        "calibration": calibration,
        "gamma": gamma,
        "instances": len(drawn[0].targets),
        "orders": len(drawn[0].chosen),
        "accuracy": result["accuracy"],
        "accuracy_std": result["accuracy_std"],
        "draw_std": result["draw_std"] if calibration else None,
        "interval": result["interval"],
        "rstd": result["rstd"],
        "consistency": result["consistency"],
        "recall": result["recall"],
        "selection": result["selection"],
        "confusion": result["confusion"],
        "parse_rate": parse_rate,
        "tie_rate": result["tie_rate"],
        "passes": passes,
    }
    right = np.mean([decisions.right.mean(axis=0) for decisions in drawn], axis=0)
    return Scored({name: plain(value) for name, value in row.items()}, right)


def _decisions(
    evaluation: Evaluation,
    name: str,
    calibration: Calibration | None,
    parameters: Mapping[str, Any],
) -> Decisions:
    method, evidence = METHODS[name], evaluation.evaluated
    orders = evidence.orders
    if method.over_shifts:
        evidence = _with_shifts(evaluation, parameters["orders"])
        orders = base_orders(evidence, parameters["orders"])
    return decide(method(evidence, calibration, **parameters), orders, evidence.targets)


def _with_shifts(evaluation: Evaluation, orders: str) -> EvidenceArray:
    """The cyclic orders of the evaluated instances, or all that there are."""
    assert evaluation.shifts is not None, "a method is asked first what it lacks"
    if orders == "cyclic":
        return evaluation.shifts
    return _joined(evaluation.shifts, evaluation.evaluated)


def _joined(first: EvidenceArray, second: EvidenceArray) -> EvidenceArray:
    """The orders of both, of the same instances; log-probabilities and orders are all it is for."""
    return replace(
        first,
        log_probs=np.concatenate([first.log_probs, second.log_probs]),
        attention=np.concatenate([first.attention, second.attention]),
        orders=np.concatenate([first.orders, second.orders]),
        image_tokens=None,
    )


def _calibration(origin: Origin, used: Sequence[Calibration]) -> dict[str, Any] | None:
    if not used:
        return None
    made = {
        "benchmark": origin.benchmark,
        "setting": origin.setting,
        "samples": len(used[0].samples),
        "draws": len(used),
    }
    return made | {"leaks": True} if origin.leaks else made


def plain(value: Any) -> Any:
    """As JSON has it: arrays are lists, and what is no finite number is null."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value) > 0:
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating, np.ndarray)):
        return float(value) if math.isfinite(value) else None
    return value
