"""Encoded files, PIL images and arrays to upright RGB, whatever their format and mode.

A truncated image is refused, never filled with grey, and one too large is refused before it is
decoded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from lookright.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: PIL's own classes, opened directly: `Image.open` would apply limits of its own as well.
_OPENERS: dict[str, Callable[[BytesIO], ImageFile.ImageFile]] = {
    "bmp": BmpImageFile,
    "gif": GifImageFile,
    "jpeg": JpegImageFile,
    "png": PngImageFile,
    "tiff": TiffImageFile,
    "webp": WebPImageFile,
}
_MAGIC = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"II+\0", "tiff"),
    (b"MM\0+", "tiff"),
    (b"BM", "bmp"),
)
_EXIF_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_TIFF_TILE_SIDES = (322, 323)
#: How far float pixels may leave [0, 1] by rounding (resampling, float16) before they are refused.
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class Limits:
    """How large an image may be: as encoded bytes, and in pixels once decoded."""

    bytes: int = 64 * 2**20
    pixels: int = 100_000_000


def format_of(data: bytes) -> str | None:
    """The format these bytes announce (one of bmp, gif, jpeg, png, tiff, webp), or None."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)


def from_file(data: bytes, label: str, limits: Limits) -> Image.Image:
    """An encoded file as upright RGB (the first frame or page of several)."""
    kind = format_of(data)
    if kind is None:
        raise InputError(
            f"{label}: {_guess(data)}; lookright reads JPEG, PNG, WebP, GIF, TIFF and BMP"
        )
    file = _Bytes(data)
    with _own_limits(kind):
        try:
            image = _OPENERS[kind](file)
        except Image.DecompressionBombError as error:
            raise InputError(f"{label}: is too large ({error}); make it smaller") from None
        except Exception as error:  # PIL's parsers raise almost anything on a damaged header
            raise InputError(
                f"{label}: is a damaged {kind.upper()} ({_reason(error)}); get the file again"
            ) from None
        _check_size(image.size, label, limits)
        _check_size(_tile_size(image), f"{label}, a tile of it", limits)
        file.ran_out = False
        try:
            image.load()
        except Exception as error:
            raise InputError(
                f"{label}: is a truncated or damaged {kind.upper()} ({_reason(error)}); "
                "get the file again"
            ) from None
    if file.ran_out:
        raise InputError(f"{label}: is a truncated {kind.upper()}; get the file again")
    return _upright_rgb(image, label)


def from_pil(image: Image.Image, label: str, limits: Limits) -> Image.Image:
    """A PIL image, in memory or lazily opened, as upright RGB."""
    _check_size(image.size, label, limits)
    try:
        image.load()
    except Exception as error:
        raise InputError(f"{label}: cannot be decoded ({_reason(error)})") from None
    return _upright_rgb(image, label)


def from_array(array: NDArray[Any], label: str, limits: Limits) -> Image.Image:
    """An array [height, width] or [height, width, 1|3|4] as RGB."""
    shape = array.shape
    if array.ndim not in (2, 3) or (array.ndim == 3 and shape[2] not in (1, 3, 4)):
        first = array.ndim == 3 and shape[0] in (1, 3, 4)
        raise InputError(
            f"{label}: has the shape {shape}, not [height, width] or [height, width, 1, 3 or 4]"
            + ("; array.transpose(1, 2, 0) puts its channels last" if first else "")
        )
    _check_size((shape[1], shape[0]), label, limits)
    if array.dtype.kind != "f" and array.dtype.name not in ("uint8", "uint16"):
        raise InputError(
            f"{label}: has the dtype {array.dtype}; use uint8, uint16, or floats from 0 to 1"
        )
    pixels = array if array.dtype == np.uint8 else _eight_bit(array, label)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    return _upright_rgb(Image.fromarray(np.ascontiguousarray(pixels)), label)


class _Bytes(BytesIO):
    """A file that remembers being read past its end, which whole images never are.

    PIL refuses truncated images by itself, but not where some other library has set its global
    LOAD_TRUNCATED_IMAGES.
    """

    ran_out = False

    def read(self, size: int | None = -1, /) -> bytes:
        got = super().read(size)
        self.ran_out = self.ran_out or (not got and size != 0)
        return got


_FILTERS = Lock()


@contextmanager
def _own_limits(kind: str) -> Iterator[None]:
    """Keep PIL's warning of decompression bombs to itself where its decoders issue it.

    Warning filters belong to the process, hence the lock; the other formats need neither.
    """
    if kind not in ("gif", "tiff"):
        yield
        return
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def _check_size(size: tuple[int, int], label: str, limits: Limits) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise InputError(f"{label}: is {width} x {height} pixels; there is nothing to see")
    if width * height > limits.pixels:
        raise InputError(
            f"{label}: is {width} x {height} pixels, more than the limit of {limits.pixels:,}; "
            "make it smaller"
        )


def _tile_size(image: ImageFile.ImageFile) -> tuple[int, int]:
    """What a TIFF decodes at once: its tiles may be far larger than itself."""
    if not isinstance(image, TiffImageFile):
        return (1, 1)
    sides = [image.tag_v2.get(tag, 1) for tag in _TIFF_TILE_SIDES]
    width, height = (side if isinstance(side, int) else 0 for side in sides)
    return width, height


def _guess(data: bytes) -> str:
    start = data[:512].lstrip().lower()
    if start.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the image it stands for (run `git lfs pull`)"
    if start.startswith(b"<"):
        return "is a text page or an SVG, not a picture of pixels"
    if data[4:8] == b"ftyp":
        return "is a HEIC, AVIF or video file (convert it to JPEG or PNG)"
    return "is no image, or one of another format"


def _upright_rgb(image: Image.Image, label: str) -> Image.Image:
    turn = _turn(image)
    try:
        rgb = _rgb(image, label)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{label}: has pixels of mode {image.mode} that cannot become RGB ({_reason(error)}); "
            "convert it to RGB first"
        ) from None
    if turn is None:
        return rgb
    turned = rgb.transpose(turn)
    turned.info = {}  # its EXIF would turn it once more
    return turned


def _turn(image: Image.Image) -> Image.Transpose | None:
    try:
        return _TURNS.get(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:
        return None  # a damaged EXIF block says nothing of a rotation


def _rgb(image: Image.Image, label: str) -> Image.Image:
    """RGB from every mode of PIL's: alpha over white, greyscale of 16 bits and floats scaled."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image)
        image = Image.fromarray(_eight_bit(values, label, image.info.get("transparency")))
    if image.mode in ("La", "RGBa"):  # alpha multiplied in already
        image = image.convert({"La": "LA", "RGBa": "RGBA"}[image.mode])
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def _eight_bit(values: NDArray[Any], label: str, clear: object = None) -> NDArray[np.uint8]:
    """Pixels of 16 bits (0..65535) or floats (0..1) scaled to 0..255; those equal to `clear` white.

    Integers of 32 bits are taken where they fit 16: that is how PIL holds some 16 bit files.
    """
    low, high = values.min(), values.max()
    if values.dtype.kind == "f":
        if not (np.isfinite(low) and np.isfinite(high)):
            raise InputError(f"{label}: holds NaN or infinite pixels; use numbers from 0 to 1")
        if low < -_ROUNDING or high > 1 + _ROUNDING:
            raise InputError(
                f"{label}: holds float pixels from {low:.4g} to {high:.4g}; scale them to 0 to 1"
            )
        scaled: NDArray[Any] = np.rint(np.clip(values, 0, 1).astype(np.float32) * 255)
        return scaled.astype(np.uint8)
    if low < 0 or high > 65535:
        raise InputError(
            f"{label}: holds pixels from {low} to {high}; convert it to 8 or 16 bits first"
        )
    grey: NDArray[np.uint8] = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if clear is not None:
        grey[values == clear] = 255
    return grey


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
