"""Attribute functions and conditions that more than one rule file uses."""

from __future__ import annotations

from typing import Any

import torch

from eqsat.functions import Function

# Functions of which every kernel gives the same bits, vectorised or not: selections, comparisons, casts, and
# arithmetic that IEEE 754 rounds correctly. The others may differ between the elements of one tensor, in the last
# place (gelu, sigmoid, pow, complex products) or in the sign of a zero (maximum), so moving a view across them moves rounding.
STEADY = frozenset(
    ("abs", "neg", "relu", "sqrt", "reciprocal", "floor", "ceil", "round", "trunc", "sign", "isnan", "isinf")
    + ("logical_not", "bitwise_not", "hardtanh", "clamp", "to", "add", "sub", "mul", "div", "where")
    + ("eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or")
)


def steady(f: Function, x: Any) -> bool:
    """Whether a pointwise function of `x` gives an element the same bits wherever the element lies."""
    return f.name in STEADY and x.dtype != complex and not (isinstance(x.dtype, torch.dtype) and x.dtype.is_complex)


def both_steady(f: Function, x: Any, y: Any) -> bool:
    """Whether a pointwise function of `x` and `y` does."""
    return steady(f, x) and steady(f, y)


def whole(x: Any) -> bool:
    """Whether a tensor holds integers or bools: sums of them have another dtype, and wrap around elsewhere."""
    return not x.dtype.is_floating_point and not x.dtype.is_complex


def spans(x: Any, d: int) -> bool:
    """Whether the value has a dim `d` of more than one element, so that it is not broadcast along it."""
    return x.ndim >= -d and x.shape[d] != 1


def shared_tail(shape: tuple[Any, ...], size: tuple[Any, ...]) -> int:
    """The number of trailing dims that the two shapes have in common."""
    pairs = zip(reversed(shape), reversed(size), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(shape), len(size)))


def additive(f: Function) -> bool:
    """Whether a linear map distributes over the function of two terms."""
    return f.name in ("add", "sub")


def widened(f: Function, g: Function, x: Any) -> bool:
    """Whether the cast `g` widens the floating-point `x`, and the cast `f` brings it back."""
    back = f.name == g.name == "to" and x.dtype.is_floating_point and f.parameters == (x.dtype,)
    return back and g.parameters[0].is_floating_point and g.parameters[0].itemsize > x.dtype.itemsize
