"""The kernels of a program under one compiler, each with its predicted seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from operator import getitem
from typing import Any  # the settings of Inductor, and what a node holds

from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from eqsat.capture import constants_of
from eqsat.cost.inductor import kernels
from eqsat.cost.inductor.frozen import frozen
from eqsat.cost.kernel import Kernel
from eqsat.cost.model import CostModel
from eqsat.cost.partition import partition
from eqsat.cost.roofline import Times, time
from eqsat.hint import hint

INDUCTOR, MODEL = "inductor", "model"
"""Where kernels come from: Inductor has really scheduled them, or the model of it predicts them."""


@dataclass(frozen=True)
class Lowered:
    """The kernels of a program and their times; `graph` is the graph whose nodes they name.

    `fault` says why Inductor could not lower the program, where the kernels are the model's.
    """

    graph: Graph
    kernels: tuple[Kernel, ...]
    times: Times
    source: str
    fault: str | None = None


def lowered(
    program: ExportedProgram, cost: CostModel, patches: Mapping[str, Any] | None = None
) -> Lowered:
    """The program as Inductor compiles it for the device, under other settings where given.

    With the setting `freezing` weights are constants. Where Inductor fails, the model answers.
    """
    import torch._inductor.config as config

    patches = dict(patches or {})
    freezes = patches.pop("freezing", False)
    graph = program.graph
    try:
        with config.patch(patches):
            if freezes:
                module, inputs = frozen(program, cost.device, [*constants_of(program)])
                graph, found = module.graph, kernels(module, cost.device, inputs)
            else:
                found = kernels(program, cost.device)
    except ValueError as error:
        return replace(modelled(program, cost), fault=str(error))
    return _timed(graph, found, cost, INDUCTOR)


def modelled(program: ExportedProgram, cost: CostModel) -> Lowered:
    """The program as the model predicts that Inductor compiles it."""
    return _timed(program.graph, partition(program.graph, cost.device), cost, MODEL)


def eager(program: ExportedProgram, cost: CostModel) -> Lowered:
    """The program as eager mode runs it: each operator but views is a kernel of its own."""
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    found = [_alone(node, cost) for node in calls]
    return _timed(program.graph, tuple(k for k in found if k is not None), cost, MODEL)


def _timed(graph: Graph, found: tuple[Kernel, ...], cost: CostModel, source: str) -> Lowered:
    return Lowered(graph, found, time(found, cost.device, cost.mode), source)


def _alone(node: Node, cost: CostModel) -> Kernel | None:
    """The one kernel of an operator by itself; None where it launches none."""
    results = list(_results(node))
    if not results:
        return None
    graph, copies = Graph(), dict[Node, Node]()
    for operand in node.all_input_nodes:
        if operand.op == "get_attr":
            copies[operand] = graph.node_copy(operand)
        else:
            copies[operand] = graph.placeholder(operand.name)
            copies[operand].meta = dict(operand.meta)
    call = graph.node_copy(node, copies.__getitem__)
    if isinstance(node.meta["val"], Tensor):
        graph.output((call,))
    else:
        parts = list[Node]()
        for place, value in results:
            part = graph.call_function(getitem, (call, place))
            part.meta["val"] = value
            parts.append(part)
        graph.output(tuple(parts))
    found = partition(graph, cost.device)
    return _merged(node, found) if found else None


def _results(node: Node) -> Iterator[tuple[int, Tensor]]:
    """The tensors that a node has as results, each with its place."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    if node.target is not getitem:
        yield from ((i, v) for i, v in enumerate(values) if isinstance(v, Tensor))


def _merged(node: Node, found: tuple[Kernel, ...]) -> Kernel:
    """Kernels of one operator as one, which reads its operands and writes its results."""
    largest = max(found, key=lambda kernel: (kernel.flops, kernel.numel * kernel.rnumel))
    one = replace(largest, nodes=(node.name,))
    if len(found) == 1:
        return one
    operands = [n.meta.get("val") for n in node.all_input_nodes]
    return replace(
        one,
        read=_bytes(operands),
        written=_bytes(node.meta["val"]),
        flops=sum(k.flops for k in found),
        work=sum(k.work for k in found),
        transcendental=sum(k.transcendental for k in found),
        strided=0,
    )


def _bytes(values: Any) -> int:
    tensors = [v for v in pytree.tree_leaves(values) if isinstance(v, Tensor)]
    return sum(int(hint(t.numel())) * t.dtype.itemsize for t in tensors)
