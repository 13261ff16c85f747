"""One graph in the middle of a compiler: optimized between its inputs, outputs and writes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node
from torch.nn import Module
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from eqsat.apart import LostError
from eqsat.clock import Clock
from eqsat.isolate import isolated
from eqsat.lowered import Table, lower
from eqsat.search import Search, fake_mode, search
from eqsat.settings import Settings
from eqsat.storage import storage_of

WRITE = torch.ops.aten.copy_.default
INDICES = 4  # batch, head, query, key


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


def improve(
    graph: Graph,
    settings: Settings,
    table: Table,
    *,
    frozen: bool = False,
    cached: bool = False,
    isolate: bool = False,
) -> Region:
    """Replace the calls of an AOTAutograd graph by those of a better equal graph, if there is one.

    Inputs, outputs with their strides and aliasing, and writes to inputs stay, in their order; the
    new calls are such as `table` does not decompose. Calls of higher-order operators stay, too:
    each of their bodies is a graph of its own. If `frozen`, tensors that are attributes never
    change; what is computed ahead of them becomes attributes, of at most `fold_budget` bytes.
    Whatever goes wrong, the graph is as it was. With `cached`, what was found for an equal graph
    before is taken; with `isolate` the search runs in a process of its own.
    """
    clock, found = Clock(), None
    try:
        if not _computes_tensors(graph):
            return _record("it computes single numbers", None, clock)
        held = _held(graph) if frozen else {}
        pure, writes = _without_writes(graph, held)
        if (early := next(filter(_writes, pure.nodes), None)) is not None:
            return _record(f"{early.target} writes before the end", None, clock)
        mode = fake_mode(graph)
        constants = {node.name: tensor for node, tensor in held.items()}
        if not constants:
            settings = replace(settings, fold_budget=0)
        with _apart(mode):
            look = isolated if isolate else search
            found = look(pure, constants, settings, clock, cached=cached)
            if found.winner is None:
                return _record(found.no_better(settings), found, clock)
            new = found.winner.graph
            if any(n and not g for g, n in zip(_late(pure), _late(new), strict=True)):
                return _record("a result would wait for its gradient", found, clock)
            if _lent(new, len(writes)) - _lent(pure, len(writes)):
                return _record("a result would be the memory of an input", found, clock)
            with clock("lower"):
                lower(new, mode, table)
                _write(new, writes)
                new.lint()
    except LostError as error:
        return _record(str(error), found, clock)
    except Exception as error:  # noqa: BLE001 - a compiler goes on with the given graph
        why = f"the optimizer failed: {type(error).__name__}: {error}"
        return _record(why, found, clock)
    targets = {node.name: str(node.target) for node in held}
    _replace(graph, new, targets | _hold(graph.owning_module, found.winner.folded))
    return _record(None, found, clock)


def _computes_tensors(graph: Graph) -> bool:
    """Whether some call gives a tensor of several elements, and not all first inputs are numbers.

    The condition of a loop does not. The functions of scores and masks of an attention begin with
    the indices of one score: Inductor makes them part of a kernel, of a few operators only.
    """
    first = [node.meta.get("val") for node in graph.find_nodes(op="placeholder")][:INDICES]
    if len(first) == INDICES and all(isinstance(v, Tensor) and v.ndim == 0 for v in first):
        return False
    values = [node.meta.get("val") for node in graph.nodes if node.op == "call_function"]
    tensors = (leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor))
    return any(str(size) != "1" for tensor in tensors for size in tensor.shape)


@contextmanager
def _apart(mode: FakeTensorMode) -> Generator[None]:
    """In it, calls of real tensors give real ones, whatever mode the compiler is in.

    Symbols that trial calls make are not waited for: no call of the graph binds them.
    """
    env = mode.shape_env
    with (
        nullcontext() if env is None else env.ignore_fresh_unbacked_symbols(),
        _disable_current_modes(),
    ):
        yield


def _held(graph: Graph) -> dict[Node, Tensor]:
    """The tensors that are attributes, by the nodes that read them."""
    found: dict[Node, Tensor] = {}
    for node in graph.find_nodes(op="get_attr"):
        value = operator.attrgetter(str(node.target))(graph.owning_module)
        if storage_of(value) is not None and isinstance(node.meta.get("val"), Tensor):
            found[node] = value
    return found


def _hold(owner: Module | None, folded: Mapping[str, Tensor]) -> dict[str, str]:
    """Make the tensors attributes; their new names."""
    targets: dict[str, str] = {}
    for name, tensor in folded.items():
        assert owner is not None, "constants are attributes of a module"
        free = next(f"eqsat_{k}" for k in itertools.count() if not hasattr(owner, f"eqsat_{k}"))
        owner.register_buffer(free, tensor)
        targets[name] = free
    return targets


def _without_writes(graph: Graph, held: Mapping[Node, Tensor]) -> tuple[Graph, list[Node]]:
    """A copy that returns also what is written to inputs at its end, and those writes.

    What is `held` is an input.
    """
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
    for node in held:
        env[node] = pure.placeholder(node.name)
        env[node].meta = dict(node.meta)
    for node in graph.nodes:
        if node is not last and node not in writes:
            if node not in held:
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


def _lent(graph: Graph, count: int) -> set[tuple[int, int]]:
    """The pairs of a result and a write that are one value made by a higher-order operator.

    Of an operator that writes, Inductor makes it write the input itself, and leaves out the copy
    that keeps the result apart from it.
    """
    returned = [_copied(value) for value in _returned(graph)]
    last = len(returned) - count
    return {
        (i, k)
        for k in range(count)
        for i, value in enumerate(returned[:last])
        if value is returned[last + k] and _made_by_higher_order(value)
    }


def _copied(value: Any) -> Any:
    """What a value is a copy of, or the value."""
    while isinstance(value, Node) and value.target is torch.ops.aten.clone.default:
        value = value.args[0]
    return value


def _made_by_higher_order(value: Any) -> bool:
    if not isinstance(value, Node) or value.target is not operator.getitem:
        return False
    parent = value.args[0]
    return isinstance(parent, Node) and isinstance(parent.target, HigherOrderOperator)


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


def _replace(graph: Graph, new: Graph, attributes: Mapping[str, str]) -> None:
    """Give `graph` the calls of `new`, whose inputs are the same, and `attributes` by name."""
    last = graph.output_node()
    given, meta = last.args[0], dict(last.meta)
    for node in reversed(graph.nodes):
        if node.op != "placeholder":
            graph.erase_node(node)
    inputs = iter(graph.find_nodes(op="placeholder"))
    env: dict[Node, Node] = {}
    for node in new.nodes:
        if node.op == "placeholder":
            if node.name in attributes:
                env[node] = graph.get_attr(attributes[node.name])
                env[node].meta = dict(node.meta)
            else:
                env[node] = next(inputs)
        elif node.op != "output":
            env[node] = graph.node_copy(node, env.__getitem__)
    returned: list[Any] = torch.fx.map_arg(list(_returned(new)), env.__getitem__)
    if isinstance(given, (list, tuple)):
        output = graph.output(returned if isinstance(given, list) else tuple(returned))
    else:  # the condition of a loop, the function of scores of an attention
        output = graph.output(returned[0])
    output.meta = meta
