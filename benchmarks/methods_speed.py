"""How long every method takes on a large evaluation: 5,000 instances x 36 layers x 8 candidates.

    OMP_NUM_THREADS=1 python benchmarks/methods_speed.py

Permutation averaging reads its own arrays, the 8 cyclic orders; the others one order. Each time is
the median of several runs. Exits with 1 where all methods together take a second or more.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import median

import numpy as np

from lookright.calibration import Calibration
from lookright.evidence import EvidenceArray
from lookright.instance import cyclic_orders
from lookright.methods import METHODS

LIMIT = 1.0  # seconds for all methods together


def made_up(orders: list[tuple[int, ...]], instances: int, layers: int, seed: int) -> EvidenceArray:
    """Evidence in float32, as a model gives it: some mass on every image in every layer."""
    generator = np.random.default_rng(seed)
    p, n = len(orders), len(orders[0])
    logits = 3 * generator.standard_normal((p, instances, n))
    log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    shape = (p, instances, layers, n)
    attention = generator.random(shape, dtype=np.float32) / n + np.float32(1e-6)
    return EvidenceArray(
        log_probs=log_probs.astype(np.float32),
        attention=attention,
        orders=np.repeat(np.array(orders)[:, None], instances, axis=1),
        targets=generator.integers(n, size=instances),
        layers=tuple(range(layers)),
        instance_ids=tuple(map(str, range(instances))),
    )


def main() -> int:
    """Print a line for each method and preset, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=5_000)
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    cyclic = cyclic_orders(options.candidates)
    evaluated = made_up(cyclic[:1], options.instances, options.layers, seed=0)
    shifts = made_up(cyclic, options.instances, 0, seed=1)
    calibrated_on = made_up(cyclic, 5, options.layers, seed=2)
    slowest = 0.0
    for preset in ("paper", "released"):
        calibration = Calibration.fit(calibrated_on, preset)
        total = 0.0
        print(f"preset {preset}")
        for name, method in METHODS.items():
            evidence = shifts if method.over_shifts else evaluated
            given = None if method.over_shifts else calibration
            times = []
            for _ in range(options.runs):
                begun = time.perf_counter()
                method(evidence, given)
                times.append(time.perf_counter() - begun)
            total += median(times)
            print(f"  {name:<20} {1000 * median(times):7.1f} ms")
        print(f"  {'all':<20} {1000 * total:7.1f} ms")
        slowest = max(slowest, total)
    return int(slowest >= LIMIT)


if __name__ == "__main__":
    sys.exit(main())
