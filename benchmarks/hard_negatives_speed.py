"""What hard negatives and scenes cost: seconds and peak memory, on made-up embeddings.

    python benchmarks/hard_negatives_speed.py [--rows 120000] [--width 768] [--anchors 1000] [-n 4]
    python benchmarks/hard_negatives_speed.py --scenes 2000

The first draws a hard benchmark of so many questions from a pool of unit vectors around 2,000
centres (photos of like things) with categories, and prints one line of JSON: seconds, processor
seconds, and the high-water mark of the process, the vectors themselves included. The second
renders scenes and packs them as PNG, and prints pictures a second.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookright.benchmarks.build import Recipe, draw
from lookright.benchmarks.draws import Draws
from lookright.benchmarks.pool import Pool
from lookright.benchmarks.scenes import draw_scene
from lookright.benchmarks.scenes_draw import png, render


def vectors(rows: int, width: int, seed: int, spread: float) -> NDArray[np.float32]:
    """[rows, width] of length 1, made block by block."""
    chance = np.random.default_rng(seed)
    centres = chance.normal(size=(2000, width)).astype(np.float32)
    found = np.empty((rows, width), np.float32)
    for start in range(0, rows, 8192):
        block = found[start : start + 8192]
        block[:] = centres[np.arange(start, start + len(block)) % 2000]
        block += spread * chance.normal(size=block.shape).astype(np.float32)
        block /= np.linalg.norm(block, axis=1, keepdims=True)
    return found


def negatives(args: argparse.Namespace) -> dict[str, Any]:
    kinds = [frozenset(map(str, {k % 80, (k // 7) % 80})) for k in range(args.rows)]
    pool = Pool(
        source="made up",
        ids=[f"i{k}" for k in range(args.rows)],
        images=[k.to_bytes(4, "big") for k in range(args.rows)],
        captions=[f"caption {k}" for k in range(args.rows)],
        categories=kinds,
        image_vectors=vectors(args.rows, args.width, 0, 0.8),
        caption_vectors=vectors(args.rows, args.width, 1, 0.5),
    )
    recipe = Recipe("hard", args.n, args.anchors, 0)
    wall, busy = time.perf_counter(), time.process_time()
    drawn = draw(pool, recipe)
    return {
        "questions": len(drawn.instances),
        "seconds": round(time.perf_counter() - wall, 2),
        "processor_seconds": round(time.process_time() - busy, 2),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "similarity": drawn.facts["similarity"],
    }


def scenes(count: int) -> dict[str, Any]:
    drawn = [draw_scene(Draws(f"speed/{k}")) for k in range(2 * count)]
    warm, timed = drawn[:count], drawn[count:]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(png, warm))
        wall, busy = time.perf_counter(), time.process_time()
        list(pool.map(png, timed))
        packed, packed_busy = time.perf_counter() - wall, time.process_time() - busy
    busy = time.process_time()
    for scene in timed:
        render(scene)
    drawing = time.process_time() - busy
    return {
        "pictures": count,
        "packed_a_second": round(count / packed),
        "processor_ms_packed": round(1000 * packed_busy / count, 3),
        "processor_ms_drawn": round(1000 * drawing / count, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--anchors", type=int, default=1000)
    parser.add_argument("-n", type=int, default=4)
    parser.add_argument("--scenes", type=int, help="render so many scenes instead")
    args = parser.parse_args()
    load = [round(value, 1) for value in os.getloadavg()]
    found = negatives(args) if args.scenes is None else scenes(args.scenes)
    print(json.dumps(found | {"load": load}))


if __name__ == "__main__":
    main()
