"""SIGKILL `lookright evidence` again and again, and see what it costs.

    python benchmarks/kill_evidence.py --model FOLDER [--kills 100] [--instances 1500] [--seed 0]

A benchmark of noise is made, asked once without interruption, and then once more by processes that
are killed at random moments after their model is loaded, until the last one is let finish. Each is
forked from this process, which has imported everything, and runs the command itself; it notes every
batch in a file before the batch is saved. What is left must equal the uninterrupted run row for
row, and nothing may have been computed twice but the one batch that was in flight at a kill.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from lookright import Instance, cli
from lookright.benchmarks.folder import write_benchmark
from lookright.evidence import Evidence
from lookright.model import Model
from lookright.runs import read_run
from lookright.shards import Key
from lookright.store import Store


def make_benchmark(folder: Path, instances: int, calibration: int = 0) -> None:
    """Questions about noise; half of the pictures are for those to calibrate from."""
    draw = np.random.default_rng(0)
    pictures = [Image.fromarray(draw.integers(0, 256, (32, 32, 3), np.uint8)) for _ in range(128)]
    for index, picture in enumerate(pictures):
        picture.save(folder / f"{index}.png")

    def questions(name: str, count: int, first: int) -> list[Instance]:
        chosen = [draw.choice(64, 4, replace=False) + first for _ in range(count)]
        return [
            Instance(
                f"{name}{i}", tuple(f"{folder}/{k}.png" for k in four), i % 4, f"picture number {i}"
            )
            for i, four in enumerate(chosen)
        ]

    write_benchmark(
        folder, questions("q", instances, 0), questions("c", calibration, 64), root=folder
    )


def start(arguments: list[str], log: Path) -> int:
    """A process that runs a command and notes the keys of every batch it computes; its id."""
    child = os.fork()
    if child:
        return child
    compute = Model.evidence_iter
    notes = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def noted(*args: Any, **kwargs: Any) -> Iterator[list[Evidence]]:
        for batch in compute(*args, **kwargs):
            os.write(notes, (json.dumps([piece.key for piece in batch]) + "\n").encode())
            yield batch

    code = 1
    try:
        Model.evidence_iter = noted  # type: ignore[method-assign]
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        sys.argv = ["lookright", *arguments]
        cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os._exit(code)


def noted(log: Path) -> list[list[Key]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [[(name, tuple(order), hashed) for name, order, hashed in json.loads(x)] for x in lines]


def finished(child: int) -> bool:
    """Whether the process has ended by itself; one that failed ends this one, too."""
    done, status = os.waitpid(child, os.WNOHANG)
    if done and status:
        sys.exit(f"the command failed (status {status})")
    return bool(done)


def interrupted_run(
    arguments: list[str], folder: Path, logs: Path, seconds: float, kills: int, draw: random.Random
) -> Counter[str]:
    """Kill the command `kills` times on its way; how much was computed, saved and lost."""
    count: Counter[str] = Counter()
    store, total = Store(folder), None
    for kill in range(kills + 1):
        log = logs / f"{kill}.log"
        begun = len((read_run(folder) or {"invocations": []})["invocations"])
        before = store.keys()
        child = start(arguments, log)
        while len((read_run(folder) or {"invocations": []})["invocations"]) == begun:
            if finished(child):
                sys.exit("the command ended before it computed anything")
            time.sleep(0.005)
        if kill < kills:
            run = read_run(folder)
            total = run["invocations"][-1]["asked"] if run else 0
            left = seconds * (1 - len(before) / total)
            time.sleep(draw.uniform(0, 2 * left / (kills - kill + 1)))
            if finished(child):
                sys.exit(f"everything was done after {kill} kills: take more --instances")
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        after = store.keys()
        batches = noted(log)
        lost = [batch for batch in batches if not after >= set(batch)]
        if len(lost) > 1 or (lost and lost[0] is not batches[-1]):
            sys.exit("more was lost than the batch in flight")
        if not before <= after:
            sys.exit("something that was saved is gone")
        if any(key in before for batch in batches for key in batch):
            sys.exit("something that was saved was computed again")
        count["computed"] += sum(map(len, batches))
        count["lost"] += sum(map(len, lost))
        count["batches lost"] += len(lost)
        count["killed before the first batch"] += not batches
        count["temporary files left by kills"] += len(list(folder.glob(".*.tmp")))
    return count


def compared(folder: Path, other: Path) -> tuple[int, int, float]:
    """Rows, rows equal in every bit, and the largest difference, once all else is equal."""
    mine, theirs = Store(folder).read(), Store(other).read()
    if [e.key for e in mine] != [e.key for e in theirs]:
        sys.exit("the rows, or their order, are not those of the uninterrupted run")
    equal, largest = 0, 0.0
    for one, two in zip(mine, theirs, strict=True):
        if (one.instance_id, one.target, one.layers) != (two.instance_id, two.target, two.layers):
            sys.exit(f"{one.instance_id} is not what it is in the uninterrupted run")
        pairs = [(one.log_probs, two.log_probs), (one.attention, two.attention)]
        equal += all(a.tobytes() == b.tobytes() for a, b in pairs)
        largest = max(largest, *(float(np.abs(a - b).max()) for a, b in pairs))
    return len(mine), equal, largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a folder with a tiny model")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--instances", type=int, default=1500)
    parser.add_argument("--batch-tokens", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "benchmark").mkdir()
        make_benchmark(place / "benchmark", args.instances)
        asked = ["evidence", "--model", args.model, "--benchmark", str(place / "benchmark")]
        asked += ["--device", "cpu"]
        asked += ["--batch-tokens", str(args.batch_tokens)]
        child = start([*asked, "-o", str(place / "whole")], place / "whole.log")
        os.waitpid(child, 0)
        run = read_run(place / "whole")
        if run is None or run["invocations"][0]["computed"] is None:
            sys.exit("the uninterrupted run failed")
        batches = noted(place / "whole.log")
        seconds = run["invocations"][0]["seconds"]
        print(f"uninterrupted: {sum(map(len, batches))} rows, {len(batches)} batches, {seconds} s")
        logs = place / "logs"
        logs.mkdir()
        count = interrupted_run(
            [*asked, "-o", str(place / "killed")],
            place / "killed",
            logs,
            seconds,
            args.kills,
            random.Random(args.seed),
        )
        rows, equal, largest = compared(place / "killed", place / "whole")
        left = [path.name for path in (place / "killed").glob(".*.tmp")]
        print(f"{args.kills} kills: {dict(count)}")
        print(f"computed twice: {count['computed'] - rows} rows (lost in flight: {count['lost']})")
        print(
            f"{rows} rows equal the uninterrupted ones: {equal} in every bit, the others within "
            f"{largest:.1e}; temporary files left: {len(left)}"
        )
        if count["computed"] - rows != count["lost"] or largest > 1e-5 or left:
            sys.exit("that is not what it should be")


if __name__ == "__main__":
    main()
