"""Casts: the ones that lose nothing vanish."""

from __future__ import annotations

from typing import Any

import torch

from eqsat.functions import Function
from eqsat.operators import full
from eqsat.rewrite import Rewrite, attribute

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


CAST = (
    Rewrite("cast-identity", lambda f, x:          (f(x), x),                                                        when=lambda f, x: is_cast(f) and target(f) == x.dtype),
    Rewrite("cast-compose",  lambda f, g, x:       (g(f(x)), g(x)),                                                  when=lambda f, g, x: is_cast(f) and is_cast(g) and skipped(x.dtype, target(f), target(g))),
    Rewrite("cast-full",     lambda f, z, v, t, c: (f(full(z, v, t, c)), full(z, converted(v, t, f), target(f), c)), when=lambda f, t: is_cast(f) and lossless(t, target(f))),
)
