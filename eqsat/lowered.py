"""A graph in the operators that Inductor lowers: all others decomposed, as AOTAutograd does it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    parts = Parts(mode, table)
    for _ in range(ROUNDS):
        found = [node for node in graph.nodes if _is_composite(node, table)]
        for node in found:
            _inline(graph, node, parts)
        if not found:
            return


class Parts:
    """The graphs that calls decompose into, each traced once: layers repeat each other."""

    def __init__(self, mode: FakeTensorMode, table: Table) -> None:
        self.mode = mode
        self.table = dict(table)
        self.traced: dict[str, Graph] = {}

    def of(self, node: Node) -> Graph:
        """The graph of a call, its placeholders the nodes that the call reads."""
        operands = list(node.all_input_nodes)
        values = [operand.meta["val"] for operand in operands]
        places: dict[Node, Any] = {o: _Place(index) for index, o in enumerate(operands)}
        arguments = torch.fx.map_arg((node.args, dict(node.kwargs)), places.__getitem__)
        key = f"{node.target} {arguments} {[_described(value) for value in values]}"
        if key not in self.traced:
            self.traced[key] = self._trace(node, operands, values)
        return self.traced[key]

    def _trace(self, node: Node, operands: list[Node], values: list[Any]) -> Graph:
        def call(*given: Any) -> Any:
            new = dict(zip(operands, given, strict=True))
            args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), new.__getitem__)
            assert callable(node.target)
            return node.target(*args, **kwargs)

        with self.mode, torch.no_grad():
            return make_fx(call, decomposition_table=self.table)(*values).graph

    def value(self, node: Node) -> Any:
        """The fake value of a call."""
        args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
        assert callable(node.target)
        with self.mode, torch.no_grad():
            return node.target(*args, **kwargs)


@dataclass(frozen=True)
class _Place:
    """Which operand of a call an argument is."""

    index: int


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return str(value)
    layout = value.shape, value.stride(), value.storage_offset()
    return f"{layout} {value.dtype} {value.device} {value.requires_grad}"


def _is_composite(node: Node, table: Table) -> bool:
    target = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload):
        return False
    return target in table or target.has_kernel_for_dispatch_key(COMPOSITE)


def _inline(graph: Graph, node: Node, parts: Parts) -> None:
    """Put the calls that `node` is made of in its place."""
    traced = parts.of(node)
    env = dict(zip(traced.find_nodes(op="placeholder"), node.all_input_nodes, strict=True))
    results: Any = traced.output_node().args[0]  # fx says Argument
    several = isinstance(results, (list, tuple))
    values = (
        zip(results, node.meta["val"], strict=True) if several else [(results, node.meta["val"])]
    )
    known = dict(values)
    with graph.inserting_before(node):
        for part in traced.nodes:
            if part.op in ("placeholder", "output"):
                continue
            if part.op != "call_function":
                raise ValueError(f"{node.target} decomposes into a {part.op}: {part.target}")
            env[part] = graph.node_copy(part, env.__getitem__)
            value = known[part] if part in known else parts.value(env[part])
            env[part].meta = {**part.meta, "val": value}
            for key in KEPT:
                if key in node.meta:
                    env[part].meta[key] = node.meta[key]
    returned: Any = torch.fx.map_arg(results, env.__getitem__)
    if several:
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise ValueError(f"{user.target} reads all results of {node.target} at once")
            index: Any = user.args[1]
            user.replace_all_uses_with(returned[index])
            graph.erase_node(user)
    else:
        node.replace_all_uses_with(returned)
    graph.erase_node(node)
