"""What answers like a model and needs none: evidence drawn from what is asked and with what."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from lookright.errors import InputError
from lookright.evidence import Evidence, instance_hash
from lookright.images import content_hash
from lookright.instance import Instance
from lookright.settings import EvidenceSettings

LAYERS = 4
#: What each identifier and each position gets from a model with habits.
HABIT = np.array([0.0, 0.4, 0.9, 1.6, 0.2, 0.7])


class FakeSource:
    """Asks itself in batches of three, and may stop after so many.

    A batch's company leaves a trace in its numbers, as a real model's last bits show one: evidence
    is equal to the last bit only where the batches are.
    """

    def __init__(self, name: str = "fake", stop_after: int | None = None) -> None:
        self.name, self.stop_after = name, stop_after
        self.batches: list[list[tuple[str, tuple[int, ...]]]] = []
        self.windows: list[list[tuple[str, tuple[int, ...]]]] = []
        self.vision = SimpleNamespace(encoded=0)

    @property
    def asked(self) -> list[tuple[str, tuple[int, ...]]]:
        return [question for batch in self.batches for question in batch]

    def settings(self, settings: EvidenceSettings | None = None) -> EvidenceSettings:
        return (settings or EvidenceSettings()).with_changes(model=self.name, dtype="float32")

    def evidence_iter(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings | None = None,
        *,
        heads: bool = False,
        maps: bool = False,
        skip: Callable[[Instance, InputError], None] | None = None,
        windows: Sequence[int] | None = None,
    ) -> Iterator[list[Evidence]]:
        assert not heads
        assert not maps
        assert windows is not None
        questions = list(zip(instances, orders, strict=True))
        for size in windows:
            window, questions = questions[:size], questions[size:]
            self.windows.append([(i.id, tuple(o)) for i, o in window])
            shown = {str(image) for instance, _ in window for image in instance.images}
            self.vision.encoded += len(shown)
            for start in range(0, size, 3):
                if self.stop_after is not None and len(self.batches) >= self.stop_after:
                    raise KeyboardInterrupt
                batch = window[start : start + 3]
                self.batches.append([(i.id, tuple(o)) for i, o in batch])
                company = "".join(f"{i.id}{o}" for i, o in batch)
                yield [self._piece(i, o, self.settings(settings), company) for i, o in batch]
            yield []

    def _piece(
        self, instance: Instance, order: Sequence[int], settings: EvidenceSettings, company: str
    ) -> Evidence:
        n = len(order)
        content = instance_hash(instance, [content_hash(str(image)) for image in instance.images])
        draw = np.random.default_rng(_number(f"{self.name}{content}{tuple(order)}"))
        there = np.array([index == instance.answer for index in order])
        logits = HABIT[:n] + 1.5 * there + draw.normal(0, 1, n)
        attention = np.exp(HABIT[:n] + there + draw.normal(0, 0.5, (LAYERS, n))) / 100
        return Evidence(
            instance_id=instance.id,
            order=tuple(order),
            log_probs=logits - np.logaddexp.reduce(logits) + 1e-9 * (_number(company) % 97),
            attention=attention.astype(np.float32),
            layers=tuple(range(LAYERS)),
            image_tokens=np.full(n, 3),
            settings=settings.hash,
            instance=content,
            target=instance.answer,
        )


def _number(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")


@contextmanager
def no_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    yield lambda steps: None


def make_benchmark(
    folder: Path, count: int = 10, samples: int = 10, n: int = 3, name: str = "", **meta: Any
) -> Path:
    """A folder of `count` instances, and `samples` others to calibrate from."""
    folder.mkdir(parents=True)
    for part, many in (("instances", count), ("calibration", samples)):
        rows = [
            {
                "id": f"{name}{part}-{i}",
                "images": [f"{part}-{i}-{k}.png" for k in range(n)],
                "caption": f"caption {i}",
                "answer": i % n,
            }
            for i in range(many)
        ]
        for row in rows:
            for image in row["images"]:
                (folder / image).write_bytes(f"picture {folder.name} {image}".encode())
        if rows:
            write_rows(folder / f"{part}.jsonl", rows)
    if meta:
        (folder / "benchmark.json").write_text(json.dumps(meta))
    return folder


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
