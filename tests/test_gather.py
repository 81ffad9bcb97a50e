"""From a benchmark to a run folder: only what is missing is computed, and what is done is saved."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lookright.errors import InputError
from lookright.evidence import Evidence, instance_hash
from lookright.gather import Outcome, Request, gather
from lookright.images import content_hash
from lookright.instance import Instance, cyclic_orders
from lookright.options import settings_changes
from lookright.runs import read_run
from lookright.settings import EvidenceSettings
from lookright.store import Store


class Fake:
    """Gives evidence in batches of four, remembers of what, and may stop after some of it."""

    def __init__(self, name: str = "fake", stop_after: int | None = None) -> None:
        self.name = name
        self.computed: list[tuple[str, tuple[int, ...]]] = []
        self.stop_after = stop_after

    def settings(self, settings: EvidenceSettings | None = None) -> EvidenceSettings:
        return (settings or EvidenceSettings()).with_changes(model=self.name, dtype="float32")

    def evidence_iter(
        self,
        instances: Sequence[Instance],
        orders: Sequence[Sequence[int]],
        settings: EvidenceSettings | None = None,
        *,
        heads: bool = False,
        maps: bool = False,
        skip: Callable[[Instance, InputError], None] | None = None,
    ) -> Iterator[list[Evidence]]:
        batch: list[Evidence] = []
        for instance, order in zip(instances, orders, strict=True):
            if b"undecodable" in b"".join(Path(str(i)).read_bytes() for i in instance.images):
                error = InputError(f"image of {instance.id}: is no image")
                if skip is None:
                    raise error
                skip(instance, error)
                continue
            batch.append(self.piece(instance, order, self.settings(settings), heads, maps))
            if len(batch) == 4:
                yield self.counted(batch)
                batch = []
        if batch:
            yield self.counted(batch)

    def counted(self, batch: list[Evidence]) -> list[Evidence]:
        if self.stop_after is not None and len(self.computed) >= self.stop_after:
            raise KeyboardInterrupt
        self.computed += [(e.instance_id, e.order) for e in batch]
        return batch

    def piece(
        self,
        instance: Instance,
        order: Sequence[int],
        settings: EvidenceSettings,
        heads: bool,
        maps: bool,
    ) -> Evidence:
        n = len(order)
        return Evidence(
            instance_id=instance.id,
            order=tuple(order),
            log_probs=np.log(np.arange(1, n + 1) / (n * (n + 1) / 2)).astype(np.float32),
            attention=np.full((2, n), 0.1, np.float32),
            layers=(0, 1),
            image_tokens=np.full(n, 3),
            settings=settings.hash,
            instance=instance_hash(instance, [content_hash(str(i)) for i in instance.images]),
            target=instance.answer,
            heads=np.zeros((2, 2, n), np.float32) if heads else None,
            maps=tuple(np.zeros((2, 3), np.float32) for _ in order) if maps else None,
        )


class Bars:
    """Remembers the progress that was shown: title -> (steps done, steps announced)."""

    def __init__(self) -> None:
        self.shown: dict[str, tuple[int, int]] = {}

    @contextmanager
    def __call__(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        self.shown[title] = (0, total)

        def step(steps: int) -> None:
            self.shown[title] = (self.shown[title][0] + steps, total)

        yield step


def make_benchmark(
    folder: Path, count: int = 6, calibration: int = 2, **changes: Any
) -> list[dict[str, Any]]:
    """A benchmark of `count` instances of three images each; `changes` go to the last of them."""
    folder.mkdir(exist_ok=True)
    rows = {}
    for part, many in (("instances", count), ("calibration", calibration)):
        rows[part] = [
            {
                "id": f"{part}-{i}",
                "images": [f"{part}-{i}-{k}.png" for k in range(3)],
                "caption": f"caption {i}",
                "answer": i % 3,
            }
            for i in range(many)
        ]
        for row in rows[part]:
            for image in row["images"]:
                (folder / image).write_bytes(f"picture {image}".encode())
    rows["instances"][-1] |= changes
    for part, listed in rows.items():
        text = "".join(json.dumps(row) + "\n" for row in listed)
        if listed:
            (folder / f"{part}.jsonl").write_text(text)
    return rows["instances"]


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    make_benchmark(tmp_path / "benchmark")
    return tmp_path / "benchmark"


def ask(
    source: Fake, benchmark: Path, bars: Bars | None = None, folder: str = "run", **request: Any
) -> Outcome:
    asked = Request(benchmark, benchmark.parent / folder, **request)
    return gather(asked, lambda: source, bars or Bars(), lambda: {"numpy": "2"})


def saved(benchmark: Path, folder: str = "run") -> list[tuple[str, tuple[int, ...]]]:
    return [(e.instance_id, e.order) for e in Store(benchmark.parent / folder).read()]


def run_of(benchmark: Path) -> dict[str, Any]:
    run = read_run(benchmark.parent / "run")
    assert run is not None
    return run


# What is asked


def test_every_instance_is_asked_in_every_order_one_after_the_other(benchmark: Path) -> None:
    source, bars = Fake(), Bars()
    outcome = ask(source, benchmark, bars)
    wanted = [(f"instances-{i}", order) for i in range(6) for order in cyclic_orders(3)]
    assert source.computed == saved(benchmark) == wanted
    assert (outcome.asked, outcome.present, outcome.computed) == (18, 0, 18)
    assert bars.shown == {"Images": (8, 8), "Evidence": (18, 18)}
    assert len(list((benchmark.parent / "run").glob("*.parquet"))) == 1


def test_orders_of_several_kinds_are_asked_once_each(benchmark: Path) -> None:
    ask(Fake(), benchmark, orders=("cyclic", "all"))
    found = saved(benchmark)
    assert len(found) == len(set(found)) == 6 * 6
    assert [order for _, order in found[:3]] == cyclic_orders(3)


def test_random_orders_follow_the_seed(benchmark: Path) -> None:
    ask(Fake(), benchmark, orders=("random:2",), seed=1)
    ask(Fake(), benchmark, orders=("random:2",), seed=1, folder="same")
    ask(Fake(), benchmark, orders=("random:2",), seed=2, folder="other")
    assert saved(benchmark) == saved(benchmark, "same") != saved(benchmark, "other")


def test_of_both_parts_the_calibration_comes_first(benchmark: Path) -> None:
    ask(Fake(), benchmark, part="both", orders=("identity",), limit=3)
    assert [name for name, _ in saved(benchmark)] == [
        *("calibration-0", "calibration-1"),
        *("instances-0", "instances-1", "instances-2"),
    ]


def test_an_instance_that_stands_twice_under_two_names_is_asked_once(tmp_path: Path) -> None:
    folder = tmp_path / "benchmark"
    rows = make_benchmark(folder)
    make_benchmark(folder, images=rows[0]["images"], caption=rows[0]["caption"])
    source = Fake()
    outcome = ask(source, folder)
    assert (len(source.computed), outcome.asked, outcome.present) == (15, 18, 3)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"part": "some"}, "unknown part 'some': use instances, calibration, both"),
        ({"orders": ("cyclical",)}, "unknown orders 'cyclical'"),
        ({"preset": "draft"}, "unknown preset 'draft'"),
        ({"changes": {"flavour": 1}}, "no field 'flavour'"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_the_model_is_loaded(
    benchmark: Path, request_: dict[str, Any], said: str
) -> None:
    def load() -> Fake:
        raise AssertionError("loaded")

    with pytest.raises(InputError, match=said):
        gather(Request(benchmark, benchmark.parent / "run", **request_), load, Bars(), dict)
    assert not (benchmark.parent / "run").exists()


def test_a_part_the_benchmark_lacks_is_refused(tmp_path: Path) -> None:
    make_benchmark(tmp_path / "benchmark", calibration=0)
    with pytest.raises(InputError, match="has no calibration to ask"):
        ask(Fake(), tmp_path / "benchmark", part="both")


def test_the_benchmark_s_identifiers_hold_unless_others_are_named(benchmark: Path) -> None:
    (benchmark / "benchmark.json").write_text('{"identifiers": "letters"}')
    ask(Fake(), benchmark)
    ask(Fake(), benchmark, changes={"identifiers": "roman"}, folder="roman")
    ask(Fake(), benchmark, preset="released", folder="released")
    held = [next(iter(Store(benchmark.parent / f).settings().values())) for f in ("run", "roman")]
    assert [settings.identifiers for settings in held] == ["letters", "roman"]
    (released,) = Store(benchmark.parent / "released").settings().values()
    assert (released.identifiers, released.trailing_space) == ("letters", True)


# Going on


def test_a_run_that_was_stopped_goes_on_with_what_is_missing(benchmark: Path) -> None:
    first, second, third = Fake(stop_after=8), Fake(stop_after=4), Fake()
    for source in (first, second):
        with pytest.raises(KeyboardInterrupt):
            ask(source, benchmark)
    outcome = ask(third, benchmark)
    assert (len(first.computed), len(second.computed), len(third.computed)) == (8, 4, 6)
    assert (outcome.present, outcome.computed) == (12, 6)
    ask(Fake(), benchmark, folder="uninterrupted")
    assert saved(benchmark) == saved(benchmark, "uninterrupted")
    assert ask(Fake(), benchmark).computed == 0


def test_what_killed_runs_left_is_tidied_before_going_on(benchmark: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        ask(Fake(stop_after=12), benchmark)
    folder = benchmark.parent / "run"
    (folder / ".run.json.0123456789abcdef.tmp").write_bytes(b"half a re")
    assert len(list(folder.glob("*.parquet"))) == 3
    with pytest.raises(KeyboardInterrupt):
        ask(Fake(stop_after=0), benchmark)
    assert len(list(folder.glob("*.parquet"))) == 1
    assert not list(folder.glob("*.tmp"))


def test_more_instances_and_orders_are_added_to_a_run(benchmark: Path) -> None:
    ask(Fake(), benchmark, limit=2)
    source = Fake()
    ask(source, benchmark, limit=3, orders=("all",), part="both")
    assert len(source.computed) == 2 * 6 + 3 * 6 - 2 * 3
    assert list(run_of(benchmark)["instances"]["instances"]) == [f"instances-{i}" for i in range(3)]


def test_maps_are_kept_of_the_first_evaluated_instances_also_when_asked_for_later(
    benchmark: Path,
) -> None:
    ask(Fake(), benchmark, part="both")
    source = Fake()
    ask(source, benchmark, part="both", maps=2)
    wanted = [(f"instances-{i}", order) for i in range(2) for order in cyclic_orders(3)]
    assert source.computed == wanted
    store = Store(benchmark.parent / "run")
    assert [(e.instance_id, e.order) for e in store.read(maps=True)] == wanted
    assert ask(Fake(), benchmark, part="both", maps=2).computed == 0
    assert ask(Fake(), benchmark, part="both", maps=1).computed == 0


def test_heads_asked_for_later_are_computed_then(benchmark: Path) -> None:
    ask(Fake(), benchmark)
    assert ask(Fake(), benchmark, heads=True, limit=2).computed == 6
    assert len(Store(benchmark.parent / "run").read(heads=True)) == 6
    assert ask(Fake(), benchmark, heads=True, maps=1).computed == 3 + 12


def test_a_folder_with_evidence_of_other_settings_is_refused(benchmark: Path) -> None:
    ask(Fake(), benchmark)
    with pytest.raises(InputError, match=r"trailing_space: False against True\); choose another"):
        ask(Fake(), benchmark, changes={"trailing_space": True})
    with pytest.raises(InputError, match="model: 'fake' against 'other'"):
        ask(Fake("other"), benchmark)
    (benchmark.parent / "run" / "run.json").unlink()  # the evidence itself says so, too
    with pytest.raises(InputError, match="model: 'fake' against 'other'"):
        ask(Fake("other"), benchmark)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"caption": "another"}, "'instances-5' has other words or images"),
        ({"images": [f"instances-0-{k}.png" for k in range(3)]}, "has other words or images"),
        ({"answer": 0}, "the answer of 'instances-5' was 2 and is 0"),
        ({"id": "renamed"}, "'instances-5' is not among its instances"),
    ],
)
def test_a_folder_with_evidence_of_another_benchmark_is_refused(
    benchmark: Path, change: dict[str, Any], said: str
) -> None:
    ask(Fake(), benchmark)
    make_benchmark(benchmark, **change)
    source = Fake()
    with pytest.raises(InputError, match=said):
        ask(source, benchmark)
    assert source.computed == []


def test_a_benchmark_may_grow_and_what_was_never_asked_may_change(benchmark: Path) -> None:
    ask(Fake(), benchmark, limit=5)
    make_benchmark(benchmark, caption="another")
    make_benchmark(benchmark, count=8)
    assert ask(Fake(), benchmark).computed == 9


def test_without_resume_a_folder_with_evidence_is_refused(benchmark: Path) -> None:
    ask(Fake(), benchmark, resume=False)
    with pytest.raises(InputError, match="holds evidence already"):
        ask(Fake(), benchmark, resume=False)


# What cannot be used


def test_an_image_that_is_no_image_stops_the_run_and_costs_nothing_saved(benchmark: Path) -> None:
    (benchmark / "instances-3-1.png").write_bytes(b"undecodable")
    with pytest.raises(InputError, match="image of instances-3: is no image"):
        ask(Fake(), benchmark)
    assert len(saved(benchmark)) == 8
    assert run_of(benchmark)["invocations"][0]["computed"] == 8


def test_keep_going_skips_what_cannot_be_used_and_says_what(
    benchmark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (benchmark / "instances-3-1.png").write_bytes(b"undecodable")
    with (benchmark / "instances.jsonl").open("a") as file:
        file.write("{broken\n")
    vanishing = benchmark / "instances-4-0.png"

    def vanish(path: str) -> str:
        if Path(path) == vanishing:
            raise InputError(f"{path}: there is no such file")
        return content_hash(path)

    monkeypatch.setattr("lookright.gather.content_hash", vanish)
    with pytest.raises(InputError, match="line 7"):
        ask(Fake(), benchmark)
    bars = Bars()
    outcome = ask(Fake(), benchmark, bars, keep_going=True)
    broken, vanished, undecodable = outcome.skipped
    assert "line 7" in broken
    assert "no such file" in vanished
    assert undecodable == "instances-3: image of instances-3: is no image"
    assert (outcome.asked, outcome.computed) == (15, 12)
    assert bars.shown["Evidence"] == (15, 15)
    assert run_of(benchmark)["invocations"][0]["skipped"] == list(outcome.skipped)
    assert outcome.as_text().count("\n") == 4


def test_an_image_that_cannot_be_read_is_refused_before_the_model_is_loaded(
    benchmark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: str) -> str:
        raise InputError(f"{path}: there is no such file")

    monkeypatch.setattr("lookright.gather.content_hash", gone)
    with pytest.raises(InputError, match="no such file"):
        ask(Fake(), benchmark)


def test_an_instance_that_was_skipped_and_then_mended_is_computed(benchmark: Path) -> None:
    (benchmark / "instances-3-1.png").write_bytes(b"undecodable")
    ask(Fake(), benchmark, keep_going=True)
    (benchmark / "instances-3-1.png").write_bytes(b"a good picture")
    outcome = ask(Fake(), benchmark)
    assert (outcome.computed, outcome.skipped) == (3, ())


# run.json


def test_run_json_says_what_was_made_of_what_and_by_what(benchmark: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        ask(Fake(stop_after=4), benchmark, orders=("random:2",), seed=7)
    ask(Fake(), benchmark, orders=("random:2",), seed=7)
    run = run_of(benchmark)
    assert run["settings"]["model"] == "fake"
    assert EvidenceSettings.from_dict(run["settings"]).hash == run["settings_hash"]
    assert len(run["benchmark"]["hash"]) == 64
    assert len(run["prompt_hash"]) == 16
    contents = {e.instance_id: e.instance for e in Store(benchmark.parent / "run").read()}
    assert run["instances"]["instances"]["instances-4"] == [contents["instances-4"], 1]
    stopped, ended = run["invocations"]
    assert (stopped["computed"], ended["computed"]) == (4, 8)
    assert (ended["request"]["seed"], ended["request"]["orders"]) == (7, ["random:2"])
    assert ended["versions"] == {"numpy": "2"}
    assert ended["started"] <= ended["finished"]
    assert ended["seconds"] >= 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "is no record of a run"),
        ('{"format": 1}', "is no record of a run"),
        ('{"format": 2, "future": true}', "newer lookright"),
    ],
)
def test_a_run_json_that_cannot_be_used_is_named_and_left_alone(
    benchmark: Path, text: str, said: str
) -> None:
    path = benchmark.parent / "run" / "run.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(InputError, match=said) as refusal:
        ask(Fake(), benchmark)
    assert str(path) in str(refusal.value)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "spoil",
    [
        lambda run: run["settings"].update(flavour=1),
        lambda run: run["instances"].update(instances=["instances-0"]),
        lambda run: run["instances"]["instances"].update({"instances-0": "hash"}),
        lambda run: run["instances"]["instances"].update({"instances-0": [["hash"], 1]}),
        lambda run: run.update(invocations=[1]),
    ],
)
def test_a_run_json_changed_by_hand_is_a_sentence(
    benchmark: Path, spoil: Callable[[dict[str, Any]], None]
) -> None:
    ask(Fake(), benchmark)
    path = benchmark.parent / "run" / "run.json"
    run = json.loads(path.read_text())
    spoil(run)
    path.write_text(json.dumps(run))
    with pytest.raises(InputError, match=r"run\.json"):
        ask(Fake(), benchmark)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_a_run_json_that_is_no_file_is_named_and_left_alone(
    benchmark: Path, make: Callable[[Path], None]
) -> None:
    path = benchmark.parent / "run" / "run.json"
    path.parent.mkdir()
    make(path)
    with pytest.raises(InputError, match=r"run\.json: cannot be read \(it is no file\); move it"):
        ask(Fake(), benchmark)
    assert os.path.lexists(path)
    assert not path.is_file()


def test_a_run_json_taken_away_while_computing_is_a_sentence(benchmark: Path) -> None:
    source = Fake()

    def counted(batch: list[Evidence]) -> list[Evidence]:
        (benchmark.parent / "run" / "run.json").unlink(missing_ok=True)
        return batch

    source.counted = counted  # type: ignore[method-assign]
    with pytest.raises(InputError, match="was taken away meanwhile; the evidence is saved"):
        ask(source, benchmark)
    assert len(saved(benchmark)) == 18


def test_a_file_in_the_run_folder_s_place_is_refused(benchmark: Path) -> None:
    (benchmark.parent / "run").write_text("")
    with pytest.raises(InputError, match="run"):
        ask(Fake(), benchmark)


# Settings on the command line


def test_settings_are_read_from_text() -> None:
    given = [
        "trailing_space=true",
        "labelled=False",
        "image_size=336x224",
        'identifiers=["a", "b"]',
        "system=Say 1 = one.",
        'processor_options={"max_pixels": 7}',
        "sofa_sigma=null",
        "prompt=instruction",
    ]
    settings = EvidenceSettings(**settings_changes(given))
    assert settings == EvidenceSettings(
        trailing_space=True,
        image_size=(336, 224),
        identifiers=("a", "b"),
        system="Say 1 = one.",
        processor_options='{"max_pixels":7}',
        prompt="instruction",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trailing_space", "give field=value"),
        ("=true", "give field=value"),
        ("dtype=bfloat16", "say it by the option --dtype"),
    ],
)
def test_a_setting_that_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        settings_changes([text])
