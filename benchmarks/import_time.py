"""How long `import lookright` takes beside `import numpy`, each in fresh interpreters, alternating.

    python benchmarks/import_time.py            # medians of 30 starts each
    python benchmarks/import_time.py --starts 100 --json

The time is that of the import statement alone, without the interpreter's own start.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

BAR = 4.0  # `import lookright` may take this many times `import numpy`
MODULES = ("lookright", "numpy")


def seconds(module: str) -> float:
    """Seconds one import statement takes in an interpreter of its own."""
    code = f"from time import perf_counter as t; a = t(); import {module}; print(t() - a)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=30, help="interpreters per module")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    for module in MODULES:
        seconds(module)  # fills the file cache and writes the bytecode
    taken: dict[str, list[float]] = {module: [] for module in MODULES}
    for _ in range(options.starts):
        for module in MODULES:
            taken[module].append(seconds(module))

    median = {module: statistics.median(times) for module, times in taken.items()}
    ratio = median["lookright"] / median["numpy"]
    if options.json:
        print(json.dumps({"median_s": median, "ratio": ratio, "starts": options.starts}))
    else:
        for module in MODULES:
            print(f"import {module:10} {median[module] * 1e3:7.1f} ms")
        print(f"ratio             {ratio:7.2f}    (bar: {BAR:g})")
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
