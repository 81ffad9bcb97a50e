"""embedding: the image whose vector is nearest the caption's, by a two-tower model.

Its evidence of an instance is the softmax of the cosines, scaled as the model itself does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.baselines.baseline import Baseline
from lookright.collect import Source
from lookright.errors import InputError
from lookright.evidence import Evidence, instance_hash
from lookright.instance import Instance, Order, check_order
from lookright.settings import EvidenceSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lookright.images import Picture
    from lookright.towers import Towers

#: Where nobody says which.
EMBEDDER = "openai/clip-vit-large-patch14"

#: Instances embedded together, where no windows say which.
TOGETHER = 16

Skip = Callable[[Instance, InputError], None]


class Nearest:
    """A two-tower model as a `Source` of evidence without attention."""

    def __init__(self, towers: Towers) -> None:
        self.towers = towers

    def settings(self, settings: EvidenceSettings | None = None) -> EvidenceSettings:
        """Of the settings given, only the size images are squashed to means anything here."""
        size = None if settings is None else settings.image_size
        return EvidenceSettings(
            prompt="{caption}",
            image_size=size,
            model=self.towers.name,
            revision=self.towers.revision,
            dtype=str(self.towers.hf.dtype).removeprefix("torch."),
        )

    def evidence_iter(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings | None = None,
        *,
        heads: bool = False,
        maps: bool = False,
        skip: Skip | None = None,
        windows: Sequence[int] | None = None,
    ) -> Iterator[list[Evidence]]:
        """One list for each batch; each order only says how an instance's answer is laid out.
        `windows` as of `Model.evidence_iter`."""
        if heads or maps:
            raise InputError("embedding has two towers: there are no heads or maps to keep")
        settings = self.settings(settings)
        sizes = windows
        if sizes is None:
            sizes = [len(instances[k : k + TOGETHER]) for k in range(0, len(instances), TOGETHER)]
        for start, stop in pairwise(accumulate(sizes, initial=0)):
            yield self._evidence(instances[start:stop], orders[start:stop], settings, skip)
            if windows is not None:
                yield []

    def _evidence(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings,
        skip: Skip | None,
    ) -> list[Evidence]:
        from lookright.images import read

        asked: list[tuple[Instance, Order, list[Picture]]] = []
        images: dict[str, Any] = {}  # each image goes through the tower once
        for instance, order in zip(instances, orders, strict=True):
            try:
                EMBEDDING.check([instance])
                shown = check_order(order, len(instance.images))
                own = [
                    read(source, name=f"image {index} of instance {instance.id!r}")
                    for index, source in enumerate(instance.images)
                ]
                decoded = {p.hash: p.decode(settings.image_size) for p in own}
            except InputError as error:
                if skip is None:
                    raise
                skip(instance, error)
                continue
            images |= decoded
            asked.append((instance, shown, own))
        if not asked:
            return []
        vectors = self.towers.of_images(list(images.values())).double().numpy()
        of_image = dict(zip(images, vectors, strict=True))
        captions = self.towers.of_captions([instance.caption or "" for instance, _, _ in asked])
        return [
            self._piece(instance, order, [p.hash for p in own], of_image, caption, settings)
            for (instance, order, own), caption in zip(
                asked, captions.double().numpy(), strict=True
            )
        ]

    def _piece(
        self,
        instance: Instance,
        order: Order,
        hashes: Sequence[str],
        of_image: dict[str, NDArray[np.float64]],
        caption: NDArray[np.float64],
        settings: EvidenceSettings,
    ) -> Evidence:
        cosines = np.array([of_image[hashes[index]] @ caption for index in order])
        scores = self.towers.scale * cosines
        return Evidence(
            instance_id=instance.id,
            order=order,
            log_probs=scores - np.logaddexp.reduce(scores),
            attention=np.zeros((0, len(order)), dtype=np.float32),
            layers=(),
            image_tokens=np.zeros(len(order), dtype=np.int64),
            settings=settings.hash,
            instance=instance_hash(instance, hashes),
            target=instance.answer,
        )


def _source(towers: Any) -> Source:
    return Nearest(towers)


EMBEDDING = Baseline(
    "embedding",
    own_prompt=True,
    once=True,
    costs=lambda n: 0,
    source=_source,
    of_towers=True,
)
