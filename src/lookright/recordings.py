"""Recorded evidence: reading it, and telling calibration orders from evaluated ones."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lookright.errors import EvidenceWarning, InputError, shown
from lookright.evidence import Evidence, EvidenceArray
from lookright.instance import Instance, Order, cyclic_orders, orders_for, shift_of
from lookright.npz import read_npz
from lookright.runs import read_run
from lookright.settings import EvidenceSettings
from lookright.store import Store

Orders = dict[str, list[Order]]  # of each instance, by its id


@dataclass(frozen=True, eq=False)
class Recording:
    """Evidence of instances in the orders to evaluate, and in their N cyclic orders.

    Neither need hold every instance: samples to calibrate from may have cyclic orders alone.
    """

    name: str
    ids: tuple[str, ...]  # of all instances, in the order in which slices count them
    evaluated: EvidenceArray  # [T, M, ...]
    cyclic: EvidenceArray | None = None  # [N, M', ...], row s is shift s
    calibration: tuple[str, ...] = ()  # ids of the samples meant to calibrate from, where known
    settings: EvidenceSettings | None = None  # in full, where known
    setting: str | None = None  # of the benchmark, where known


def load_evidence(
    path: str | os.PathLike[str], orders: str | None = None, seed: int = 0
) -> Recording:
    """Recorded evidence from an evidence folder, or a recording (.npz, see `lookright.npz`).

    `orders` and `seed` say which orders of a folder are evaluated, as for `orders_for`
    ("random:5"); without, those its run asked for beside the cyclic ones.
    """
    path = Path(path)
    if os.path.isdir(path):  # os.path: a name too long for the system is no folder, not an error
        return _from_folder(path, orders, seed)
    if not os.path.exists(path):
        raise InputError(f"{shown(str(path))}: there is no such file or folder")
    if orders is not None:
        raise InputError(f"{path}: the orders of an .npz are found by value; leave --orders out")
    return split_orders(path.stem, read_npz(path))


def split_orders(name: str, evidence: EvidenceArray) -> Recording:
    """Orders shared by all instances: each cyclic one is taken once, what remains is evaluated.

    Where no order remains, the cyclic ones are evaluated; where the cyclic ones are not all there,
    every order is.
    """
    first: dict[int, int] = {}
    for row, order in enumerate(evidence.orders[:, 0]):
        shift = shift_of(order)
        if shift is not None:
            first.setdefault(shift, row)
    if len(first) < evidence.n:
        return Recording(name, evidence.instance_ids, evidence)
    cyclic = evidence.take(orders=[first[shift] for shift in range(evidence.n)])
    rest = [row for row in range(len(evidence.orders)) if row not in first.values()]
    if not rest:
        _warn_of_cyclic_alone(name, evidence.n)
        return Recording(name, evidence.instance_ids, cyclic, cyclic)
    return Recording(name, evidence.instance_ids, evidence.take(orders=rest), cyclic)


def instance_range(text: str, total: int) -> range:
    """The instances a slice names, as in "0:5" or "20:"; one that leaves them is refused."""
    ends = re.fullmatch(r"(\d{0,12}):(\d{0,12})", text, re.ASCII)
    if ends is None:
        raise InputError(f"instances '{shown(text)}': give a slice, as in 0:5 or 20:")
    start, stop = int(ends[1] or 0), int(ends[2] or total)
    if start >= stop or stop > total:
        raise InputError(
            f"instances {text!r}: names none, or more than there are (0 to {total - 1}; the end of "
            "a slice is not part of it)"
        )
    return range(start, stop)


def _from_folder(folder: Path, orders: str | None, seed: int) -> Recording:
    """An evidence folder, whose instances may each have orders of their own."""
    store, run = Store(folder), read_run(folder) or {}
    settings = list(store.settings().values())
    if len(settings) > 1:
        raise InputError(
            f"{folder}: holds evidence of {len(settings)} settings, which do not mix "
            f"({'; '.join(settings[0].differences(settings[1]))}); keep each in its own folder"
        )
    pieces = _listed(store.read(), run)
    if not pieces:
        raise InputError(f"{folder}: there is no evidence in this folder")
    held: Orders = {}
    for piece in pieces:
        held.setdefault(piece.instance_id, []).append(piece.order)
    shifts = {name: cyclic_orders(len(found[0])) for name, found in held.items()}
    cyclic = {name: shifts[name] for name, found in held.items() if {*shifts[name]} <= {*found}}
    benchmark = _object(run, "benchmark")
    setting = _object(benchmark, "meta").get("setting")
    samples = _object(_object(run, "instances"), "calibration")
    try:
        spec = (orders, seed) if orders is not None else _asked_for(run)
        evaluated = _beside(held, cyclic) if spec is None else _by_spec(held, *spec)
        if not evaluated:
            _warn_of_cyclic_alone(str(folder), len(pieces[0].order))
        return Recording(
            name=Path(str(benchmark.get("path", folder))).name,
            ids=tuple(held),
            evaluated=_array(pieces, evaluated or cyclic),
            cyclic=_array(pieces, cyclic) if cyclic else None,
            calibration=tuple(name for name in held if name in samples),
            settings=settings[0],
            setting=setting if isinstance(setting, str) else None,
        )
    except InputError as error:
        raise InputError(f"{folder}: {error}") from None


def _listed(pieces: Sequence[Evidence], run: Mapping[str, Any]) -> list[Evidence]:
    """Evidence of each instance that its run lists, in that order, calibration first.

    Instances of equal content were asked once: what there is of that content is each one's own.
    Evidence of instances that are not listed comes last, under the names it was saved with.
    """
    parts = _object(run, "instances")
    by_content: dict[str, list[Evidence]] = {}
    for piece in pieces:
        by_content.setdefault(piece.instance, []).append(piece)
    found = []
    for name, entry in {**_object(parts, "calibration"), **_object(parts, "instances")}.items():
        if isinstance(entry, list) and len(entry) == 2:
            own = by_content.get(str(entry[0]), [])
            found += [replace(piece, instance_id=name, target=entry[1]) for piece in own]
    known = {piece.instance for piece in found}
    return found + [piece for piece in pieces if piece.instance not in known]


def _asked_for(run: Mapping[str, Any]) -> tuple[str, int] | None:
    """The orders that were asked of the run's instances beside the cyclic ones, and their seed."""
    requests = [_object(entry, "request") for entry in _list(run, "invocations")]
    asked = {
        (str(spec), request["seed"])
        for request in requests
        if request.get("part") != "calibration" and isinstance(request.get("seed"), int)
        for spec in _list(request, "orders")
        if spec != "cyclic"
    }
    if len(asked) > 1:
        specs = ", ".join(f"{spec} with seed {seed}" for spec, seed in sorted(asked))
        raise InputError(f"it was asked for several orders ({specs}); name one, with --orders")
    return asked.pop() if asked else None


def _object(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of `run.json` that is an object; empty where it is anything else."""
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _list(values: Mapping[str, Any], name: str) -> Sequence[Any]:
    """The same for a list."""
    value = values.get(name)
    return value if isinstance(value, list) else []


def _by_spec(held: Orders, spec: str, seed: int) -> Orders:
    """The orders a spec gives, of the instances that were asked for them.

    One that has only such of them as are cyclic was not: it is a sample to calibrate from.
    """
    named = [Instance(id, ("",) * len(orders[0]), caption="-") for id, orders in held.items()]
    found: Orders = {}
    for (id, orders), wanted in zip(held.items(), orders_for(named, spec, seed), strict=True):
        there = {*wanted} & {*orders}
        if len(there) == len(wanted) or not there <= {*cyclic_orders(len(orders[0]))}:
            found[id] = wanted
    if not found:
        raise InputError(f"no instance has evidence of the orders {shown(spec)!r} (seed {seed})")
    return found


def _beside(held: Orders, cyclic: Orders) -> Orders:
    """The orders beside the cyclic ones; all, of an instance without every cyclic one."""
    found = {
        id: [order for order in orders if order not in cyclic.get(id, ())]
        for id, orders in held.items()
    }
    found = {id: orders for id, orders in found.items() if orders}
    if len({len(orders) for orders in found.values()}) > 1:
        raise InputError(
            "beside the cyclic orders, the instances have different numbers of orders (a random "
            "order may be a cyclic one); name those to evaluate, as in --orders random:5"
        )
    return found


def _array(pieces: Sequence[Evidence], orders: Orders) -> EvidenceArray:
    """The evidence of these orders of these instances, once it is sure that it can be used."""
    chosen = [piece for piece in pieces if piece.instance_id in orders]
    return EvidenceArray.of(chosen, [orders[name] for name in orders]).checked()


def _warn_of_cyclic_alone(name: str, n: int) -> None:
    warnings.warn(
        f"{name}: holds the {n} cyclic orders alone, and those are evaluated",
        EvidenceWarning,
        stacklevel=3,
    )
