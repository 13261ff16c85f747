"""One graph in the middle of a compiler: optimized between its inputs, outputs and writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from eqsat.clock import Clock
from eqsat.lowered import Table, lower
from eqsat.search import Search, fake_mode, search
from eqsat.settings import Settings

WRITE = torch.ops.aten.copy_.default


@dataclass(frozen=True)
class Region:
    """What was done to a graph: `kept` says why it stayed as it was.

    `before` and `after` are the predicted seconds and number of kernels, `rules` those that united
    something. `cached` results are those of an earlier search of the same graph.
    """

    kept: str | None
    before: tuple[float, int] | None
    after: tuple[float, int] | None
    rules: tuple[str, ...]
    enodes: int
    stop: str
    seconds: float
    cached: bool = False

    def __str__(self) -> str:
        if self.before is None:
            return f"kept: {self.kept}"
        size = f"{self.enodes} e-nodes, {self.stop}, {self.seconds:.2f} s"
        size += ", from the cache" if self.cached else ""
        if self.kept is not None or self.after is None:
            return f"kept ({size}): {self.kept}"
        (old, many), (new, few) = self.before, self.after
        return (
            f"predicted {old * 1e6:.4g} us -> {new * 1e6:.4g} us ({old / new:.2f}x), "
            f"{many} -> {few} kernels; {len(self.rules)} rules, {size}"
        )


def _record(kept: str | None, found: Search | None, clock: Clock) -> Region:
    """The record of a search, which keeps nothing of its graphs."""
    seconds = sum(clock.seconds.values())
    if found is None:
        return Region(kept, None, None, (), 0, "", seconds)
    winner = None if kept is not None or found.winner is None else found.winner.prediction
    return Region(
        kept,
        (found.given.seconds, len(found.given.kernels)),
        None if winner is None else (winner.seconds, len(winner.kernels)),
        tuple(rule.name for rule in found.saturation.rules if rule.admitted),
        found.saturation.enodes,
        str(found.saturation.stop),
        seconds,
        found.cached,
    )


def improve(graph: Graph, settings: Settings, table: Table, *, cached: bool = False) -> Region:
    """Replace the calls of an AOTAutograd graph by those of a better equal graph, if there is one.

    Inputs, outputs with their strides and aliasing, and writes to inputs stay, in their order; the
    new calls are such as `table` does not decompose. Whatever goes wrong, the graph is as it was.
    With `cached`, what was found for an equal graph before is taken.
    """
    clock, found = Clock(), None
    try:
        pure, writes = _without_writes(graph)
        if (early := next(filter(_writes, pure.nodes), None)) is not None:
            return _record(f"{early.target} writes before the end", None, clock)
        found = search(pure, {}, settings, clock, cached=cached)
        if found.winner is None:
            return _record(found.no_better(settings), found, clock)
        new = found.winner.graph
        if any(n and not g for g, n in zip(_late(pure), _late(new), strict=True)):
            return _record("a result would wait for its gradient", found, clock)
        with clock("lower"):
            lower(new, fake_mode(graph), table)
            _write(new, writes)
            new.lint()
    except Exception as error:  # noqa: BLE001 - a compiler goes on with the given graph
        why = f"the optimizer failed: {type(error).__name__}: {error}"
        return _record(why, found, clock)
    _replace(graph, new)
    return _record(None, found, clock)


def _without_writes(graph: Graph) -> tuple[Graph, list[Node]]:
    """A copy that returns also what is written to inputs at its end, and those writes."""
    last = graph.output_node()
    writes: list[Node] = []
    for node in reversed(graph.nodes):
        if node is last:
            continue
        if node.target is not WRITE or node.users or _target(node).op != "placeholder":
            break
        writes.append(node)
    writes.reverse()
    pure = Graph()
    env: dict[Node, Node] = {}
    for node in graph.nodes:
        if node is not last and node not in writes:
            env[node] = pure.node_copy(node, env.__getitem__)
            env[node].name = node.name
    returned = [*_returned(graph), *(write.args[1] for write in writes)]
    output = pure.output(torch.fx.map_arg(tuple(returned), env.__getitem__))
    output.meta = dict(last.meta)
    return pure, writes


def _writes(node: Node) -> bool:
    """Whether a call writes to an operand: what is read after it must stay behind it."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _target(write: Node) -> Node:
    target: Any = write.args[0]
    return target


def _returned(graph: Graph) -> tuple[Any, ...]:
    returned: Any = graph.output_node().args[0]
    return tuple(returned) if isinstance(returned, (list, tuple)) else (returned,)


def _late(graph: Graph) -> list[bool]:
    """Which outputs are gradients: they read what the backward pass is given."""
    late = {n for n in graph.find_nodes(op="placeholder") if str(n.target).startswith("tangents")}
    for node in graph.nodes:
        if node.op == "call_function" and not late.isdisjoint(node.all_input_nodes):
            late.add(node)
    return [value in late for value in _returned(graph)]


def _write(graph: Graph, writes: list[Node]) -> None:
    """Put the writes to inputs at the end again, of the values that the graph returns last."""
    output = graph.output_node()
    returned = list(_returned(graph))
    inputs = {str(node.target): node for node in graph.find_nodes(op="placeholder")}
    values = returned[len(returned) - len(writes) :]
    with graph.inserting_before(output):
        for write, value in zip(writes, values, strict=True):
            new = graph.call_function(WRITE, (inputs[_target(write).name], value, *write.args[2:]))
            new.meta = dict(write.meta)
    output.args = (tuple(returned[: len(returned) - len(writes)]),)


def _replace(graph: Graph, new: Graph) -> None:
    """Give `graph` the calls of `new`, which has the same inputs."""
    last = graph.output_node()
    sequence, meta = type(last.args[0]), dict(last.meta)
    for node in reversed(graph.nodes):
        if node.op != "placeholder":
            graph.erase_node(node)
    old = graph.find_nodes(op="placeholder")
    env = dict(zip(new.find_nodes(op="placeholder"), old, strict=True))
    for node in new.nodes:
        if node.op not in ("placeholder", "output"):
            env[node] = graph.node_copy(node, env.__getitem__)
    returned = torch.fx.map_arg(list(_returned(new)), env.__getitem__)
    output = graph.output(returned if issubclass(sequence, list) else tuple(returned))
    output.meta = meta
