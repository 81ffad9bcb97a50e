"""Recordings as one .npz file.

`logp` [P, M, N] log-probabilities and `attn` [P, M, L, N] attention by position, `perms` [P, N] the
orders, shared by all instances, and `y` [M] the targets' indices.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from lookright.errors import InputError, reason
from lookright.evidence import EvidenceArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Array -> (kinds of number it may hold, its axes, in words).
_ARRAYS = {
    "logp": ("f", "floating point [orders, instances, N]", 3),
    "attn": ("f", "floating point [orders, instances, layers, N]", 4),
    "perms": ("iu", "integers [orders, N]", 2),
    "y": ("iu", "integers [instances]", 1),
}


def read_npz(path: Path) -> EvidenceArray:
    """The arrays of the file as evidence, once it is sure that they fit each other."""
    arrays = _arrays(path)
    logp, attn, perms, y = (arrays[name] for name in _ARRAYS)
    orders, instances, n = logp.shape
    shapes = {
        "attn": (attn.shape[:2] + attn.shape[3:], (orders, instances, n)),
        "perms": (perms.shape, (orders, n)),
        "y": (y.shape, (instances,)),
    }
    for name, (found, wanted) in shapes.items():
        if found != wanted:
            raise InputError(
                f"{path}: array '{name}' has the shape {arrays[name].shape}, which does not fit "
                f"'logp' {logp.shape}"
            )
    try:
        return EvidenceArray(
            log_probs=logp,
            attention=attn,
            orders=np.repeat(perms.astype(np.int64)[:, None], instances, axis=1),
            targets=y.astype(np.int64),
            layers=tuple(range(attn.shape[2])),
            instance_ids=tuple(map(str, range(instances))),
        ).checked()
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays a recording must have, each read, numeric and of the right number of axes."""
    with _stream(path) as stream, _opened(stream, path) as file:
        if missing := [name for name in _ARRAYS if name not in file]:
            raise InputError(
                f"{path}: has no array '{missing[0]}'; a recording holds {', '.join(_ARRAYS)}"
            )
        arrays = {name: _member(file, name, path) for name in _ARRAYS}
    for name, (kinds, wanted, axes) in _ARRAYS.items():
        array = arrays[name]
        if array.dtype.kind not in kinds or array.ndim != axes:
            raise InputError(
                f"{path}: array '{name}' is {array.dtype} with the shape {array.shape}; it must be "
                f"{wanted}"
            )
    return arrays


def _stream(path: Path) -> IO[bytes]:
    """The file, opened here because NumPy forgets to close one whose archive is damaged."""
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _opened(stream: IO[bytes], path: Path) -> Any:
    try:
        file = np.load(stream, allow_pickle=False)
    except Exception as error:  # whatever a foreign file makes the reader stumble over
        raise InputError(f"{path}: is no .npz file ({reason(error)})") from None
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise InputError(f"{path}: is one array, not an .npz file of several")
    return file


def _member(file: Mapping[str, Any], name: str, path: Path) -> NDArray[Any]:
    """One array of the file; one that holds Python objects is refused, never unpickled."""
    try:
        array = file[name]
    except Exception as error:  # damaged data: zlib, zipfile, header and memory errors alike
        why = reason(error)
        if "allow_pickle" in why:
            why = "it holds Python objects, which are never loaded"
        raise InputError(f"{path}: array '{name}' cannot be read ({why})") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: '{name}' is no array")
    return array
