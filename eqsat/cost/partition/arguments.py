"""A call of an ATen operator that is being expanded, with its arguments by position or name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any  # arguments of operators are arbitrary Python values

import torch

from eqsat.cost.device import Device
from eqsat.cost.partition.operation import Operation, Program

Expansion = Callable[["Call"], Any]
"""Adds the operations of a call and returns its result, a list of them, or None to decline."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: `result` is the shape, dtype and strides of its result, or a list of those."""

    program: Program
    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    result: Any
    device: Device

    def __call__(self, position: int, name: str, default: Any = None) -> Any:
        """An argument; `default` where it is missing or None."""
        value = self.args[position] if position < len(self.args) else self.kwargs.get(name)
        return default if value is None else value

    def tensor(self, position: int, name: str) -> Operation:
        """An argument that is a tensor."""
        value = self(position, name)
        if not isinstance(value, Operation):
            raise TypeError(f"{self.name} takes a tensor as {name}, not {value!r}")
        return value

    def maybe(self, position: int, name: str) -> Operation | None:
        """An argument that is a tensor, or None."""
        value = self(position, name)
        return value if isinstance(value, Operation) else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the (first) result."""
        return self.first[0]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the (first) result."""
        return self.first[1]

    @property
    def strides(self) -> tuple[int, ...] | None:
        """The strides of the (first) result; None for row-major ones."""
        return self.first[2]

    @property
    def first(self) -> Any:
        """The shape, dtype and strides of the first result that is a tensor."""
        if isinstance(self.result, tuple):
            return self.result
        return next(
            (part for part in self.result or () if part is not None), ((), torch.float32, None)
        )

    @property
    def half(self) -> bool:
        """Whether the result is of a dtype that is computed in float32."""
        return self.dtype in (torch.bfloat16, torch.float16)

    def operands(self) -> list[Operation]:
        """All tensors among the arguments, those within lists too, in order."""
        found: list[Operation] = []
        stack: list[Any] = [list(self.kwargs.values()), self.args]
        while stack:
            value = stack.pop()
            if isinstance(value, Operation):
                found.append(value)
            elif isinstance(value, dict):
                stack += reversed(list(value.values()))
            elif isinstance(value, (list, tuple)):
                stack += reversed(list(value))
        return found


def pair(value: Any, count: int = 2) -> tuple[int, ...]:
    """A size for each dimension of a window, where one number may stand for all."""
    if isinstance(value, int):
        return (value,) * count
    values = tuple([int(v) for v in value])
    return values * count if len(values) == 1 else values


def axes_of(value: Any, rank: int) -> Sequence[int]:
    """The dimensions that an argument names; all of them for None."""
    if value is None:
        return tuple(range(rank))
    return (value,) if isinstance(value, int) else value
