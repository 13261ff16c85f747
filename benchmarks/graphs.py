"""An FX graph of ATen operators as JSON and back, with the metas of its values."""

from __future__ import annotations

import importlib
import math
from operator import getitem
from typing import Any, cast  # an argument of a node is any of many Python values

import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch._ops import OpOverload
from torch.fx import Graph, Node

_NAMED: dict[str, type] = {
    "dtype": torch.dtype,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}


def to_json(graph: Graph) -> dict[str, Any]:
    """Returns the nodes of `graph` as plain lists, dicts, texts and numbers.

    A symbolic size is written as its hint. Raises ValueError for a target that is neither an ATen
    operator (or of another namespace) nor `getitem`, and for an argument that cannot be written.
    """
    return {"nodes": [_node_to_json(node) for node in graph.nodes]}


def from_json(data: dict[str, Any]) -> Graph:
    """Returns the graph that was written, its `meta["val"]` on the meta device."""
    graph, made = Graph(), dict[str, Node]()
    for item in data["nodes"]:
        name, op = item["name"], item["op"]
        target = _target_from_text(item["target"]) if op == "call_function" else item["target"]
        args = cast("tuple[Any, ...]", _from_json(item.get("args", {"tuple": []}), made))
        kwargs = {key: _from_json(value, made) for key, value in item.get("kwargs", {}).items()}
        node = made[name] = graph.create_node(op, target, args, kwargs, name=name)
        if node.name != name:
            raise ValueError(f"a node cannot be called {name!r}: torch.fx calls it {node.name!r}")
        if "val" in item:
            node.meta["val"] = _from_json(item["val"], made)
    return graph


def _node_to_json(node: Node) -> dict[str, Any]:
    item: dict[str, Any] = {"name": node.name, "op": node.op, "target": _text(node.target)}
    if node.args:
        item["args"] = _to_json(node.args)
    if node.kwargs:
        item["kwargs"] = {key: _to_json(value) for key, value in node.kwargs.items()}
    if "val" in node.meta:
        item["val"] = _to_json(node.meta["val"])
    return item


def _text(target: object) -> str:
    if isinstance(target, str):
        return target
    if isinstance(target, OpOverload):
        return str(target)
    if target is getitem:
        return "getitem"
    raise ValueError(f"a graph that calls {target} cannot be written: decompose it first")


def _target_from_text(text: str) -> Any:
    if text == "getitem":
        return getitem
    namespace, name, overload = text.split(".")
    operators = getattr(torch.ops, namespace)
    if namespace == "prims" and not hasattr(operators, name):
        importlib.import_module("torch._inductor.inductor_prims")  # defines more of them
    return getattr(getattr(operators, name), overload)


def _to_json(value: Any) -> Any:
    """A value as JSON: what JSON has no word for is a dict of one key, which says what it is."""
    if isinstance(value, (SymInt, SymFloat, SymBool)):
        return _to_json(value.node.hint)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Node):
        return {"node": value.name}
    if isinstance(value, Tensor):
        shape, strides = (_to_json(list(part)) for part in (value.shape, value.stride()))
        return {"tensor": [shape, strides, _short(value.dtype)]}
    if isinstance(value, tuple):
        return {"tuple": [_to_json(item) for item in cast("tuple[Any, ...]", value)]}
    if isinstance(value, list):
        return [_to_json(item) for item in cast("list[Any]", value)]
    if isinstance(value, slice):
        return {"slice": [_to_json(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, complex):
        return {"complex": [_to_json(value.real), _to_json(value.imag)]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    for kind, type_ in _NAMED.items():
        if isinstance(value, type_):
            return {kind: _short(value)}
    raise ValueError(f"an argument of {type(value)} cannot be written: {value!r}")


def _from_json(data: Any, made: dict[str, Node]) -> Any:
    if isinstance(data, list):
        return [_from_json(item, made) for item in cast("list[Any]", data)]
    if not isinstance(data, dict):
        return data
    ((kind, value),) = cast("dict[str, Any]", data).items()
    if kind == "node":
        return made[value]
    if kind == "float":
        return float(value)
    if kind == "device":
        return torch.device(value)
    if kind in _NAMED:
        return getattr(torch, value)
    parts = [_from_json(item, made) for item in value]
    if kind == "tensor":
        shape, strides, dtype = parts
        return torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device="meta")
    makers: dict[str, Any] = {
        "tuple": lambda: tuple(parts),
        "slice": lambda: slice(*parts),
        "complex": lambda: complex(*parts),
    }
    return makers[kind]()


def _short(value: object) -> str:
    """The name of a dtype, layout or memory format within torch."""
    return str(value).removeprefix("torch.")
