"""Malformed benchmarks, evidence folders and options by the thousand, through `lookright evidence`.

    python benchmarks/fuzz_inputs.py                         5,000 cases of seed 0
    python benchmarks/fuzz_inputs.py --count 20000 --seed 7
    python benchmarks/fuzz_inputs.py --seed 7 --only 1234    one of them again, with what it said

The command runs in this process, from its own entry point, on a tiny real model with random weights
that is loaded once. A case must end in exit code 0 (the damage did no harm), in 2 with a sentence
that names what it refuses, or, under --keep-going, in 1 with a list of what was skipped; and in
each case all that was saved before must still be there, bit for bit. As many more images and
instances that are none go to the library itself, in memory. Anything else is printed, and this
script then ends with exit code 1.
"""

from __future__ import annotations

import argparse
import base64
import json
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from in_process import SICK, TINY, Ended, called, loaded, tiny_models
from lookright.cli import main as lookright
from lookright.errors import InputError, told
from lookright.images import load
from lookright.instance import Instance
from malformed_benchmarks import FIELDS, FORMATS, PATHS, VALUES, damage, files, picture, write
from malformed_benchmarks import KINDS as BENCHMARKS
from malformed_runs import FOLDERS, LOADING, OPTIONS, contents, good_options, in_pieces, lost
from zoo import save

#: What the messages about a benchmark name, beside its path.
PARTS = ("instance '", 'instance "', "identifier", "settings")


@dataclass(frozen=True)
class Case:
    """A call of `lookright evidence` with something wrong."""

    arguments: list[str]
    run: Path  # the evidence folder
    names: tuple[str, ...]  # of which a refusal must hold one


class Ground:
    """Where cases are made: a model, a good benchmark and some evidence of it."""

    def __init__(self, home: Path, entry: Callable[[], None]) -> None:
        self.home, self.entry = home, entry
        self.model, self.good, self.held = (str(home / x) for x in (TINY, "good", "held"))
        write(files(Random(0)), home / "good")
        made = called(entry, [*self.call(self.good, self.held), "--limit", "1"])
        if made.code != 0:
            raise InputError(f"the good input did not work: {made.err}{made.trace}")
        in_pieces(home / "held")

    def call(self, benchmark: str, run: str) -> list[str]:
        return ["evidence", "--model", self.model, "--benchmark", benchmark, "-o", run]

    def case(self, kind: str, folder: Path, random: Random) -> Case:
        """A case of this kind in a folder of its own."""
        folder.mkdir()
        benchmark, run = self.good, folder / "run"
        if kind in FOLDERS or random.random() < 0.6:
            shutil.copytree(self.held, run)
        more = good_options(random)
        names: tuple[str, ...] = (str(folder), self.good, *PARTS)
        if kind in BENCHMARKS:
            benchmark = str(folder / "benchmark")
            write(BENCHMARKS[kind](random), Path(benchmark))
        elif kind in FOLDERS:
            FOLDERS[kind](run, random)
            names = (str(run),)
        else:
            wrong = self._options(kind, random)
            more += wrong
            given = [told(word.split("=")[0][:20]) or ".:" for word in wrong]
            names += ("--", kind, "model", "unexpected", *given)
        if random.random() < 1 / 3:
            more.append("--keep-going")
        return Case([*self.call(benchmark, str(run)), *more], run, names)

    def _options(self, kind: str, random: Random) -> list[str]:
        if kind != "model":
            return OPTIONS[kind](random)
        named = [str(self.home / SICK), self.good, "", "nowhere", "a b/c", "/dev/null", "\udcff"]
        option = random.choice([None, *LOADING])
        return ["--model", random.choice(named)] if option is None else LOADING[option](random)


KINDS = (*BENCHMARKS, *FOLDERS, *OPTIONS, "model")


# In memory


def _source(random: Random) -> Callable[[], object]:
    """An image in memory, or as a text, that is not quite one."""
    kind = random.choice(["array", "array", "pil", "url", "bytes", "text", "thing"])
    source: Any
    if kind == "array":
        shape = random.choices([0, 1, 2, 3, 4, 5, 9], k=random.choice([0, 1, 2, 3, 3, 3, 4]))
        dtype = random.choice("? b B h H i I q Q e f d g F D U4 S4 O M8[s] >H >f".split())
        source = np.zeros(shape, dtype=dtype)
        if source.size and source.dtype.kind == "f":
            source.flat[0] = random.choice([0, 1, 1.0001, 255, -1, np.nan, np.inf, -np.inf])
    elif kind == "pil":
        mode = random.choice(
            "1 L P LA PA La RGB RGBA RGBa RGBX CMYK YCbCr LAB HSV I F I;16".split()
        )
        source = Image.new(mode, (random.choice([0, 1, 3]), random.choice([0, 1, 3])))
        source.info[random.choice(["transparency", "exif", "xmp"])] = random.choice(VALUES)
    elif kind == "url":
        body = base64.b64encode(picture(random.choice(FORMATS), random.randrange(8)))
        source = damage(random, b"data:image/png;base64," + body).decode("latin-1")
    elif kind == "bytes":
        source = damage(random, picture(random.choice(FORMATS), random.randrange(8)))
    else:
        source = random.choice(PATHS if kind == "text" else VALUES)
    return lambda: load(source, name="the picture")


def _instance(random: Random) -> Callable[[], object]:
    """An instance with any values in its fields."""
    values: dict[str, Any] = {"id": "a", "images": ("a.png", "b.png"), "caption": "a red wall"}
    for name in random.sample(FIELDS, random.choice([1, 1, 2, 6])):
        values[name] = random.choice(VALUES)
    return lambda: Instance(**values)


IN_MEMORY = {"image in memory": _source, "instance": _instance}


# Running


@dataclass
class Report:
    """How the cases ended, by kind, and what was wrong with those that ended badly."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)

    def total(self, outcome: str) -> int:
        return sum(counter[outcome] for counter in self.outcomes.values())

    def add(self, number: int, kind: str, outcome: str, said: str, seconds: float) -> None:
        self.outcomes.setdefault(kind, Counter())[outcome] += 1
        self.slowest = max(self.slowest, (seconds, number))
        if outcome not in GOOD:
            self.failures.append(f"case {number}, {kind}: {outcome}\n{said}")


GOOD = ("accepted", "skipped", "refused")
LONGEST = 60  # seconds a case may take


@contextmanager
def ground(entry: Callable[[], None] = lookright) -> Iterator[Ground]:
    """A place for cases, with models that are there under their names."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as home:
        models = {str(Path(home, name)): model for name, model in tiny_models().items()}
        save("llava", Path(home, TINY))
        with loaded(models):
            yield Ground(Path(home), entry)


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """A TimeoutError where what stands inside takes longer, as when it waits for a pipe."""

    def end(*_: object) -> None:
        raise TimeoutError(f"{seconds} s")

    earlier = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)


def run(
    numbers: Iterable[int],
    seed: int,
    made: Ground,
    kinds: tuple[str, ...] = KINDS,
    seen: Callable[[Case, Ended], None] = lambda case, ended: None,
) -> Report:
    """Put the cases of these numbers to the command line."""
    report = Report()
    for number in numbers:
        kind = kinds[number % len(kinds)]
        folder = made.home / str(number)
        case = made.case(kind, folder, Random(f"{seed}/{number}"))
        before = contents(case.run)
        began = time.perf_counter()
        with chdir(folder), at_most(LONGEST):
            ended = called(made.entry, case.arguments)
        seconds = time.perf_counter() - began
        outcome, said = judged(case, ended)
        if missing := lost(before, contents(case.run)):
            outcome, said = "lost what was saved", f"{missing}\n{said}"
        report.add(number, kind, outcome, f"{case.arguments!a:.1000}\n{said:.5000}", seconds)
        seen(case, ended)
        shutil.rmtree(folder)
    return report


def judged(case: Case, ended: Ended) -> tuple[str, str]:
    """How a command ended, and what it said."""
    said = ended.trace or f"{ended.err}\n{ended.out}"
    if ended.trace or "Traceback" in ended.err:
        return "traceback", said
    if ended.code == 2:
        message = _message(ended.err)
        good = not ended.out and _is_good(message, case.names)
        return "refused" if good else "refused in bad words", said
    if ended.code not in (0, 1) or (ended.code == 1 and "--keep-going" not in case.arguments):
        return f"exit code {ended.code}", said
    skipped = _skipped(ended.out, as_json="--json" in case.arguments)
    if not all(line.isprintable() and len(line) < 1000 for line in skipped):
        return "skipped in bad words", said
    if bool(skipped) != bool(ended.code):
        return f"exit code {ended.code} with {len(skipped)} skipped", said
    return "skipped" if skipped else "accepted", said


def _message(err: str) -> str:
    """The last sentence of the library's, or what the command line says of its options."""
    for start in ("lookright: ", "Error: "):
        if start in err:
            return err[err.rindex(start) + len(start) :].removesuffix("\n")
    return ""


def _skipped(out: str, *, as_json: bool) -> list[str]:
    if as_json:
        return list(json.loads(out)["skipped"])
    return out.splitlines()[2:]  # below the summary and its heading


def _is_good(said: str, names: Iterable[str]) -> bool:
    """A message names what it refuses, says something, fits a screen and moves no cursor."""
    named = any(name in said for name in names)
    return named and len(said.split()) >= 4 and len(said) < 1000 and said.isprintable()


def run_in_memory(numbers: Iterable[int], seed: int) -> Report:
    """Put images and instances in memory to the library."""
    report = Report()
    kinds = list(IN_MEMORY)
    for number in numbers:
        kind = kinds[number % len(kinds)]
        work = IN_MEMORY[kind](Random(f"{seed}/{number}"))
        began = time.perf_counter()
        outcome, said = "accepted", ""
        try:
            work()
        except InputError as error:
            good = _is_good(str(error), ("the picture", "instance"))
            outcome, said = "refused" if good else "refused in bad words", str(error)
        except Exception:
            outcome, said = "traceback", traceback.format_exc()
        report.add(number, kind, outcome, said, time.perf_counter() - began)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one case")
    options = parser.parse_args()
    warnings.simplefilter("error")  # a warning that is not for the person counts as a traceback
    began = time.perf_counter()
    with ground() as made:
        if options.only is not None:
            numbers = range(options.only, options.only + 1)
            report = run(numbers, options.seed, made, seen=lambda *both: print(*both, sep="\n"))
        else:
            report = run(range(options.count), options.seed, made)
    print_report(report, time.perf_counter() - began)
    failed = bool(report.failures)
    if options.only is None:
        began = time.perf_counter()
        report = run_in_memory(range(options.count), options.seed)
        print_report(report, time.perf_counter() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"at most {memory:.0f} MiB")
    return int(failed or bool(report.failures))


def print_report(report: Report, seconds: float) -> None:
    names = ("cases", *GOOD, "failed")
    rows = dict(report.outcomes) | {"all": sum(report.outcomes.values(), Counter())}
    print(f"{'':20}" + "".join(f"{name:>10}" for name in names))
    for kind, counter in rows.items():
        good = [counter[outcome] for outcome in GOOD]
        cells = (counter.total(), *good, counter.total() - sum(good))
        print(f"{kind:20}" + "".join(f"{cell:>10,}" for cell in cells))
    for failure in report.failures[:20]:
        print(failure.encode("utf-8", "backslashreplace").decode(), file=sys.stderr)
    slowest, number = report.slowest
    print(f"{seconds:.1f} s, the slowest case ({number}) {1000 * slowest:.0f} ms\n")


if __name__ == "__main__":
    sys.exit(main())
