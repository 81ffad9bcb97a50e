"""Generated answers and the folder they are kept in: raw texts, read out later by any rule.

A folder holds JSON Lines files that appear at once, whole. The first line of a file says how its
texts were written, every other one is an answer. Where two have the same key, the first counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from secrets import token_hex
from typing import Any

from lookright.errors import InputError
from lookright.files import locked, remove_leftovers, settled, write_atomically
from lookright.instance import Order
from lookright.settings import EvidenceSettings

FORMAT = 1

#: What a text answers: content hash of the instance, order, hash of the writing, sample.
AnswerKey = tuple[str, Order, str, int]


@dataclass(frozen=True)
class Writing:
    """How texts are written: everything that changes them."""

    baseline: str
    settings: EvidenceSettings  # the model's name, revision and number format filled in
    max_new_tokens: int
    temperature: float | None = None  # None: the likeliest token each time
    top_k: int | None = None
    seed: int = 0

    @property
    def hash(self) -> str:
        return sha256(self._text().encode()).hexdigest()[:16]

    def seed_of(self, content: str, order: Order, sample: int) -> str:
        """What decides how one answer is drawn, and nothing else does."""
        return f"{self.seed}/{content}/{','.join(map(str, order))}/{sample}"

    def _text(self) -> str:
        values = asdict(self) | {"settings": self.settings.hash}
        return json.dumps(values, sort_keys=True)

    def to_header(self) -> bytes:
        values = {"format": FORMAT} | asdict(self) | {"settings": self.settings.to_dict()}
        return json.dumps(values, ensure_ascii=False, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_header(cls, line: bytes) -> Writing:
        values = dict(json.loads(line))
        if (written := values.pop("format")) != FORMAT:
            raise ValueError(f"it is of format {written}, and this lookright reads {FORMAT}")
        return cls(**values | {"settings": EvidenceSettings.from_dict(values["settings"])})


@dataclass(frozen=True)
class Answer:
    """One text generated in answer to one (instance, order)."""

    instance_id: str
    instance: str  # content hash
    order: Order
    sample: int
    text: str
    writing: str  # Writing.hash
    target: int | None = None  # the target's index among the instance's images

    @property
    def key(self) -> AnswerKey:
        """Nothing with the same key need be generated again."""
        return (self.instance, self.order, self.writing, self.sample)

    def to_line(self) -> bytes:
        values = asdict(self)
        del values["writing"]
        return json.dumps(values, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes, writing: str) -> Answer:
        values = dict(json.loads(line))
        if not isinstance(values["text"], str):
            raise ValueError("an answer without a text")
        return cls(**values | {"order": tuple(values["order"]), "writing": writing})


class Answers:
    """The answers in one folder, which is made when the first are appended."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)

    def append(self, answers: Sequence[Answer], writing: Writing) -> None:
        """Save answers of this writing, all of them or none; once this returns, they last."""
        if not answers:
            return
        for answer in answers:
            if answer.writing != writing.hash:
                raise InputError(
                    f"answer of instance {answer.instance_id!r}: is of the writing "
                    f"{answer.writing!r}, not of {writing.hash!r} as said"
                )
        self._write(f"{time.time_ns():020d}", writing.to_header(), [a.to_line() for a in answers])

    def keys(self, writing: str | None = None) -> set[AnswerKey]:
        """What there is an answer to: of all writings, or of one (its hash)."""
        return {answer.key for answer in self.read(writing)}

    def read(
        self, writing: str | None = None, instances: Collection[str] | None = None
    ) -> list[Answer]:
        """Answers in the order they were written: all, or those of one writing (its hash) and of
        some instances (their content hashes)."""
        first: dict[AnswerKey, Answer] = {}
        for _, answers in self._each():
            for answer in answers:
                if writing in (None, answer.writing) and (
                    instances is None or answer.instance in instances
                ):
                    first.setdefault(answer.key, answer)
        return list(first.values())

    def writings(self) -> dict[str, Writing]:
        """The writings there are answers of, by their hash."""
        return {writing.hash: writing for writing, _ in self._each()}

    def compact(self) -> None:
        """Merge the files into one for each writing, and clean up after killed writers.

        Others may read and write meanwhile. A file is deleted only once its answers stand in
        another one on the disk.
        """
        if not self.folder.is_dir():
            return
        with locked(self.folder / ".lock") as held:
            if not held:
                return
            remove_leftovers(self.folder)
            files: dict[bytes, list[Path]] = {}
            for path in self._files():
                files.setdefault(_read(path)[0].to_header(), []).append(path)
            for header, paths in files.items():
                if len(paths) == 1:
                    continue
                first: dict[AnswerKey, Answer] = {}
                for answer in (answer for path in paths for answer in _read(path)[1]):
                    first.setdefault(answer.key, answer)
                lines = [answer.to_line() for answer in first.values()]
                self._write(paths[0].name[:20], header, lines)
                for path in paths:
                    with suppress(OSError):  # one that stays (Windows, open elsewhere) does no harm
                        path.unlink()

    def _write(self, stamp: str, header: bytes, lines: Sequence[bytes]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self.folder}: no folder can be made there ({error.strerror})"
            ) from None
        path = self.folder / f"{stamp}-{token_hex(8)}.jsonl"
        write_atomically(path, header + b"".join(lines))

    def _each(self) -> Iterator[tuple[Writing, list[Answer]]]:
        """What every file holds; where one vanished meanwhile (it was merged), from the start."""
        while True:
            path = self.folder
            try:
                found = []
                for path in self._files():
                    found.append(_read(path))
                yield from found
                return
            except FileNotFoundError:
                if path in self._files():
                    raise InputError(
                        f"{path}: is listed but cannot be found; move it away"
                    ) from None

    def _files(self) -> list[Path]:
        """The files by name, oldest first; some may be being merged."""
        return settled(self.folder, ".jsonl", "answers")


def _read(path: Path) -> tuple[Writing, list[Answer]]:
    """What one file holds; one that is not whole is refused by name."""
    try:
        first, *lines = path.read_bytes().splitlines()
        writing = Writing.from_header(first)
        named = writing.hash
        return writing, [Answer.from_line(line, named) for line in lines]
    except FileNotFoundError:
        raise
    except OSError as error:
        reason: Any = error.strerror or error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = error
    raise InputError(
        f"{path}: is no whole file of answers ({reason}). The others are left alone: move it away, "
        "and what it held will be generated again"
    )
