"""Random programs, optimized without the product's own check and compared with what was given."""

from __future__ import annotations

import argparse
import time

from fuzzing.programs import generate
from fuzzing.selections import ways
from fuzzing.shrink import explain
from fuzzing.verdict import verdict


def main() -> None:
    """Try random programs for a while, and print those whose result is wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    tried = skipped = failures = 0
    seed = options.seed
    while time.monotonic() < deadline:
        source = generate(seed)
        for way in ways(seed):
            problem = verdict(source, way)
            if problem is None:
                skipped += 1
                break
            if problem:
                failures += 1
                print(f"--- seed {seed}: {problem}", flush=True)
                print(explain(source, way, problem), flush=True)
                break
        else:
            tried += 1
        seed += 1
    print(f"{tried + failures} programs tried, {skipped} not captured by torch, {failures} failed")


if __name__ == "__main__":
    main()
