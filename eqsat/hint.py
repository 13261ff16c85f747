"""The numbers that symbolic ones stand for: a program's own, or those that a person names."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from sympy import Expr, Symbol
from torch import SymBool, SymFloat, SymInt
from torch.fx import Graph

UNBACKED_SIZE = 8192
"""What a size that is known only when a program runs is taken for; the same as Inductor takes."""
_NAMED: ContextVar[dict[Expr, Any] | None] = ContextVar("hints", default=None)
"""What symbols and, once asked for, expressions of them are taken for inside `hinted`."""


def hint(value: Any) -> Any:
    """The number that a symbolic one is taken for, in a sequence too; all else as it is.

    It is that of `hinted`, or the program's own. Asking it decides nothing: no program becomes one
    for this size. A float or bool that is known only when a program runs is None.
    """
    named = _NAMED.get()
    if named is None:
        return own_hint(value)
    if isinstance(value, (tuple, list)):
        return type(value)([hint(part) for part in value])
    if not isinstance(value, (SymInt, SymFloat, SymBool)):
        return value
    expr = value.node.expr
    if expr not in named:
        number: Any = expr.xreplace({s: named[s] for s in expr.free_symbols if s in named})
        known = not number.free_symbols
        kind = {SymInt: int, SymFloat: float, SymBool: bool}[type(value)]
        named[expr] = kind(number) if known else own_hint(value)
    return named[expr]


def own_hint(value: Any) -> Any:
    """The number that a symbolic one stands for in its program, in a sequence too."""
    if isinstance(value, (tuple, list)):
        return type(value)([own_hint(part) for part in value])
    if not isinstance(value, (SymInt, SymFloat, SymBool)):
        return value
    if value.node.has_hint():
        return value.node.hint
    return UNBACKED_SIZE if isinstance(value, SymInt) else None


@contextmanager
def hinted(graph: Graph, hints: Mapping[str, int] | None) -> Generator[None]:
    """Within it, costs are those at the sizes that `hints` names; the others are the program's."""
    if not hints:
        yield
        return
    sizes = _symbolic_sizes(graph)
    names = _names(sizes)
    numbers: dict[Expr, Any] = {symbol: own_hint(size) for symbol, size in sizes.items()}
    numbers.update((names[name], number) for name, number in hints.items())
    token = _NAMED.set(numbers)
    try:
        yield
    finally:
        _NAMED.reset(token)


def require_hints(graph: Graph, hints: Mapping[str, int] | None) -> None:
    """Raises ValueError for a name that no input of the graph has, and for a size it cannot be."""
    if not hints:
        return
    sizes = _symbolic_sizes(graph)
    names = _names(sizes)
    for name, number in hints.items():
        if name not in names:
            known = f"there are {', '.join(names)}" if names else "all sizes of inputs are fixed"
            raise ValueError(f"no dynamic dimension is named {name!r}: {known}")
        _require_taken(name, number, sizes[names[name]])


def _symbolic_sizes(graph: Graph) -> dict[Symbol, SymInt]:
    """The symbols that the inputs bring, each with a number that is it, in their order."""
    found: dict[Symbol, SymInt] = {}
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        numbers: Iterable[Any] = value.shape if isinstance(value, torch.Tensor) else (value,)
        for number in numbers:
            if isinstance(number, SymInt) and isinstance(number.node.expr, Symbol):
                found.setdefault(number.node.expr, number)
    return found


def _names(sizes: Mapping[Symbol, SymInt]) -> dict[str, Symbol]:
    """The symbol behind each name: its own and, while torch knows it, that of its `Dim`."""
    names: dict[str, Symbol] = {}
    for symbol, size in sizes.items():
        env = size.node.shape_env
        given = getattr(env, "source_name_to_debug_name", {})
        for other, sources in getattr(env, "var_to_sources", {}).items():
            if env.replace(other) == symbol:
                found = (given.get(_name(source)) for source in sources)
                names.update((name, symbol) for name in found if name is not None)
    for symbol in sizes:
        names.setdefault(str(symbol), symbol)
    return names


def _name(source: Any) -> str:
    """The name of a source: a method in older versions of torch."""
    name: Any = source.name
    return str(name() if callable(name) else name)


def _require_taken(name: str, number: object, size: SymInt) -> None:
    """Raises ValueError unless the program takes this number as that size.

    Torch calls the least size of a dimension 2 where it also takes 1.
    """
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"the hint for {name!r} must be a size, not {number!r}")
    taken = size.node.shape_env.bound_sympy(size.node.expr)
    least = 1 if taken.lower <= 2 else taken.lower
    if not least <= number <= taken.upper:
        raise ValueError(f"{name!r} is from {least} to {taken.upper} in the program, not {number}")
