"""A function of tensors as terms of the language, traced at given shapes, dtypes and numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from eqsat.encode import LEAF, Encoding, encode
from eqsat.functions import Function
from eqsat.infer import Oracle, quiet
from eqsat.meta import AnyMeta, Meta, Scalar, shape_env
from eqsat.operators import OPERATORS
from eqsat.snapshot import NUMBER


@dataclass(frozen=True)
class Number:
    """An operand that is a Python number."""

    value: Any


@dataclass(frozen=True)
class Slot:
    """The place of a variable among the attributes of a row, or of the dtype of a cast."""

    variable: str


Operand = int | str | Number  # an earlier row, a variable, a number


@dataclass(frozen=True)
class Row:
    """One application of an operator."""

    operator: str
    operands: tuple[Operand, ...]
    attributes: tuple[Any, ...]


@dataclass(frozen=True)
class Terms:
    """The results of a function as rows, operands first; `outputs` are the results, in order."""

    rows: tuple[Row, ...]
    outputs: tuple[Operand, ...]


def trace(function: Callable[..., Any], names: Sequence[str], values: Sequence[Any]) -> Terms:
    """The terms of `function` applied to `values`: metas for tensors, numbers, other arguments.

    Raises ValueError where it cannot be traced, and where the language cannot say what it does.
    """
    graph = graph_of(function, values)
    inputs = graph.graph.find_nodes(op="placeholder")
    # A sequence argument is several placeholders, but never of tensors: those have a name each.
    leaves = dict(zip(inputs, _flat_names(names, values), strict=True))
    (output,) = graph.graph.find_nodes(op="output")
    results = pytree.tree_leaves(output.args[0])
    for index, result in enumerate(results):
        if not isinstance(result, Node) or not isinstance(result.meta.get("val"), torch.Tensor):
            raise ValueError(f"result {index} is {result!r}, not a tensor")
    if not results:
        raise ValueError("the function returns nothing")
    encoding = encode(graph.graph, {})
    return _Reader(encoding, leaves).terms([encoding.handles[result] for result in results])


def graph_of(function: Callable[..., Any], values: Sequence[Any]) -> GraphModule:
    """The ATen graph of `function` applied to `values`, as high as torch.export leaves it."""
    symbolic = shape_env(values) is not None  # then the caller has entered their fake mode
    mode = contextlib.nullcontext() if symbolic else FakeTensorMode()
    with mode, torch.no_grad(), quiet("torch._subclasses.fake_tensor"):
        arguments = [argument(value) for value in values]
        try:
            return make_fx(function, pre_dispatch=True, tracing_mode="real")(*arguments)
        except Exception as error:
            first = str(error).strip().splitlines()
            raise ValueError(
                f"it cannot be traced: {type(error).__name__}: {first[0] if first else ''}"
            ) from error


def argument(value: Any) -> Any:
    """What a traced function gets for a value: an empty (fake) tensor for a meta."""
    if isinstance(value, Meta):
        return torch.empty(value.shape, dtype=value.dtype, device=value.device)
    if isinstance(value, Scalar):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _flat_names(names: Sequence[str], values: Sequence[Any]) -> list[str]:
    return [
        name
        for name, value in zip(names, values, strict=True)
        for _ in pytree.tree_leaves(list(value) if isinstance(value, tuple) else [value])
    ]


@dataclass
class _Reader:
    """Reads the rows of an encoding that some of its handles reach."""

    encoding: Encoding
    leaves: Mapping[Node, str]

    def __post_init__(self) -> None:
        self.rows: list[Row] = []
        self.known: dict[int, Operand] = {}

    def terms(self, outputs: Sequence[int]) -> Terms:
        stack = list(reversed(outputs))
        while stack:
            handle = stack[-1]
            row = self.encoding.rows[handle]
            if missing := [c for c in row.children if c not in self.known]:
                stack += reversed(missing)
                continue
            stack.pop()
            if handle not in self.known:
                self.known[handle] = self._operand(handle)
        return Terms(tuple(self.rows), tuple(self.known[handle] for handle in outputs))

    def _operand(self, handle: int) -> Operand:
        row = self.encoding.rows[handle]
        value = self.encoding.texts.value
        if row.symbol == LEAF:
            node = self.encoding.leaves[handle]
            if node not in self.leaves:
                raise ValueError(self._foreign(node))
            return self.leaves[node]
        if row.symbol == NUMBER:
            return Number(value(row.attributes[0]))
        if row.symbol.operator not in OPERATORS:
            raise ValueError(f"it calls {row.symbol.operator}, which the language has no term for")
        operands = tuple(self.known[child] for child in row.children)
        attributes = tuple(value(text) for text in row.attributes)
        self.rows.append(Row(row.symbol.operator, operands, attributes))
        return len(self.rows) - 1

    def _foreign(self, node: Node) -> str:
        """Why a leaf that is no argument has no place in a rule."""
        if node.op == "get_attr":
            return "it reads a tensor that is none of its arguments: make it one"
        return f"it calls {node.target}: {self.encoding.opaque.get(str(node.target), 'no value')}"


def select(terms: Terms, outputs: Sequence[int]) -> Terms:
    """The terms of some of the results only, without the rows that those do not need."""
    needed: set[int] = {o for i in outputs if isinstance(o := terms.outputs[i], int)}
    for index in range(len(terms.rows) - 1, -1, -1):
        if index in needed:
            needed |= {o for o in terms.rows[index].operands if isinstance(o, int)}
    place = {old: new for new, old in enumerate(sorted(needed))}

    def moved(operand: Operand) -> Operand:
        return place[operand] if isinstance(operand, int) else operand

    rows = (terms.rows[old] for old in sorted(needed))
    return Terms(
        tuple(replace(row, operands=tuple(map(moved, row.operands))) for row in rows),
        tuple(moved(terms.outputs[i]) for i in outputs),
    )


def metas(
    terms: Terms, names: Sequence[str], values: Sequence[Any], oracle: Oracle
) -> list[AnyMeta]:
    """The metas of the results of terms whose variables have these values.

    Raises ValueError where an operator cannot be applied.
    """
    environment = dict(zip(names, values, strict=True))
    known: list[AnyMeta] = []

    def meta(operand: Operand) -> AnyMeta:
        if isinstance(operand, int):
            return known[operand]
        value = environment[operand] if isinstance(operand, str) else operand.value
        return value if isinstance(value, (Meta, Scalar)) else Scalar(value)

    for row in terms.rows:
        found = oracle.infer(row.operator, [meta(o) for o in row.operands], row.attributes)
        if found is None:
            raise ValueError(f"{row.operator} cannot be applied there")
        known.append(found)
    return [meta(output) for output in terms.outputs]


def variables(terms: Terms) -> set[str]:
    """The variables that stand in the terms."""
    operands = (o for row in terms.rows for o in row.operands)
    slots = (a for row in terms.rows for a in row.attributes if isinstance(a, Slot))
    names = {o for o in (*operands, *terms.outputs) if isinstance(o, str)}
    return names | {slot.variable for slot in slots}


def generalise(terms: Terms, scalars: Mapping[str, Any]) -> Terms:
    """The terms with variables where the given numbers and attributes stand, found by value."""

    def operand(given: Operand) -> Operand:
        for name, value in scalars.items():
            if isinstance(given, Number) and _same(given.value, value):
                return name
        return given

    def attribute(given: Any) -> Any:
        for name, value in scalars.items():
            if _same(given, value) or _same(cast_dtype(given), value):
                return Slot(name)
        return given

    rows = (
        Row(row.operator, tuple(map(operand, row.operands)), tuple(map(attribute, row.attributes)))
        for row in terms.rows
    )
    return Terms(tuple(rows), terms.outputs)


def cast_dtype(value: Any) -> Any:
    """The dtype that a cast function casts to; of anything else, None."""
    if isinstance(value, Function) and value.name == "to" and value.parameters:
        return value.parameters[0]
    return None


def is_literal(value: Any) -> bool:
    """Whether an attribute stands in a pattern as it is: what no shape or dtype decides."""
    if isinstance(value, Function):
        return not value.parameters
    return value is None or isinstance(value, (bool, str))


def _same(a: Any, b: Any) -> bool:
    """Whether two attributes are equal, and of one type (True is not 1); lists are tuples."""
    a, b = (tuple(v) if isinstance(v, list) else v for v in (a, b))
    return a is not None and type(a) is type(b) and bool(a == b)


def mismatch(pattern: Terms, actual: Terms, values: Mapping[str, Any]) -> str | None:
    """How terms at other values differ from the pattern in more than what shapes decide, or None.

    Where the pattern has a variable bound to a number or attribute, the terms must have that one.
    """
    if len(pattern.rows) != len(actual.rows) or len(pattern.outputs) != len(actual.outputs):
        return f"{len(actual.rows)} operators, not {len(pattern.rows)}"

    def agree(a: Operand, b: Operand) -> bool:
        if isinstance(a, str) and isinstance(b, Number):
            return _same(values.get(a), b.value)
        return isinstance(b, Number) if isinstance(a, Number) else a == b

    def alike(a: Any, b: Any) -> bool:
        if isinstance(a, Slot):
            bound = values.get(a.variable)
            return _same(bound, b) or _same(bound, cast_dtype(b))
        return not is_literal(a) or _same(a, b) or (a is None and b is None)

    for mine, theirs in zip(pattern.rows, actual.rows, strict=True):
        if (mine.operator, len(mine.operands)) != (theirs.operator, len(theirs.operands)):
            return f"{theirs.operator}, not {mine.operator}"
        if len(mine.attributes) != len(theirs.attributes) or not all(
            map(alike, mine.attributes, theirs.attributes)
        ):
            return f"{theirs.operator} with other attributes"
        if not all(map(agree, mine.operands, theirs.operands)):
            return f"{theirs.operator} of other operands"
    if not all(map(agree, pattern.outputs, actual.outputs)):
        return "other results"
    return None
