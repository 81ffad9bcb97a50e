"""A selector on a real model: calibrated on a few questions, asked others in all cyclic orders.

    python benchmarks/selector_live.py --model photo-vlm --questions random_4.jsonl \\
        --photos photos.parquet --set trailing_space=true

Questions are lines of JSON with id, caption, images (file names) and answer; photos a Parquet file
with the columns file_name and image (a struct with bytes). Prints vanilla, lad and permutation
averaging beside each other, and how often each chooses the same image in every cyclic order.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from lookright import EvidenceArray, EvidenceSettings, Instance, Model, Selector
from lookright.choice import Choice
from lookright.instance import cyclic_orders
from lookright.methods import METHODS
from lookright.metrics import Decisions, accuracy, consistency, decide, interval, paired_difference
from lookright.options import settings_changes
from lookright.scoring import plain


def read_questions(questions: Path, photos: Path, count: int) -> list[Instance]:
    """The first questions, with their images as encoded bytes."""
    with questions.open() as lines:
        records = [json.loads(line) for _, line in zip(range(count), lines, strict=False)]
    table = pq.read_table(photos, columns=["file_name", "image"])
    row_of = {name: row for row, name in enumerate(table["file_name"].to_pylist())}

    def photo(name: str) -> bytes:
        content: bytes = table["image"][row_of[name]].as_py()["bytes"]
        return content

    return [
        Instance(r["id"], tuple(photo(n) for n in r["images"]), r["answer"], r["caption"])
        for r in records
    ]


def in_cyclic_orders(instance: Instance) -> list[tuple[list[bytes], str]]:
    """The same question as N users would ask it, each with the images in another order."""
    return [
        ([instance.images[image] for image in order], instance.caption or "")
        for order in cyclic_orders(len(instance.images))
    ]


def decisions(choices: Sequence[Sequence[Choice]], answers: Sequence[int]) -> dict[str, Decisions]:
    """Of each method, from the choices [instances][N cyclic orders]."""
    n = len(choices[0][0].scores)
    orders = np.repeat(np.array(cyclic_orders(n))[:, None], len(choices), axis=1)  # [N, M, N]
    targets = np.array(answers)

    def columns(field: str) -> np.ndarray:
        values = [[getattr(choice, field) for choice in row] for row in choices]
        return np.log(np.maximum(np.array(values).swapaxes(0, 1), 1e-300))  # [N, M, N]

    evidence = EvidenceArray(
        log_probs=columns("vanilla"),
        attention=np.empty((n, len(choices), 0, n)),
        orders=orders,
        targets=targets,
        layers=(),
        instance_ids=tuple(map(str, range(len(choices)))),
    )
    averaged = METHODS["permutation_average"](evidence)
    return {
        "vanilla": decide(evidence.log_probs, orders, targets),
        choices[0][0].method: decide(columns("scores"), orders, targets),
        "permutation_average": decide(averaged, orders[:1], targets),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="name or folder")
    parser.add_argument("--questions", type=Path, required=True, help="a .jsonl file")
    parser.add_argument("--photos", type=Path, required=True, help="a .parquet file")
    parser.add_argument("--samples", type=int, default=5, help="to calibrate on: the first ones")
    parser.add_argument("--instances", type=int, default=100, help="to ask: the ones after them")
    parser.add_argument("--method", default="lad")
    parser.add_argument("--set", action="append", default=[], help="field=value of the settings")
    parser.add_argument("--device")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    instances = read_questions(
        options.questions, options.photos, options.samples + options.instances
    )
    samples, asked = instances[: options.samples], instances[options.samples :]
    n = len(asked[0].images)
    model = Model.load(options.model, device=options.device)
    settings = EvidenceSettings().with_changes(**settings_changes(options.set))
    started = time.perf_counter()
    selector = Selector.calibrate(model, samples, n, options.method, settings=settings)
    calibrated = time.perf_counter()
    queries = [query for instance in asked for query in in_cyclic_orders(instance)]
    found = selector.select_many(queries)
    ended = time.perf_counter()
    choices = [found[start : start + n] for start in range(0, len(found), n)]
    by_method = decisions(choices, [instance.answer or 0 for instance in asked])

    rows = [
        {
            "method": name,
            "passes": n if name == "permutation_average" else 1,
            "accuracy": accuracy(made),
            "interval": interval(made),
            "same_image": consistency(made),
        }
        for name, made in by_method.items()
    ]
    gain, (low, high) = paired_difference(by_method[options.method], by_method["vanilla"])
    result = {
        "n": n,
        "samples": len(samples),
        "instances": len(asked),
        "gamma": selector.calibrations[n].gamma,
        "rows": rows,
        "gain_over_vanilla": {"points": gain, "interval": [low, high]},
        "seconds": {"calibration": calibrated - started, "selection": ended - calibrated},
    }
    if options.json:
        print(json.dumps(plain(result), indent=2))
        return 0
    print(f"{len(asked)} questions of {n} images in their {n} cyclic orders; calibrated on")
    print(f"{len(samples)} others, gamma {result['gamma']:,.1f}\n")
    print(f"{'method':<21}{'passes':>6}{'accuracy':>10}{'95% interval':>16}{'same image':>12}")
    for row in rows:
        span = "{:.1f} to {:.1f}".format(*row["interval"])
        same = "" if row["passes"] == n else f"{row['same_image']:.1f}%"
        print(f"{row['method']:<21}{row['passes']:>6}{row['accuracy']:>9.2f}%{span:>16}{same:>12}")
    print(f"\n{options.method} less vanilla: {gain:+.2f} points ({low:+.2f} to {high:+.2f})")
    print("same image: percent of the questions for which all cyclic orders lead to one image")
    passes = len(samples) * n, len(queries)
    for what, count, seconds in zip(
        ("calibration", "selection"), passes, result["seconds"].values(), strict=True
    ):
        print(f"{what}: {count} passes in {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
