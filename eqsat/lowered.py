"""A graph in the operators that Inductor lowers: all others decomposed, as AOTAutograd does it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from eqsat.emitter import KEPT

Table = Mapping[Any, Callable[..., Any]]
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
ROUNDS = 8  # a decomposition is in the operators of the table's own; none nests deeper


def lower(graph: Graph, mode: FakeTensorMode, table: Table) -> None:
    """Decompose in place each call that `table` or torch itself decomposes.

    Calls that are new carry `val` and the source of the call that they stem from.
    """
    for _ in range(ROUNDS):
        found = [node for node in graph.nodes if _is_composite(node, table)]
        for node in found:
            _inline(graph, node, mode, table)
        if not found:
            return


def _is_composite(node: Node, table: Table) -> bool:
    target = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload):
        return False
    return target in table or target.has_kernel_for_dispatch_key(COMPOSITE)


def _inline(graph: Graph, node: Node, mode: FakeTensorMode, table: Table) -> None:
    """Put the calls that `node` is made of in its place."""
    operands = list(node.all_input_nodes)
    values = [operand.meta["val"] for operand in operands]

    def call(*given: Any) -> Any:
        new = dict(zip(operands, given, strict=True))
        args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), new.__getitem__)
        assert callable(node.target)
        return node.target(*args, **kwargs)

    with mode, torch.no_grad():
        traced = make_fx(call, decomposition_table=dict(table))(*values)
    env = dict(zip(traced.graph.find_nodes(op="placeholder"), operands, strict=True))
    with graph.inserting_before(node):
        for part in traced.graph.nodes:
            if part.op in ("placeholder", "output"):
                continue
            if part.op != "call_function":
                raise ValueError(f"{node.target} decomposes into a {part.op}: {part.target}")
            env[part] = graph.node_copy(part, env.__getitem__)
            for key in KEPT:
                if key in node.meta:
                    env[part].meta[key] = node.meta[key]
    results: Any = traced.graph.output_node().args[0]  # fx says Argument
    returned: Any = torch.fx.map_arg(results, env.__getitem__)
    if isinstance(returned, (list, tuple)):
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise ValueError(f"{user.target} reads all results of {node.target} at once")
            index: Any = user.args[1]
            user.replace_all_uses_with(returned[index])
            graph.erase_node(user)
    else:
        node.replace_all_uses_with(returned)
    graph.erase_node(node)
