"""A pool: captioned images, as columns, from which every builder but `mmiu` draws its questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookright.errors import InputError, shown
from lookright.images import content_hash
from lookright.instance import MAX_ID, ImageSource

Vectors = NDArray[np.floating[Any]]  # [rows, dimensions]

_BLOCK = 8192  # rows looked at together, so that no copy of all vectors is made


@dataclass(frozen=True, eq=False)
class Pool:
    """P captioned images; categories and vectors where the source has them."""

    source: str  # what messages and `benchmark.json` call it
    ids: Sequence[str]  # P names, each once
    images: Sequence[ImageSource]
    captions: Sequence[str]
    categories: Sequence[frozenset[str]] | None = None
    image_vectors: Vectors | None = None  # [P, D]
    caption_vectors: Vectors | None = None  # [P, E]
    embedder: str | None = None  # whose vectors these are
    #: Whether the caption of one image is true of another, where that can be known.
    fits: Callable[[int, int], bool] | None = None
    _contents: dict[int, str] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        columns = {
            "images": self.images,
            "captions": self.captions,
            "categories": self.categories,
            "image vectors": self.image_vectors,
            "caption vectors": self.caption_vectors,
        }
        for name, column in columns.items():
            if column is not None and len(column) != len(self.ids):
                raise InputError(
                    f"{self.source}: has {len(self.ids):,} ids but {len(column):,} {name}"
                )
        _check_ids(self)
        for name, caption in zip(self.ids, self.captions, strict=True):
            if not caption.strip():
                raise InputError(
                    f"{self.source}, {shown(repr(name))}: its caption is empty; give it one, or "
                    "leave it out"
                )
        for what, vectors in (("image", self.image_vectors), ("caption", self.caption_vectors)):
            if vectors is not None:
                _check_vectors(vectors, f"{self.source}, {what} vectors", self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def has_categories(self) -> bool:
        """Whether any image has a category; a source where none does has no such rule."""
        return self.categories is not None and any(self.categories)

    def content(self, index: int) -> str:
        """The content hash of an image, read once and only when it is asked for."""
        if index not in self._contents:
            name = f"the image of {shown(repr(self.ids[index]))}"
            self._contents[index] = content_hash(self.images[index], name=name)
        return self._contents[index]


def _check_ids(pool: Pool) -> None:
    for name in pool.ids:
        if not name or len(name) > MAX_ID:
            raise InputError(
                f"{pool.source}: an id must have 1 to {MAX_ID} characters, not {shown(repr(name))}"
            )
    name, count = Counter(pool.ids).most_common(1)[0] if pool.ids else ("", 0)
    if count > 1:
        raise InputError(f"{pool.source}: the id {shown(repr(name))} stands there {count} times")
    if len(pool.ids) < 2:
        raise InputError(
            f"{pool.source}: holds {len(pool.ids)} captioned images; choosing needs at least two"
        )


def _check_vectors(vectors: Vectors, where: str, ids: Sequence[str]) -> None:
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise InputError(f"{where}: must be one list of numbers for each image, all of one length")
    for start in range(0, len(vectors), _BLOCK):
        sizes = np.linalg.norm(vectors[start : start + _BLOCK].astype(np.float32), axis=1)
        for bad, what in ((~np.isfinite(sizes), "not finite"), (sizes == 0, "all zeros")):
            if bad.any():
                name = shown(repr(ids[start + int(np.argmax(bad))]))
                raise InputError(f"{where}: that of {name} is {what}; embed the images anew")
