"""Benchmarks from a Hugging Face dataset, through the library `datasets` where it is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from lookright.benchmarks.parquet import Table, from_arrow
from lookright.errors import InputError


def read_hub(
    name: str,
    split: str,
    given: Mapping[str, str],
    *,
    config: str | None = None,
    revision: str | None = None,
) -> Table:
    """One split of a dataset by its name on the hub, or of one on this disk."""
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise InputError(
            "datasets of the hub need the library `datasets`: pip install 'lookright[hub]'"
        ) from None
    try:
        found = datasets.load_dataset(name, config, split=split, revision=revision)
        table = found.with_format("arrow")[:]
    except Exception as error:  # whatever a download or a damaged dataset raises
        reason = " ".join(str(error).split())
        raise InputError(f"{name}, split {split}: cannot be loaded: {reason}") from error
    return from_arrow(table, f"{name} ({split})", given)
