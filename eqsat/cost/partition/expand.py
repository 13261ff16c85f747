"""An FX graph as primitive operations: composites expanded as Inductor's decompositions do."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast  # arguments of operators are arbitrary Python values

import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Graph, Node

from eqsat.cost.device import Device
from eqsat.cost.partition import composite
from eqsat.cost.partition.operation import Operation, Program
from eqsat.cost.partition.vocabulary import IGNORED, POINTWISE
from eqsat.hint import UNBACKED_SIZE, hint

Meta = tuple[tuple[int, ...], torch.dtype, tuple[int, ...] | None]
"""The shape, dtype and strides of a tensor."""


def expand(graph: Graph, device: Device) -> tuple[Program, list[Operation]]:
    """The primitive operations of `graph`, and those among them that it returns.

    They come in the order of `reorder_for_locality` (torch/_inductor/fx_passes/post_grad.py): each
    just before the first that needs it. That order depends on the structure of the graph alone.
    """
    program = Program()
    values: dict[Node, Any] = {}
    for node in _ordered(graph):
        if node.op == "output":
            continue
        program.node = node.name
        values[node] = _expanded(program, node, values, device)
    outputs: list[Operation] = []
    for node in graph.nodes:
        if node.op == "output":
            outputs += _operations(_value(node.args, values))
    outputs += [
        result
        for node in graph.nodes
        if node in values and _is_effect(node)
        for result in _operations(values[node])
    ]
    return program, list(dict.fromkeys(outputs))


def _ordered(graph: Graph) -> Iterable[Node]:
    """The nodes that outputs and effects need, operands first, in the order of the arguments."""
    roots = [n for n in graph.nodes if n.op == "output"] + [n for n in graph.nodes if _is_effect(n)]
    done: dict[Node, None] = {}
    for root in roots:
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            if ready:
                done[node] = None
                continue
            stack.append((node, True))
            stack += [(n, False) for n in reversed(node.all_input_nodes) if n not in done]
    return done


def _is_effect(node: Node) -> bool:
    return node.op == "call_function" and _writes(node.target)


@lru_cache(4096)
def _writes(target: Any) -> bool:
    """Whether an operator changes one of its operands."""
    return isinstance(target, OpOverload) and target._schema.is_mutable


def _expanded(program: Program, node: Node, values: dict[Node, Any], device: Device) -> Any:
    meta = node.meta.get("val")
    if node.op in ("placeholder", "get_attr"):
        if not isinstance(meta, Tensor):
            return hint(meta)
        shape, dtype, strides = _tensor(meta)
        return program.add("input", node.op, (), shape, dtype, (), strides)
    target = node.target
    if target is operator.getitem:
        source, position = _value(node.args[0], values), node.args[1]
        try:
            return source[position]
        except (TypeError, IndexError, KeyError):
            return source
    name, pointwise = _name(target)
    if name in IGNORED or isinstance(meta, (int, float, bool, SymInt, SymFloat, SymBool)):
        return hint(meta)
    args = [_value(arg, values) for arg in node.args]
    kwargs = {key: _value(arg, values) for key, arg in node.kwargs.items()}
    result = _metas(meta)
    call = composite.Call(program, name, args, kwargs, result, device)
    handler = composite.EXPANSIONS.get(name)
    if handler is not None:
        made = handler(call)
        if made is not None:
            return made
    if isinstance(result, tuple) and (pointwise or name in POINTWISE):
        return composite.pointwise(call)
    return composite.unknown(call)


@lru_cache(4096)
def _name(target: Any) -> tuple[str, bool]:
    """The short name of an operator, and whether torch says that it works element by element."""
    if isinstance(target, OpOverload):
        return target._schema.name.split("::")[-1], torch.Tag.pointwise in target.tags
    if isinstance(target, HigherOrderOperator):
        return target.name(), False
    return getattr(target, "__name__", str(target)), False


def _value(argument: Any, values: dict[Node, Any]) -> Any:
    """An argument with the values of nodes, and hints, in their places."""
    if isinstance(argument, Node):
        return values.get(argument)
    if type(argument) in (int, float, bool, str) or argument is None:
        return argument
    if isinstance(argument, (list, tuple)):
        return [_value(part, values) for part in cast("list[Any]", argument)]
    if isinstance(argument, dict):
        return {k: _value(v, values) for k, v in cast("dict[Any, Any]", argument).items()}
    return hint(argument)


def _operations(value: Any) -> list[Operation]:
    if isinstance(value, Operation):
        return [value]
    if isinstance(value, (list, tuple)):
        return [found for part in cast("list[Any]", value) for found in _operations(part)]
    return []


def _metas(meta: Any) -> Any:
    """The shape, dtype and strides of a result; a list of them for several, None for no tensor."""
    if isinstance(meta, Tensor):
        return _tensor(meta)
    if isinstance(meta, (list, tuple)):
        return [_metas(part) for part in cast("list[Any]", meta)]
    return None


def _tensor(value: Tensor) -> Meta:
    shape = tuple([n if type(n) is int else _size(n) for n in value.shape])
    if value.layout is not torch.strided:
        return shape, value.dtype, None
    return shape, value.dtype, tuple([n if type(n) is int else _size(n) for n in value.stride()])


def _size(value: Any) -> int:
    size = hint(value)
    return int(size) if isinstance(size, (int, float)) else UNBACKED_SIZE
