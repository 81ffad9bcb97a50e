"""The commands `benchmark build` and `benchmark show`, through the command line's entry point."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from lookright.benchmarks.folder import read_benchmark, write_benchmark
from lookright.benchmarks.sheet import save_sheet, summarise
from lookright.cli import main
from lookright.errors import InputError
from lookright.instance import Instance
from test_builders import StandIn, coco, parquet, png, put, row

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `lookright benchmark ...`; its exit code, standard output and standard error."""

    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lookright", "benchmark", *map(str, arguments)])
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return command


def photos(path: Path, count: int = 40, vectors: bool = True) -> Path:
    """A Parquet file of so many captioned pictures."""
    chance = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "file_name": [f"{k}.png" for k in range(count)],
        "image": [{"bytes": png(k), "path": None} for k in range(count)],
        "captions": [[f"caption {k}"] for k in range(count)],
        "category_ids": [[k % 5] for k in range(count)],
    }
    if vectors:
        columns["clip_image_embedding"] = chance.normal(size=(count, 4)).tolist()
        columns["caption_embedding"] = chance.normal(size=(count, 6)).tolist()
    return parquet(path, columns)


def small(path: Path, images: list[list[int]], calibration: list[list[int]] = []) -> Path:  # noqa: B006
    """A benchmark of questions about pictures of these numbers."""

    def made(rows: list[list[int]], name: str) -> list[Instance]:
        return [
            Instance(f"{name}{k}", tuple(map(png, numbers)), answer=0, caption=f"<b>{name} {k}")
            for k, numbers in enumerate(rows)
        ]

    write_benchmark(path, made(images, "q"), made(calibration, "c"))
    return path


# build


@pytest.mark.parametrize("setting", ["random", "hard"])
def test_parquet_builds_exactly_as_many_questions(tmp_path: Path, run: Run, setting: str) -> None:
    file, out = photos(tmp_path), tmp_path / "b"
    options = ("--samples", 9, "--calibration-samples", 2, "--seed", 3)
    code, text, err = run(
        "build", "parquet", file, "--setting", setting, "-n", 4, *options, "-o", out
    )
    assert (code, err) == (0, "")
    assert f"{out}: 9 questions, 2 to calibrate from" in text
    made, _ = read_benchmark(out)
    assert (len(made.instances), len(made.calibration)) == (9, 2)
    assert made.meta["setting"] == setting
    assert made.meta["source"] == "t.parquet"
    assert ("rule" in made.meta) == (setting == "hard")
    assert run("show", out, "--check")[0] == 0
    again = run("build", "parquet", file, "-o", out)
    assert again[0] == 2
    assert "holds a benchmark already" in again[2]


def test_the_released_preset_is_another_rule(tmp_path: Path, run: Run) -> None:
    options = ("--setting", "hard", "--samples", 5, "--calibration-samples", 0)
    run(
        "build", "parquet", photos(tmp_path), *options, "--preset", "released", "-o", tmp_path / "b"
    )
    assert read_benchmark(tmp_path / "b")[0].meta["rule"]["within"] is True


def test_lists_of_images_are_built_without_choosing_negatives(tmp_path: Path, run: Run) -> None:
    columns = {
        "images": [[png(3 * k), png(3 * k + 1), png(3 * k + 2)] for k in range(8)],
        "question": ["Which?"] * 8,
        "answer": [k % 3 for k in range(8)],
    }
    file = parquet(tmp_path, columns)
    counts = ("--samples", 5, "--calibration-samples", 2)
    code, out, _ = run("build", "parquet", file, "-n", 3, *counts, "-o", tmp_path / "b", "--json")
    assert code == 0
    assert json.loads(out)["instances"] == 5
    code, _, err = run("build", "parquet", file, "-n", 3, "--setting", "hard", "-o", tmp_path / "c")
    assert code == 2
    assert "leave out --setting" in err


def test_hard_negatives_come_from_a_two_tower_model(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers as tf

    from zoo.text import make_tokenizer

    tokenizer = make_tokenizer()
    shared = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    shared |= {"num_attention_heads": 2, "projection_dim": 8}
    text = shared | {"vocab_size": len(tokenizer), "max_position_embeddings": 48}
    text |= dict.fromkeys(("eos_token_id", "bos_token_id"), tokenizer.eos_token_id)
    config = tf.CLIPConfig(
        text_config=text | {"pad_token_id": tokenizer.pad_token_id},
        vision_config=shared | {"image_size": 32, "patch_size": 8},
        projection_dim=8,
    )
    tf.CLIPModel(config).save_pretrained(tmp_path / "clip")
    size = {"height": 32, "width": 32}
    images = tf.CLIPImageProcessorPil(size=size, crop_size=size)
    tf.CLIPProcessor(images, tokenizer).save_pretrained(tmp_path / "clip")

    scenes = ("build", "scenes", "--setting", "hard", "--samples", 4, "--calibration-samples", 1)
    code, _, err = run(*scenes, "--embedder", tmp_path / "clip", "-o", tmp_path / "b")
    assert code == 0, err
    made, _ = read_benchmark(tmp_path / "b")
    assert made.meta["embedder"] == "clip"
    assert made.meta["similarity"]["image"] > 0
    assert len(list((tmp_path / "b" / "embeddings").glob("*.npy"))) == 2


@pytest.mark.parametrize("lists", [False, True])
def test_a_dataset_of_the_hub_is_built(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, lists: bool
) -> None:
    columns: dict[str, Any] = {
        "image": [png(k) for k in range(20)],
        "text": [f"words {k}" for k in range(20)],
    }
    if lists:
        columns["image"] = [[png(2 * k), png(2 * k + 1)] for k in range(20)]
        columns["answer"] = [k % 2 for k in range(20)]
    monkeypatch.setitem(sys.modules, "datasets", StandIn(columns))
    counts = ("-n", 2, "--samples", 4, "--calibration-samples", 2)
    code, _, err = run(
        "build", "hub", "someone/photos", "--split", "dev", *counts, "-o", tmp_path / "b"
    )
    assert code == 0, err
    made, _ = read_benchmark(tmp_path / "b")
    assert (len(made.instances), made.meta["source"]) == (4, "someone/photos (dev)")
    assert made.meta["builder"] == "hub"


def test_scenes_need_no_data(tmp_path: Path, run: Run) -> None:
    for kind in ("match", "odd", "larger"):
        out = tmp_path / kind
        options = ("-n", 2, "--samples", 3, "--calibration-samples", 1, "--style", "b")
        assert run("build", "scenes", "--kind", kind, *options, "-o", out)[0] == 0
        assert run("show", out, "--check")[0] == 0
    code, _, err = run("build", "scenes", "--embedder", "x", "-o", tmp_path / "y")
    assert code == 2
    assert "say --setting hard" in err


def test_coco_leaves_its_pictures_where_they_are(tmp_path: Path, run: Run) -> None:
    captions, images, _ = coco(tmp_path)
    options = ("-n", 2, "--samples", 1, "--calibration-samples", 0)
    code, _, err = run(
        "build", "coco", captions, "--images", images, *options, "-o", tmp_path / "b"
    )
    assert code == 0, err
    assert not (tmp_path / "b" / "images").exists()
    made, _ = read_benchmark(tmp_path / "b")
    assert Path(str(made.instances[0].images[0])).parent == images
    run("build", "coco", captions, "--images", images, *options, "--copy", "-o", tmp_path / "c")
    assert len(list((tmp_path / "c" / "images").iterdir())) == 2
    code, _, err = run(
        "build", "coco", captions, "--images", images, "--setting", "hard", "-o", tmp_path / "d"
    )
    assert code == 2
    assert "give --instances" in err


def test_flickr8k_and_a_folder_are_built(tmp_path: Path, run: Run) -> None:
    lines = []
    for k in range(8):
        put(tmp_path / "photos" / f"{k}.jpg", png(k))
        put(tmp_path / "photos" / f"{k}.txt", f"caption {k}")
        lines.append(f"{k}.jpg#0\tcaption {k}")
    token = put(tmp_path / "token.txt", "\n".join(lines))
    options = ("-n", 3, "--samples", 3, "--calibration-samples", 1)
    photos = tmp_path / "photos"
    assert (
        run("build", "flickr8k", token, "--images", photos, *options, "-o", tmp_path / "a")[0] == 0
    )
    assert run("build", "folder", photos, *options, "-o", tmp_path / "b")[0] == 0
    one, other = (read_benchmark(tmp_path / name)[0] for name in "ab")
    assert [i.caption for i in one.instances] == [i.caption for i in other.instances]


def test_mmiu_says_which_rows_it_leaves_out(tmp_path: Path, run: Run) -> None:
    rows = []
    for number in range(4):
        paths = [f"../MMIU-Benchmark/e/{number}_{k}.jpg" for k in range(2)]
        for k, path in enumerate(paths):
            put(tmp_path / path.removeprefix("../"), png(2 * number + k))
        rows.append(row(input_image_path=paths))
    rows[2]["options"] = "A: No\nB: Yes"
    code, _, err = run(
        "build", "mmiu", put(tmp_path / "all.json", rows), "--images", tmp_path / "MMIU-Benchmark",
        "--task", "emotion_expw", "--calibration-samples", 1, "-o", tmp_path / "b",
    )  # fmt: skip
    assert code == 0, err
    assert "row 2: left out, its options are not the images (one is 'No')" in err
    made, _ = read_benchmark(tmp_path / "b")
    assert (len(made.instances), len(made.calibration)) == (2, 1)
    assert made.identifiers == "letters"
    assert list(made.meta["refused"]) == ["2"]


def test_options_that_make_no_sense_end_in_a_sentence(tmp_path: Path, run: Run) -> None:
    file = photos(tmp_path, 12)
    for options, message in (
        (("-n", 99), "2 to 26"),
        (("--setting", "easy"), "unknown setting"),
        (("--column", "caption"), "give role=column"),
        (("--column", "caption=nothing"), "has no column 'nothing'"),
        (("--samples", 50), "12 images give"),
        (("--preset", "mine"), "unknown preset"),
    ):
        code, _, err = run("build", "parquet", file, *options, "-o", tmp_path / "b")
        assert code == 2
        assert message in err
        assert not (tmp_path / "b").exists()


# show


def test_show_counts(tmp_path: Path, run: Run) -> None:
    made = small(tmp_path / "b", [[0, 1], [2, 3, 4]], [[5, 6]])
    code, out, _ = run("show", made)
    assert code == 0
    assert "2 questions, 1 to calibrate from" in out
    assert "candidates: 2 (1 questions), 3 (1 questions)" in out
    assert "images: 7" in out
    assert json.loads(run("show", made, "--json")[1])["targets"] == {"0": 2}


def test_check_finds_leaks_twins_damage_and_other_contents(tmp_path: Path, run: Run) -> None:
    made = small(tmp_path / "b", [[0, 1], [2, 3]], [[5, 6]])
    benchmark, _ = read_benchmark(made)
    (q0, q1), (c0,) = benchmark.instances, benchmark.calibration
    files = {k: Path(str(image)) for k, image in enumerate((*q0.images, *q1.images, *c0.images))}

    def problems() -> str:
        code, out, _ = run("show", made, "--check")
        assert code == 1
        return out

    files[3].write_bytes(png(2))
    assert "'q1': shows one image twice" in problems()
    files[3].write_bytes(png(5))
    assert "calibration 'c0': shows an image that is evaluated in 'q1'" in problems()
    files[3].write_bytes(b"no image")
    assert "is no image" in problems() or "cannot be" in problems()
    files[3].write_bytes(png(77))
    assert "are not those that benchmark.json was written for" in problems()
    files[3].write_bytes(png(3))
    assert run("show", made, "--check")[0] == 0


def test_check_repairs_nothing(tmp_path: Path, run: Run) -> None:
    made = small(tmp_path / "b", [[0, 1]], [[5, 6]])
    lines = made / "instances.jsonl"
    lines.write_text(lines.read_text() + "nonsense\n")
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    code, out, _ = run("show", made, "--check")
    assert code == 1
    assert "line 2: is not JSON" in out
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


def test_a_contact_sheet_shows_every_question_and_marks_its_target(tmp_path: Path) -> None:
    made = small(tmp_path / "b", [[0, 1, 2], [3, 4, 5]])
    benchmark, _ = summarise(made)
    save_sheet(benchmark, tmp_path / "s.png")
    with Image.open(tmp_path / "s.png") as sheet:
        pixels = np.asarray(sheet.convert("RGB")).reshape(-1, 3)
    assert (pixels == (34, 120, 70)).all(axis=1).sum() > 2 * 4 * 4 * 148 * 0.9
    for number in range(6):
        assert (pixels == (number, 0, 3)).all(axis=1).any()
    save_sheet(benchmark, tmp_path / "s.html")
    page = (tmp_path / "s.html").read_text()
    assert page.count("<img ") == 6
    assert page.count("class=target") == 2
    assert "&lt;b&gt;q 0" in page
    assert "<b>" not in page
    save_sheet(benchmark, tmp_path / "one.html", count=1)
    assert (tmp_path / "one.html").read_text().count("<img ") == 3


def test_a_sheet_of_another_kind_or_nowhere_is_refused(tmp_path: Path) -> None:
    benchmark, _ = summarise(small(tmp_path / "b", [[0, 1]]))
    with pytest.raises(InputError, match=r"must end in \.png or \.html"):
        save_sheet(benchmark, tmp_path / "s.pdf")
    with pytest.raises(InputError, match="cannot be written"):
        save_sheet(benchmark, tmp_path / "nowhere" / "s.png")


def test_a_parquet_file_is_read_however_it_is_grouped(tmp_path: Path, run: Run) -> None:
    whole = pq.read_table(photos(tmp_path))
    assert isinstance(whole, pa.Table)
    pq.write_table(whole, tmp_path / "groups.parquet", row_group_size=7)
    counts = ("--setting", "hard", "--samples", 6, "--calibration-samples", 1)
    for name in ("t", "groups"):
        run("build", "parquet", tmp_path / f"{name}.parquet", *counts, "-o", tmp_path / name)
    one, other = (read_benchmark(tmp_path / name)[0] for name in ("t", "groups"))
    assert one.meta["content_hash"] == other.meta["content_hash"]
