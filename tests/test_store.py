"""The store: evidence comes back bit for bit, and nothing saved is ever lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow.parquet import ParquetFile

from lookright.errors import InputError
from lookright.evidence import Evidence, EvidenceArray
from lookright.files import locked
from lookright.instance import cyclic_orders
from lookright.settings import EvidenceSettings
from lookright.store import Store

SETTINGS = EvidenceSettings(model="tiny", dtype="float32")
RELEASED = EvidenceSettings.released(model="tiny", dtype="float32")


def piece(
    number: int,
    shift: int = 0,
    n: int = 4,
    settings: EvidenceSettings = SETTINGS,
    salt: int = 0,
    dtype: str = "float32",
    heads: bool = False,
    maps: bool = False,
) -> Evidence:
    """Evidence of random bits (not of random values): NaN, infinities, denormals and all."""
    draw = np.random.default_rng([number, shift, n, salt])

    def bits(*shape: int) -> np.ndarray[Any, Any]:
        size = np.dtype(dtype).itemsize
        return np.frombuffer(draw.bytes(int(np.prod(shape)) * size), dtype).reshape(shape)

    tokens = draw.integers(1, 5, n)
    return Evidence(
        instance_id=f"frage-{number} ü",
        order=cyclic_orders(n)[shift],
        log_probs=bits(n),
        attention=bits(3, n),
        layers=(0, 2, 7),
        image_tokens=tokens,
        settings=settings.hash,
        instance=f"{number:032x}",
        target=None if number % 3 == 0 else number % n,
        heads=bits(3, 2, n) if heads else None,
        maps=tuple(bits(3, int(count)) for count in tokens) if maps else None,
    )


def same(one: Evidence, other: Evidence) -> bool:
    """Equal in every bit, the types of the numbers included."""
    facts = ("instance_id", "order", "layers", "settings", "instance", "target")
    if any(getattr(one, name) != getattr(other, name) for name in facts):
        return False
    arrays = [
        (a, b)
        for name in ("log_probs", "attention", "image_tokens", "heads")
        for a, b in [(getattr(one, name), getattr(other, name))]
    ]
    arrays += zip(one.maps or (None,), other.maps or (None,), strict=True)
    return all(
        a is b
        if a is None or b is None
        else (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        for a, b in arrays
    )


def all_same(found: list[Evidence], wanted: list[Evidence]) -> bool:
    return len(found) == len(wanted) and all(map(same, found, wanted))


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


# What goes in comes out


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_evidence_comes_back_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    wanted = [piece(i, s, dtype=dtype) for i in range(5) for s in range(4)]
    Store(tmp_path / "run" / "deep").append(wanted, SETTINGS)
    found = Store(str(tmp_path / "run" / "deep")).read()
    assert all_same(found, wanted)
    assert {e.key for e in wanted} == Store(tmp_path / "run" / "deep").keys()


def test_log_probs_may_be_finer_than_attention(tmp_path: Path) -> None:
    wanted = replace(piece(1), log_probs=piece(1, dtype="float64").log_probs)
    Store(tmp_path).append([wanted], SETTINGS)
    assert same(Store(tmp_path).read()[0], wanted)


def test_heads_and_maps_come_back_bit_for_bit_where_asked_for(tmp_path: Path) -> None:
    store = Store(tmp_path)
    plain = [piece(i) for i in range(2)]
    rich = [piece(i, heads=True, maps=True) for i in range(2, 5)]
    store.append(plain + rich, SETTINGS)
    assert all_same(store.read(heads=True, maps=True), rich)
    assert all_same(store.read(heads=True), [replace(e, maps=None) for e in rich])
    assert all_same(store.read(), plain + [replace(e, heads=None, maps=None) for e in rich])
    assert store.keys(maps=True) == {e.key for e in rich}


def test_evidence_of_different_numbers_of_candidates_lies_side_by_side(tmp_path: Path) -> None:
    wanted = [piece(i, n=4 if i % 2 else 6) for i in range(6)]
    Store(tmp_path).append(wanted, SETTINGS)
    assert all_same(Store(tmp_path).read(), wanted)


def test_evidence_without_attention_layers_comes_back(tmp_path: Path) -> None:
    wanted = replace(piece(1), layers=(), attention=np.zeros((0, 4), dtype=np.float32))
    Store(tmp_path).append([wanted], SETTINGS)
    assert same(Store(tmp_path).read()[0], wanted)


def test_what_is_read_makes_columns(tmp_path: Path) -> None:
    wanted = [piece(i, s) for i in range(5) for s in range(4)]
    store = Store(tmp_path)
    for low in range(0, 20, 7):
        store.append(wanted[low : low + 7], SETTINGS)
    columns = EvidenceArray.of(store.read())
    assert columns.attention.shape == (4, 5, 3, 4)
    assert columns.attention[2, 3].tobytes() == wanted[3 * 4 + 2].attention.tobytes()
    assert columns.targets.tolist() == [-1, 1, 2, -1, 0]


def test_a_folder_that_does_not_exist_holds_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "none")
    assert (store.keys(), store.read(), store.settings(), store.compact()) == (set(), [], {}, 0)
    store.append([], SETTINGS)
    assert not (tmp_path / "none").exists()


def test_evidence_is_found_by_settings_instance_and_order(tmp_path: Path) -> None:
    store = Store(tmp_path)
    paper = [piece(i, s) for i in range(3) for s in range(4)]
    released = [piece(i, settings=RELEASED) for i in range(3)]
    store.append(paper, SETTINGS)
    store.append(released, RELEASED)
    assert store.settings() == {SETTINGS.hash: SETTINGS, RELEASED.hash: RELEASED}
    assert len(store.keys()) == 15
    assert store.keys(RELEASED.hash) == {e.key for e in released}
    assert all_same(store.read(RELEASED.hash), released)
    found = store.read(SETTINGS.hash, [paper[4].instance], [(2, 3, 0, 1), (1, 2, 3, 0)])
    assert all_same(found, [paper[5], paper[6]])
    assert store.read("0" * 16) == store.read(instances=["0"]) == []


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    special = RELEASED.with_changes(
        identifiers=("eins", "zwei", "drei", "vier"),
        processor_options={"max_pixels": 7},
        system="Sei kurz.",
    )
    Store(tmp_path).append([piece(0, settings=special)], special)
    assert Store(tmp_path).settings() == {special.hash: special}


# Twice the same key


def test_of_two_rows_with_one_key_the_first_written_counts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append([piece(1), piece(2)], SETTINGS)
    store.append([piece(2, salt=1), piece(3)], SETTINGS)
    for _ in range(2):
        assert all_same(store.read(), [piece(1), piece(2), piece(3)])
        store.compact()
    assert len(shards(tmp_path)) == 1


def test_a_row_with_maps_outlives_an_earlier_one_without(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append([piece(1)], SETTINGS)
    store.append([piece(1, salt=1, maps=True)], SETTINGS)
    store.compact()
    assert all_same(store.read(), [piece(1)])
    assert all_same(store.read(maps=True), [piece(1, salt=1, maps=True)])


# Compaction


def test_compaction_changes_nothing_that_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    wanted = [piece(i, s, n=4 + i % 2, maps=i % 3 == 0) for i in range(10) for s in range(4)]
    for low in range(0, 40, 3):
        store.append(wanted[low : low + 3], SETTINGS)
    store.append([piece(99, settings=RELEASED)], RELEASED)
    store.append([piece(98, settings=RELEASED)], RELEASED)
    before, with_maps, keys = store.read(), store.read(maps=True), store.keys()
    many = len(shards(tmp_path))
    assert store.compact() == many - 5  # 4 or 5 candidates, with maps or without; RELEASED
    assert len(shards(tmp_path)) == 5
    assert all_same(store.read(), before)
    assert all_same(store.read(maps=True), with_maps)
    assert (store.keys(), set(store.settings())) == (keys, {SETTINGS.hash, RELEASED.hash})
    assert store.compact() == 0


def test_merged_shards_stay_within_their_size(tmp_path: Path) -> None:
    store = Store(tmp_path)
    wanted = [piece(i) for i in range(12)]
    for each in wanted:
        store.append([each], SETTINGS)
    store.compact(merged_bytes=1)
    assert len(shards(tmp_path)) == 12
    store.compact(merged_bytes=1500)
    assert 1 < len(shards(tmp_path)) < 12
    assert all_same(store.read(), wanted)


def test_rows_left_twice_by_a_killed_compaction_are_dropped_by_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(3):
        store.append([piece(number)], SETTINGS)
    kept = {path.name: path.read_bytes() for path in shards(tmp_path)}
    store.compact()
    for name, data in kept.items():
        (tmp_path / name).write_bytes(data)
    assert all_same(store.read(), [piece(0), piece(1), piece(2)])
    store.compact(merged_bytes=1)  # nothing fits together, and yet no row stays twice
    assert sum(ParquetFile(path).metadata.num_rows for path in shards(tmp_path)) == 3
    assert all_same(store.read(), [piece(0), piece(1), piece(2)])


class Crash(BaseException):
    """Stands for SIGKILL at a chosen step."""


@pytest.mark.parametrize("step", range(9))
def test_a_compaction_that_dies_at_any_step_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    store = Store(tmp_path)
    wanted = [piece(i, n=4 + i // 3) for i in range(6)]
    for each in wanted:
        store.append([each], SETTINGS)
    steps = iter(range(1000))

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if next(steps) >= step:
                raise Crash
            return call(*args, **kwargs)

        return wrapped

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", dying(os.fsync))
        patched.setattr(Path, "replace", dying(Path.replace))
        patched.setattr(Path, "unlink", dying(Path.unlink))
        with pytest.raises(Crash):
            store.compact()
    assert all_same(store.read(), wanted)
    store.compact()
    assert all_same(store.read(), wanted)
    assert len(shards(tmp_path)) == 2
    assert not list(tmp_path.glob("*.tmp"))


def test_a_reader_whose_shard_is_merged_away_meanwhile_reads_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    wanted = [piece(i) for i in range(4)]
    for each in wanted:
        store.append([each], SETTINGS)
    listed = store._shards

    def then_merged() -> list[Path]:
        names = listed()
        Store(tmp_path).compact()
        return names

    monkeypatch.setattr(store, "_shards", then_merged)
    assert all_same(store.read(), wanted)


def test_a_listing_that_changes_under_the_reader_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.append([piece(1)], SETTINGS)
    name = shards(tmp_path)[0].name
    listings = iter([[], [name], [name]])  # the first one missed it
    monkeypatch.setattr(os, "listdir", lambda _: next(listings))
    assert len(store.keys()) == 1


def test_temporary_files_of_dead_writers_are_cleaned_and_of_living_ones_left(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    store.append([piece(1)], SETTINGS)
    dead = tmp_path / ".0001.parquet.0123456789abcdef.tmp"
    alive = tmp_path / ".0002.parquet.0123456789abcdef.tmp"
    foreign = tmp_path / ".somebody.tmp"
    for path in (dead, alive, foreign):
        path.write_bytes(b"PAR1 half a shard")
    with locked(alive):
        assert len(store.read()) == 1
        store.compact()
        assert (dead.exists(), alive.exists(), foreign.exists()) == (False, True, True)
    store.compact()
    assert not alive.exists()


def test_a_writer_whose_temporary_file_was_taken_for_dead_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, tries = Path.replace, []

    def taken_once(path: Path, target: Path) -> Path:
        tries.append(path)
        if len(tries) == 1:
            path.unlink()
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", taken_once)
    Store(tmp_path).append([piece(1)], SETTINGS)
    assert len(tries) == 2
    assert all_same(Store(tmp_path).read(), [piece(1)])


def test_a_shard_is_not_taken_for_abandoned_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, tries = os.fsync, []

    def compacted_meanwhile(descriptor: int) -> None:
        tries.append(list(tmp_path.glob(".*.tmp")))
        Store(tmp_path).compact()
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", compacted_meanwhile)
    Store(tmp_path).append([piece(1)], SETTINGS)
    assert [len(names) for names in tries] == [1, 0]  # the file once, then the folder


def test_without_locks_the_file_system_keeps_small_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def none(*_: Any) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", none)
    store = Store(tmp_path)
    for number in range(3):
        store.append([piece(number)], SETTINGS)
    assert store.compact() == 0
    assert len(store.read()) == len(shards(tmp_path)) == 3


# Evidence that cannot be stored


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (replace(piece(1), instance=""), "field 'instance': is empty"),
        (replace(piece(1), settings=RELEASED.hash), f"{RELEASED.hash!r}, not of"),
        (replace(piece(1), order=(0, 1, 2, 2)), "is not an order of 4 images"),
        (replace(piece(1), log_probs=np.zeros(5, "f4")), r"'log_probs': is float32 \(5,\)"),
        (replace(piece(1), log_probs=np.zeros(4, "i4")), "'log_probs': is int32"),
        (replace(piece(1), attention=np.zeros((2, 4), "f4")), r"not floats \(3, 4\)"),
        (replace(piece(1), image_tokens=np.ones(3, int)), r"'image_tokens': .* \(3,\)"),
        (replace(piece(1), heads=np.zeros((3, 4), "f4")), "'heads': is float32"),
        (replace(piece(1), maps=(np.zeros((3, 2), "f4"),) * 3), "'maps': holds 3 maps"),
        (replace(piece(1), maps=(np.zeros((2, 2), "f4"),) * 4), "'maps': is float32"),
        (
            replace(piece(1), maps=(np.zeros((3, 2), "f4"),) * 3 + (np.zeros((3, 2)),)),
            "'maps': mixes float32 and float64",
        ),
    ],
)
def test_malformed_evidence_is_refused_and_the_rest_of_it_not_half_saved(
    tmp_path: Path, bad: Evidence, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        Store(tmp_path).append([piece(0), bad], SETTINGS)
    assert not shards(tmp_path)


# Files that are not ours, or no longer whole


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _foreign(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"instance": ["a"], "order": [[1, 0]]}), path)


def _newer(path: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    (name, header), *_ = table.schema.metadata.items()
    newer = header.replace(b'"version": 1', b'"version": 2')
    pq.write_table(table.replace_schema_metadata({name: newer}), path)


def _other_layers(path: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    (name, header), *_ = table.schema.metadata.items()
    other = header.replace(b"[0, 2, 7]", b"[0, 2, 8]")
    pq.write_table(table.replace_schema_metadata({name: other}), path)


def _other_columns(path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(path).drop_columns(["target"]), path)


def _uneven(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    place = table.schema.get_field_index("order")
    field = table.schema.field(place)
    short = pa.array([[0, 1, 2]] * len(table), field.type)
    pq.write_table(table.set_column(place, field, short), path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _meant(kind: dict[str, Any] | None) -> Callable[[Path], None]:
    """Spoils a header as if it were meant so: with the check sum of what it says."""

    def spoil(path: Path) -> None:
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        ((name, header),) = table.schema.metadata.items()
        said = json.loads(header)
        said["kind"] = kind and json.dumps(json.loads(said["kind"]) | kind)
        said["check"] = sha256((said["kind"] or "").encode()).hexdigest()[:16]
        pq.write_table(table.replace_schema_metadata({name: json.dumps(said)}), path)

    return spoil


BAD_FILES: list[tuple[Callable[[Path], object], str]] = [
    (_truncated, "is no whole shard of evidence"),
    (lambda path: path.write_bytes(b""), "is no whole shard"),
    (lambda path: path.write_bytes(b"not Parquet at all"), "is no whole shard"),
    (_foreign, "not lookright's"),
    (_newer, r"newer lookright \(format 2, this one reads 1\); update"),
    (_other_layers, "its header is damaged"),
    (_meant({"settings": {"flavour": 1}}), "no field 'flavour'"),
    (_other_columns, "columns are not those"),
    (_uneven, "column order has rows of another length"),
    (_folder, "is no whole shard"),
    (_dangling, "is listed but cannot be found"),
    (_pipe, "is no regular file"),
    (_meant(None), "is no whole shard"),
    (_meant({"layers": [0, "2", 7]}), "names layers or columns that cannot be"),
    (_meant({"columns": []}), "names layers or columns that cannot be"),
]


@pytest.mark.parametrize(("spoil", "said"), BAD_FILES)
def test_a_file_that_is_no_whole_shard_is_named_and_left_alone(
    tmp_path: Path, spoil: Callable[[Path], object], said: str
) -> None:
    store = Store(tmp_path)
    store.append([piece(0)], SETTINGS)
    good = shards(tmp_path)[0]
    store.append([piece(1)], SETTINGS)
    (bad,) = set(shards(tmp_path)) - {good}
    spoil(bad)
    before = bad.read_bytes() if bad.is_file() else None
    for use in (store.read, store.keys, store.compact):
        with pytest.raises(InputError, match=said) as refusal:
            use()
        assert str(bad) in str(refusal.value)
    store.append([piece(2)], SETTINGS)  # writing goes on
    assert (bad.read_bytes() if bad.is_file() else None) == before
    bad.rmdir() if bad.is_dir() else bad.unlink()
    assert all_same(store.read(), [piece(0), piece(2)])


def test_a_header_damaged_in_one_of_its_two_places_is_not_handed_on_by_a_compaction(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    for number in range(3):
        store.append([piece(number)], SETTINGS)
    for path in shards(tmp_path)[:2]:
        data = path.read_bytes()
        at = data.index(b"lookright.evidence") + 200  # in plain text; the other place is base64
        path.write_bytes(data[:at] + b"\x01" + data[at + 1 :])
    before = store.read()
    assert store.compact() == 2
    assert all_same(store.read(), before)
    assert len(before) == 3


def test_other_files_in_the_folder_are_nobodys_business(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "._0001.parquet").write_bytes(b"what some file managers leave behind")
    store = Store(tmp_path)
    store.append([piece(0)], SETTINGS)
    assert all_same(store.read(), [piece(0)])
    assert store.compact() == 0


def test_a_flipped_bit_is_refused_or_harmless_but_never_other_evidence(tmp_path: Path) -> None:
    store = Store(tmp_path)
    wanted = [piece(i, maps=True) for i in range(4)]
    store.append(wanted, SETTINGS)
    path = shards(tmp_path)[0]
    data, draw, refused = path.read_bytes(), random.Random(0), 0
    for _ in range(300):
        spoilt = bytearray(data)
        spoilt[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(spoilt)
        try:
            assert all_same(store.read(maps=True), wanted)
        except InputError:
            refused += 1
    assert refused > 200


def test_a_file_for_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for use in (
        Store(tmp_path / "file").read,
        lambda: Store(tmp_path / "file").append([piece(0)], SETTINGS),
        lambda: Store(tmp_path / "file" / "run").append([piece(0)], SETTINGS),
    ):
        with pytest.raises(InputError, match="file"):
            use()


# Disks and permissions


def test_a_disk_that_cannot_keep_a_shard_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
            Store(tmp_path).append([piece(0)], SETTINGS)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="cannot be locked"), locked(tmp_path / "none" / "lock"):
        pass


def _in_a_process_of_its_own(folder: Path, script: str) -> str:
    """What `script` prints; it starts in `folder`, with `piece`, `store` and `SETTINGS`."""
    start = "from pathlib import Path; import os, resource, signal, sys; from test_store import *\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{start}store = Store(Path('.'))\n{script}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
def test_a_full_disk_is_a_sentence_and_loses_nothing(tmp_path: Path) -> None:
    script = """
store.append([piece(0)], SETTINGS)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # writing stops in the midst of a shard
for call in (lambda: store.append([piece(i) for i in range(1, 200)], SETTINGS), store.compact):
    try:
        print(call())
    except InputError as error:
        print(error)
"""
    Store(tmp_path).append([piece(i) for i in range(200, 400)], SETTINGS)
    printed = _in_a_process_of_its_own(tmp_path, script)
    assert printed.count("cannot be written (File too large). What was saved before is") == 2
    found = Store(tmp_path).read()
    assert all_same(found, [*(piece(i) for i in range(200, 400)), piece(0)])
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_read_only_folder_is_read_and_refuses_to_be_written(tmp_path: Path) -> None:
    script = """
Store('other').append([piece(5)], SETTINGS)
Store('other').read()  # loads all there is to load, before root is given up
os.chmod('.', 0o555)
if os.geteuid() == 0:
    os.seteuid(65534)
print(len(store.read()))
for call in (lambda: store.append([piece(1)], SETTINGS), store.compact):
    try:
        call()
    except InputError as error:
        print(error)
"""
    Store(tmp_path).append([piece(0)], SETTINGS)
    printed = _in_a_process_of_its_own(tmp_path, script)
    tmp_path.chmod(0o755)
    assert printed.startswith("1\n")
    assert "cannot be written (Permission denied)" in printed
    assert "cannot be locked (Permission denied)" in printed
    assert all_same(Store(tmp_path).read(), [piece(0)])


# Many processes, and killed ones


def _process(target: Callable[..., None], *args: Any) -> Any:
    """A started process, forked from one that has loaded everything (or spawned: no forks)."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload(["test_store", "pyarrow.parquet"])
    process = context.Process(target=target, args=args)  # type: ignore[attr-defined]
    process.start()
    return process


def _write_shards(folder: Path, writer: int, count: int) -> None:
    for number in range(count):
        Store(folder).append([piece(1000 * writer + number, s) for s in range(2)], SETTINGS)


def _compact_until_told(folder: Path) -> None:
    while not (folder / "enough").exists():
        Store(folder).compact()


def _watch(folder: Path) -> None:
    """Fails where a row that was there once is not there any more."""
    seen = 0
    while not (folder / "enough").exists():
        store = Store(folder)
        keys = len(store.keys())
        rows = len(store.read())
        assert seen <= keys <= rows, (seen, keys, rows)
        seen = rows


def test_many_processes_write_read_and_compact_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    writers = [_process(_write_shards, tmp_path, writer, 25) for writer in range(3)]
    others = [_process(_compact_until_told, tmp_path) for _ in range(2)]
    others.append(_process(_watch, tmp_path))
    for process in writers:
        process.join()
    (tmp_path / "enough").touch()
    for process in others:
        process.join()
    assert [p.exitcode for p in writers + others] == [0] * 6
    wanted = {
        e.key: e
        for w in range(3)
        for i in range(25)
        for s in range(2)
        for e in [piece(1000 * w + i, s)]
    }
    found = {e.key: e for e in Store(tmp_path).read()}
    assert found.keys() == wanted.keys()
    assert all(same(found[key], wanted[key]) for key in wanted)


def _write_and_compact(folder: Path, first: int) -> None:
    """Append for ever, compacting now and then; `saved` names what an append has returned for."""
    with (folder / "saved").open("a", buffering=1) as saved:
        for number in range(first, 10**9):
            Store(folder).append([piece(number)], SETTINGS)
            saved.write(f"{number}\n")
            if number % 7 == 0:
                Store(folder).compact(merged_bytes=20_000)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_twenty_kills_at_random_moments_cost_nothing_that_was_saved(tmp_path: Path) -> None:
    draw, first = random.Random(1), 0
    for _ in range(20):
        process = _process(_write_and_compact, tmp_path, first)
        saved = tmp_path / "saved"
        size = saved.stat().st_size if saved.exists() else 0
        while process.is_alive() and (not saved.exists() or saved.stat().st_size == size):
            time.sleep(0.001)
        time.sleep(draw.random() * 0.05)
        process.kill()
        process.join()
        assert process.exitcode == -9
        promised = {int(line) for line in saved.read_text().split()}
        found = Store(tmp_path).read()
        numbers = [int(e.instance, 16) for e in found]
        assert len(set(numbers)) == len(numbers)
        assert promised <= set(numbers)
        assert len(set(numbers) - promised) <= first + 1  # the one in flight, each time
        assert all(same(e, piece(n)) for e, n in zip(found, numbers, strict=True))
        first = max(numbers) + 1
    Store(tmp_path).compact()
    assert len(Store(tmp_path).keys()) == first
    assert not list(tmp_path.glob("*.tmp"))


def test_the_store_is_loaded_without_pyarrow() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, lookright.store; print('pyarrow' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
