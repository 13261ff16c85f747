"""A decoded graph as JSON, and that made into a graph again over the nodes of the given one."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, Node

from eqsat.canonical import (
    BUILT_IN,
    FUNCTION_NAMES,
    FUNCTIONS,
    Canonical,
    UnsayableError,
    is_plain,
)
from eqsat.emitter import KEPT, Emitter
from eqsat.infer import Oracle
from eqsat.meta import Symbolic, Texts

Step = list[Any]
"""A node: op, name, target, arguments, keywords, where its metadata comes from, its value."""
_FORMS = (torch.dtype, torch.layout, torch.memory_format)
_RUN = ["run"]  # the value of a call is found by running it on fake tensors
_ITEM = ["item"]  # it is one of those of the call that it reads


def write(graph: Graph, names: Canonical) -> list[Step]:
    """The steps that make `graph`, a graph decoded from that of `names`.

    Raises UnsayableError for what they cannot tell.
    """
    given = list(names.graph.nodes)
    copies = {_identity(node): i for i, node in enumerate(given) if node.op != "placeholder"}
    copies |= {("placeholder", n.name): i for i, n in enumerate(given) if n.op == "placeholder"}
    sources: dict[Any, int] = {}
    targets: dict[int, int] = {}
    for i, node in enumerate(given):
        sources.setdefault(_source(node), i)
        if node.op == "call_function":
            targets.setdefault(id(node.target), i)
    places = {node: i for i, node in enumerate(graph.nodes)}
    memory: dict[int, tuple[int, Tensor]] = {}  # storage -> the first node in it, its value
    steps: list[Step] = []
    for i, node in enumerate(graph.nodes):
        target = _target(node, targets) if node.op == "call_function" else None
        arguments = [_argument(v, places) for v in (node.args, dict(node.kwargs))]
        copied = copies.get(_identity(node))
        if copied is not None:
            steps.append([node.op, node.name, target, *arguments, "copy", copied])
        else:
            if node.op != "call_function" or not node.meta.keys() <= {"val", *KEPT}:
                raise UnsayableError(f"{node.op} {node.name} carries {sorted(node.meta)}")
            item = node.target is operator.getitem
            value = _ITEM if item else _value(node.meta["val"], names, memory)
            steps.append(
                [node.op, node.name, target, *arguments, value, sources.get(_source(node))]
            )
        value = node.meta.get("val")
        if isinstance(value, Tensor) and is_plain(value):
            memory.setdefault(value.untyped_storage()._cdata, (i, value))
    return steps


def _identity(node: Node) -> tuple[Any, ...]:
    """What only copies of a node with all of its metadata share."""
    if node.op == "call_function":
        return ("call_function", id(node.target), *_ids(node.meta))
    return (node.op, "" if node.op == "output" else node.target)


def _ids(meta: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((key, id(value)) for key, value in meta.items()))


def _source(node: Node) -> tuple[Any, ...]:
    """What a node shares with those that stem from it."""
    return _ids({key: value for key, value in node.meta.items() if key in KEPT})


def _target(node: Node, targets: Mapping[int, int]) -> int | str:
    """The number of a given node that calls the same, or the name of what is called."""
    target = node.target
    if id(target) in targets:
        return targets[id(target)]
    if isinstance(target, OpOverload) and target.namespace in BUILT_IN:
        return str(target)
    if id(target) in FUNCTION_NAMES:
        return FUNCTION_NAMES[id(target)]
    raise UnsayableError(f"a call of {target}")


def _argument(value: Any, places: Mapping[Node, int]) -> Any:
    """An argument as JSON; what JSON has no form for is a dict of one key, its kind."""
    if isinstance(value, Node):
        return {"node": places[value]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list):
        return [_argument(part, places) for part in value]
    if isinstance(value, tuple):
        return {"tuple": [_argument(part, places) for part in value]}
    if isinstance(value, dict):
        return {"dict": {key: _argument(part, places) for key, part in value.items()}}
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return {"slice": [_argument(part, places) for part in parts]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, _FORMS):
        return {"torch": str(value).removeprefix("torch.")}
    raise UnsayableError(f"a {type(value).__name__} among the arguments of a call")


def _value(value: Any, names: Canonical, memory: Mapping[int, tuple[int, Tensor]]) -> Any:
    """How a call's fake value is made again."""
    if isinstance(value, Symbolic):
        text = names.number(value)
        return ["number", text] if text in names.numbers else _RUN
    if not isinstance(value, Tensor) or not is_plain(value) or value.is_conj() or value.is_neg():
        return _RUN
    sizes = [names.size(v) for v in (*value.shape, *value.stride(), value.storage_offset())]
    if any(size is None for size in sizes):
        return _RUN
    dtype = str(value.dtype).removeprefix("torch.")
    first = memory.get(value.untyped_storage()._cdata)
    if first is None and sizes[-1] == 0:
        return ["new", dtype, str(value.device), sizes[:-1]]
    if first is not None and first[1].dtype == value.dtype and all(type(s) is int for s in sizes):
        return ["view", first[0], sizes]
    return _RUN


def build(steps: Sequence[Step], names: Canonical, mode: FakeTensorMode) -> Graph:
    """The graph that `write` made `steps` of, over the nodes of a graph with the same text."""
    given = list(names.graph.nodes)
    graph, nodes = Graph(), list[Node]()
    maker = _Maker(names, Emitter(mode, Oracle(Texts())))
    for op, name, target, args, kwargs, value, source in steps:
        if op in ("placeholder", "get_attr"):
            named = given[source].name if op == "placeholder" else str(given[source].target)
            node = graph.create_node(op, named)
        elif op == "output":
            node = graph.output(_read(args, nodes)[0])
        else:
            called = given[target].target if isinstance(target, int) else _named(target)
            node = graph.create_node(op, called, _read(args, nodes), _read(kwargs, nodes), name)
        if value == "copy":
            node.meta = dict(given[source].meta)
        else:
            node.meta["val"] = maker.value(value, node, nodes)
            if source is not None:
                node.meta |= {k: v for k, v in given[source].meta.items() if k in KEPT}
        nodes.append(node)
    graph.lint()
    return graph


def _named(name: str) -> Any:
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    namespace, operator, overload = name.split(".")
    if namespace not in BUILT_IN:
        raise ValueError(f"{name} is no operator of torch")
    return getattr(getattr(getattr(torch.ops, namespace), operator), overload)


def _read(data: Any, nodes: Sequence[Node]) -> Any:
    """The argument that `_argument` made `data` of."""
    if isinstance(data, list):
        return [_read(part, nodes) for part in data]
    if not isinstance(data, dict):
        return data
    ((kind, value),) = data.items()
    if kind == "node":
        return nodes[value]
    if kind == "tuple":
        return tuple(_read(part, nodes) for part in value)
    if kind == "dict":
        return {key: _read(part, nodes) for key, part in value.items()}
    if kind == "slice":
        return slice(*(_read(part, nodes) for part in value))
    if kind == "complex":
        return complex(*value)
    if kind == "device":
        return torch.device(value)
    found = getattr(torch, value)
    if kind != "torch" or not isinstance(found, _FORMS):
        raise ValueError(f"{kind} {value} is no argument")
    return found


@dataclass
class _Maker:
    """Makes the fake values of calls; `memory` is that of the nodes that have memory of their own.

    A fake tensor is made of one on the meta device: running a call costs fifty times as much.
    """

    names: Canonical
    emitter: Emitter
    memory: dict[int, Tensor] = field(default_factory=dict[int, Tensor])

    def value(self, how: list[Any], node: Node, nodes: Sequence[Node]) -> Any:
        """The fake value of a call."""
        kind, *rest = how
        if kind == "number":
            return self.names.numbers[rest[0]]
        if kind == "item":
            parts, index = node.args
            return parts.meta["val"][index]  # pyright: ignore - a call's results, and which
        if kind == "new":
            return self._new(len(nodes), *rest)
        if kind == "view":
            return self._view(nodes, *rest)
        return self.emitter.run(node.target, node.args, dict(node.kwargs))

    def _new(self, place: int, dtype: str, device: str, numbers: Sequence[Any]) -> Tensor:
        sizes, strides = _halves([self.names.sized(number) for number in numbers])
        kind, mode = getattr(torch, dtype), self.emitter.fake_mode
        if any(isinstance(number, str) for number in numbers):
            with mode, torch.no_grad():
                return torch.empty_strided(sizes, strides, dtype=kind, device=device)
        meta = self.memory[place] = torch.empty_strided(sizes, strides, dtype=kind, device="meta")
        return FakeTensor(mode, meta, torch.device(device))

    def _view(self, nodes: Sequence[Node], base: int, numbers: Sequence[int]) -> Tensor:
        sizes, strides = _halves(numbers[:-1])
        mode, whole = self.emitter.fake_mode, nodes[base].meta["val"]
        if base in self.memory:
            meta = torch.as_strided(self.memory[base], sizes, strides, numbers[-1])
            return FakeTensor(mode, meta, whole.device)
        with mode, torch.no_grad():
            return torch.as_strided(whole, sizes, strides, numbers[-1])


def _halves(numbers: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Sizes and strides."""
    rank = len(numbers) // 2
    return numbers[:rank], numbers[rank:]
