"""One call as a graph, through the e-graph and back with no rules, and what changed on the way."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import oracle
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from eqsat.cost.model import CostModel
from eqsat.decode import decode
from eqsat.encode import Encoding, encode
from eqsat.operators import OPERATORS
from eqsat.problem import Problem, problem
from eqsat.saturate import Limits, saturate
from eqsat.snapshot import Snapshot
from extract import Choice

Function = Callable[..., Any]
COST = CostModel.of("h200")
STATELESS = torch.nn.Module()
_UNWRITTEN = {  # what they return is whatever lay in memory
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.empty_permuted.default",
    "aten.empty_strided.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
}


@dataclass(frozen=True)
class Trip:
    """A graph, its e-graph, and the same graph read back from it."""

    given: GraphModule
    encoding: Encoding
    snapshot: Snapshot
    problem: Problem
    mode: FakeTensorMode

    def result(self, *, respelled: bool = False) -> GraphModule:
        """The graph decoded; with `respelled`, every call of the language is written anew."""
        encoding = self.encoding
        if respelled:
            symbols = {row.handle: row.symbol.operator for row in encoding.rows}
            kept = {h: n for h, n in encoding.origins.items() if symbols[h] not in OPERATORS}
            encoding = dataclasses.replace(encoding, origins=kept)
        choice = self.problem.given
        graph = decode(self.snapshot, encoding, self.problem, choice, self.mode)
        return GraphModule(self.given, graph)


def decoded(trip: Trip, choice: Choice) -> GraphModule:
    """The graph of another choice than the given program's."""
    graph = decode(trip.snapshot, trip.encoding, trip.problem, choice, trip.mode)
    return GraphModule(trip.given, graph)


def trace(function: Function, tensors: Sequence[Tensor], mode: FakeTensorMode) -> GraphModule:
    """The functional ATen graph of a call: composite operators whole, unless they write."""
    with torch.no_grad(), mode, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fakes = [mode.from_tensor(t, static_shapes=True) for t in tensors]
        whole = make_fx(function, pre_dispatch=True)(*fakes)
        if not any(_mutates(node) for node in whole.graph.nodes):
            return whole
        functional = torch.func.functionalize(function, remove="mutations_and_views")
        return make_fx(functional)(*fakes)


def _mutates(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def fresh_mode() -> FakeTensorMode:
    """A fake mode in which a result's size may depend on data."""
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


def travel(given: GraphModule, mode: FakeTensorMode) -> Trip:
    """The trip of a graph whose nodes carry fake values of `mode`."""
    encoding = encode(given.graph, {})
    snapshot, _ = saturate(encoding, (), Limits())
    return Trip(given, encoding, snapshot, problem(snapshot, encoding, COST, fold=False), mode)


def outcome(function: Function, tensors: Sequence[Tensor]) -> tuple[str, str]:
    """What became of a call (ok, opaque, effect, untraceable or failed), and why."""
    mode = fresh_mode()
    try:
        given = trace(function, tensors, mode)
    except Exception as error:  # noqa: BLE001 - whatever torch cannot trace never reaches us
        return "untraceable", f"{type(error).__name__}: {error}"
    if any(value.layout != torch.strided for value in _values(given)):
        return "untraceable", "a tensor that has no strides"
    try:
        trip = travel(given, mode)
        for respelled in (False, True):
            if changed := change(given, trip.result(respelled=respelled), tensors):
                return "failed", f"{calls(given)}: {changed}"
    except BaseException as error:  # noqa: BLE001 - a panic of the engine is one
        return "failed", f"{calls(given)}: {type(error).__name__}: {error}"
    kind = "effect" if trip.encoding.effects else "opaque" if trip.encoding.opaque else "ok"
    return kind, ", ".join(f"{name}: {why}" for name, why in trip.encoding.opaque.items())


def _values(module: GraphModule) -> Iterator[Tensor]:
    for node in module.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, Tensor):
                yield value


def op_samples(op: Any, dtype: torch.dtype, count: int) -> Iterator[tuple[Function, list[Tensor]]]:
    """Up to `count` calls of an entry of torch's operator table, spread over its sample inputs."""
    torch.manual_seed(0)
    drawn = op.sample_inputs("cpu", dtype)
    first = list(itertools.islice(drawn, 40))
    if hasattr(drawn, "close"):
        drawn.close()  # its clean-up must not run inside a trace
    for sample in first[:: max(1, len(first) // count)][:count]:
        yield call_of(op.op, ((sample.input, *sample.args), sample.kwargs))


def change(given: GraphModule, result: GraphModule, tensors: Sequence[Tensor]) -> str:
    """What a caller sees differ between two graphs on these inputs; empty where nothing does."""
    before = oracle.observe(given, tuple(deepcopy(tensors)), {}, module=STATELESS)
    after = oracle.observe(result, tuple(deepcopy(tensors)), {}, module=STATELESS)
    random = any(str(node.target) in _UNWRITTEN for node in given.graph.nodes)
    ignored = {"offset", "value"} if random else {"offset"}
    found = [str(d) for d in oracle.differences(before, after) if d.kind not in ignored]
    if effects(given) != effects(result):
        found.append(f"effects {effects(given)} became {effects(result)}")
    return "; ".join(found)


def effects(module: GraphModule) -> list[str]:
    """The calls that write or draw random numbers, in order."""
    return [str(node.target) for node in module.graph.nodes if _acts(node)]


def _acts(node: Node) -> bool:
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    off = "dropout" in str(target) and node.args[2] is False
    seeded = torch.Tag.nondeterministic_seeded in target.tags and not off
    return target._schema.is_mutable or seeded


def call_of(function: Function, arguments: Any) -> tuple[Function, list[Tensor]]:
    """A function of the tensors alone among `arguments` (an (args, kwargs) tree), and those."""
    leaves, spec = pytree.tree_flatten(arguments)
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def call(*tensors: Tensor) -> Any:
        filled = list(leaves)
        for i, tensor in zip(where, tensors, strict=True):
            filled[i] = tensor
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return pytree.tree_leaves(function(*args, **kwargs))

    return call, [leaves[i].detach() for i in where]


def calls(module: GraphModule) -> list[str]:
    """The names of the operators called, in order."""
    return [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
