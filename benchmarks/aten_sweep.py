"""Every operator of torch's own test table through encode and decode.

    python benchmarks/aten_sweep.py [--samples N] [--shard I/N] [NAME ...]

Prints one line an operator: how many samples came back as they went in, in the language ("ok"), as
opaque operators or as effects, how many could not be traced, and every failure. Needs `expecttest`.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import roundtrip  # noqa: E402 - it stands beside the tests

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)


def samples(op: Any, dtype: torch.dtype, count: int) -> list[Any]:
    """Up to `count` of the operator's sample inputs, spread over those it has."""
    torch.manual_seed(0)
    drawn = op.sample_inputs("cpu", dtype)
    first = list(itertools.islice(drawn, 40))
    drawn.close() if hasattr(drawn, "close") else None  # its clean-up must not run inside a trace
    return first[:: max(1, len(first) // count)][:count]


def outcome(op: Any, sample: Any) -> tuple[str, str]:
    """What became of one call: ok, opaque, effect, untraceable or failed, and the reason."""
    function, tensors = roundtrip.call_of(op.op, ((sample.input, *sample.args), sample.kwargs))
    mode = roundtrip.fresh_mode()
    try:
        given = roundtrip.trace(function, tensors, mode)
    except Exception as error:  # noqa: BLE001 - whatever torch cannot trace never reaches us
        return "untraceable", f"{type(error).__name__}: {error}"
    if any(layout != torch.strided for layout in layouts(given)):
        return "untraceable", "sparse"
    try:
        trip = roundtrip.travel(given, mode)
        for respelled in (False, True):
            result = trip.result(respelled=respelled)
            if changed := roundtrip.change(given, result, tensors):
                return "failed", f"{roundtrip.calls(given)}: {changed}"
    except BaseException as error:  # noqa: BLE001 - a panic of the engine is one
        return "failed", f"{roundtrip.calls(given)}: {type(error).__name__}: {error}"
    kind = "effect" if trip.encoding.effects else "opaque" if trip.encoding.opaque else "ok"
    return kind, ", ".join(f"{name}: {why}" for name, why in trip.encoding.opaque.items())


def layouts(module: torch.fx.GraphModule) -> Iterator[torch.layout]:
    """The layouts of all tensors in a graph."""
    for node in module.graph.nodes:
        for value in torch.utils._pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                yield value.layout


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
            for sample in samples(op, dtype, options.samples):
                kind, why = outcome(op, sample)
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
