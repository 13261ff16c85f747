"""Terms of the language as ATen calls spell them, and the calls with their arguments by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch._ops import OpOverload
from torch.fx import Node


@dataclass(frozen=True)
class Term:
    """An operator applied to terms, FX nodes and Python numbers, with its attributes."""

    operator: str
    children: tuple[Any, ...] = ()
    attributes: tuple[Any, ...] = ()
    layout: str = ""


@dataclass(frozen=True)
class Call:
    """An FX call with its arguments bound to the schema: `c["dim"]`, defaults filled in."""

    node: Node

    @property
    def target(self) -> OpOverload:
        """The ATen overload that is called."""
        assert isinstance(self.node.target, OpOverload)
        return self.node.target

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Every argument by name, in schema order."""
        bound: dict[str, Any] = {}
        for index, argument in enumerate(self.target._schema.arguments):
            if index < len(self.node.args):
                bound[argument.name] = self.node.args[index]
            elif argument.name in self.node.kwargs:
                bound[argument.name] = self.node.kwargs[argument.name]
            else:
                bound[argument.name] = argument.default_value
        return bound

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def x(self) -> Any:
        """The first argument."""
        return next(iter(self.arguments.values()))

    @property
    def out(self) -> Any:
        """The (fake) value of the result."""
        return self.node.meta["val"]


# Gives the term of a call, the FX node that the call returns unchanged, or None if it has no term.
Spelling = Callable[[Call], Any]


def table(*rows: tuple[Spelling, *tuple[str, ...]]) -> dict[str, Spelling]:
    """The spellings of ATen overloads by full name, from rows of a spelling and overload names."""
    return {f"aten.{name}": spelling for spelling, *names in rows for name in names}


def val(argument: Any) -> Any:
    """The (fake) value of an argument: that of its node, or itself."""
    return argument.meta["val"] if isinstance(argument, Node) else argument


def listed(value: Any, n: int) -> tuple[int, ...]:
    """`value`, a number or a sequence of one or `n`, as a tuple of `n`."""
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return values * n if len(values) == 1 else values
