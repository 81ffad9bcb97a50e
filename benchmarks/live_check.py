"""Evidence computed now beside evidence recorded before, question by question.

    python benchmarks/live_check.py --model photo-vlm --questions random_4.jsonl \\
        --photos photos.parquet --recording ev_random_4.npz

The recording is an .npz with `perms`, `logp`, `attn` and `heads` by position; one of its cyclic
orders and one of its random orders are asked again. Log-probabilities must agree to 0.02, attention
above 1e-3 (of all heads together and of each) to 2%; the exit code is 1 where they do not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from lookright import EvidenceSettings, Model
from selector_live import read_questions

LOG_PROB, ATTENTION, SMALLEST = 0.02, 0.02, 1e-3


def worst_relative(found: np.ndarray, recorded: np.ndarray) -> float:
    """The largest relative difference where the recording is above what float16 resolves well."""
    seen = recorded > SMALLEST
    return float((np.abs(found - recorded)[seen] / recorded[seen]).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("model", "questions", "photos", "recording"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--count", type=int, default=10**6, help="at most so many questions")
    args = parser.parse_args()
    with np.load(args.recording, allow_pickle=False) as file:
        recorded = {name: file[name] for name in ("perms", "logp", "attn", "heads")}
    questions = read_questions(args.questions, args.photos, args.count)
    model = Model.load(str(args.model))
    settings = EvidenceSettings(trailing_space=True)
    n = recorded["perms"].shape[1]
    agree = True
    for row in (1, n + 1):  # the first shift, and a random order
        order = tuple(int(image) for image in recorded["perms"][row])
        started = time.perf_counter()
        evidence = model.evidence(questions, [order] * len(questions), settings, heads=True)
        seconds = time.perf_counter() - started

        def then(name: str, row: int = row) -> np.ndarray:
            return recorded[name][row, : len(questions)].astype(np.float64)

        found = {
            "log_probs": float(
                np.abs(np.stack([e.log_probs for e in evidence]) - then("logp")).max()
            ),
            "attention": worst_relative(np.stack([e.attention for e in evidence]), then("attn")),
            "heads": worst_relative(np.stack([e.heads for e in evidence]), then("heads")),
        }
        agree &= found["log_probs"] <= LOG_PROB
        agree &= max(found["attention"], found["heads"]) <= ATTENTION
        line = {"order": order, "questions": len(questions), **found, "seconds": seconds}
        print(json.dumps(line), flush=True)
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()
