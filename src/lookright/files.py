"""Files that are whole or absent, and locks that a killed process lets go of."""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO

from lookright.errors import InputError, shown

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file so that, whatever happens, `path` holds all of it or what it held before.

    One of many files need not outlive a power cut at once: with `durable` off, that is left to one
    `sync` after the last of them.
    """
    try:
        written = False
        while not written:
            written = _written(path, data, durable)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}). What was saved before is "
            "untouched; once there is room and permission to write, the same command goes on"
        ) from None


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of killed writers; those of living ones are held by a lock."""
    for path in folder.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            with suppress(OSError):
                with path.open("r+b") as file:
                    abandoned = _lock(file, wait=False)
                if abandoned:
                    path.unlink()


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock of this name alone; False where the file system knows no locks."""
    try:
        file = path.open("ab")
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be locked ({error.strerror or error})") from None
    with file:
        yield bool(_lock(file, wait=True))


@contextmanager
def sole(path: Path, doing: str) -> Iterator[None]:
    """Be the only process that does this here; another one is told which process that is.

    `path` is a lock file, which stays. Where the file system knows no locks, nobody is kept out.
    """
    try:
        file = path.open("a+b")
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be locked ({error.strerror or error})") from None
    with file:
        if _lock(file, wait=False) is False:
            file.seek(1)  # Windows lets nobody read the byte that is locked
            holder = file.read(200).decode(errors="replace").strip() or "another process"
            raise InputError(
                f"{path.parent}: {doing} by {shown(holder)}; wait for it to end, or choose "
                "another folder"
            )
        file.truncate(0)
        file.write(f" process {os.getpid()} on {socket.gethostname()}\n".encode())
        file.flush()
        yield
        file.truncate(0)


def sync() -> None:
    """Make all that was written outlive a power cut, where the system can."""
    if sys.platform != "win32":
        os.sync()


def _written(path: Path, data: bytes, durable: bool) -> bool:
    """Try once; False where another process took the temporary file for a dead writer's.

    That can only happen in the instants between opening and locking, or closing and renaming.
    """
    temporary = path.with_name(f".{path.name}.{token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            _lock(file, wait=False)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        try:
            temporary.replace(path)
        except FileNotFoundError:
            return False
        return True
    finally:
        with suppress(OSError):
            temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """Make a rename outlive a power cut, where the system can."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _lock(file: IO[bytes], *, wait: bool) -> bool | None:
    """Whether this process now holds the file alone, until it closes it or dies.

    None where the file system knows no locks.
    """
    if sys.platform == "win32":
        return _lock_on_windows(file, wait=wait)
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return True


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def _lock_on_windows(file: IO[bytes], *, wait: bool) -> bool:
        while True:
            try:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                return True
            except OSError:
                if not wait:
                    return False
                time.sleep(0.05)


def settled(folder: Path, suffix: str, kept: str) -> list[Path]:
    """The files of a folder by name, without hidden ones, listed until two listings agree.

    A single listing, taken while files are merged, may lack both a merged file and what was merged
    into it. `kept` is what messages call what the folder holds.
    """

    def names() -> list[str]:
        try:
            found = os.listdir(folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be read as a folder of {kept} ({error.strerror})"
            ) from None
        return sorted(n for n in found if n.endswith(suffix) and not n.startswith("."))

    listed = names()
    while (again := names()) != listed:
        listed = again
    return [folder / name for name in listed]
