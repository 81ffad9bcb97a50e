"""Images from whatever they are given as: read once within limits, hashed, decoded when wanted.

Every failure is an `InputError` that names the image and says what to do.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

import numpy as np
from PIL import Image

from lookright.errors import InputError, shown
from lookright.pixels import Limits, from_array, from_file, from_pil

if TYPE_CHECKING:
    from lookright.instance import ImageSource

_LIMITS = Limits()


@dataclass(frozen=True, eq=False)
class Picture:
    """An image that has been read but, where it came encoded, not yet decoded."""

    label: str  # what messages call it
    content: bytes | Image.Image  # an encoded file, or upright RGB
    limits: Limits = _LIMITS

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the encoded bytes, or over mode, size and pixels; decodes nothing."""
        if isinstance(self.content, bytes):
            return sha256(self.content).hexdigest()
        header = f"{self.content.mode} {self.content.width} {self.content.height} "
        return sha256(header.encode() + self.content.tobytes()).hexdigest()

    def decode(self, size: tuple[int, int] | None = None) -> Image.Image:
        """The picture as RGB, upright, alpha over white; squashed to (width, height) if asked."""
        image = self.content
        if isinstance(image, bytes):
            image = from_file(image, self.label, self.limits)
        return image if size is None else image.resize(size, Image.Resampling.BICUBIC)


def read(
    source: ImageSource,
    root: str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    limits: Limits = _LIMITS,
) -> Picture:
    """Read `source` once, for its hash and for decoding it later.

    A path is taken from `root` where one is given, and may not leave it. `name` is what messages
    call the image, such as "image 2 of instance 'a'".
    """
    label = label_of(source, name)
    if isinstance(source, Image.Image):
        return Picture(label, from_pil(source, label, limits), limits)
    if isinstance(source, np.ndarray):
        return Picture(label, from_array(source, label, limits), limits)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Picture(label, _sized(bytes(source), label, limits), limits)
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(
            f"{label}: an image must be a path, encoded bytes, a data URL, a PIL image or an "
            f"array, not {type(source).__name__}"
        )
    text = os.fsdecode(source)
    if text[:5].lower() == "data:":
        return Picture(label, _from_data_url(text, label, limits), limits)
    return Picture(label, _from_path(resolve(text, root, label), label, limits), limits)


def load(
    source: ImageSource,
    root: str | os.PathLike[str] | None = None,
    size: tuple[int, int] | None = None,
    *,
    name: str | None = None,
    limits: Limits = _LIMITS,
) -> Image.Image:
    """The image as RGB, whatever it is given as; `size` squashes it to (width, height), bicubic."""
    return read(source, root, name=name, limits=limits).decode(size)


def content_hash(
    source: ImageSource,
    root: str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    limits: Limits = _LIMITS,
) -> str:
    """What tells this image from any other, without decoding it (see `Picture.hash`)."""
    return read(source, root, name=name, limits=limits).hash


def label_of(source: object, name: str | None) -> str:
    """What messages call an image: `name`, where there is one, and what it was given as."""
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source) or "''"
        kind = "data URL" if path[:5].lower() == "data:" else shown(path)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        kind = "encoded bytes"
    elif isinstance(source, Image.Image):
        kind = "PIL image"
    else:
        kind = "array" if isinstance(source, np.ndarray) else type(source).__name__
    return kind if name is None else f"{name} ({kind})"


def resolve(path: str, root: str | os.PathLike[str] | None, label: str) -> Path:
    """`path` taken from `root`; refused where it leaves the root, by name or through a link."""
    if path[:8].lower().startswith(("http://", "https://")):
        raise InputError(f"{label}: lookright does not fetch images; download it and give its path")
    if root is None:
        return Path(path)
    try:
        base = Path(root).resolve()
        found = (base / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, a loop of links
        raise InputError(f"{label}: is no usable path ({error})") from None
    if Path(path).is_absolute() or not found.is_relative_to(base):
        raise InputError(f"{label}: climbs out of its folder {root}; give a path inside it")
    return found


def check_file(path: Path, label: str) -> int:
    """The size of a file that is there and not empty; no byte of it is read."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise InputError(f"{label}: there is no such file; check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{label}: cannot be read ({_reason(error)})") from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{label}: is a folder; name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{label}: is no regular file")
    if status.st_size == 0:
        raise InputError(f"{label}: is empty; replace the file")
    return status.st_size


def _sized(data: bytes, label: str, limits: Limits) -> bytes:
    if not data:
        raise InputError(f"{label}: is empty; there is no image in it")
    if len(data) > limits.bytes:
        _too_heavy(len(data), label, limits)
    return data


def _too_heavy(size: int, label: str, limits: Limits) -> NoReturn:
    raise InputError(
        f"{label}: has {size:,} bytes, more than the limit of {limits.bytes:,}; make it smaller"
    )


def _from_path(path: Path, label: str, limits: Limits) -> bytes:
    size = check_file(path, label)
    if size > limits.bytes:
        _too_heavy(size, label, limits)
    try:
        with path.open("rb") as file:
            return _sized(file.read(limits.bytes + 1), label, limits)
    except OSError as error:
        raise InputError(f"{label}: cannot be read ({_reason(error)})") from None


def _from_data_url(text: str, label: str, limits: Limits) -> bytes:
    head, comma, body = text.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise InputError(f"{label}: must look like 'data:image/png;base64,...'")
    if len(body) // 4 > limits.bytes:  # %-escaped throughout, a byte takes 4 characters
        _too_heavy(len(body) // 4, label, limits)
    try:
        data = base64.b64decode("".join(unquote(body).split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{label}: is not proper base64 ({error}); encode it anew") from None
    return _sized(data, label, limits)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
