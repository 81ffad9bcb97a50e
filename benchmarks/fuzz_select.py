"""Malformed input to `calibrate`, `select` and `rank`, through the command line's own entry point.

    python benchmarks/fuzz_select.py                     # 1,500 inputs, seed 0
    python benchmarks/fuzz_select.py --inputs 5000 --seed 1

Every command must end in exit code 0 (the damage did no harm) or in 2 with a sentence on standard
error; anything else, or a traceback, is printed, and this script then ends with 1. The commands run
in this process on a tiny real model with random weights, which is built once.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from in_process import SICK, TINY, called, loaded, tiny_models
from lookright import InputError
from lookright.cli import main as lookright


@dataclass(frozen=True)
class Outcome:
    """What one command did."""

    arguments: tuple[str, ...]
    kind: str  # what was wrong with it
    code: int | str | None
    said: str  # on standard error
    failure: str = ""  # a traceback, or what else must not be

    @property
    def good(self) -> bool:
        return not self.failure


class Ground:
    """A folder with good images, a benchmark and a calibration of them, and ways to spoil them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.count = 0
        generator = np.random.default_rng(0)
        self.images = []
        for index in range(24):
            path = folder / f"good-{index}.{('png', 'jpg', 'webp', 'bmp')[index % 4]}"
            pixels = generator.integers(0, 255, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
            self.images.append(str(path))
        self.benchmark = folder / "benchmark"
        self.benchmark.mkdir()
        for path in self.images:
            shutil.copy(path, self.benchmark)
        names = [Path(path).name for path in self.images]
        self.samples = [
            {"id": f"c{k}", "caption": "a cat", "images": names[4 * k : 4 * k + 4], "answer": k % 4}
            for k in range(5)
        ]
        evaluated = {"id": "e", "caption": "a cat", "images": names[20:24], "answer": 0}
        write_lines(self.benchmark / "calibration.jsonl", self.samples)
        write_lines(self.benchmark / "instances.jsonl", [evaluated])
        self.calibration = folder / "good.safetensors"

    def new(self, suffix: str) -> Path:
        self.count += 1
        return self.folder / f"bad-{self.count}{suffix}"

    def four(self) -> list[str]:
        return self.random.sample(self.images, 4)

    def spoilt_bytes(self, data: bytes) -> bytes:
        """Cut, flipped, filled or repeated somewhere."""
        changed = bytearray(data)
        way = self.random.randrange(5)
        if way == 0:
            return data[: self.random.randrange(len(data))]
        if way == 1:
            for _ in range(self.random.randint(1, 8)):
                changed[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            return bytes(changed)
        start = self.random.randrange(len(data))
        stop = min(len(data), start + self.random.randint(1, 64))
        if way == 2:
            changed[start:stop] = bytes(stop - start)
        elif way == 3:
            changed[start:stop] = self.random.randbytes(stop - start)
        else:
            changed[start:start] = changed[start:stop]
        return bytes(changed)

    def spoilt_copy(self, path: Path | str, suffix: str) -> Path:
        copy = self.new(suffix)
        copy.write_bytes(self.spoilt_bytes(Path(path).read_bytes()))
        return copy


def write_lines(path: Path, records: list[Any]) -> None:
    lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))


# -- one generator for each kind of damage: the arguments of a command ----------------------------


def bad_image(ground: Ground) -> list[str]:
    images = ground.four()
    good = images[0]
    choices: list[Callable[[], str | Path]] = [
        lambda: ground.spoilt_copy(good, Path(good).suffix),
        lambda: ground.spoilt_copy(good, Path(good).suffix),
        lambda: ground.folder / "missing.png",
        lambda: ground.folder,
        lambda: empty(ground),
        lambda: text(ground),
        lambda: "",
        lambda: "http://example.com/a.png",
        lambda: "data:image/png;base64,AAAA",
        lambda: "data:" + "x" * ground.random.randint(0, 40),
        lambda: "\udcff\udcfe.png",
        lambda: "x" * 5000,
        lambda: "/dev/null",
        lambda: sized(ground, *ground.random.choice([(1, 1), (1, 900), (900, 1), (3, 2)])),
        lambda: "a\0b.png",
    ]
    images[ground.random.randrange(4)] = str(ground.random.choice(choices)())
    return [*question(ground), *images]


def empty(ground: Ground) -> Path:
    path = ground.new(".png")
    path.touch()
    return path


def text(ground: Ground) -> Path:
    path = ground.new(".jpg")
    path.write_text("this is no image\n" * 20)
    return path


def sized(ground: Ground, width: int, height: int) -> Path:
    path = ground.new(".png")
    Image.new(ground.random.choice(["L", "RGBA", "P", "1", "I;16"]), (width, height)).save(path)
    return path


def bad_number(ground: Ground) -> list[str]:
    count = ground.random.choice([0, 1, 2, 3, 5, 8, 27, 40])
    images = [ground.random.choice(ground.images) for _ in range(count)]
    return [
        *question(ground),
        *images,
        *ground.random.choice([[], [], [], ["-n", "4"], ["--top", "0"]]),
    ]


def bad_folder(ground: Ground) -> list[str]:
    folder = ground.new("")
    folder.mkdir()
    for index in range(ground.random.choice([0, 1, 4])):
        shutil.copy(ground.images[index], folder)
    if ground.random.random() < 0.5:
        (folder / ".hidden.png").touch()
        (folder / "notes.txt").write_text("no image")
    if ground.random.random() < 0.3:
        (folder / "broken.png").write_bytes(b"\x89PNG")
    return [*question(ground), str(folder)]


def bad_caption(ground: Ground) -> list[str]:
    captions = ["", " ", "\n", "\udcff", "\ud800 cat", "\x00", "<image>", "<image>" * 9, "\x1b[31m"]
    captions += ["cat " * 3000, "{caption}", "[red]a[/red]", "\u200b", "--", "\u732b", "%s %d {0}"]
    command = ground.random.choice(["select", "rank"])
    return [command, "--model", TINY, "--", ground.random.choice(captions), *ground.four()]


def bad_method(ground: Ground) -> list[str]:
    names = ["lad", "ladd", "pride", "", "LAD", "vanila", "__class__", "raw_attention", "sofa"]
    sets = ["lad.k=4", "lad.k=0", "lad.k=99", "lad.tau=0", "lad.tau=-1", "lad.tau=nan", "lad.k"]
    sets += ["lad.layers=5:2", "raw_attention.k=9", "raw_attention.layers=50", "pride.estimator=x"]
    sets += ["=", ".=", "lad.", "lad.k=all", "lad.tau=1e999", "vanilla.k=1", "lad.method=lad"]
    chosen = ["--method", ground.random.choice(names)] if ground.random.random() < 0.8 else []
    for _ in range(ground.random.randint(0, 2)):
        chosen += ["--set", ground.random.choice(sets)]
    if ground.random.random() < 0.6:
        chosen += ["--calibration", str(ground.calibration)]
    if ground.random.random() < 0.3:
        chosen += ["--preset", ground.random.choice(["paper", "released", "", "papers"])]
    return [*question(ground), *ground.four(), *chosen]


def bad_settings(ground: Ground) -> list[str]:
    names = ["trailing_space", "line_break", "labelled", "prompt", "system", "identifiers", "model"]
    names += ["image_size", "processor_options", "image_tokens", "scoring", "sofa_sigma", "nothing"]
    values = [
        "",
        "true",
        "yes",
        "5",
        "-1",
        "null",
        "[]",
        "{}",
        "NaN",
        "letters",
        '["a","a"]',
        "0x9",
    ]
    values += ["336x336", '["1","2","3","4"]', "{caption} {x}", "{caption}", "instruction", "0.5"]
    values += ['{"size": 5}', '{"nothing": 1}', '{"do_resize": "x"}', "delimited", "[[[", "1e400"]
    values += ["\udcff", '["\\ud800", "b", "c", "d"]', "chain_of_thought", "[1, 2, 3, 4]"]
    chosen = [f"{ground.random.choice(names)}={ground.random.choice(values)}" for _ in range(2)]
    sets = [part for value in chosen[: ground.random.randint(1, 2)] for part in ("--set", value)]
    if ground.random.random() < 0.3:
        return [*calibrate(ground), *sets]
    file = ["--calibration", str(ground.calibration)] if ground.random.random() < 0.3 else []
    return [*question(ground), *ground.four(), *file, *sets]


def bad_calibration(ground: Ground) -> list[str]:
    way = ground.random.randrange(4)
    if way == 0:
        path = ground.spoilt_copy(ground.calibration, ".safetensors")
    elif way == 1:
        path = ground.random.choice([empty(ground), text(ground), ground.folder, Path("none")])
    else:
        path = edited_calibration(ground)
    return [*question(ground), *ground.four(), "--calibration", str(path)]


def edited_calibration(ground: Ground) -> Path:
    """A whole file that says something else in one place."""
    with safe_open(ground.calibration, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata())
    path = ground.new(".safetensors")
    if ground.random.random() < 0.5:
        name = ground.random.choice(list(metadata))
        values = ["", "{}", "[]", "null", "5", '"x"', "[1, 2, 3]", '{"name": "lad"}', "\u732b"]
        metadata[name] = ground.random.choice([*values, metadata[name][:-1], metadata[name] + "0"])
        if ground.random.random() < 0.3:
            del metadata[name]
    else:
        name = ground.random.choice(list(arrays))
        array = arrays[name]
        changes = [array[:-1], array[..., :-1], array.astype(np.float32), array * np.nan]
        changes += [array * np.inf, np.zeros(0), array[None], array.astype(np.int64), -array]
        changes += [np.zeros_like(array), array * 1e300]
        arrays[name] = np.ascontiguousarray(ground.random.choice(changes))
        if ground.random.random() < 0.3:
            arrays[ground.random.choice(["8/x", "x", "a/b/c"])] = arrays.pop(name)
    save_file(arrays, path, metadata)
    return path


def bad_benchmark(ground: Ground) -> list[str]:
    """A benchmark whose samples, or one of its files, are spoilt."""
    folder = ground.new("")
    shutil.copytree(ground.benchmark, folder)
    record = dict(ground.samples[0])
    values: list[Any] = [None, "", 5, -1, 4, 10**9, True, 1.5, "x", [], {}, ["x"], float("nan")]
    values += ["../../up.png", ["no.png"] * 4, record["images"] * 3, record["images"][:1], "\ud800"]
    field = ground.random.choice([*record, "question", "category", "extra"])
    record[field] = ground.random.choice(values)
    if ground.random.random() < 0.2:
        del record[field]
    name = ground.random.choice(["calibration.jsonl"] * 3 + ["instances.jsonl", "benchmark.json"])
    way = ground.random.randrange(5)
    if way < 2:
        lines: list[Any] = [record, *ground.samples[1:]]
        ground.random.shuffle(lines)
        write_lines(folder / name, lines)
    elif way == 2 and (folder / name).exists():
        (folder / name).write_bytes(ground.spoilt_bytes((folder / name).read_bytes()))
    elif way == 3:
        (folder / name).unlink(missing_ok=True)
    else:
        image = ground.random.choice(ground.samples[0]["images"])
        content = ground.spoilt_bytes((folder / image).read_bytes())
        (folder / image).write_bytes(content)
    wanted = ground.random.choice([[], [], ["-n", "2"], ["-n", "9"], ["--samples", "9"]])
    return calibrate(ground, folder) + wanted


def bad_calibrate(ground: Ground) -> list[str]:
    """A good benchmark, and options that are not."""
    numbers = ["0", "1", "2", "-4", "x", "", "99999999999999999999", "4"]
    options = ["-n", "--samples", "--seed", "--preset", "--benchmark", "-o", "--model", "--nothing"]
    values = [
        *numbers,
        "none",
        str(ground.folder),
        "no/such/file.safetensors",
        "/dev/null",
        "paper",
    ]
    values += ["x" * 300 + ".safetensors", "\udcff.safetensors"]
    added = [
        part
        for _ in range(ground.random.randint(1, 2))
        for part in (ground.random.choice(options), ground.random.choice(values))
    ]
    arguments = [*calibrate(ground), *added]
    if ground.random.random() < 0.2:
        del arguments[ground.random.randrange(1, len(arguments))]
    return arguments


def bad_options(ground: Ground) -> list[str]:
    """`select` and `rank` with options that are none, or in the wrong place."""
    options = ["--plot", "--top", "--calibration", "--method", "--preset", "--json", "--nothing"]
    values = ["", "x", "-1", "0", "a.gif", "no/such/a.png", str(ground.folder), "9" * 30, "b.png"]
    values += ["x" * 300 + ".png", "\udcff.png"]
    added = [ground.random.choice(options), ground.random.choice(values)]
    arguments = [*question(ground), *ground.four(), *added]
    if ground.random.random() < 0.2:
        del arguments[ground.random.randrange(len(arguments))]
    return arguments


def bad_model(ground: Ground) -> list[str]:
    """No model, one that answers NaN, or a folder that holds none."""
    folder = ground.new("")
    folder.mkdir()
    if ground.random.random() < 0.7:
        texts = ["", "{", "{}", '{"model_type": "none"}', '{"model_type": "bert"}', "[]", "null"]
        texts += ['{"model_type": "llava"}', '{"model_type": 5}', '{"model_type": "mllama"}']
        (folder / "config.json").write_text(ground.random.choice(texts))
    name = ground.random.choice([SICK, SICK, str(folder), str(folder), "", "\udcff", "a b/c"])
    arguments = [ground.random.choice(["select", "rank"]), "a cat", *ground.four()]
    return arguments + ground.random.choice([[], ["--model", name], ["--model", name], ["--model"]])


KINDS: tuple[Callable[[Ground], list[str]], ...] = (
    bad_image,
    bad_number,
    bad_folder,
    bad_caption,
    bad_method,
    bad_settings,
    bad_calibration,
    bad_benchmark,
    bad_calibrate,
    bad_options,
    bad_model,
)


def question(ground: Ground) -> list[str]:
    return [ground.random.choice(["select", "rank"]), "--model", TINY, "a cat"]


def calibrate(ground: Ground, benchmark: Path | None = None) -> list[str]:
    output = str(ground.new(".safetensors"))
    folder = str(benchmark or ground.benchmark)
    return ["calibrate", "--model", TINY, "--benchmark", folder, "-o", output]


# -- running --------------------------------------------------------------------------------------


def run(arguments: list[str], kind: str) -> Outcome:
    """One command in this process, as the shell would start it."""
    ended = called(lookright, arguments)
    failure = ended.trace
    if not failure:
        if "Traceback" in ended.err:
            failure = ended.err
        elif ended.code not in (0, 2):
            failure = f"exit code {ended.code}: {ended.err}"
        elif ended.code == 2 and not ended.err.strip():
            failure = "exit code 2 without a word"
        elif ended.code == 2 and ended.out.strip():
            failure = f"exit code 2 after an answer: {ended.out}"
    return Outcome(tuple(arguments), kind, ended.code, ended.err, failure)


def fuzz(
    inputs: int, seed: int, kinds: tuple[Callable[[Ground], list[str]], ...] = KINDS
) -> Iterator[Outcome]:
    """Run so many malformed commands, the kinds in turn."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder), loaded(tiny_models()):
        ground = Ground(Path(folder), seed)
        first = calibrate(ground)
        first[-1] = str(ground.calibration)
        made = run(first, "good")
        if made.code != 0 or made.failure:
            raise InputError(f"the good input did not work: {made.said}{made.failure}")
        for index in range(inputs):
            make = kinds[index % len(kinds)]
            yield run(make(ground), make.__name__)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    refused: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    failures = []
    for outcome in fuzz(options.inputs, options.seed):
        if outcome.failure:
            failures.append(outcome)
        (accepted if outcome.code == 0 else refused)[outcome.kind] += 1
    print(f"{'kind':<18}{'refused':>8}{'accepted':>10}")
    for make in KINDS:
        print(f"{make.__name__:<18}{refused[make.__name__]:>8}{accepted[make.__name__]:>10}")
    print(f"{'all':<18}{refused.total():>8}{accepted.total():>10}")
    print(f"{len(failures)} of {options.inputs} ended in a traceback or a wrong exit code")
    for outcome in failures[:20]:
        print(f"\n{outcome.kind}: {outcome.arguments!a}\n{outcome.failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
