"""What fusing while extracting is worth: predicted times and kernels of real networks.

Each network's e-graph is extracted in three ways: with each e-node at its own price, with fusible
ones at a tenth of theirs, and with kernels. The first two are fused after that, as well as they can
be. Then each is a program again, of which the whole-graph model, and Inductor itself with
`--inductor`, say what kernels it has.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import models
import networks
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph

import rewrites
from eqsat.capture import Captured, capture, constants_of
from eqsat.cost import inductor, roofline
from eqsat.cost.model import CostModel
from eqsat.decode import decode
from eqsat.encode import Encoding, encode
from eqsat.fold import compute, finish
from eqsat.fusion import Fusible, fusible
from eqsat.problem import Problem, problem
from eqsat.rebuild import rebuild
from eqsat.rewrite import ROUNDING
from eqsat.saturate import Limits, saturate
from eqsat.snapshot import Snapshot
from extract import Choice, portfolio
from extract.fused import fuse, fused
from extract.fused_judge import fused_judge

RESULT = Path(__file__).parent / "results" / "fused.md"
HEAD = """# What choosing and fusing at once is worth

Predicted microseconds of the kernels, bfloat16, one by one on an H200 (launch plus traffic for
each), by three ways: select by the price of single e-nodes and fuse that, the same with fusible
operators at a tenth, and both at once (`extract.fused`), with the bound that was proven of it.
Then, for each, the kernels and the time that are predicted of the decoded program, and those of the
kernels that Inductor itself makes of it. Made by `python -m benchmarks.fused`.

"""
US = 1e6
DISCOUNT = 0.1
"""The share of its price that a fusible e-node has in the second way."""
BUDGET = 1 << 40
"""Bytes that constants may take: any."""

Built = tuple[nn.Module, tuple[torch.Tensor, ...], dict[str, torch.Tensor]]


def _transformer(make: Callable[..., models.Program], layers: int, **sizes: int) -> Built:
    program = make(layers=layers, **sizes)
    return program.module.to(torch.bfloat16), program.args, program.kwargs


def _network(name: str, layers: int) -> Built:  # noqa: ARG001 - as deep as it is there
    program = networks.build(name)
    return program.module, program.inputs, {}


PROGRAMS: dict[str, Callable[[int], Built]] = {
    "bert": partial(
        _transformer, models.bert_classifier, hidden=768, heads=12, batch=8, tokens=128
    ),
    "gpt2": partial(_transformer, models.gpt2, batch=8, tokens=128, vocabulary=1000, last=False),
    "llama": partial(
        _transformer, models.llama, hidden=1024, heads=16, key_value_heads=8, batch=4, tokens=256
    ),
    **{name: partial(_network, name) for name in ("vit", "resnet_bottleneck", "convnext")},
}


@dataclass(frozen=True)
class Grown:
    """A program's saturated e-graph and its extraction problem with kernels."""

    captured: Captured
    encoding: Encoding
    snapshot: Snapshot
    cost: CostModel

    @cached_property
    def choices(self) -> Problem:
        """The e-nodes at their own prices."""
        return problem(self.snapshot, self.encoding, self.cost, fold=True)

    @cached_property
    def fusible(self) -> Fusible:
        """What kernels the e-nodes can be in."""
        return fusible(self.snapshot, self.encoding, self.cost, self.choices, fold=True)

    @staticmethod
    def of(built: Built, cost: CostModel) -> Grown:
        """The e-graph of a program after the default rules."""
        module, args, kwargs = built
        captured = capture(module, args, kwargs, None)
        graph = captured.program.graph
        encoding = encode(graph, constants_of(captured.program))
        within = (rule.within(ROUNDING) for rule in rewrites.DEFAULT)
        rules = tuple(rule for rule in within if rule is not None)
        snapshot, _ = saturate(encoding, rules, Limits(), None)
        return Grown(captured, encoding, snapshot, cost)

    def graph(self, choice: Choice) -> tuple[Graph, dict[str, torch.Tensor]]:
        """The program of a choice, and its constants."""
        constants = constants_of(self.captured.program)
        mode = _mode(self.captured.program.graph)
        graph = decode(self.snapshot, self.encoding, self.choices, choice, mode)
        folding = finish(graph, constants, BUDGET)
        assert folding is not None
        return graph, compute(folding, graph, constants, mode)


def main() -> None:
    """Prints the table as markdown; with `--write`, into `benchmarks/results/fused.md` too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS), help=", ".join(PROGRAMS))
    parser.add_argument("--layers", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=20.0, help="for the extraction")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--mode", default="stream", choices=("stream", "graph"))
    parser.add_argument("--inductor", action="store_true", help="ask Inductor itself")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    if unknown := sorted({*options.programs} - {*PROGRAMS}):
        parser.error(f"unknown program {unknown[0]}; there are {', '.join(PROGRAMS)}")
    warnings.filterwarnings("ignore")
    cost = CostModel.of(options.device, options.mode)
    rows = [
        measure(name, layers, cost, options.seconds, options.inductor)
        for name in options.programs
        for layers in options.layers
    ]
    text = markdown(rows)
    print(text)
    if options.write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(HEAD + text + "\n")


def measure(name: str, layers: int, cost: CostModel, seconds: float, ask: bool) -> dict[str, str]:
    """One row: the kernels of each way to extract, in microseconds."""
    grown = Grown.of(PROGRAMS[name](layers), cost)
    given = grown.choices
    discounted = problem(
        grown.snapshot, grown.encoding, cost, fold=True, fused_share=DISCOUNT
    ).egraph
    plain = portfolio(given.egraph, time_limit=seconds / 4).choice
    cheap = portfolio(discounted, time_limit=seconds / 4).choice
    whole = grown.fusible
    started = time.perf_counter()
    seeds = [whole.inside(plain), whole.inside(cheap), whole.inside(given.given)]
    joint = fused(whole.problem, time_limit=seconds, seeds=seeds)
    took = time.perf_counter() - started
    fused_judge(whole.problem, joint)
    ways = {"unfused": plain, "discounted": cheap, "joint": whole.outside(joint.selection.choice)}
    results = {
        way: fuse(whole.problem, whole.inside(c), time_limit=seconds / 2) for way, c in ways.items()
    }
    row = {"program": name, "layers": str(layers), "e-nodes": f"{given.egraph.num_nodes:,}"}
    for way in ("unfused", "discounted"):
        row[f"{way}, fused"] = f"{results[way].selection.cost * US:.2f}"
    row |= {
        "joint": f"{joint.selection.cost * US:.2f}",
        "bound": f"{joint.selection.lower_bound * US:.2f}",
        "status": str(joint.selection.status),
        "seconds": f"{took:.1f}",
    }
    for way, choice in ways.items():
        row[f"{way}: kernels"] = predicted(grown, choice, ask)
    return row


def predicted(grown: Grown, choice: Choice, ask: bool) -> str:
    """Kernels and microseconds that the whole-graph model predicts, and Inductor's own if asked."""
    graph, constants = grown.graph(choice)
    estimate = grown.cost.estimate(graph)
    text = f"{len(estimate.kernels)} ({estimate.seconds * US:.1f} us)"
    if ask:
        program = rebuild(grown.captured.program, graph, constants)
        kernels = inductor.kernels(program, grown.cost.device)
        times = roofline.time(kernels, grown.cost.device, grown.cost.mode)
        text += f"; Inductor {len(kernels)} ({times.seconds * US:.1f} us)"
    return text


def _mode(graph: Graph) -> FakeTensorMode:
    values = [node.meta.get("val") for node in graph.nodes]
    modes = [v.fake_mode for v in values if hasattr(v, "fake_mode")]
    return modes[0] if modes else FakeTensorMode(allow_non_fake_inputs=True)


def markdown(rows: list[dict[str, str]]) -> str:
    """The rows as a table with the columns that occur."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(row.get(column, "") for column in columns) + " |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
