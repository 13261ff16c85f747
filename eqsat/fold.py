"""Constants computed once: what depends on frozen weights alone becomes a weight of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node

from eqsat.alias import view_chain
from eqsat.effect import effect
from eqsat.meta import Symbolic

aten = torch.ops.aten
_FILLS = (aten.full.default, aten.zeros.default, aten.ones.default, aten.scalar_tensor.default)
_SHAPED = ("view", "reshape", "squeeze", "unsqueeze", "expand", "alias", "detach")
_VIEWS = frozenset({*_SHAPED, "permute", "transpose", "t", "slice", "select"})


@dataclass(frozen=True)
class Folding:
    """The constants that replace calls, by the name of their new placeholder; their bytes."""

    tensors: Mapping[str, Tensor]
    bytes: int


def fold(
    graph: Graph, constants: Mapping[str, Tensor], mode: FakeTensorMode, budget: int
) -> Folding | None:
    """Replaces constant calls of `graph` by placeholders; None (no change) over `budget` bytes.

    Views of weights stay views and fills stay fills: they cost nothing where they are used.
    """
    constant = _constant_nodes(graph, constants)
    wanted = _wanted(graph, constant)
    values: dict[Node, Any] = {n: constants[n.name] for n in constant if n.op == "placeholder"}
    storages: set[int] = set()
    total = 0
    with torch.no_grad():
        for node in _ancestors(graph, wanted):
            if node not in values:
                args = torch.fx.map_arg(node.args, values.__getitem__)
                kwargs = torch.fx.map_arg(node.kwargs, values.__getitem__)
                assert isinstance(node.target, OpOverload)
                values[node] = node.target(*args, **kwargs)
            if node in wanted:
                storage = values[node].untyped_storage()
                if storage._cdata not in storages:
                    storages.add(storage._cdata)
                    total += storage.nbytes()
                if total > budget:
                    return None
    tensors: dict[str, Tensor] = {}
    names = {n.name for n in graph.nodes}
    first = next(iter(graph.nodes))
    for node in wanted:
        name = _fresh(f"folded_{len(tensors)}", names)
        with graph.inserting_before(first):
            placeholder = graph.placeholder(name)
        tensors[placeholder.name] = values[node].detach()
        placeholder.meta = {k: v for k, v in node.meta.items() if k != "val"}
        placeholder.meta["val"] = mode.from_tensor(values[node], static_shapes=True)
        node.replace_all_uses_with(placeholder)
    graph.eliminate_dead_code()
    return Folding(tensors, total)


def finish(
    graph: Graph, constants: Mapping[str, Tensor], mode: FakeTensorMode, budget: int | None
) -> Folding | None:
    """Folds constants, unless `budget` is None, and removes the placeholders not read any more."""
    folding = Folding({}, 0) if budget is None else fold(graph, constants, mode, budget)
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
