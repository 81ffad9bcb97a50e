"""SIGKILL `lookright evaluate` again and again, and see what it ends in.

    python benchmarks/kill_resume.py --model FOLDER [--kills 100] [--instances 600] [--seed 0]

A benchmark of noise is evaluated once without interruption, and then once more by processes that
are killed at random moments (every tenth before it computes anything) until the last one is let
finish. `results.json` and `decisions.json` must be equal byte for byte, every piece of evidence bit
for bit, and no window may have been computed twice but the one that was in flight at a kill.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from kill_evidence import compared, finished, make_benchmark, noted, start
from lookright.runner import DECISIONS, RESULTS
from lookright.runs import read_run
from lookright.shards import Key
from lookright.store import Store


def windows_of(log: Path) -> list[list[Key]]:
    """The windows a process computed, the last one perhaps in part; an empty batch ends each."""
    windows: list[list[Key]] = [[]]
    for batch in noted(log):
        windows[-1] += batch
        if not batch:
            windows.append([])
    return [window for window in windows if window]


def invocations(folder: Path) -> int:
    return len((read_run(folder) or {"invocations": []})["invocations"])


def interrupted_run(
    arguments: list[str],
    folder: Path,
    logs: Path,
    loading: float,
    seconds: float,
    kills: int,
    draw: random.Random,
) -> Counter[str]:
    """Kill the command `kills` times on its way; how much was computed, and how much of it lost."""
    count: Counter[str] = Counter()
    store = Store(folder)
    passes = 0
    for kill in range(kills + 1):
        log = logs / f"{kill}.log"
        begun, before = invocations(folder), store.keys()
        child = start(arguments, log)
        if kill % 10 == 9:
            time.sleep(draw.uniform(0, loading))
        else:
            while invocations(folder) == begun:
                if finished(child):
                    sys.exit("the command ended before it computed anything")
                time.sleep(0.005)
            run = read_run(folder)
            passes = run["invocations"][-1]["asked"] if run else 0
            left = seconds * (1 - len(before) / passes)
            if kill < kills:
                time.sleep(draw.uniform(0, 2 * left / (kills - kill + 1)))
        if kill < kills:
            if finished(child):
                sys.exit(f"everything was done after {kill} kills: take more --instances")
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if kill == kills and status:
            sys.exit(f"the last process failed (status {status})")
        after, windows = store.keys(), windows_of(log)
        lost = [window for window in windows if not after >= set(window)]
        if len(lost) > 1 or (lost and lost[0] is not windows[-1]):
            sys.exit("more was lost than the window in flight")
        if lost and after & set(lost[0]):
            sys.exit("a window was saved in part")
        if not before <= after:
            sys.exit("something that was saved is gone")
        if any(key in before for window in windows for key in window):
            sys.exit("something that was saved was computed again")
        count["computed"] += sum(map(len, windows))
        count["lost in flight"] += sum(map(len, lost))
        count["windows lost"] += len(lost)
        count["killed before the first batch"] += not windows
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a folder with a tiny model")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--instances", type=int, default=600)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "benchmark").mkdir()
        make_benchmark(place / "benchmark", args.instances, calibration=25)
        asked = ["evaluate", "--model", args.model, "--benchmark", str(place / "benchmark")]
        asked += ["--device", "cpu", "--batch-tokens", str(args.batch_tokens), "--run"]
        whole, killed = place / "whole", place / "killed"
        started = time.monotonic()
        child = start([*asked, str(whole)], place / "whole.log")
        if os.waitpid(child, 0)[1]:
            sys.exit("the uninterrupted run failed")
        run = read_run(whole)
        if run is None:
            sys.exit("the uninterrupted run left no record")
        seconds = run["invocations"][0]["seconds"]
        loading = time.monotonic() - started - seconds
        windows = windows_of(place / "whole.log")
        print(
            f"uninterrupted: {sum(map(len, windows))} passes, {len(windows)} windows, {seconds} s"
        )
        logs = place / "logs"
        logs.mkdir()
        draw = random.Random(args.seed)
        count = interrupted_run(
            [*asked, str(killed)], killed, logs, loading, seconds, args.kills, draw
        )
        rows, equal, _ = compared(killed, whole)
        print(f"{args.kills} kills: {dict(count)}")
        print(f"computed twice: {count['computed'] - rows} passes")
        print(f"{equal} of {rows} pieces of evidence equal the uninterrupted ones in every bit")
        for name in (RESULTS, DECISIONS):
            same = (whole / name).read_bytes() == (killed / name).read_bytes()
            print(f"{name}: {'the same, byte for byte' if same else 'NOT THE SAME'}")
            if not same:
                sys.exit("that is not what it should be")
        if count["computed"] - rows != count["lost in flight"] or equal < rows:
            sys.exit("that is not what it should be")


if __name__ == "__main__":
    main()
