"""Files that are whole or absent, and locks that a killed process lets go of."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO

from lookright.errors import InputError

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that, whatever happens, `path` holds all of it or what it held before."""
    try:
        written = False
        while not written:
            written = _written(path, data)
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
        yield _lock(file, wait=True)


def _written(path: Path, data: bytes) -> bool:
    """Try once; False where another process took the temporary file for a dead writer's.

    That can only happen in the instants between opening and locking, or closing and renaming.
    """
    temporary = path.with_name(f".{path.name}.{token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            _lock(file, wait=False)
            file.write(data)
            file.flush()
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


def _lock(file: IO[bytes], *, wait: bool) -> bool:
    """Whether this process now holds the file alone, until it closes it or dies."""
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
        return False
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
