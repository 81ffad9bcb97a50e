"""Malformed input to `lookright score`, drawn without end: files, slices, names and values."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lookright.evidence import Evidence
from lookright.settings import EvidenceSettings
from lookright.store import Store

N, CYCLIC, OTHERS, INSTANCES, LAYERS = 3, 3, 2, 8, 4

ARRAYS = ("logp", "attn", "perms", "y")
NONSENSE = (
    *("", " ", "lda", "LAD", "vanila", "none", "-1", "0", "1e400", "nan", "null", "[]", "{}"),
    *(
        "all,all",
        ",",
        "..",
        "../..",
        "\0",
        "\n",
        "🙂",
        "a" * 5000,
        "--",
        "=",
        "%s",
        "0x10",
        "\uff11:\uff12",
    ),
)
PARAMETERS = ("k", "tau", "prior", "layers", "reduce", "aggregate", "mean", "bias", "mixture")
VALUES = (
    *(
        "0",
        "-1",
        "99",
        "1.5",
        "nan",
        "inf",
        "-inf",
        "",
        "None",
        "true",
        "5:2",
        "3:3",
        "a:b",
        "1,,2",
    ),
    *(
        "1:2:3",
        "-1:",
        "1e3",
        "9" * 400,
        "99999999999",
        "sum,mean",
        "[1]",
        "ratio",
        "TRUE",
        "\uff11",
    ),
)


@dataclass(frozen=True)
class Case:
    """One call of the command: what is wrong with it, and its arguments after `score`."""

    kind: str
    arguments: list[str]


def sound(draw: random.Random) -> dict[str, Any]:
    """The arrays of a small recording with nothing wrong."""
    numbers = np.random.default_rng(draw.getrandbits(32))
    perms = [[(k + s) % N for k in range(N)] for s in range(N)] + [[1, 0, 2], [0, 2, 1]]
    shape = (CYCLIC + OTHERS, INSTANCES, N)
    logits = numbers.standard_normal(shape)
    return {
        "logp": (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float16),
        "attn": numbers.random((*shape[:2], LAYERS, N)).astype(np.float16) / N,
        "perms": np.array(perms),
        "y": numbers.integers(N, size=INSTANCES),
    }


def written(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=True, **arrays)
    return file.getvalue()


def _truncated(draw: random.Random) -> bytes:
    whole = written(sound(draw))
    return whole[: draw.randrange(len(whole))]


def _random_bytes(draw: random.Random) -> bytes:
    head = draw.choice([b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"\x80\x05", b"PAR1"])
    return head + draw.randbytes(draw.randrange(2000))


def _flipped(draw: random.Random) -> bytes:
    content = bytearray(written(sound(draw)))
    for _ in range(draw.randint(1, 30)):
        content[draw.randrange(len(content))] = draw.randrange(256)
    return bytes(content)


def _header(draw: random.Random) -> bytes:
    """A sound file in which the shape or dtype of an array is another."""
    content = written(sound(draw))
    old, new = draw.choice(
        [
            (b"<f2", b"<f4"), (b"<f2", b"|O8"), (b"<f2", b">f2"), (b"<f2", b"<M8"),
            (b"<f2", b"xyz"), (b"(5, 8, 3)", b"(5, 8, 9)"), (b"(8,)", b"(-1)"),
            (b"(5, 3)", b"(3, 5)"), (b"False", b"True "), (b"'shape'", b"'shope'"),
            (b"{'descr'", b"(((((((("), (b"(5, 8, 4, 3)", b"(9999999999)"),
        ]
    )  # fmt: skip
    return content.replace(old, new)


def _missing(draw: random.Random) -> bytes:
    arrays = sound(draw)
    del arrays[draw.choice(ARRAYS)]
    return written(arrays)


def _object(draw: random.Random) -> bytes:
    arrays = sound(draw)
    arrays[draw.choice(ARRAYS)] = np.array([{"a": 1}, None, "text"], dtype=object)
    return written(arrays)


def _dtype(draw: random.Random) -> bytes:
    arrays = sound(draw)
    name = draw.choice(ARRAYS)
    kinds = ["complex64", "<U3", "S4", "bool", "datetime64[s]", "uint64", "int8", "float64"]
    wanted = draw.choice([k for k in kinds if np.dtype(k).kind != arrays[name].dtype.kind])
    if name in ("perms", "y"):
        wanted = draw.choice(["complex64", "<U3", "S4", "bool", "datetime64[s]", "float32"])
    arrays[name] = arrays[name].astype(wanted)
    return written(arrays)


def _shape(draw: random.Random) -> bytes:
    arrays = sound(draw)
    name = draw.choice(ARRAYS)
    array = arrays[name]
    changes: list[Callable[[], Any]] = [
        lambda: array[..., :-1],
        lambda: array[:-1],
        lambda: array[None],
        lambda: array.ravel()[:-1],
        lambda: array[:0],
        lambda: np.concatenate([array, array]),
        lambda: array.ravel()[0],
    ]
    arrays[name] = draw.choice(changes)()
    return written(arrays)


def _value(draw: random.Random) -> bytes:
    """One number among many is none, or none that can be."""
    arrays = sound(draw)
    name = draw.choice(ARRAYS)
    where = tuple(draw.randrange(size) for size in arrays[name].shape)
    wrong = {
        "logp": [np.nan, np.inf, 5.0, -0.0],
        "attn": [np.nan, np.inf, -np.inf, -1e-3],
        "perms": [-1, N, 2**62],
        "y": [-2, N, 2**62, -1],
    }
    changed = arrays[name].copy()
    changed[where] = draw.choice(wrong[name])
    if name == "perms":
        changed[where[0]] = changed[where]  # one image everywhere
    if name == "y":
        changed[:] = changed[where]
    arrays[name] = changed
    return written(arrays)


def _one_candidate(draw: random.Random) -> bytes:
    p = draw.randint(1, 3)
    return written(
        {
            "logp": np.zeros((p, 2, 1)),
            "attn": np.ones((p, 2, 3, 1)),
            "perms": np.zeros((p, 1), dtype=int),
            "y": np.zeros(2, dtype=int),
        }
    )


FILES: dict[str, Callable[[random.Random], bytes]] = {
    "a truncated file": _truncated,
    "random bytes": _random_bytes,
    "flipped bytes": _flipped,
    "a changed header": _header,
    "a missing array": _missing,
    "an object array": _object,
    "another dtype": _dtype,
    "another shape": _shape,
    "an impossible value": _value,
    "one candidate": _one_candidate,
}


def _arguments(draw: random.Random) -> tuple[str, list[str]]:
    """A way to call the command wrongly on a sound file."""
    text = draw.choice(NONSENSE)
    bad_slices = (
        "5",
        "a:b",
        "5:2",
        "0:99",
        "99:",
        "-3:",
        "1:2:3",
        "0:0",
        "\uff1a",
        "1" * 400 + ":",
    )
    ways: dict[str, Callable[[], list[str]]] = {
        "a bad calibration slice": lambda: ["--calibration-instances", draw.choice(bad_slices)],
        "a bad slice": lambda: ["--instances", draw.choice(bad_slices)],
        "calibrated on what is evaluated": lambda: [
            *("--calibration-instances", "0:4", "--instances", f"{draw.randrange(4)}:")
        ],
        "an unknown method": lambda: ["--methods", draw.choice([text, f"lad,{text}"])],
        "an unknown preset": lambda: ["--preset", text],
        "an unknown parameter": lambda: ["--set", f"lad.{text}={draw.choice(VALUES)}"],
        "a bad value": lambda: ["--set", f"lad.{draw.choice(PARAMETERS)}={draw.choice(VALUES)}"],
        "a bad assignment": lambda: ["--set", text],
        "a bad number": lambda: [
            draw.choice(["--draws", "--samples", "--seed"]),
            draw.choice(["-1", "0", "x", "", "1.5", "9" * 30]),
        ],
        "orders of a file": lambda: ["--orders", draw.choice(["random:5", "cyclic", text])],
        "an unknown option": lambda: [draw.choice(["--frobnicate", "-x", "--json=maybe"])],
    }
    kind = draw.choice(list(ways))
    return kind, ways[kind]()


def _evidence_folder(folder: Path, draw: random.Random) -> bytes:
    """A sound evidence folder; its one shard is returned, to be damaged."""
    arrays, settings = sound(draw), EvidenceSettings(model="tiny")
    pieces = [
        Evidence(
            instance_id=f"instance-{m}",
            order=tuple(map(int, order)),
            log_probs=arrays["logp"][p, m],
            attention=arrays["attn"][p, m],
            layers=tuple(range(LAYERS)),
            image_tokens=np.full(N, 9),
            settings=settings.hash,
            instance=f"{m:032x}",
            target=int(arrays["y"][m]),
        )
        for m in range(INSTANCES)
        for p, order in enumerate(arrays["perms"])
    ]
    Store(folder).append(pieces, settings)
    (shard,) = folder.glob("*.parquet")
    return shard.read_bytes()


def _damage(folder: Path, shard: bytes, draw: random.Random) -> None:
    """Spoil what stands beside the sound shard: the record of the run, or another shard."""
    for path in (folder / "run.json", folder / "other.parquet"):
        path.unlink(missing_ok=True)
    if draw.random() < 0.4:
        (folder / "other.parquet").write_bytes(shard[: draw.randrange(len(shard))])
        return
    run: dict[str, Any] = {"format": 1, "settings": {}, "instances": {}, "invocations": []}
    junk = [None, 3, "x", [], [3], {"x": 1}, {"calibration": 3}, {"calibration": {"a": 1}}, True]
    for field in draw.sample([*run, "benchmark"], draw.randint(1, 3)):
        run[field] = draw.choice(junk)
    requests = [3, {}, {"orders": 3, "seed": 0}, {"orders": [None], "seed": 0}]
    requests += [{"orders": [spec], "seed": 0} for spec in ("random:5", "random:x", "all", "odd")]
    if draw.random() < 0.5:
        run["invocations"] = [{"id": "0", "request": draw.choice(requests)}]
    text = json.dumps(run)
    (folder / "run.json").write_text(text[: draw.choice([None, None, len(text) // 2])])


def cases(folder: Path, seed: int = 0) -> Iterator[Case]:
    """Malformed calls without end, alternating between files and arguments."""
    draw = random.Random(seed)
    (folder / "sound.npz").write_bytes(written(sound(draw)))
    (folder / "empty").mkdir()
    shard = _evidence_folder(folder / "run", draw)
    path = folder / "drawn.npz"
    while True:
        for kind, make in FILES.items():
            path.write_bytes(make(draw))
            yield Case(kind, [str(path)])
        _damage(folder / "run", shard, draw)
        yield Case("a damaged folder", [str(folder / "run")])
        kind, arguments = _arguments(draw)
        yield Case(kind, [str(folder / "sound.npz"), *arguments])
        kind, arguments = _arguments(draw)
        yield Case(kind, [str(folder / "sound.npz"), *arguments, "--json"])
        absent = draw.choice(["absent.npz", "empty", "no/such/folder", draw.choice(NONSENSE)])
        yield Case("no evidence there", [str(folder / absent)])
