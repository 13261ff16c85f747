"""Casts: the ones that lose nothing vanish, or move towards the result."""

from __future__ import annotations

from typing import Any

import torch

from eqsat.functions import COMPARISONS, Function
from eqsat.operators import AMAX, AMIN, embedding, full, reduction
from eqsat.rewrite import ROUNDING, Rewrite, attribute

SELECTING = frozenset(("neg", "abs", "relu", "floor", "ceil", "round", "trunc", "sign"))
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


def digits(dtype: torch.dtype) -> int:
    """The number of binary digits up to which a dtype holds every whole number."""
    if dtype == torch.bool:
        return 1
    if dtype.is_floating_point:
        return round(1 - torch.tensor(torch.finfo(dtype).eps).log2().item())
    return torch.iinfo(dtype).bits - (dtype in INTEGERS)


def lossless(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether every value of `source`, NaN and infinities included, is one of `target`."""
    if source == target:
        return True
    if source.is_floating_point:
        wide = target.is_floating_point and torch.finfo(target).max >= torch.finfo(source).max
        return wide and digits(target) >= digits(source) and torch.finfo(target).tiny <= torch.finfo(source).tiny
    if not target.is_floating_point:
        return target != torch.bool and digits(target) >= digits(source) and (target in INTEGERS or source not in INTEGERS)
    return digits(target) >= digits(source) and 2.0 ** digits(source) <= torch.finfo(target).max


def skipped(source: torch.dtype, middle: torch.dtype, target: torch.dtype) -> bool:
    """Whether a cast by way of `middle` gives the bits of the direct one.

    What lies outside the range of an integer dtype is cast differently from float and from int.
    """
    wraps = target.is_floating_point or target == torch.bool or not middle.is_floating_point
    return lossless(source, middle) and (wraps or lossless(source, target))


def is_cast(f: Function) -> bool:
    """Whether a unary function is a cast."""
    return f.name == "to"


@attribute
def target(f: Function) -> torch.dtype:
    """The dtype that a cast casts to."""
    return f.parameters[0]


@attribute
def converted(value: Any, source: torch.dtype, f: Function) -> Any:
    """The number that `value`, held as `source`, is after a cast."""
    return f(torch.tensor(value, dtype=source)).item()


def widens(g: Function, x: Any) -> bool:
    """Whether a cast of floating-point numbers loses nothing."""
    return is_cast(g) and x.dtype.is_floating_point and target(g).is_floating_point and lossless(x.dtype, target(g))


def both_widen(g: Function, x: Any, y: Any) -> bool:
    """Whether a cast of two operands of one floating-point dtype loses nothing."""
    return x.dtype == y.dtype and widens(g, x)


CAST = (
    # What only selects, or compares, does so before its operands are widened.
    Rewrite("cast-late-unary",   lambda f, g, x:       (f(g(x)), g(f(x))),                                            when=lambda f, g, x: f.name in SELECTING and widens(g, x)),
    Rewrite("cast-late-max",     lambda f, g, x, y:    (f(g(x), g(y)), g(f(x, y))),                                   when=lambda f, g, x, y: f.name in ("maximum", "minimum") and both_widen(g, x, y), numerics=ROUNDING),
    Rewrite("cast-late-where",   lambda g, c, x, y:    (torch.where(c, g(x), g(y)), g(torch.where(c, x, y))),         when=both_widen),
    Rewrite("cast-late-extreme", lambda f, g, x, d, h: (reduction(f, g(x), d, h), g(reduction(f, x, d, h))),          when=lambda f, g, x: f in (AMAX, AMIN) and widens(g, x), numerics=ROUNDING),
    Rewrite("cast-late-lookup",  lambda g, x, i:       (embedding(g(x), i), g(embedding(x, i))),                      when=widens),
    Rewrite("cast-unseen",       lambda f, g, x:       (f(g(x)), f(x)),                                               when=lambda f, g, x: f.name in ("isnan", "isinf") and widens(g, x)),
    Rewrite("cast-compared",     lambda f, g, x, y:    (f(g(x), g(y)), f(x, y)),                                      when=lambda f, g, x, y: f.name in COMPARISONS and both_widen(g, x, y)),
    Rewrite("cast-identity", lambda f, x:          (f(x), x),                                                        when=lambda f, x: is_cast(f) and target(f) == x.dtype),
    Rewrite("cast-compose",  lambda f, g, x:       (g(f(x)), g(x)),                                                  when=lambda f, g, x: is_cast(f) and is_cast(g) and skipped(x.dtype, target(f), target(g))),
    Rewrite("cast-full",     lambda f, z, v, t, c: (f(full(z, v, t, c)), full(z, converted(v, t, f), target(f), c)), when=lambda f, t: is_cast(f) and lossless(t, target(f))),
)
