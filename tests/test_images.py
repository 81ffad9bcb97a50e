"""Images: every form, format and mode becomes the same upright RGB, or a sentence."""

from __future__ import annotations

import base64
import io
import os
import struct
import tracemalloc
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from lookright.errors import InputError
from lookright.images import content_hash, load, read
from lookright.pixels import Limits, format_of

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")


def scene(width: int = 40, height: int = 24) -> Image.Image:
    """A picture whose four corners differ, smooth enough for lossy formats."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, 255 - x], axis=-1).astype(np.uint8))


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def pixels(image: Image.Image) -> np.ndarray[Any, Any]:
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


def same(one: Image.Image, other: Image.Image, within: int = 0) -> bool:
    return one.size == other.size and int(abs(pixels(one) - pixels(other)).max()) <= within


def tiff(tags: dict[int, tuple[int, int]], data: bytes = b"") -> bytes:
    """A TIFF of these tags: number -> (3 for 16 bits or 4 for 32 bits, value)."""
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    rows = [
        struct.pack("<HHII", tag, kind, 1, value) for tag, (kind, value) in sorted(tags.items())
    ]
    return head + b"".join(rows) + bytes(4) + data


# Formats


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_picture_in_rgb(form: str) -> None:
    data = encoded(scene(), form)
    assert format_of(data) == form.lower()
    within = {"JPEG": 16, "WEBP": 16, "GIF": 40}.get(form, 0)
    assert same(load(data), scene(), within)


@pytest.mark.parametrize("options", [{"progressive": True}, {"subsampling": 0, "quality": 95}])
def test_every_kind_of_jpeg_is_read(options: dict[str, Any]) -> None:
    assert same(load(encoded(scene(), "JPEG", **options)), scene(), within=16)


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_deflate", "packbits"])
def test_every_compression_of_tiff_is_read(compression: str) -> None:
    assert same(load(encoded(scene(), "TIFF", compression=compression)), scene())


@pytest.mark.parametrize("form", ["GIF", "PNG", "TIFF", "WEBP"])
def test_of_several_frames_the_first_is_taken(form: str) -> None:
    red, blue = Image.new("RGB", (8, 8), "red"), Image.new("RGB", (8, 8), "blue")
    data = encoded(red, form, save_all=True, append_images=[blue, blue])
    assert same(load(data), red, within=3)


# Modes


def test_transparent_pixels_show_white() -> None:
    image = Image.new("RGBA", (3, 1), (255, 0, 0, 255))
    image.putpixel((1, 0), (255, 0, 0, 0))
    image.putpixel((2, 0), (0, 0, 0, 128))
    got = pixels(load(encoded(image)))[0]
    assert got.tolist() == [[255, 0, 0], [255, 255, 255], [127, 127, 127]]


@pytest.mark.parametrize("mode", ["LA", "PA", "La", "RGBa", "RGBA"])
def test_every_mode_with_alpha_lies_over_white(mode: str) -> None:
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    steps = {"La": ("LA", "La"), "RGBa": ("RGBa",), "RGBA": (), "LA": ("LA",), "PA": ("PA",)}[mode]
    for step in steps:
        clear = clear.convert(step)
    assert clear.mode == mode
    assert (pixels(load(clear)) == 255).all()


def test_a_palette_is_looked_up_and_its_transparent_entry_is_white() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 0), 1)
    assert pixels(load(encoded(image)))[0].tolist() == [[255, 0, 0], [0, 0, 255]]
    clear = encoded(image, transparency=1)
    assert pixels(load(clear))[0].tolist() == [[255, 0, 0], [255, 255, 255]]
    half = encoded(image, transparency=b"\xff\x00")
    assert pixels(load(half))[0].tolist() == [[255, 0, 0], [255, 255, 255]]


@pytest.mark.parametrize(("mode", "colour"), [("L", 7), ("RGB", (7, 8, 9)), ("1", 0)])
def test_a_transparent_colour_shows_white(mode: str, colour: Any) -> None:
    image = Image.new(mode, (2, 2), colour)
    assert (pixels(load(encoded(image, transparency=colour))) == 255).all()


def test_cmyk_is_neither_inverted_nor_black() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))  # red ink
    for form in ("JPEG", "TIFF"):
        assert same(load(encoded(image, form)), Image.new("RGB", (8, 8), "red"), within=4)


def test_greyscale_of_16_bits_is_scaled_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)[None, :]
    for form in ("PNG", "TIFF"):
        data = encoded(Image.fromarray(ramp), form)
        got = pixels(load(data))[0, :, 0]
        assert got.tolist() == list(range(256))
    steps = np.array([[128, 129, 385, 386]], dtype=np.uint16)
    assert pixels(load(steps))[0, :, 0].tolist() == [0, 1, 1, 2], "rounded, not cut off"
    big = Image.frombytes("I;16B", (256, 1), ramp.astype(">u2").tobytes())
    assert pixels(load(big))[0, :, 0].tolist() == list(range(256))
    wide = Image.fromarray(ramp.astype(np.int32))
    assert wide.mode == "I"
    assert pixels(load(wide))[0, :, 0].tolist() == list(range(256))


def test_a_transparent_grey_of_16_bits_shows_white() -> None:
    image = Image.fromarray(np.array([[1000, 2000]], dtype=np.uint16))
    assert pixels(load(encoded(image, transparency=1000)))[0, :, 0].tolist() == [255, 8]


def test_floats_from_0_to_1_are_scaled() -> None:
    image = Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32))
    assert image.mode == "F"
    assert pixels(load(image))[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "YCbCr", "HSV", "RGBX"])
def test_every_other_mode_becomes_rgb(mode: str) -> None:
    assert same(load(scene().convert(mode)), scene().convert(mode).convert("RGB"))


def test_integers_beyond_16_bits_are_refused_with_their_range() -> None:
    image = Image.fromarray(np.array([[0, 70000]], dtype=np.int32))
    with pytest.raises(InputError, match="from 0 to 70000; convert it to 8 or 16 bits"):
        load(image)


def test_a_mode_that_cannot_become_rgb_is_refused_by_name() -> None:
    image = Image.new("L", (2, 2))
    image.info["transparency"] = "a text"
    with pytest.raises(InputError, match=r"PIL image: has pixels of mode L .* convert it to RGB"):
        load(image)


# EXIF


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_the_picture_upright_and_once(form: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = {
        1: lambda image: image,
        2: lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        3: lambda image: image.transpose(Image.Transpose.ROTATE_180),
        4: lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        5: lambda image: image.transpose(Image.Transpose.TRANSPOSE),
        6: lambda image: image.transpose(Image.Transpose.ROTATE_90),
        7: lambda image: image.transpose(Image.Transpose.TRANSVERSE),
        8: lambda image: image.transpose(Image.Transpose.ROTATE_270),
    }[orientation](scene())
    data = encoded(stored, form, exif=exif)
    assert same(load(data), scene(), within=16)
    opened = Image.open(io.BytesIO(data))
    assert same(load(opened), scene(), within=16)
    assert same(load(load(data)), load(data)), "loading what was loaded turns nothing again"


def test_a_damaged_exif_block_is_no_reason_to_refuse_a_picture() -> None:
    image = scene()
    image.info["exif"] = b"Exif\0\0II*\0\xff\xff\xff\xff"
    assert same(load(image), scene())


# What a picture may be given as


def test_every_form_of_one_picture_gives_the_same_pixels(tmp_path: Path) -> None:
    data = encoded(scene())
    path = tmp_path / "a.png"
    path.write_bytes(data)
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    forms: list[Any] = [path, str(path), data, bytearray(data), url, scene(), np.asarray(scene())]
    assert all(same(load(form), scene()) for form in forms)


def test_a_path_is_taken_from_its_root(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.png").write_bytes(encoded(scene()))
    assert same(load("deep/a.png", tmp_path), scene())
    assert same(load("./deep/../deep/a.png", root=str(tmp_path)), scene())


@pytest.mark.parametrize(
    "url", ["data:;base64,{}", "DATA:image/png;BASE64,{}", "data:x;y;base64,{}"]
)
def test_a_data_url_may_be_written_in_every_usual_way(url: str) -> None:
    text = base64.b64encode(encoded(scene())).decode()
    broken = "\n".join(text[i : i + 76] for i in range(0, len(text), 76))
    escaped = text.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    for body in (text, broken, escaped):
        assert same(load(url.format(body)), scene())


@pytest.mark.parametrize("channels", [None, 1, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", ">u2", "float16", "float32", "float64"])
def test_arrays_of_every_kind_are_scaled_to_8_bits(channels: int | None, dtype: str) -> None:
    shape = (2, 3) if channels is None else (2, 3, channels)
    full = {"uint8": 255, "uint16": 65535, ">u2": 65535}.get(dtype, 1)
    assert (pixels(load(np.full(shape, full, dtype=dtype))) == 255).all()
    dark = np.zeros(shape, dtype=dtype)
    if channels == 4:
        dark[..., 3] = full
    assert load(dark).size == (3, 2)
    assert (pixels(load(dark)) == 0).all()


def test_an_array_need_not_lie_in_one_piece() -> None:
    array = np.asarray(scene())
    assert same(load(array[:, ::-1][:, ::-1]), scene())
    assert same(load(np.asfortranarray(array)), scene())


def test_alpha_in_an_array_lies_over_white() -> None:
    array = np.zeros((1, 2, 4), dtype=np.float32)
    array[0, 1, 3] = 1
    assert pixels(load(array))[0].tolist() == [[255, 255, 255], [0, 0, 0]]


def test_a_size_squashes_whatever_the_shape_was() -> None:
    got = load(scene(), size=(336, 336))
    assert same(got, scene().resize((336, 336), Image.Resampling.BICUBIC))
    assert load(scene(), size=(10, 50)).size == (10, 50)


# Content hashes


def test_the_same_bytes_hash_equal_however_they_came(tmp_path: Path) -> None:
    data = encoded(scene())
    (tmp_path / "a.png").write_bytes(data)
    (tmp_path / "b.png").write_bytes(data)
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    forms: list[Any] = [data, str(tmp_path / "a.png"), tmp_path / "b.png", url]
    assert len({content_hash(form) for form in forms}) == 1
    assert content_hash("a.png", tmp_path) == content_hash(data)


def test_a_hash_is_that_of_the_bytes() -> None:
    assert content_hash(b"abc") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_pixels_and_their_shape_make_the_hash_of_a_picture_in_memory() -> None:
    array = np.asarray(scene())
    assert content_hash(array) == content_hash(scene())
    changed = array.copy()
    changed[0, 0, 0] += 1
    reshaped = array.reshape(40, 24, 3)
    assert len({content_hash(a) for a in (array, changed, reshaped)}) == 3


def test_pictures_that_look_different_hash_differently() -> None:
    turned = scene()
    turned.getexif()[0x0112] = 6
    assert content_hash(turned) != content_hash(scene())


def test_hashing_decodes_nothing() -> None:
    picture = read(b"\x89PNG\r\n\x1a\n and then nothing")
    assert len(picture.hash) == 64
    with pytest.raises(InputError, match="damaged PNG"):
        picture.decode()


# Refusals


def refusal(source: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(source, **options)
    return str(caught.value)


def test_a_file_that_cannot_be_an_image_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "text.jpg").write_text("These are words, not pixels.")
    (tmp_path / "page.jpg").write_text("<!DOCTYPE html><title>404</title>")
    (tmp_path / "pointer.jpg").write_text("version https://git-lfs.github.com/spec/v1\noid")
    (tmp_path / "phone.jpg").write_bytes(b"\0\0\0\x20ftypheic and so on")
    os.mkfifo(tmp_path / "pipe.jpg")
    expected = {
        "missing": "there is no such file; check the path",
        "empty": "is empty; replace the file",
        "folder": "is a folder; name a file in it",
        "text": "is no image, or one of another format; lookright reads JPEG, PNG, WebP",
        "page": "is a text page or an SVG",
        "pointer": "is a Git LFS pointer",
        "phone": "convert it to JPEG or PNG",
        "pipe": "is no regular file",
    }
    for name, words in expected.items():
        path = str(tmp_path / f"{name}.jpg")
        said = refusal(path)
        assert said.startswith(f"{path}: ")
        assert words in said


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"", "encoded bytes: is empty"),
        ("", "'': is a folder"),
        ("a\0b.jpg", "cannot be read (embedded null byte)"),
        ("x" * 5000, "x... (5,000 characters): cannot be read (File name too long)"),
        ("https://example.org/a.jpg", "does not fetch images; download it"),
        ("HTTP://example.org/a.jpg", "does not fetch images; download it"),
        ("data:image/png,abc", "data URL: must look like 'data:image/png;base64,...'"),
        ("data:image/png;base64", "data URL: must look like"),
        ("data:image/png;base64,ab!c", "data URL: is not proper base64"),
        ("data:image/png;base64,abc", "data URL: is not proper base64"),
        ("data:image/png;base64,äbcd", "data URL: is not proper base64"),
        ("data:image/png;base64,", "data URL: is empty"),
        (None, "NoneType: an image must be a path, encoded bytes, a data URL, a PIL image or an"),
        ([[0, 1], [2, 3]], "list: an image must be"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused(source: Any, words: str) -> None:
    assert words in refusal(source)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((0, 4, 3), np.uint8), "is 4 x 0 pixels; there is nothing to see"),
        (np.zeros((4, 0)), "is 0 x 4 pixels; there is nothing to see"),
        (np.zeros(12, np.uint8), "has the shape (12,), not [height, width] or"),
        (np.zeros((), np.uint8), "has the shape (), not"),
        (np.zeros((4, 4, 2), np.uint8), "has the shape (4, 4, 2), not"),
        (
            np.zeros((3, 8, 8), np.uint8),
            "has the shape (3, 8, 8), not [height, width] or [height, ",
        ),
        (np.zeros((2, 8, 8, 3), np.uint8), "has the shape (2, 8, 8, 3), not"),
        (np.zeros((4, 4), np.int64), "has the dtype int64; use uint8, uint16, or floats"),
        (np.zeros((4, 4), bool), "has the dtype bool"),
        (np.zeros((4, 4), complex), "has the dtype complex128"),
        (np.full((4, 4), None), "has the dtype object"),
        (np.full((4, 4), np.nan), "holds NaN or infinite pixels"),
        (np.full((4, 4, 3), np.inf, np.float16), "holds NaN or infinite pixels"),
        (np.full((4, 4), 255.0), "holds float pixels from 255 to 255; scale them to 0 to 1"),
        (np.full((4, 4), -0.5), "holds float pixels from -0.5 to -0.5"),
    ],
)
def test_an_array_that_is_no_picture_is_refused(array: Any, words: str) -> None:
    assert f"array: {words}" in refusal(array)


def test_an_array_with_its_channels_first_is_refused_with_what_mends_it() -> None:
    array = np.zeros((3, 8, 9), np.uint8)
    assert "array.transpose(1, 2, 0) puts its channels last" in refusal(array)
    assert load(array.transpose(1, 2, 0)).size == (9, 8)


def test_messages_use_the_callers_name_for_an_image(tmp_path: Path) -> None:
    said = refusal(str(tmp_path / "a.jpg"), name="image 2 of instance 'q'")
    assert said.startswith(f"image 2 of instance 'q' ({tmp_path / 'a.jpg'}): there is no such file")
    said = refusal(np.zeros(3), name="image 2 of instance 'q'")
    assert said.startswith("image 2 of instance 'q' (array): ")


def test_a_path_that_leaves_its_root_is_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "a.png").write_bytes(encoded(scene()))
    (inside / "link.png").symlink_to(outside / "a.png")
    (inside / "door").symlink_to(outside)
    (inside / "loop").symlink_to("loop")
    absolute = str(outside / "a.png")
    for path in ("../outside/a.png", "x/../../outside/a.png", "link.png", "door/a.png", absolute):
        assert "climbs out of its folder" in refusal(path, root=inside)
    assert "is no usable path" in refusal("loop", root=inside)
    assert "is no usable path" in refusal("a\0b", root=inside)


@pytest.fixture
def library_that_accepts_truncated_images() -> Iterator[None]:
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    yield
    ImageFile.LOAD_TRUNCATED_IMAGES = False


def truncations(form: str) -> Iterator[bytes]:
    options = {"TIFF": {"compression": "raw"}}.get(form, {})
    noise = np.random.default_rng(0).integers(0, 255, (97, 83, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), form, **options)
    for cut in [*range(4, len(data) - 30, len(data) // 40), len(data) - 30]:
        yield data[:cut]


@pytest.mark.parametrize("form", FORMATS)
def test_a_truncated_image_is_refused(form: str) -> None:
    for data in truncations(form):
        assert "encoded bytes: is " in refusal(data)


@pytest.mark.usefixtures("library_that_accepts_truncated_images")
@pytest.mark.parametrize("form", FORMATS)
def test_a_truncated_image_is_refused_whatever_other_libraries_asked_of_pil(form: str) -> None:
    for data in truncations(form):
        assert "encoded bytes: is " in refusal(data)
    assert load(encoded(scene(), form)).size == scene().size


def test_a_lazily_opened_picture_that_is_truncated_is_refused() -> None:
    image = Image.open(io.BytesIO(encoded(scene(400, 400), "JPEG")[:2000]))
    assert "PIL image: cannot be decoded" in refusal(image)


def test_every_flipped_byte_gives_a_picture_or_a_sentence() -> None:
    random = np.random.default_rng(0)
    for form in FORMATS:
        data = bytearray(encoded(scene(), form))
        for place in random.integers(0, min(len(data), 200), 60):
            damaged = bytes(data[:place]) + bytes([random.integers(256)]) + bytes(data[place + 1 :])
            with suppress(InputError):
                assert load(damaged).mode == "RGB"


# Limits


def test_a_file_over_the_limit_of_bytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    with path.open("wb") as file:
        file.truncate(65 * 2**20)  # a hole: no byte of it is on the disk
    assert "has 68,157,440 bytes, more than the limit of 67,108,864" in refusal(path)
    data = encoded(scene())
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    for source in (data, url, "data:;base64," + "A" * 10000):
        assert "more than the limit of 100" in refusal(source, limits=Limits(bytes=100))
    assert same(load(data, limits=Limits(bytes=len(data))), scene())


def test_the_limit_of_pixels_holds_to_the_pixel() -> None:
    sources: list[Any] = [encoded(scene(), form) for form in FORMATS]
    for source in [*sources, scene(), np.asarray(scene())]:
        assert load(source, limits=Limits(pixels=960)).size == (40, 24)
        assert "is 40 x 24 pixels, more than the limit of 959" in refusal(
            source, limits=Limits(pixels=959)
        )


def bomb(form: str) -> bytes:
    """A small file that announces 20,000 x 20,000 pixels."""
    side = 20_000
    if form == "PNG":
        head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(bytes(1 << 20))), (b"IEND", b"")]
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in chunks
        )
    if form == "TIFF":
        return tiff(
            {256: (4, side), 257: (4, side), 258: (3, 8), 259: (3, 8), 262: (3, 1), 273: (4, 200)}
            | {277: (3, 1), 278: (4, side), 279: (4, 1000)}
        )
    data = bytearray(encoded(Image.new("RGB", (16, 16)), form))
    place, layout = {"GIF": (6, "<HH"), "BMP": (18, "<ii")}.get(
        form, (data.find(b"\xff\xc0") + 5, ">HH")
    )
    struct.pack_into(layout, data, place, side, side)
    return bytes(data)


@pytest.mark.parametrize("form", ["BMP", "GIF", "JPEG", "PNG", "TIFF"])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(form: str) -> None:
    data = bomb(form)
    tracemalloc.start()
    said = refusal(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "is 20000 x 20000 pixels, more than the limit of 100,000,000" in said
    assert peak < 10 * 2**20


@pytest.mark.parametrize(
    ("side", "words"), [(12_000, "is 12000 x 12000 pixels"), (16_000, "is too large")]
)
def test_a_webp_bomb_is_refused(side: int, words: str) -> None:
    data = bytearray(encoded(Image.new("RGB", (16, 16)), "WEBP", lossless=True))
    assert data[12:16] == b"VP8L"
    (bits,) = struct.unpack_from("<I", data, 21)  # 14 bits each: width - 1, height - 1
    struct.pack_into("<I", data, 21, bits >> 28 << 28 | (side - 1) << 14 | (side - 1))
    assert words in refusal(bytes(data))


def test_a_small_tiff_of_huge_tiles_is_refused() -> None:
    tags = {256: (4, 16), 257: (4, 16), 258: (3, 8), 259: (3, 8), 262: (3, 1), 277: (3, 1)}
    tags |= {322: (4, 40_000), 323: (4, 40_000), 324: (4, 300), 325: (4, 100)}
    said = refusal(tiff(tags, bytes(400)))
    assert "a tile of it: is 40000 x 40000 pixels" in said


@pytest.mark.parametrize("form", ["GIF", "TIFF"])
def test_pil_warns_of_no_bomb_that_our_limits_allow(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 900)
    data = encoded(scene(), form, **({"disposal": 2} if form == "GIF" else {}))
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        assert all(image.size == (40, 24) for image in pool.map(load, [data] * 100))
    assert list(warnings.filters) == before
