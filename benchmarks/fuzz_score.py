"""Malformed input to `lookright score`: none may end in a traceback.

    python benchmarks/fuzz_score.py                # 2,000 cases
    python benchmarks/fuzz_score.py --cases 20000 --seed 1

Each case goes through the command line's own entry point, in this process. Exit code 2 is a
refusal, with a sentence; 0 is a case that happened to be usable after all (a flipped bit that
changed nothing). Anything else is printed, and ends this program with exit code 1.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lookright.cli import main as command_line
from malformed import Case, cases


def outcome(case: Case) -> str:
    """The exit code of one call, or the traceback it ended in."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            patch.object(sys, "argv", ["lookright", "score", *case.arguments]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            command_line()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        return traceback.format_exc()
    if code == 2 and not err.getvalue().strip():
        return "exit code 2 without a sentence"
    return str(code)


def main() -> int:
    """Print how often each kind was refused and accepted, and what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("error")  # a warning that is not for the person counts as a traceback
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[tuple[Case, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for _, case in zip(range(options.cases), cases(Path(folder), options.seed), strict=False):
            result = outcome(case)
            if result not in ("0", "2"):
                wrong.append((case, result))
                result = "wrong"
            counts[case.kind, result] += 1
    print(f"{'what is wrong':<34}{'refused':>9}{'usable':>9}{'wrong':>9}")
    for kind in sorted({kind for kind, _ in counts}):
        figures = "".join(f"{counts[kind, result]:9}" for result in ("2", "0", "wrong"))
        print(f"{kind:<34}{figures}")
    total = [
        sum(counts[key] for key in counts if key[1] == result) for result in ("2", "0", "wrong")
    ]
    print(f"{f'{options.cases} cases':<34}" + "".join(f"{count:9}" for count in total))
    for case, result in wrong[:10]:
        called = " ".join(map(repr, case.arguments))
        print(f"\n{case.kind}: lookright score {called[:300]}\n{result[-2000:]}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
