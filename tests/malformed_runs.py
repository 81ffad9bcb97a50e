"""Malformed folders of evidence, and malformed calls of `lookright evidence`, drawn at random."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lookright.errors import InputError
from lookright.evidence import Evidence
from lookright.runs import NAME
from lookright.shards import opened
from lookright.store import Store
from malformed_benchmarks import damage

JUNK: tuple[Any, ...] = (
    *(None, 3, -1, 1.5, "x", "", True, [], [3], {}, {"x": 1}, {"instances": 3}, [[]], [{}]),
    *({"instances": {"a": 1}}, {"instances": {"a": [1]}}, {"instances": {"a": [{}, []]}}),
    *([{"id": []}], [{"id": "0"}, 3], {"instances": {"a": [[], 1]}}, "\ud800", 10**30, "0" * 5000),
)
FIELDS = ("format", "settings", "instances", "invocations", "benchmark", "settings_hash")


# What is in a folder


def contents(folder: Path) -> tuple[dict[str, bytes], dict[Any, bytes], list[Any]]:
    """What must outlive any command: other files byte for byte, the rows of whole shards bit for
    bit, and the invocations of a whole `run.json`."""
    found: dict[str, bytes] = {}
    rows: dict[Any, bytes] = {}
    invocations: list[Any] = []
    for path in [folder] if not folder.is_dir() else sorted(folder.rglob("*")):
        name = str(path.relative_to(folder.parent))
        if path.name.endswith(".parquet") and (held := _rows(path)) is not None:
            rows |= held  # also behind a link
        elif path.is_symlink():
            found[name] = os.readlink(path).encode()
        elif not path.is_file():
            found[name] = b"folder" if path.is_dir() else b"other" if path.exists() else b"none"
        elif path.name == NAME and (said := _invocations(path)) is not None:
            invocations = said
        elif not path.name.endswith((".tmp", ".lock")):
            found[name] = path.read_bytes()
    return found, rows, invocations


def lost(before: Any, after: Any) -> str:
    """What of a folder's earlier contents is not there any more; "" for nothing."""
    for name, held in before[0].items():
        if held != b"none" and after[0].get(name) != held:
            return f"the file {name}"
    for key, held in before[1].items():
        if after[1].get(key) != held:
            return f"the row {key}"
    return "" if after[2][: len(before[2])] == before[2] else "an invocation in run.json"


def _rows(path: Path) -> dict[Any, bytes] | None:
    """The rows of a shard by key, or None where it is no whole one."""
    try:
        with opened(path) as shard:
            flags = [name in shard.kind.names for name in ("heads", "maps")]
            rows = shard.rows(lambda key: True, heads=flags[0], maps=flags[1])
            pieces = [] if rows is None else [rows.evidence(row) for row in range(len(rows.keys))]
    except (InputError, FileNotFoundError):
        return None
    return {(piece.key, *flags): _bits(piece) for piece in pieces}


def _bits(piece: Evidence) -> bytes:
    arrays = [piece.log_probs, piece.attention, piece.image_tokens, *(piece.maps or ())]
    arrays += [] if piece.heads is None else [piece.heads]
    said = f"{piece.instance_id} {piece.target} {piece.layers}"
    return sha256(said.encode() + b"".join(array.tobytes() for array in arrays)).digest()


def _invocations(path: Path) -> list[Any] | None:
    try:
        run = json.loads(path.read_bytes())
        return list(run["invocations"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


# One thing wrong in a folder of evidence


def in_pieces(folder: Path) -> None:
    """Every row in a shard of its own, as a killed process leaves them."""
    store = Store(folder)
    ((_, settings),) = store.settings().items()
    pieces = store.read()
    for shard in folder.glob("*.parquet"):
        shard.unlink()
    for piece in pieces:
        store.append([piece], settings)


def _shard(folder: Path) -> Path:
    return min(folder.glob("*.parquet"))


def _broken_shard(folder: Path, random: Random) -> None:
    shard = _shard(folder)
    data = shard.read_bytes()
    shard.write_bytes(
        random.choice(
            [
                lambda: damage(random, data),
                lambda: damage(random, data),
                lambda: data[: random.randrange(len(data))],
                lambda: b"",
                lambda: random.randbytes(random.choice([3, 8, 400])),
                lambda: b"PAR1" + random.randbytes(60) + b"PAR1",
                lambda: data[:-8] + random.randbytes(4) + b"PAR1",
            ]
        )()
    )


def _another_shard(folder: Path, random: Random) -> None:
    """A shard that is Parquet, but not quite one of ours."""
    shard = _shard(folder)
    table = pq.read_table(shard)
    header = dict(table.schema.metadata)
    ours = b"lookright.evidence"
    said = json.loads(header[ours])
    way = random.choice(["newer", "header", "kind", "digest", "none", "columns", "types", "rows"])
    if way == "newer":
        said["version"] = random.choice([2, 99, 10**30, "2"])
    elif way == "header":
        said[random.choice(["version", "check", "kind", "x"])] = random.choice(JUNK)
    elif way in ("kind", "digest"):
        kind = json.loads(said["kind"])
        kind[random.choice(["settings", "layers", "columns", "x"])] = random.choice(JUNK)
        said["kind"] = json.dumps(kind)
        if way == "digest":  # whoever wrote this meant it
            said["check"] = sha256(said["kind"].encode()).hexdigest()[:16]
    header[ours] = json.dumps(said).encode()
    if way == "columns":
        table = table.drop_columns([random.choice(table.column_names)])
    elif way == "types":
        table = table.cast(
            pa.schema(
                pa.field(f.name, pa.large_string() if f.type == pa.string() else f.type)
                for f in table.schema
            )
        )
    elif way == "rows":
        table = table.slice(0, 0) if random.random() < 0.5 else pa.concat_tables([table] * 2)
    made = table.replace_schema_metadata(None if way == "none" else header)
    pq.write_table(made, folder / random.choice([shard.name, "other.parquet"]))


def _foreign_file(folder: Path, random: Random) -> None:
    """A file of another kind, named as a shard, or standing beside the shards."""
    path = folder / random.choice(["x.parquet", "x.parquet", ".x.parquet", "x.PARQUET", "x.npz"])
    way = random.randrange(7)
    if way == 0:
        pq.write_table(pa.table({"a": [1, 2]}), path)
    elif way == 1:
        path.write_bytes(random.choice([b"", b"a,b\n1,2\n", b"PAR1", b"\x89PNG\r\n", b"{}"]))
    elif way == 2:
        path.mkdir()
        (path / "inside").write_text("kept")
    elif way == 3:
        path.symlink_to(random.choice(["nowhere", path.name, "/dev/zero", "/etc/hostname", ".."]))
    elif way == 4:
        path.symlink_to(_shard(folder).name)
    elif way == 5:
        os.mkfifo(path)
    else:
        shutil.copy(_shard(folder), path)


def _record(folder: Path, random: Random) -> None:
    """A `run.json` that is broken, empty, of another run, of a later version, or no file."""
    path = folder / NAME
    run = json.loads(path.read_bytes())
    text = path.read_bytes()
    way = random.choice(["field", "field", "field", "bytes", "text", "file", "setting", "newer"])
    if way == "field":
        for field in random.sample(FIELDS, random.choice([1, 1, 2])):
            run[field] = random.choice(JUNK)
    elif way == "setting":
        run["settings"][random.choice(["prompt", "model", "nothing", "image_size"])] = "other"
    elif way == "newer":
        run["format"] = random.choice([2, 10**30, 1.5, "2", True, -1])
    path.write_text(json.dumps(run))
    if way == "bytes":
        path.write_bytes(damage(random, text))
    elif way == "text":
        path.write_bytes(
            random.choice([b"", b"[]", b"null", b"[" * 200_000, text.decode().encode("utf-16")])
        )
    elif way == "file":
        path.unlink()
        _not_a_file(path, random)


def _not_a_file(path: Path, random: Random) -> None:
    way = random.randrange(4)
    if way == 0:
        path.mkdir()
    elif way == 1:
        path.symlink_to(random.choice(["nowhere", path.name, "/dev/zero", "/etc/hostname"]))
    elif way == 2:
        os.mkfifo(path)


def _folder(folder: Path, random: Random) -> None:
    """The folder itself is something else, or its lock is."""
    way = random.randrange(4)
    if way == 0:
        (folder / ".lock").unlink(missing_ok=True)
        (folder / ".lock").mkdir()
        return
    shutil.rmtree(folder)
    if way == 1:
        folder.write_bytes(b"not a folder")
    elif way == 2:
        folder.symlink_to(random.choice(["nowhere", folder.name, "/dev/null"]))
    else:
        folder.mkdir()
        _not_a_file(folder / NAME, random)


FOLDERS: dict[str, Callable[[Path, Random], None]] = {
    "a broken shard": _broken_shard,
    "another shard": _another_shard,
    "a foreign file": _foreign_file,
    "run.json": _record,
    "no folder": _folder,
}


# One thing wrong in the call

TEXTS = (
    "",
    " ",
    "x",
    "-1",
    "0",
    "1.5",
    "nan",
    "\x1b[31m",
    "\u202e",
    "\udcff",
    "é" * 40,
    "x" * 5000,
)
NUMBERS = ("", "x", "-1", "0", "1.5", "1e3", "9" * 30, "\uff15", "0x10", "nan")
ORDERS = (
    *("random", "random:", "random:0", "random:-1", "random:x", "random:5:5", "random:1e3"),
    *("random:\uff15", "random:99999999", "shared:0", "shared:", "cyclic:3", "all:2", "identity:1"),
    *("CYCLIC", "shuffled", "0,1", "[[0, 1]]", "random:5,cyclic", "shared:2", "all"),
)
SETTINGS = (
    *("trailing_space", "line_break", "labelled", "prompt", "system", "identifiers", "image_size"),
    *("processor_options", "image_tokens", "scoring", "sofa_sigma", "nothing", "model", "dtype"),
)
VALUES = (
    *("", "true", "TRUE", "yes", "5", "-1", "0", "null", "[]", "{}", "NaN", "1e400", "[[[", '"'),
    *("letters", '["a","a"]', '["a","b"]', '["\\ud800","b"]', '["<image>","b"]', "9" * 5000),
    *("336x336", "0x0", "9x", "1x1", "999999x999999", "[1, 2, 3]", "[1.5, 2]", "8x8", "[" * 5000),
    *(
        "{caption}",
        "{caption} {x}",
        "{caption:",
        "{caption!z}",
        "{caption.x}",
        "{n:99999}{caption}",
    ),
    *("<image> {caption}", "</s>{caption}", "</s>", "<image>", "x" * 60_000, "\udcff", "\x1b[2J"),
    *("instruction", "chain_of_thought", "delimited", "released", "joint", "0.5", "2", "Infinity"),
    *('{"size": 5}', '{"nothing": 1}', '{"do_resize": "x"}', '{"do_resize": null}', '{"a": NaN}'),
    *('{"size": {"height": 0, "width": 0}}', '{"crop_size": -1}', '{"return_tensors": "np"}'),
    *('{"image_mean": []}', '{"resample": 99}', '{"rescale_factor": "x"}', '{"do_normalize": 7}'),
)
DTYPES = ("float8", "int8", "bfloat17", "FLOAT32", "torch.float32", "float128", "auto", "complex64")
DEVICES = ("gpu", "cuda", "cuda:99", "mps", "cpu:x", "CPU", "tpu", "xla", "cpu,cuda", "-1")


def _one_of(name: str, values: tuple[str, ...]) -> Callable[[Random], list[str]]:
    return lambda random: [f"--{name}", random.choice([*values, *TEXTS])]


def _number(name: str) -> Callable[[Random], list[str]]:
    return lambda random: [f"--{name}", random.choice(NUMBERS)]


def _setting(random: Random) -> list[str]:
    if random.random() < 0.1:
        return ["--set", random.choice(["", "=", "=x", "prompt", " =true", *TEXTS])]
    return ["--set", f"{random.choice(SETTINGS)}={random.choice(VALUES)}"]


def _place(random: Random) -> list[str]:
    places = [
        "/dev/null",
        "/dev/null/x",
        "/proc/nothing",
        "x" * 300,
        "x/" * 3000,
        "\udcff",
        "",
        ".",
    ]
    return [random.choice(["-o", "--benchmark", "--model"]), random.choice(places)]


def _grammar(random: Random) -> list[str]:
    """What no option is, or one too much."""
    return random.choice(
        [["--frobnicate"], ["-x"], ["extra"], ["--json=maybe"], ["--heads", "3"], ["--orders"]]
    )


#: Options of the command, and what is put there; each names itself in what is said of it.
OPTIONS: dict[str, Callable[[Random], list[str]]] = {
    "orders": _one_of("orders", ORDERS),
    "set": _setting,
    "preset": _one_of("preset", ("papers", "PAPER", "released,paper")),
    "part": _one_of("part", ("Both", "test", "instances,calibration", "instances.jsonl")),
    **{name: _number(name) for name in ("limit", "seed", "maps", "batch-tokens")},
    "place": _place,
    "grammar": _grammar,
}
#: The same for those that need the model loaded anew.
LOADING: dict[str, Callable[[Random], list[str]]] = {
    "dtype": _one_of("dtype", DTYPES),
    "device": _one_of("device", DEVICES),
}


def good_options(random: Random) -> list[str]:
    """Options with nothing wrong, for variety."""
    some = [["--heads"], ["--maps", "1"], ["--part", "both"], ["--orders", "random:2"], ["--json"]]
    chosen = random.sample(some, random.choice([0, 1, 1, 2]))
    return [word for option in chosen for word in option]
