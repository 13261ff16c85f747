"""What Inductor makes of each known network, kept in files that the partition is tested against.

    python benchmarks/truth.py [MODEL ...] [--check] [--any-torch]

It writes `benchmarks/truth/MODEL.json.gz`: the captured graph, the graph that Inductor decomposes
it into, and the kernels.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # JSON

import torch
from torch.fx import Graph

from benchmarks import graphs, networks
from eqsat.capture import capture
from eqsat.cost.device import load
from eqsat.cost.inductor import kernels
from eqsat.cost.kernel import Kernel, Product

TORCH = "2.13.0"
"""The torch whose kernels are kept; another makes others."""
PROFILE, DTYPE = "h200", torch.bfloat16
FOLDER = Path(__file__).parent / "truth"
DEFAULTS = {"product": None, "work": 0, "transcendental": 0.0, "strided": 0}


@dataclass(frozen=True)
class Truth:
    """The kernels of one model, and the graphs they come from."""

    model: str
    set: str
    torch: str
    profile: str
    dtype: torch.dtype
    captured: Graph
    decomposed: Graph
    kernels: tuple[Kernel, ...]


def read(model: str) -> Truth:
    """Returns the committed truth of a known network."""
    return from_json(load_json(FOLDER / f"{model}.json.gz"))


def load_json(path: Path) -> dict[str, Any]:
    """Returns what a file of the truth holds."""
    return json.loads(gzip.decompress(path.read_bytes()))


def compute(model: str) -> dict[str, Any]:
    """Returns the truth of a model as JSON, made anew with this torch."""
    from torch._inductor.decomposition import select_decomp_table

    importlib.import_module("torch._inductor.lowering")  # the decompositions take it as imported
    module, inputs = networks.build(model, DTYPE)
    captured = capture(module, inputs)
    if captured.blocked:
        raise ValueError(f"{model} cannot be captured: {captured.blocked}")
    with torch.no_grad():
        decomposed = captured.program.run_decompositions(dict(select_decomp_table()))
    return {
        "model": model,
        "set": next(name for name, models in networks.SETS.items() if model in models),
        "torch": _version(),
        "profile": PROFILE,
        "dtype": str(DTYPE).removeprefix("torch."),
        "captured": graphs.to_json(captured.program.graph),
        "decomposed": graphs.to_json(decomposed.graph),
        "kernels": [kernel_to_json(k) for k in kernels(captured.program, load(PROFILE))],
    }


def from_json(data: dict[str, Any]) -> Truth:
    """Returns the truth that `compute` wrote."""
    return Truth(
        **{key: data[key] for key in ("model", "set", "torch", "profile")},
        dtype=getattr(torch, data["dtype"]),
        captured=graphs.from_json(data["captured"]),
        decomposed=graphs.from_json(data["decomposed"]),
        kernels=tuple(kernel_from_json(item) for item in data["kernels"]),
    )


def kernel_to_json(kernel: Kernel) -> dict[str, Any]:
    """Returns the fields of a kernel, without those that have their default."""
    fields = {k: v for k, v in vars(kernel).items() if k not in DEFAULTS or v != DEFAULTS[k]}
    return {**fields, "dtype": str(kernel.dtype).removeprefix("torch.")}


def kernel_from_json(data: dict[str, Any]) -> Kernel:
    """Returns the kernel that was written."""
    fields = {**data, "dtype": getattr(torch, data["dtype"])}
    for name in ("operators", "nodes"):
        fields[name] = tuple(fields[name])
    if "product" in fields:
        fields["product"] = Product(*fields["product"])
    return Kernel(**fields)


def main() -> None:
    """Write the truth of the given models, or of all; with `--check`, compare and write nothing."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("models", nargs="*", default=list(networks.MODELS), metavar="MODEL")
    parser.add_argument("--check", action="store_true", help="compare with what is committed")
    parser.add_argument("--any-torch", action="store_true", help=f"do not insist on torch {TORCH}")
    options = parser.parse_args()
    if unknown := sorted({*options.models} - {*networks.MODELS}):
        parser.error(f"unknown model {unknown[0]}; there are {', '.join(networks.MODELS)}")
    if _version() != TORCH and not options.any_torch:
        parser.error(f"this is torch {_version()}, the truth is that of {TORCH} (--any-torch)")
    warnings.filterwarnings("ignore")
    FOLDER.mkdir(exist_ok=True)
    changed = [model for model in options.models if not _done(model, options.check)]
    if changed:
        raise SystemExit(f"not as committed: {', '.join(changed)}")


def _done(model: str, check: bool) -> bool:
    """Computes the truth of a model and writes it, or says whether it is as committed."""
    start = time.perf_counter()
    data = json.loads(json.dumps(compute(model)))
    path = FOLDER / f"{model}.json.gz"
    equal = path.exists() and load_json(path) == data
    if not check and not equal:
        text = json.dumps(data, separators=(",", ":"))
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    made = data["kernels"]
    library = sum(kernel["kind"] == "extern" for kernel in made)
    traffic = sum(kernel["read"] + kernel["written"] for kernel in made)
    print(
        f"{model:18} {len(made):4} kernels ({len(made) - library} + {library})"
        f" {traffic / 1e6:8.2f} MB {time.perf_counter() - start:5.1f} s"
        f"{'' if equal else '  changed'}",
        flush=True,
    )
    return equal or not check


def _version() -> str:
    return torch.__version__.split("+")[0]


if __name__ == "__main__":
    main()
