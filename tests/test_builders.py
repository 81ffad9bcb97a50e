"""Builders: what each source becomes, and what is said where a source cannot be used."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from lookright.benchmarks.coco import read_coco
from lookright.benchmarks.embed import embed_pool, silent
from lookright.benchmarks.flickr8k import read_flickr8k
from lookright.benchmarks.hub import read_hub
from lookright.benchmarks.mmiu import TASKS, read_mmiu
from lookright.benchmarks.parquet import pool_of, questions_of, read_parquet
from lookright.benchmarks.pictures import read_pictures
from lookright.benchmarks.pool import Pool
from lookright.errors import InputError

MMIU = Path(__file__).parents[2] / "shared" / "paper" / "mmiu_rows.json"


def png(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (number % 256, number // 256, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def put(path: Path, content: Any) -> Path:
    """A file of bytes, text, or JSON; its folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# COCO


def coco(path: Path, **changes: Any) -> tuple[Path, Path, Path]:
    """Annotations of four pictures, the fourth without a caption, and their pictures."""
    images = [{"id": k, "file_name": f"COCO_{k}.jpg"} for k in range(4)]
    said = [(7, 0, "second of 0"), (3, 0, " first  of 0"), (5, 1, "of 1"), (6, 2, "of 2")]
    captions = {
        "images": images,
        "annotations": [{"id": i, "image_id": k, "caption": text} for i, k, text in said],
    }
    objects = {
        "images": images,
        "annotations": [
            {"image_id": 0, "category_id": 18},
            {"image_id": 0, "category_id": 3},
            {"image_id": 0, "category_id": 18},
            {"image_id": 1, "category_id": 3},
        ],
    }
    for k in range(4):
        put(path / "val2014" / f"COCO_{k}.jpg", png(k))
    return (
        put(path / "captions.json", changes.get("captions", captions)),
        path / "val2014",
        put(path / "instances.json", changes.get("instances", objects)),
    )


def test_coco_gives_the_first_caption_and_all_categories(tmp_path: Path) -> None:
    pool = read_coco(*coco(tmp_path))
    assert pool.ids == ["COCO_0.jpg", "COCO_1.jpg", "COCO_2.jpg"]
    assert pool.captions == ["first of 0", "of 1", "of 2"]
    assert pool.categories == [{"18", "3"}, {"3"}, set()]
    assert pool.images[1] == str((tmp_path / "val2014" / "COCO_1.jpg").resolve())


def test_coco_without_its_objects_has_no_categories(tmp_path: Path) -> None:
    captions, images, _ = coco(tmp_path)
    assert read_coco(captions, images).categories is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"captions": "{"}, "is not JSON"),
        ({"captions": []}, "no COCO annotation file"),
        ({"captions": {"images": []}}, "no list 'annotations'"),
        ({"captions": {"images": [{"id": "x"}], "annotations": []}}, "must be a whole number"),
        (
            {"captions": {"images": [{"id": 0}], "annotations": [{"id": 1, "image_id": 0}]}},
            "hold no captions",
        ),
        (
            {
                "captions": {
                    "images": [{"id": 0}],
                    "annotations": [{"id": 1, "image_id": 0, "caption": "x"}],
                }
            },
            "image 0 has no file name",
        ),
        (
            {
                "captions": {
                    "images": [],
                    "annotations": [{"id": 1, "image_id": 8, "caption": "x"}],
                }
            },
            "annotates image 8",
        ),
        ({"instances": {"annotations": [{"image_id": 0}]}}, "hold no categories"),
        (
            {"instances": {"annotations": [{"image_id": 99, "category_id": 1}]}},
            "none of its objects is in a picture",
        ),
    ],
)
def test_coco_annotations_of_another_shape_or_year_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_coco(*coco(tmp_path, **changes))


def test_pictures_that_are_not_there_are_counted_and_one_is_named(tmp_path: Path) -> None:
    captions, images, objects = coco(tmp_path)
    (images / "COCO_1.jpg").unlink()
    with pytest.raises(InputError, match=r"1 of its 3 pictures are not in .* as COCO_1\.jpg"):
        read_coco(captions, images, objects)


# Flickr8k


def flickr8k(path: Path, text: str, name: str = "Flickr8k.token.txt") -> tuple[Path, Path]:
    for name_ in ("a.jpg", "b.jpg"):
        put(path / "Flicker8k_Dataset" / name_, png(ord(name_[0])))
    return put(path / name, text), path / "Flicker8k_Dataset"


def test_flickr8k_gives_the_first_of_five_captions(tmp_path: Path) -> None:
    text = "a.jpg#1\tsecond\na.jpg#0\tfirst .\nb.jpg#0\tof b\n2258277193_586949ec62.jpg.1#0\tgone\n"
    pool = read_flickr8k(*flickr8k(tmp_path, text))
    assert (pool.ids, pool.captions) == (["a.jpg", "b.jpg"], ["first .", "of b"])
    assert not pool.has_categories


def test_flickr8k_is_read_as_csv_too_and_by_split(tmp_path: Path) -> None:
    text = 'image,caption\na.jpg,"first, it is"\na.jpg,second\nb.jpg,of b\n'
    captions, images = flickr8k(tmp_path, text, "captions.txt")
    assert read_flickr8k(captions, images).captions == ["first, it is", "of b"]
    split = put(tmp_path / "dev.txt", "b.jpg\na.jpg\n")
    assert read_flickr8k(captions, images, split).ids == ["b.jpg", "a.jpg"]
    with pytest.raises(InputError, match=r"names 1 pictures that .* such as c\.jpg"):
        read_flickr8k(captions, images, put(tmp_path / "test.txt", "a.jpg\nc.jpg\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.jpg first", "line 1: must be"),
        ("a.jpg#x\tfirst", "line 1: must be"),
        ("image,caption\na.jpg,b,c", "row 2: must be an image and its caption"),
        ("\n", "holds no captions"),
        ("a.jpg#0\t \nb.jpg#0\tx", "'a.jpg': its caption is empty"),
    ],
)
def test_a_caption_file_of_another_form_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_flickr8k(*flickr8k(tmp_path, text))


# A folder of pictures


def test_pictures_have_their_captions_beside_them(tmp_path: Path) -> None:
    for name in ("a.jpg", "sub/b.PNG", "notes.md"):
        put(tmp_path / name, png(len(name)))
    put(tmp_path / "a.txt", "a dog\n")
    put(tmp_path / "sub" / "b.txt", "\ufeffa  cat")
    pool = read_pictures(tmp_path)
    assert (pool.ids, pool.captions) == (["a.jpg", "sub/b.PNG"], ["a dog", "a cat"])
    (tmp_path / "a.txt").unlink()
    with pytest.raises(InputError, match=r"a\.jpg: has no caption; write it into a\.txt"):
        read_pictures(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("captions.csv", 'file,caption,tags\na.jpg,"a dog, big",dog;ball\nb.jpg,a cat,\n'),
        (
            "captions.jsonl",
            '{"image": "a.jpg", "caption": "a dog, big", "tags": ["ball", "dog"]}\n\n'
            '{"image": "b.jpg", "captions": ["a cat", "x"]}\n',
        ),
    ],
)
def test_captions_stand_in_one_file(tmp_path: Path, name: str, text: str) -> None:
    for picture in ("a.jpg", "b.jpg", "other.jpg"):
        put(tmp_path / "photos" / picture, png(ord(picture[0])))
    pool = read_pictures(tmp_path / "photos", put(tmp_path / name, text))
    assert (pool.ids, pool.captions) == (["a.jpg", "b.jpg"], ["a dog, big", "a cat"])
    assert pool.categories == [{"dog", "ball"}, set()]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.csv", "file,words\na.jpg,x\n", "row 1: has none of the fields caption"),
        ("c.csv", "caption\nx\n", "row 1: has none of the fields image"),
        ("c.csv", 'file,caption\na.jpg,"x\n', "is not CSV"),
        ("c.csv", "file,caption\na.jpg\n", "both text"),
        ("c.jsonl", '{"image": "a.jpg", "caption": 3}\n', "line 1: needs"),
        ("c.jsonl", '{"image": "a.jpg", "caption": "x", "tags": 3}\n', "must be a list"),
        ("c.jsonl", "[]\n", "must be a JSON object"),
        ("c.jsonl", '{"image": "../a.jpg", "caption": "x"}\n', "climbs out"),
        ("c.csv", f"file,caption\n{'a' * 300}.jpg,x\n", "1 of its 1 pictures are not in"),
        ("c.xlsx", "x", "are read from .csv or .jsonl"),
        ("c.csv", b"file,caption\na.jpg,\xff\n", "is not UTF-8"),
    ],
)
def test_a_file_of_captions_that_cannot_be_read_is_refused(
    tmp_path: Path, name: str, text: Any, message: str
) -> None:
    put(tmp_path / "photos" / "a.jpg", png(1))
    with pytest.raises(InputError, match=message):
        read_pictures(tmp_path / "photos", put(tmp_path / name, text))


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no pictures"):
        read_pictures(tmp_path)
    with pytest.raises(InputError, match="is no folder"):
        read_pictures(tmp_path / "nowhere")


# Parquet


def table(**changes: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "file_name": ["a", "b", "c"],
        "image": [{"bytes": png(k), "path": None} for k in range(3)],
        "captions": [["of a", "again"], ["of b"], [None, "of c"]],
        "category_ids": [[1, 2], [], [2]],
        "clip_image_embedding": [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]],
        "caption_embedding": [[1.0], [2.0], [3.0]],
    }
    return {name: value for name, value in (columns | changes).items() if value is not None}


def parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path / "t.parquet")
    return path / "t.parquet"


def test_a_parquet_file_is_a_pool(tmp_path: Path) -> None:
    pool = pool_of(read_parquet(parquet(tmp_path, table()), {}))
    assert (pool.ids, pool.captions) == (["a", "b", "c"], ["of a", "of b", "of c"])
    assert list(pool.images) == [png(0), png(1), png(2)]
    assert pool.images[-1:] == [png(2)]
    assert pool.categories == [{"1", "2"}, set(), {"2"}]
    assert pool.image_vectors is not None
    np.testing.assert_array_equal(pool.image_vectors, [[1, 0], [0, 1], [0.6, 0.8]])
    assert pool.caption_vectors is not None
    assert pool.caption_vectors.shape == (3, 1)


def test_columns_may_have_any_name_and_images_may_be_paths(tmp_path: Path) -> None:
    for k in range(3):
        put(tmp_path / f"{k}.png", png(k))
    columns = {
        "photo": [f"{k}.png" for k in range(3)],
        "words": ["x", "y", "z"],
        "tags": list("pqr"),
    }
    given = {"image": "photo", "caption": "words", "categories": "tags"}
    pool = pool_of(read_parquet(parquet(tmp_path, columns), given))
    assert pool.ids == ["row-000000", "row-000001", "row-000002"]
    assert pool.images[1] == str((tmp_path / "1.png").resolve())
    assert pool.categories == [{"p"}, {"q"}, {"r"}]
    assert pool.image_vectors is None


@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({"image": None}, {}, "has no column of images"),
        ({"captions": None}, {}, "has no column of captions"),
        ({}, {"caption": "words"}, "has no column 'words'"),
        ({}, {"picture": "image"}, "no column for 'picture'"),
        ({"captions": [["x"], [], ["y"]]}, {}, "'b': its caption is empty"),
        ({"file_name": ["a", "a", "b"]}, {}, "stands there 2 times"),
        ({"clip_image_embedding": [[1.0], [1.0, 2.0], [1.0]]}, {}, "of one length, and have 1, 2"),
        ({"clip_image_embedding": [[1.0], None, [1.0]]}, {}, "have 1, none"),
        ({"clip_image_embedding": [1.0, 2.0, 3.0]}, {}, "no embeddings"),
        ({"caption_embedding": [[1.0], [float("nan")], [1.0]]}, {}, "'b' is not finite"),
    ],
)
def test_a_parquet_file_that_cannot_be_used_is_refused(
    tmp_path: Path, changes: dict[str, Any], given: dict[str, str], message: str
) -> None:
    path = parquet(tmp_path, table(**changes))
    with pytest.raises(InputError, match=message):
        pool_of(read_parquet(path, given))


def test_a_cell_without_an_image_is_named(tmp_path: Path) -> None:
    cells = [{"bytes": png(0), "path": None}, {"bytes": None, "path": None}, None]
    pool = pool_of(read_parquet(parquet(tmp_path, table(image=cells)), {}))
    with pytest.raises(InputError, match="row 1: holds no image"):
        pool.content(1)


def test_what_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no Parquet file"):
        read_parquet(put(tmp_path / "t.parquet", "text"), {})
    with pytest.raises(InputError, match="no such file"):
        read_parquet(tmp_path / "none.parquet", {})
    whole = parquet(tmp_path, table(captions=["plain words here", "y", "z"])).read_bytes()
    for word in (b"file_name", b"plain words here"):
        assert word in whole
        put(tmp_path / "t.parquet", whole.replace(word, b"\xd5" + word[1:]))
        with pytest.raises(InputError, match="is no Parquet file that can be read"):
            pool_of(read_parquet(tmp_path / "t.parquet", {}))


def test_rows_with_lists_of_images_are_questions(tmp_path: Path) -> None:
    columns = {
        "images": [[png(0), png(1)], [png(2), png(3)], [png(4), png(5), png(6)]],
        "caption": ["x", None, "z"],
        "question": [None, "Which?", None],
        "answer": [1, 0, 2],
    }
    made = read_parquet(parquet(tmp_path, columns), {})
    assert made.holds_lists
    found, skipped = questions_of(made, 2)
    assert [(q.caption, q.question, q.answer) for q in found] == [
        ("x", None, 1),
        (None, "Which?", 0),
    ]
    assert found[1].images == (png(2), png(3))
    assert skipped == {"not 2 candidates": 1}
    with pytest.raises(InputError, match="no row has 9 candidates"):
        questions_of(made, 9)


def test_a_question_whose_answer_is_no_image_is_named(tmp_path: Path) -> None:
    columns = {"images": [[png(0), png(1)]], "caption": ["x"], "answer": [2]}
    with pytest.raises(InputError, match="row 0: instance 'row-000000', field 'answer'"):
        questions_of(read_parquet(parquet(tmp_path, columns), {}))


# The hub


class StandIn(ModuleType):
    """As much of the library `datasets` as is used."""

    def __init__(self, columns: dict[str, Any]) -> None:
        super().__init__("datasets")
        self.table, self.asked = pa.table(columns), list[Any]()

    def load_dataset(self, *names: Any, **options: Any) -> StandIn:
        self.asked.append((names, options))
        if names[0] == "nobody/nothing":
            raise FileNotFoundError("Couldn't find\nany data")
        return self

    def with_format(self, kind: str) -> dict[Any, Any]:
        assert kind == "arrow"

        class Whole:
            def __getitem__(_, rows: slice) -> Any:  # noqa: N805
                assert rows == slice(None)
                return self.table

        return Whole()  # type: ignore[return-value]


def test_a_dataset_of_the_hub_is_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn(table())
    monkeypatch.setitem(sys.modules, "datasets", library)
    pool = pool_of(read_hub("someone/photos", "test", {"id": "file_name"}, config="small"))
    assert pool.source == "someone/photos (test)"
    assert list(pool.images) == [png(0), png(1), png(2)]
    assert library.asked == [(("someone/photos", "small"), {"split": "test", "revision": None})]
    with pytest.raises(InputError, match="nobody/nothing, split dev: cannot be loaded: Couldn't"):
        read_hub("nobody/nothing", "dev", {})


def test_the_hub_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'lookright\[hub\]'"):
        read_hub("someone/photos", "test", {})


# MMIU


def row(**changes: Any) -> dict[str, Any]:
    return {
        "task": "emotion_recognition_expw",
        "options": "A: the first image\nB: the second image\n",
        "question": "Which?",
        "context": "Look.\nSelect.\n",
        "input_image_path": ["../MMIU-Benchmark/e/0.jpg", "../MMIU-Benchmark/e/1.jpg"],
        "output": "B",
    } | changes


def read_rows(path: Path, rows: Any, task: str = "emotion_expw") -> Any:
    for k in range(2):
        put(path / "MMIU-Benchmark" / "e" / f"{k}.jpg", png(k))
    return read_mmiu(put(path / "all.json", rows), path / "MMIU-Benchmark", task)


def test_mmiu_joins_context_and_question_as_its_own_script_does(tmp_path: Path) -> None:
    (found,), refused = read_rows(tmp_path, [row(task="other"), row()])
    assert refused == {}
    assert found.question == (
        "Look.\nSelect.\n\nWhich?\nPlease answer the option directly like A,B,C,D..."
    )
    assert (found.answer, found.category) == (1, "emotion_recognition_expw")
    (found,), _ = read_rows(tmp_path, [row(task="text2image_retrieval")], "text2image_retrieval")
    assert found.question.startswith("Which?\nLook.\nSelect.\n\nPlease answer")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"options": "A: No\nB: Yes\n"}, "not the images (one is 'No')"),
        ({"options": "A: Second image\nB: First image\n"}, "in another order"),
        ({"options": "B: the first image\nA: the second image"}, "in another order"),
        ({"options": "A: the first image\n"}, "its 1 options are not its 2 images"),
        ({"options": "the first image, the second image"}, "not lines of the form"),
        ({"output": "C"}, "'C' is none of its options"),
        ({"output": None}, "must be texts"),
        ({"input_image_path": "x.jpg"}, "must be a list of paths"),
        ({"input_image_path": ["../MMIU-Benchmark/e/0.jpg"]}, "has 1 images"),
    ],
)
def test_mmiu_rows_whose_options_are_not_the_images_are_refused_by_reason(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    found, refused = read_rows(tmp_path, [row(), row(**changes)])
    assert len(found) == 1
    assert list(refused) == [1]
    assert reason in refused[1]
    with pytest.raises(InputError, match=r"no row of .* can be used \(1 refused\); row 0: "):
        read_rows(tmp_path, [row(**changes)])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("{", "is not JSON"),
        ({}, "must be a list of rows"),
        ([3], "must be a list of rows"),
        ([row(task="other")], "has no rows of the task 'emotion_expw'"),
        ([row(input_image_path=["a.jpg", "../../b.jpg"])], r"no such file"),
    ],
)
def test_mmiu_annotations_that_cannot_be_used_are_refused(
    tmp_path: Path, rows: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_rows(tmp_path, rows)


@pytest.mark.skipif(not MMIU.exists(), reason="the rows of MMIU are not here")
def test_real_rows_of_mmiu_go_through_the_builder(tmp_path: Path) -> None:
    rows = json.loads(MMIU.read_text())
    every = [entry for entries in rows.values() for entry in entries]
    for number, entry in enumerate(every):
        for k, path in enumerate(entry["input_image_path"]):
            put(tmp_path / path.removeprefix("../"), png(10 * number + k))
    annotations = put(tmp_path / "all.json", every)
    for name, theirs in TASKS.items():
        found, refused = read_mmiu(annotations, tmp_path / "MMIU-Benchmark", name)
        assert refused == {}
        assert [len(q.images) for q in found] == [len(r["input_image_path"]) for r in rows[theirs]]
        assert ["ABCD"[q.answer or 0] for q in found] == [r["output"] for r in rows[theirs]]
    with pytest.raises(InputError, match=r"\(3 refused\)"):
        read_mmiu(annotations, tmp_path / "MMIU-Benchmark", "visual_quality_assessment_q_bench+")


# Embeddings


class Counting:
    """Vectors from the size and the first letter; dies after so many calls."""

    name, revision = "counting", "r1"

    def __init__(self, lives: int = 99) -> None:
        self.calls, self.lives = 0, lives

    def of_images(self, pictures: Any) -> Any:
        return self._made([[float(picture.getpixel((0, 0))[0] + 1), 1.0] for picture in pictures])

    def of_captions(self, captions: Any) -> Any:
        return self._made([[float(ord(caption[-1])), 2.0] for caption in captions])

    def _made(self, rows: Any) -> Any:
        self.calls += 1
        if self.calls > self.lives:
            raise KeyboardInterrupt
        return np.asarray(rows, np.float32)


def bare(count: int) -> Pool:
    names = [f"i{k}" for k in range(count)]
    return Pool("made here", names, [png(k) for k in range(count)], [f"caption {k}" for k in names])


def test_embeddings_go_on_where_they_were_stopped(tmp_path: Path) -> None:
    pool, whole, dying, again = bare(10), Counting(), Counting(3), Counting()
    expected = embed_pool(pool, whole, tmp_path / "whole", silent, batch=4)
    assert whole.calls == 6
    with pytest.raises(KeyboardInterrupt):
        embed_pool(pool, dying, tmp_path / "e", silent, batch=4)
    resumed = embed_pool(pool, again, tmp_path / "e", silent, batch=4)
    assert again.calls == 3
    np.testing.assert_array_equal(resumed.image_vectors, expected.image_vectors)
    np.testing.assert_array_equal(resumed.caption_vectors, expected.caption_vectors)
    assert expected.image_vectors is not None
    assert expected.image_vectors[:, 0].tolist() == [float(k + 1) for k in range(10)]
    assert resumed.embedder == "counting@r1"


def test_kept_embeddings_that_are_damaged_or_of_others_are_made_anew(tmp_path: Path) -> None:
    embed_pool(bare(4), Counting(), tmp_path, silent, batch=4)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-9])
    mended = Counting()
    embed_pool(bare(4), mended, tmp_path, silent, batch=4)
    assert mended.calls == 2
    other = Counting()
    other.revision = "r2"
    embed_pool(bare(4), other, tmp_path, silent, batch=4)
    assert other.calls == 2
