"""Every operator of torch's own test table through encode and decode.

    python benchmarks/aten_sweep.py [--samples N] [--shard I/N] [NAME ...]

Prints one line an operator: how many samples came back as they went in, in the language ("ok"), as
opaque operators or as effects, how many could not be traced, and every failure. Needs `expecttest`.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import roundtrip  # pyright: ignore[reportMissingImports] - it stands beside the tests

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)


def main() -> int:
    """Run the sweep; 1 if an operator failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operators, by torch's name; all by default")
    parser.add_argument("--samples", type=int, default=3, help="a dtype")
    parser.add_argument("--shard", default="0/1", help="every N-th operator from the I-th")
    options = parser.parse_args()
    start, step = map(int, options.shard.split("/"))
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    total: Counter[str] = Counter()
    for op in op_db[start::step]:
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        if options.names and op.name not in options.names:
            continue
        found: Counter[str] = Counter()
        reasons: dict[str, None] = {}
        for dtype in (d for d in DTYPES if d in op.dtypes):
            for function, tensors in roundtrip.op_samples(op, dtype, options.samples):
                kind, why = roundtrip.outcome(function, tensors)
                found[kind] += 1
                if kind == "failed":
                    reasons[f"    {dtype}: {why}"[:400]] = None
        total += found
        print(f"{name:40} {' '.join(f'{kind}={n}' for kind, n in sorted(found.items()))}")
        print(*reasons, sep="\n", end="\n" if reasons else "", flush=True)
    print(f"{'all':40} {' '.join(f'{kind}={n}' for kind, n in sorted(total.items()))}")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
