"""What evidence costs beside the plain forward pass of the same prompts.

    python benchmarks/evidence_cost.py --model FOLDER [-n 4] [--batch 4] [--photos FOLDER]
    python benchmarks/evidence_cost.py --model qwen2.5-vl-3b --random --device cuda --dtype bfloat16

Both sides start from the same processed tensors on the CPU. The plain side is the stock model with
SDPA, `use_cache=False` and `logits_to_keep=1`; the evidence side encodes the same pictures (no
cache of features) and reads log-probabilities and attention out. They alternate, at least 20 pairs,
more until the 95% interval of the median ratio is within 0.01 either way (or --pairs are done).
Memory is the high-water mark over what was resident after loading and warming up, each side in a
process of its own. Last, N cyclic orders of the same questions with the cache of features on.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from lookright import EvidenceSettings, Instance, Model
from lookright.instance import cyclic_orders

CAPTION = "a person in a red jacket walks past a parked bicycle"


def questions(args: argparse.Namespace) -> list[Instance]:
    """As many questions as the batch has prompts, on photos of one's own or on noise."""
    wanted = args.n * args.batch
    if args.photos:
        files = sorted(
            p for p in Path(args.photos).iterdir() if p.suffix.lower() in {".jpg", ".png"}
        )
        if len(files) < wanted:
            sys.exit(f"{args.photos} holds {len(files)} pictures; {wanted} are needed")
        pictures: list[Any] = list(files[:wanted])
    else:
        noise = np.random.default_rng(0).integers(0, 256, (wanted, 24, 24, 3), np.uint8)
        size = (args.size, args.size)
        pictures = [Image.fromarray(one).resize(size, Image.Resampling.BICUBIC) for one in noise]
    return [
        Instance(f"q{b}", tuple(pictures[b * args.n : (b + 1) * args.n]), caption=CAPTION)
        for b in range(args.batch)
    ]


def load(args: argparse.Namespace) -> Model:
    """A model by folder or hub name, or with random weights of a published width."""
    if not args.random:
        return Model.load(args.model, device=args.device, dtype=args.dtype)
    from true_width import build

    dtype = getattr(torch, args.dtype or "float32")
    return Model.wrap(*build(args.model, args.device or "cpu", dtype, args.layers), name=args.model)


class Sides:
    """The two passes over one batch, ready to be called again and again."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.model = load(args)
        self.instances = questions(args)
        order = tuple(range(args.n))
        self.model.evidence(self.instances[:1], [order])  # the self-check is done once
        settings = EvidenceSettings()
        self.prompts = list(
            self.model._prompts(self.instances, [order] * args.batch, settings, None)
        )
        self.trie = self.model._trie(self.prompts[0], settings)
        self.inputs, self.regions = self.model.encoder.collate(self.prompts)
        pieces = [piece.tensors for prompt in self.prompts for piece in prompt.pieces]
        self.pieces = pieces
        stock = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
        self.stock = {
            name: value
            for name, value in (self.inputs | stock).items()
            if self.model.backbone.takes(name)
        }
        self.model.vision.clear()

    @torch.inference_mode()
    def plain(self) -> None:
        backbone = self.model.backbone
        inputs = {name: value.to(backbone.device) for name, value in self.stock.items()}
        backbone.hf(**inputs, use_cache=False, logits_to_keep=1, return_dict=True)
        self._wait()

    def evidence(self) -> None:
        backbone = self.model.backbone
        features = backbone.encode(self.pieces)
        backbone.read(self.inputs, features, self.regions, len(self.prompts[0].order), self.trie)
        self._wait()

    def _wait(self) -> None:
        if self.model.backbone.device.type == "cuda":
            torch.cuda.synchronize()


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interval(ratios: list[float]) -> tuple[float, float]:
    """The 95% bootstrap interval of the median."""
    values = np.array(ratios)
    draws = np.random.default_rng(0).integers(0, len(values), (2000, len(values)))
    low, high = np.percentile(np.median(values[draws], axis=1), [2.5, 97.5])
    return float(low), float(high)


def compare(sides: Sides, most: int) -> dict[str, Any]:
    """Alternating pairs until the median ratio is known to 0.01 either way."""
    for work in (sides.plain, sides.evidence, sides.plain, sides.evidence):
        work()
    plain, evidence = [], []
    while True:
        first_plain = len(plain) % 2 == 0  # neither side always goes first
        for is_plain in (first_plain, not first_plain):
            (plain if is_plain else evidence).append(
                seconds(sides.plain if is_plain else sides.evidence)
            )
        ratios = [e / p for e, p in zip(evidence, plain, strict=True)]
        low, high = interval(ratios)
        if len(ratios) >= 20 and (high - low <= 0.02 or len(ratios) >= most):
            break
    return {
        "pairs": len(ratios),
        "plain_s": statistics.median(plain),
        "evidence_s": statistics.median(evidence),
        "ratio": statistics.median(ratios),
        "interval": [low, high],
    }


def peak(sides: Sides, side: str) -> float:
    """Mebibytes beyond what is resident once loaded and warm, while one side runs five times."""
    work = sides.plain if side == "plain" else sides.evidence
    work()
    if sides.model.backbone.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(5):
            work()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    before = resident("VmRSS")
    for _ in range(5):
        work()
    return (resident("VmHWM") - before) / 1024


def resident(name: str) -> int:
    """A line of the process's memory status, in KiB."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if name in line)


def cyclic(sides: Sides, args: argparse.Namespace) -> dict[str, Any]:
    """N cyclic orders of every question in one call, beside N calls of one order each."""
    orders = cyclic_orders(args.n)
    asked = [(instance, order) for instance in sides.instances for order in orders]
    model = sides.model

    def together() -> None:
        model.vision.clear()
        model.evidence([i for i, _ in asked], [o for _, o in asked])

    def apart() -> None:
        for order in orders:
            model.vision.clear()
            model.evidence(sides.instances, [order] * len(sides.instances))

    together()
    counted = model.vision.encoded
    together()
    encoded = model.vision.encoded - counted
    pairs = [(seconds(together), seconds(apart)) for _ in range(3)]
    return {
        "orders": args.n,
        "images": args.n * args.batch,
        "encoded": encoded,
        "together_s": statistics.median(t for t, _ in pairs),
        "apart_s": statistics.median(a for _, a in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="folder or hub name")
    parser.add_argument("--random", action="store_true", help="a width of true_width.py, untrained")
    parser.add_argument("--layers", type=int, help="with --random: so many decoder layers")
    parser.add_argument("--photos", help="folder of pictures (default: noise)")
    parser.add_argument("--size", type=int, default=336, help="side of the noise pictures")
    parser.add_argument("-n", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--device")
    parser.add_argument("--dtype")
    parser.add_argument("--pairs", type=int, default=60, help="at most so many pairs")
    parser.add_argument("--memory-of", choices=("plain", "evidence"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    sides = Sides(args)
    if args.memory_of:
        print(json.dumps(peak(sides, args.memory_of)))
        return
    found: dict[str, Any] = {"n": args.n, "batch": args.batch, **compare(sides, args.pairs)}
    for side in ("plain", "evidence"):
        call = [sys.executable, __file__, *sys.argv[1:], "--memory-of", side]
        said = subprocess.run(call, check=True, capture_output=True, text=True).stdout
        found[f"{side}_mib"] = float(said.splitlines()[-1])
    found["memory_ratio"] = found["evidence_mib"] / found["plain_mib"]
    found["cyclic"] = cyclic(sides, args)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
