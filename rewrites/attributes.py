"""Attribute functions and conditions that more than one rule file uses."""

from __future__ import annotations

from typing import Any

from eqsat.functions import Function

# Functions of which every kernel gives the same bits, vectorised or not: selections, comparisons, casts, and
# arithmetic that IEEE 754 rounds correctly. The others (exp, gelu, pow, ...) may differ in the last place
# between the elements of one tensor, so moving a view across them moves rounding.
STEADY = frozenset(
    "abs neg relu sqrt reciprocal floor ceil round trunc sign isnan isinf logical_not bitwise_not hardtanh clamp to "
    "add sub mul div maximum minimum eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor logical_and logical_or "
    "where".split()
)


def steady(function: Function) -> bool:
    """Whether a pointwise function gives an element the same bits wherever the element lies."""
    return function.name in STEADY


def unsteady(function: Function) -> bool:
    """Whether the last bits of a pointwise function depend on where an element lies."""
    return not steady(function)


def spans(x: Any, dim: int) -> bool:
    """Whether the value has a dim of more than one element there, so that it is not broadcast along it."""
    return x.ndim >= -dim and x.shape[dim] != 1


def shared_tail(shape: tuple[Any, ...], size: tuple[Any, ...]) -> int:
    """The number of trailing dims that the two shapes have in common."""
    pairs = zip(reversed(shape), reversed(size), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(shape), len(size)))

