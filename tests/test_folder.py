"""The benchmark folder: what is written comes back, and a line that cannot be used is named."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lookright.benchmarks import folder as folder_module
from lookright.benchmarks.folder import benchmark_hash, read_benchmark, write_benchmark
from lookright.benchmarks.lines import MAX_LINE
from lookright.errors import InputError
from lookright.images import load
from lookright.instance import Instance

COLOURS = ("red", "lime", "blue", "white", "black", "yellow", "cyan", "magenta")


def picture(colour: str) -> Image.Image:
    return Image.new("RGB", (8, 6), colour)


def png(colour: str) -> bytes:
    buffer = io.BytesIO()
    picture(colour).save(buffer, "PNG")
    return buffer.getvalue()


def line(number: int, **changes: Any) -> dict[str, Any]:
    """A good line; a field changed to Ellipsis is left out."""
    values: dict[str, Any] = {
        "id": f"q{number}",
        "caption": "a red wall",
        "images": ["red.png", "lime.png", "blue.png"],
        "answer": 0,
    }
    return {name: value for name, value in (values | changes).items() if value is not ...}


def make(path: Path, *lines: Any, calibration: tuple[Any, ...] = (), meta: Any = None) -> Path:
    """A benchmark folder of these lines, each a mapping or the bytes themselves."""

    def text(rows: tuple[Any, ...]) -> bytes:
        return b"\n".join(r if isinstance(r, bytes) else json.dumps(r).encode() for r in rows)

    path.mkdir(exist_ok=True)
    for colour in COLOURS:
        (path / f"{colour}.png").write_bytes(png(colour))
    (path / "instances.jsonl").write_bytes(text(lines))
    if calibration:
        (path / "calibration.jsonl").write_bytes(text(calibration))
    if meta is not None:
        (path / "benchmark.json").write_bytes(text((meta,)))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_benchmark(path)
    return str(caught.value)


OTHERS = ["white.png", "black.png", "cyan.png"]


# Reading


def test_a_folder_is_read_with_its_calibration_and_its_facts(tmp_path: Path) -> None:
    meta = {"identifiers": "letters", "n": 3, "source": "made here", "seed": 7}
    made = make(
        tmp_path,
        line(0, category="walls"),
        line(1, caption=..., question="Which one?", answer=...),
        line(2, answer=None),
        calibration=(line(3, images=OTHERS),),
        meta=meta,
    )
    benchmark, problems = read_benchmark(made)
    assert problems == ()
    assert [i.id for i in benchmark.instances] == ["q0", "q1", "q2"]
    assert [i.answer for i in benchmark.instances] == [0, None, None]
    assert benchmark.instances[0].category == "walls"
    assert benchmark.instances[1].question == "Which one?"
    assert [i.id for i in benchmark.calibration] == ["q3"]
    assert benchmark.identifiers == "letters"
    assert benchmark.meta == meta
    assert benchmark.path == made


def test_images_can_be_opened_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "b", line(0))
    monkeypatch.chdir(tmp_path)
    benchmark, _ = read_benchmark("b")
    monkeypatch.chdir("/")
    colours = [load(image).getpixel((0, 0)) for image in benchmark.instances[0].images]
    assert colours == [(255, 0, 0), (0, 255, 0), (0, 0, 255)]


def test_images_are_taken_from_the_root_that_is_named(tmp_path: Path) -> None:
    make(tmp_path / "photos", line(0))
    for number, root in enumerate(["../photos", str(tmp_path / "photos")]):
        (tmp_path / f"b{number}").mkdir()
        (tmp_path / f"b{number}" / "instances.jsonl").write_text(json.dumps(line(0)))
        (tmp_path / f"b{number}" / "benchmark.json").write_text(json.dumps({"root": root}))
        benchmark, _ = read_benchmark(tmp_path / f"b{number}")
        assert benchmark.instances[0].images[0] == str(tmp_path / "photos" / "red.png")


def test_a_single_file_is_a_benchmark_without_calibration(tmp_path: Path) -> None:
    make(tmp_path, line(0), line(1), calibration=(line(3, images=OTHERS),))
    benchmark, _ = read_benchmark(tmp_path / "instances.jsonl")
    assert [i.id for i in benchmark.instances] == ["q0", "q1"]
    assert benchmark.calibration == ()
    assert benchmark.identifiers == "numbers"


def test_blank_lines_and_a_byte_order_mark_and_foreign_line_ends_do_no_harm(tmp_path: Path) -> None:
    rows = [b"\xef\xbb\xbf" + json.dumps(line(0)).encode() + b"\r", b"", b"  \r"]
    last = json.dumps(line(1, caption="ein grüner Würfel"), ensure_ascii=False).encode()
    benchmark, problems = read_benchmark(make(tmp_path, *rows, last, b""))
    assert problems == ()
    assert [i.caption for i in benchmark.instances] == ["a red wall", "ein grüner Würfel"]


def test_images_are_looked_for_but_not_decoded(tmp_path: Path) -> None:
    made = make(tmp_path, line(0))
    (made / "red.png").write_bytes(b"no image at all")
    benchmark, _ = read_benchmark(made)
    with pytest.raises(InputError, match=r"red\.png: is no image"):
        load(benchmark.instances[0].images[0])


# Lines that cannot be used


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"{'id': 1}", "is not JSON (Expecting property name"),
        (b'{"id": "a"', "is not JSON ("),
        (b"[1, 2]", "must be a JSON object {...}, not list"),
        (b"null", "must be a JSON object {...}, not NoneType"),
        (b'{"id": "\xff"}', "is not UTF-8 (byte 9)"),
        (b'{"id": "a", "id": "b"}', "field 'id' stands there twice"),
        (b'{"answer": NaN}', "NaN is no JSON number"),
        (b'{"answer": -Infinity}', "-Infinity is no JSON number"),
        (b'{"caption": "\\ud800"}', "holds half a character"),
        (b"[" * 100_000, "is not usable JSON (nested too deeply)"),
        (b'{"answer": ' + b"9" * 5000 + b"}", "is not JSON (Exceeds the limit"),
        (b'{"caption": "' + b"x" * MAX_LINE + b'"}', "is longer than 1,048,576 bytes"),
        (line(1, id=...), "field 'id': is missing"),
        (line(1, images=...), "field 'images': is missing"),
        (line(1, caption=...), "field 'caption': give exactly one of 'caption' and 'question'"),
        (line(1, question="Which?"), "field 'caption': give exactly one of"),
        (line(1, captoin="x"), "field 'captoin': is unknown; did you mean 'caption'?"),
        (line(1, zzz="x"), "field 'zzz': is unknown; there are id, images, answer, caption"),
        (line(1, id=5), "field 'id': must be a non-empty string"),
        (line(1, id=""), "field 'id': must be a non-empty string"),
        (line(1, id="q0"), "field 'id': 'q0' stands already in "),
        (line(1, answer=3), "field 'answer': is 3, but the 3 images have the indices 0 to 2"),
        (line(1, answer=-1), "field 'answer': is -1"),
        (line(1, answer=1.0), "field 'answer': must be the target's index (an integer), not 1.0"),
        (line(1, answer="1"), "field 'answer': must be the target's index"),
        (line(1, answer=True), "field 'answer': must be the target's index"),
        (line(1, answer=[0]), "field 'answer': must be the target's index"),
        (line(1, caption=5), "field 'caption': must be text, not int"),
        (line(1, caption="  "), "field 'caption': is empty"),
        (line(1, category=5), "field 'category': must be text, not int"),
        (line(1, images="red.png"), "field 'images': must be a list of paths"),
        (line(1, images=["red.png", 5]), "field 'images': must be a list of paths"),
        (line(1, images=["red.png", ""]), "field 'images': must be a list of paths"),
        (line(1, images=["red.png"]), "field 'images': holds 1; choosing needs at least two"),
        (line(1, images=[]), "field 'images': holds 0"),
        (line(1, images=["red.png", "no.png"]), "field 'images' (no.png): there is no such file"),
        (line(1, images=["red.png", "empty.png"]), "field 'images' (empty.png): is empty"),
        (line(1, images=["red.png", "deep"]), "field 'images' (deep): is a folder"),
        (line(1, images=["red.png", "../x.png"]), "(../x.png): climbs out of its folder"),
        (line(1, images=["red.png", "deep/../../x.png"]), "climbs out of its folder"),
        (line(1, images=["red.png", "link.png"]), "(link.png): climbs out of its folder"),
        (line(1, images=["red.png", "/etc/hostname"]), "climbs out of its folder"),
        (line(1, images=["red.png", "a\0b"]), "is no usable path (embedded null byte)"),
        (line(1, images=["red.png", "http://h/x.png"]), "does not fetch images; download it"),
    ],
)
def test_a_bad_line_is_named_as_file_line_and_field(tmp_path: Path, bad: Any, words: str) -> None:
    made = make(tmp_path / "b", line(0), bad, line(2))
    (tmp_path / "x.png").write_bytes(png("red"))
    (made / "empty.png").touch()
    (made / "deep").mkdir()
    (made / "link.png").symlink_to(tmp_path / "x.png")
    said = refusal(made)
    assert said.startswith(f"{made / 'instances.jsonl'}, line 2")
    assert words in said
    benchmark, problems = read_benchmark(made, keep_going=True)
    assert [i.id for i in benchmark.instances] == ["q0", "q2"]
    assert problems == (said,)


def test_a_line_after_one_too_long_keeps_its_number(tmp_path: Path) -> None:
    made = make(tmp_path, line(0), b"x" * (3 * MAX_LINE + 5), line(2, answer=9))
    _, problems = read_benchmark(made, keep_going=True)
    assert [problem.split(": ")[0] for problem in problems] == [
        f"{made / 'instances.jsonl'}, line 2",
        f"{made / 'instances.jsonl'}, line 3",
    ]


def test_several_bad_lines_are_counted(tmp_path: Path) -> None:
    made = make(tmp_path, b"{", line(1), b"[", calibration=(b"}",))
    assert refusal(made).endswith("(2 more lines have problems)")
    _, problems = read_benchmark(made, keep_going=True)
    assert [p.split(": ")[0].removeprefix(str(made)) for p in problems] == [
        "/instances.jsonl, line 1",
        "/instances.jsonl, line 3",
        "/calibration.jsonl, line 1",
    ]


def test_a_refused_line_does_not_take_its_id(tmp_path: Path) -> None:
    made = make(tmp_path, line(0, answer=9), line(0))
    benchmark, problems = read_benchmark(made, keep_going=True)
    assert (len(benchmark.instances), len(problems)) == (1, 1)


def test_nothing_usable_is_refused_even_when_asked_to_keep_going(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 1"):
        read_benchmark(make(tmp_path, b"{"), keep_going=True)


# Files that belong together


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (line(0, images=OTHERS), "field 'id': 'q0' stands already in "),
        (line(3, images=["white.png", "lime.png"]), "field 'images' (lime.png): is also an image"),
        (line(3, images=["white.png", "./deep/../red.png"]), "is also an image of 'q0'"),
        (line(3, images=["white.png", "soft.png"]), "is also an image of 'q0'"),
    ],
)
def test_a_calibration_that_shares_ids_or_images_is_refused(
    tmp_path: Path, sample: dict[str, Any], words: str
) -> None:
    made = make(tmp_path, line(0), calibration=(line(4, images=OTHERS), sample))
    (made / "deep").mkdir()
    (made / "soft.png").symlink_to("blue.png")
    said = refusal(made)
    assert said.startswith(f"{made / 'calibration.jsonl'}, line 2, ")
    assert words in said


def test_a_line_of_another_n_than_the_benchmark_says_is_refused(tmp_path: Path) -> None:
    made = make(tmp_path, line(0), line(1, images=OTHERS[:2]), meta={"n": 3})
    assert "line 2, field 'images': holds 2, but the benchmark says n = 3" in refusal(made)
    (made / "benchmark.json").unlink()
    assert len(read_benchmark(made)[0].instances) == 2


def test_more_images_than_identifiers_are_refused(tmp_path: Path) -> None:
    made = make(tmp_path, line(0), meta={"identifiers": ["left", "right"]})
    assert "field 'images': 3 images need 3 identifiers, and the list names 2" in refusal(made)
    made = make(tmp_path, line(0), meta={"identifiers": ["left", "middle", "right"]})
    assert read_benchmark(made)[0].identifiers == ("left", "middle", "right")


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        (b"{", "is not JSON"),
        (b"", "is empty"),
        ([], "must be a JSON object"),
        ({"identifiers": "nubmers"}, "field 'identifiers': unknown identifiers 'nubmers'"),
        ({"identifiers": 5}, "field 'identifiers': must be the name of a set, or a list"),
        ({"identifiers": ["a", "a"]}, "field 'identifiers': identifiers ['a', 'a']: one stands"),
        ({"identifiers": [["a"]]}, "field 'identifiers': identifier ['a']: must be text"),
        ({"n": 1}, "field 'n': must be the number of candidates, 2 or more"),
        ({"n": "4"}, "field 'n': must be"),
        ({"n": True}, "field 'n': must be"),
        ({"root": 5}, "field 'root': must be the path of a folder"),
        ({"root": "nowhere"}, "field 'root': there is no folder "),
        ({"root": "a\0b"}, "field 'root': there is no folder "),
        (b" " * (2**20 + 1), "is longer than 1,048,576 bytes"),
    ],
)
def test_what_is_wrong_in_benchmark_json_is_named(tmp_path: Path, meta: Any, words: str) -> None:
    made = make(tmp_path, line(0), meta=meta)
    said = refusal(made)
    assert said.startswith(str(made / "benchmark.json"))
    assert words in said
    with pytest.raises(InputError, match=r"benchmark\.json"):
        read_benchmark(made, keep_going=True)


def test_what_is_no_benchmark_is_refused(tmp_path: Path) -> None:
    made = make(tmp_path / "b", line(0))
    assert "nowhere: there is no such file" in refusal(tmp_path / "nowhere")
    assert "holds no instances.jsonl" in refusal(tmp_path)
    assert "a benchmark is a folder with instances.jsonl, or one .jsonl" in refusal(
        made / "red.png"
    )
    assert "cannot be read (embedded null byte)" in refusal(Path("a\0b"))
    (made / "instances.jsonl").write_text("\n \n")
    assert "instances.jsonl: holds blank lines only" in refusal(made)
    (made / "instances.jsonl").write_text("")
    assert "instances.jsonl: is empty" in refusal(made)
    (made / "instances.jsonl").unlink()
    (made / "instances.jsonl").mkdir()
    assert "instances.jsonl: is a folder" in refusal(made)


def test_a_calibration_that_is_no_file_is_refused(tmp_path: Path) -> None:
    made = make(tmp_path, line(0))
    (made / "calibration.jsonl").symlink_to("nowhere")
    assert "calibration.jsonl: there is no such file" in refusal(made)


# Writing


def instances(*sources: Any, start: int = 0) -> list[Instance]:
    return [
        Instance(f"i{start + k}", images, answer=k % 2, caption=f"caption {k} für {k}")
        for k, images in enumerate(sources)
    ]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    written = [
        *instances((png("red"), png("lime")), (png("blue"), png("red"))),
        Instance("asked", (png("red"), png("white")), question="Which?", category="walls"),
    ]
    samples = instances((png("cyan"), png("black")), start=9)
    benchmark = write_benchmark(
        tmp_path / "b", written, samples, identifiers=("A", "B"), meta={"seed": 3}
    )
    assert read_benchmark(tmp_path / "b") == (benchmark, ())
    for before, after in zip(written, benchmark.instances, strict=True):
        assert replace(after, images=before.images) == before
        assert [Path(str(i)).read_bytes() for i in after.images] == list(before.images)
    assert [i.id for i in benchmark.calibration] == ["i9"]
    assert benchmark.identifiers == ("A", "B")
    assert (benchmark.meta["seed"], benchmark.meta["n"]) == (3, 2)
    assert benchmark.meta["content_hash"] == benchmark_hash(benchmark)
    stored = {path.name for path in (tmp_path / "b" / "images").iterdir()}
    assert len(stored) == 6, "an image shown twice is stored once"
    assert {name.rpartition(".")[2] for name in stored} == {"png"}


def test_pictures_in_memory_are_stored_without_loss(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (9, 7, 3), dtype=np.uint8)
    benchmark = write_benchmark(tmp_path / "b", instances((noise, picture("red"))))
    first, second = map(load, benchmark.instances[0].images)
    assert (np.asarray(first) == noise).all()
    assert second.getpixel((0, 0)) == (255, 0, 0)


def test_files_of_the_folder_stay_where_they_are(tmp_path: Path) -> None:
    made = make(tmp_path, line(0))
    sources = (made / "red.png", str(made / "lime.png"))
    (made / "instances.jsonl").unlink()
    write_benchmark(made, instances(sources))
    row = json.loads((made / "instances.jsonl").read_text())
    assert row["images"] == ["red.png", "lime.png"]
    assert not (made / "images").exists()


@pytest.mark.parametrize("absolute", [True, False])
def test_files_of_a_root_stay_there_and_only_they_may_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absolute: bool
) -> None:
    photos = make(tmp_path / "photos", line(0))
    monkeypatch.chdir(tmp_path)
    root = photos if absolute else Path("photos")
    benchmark = write_benchmark("b", instances((photos / "red.png", "photos/lime.png")), root=root)
    assert benchmark.meta["root"] == (str(photos) if absolute else "../photos")
    assert benchmark.instances[0].images == (str(photos / "red.png"), str(photos / "lime.png"))
    assert sorted(path.name for path in Path("b").iterdir()) == [
        "benchmark.json",
        "instances.jsonl",
    ]
    (tmp_path / "else.png").write_bytes(png("red"))
    for other in (png("red"), "else.png"):
        with pytest.raises(InputError, match=r"image 1 of instance 'i0' .* is no file in "):
            write_benchmark("c", instances((photos / "red.png", other)), root=root)


def test_a_benchmark_that_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    red, lime, blue = png("red"), png("lime"), png("blue")
    shared = (instances((red, lime)), instances((red, blue), start=9))
    twice = (instances((red, lime)), instances((blue, png("white"))))
    for number, (written, samples) in enumerate([shared, twice]):
        made = tmp_path / str(number)
        with pytest.raises(InputError, match=r"calibration\.jsonl, line 1"):
            write_benchmark(made, written, samples)
        assert not (made / "instances.jsonl").exists()
    with pytest.raises(InputError, match="needs at least one instance"):
        write_benchmark(tmp_path / "c", [])
    with pytest.raises(InputError, match=r"\(encoded bytes\): is no image"):
        write_benchmark(tmp_path / "c", instances((b"words", lime)))
    with pytest.raises(InputError, match=r"benchmark\.json: cannot be written as JSON"):
        write_benchmark(tmp_path / "c", instances((red, lime)), meta={"x": float("nan")})


def test_a_benchmark_is_never_written_over(tmp_path: Path) -> None:
    write_benchmark(tmp_path / "b", instances((png("red"), png("lime"))))
    before = (tmp_path / "b" / "instances.jsonl").read_bytes()
    with pytest.raises(InputError, match="holds a benchmark already; choose another folder"):
        write_benchmark(tmp_path / "b", instances((png("red"), png("blue"))))
    assert (tmp_path / "b" / "instances.jsonl").read_bytes() == before
    (tmp_path / "red.png").write_bytes(b"a file")
    with pytest.raises(InputError, match=r"red\.png: cannot be made a folder"):
        write_benchmark(tmp_path / "red.png", instances((png("red"), png("blue"))))


def test_a_folder_killed_half_way_is_no_benchmark_and_can_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = folder_module.write_atomically

    def killed(path: Path, data: bytes, **_: Any) -> None:
        if path.name == "instances.jsonl":
            raise KeyboardInterrupt
        whole(path, data)

    samples = instances((png("cyan"), png("black")), start=9)
    monkeypatch.setattr(folder_module, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        write_benchmark(tmp_path / "b", instances((png("red"), png("lime"))), samples)
    assert "holds no instances.jsonl" in refusal(tmp_path / "b")
    monkeypatch.setattr(folder_module, "write_atomically", whole)
    benchmark = write_benchmark(tmp_path / "b", instances((png("red"), png("lime"))))
    assert benchmark.calibration == (), "the killed writer's calibration is not taken over"


def test_the_content_hash_is_that_of_questions_labels_and_pixels_not_of_names(
    tmp_path: Path,
) -> None:
    def hashed(name: str, *written: Instance) -> str:
        return benchmark_hash(write_benchmark(tmp_path / name, written))

    one = Instance("a", (png("red"), png("lime")), answer=0, caption="red")
    first = hashed("first", one)
    made = make(tmp_path / "named", {"id": "a", "images": ["red.png", "lime.png"], "answer": 0})
    text = json.dumps({"id": "a", "images": ["red.png", "lime.png"], "answer": 0, "caption": "red"})
    (made / "instances.jsonl").write_text(text)
    assert benchmark_hash(read_benchmark(made)[0]) == first
    others = [
        replace(one, caption="Red"),
        replace(one, answer=1),
        replace(one, id="b"),
        replace(one, category="x"),
        replace(one, images=(png("lime"), png("red"))),
        replace(one, caption=None, question="red"),
    ]
    hashes = {hashed(str(number), other) for number, other in enumerate(others)}
    assert len(hashes | {first}) == len(others) + 1


def test_reading_stays_quick_with_many_instances_of_few_images(tmp_path: Path) -> None:
    made = make(tmp_path, *(line(number) for number in range(2000)))
    calls = 0
    stat = Path.stat

    def counted(path: Path, **options: Any) -> os.stat_result:
        nonlocal calls
        calls += 1
        return stat(path, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "stat", counted)
        assert len(read_benchmark(made)[0].instances) == 2000
    assert calls < 50, "each image is looked up once"
