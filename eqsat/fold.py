"""Constants computed once: what depends on frozen weights alone becomes a weight of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node

from eqsat.alias import view_chain
from eqsat.effect import effect
from eqsat.meta import Symbolic
from eqsat.peak import peak

aten = torch.ops.aten
_FILLS = (
    *(aten.full.default, aten.zeros.default, aten.ones.default, aten.scalar_tensor.default),
    *(aten.empty.memory_format, aten.empty_strided.default),
)
"""Calls that read nothing, and that a compiler makes part of what reads them."""
_UNSET = (
    *(aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default),
    *(aten.new_empty.default, aten.new_empty_strided.default),
)
"""Calls that leave the memory they take as it is."""
_SHAPED = ("view", "reshape", "squeeze", "unsqueeze", "expand", "alias", "detach")
_VIEWS = frozenset({*_SHAPED, "permute", "transpose", "t", "slice", "select"})


@dataclass(frozen=True)
class Folding:
    """The constants that replace calls: their placeholders' names, what computes them, their bytes.

    `calls` returns them in this order, and reads constants by name.
    """

    names: tuple[str, ...] = ()
    calls: Graph = field(default_factory=Graph)
    bytes: int = 0


def fold(graph: Graph, constants: Mapping[str, Tensor], budget: int) -> Folding | None:
    """Replaces constant calls of `graph` by placeholders; None (no change) over `budget` bytes.

    What is held while they are computed may take as much again.

    Views of weights stay views and fills stay fills: they cost nothing where they are used. Nothing
    is computed yet: `compute` does it, for the one graph that is kept.
    """
    wanted = _wanted(graph, _constant_nodes(graph, constants))
    storages = [node.meta["val"].untyped_storage() for node in wanted]
    total = sum({storage._cdata: storage.nbytes() for storage in storages}.values())
    if total > budget:
        return None
    calls = Graph()
    env: dict[Node, Node] = {}
    for node in _ancestors(graph, wanted):
        env[node] = calls.node_copy(node, env.__getitem__)
        env[node].name = node.name
    calls.output(tuple(env[node] for node in wanted))
    if peak(calls) - total > budget:
        return None
    folded: list[str] = []
    names = {n.name for n in graph.nodes}
    first = next(iter(graph.nodes))
    for node in wanted:
        name = _fresh(f"folded_{len(folded)}", names)
        with graph.inserting_before(first):
            placeholder = graph.placeholder(name)
        folded.append(placeholder.name)
        placeholder.meta = dict(node.meta)
        node.replace_all_uses_with(placeholder)
    graph.eliminate_dead_code()
    return Folding(tuple(folded), calls, total)


def compute(
    folding: Folding, graph: Graph, constants: Mapping[str, Tensor], mode: FakeTensorMode
) -> dict[str, Tensor]:
    """The folded constants of `graph` by name; their placeholders are given the strides they have.

    No value is held longer than it is read.
    """
    values: dict[Node, Any] = {}
    with torch.no_grad():
        for node in folding.calls.nodes:
            if node.op == "placeholder":
                values[node] = constants[node.name]
            elif node.op == "call_function":
                args = torch.fx.map_arg(node.args, values.__getitem__)
                kwargs = torch.fx.map_arg(node.kwargs, values.__getitem__)
                assert isinstance(node.target, OpOverload)
                values[node] = node.target(*args, **kwargs)
                if node.target in _UNSET:
                    values[node].untyped_storage().fill_(0)  # as it is kept, it is the same always
            for read in node.all_input_nodes:
                if node.op != "output" and next(reversed(read.users)) is node:
                    del values[read]
    returned: Any = folding.calls.output_node().args[0] if folding.names else ()
    tensors = {
        name: values[node].detach() for name, node in zip(folding.names, returned, strict=True)
    }
    for node in graph.find_nodes(op="placeholder"):
        if node.name in tensors:
            node.meta["val"] = mode.from_tensor(tensors[node.name], static_shapes=True)
    return tensors


def finish(graph: Graph, constants: Mapping[str, Tensor], budget: int | None) -> Folding | None:
    """Folds constants, unless `budget` is None, and removes the placeholders not read any more."""
    folding = Folding() if budget is None else fold(graph, constants, budget)
    if folding is not None:
        drop_unread(graph, constants)
    return folding


def drop_unread(graph: Graph, constants: Mapping[str, Tensor]) -> None:
    """Removes the placeholders of weights that nothing reads any more, for they need no memory."""
    for node in list(graph.nodes):
        if node.op == "placeholder" and node.name in constants and not node.users:
            graph.erase_node(node)


def _constant_nodes(graph: Graph, constants: Mapping[str, Tensor]) -> dict[Node, None]:
    constant: dict[Node, None] = {}
    returned = _returned(graph)
    for node in graph.nodes:
        if node in returned:
            continue  # a returned value is made anew at every call
        if node.op == "placeholder":
            if node.name in constants:
                constant[node] = None
        elif (
            node.op == "call_function"
            and isinstance(node.target, OpOverload)
            and effect(node) is None
            and all(n in constant for n in node.all_input_nodes)
            and not _symbolic(node)
        ):
            constant[node] = None
    return constant


def _returned(graph: Graph) -> set[Node]:
    """The calls whose storage the graph returns, views looked through."""
    outputs = graph.output_node().all_input_nodes
    return {n for output in outputs for n in view_chain(output) if n.op == "call_function"}


def _symbolic(node: Node) -> bool:
    value = node.meta["val"]
    return not isinstance(value, Tensor) or any(isinstance(s, Symbolic) for s in value.shape)


def _is_view(node: Node) -> bool:
    target = node.target
    if not isinstance(target, OpOverload) or not node.all_input_nodes:
        return False
    return target._schema.name.split("::")[1] in _VIEWS


def _wanted(graph: Graph, constant: Mapping[Node, None]) -> Sequence[Node]:
    """The constant calls that others read, views looked through, fills left alone."""
    wanted: dict[Node, None] = {}
    for node in graph.nodes:
        if node in constant:
            continue
        for read in node.all_input_nodes:
            source = read
            while source in constant and _is_view(source):
                source = source.all_input_nodes[0]
            if source in constant and source.op != "placeholder" and source.target not in _FILLS:
                wanted[source] = None
    order = {n: i for i, n in enumerate(graph.nodes)}
    return sorted(wanted, key=order.__getitem__)


def _ancestors(graph: Graph, wanted: Sequence[Node]) -> Sequence[Node]:
    needed = set(wanted)
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return [n for n in graph.nodes if n in needed]


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
