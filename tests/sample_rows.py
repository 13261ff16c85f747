"""Result rows for tests of the page: small programs, each searched in several ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import programs
import torch
from torch import nn
from torch.fx import Graph

import eqsat
from eqsat.choose import Found
from eqsat.cost.kernel import Kernel
from eqsat.cost.model import CostModel, Prediction
from eqsat.page import egraph

ARMS = {
    "inductor": None,
    "greedy": "greedy",
    "fixpoint": "fixpoint",
    "saturation": "saturation",
}
"""The search of each arm; Inductor's own is the program as it came."""
SMALL = ("t5_attention", "vit_attention", "t5_biased_attention")


def rows(names: Sequence[str] = SMALL) -> list[dict[str, Any]]:
    """A row for each of `names`, programs of `tests/programs`, and each arm."""
    found: list[dict[str, Any]] = []
    for name in names:
        module, args = programs.PROGRAMS[name].build()
        about = (programs.PROGRAMS[name].source.__doc__ or "").strip()
        found += of(name, module, args, about)
    return found


def of(
    name: str, module: nn.Module, args: tuple[Any, ...], about: str, which: str = "C"
) -> Iterator[dict[str, Any]]:
    """The rows of one program."""
    given = torch.export.export(module, args).run_decompositions({}).graph_module.graph
    for arm, search in ARMS.items():
        seen: list[Found] = []
        graph, more = given, dict[str, Any]()
        if search is not None:
            result = eqsat.optimize(
                module,
                args,
                search=search,
                observe=seen.append,
                margin=float("-inf"),
                check=False,
                cache=False,
            )
            graph, more = result.program.graph, searched(result)
        prediction = CostModel.of("h200").estimate(graph)
        yield (
            row(name, which, arm, about, prediction)
            | more
            | {
                "graph_before": described(given, CostModel.of("h200").estimate(given)),
                "graph_after": described(graph, prediction),
                "egraph": egraph(seen[0]) if arm == "saturation" else None,
            }
        )


def row(name: str, which: str, arm: str, about: str, prediction: Prediction) -> dict[str, Any]:
    """What every arm has."""
    seconds = prediction.seconds
    times = {"median": seconds * 40, "low": seconds * 38, "high": seconds * 43, "times": []}
    return {
        "entry": name, "set": which, "size": "small", "arm": arm, "profile": "h200", "seed": 0,
        "about": about, "torch": torch.__version__, "eqsat": eqsat.__version__,
        "predicted": seconds, "kernels": len(prediction.kernels), "bytes": prediction.bytes,
        "flops": prediction.flops, "kernel_source": "model",
        "kernel_list": [
            kernel(k, s) for k, s in zip(prediction.kernels, prediction.times.kernels, strict=True)
        ],
        "measured": {"1": times}, "max_error": 1e-7, "optimizer": {}, "enodes": None,
        "stop": None, "gap": None, "kept": None, "rules": [], "iterations": [],
        "expected": [{"text": "one call of attention", "found": arm == "saturation"}],
        "graph_before": None, "graph_after": None, "egraph": None, "error": None,
    }  # fmt: skip


def searched(result: eqsat.Result) -> dict[str, Any]:
    """What only the arms of a search have."""
    report, record = result.report, result.report.saturation
    assert record is not None
    gaps = [e.gap for e in report.extractions if e.chosen]
    return {
        "optimizer": report.seconds,
        "enodes": record.enodes,
        "stop": str(record.stop),
        "gap": gaps[0] if gaps else None,
        "kept": report.kept,
        "rules": [
            {"name": r.name, "matches": r.matches, "admitted": r.admitted}
            for r in record.rules
            if r.matches
        ],
        "iterations": [{"enodes": i.enodes, "seconds": i.seconds} for i in record.iterations],
    }


def kernel(found: Kernel, seconds: float) -> dict[str, Any]:
    """A kernel as a row holds it."""
    return {
        "kind": found.kind,
        "operators": list(found.operators),
        "seconds": seconds,
        "bytes": found.bytes,
        "nodes": list(found.nodes),
    }


def described(graph: Graph, prediction: Prediction) -> dict[str, Any]:
    """A graph as a row holds it: names, shapes, and the kernel of each node."""
    kernels = {name: k for k, kernel in enumerate(prediction.kernels) for name in kernel.nodes}
    return {
        "nodes": [
            {
                "name": node.name,
                "target": str(node.target) if node.op == "call_function" else node.op,
                "shape": list(getattr(node.meta.get("val"), "shape", ())),
                "dtype": str(getattr(node.meta.get("val"), "dtype", "")).removeprefix("torch."),
                "inputs": [read.name for read in node.all_input_nodes],
                "kernel": kernels.get(node.name),
            }
            for node in graph.nodes
        ]
    }
