"""`run.json`: what a folder of evidence is of, and which invocations made it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

from lookright.calibration_file import prompt_hash
from lookright.errors import InputError
from lookright.files import locked, write_atomically
from lookright.settings import EvidenceSettings

NAME, FORMAT = "run.json", 1
#: Field -> what it must be.
_FIELDS = {"format": int, "settings": dict, "instances": dict, "invocations": list}


@dataclass(frozen=True)
class Subject:
    """What evidence is to be of."""

    settings: EvidenceSettings
    benchmark: Mapping[str, Any]  # facts to keep
    #: Part of the benchmark -> id of an instance -> its content hash and its answer.
    instances: Mapping[str, Mapping[str, tuple[str, int | None]]]


def read_run(folder: Path) -> dict[str, Any] | None:
    """What `run.json` says, or None where there is none yet."""
    path = folder / NAME
    if not os.path.lexists(path):
        return None
    try:
        if not path.is_file():
            raise OSError("it is no file")
        run = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({error}); move it away") from None
    if isinstance(run, dict) and isinstance(run.get("format"), int) and run["format"] > FORMAT:
        raise InputError(f"{path}: was written by a newer lookright; update lookright")
    if not _is_record(run):
        raise InputError(f"{path}: is no record of a run; move it away")
    return dict(run)


def begin(
    folder: Path,
    subject: Subject,
    asked: Collection[str],
    saved: Collection[str],
    invocation: Mapping[str, Any],
) -> str:
    """Enter an invocation that asks some instances (by id) of the subject; returns its own id.

    A folder with evidence of other settings or another benchmark is refused, saying what differs;
    `saved` are the content hashes of instances with evidence. A benchmark may have grown since, or
    instances without evidence may have been mended.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made a folder ({error.strerror})") from None
    with locked(folder / ".lock"):
        run = read_run(folder) or {"settings": None, "instances": {}, "invocations": []}
        _check_settings(folder, run["settings"], subject.settings)
        _check_instances(folder, run["instances"], subject, saved)
        known = {name for part in run["instances"].values() for name in part} | set(asked)
        id = token_hex(8)
        started = {"id": id, "started": _now(), "finished": None}
        record = {
            "format": FORMAT,
            "settings_hash": subject.settings.hash,
            "prompt_hash": prompt_hash(subject.settings),
            "settings": subject.settings.to_dict(),
            "benchmark": dict(subject.benchmark),
            "instances": {
                part: {name: facts for name, facts in listed.items() if name in known}
                for part, listed in subject.instances.items()
            },
            "invocations": [*run["invocations"], started | dict(invocation)],
        }
        _write(folder, record)
    return id


@contextmanager
def entered(
    folder: Path,
    subject: Subject,
    asked: Collection[str],
    saved: Collection[str],
    about: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """Enter an invocation as `begin` does, and, however it ends, what has come of it by then.

    What came of it is put into the mapping this yields; `seconds` is added at the end.
    """
    started = time.monotonic()
    invocation = begin(folder, subject, asked, saved, about)
    outcome: dict[str, Any] = {}

    def end() -> None:
        outcome["seconds"] = round(time.monotonic() - started, 3)
        finish(folder, invocation, outcome)

    try:
        yield outcome
    except BaseException:
        with suppress(InputError):  # what ended it is what a person must see
            end()
        raise
    end()


def finish(folder: Path, invocation: str, outcome: Mapping[str, Any]) -> None:
    """Enter how an invocation ended."""
    with locked(folder / ".lock"):
        run = read_run(folder)
        if run is None:
            raise InputError(f"{folder / NAME}: was taken away meanwhile; the evidence is saved")
        for record in run["invocations"]:
            if record["id"] == invocation:
                record |= {"finished": _now(), **outcome}
        _write(folder, run)


def refuse_other_settings(folder: Path, held: EvidenceSettings, asked: EvidenceSettings) -> None:
    if differences := held.differences(asked):
        raise InputError(
            f"{folder}: holds evidence of other settings ({'; '.join(differences)}); choose "
            "another folder for these"
        )


def _check_settings(folder: Path, held: dict[str, Any] | None, asked: EvidenceSettings) -> None:
    if held is None:
        return
    try:
        settings = EvidenceSettings.from_dict(held)
    except InputError as error:
        raise InputError(f"{folder / NAME}: {error}") from None
    refuse_other_settings(folder, settings, asked)


def _check_instances(
    folder: Path, held: Mapping[str, Any], subject: Subject, saved: Collection[str]
) -> None:
    for part, listed in held.items():
        for name, (content, answer) in listed.items():
            now = subject.instances.get(part, {}).get(name)
            if content not in saved:
                continue
            if now is None:
                differs = f"{name!r} is not among its {part}"
            elif now[0] != content:
                differs = f"{name!r} has other words or images"
            elif now[1] != answer:
                differs = f"the answer of {name!r} was {answer} and is {now[1]}"
            else:
                continue
            raise InputError(
                f"{folder}: holds evidence of another benchmark ({differs}); choose another "
                "folder for this one"
            )


def _is_record(run: Any) -> bool:
    if not isinstance(run, dict) or any(not isinstance(run.get(k), t) for k, t in _FIELDS.items()):
        return False
    parts = run["instances"].values()
    return (
        all(isinstance(part, dict) for part in parts)
        and all(_is_pair(facts) for part in parts for facts in part.values())
        and all(isinstance(entry, dict) and "id" in entry for entry in run["invocations"])
    )


def _is_pair(facts: Any) -> bool:
    """A content hash and an answer."""
    return isinstance(facts, list) and len(facts) == 2 and isinstance(facts[0], str)


def _write(folder: Path, run: Mapping[str, Any]) -> None:
    text = json.dumps(run, indent=1, ensure_ascii=False) + "\n"
    # A path may hold bytes that are no text: as JSON escapes they can be read back.
    write_atomically(folder / NAME, text.encode("utf-8", "backslashreplace"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
