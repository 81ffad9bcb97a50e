"""Vectors of images and captions by any CLIP-like model; stopped, the work goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from lookright.benchmarks.pool import Pool
from lookright.errors import InputError
from lookright.files import write_atomically
from lookright.images import load

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

BATCH = 64

Vectors = NDArray[np.float32]
#: Shows how far a piece of work is: (what it is, how many steps) -> what to call after some.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@contextmanager
def silent(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress that nobody is shown."""
    yield lambda steps: None


class Embedder(Protocol):
    """What turns images and captions into vectors of one space, as `lookright.towers` does."""

    name: str
    revision: str | None

    def of_images(self, pictures: Sequence[Image]) -> Tensor: ...
    def of_captions(self, captions: Sequence[str]) -> Tensor: ...


def embed_pool(
    pool: Pool, embedder: Embedder, folder: Path, progress: Progress, batch: int = BATCH
) -> Pool:
    """The pool with vectors of its images and captions; each finished batch is kept in `folder`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made a folder ({error.strerror or error})") from None
    rows = range(len(pool))
    name = embedder.name if embedder.revision is None else f"{embedder.name}@{embedder.revision}"

    def pictures(chosen: Sequence[int]) -> Vectors:
        loaded = [load(pool.images[row], name=pool.ids[row]) for row in chosen]
        return np.asarray(embedder.of_images(loaded), np.float32)

    def texts(chosen: Sequence[int]) -> Vectors:
        captions = [pool.captions[row] for row in chosen]
        return np.asarray(embedder.of_captions(captions), np.float32)

    def text(row: int) -> str:
        return sha256(pool.captions[row].encode()).hexdigest()

    with progress("Embeddings", 2 * len(pool)) as step:
        parts = [
            list(_batches(rows, encode, key, f"{name}/{what}", folder, batch, step))
            for what, encode, key in (
                ("images", pictures, pool.content),
                ("captions", texts, text),
            )
        ]
    images, captions = (np.concatenate(part) for part in parts)
    return replace(pool, image_vectors=images, caption_vectors=captions, embedder=name)


def _batches(
    rows: Sequence[int],
    encode: Callable[[Sequence[int]], Vectors],
    key: Callable[[int], str],
    what: str,
    folder: Path,
    size: int,
    step: Callable[[int], None],
) -> Iterator[Vectors]:
    """The vectors batch by batch, from the folder where they stand there already."""
    for start in range(0, len(rows), size):
        chosen = rows[start : start + size]
        name = sha256("\n".join([what, *map(key, chosen)]).encode()).hexdigest()[:32]
        path = folder / f"{name}.npy"
        vectors = _kept(path, len(chosen))
        if vectors is None:
            vectors = encode(chosen)
            buffer = BytesIO()
            np.save(buffer, vectors, allow_pickle=False)
            write_atomically(path, buffer.getvalue())
        yield vectors
        step(len(chosen))


def _kept(path: Path, rows: int) -> Vectors | None:
    """What an earlier run left, if it is whole."""
    with suppress(OSError, ValueError, EOFError):
        vectors = np.load(path, allow_pickle=False)
        if vectors.ndim == 2 and len(vectors) == rows:
            return np.asarray(vectors, np.float32)
    return None
