"""What is known of an e-class: shape, dtype and device of a tensor, or the value of a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt
from torch.fx.experimental.symbolic_shapes import ShapeEnv

Symbolic = (SymInt, SymFloat, SymBool)
INVALID = "invalid"
EFFECT = "effect"  # the meta of what runs only for its effect


@dataclass(frozen=True, eq=False)
class Meta:
    """The shape, dtype and device of a tensor value; no strides, for an e-class has no layout."""

    shape: tuple[int | SymInt, ...]
    dtype: torch.dtype
    device: str

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def numel(self) -> int | SymInt:
        """Number of elements."""
        return math.prod(self.shape)

    def bytes(self) -> int | SymInt:
        """Size of the value in bytes."""
        return self.numel() * self.dtype.itemsize

    @property
    def symbolic(self) -> bool:
        """Whether a dimension is symbolic."""
        return any(isinstance(size, SymInt) for size in self.shape)


@dataclass(frozen=True, eq=False)
class Scalar:
    """A Python number that stands where an operator takes a tensor or a number."""

    value: Any  # int, float, bool, complex or their symbolic forms
    shape: tuple[int, ...] = ()
    ndim: int = 0

    @property
    def dtype(self) -> type:
        """The Python type of the number: it takes part in type promotion as a number does."""
        return type(self.value)


AnyMeta = Meta | Scalar | tuple["AnyMeta | None", ...]


def meta_of(value: Any) -> AnyMeta | None:
    """The meta of a (fake) tensor, a number, or a sequence of them; None for anything else."""
    if isinstance(value, torch.Tensor):
        return Meta(tuple(map(settled, value.shape)), value.dtype, str(value.device))
    if isinstance(value, (bool, int, float, complex, *Symbolic)):
        return Scalar(settled(value))
    if isinstance(value, (list, tuple)):
        return tuple(meta_of(part) for part in value)
    return None


def settled(value: Any) -> Any:
    """A symbolic number that has become one of Python's as that, also in a list or tuple.

    Any other value as it is.
    """
    if type(value) in (list, tuple):
        parts = [settled(part) for part in value]
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else type(value)(parts)
    if not isinstance(value, Symbolic) or not value.node.expr.is_number:
        return value
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    return kinds[type(value)](value.node.expr)


class Texts:
    """The two-way table between Python values and the texts that stand for them in the e-graph.

    Equal texts mean equal values, so a value's type is part of its text (`1` and `1.0` differ).
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._objects: dict[int, str] = {}

    def text(self, value: Any) -> str:
        """The text of `value`, which can be turned back by `value()`."""
        text = self._render(value)
        if text not in self._values:
            self._values[text] = settled(value)
        return text

    def value(self, text: str) -> Any:
        """The value that a text stands for; KeyError if no value with this text was ever given."""
        return self._values[text]

    def meta(self, text: str) -> AnyMeta | None:
        """The meta that a text stands for; None for what runs only for its effect."""
        return None if text == EFFECT else self._values[text]

    def _render(self, value: Any) -> str:
        if value is None or isinstance(value, (bool, int, float, complex)):
            return repr(value)
        if isinstance(value, str):
            return ascii(value)  # plain, for a text travels through files and egglog
        if isinstance(value, Symbolic):
            known = settled(value)
            return f"<{value.node.expr}>" if known is value else repr(known)
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        if isinstance(value, torch.device):
            return f"device({value})"
        if isinstance(value, Meta):
            sizes = ",".join(self._render(size) for size in value.shape)
            return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]@{value.device}"
        if isinstance(value, Scalar):
            return f"number {self._render(value.value)}"
        if isinstance(value, (list, tuple)):
            return "(" + ",".join(self.text(part) for part in value) + ")"
        label = getattr(value, "label", None)
        if isinstance(label, str):
            return label
        return self._objects.setdefault(id(value), f"{type(value).__name__}#{len(self._objects)}")


def shape_env(metas: Sequence[Any]) -> ShapeEnv | None:
    """The shape environment of the first symbolic number found in `metas`, if there is one."""
    for meta in metas:
        parts = meta.shape if isinstance(meta, Meta) else (getattr(meta, "value", meta),)
        for part in parts:
            if isinstance(part, Symbolic):
                return part.node.shape_env
            if isinstance(part, tuple):
                for inner in part:
                    if isinstance(inner, Symbolic):
                        return inner.node.shape_env
    return None
