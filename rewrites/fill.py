"""Fills and counts: what is computed from tensors of one value, or of numbers in a row, is such a tensor."""

from __future__ import annotations

from typing import Any

import torch

from eqsat.functions import Function
from eqsat.meta import Scalar
from eqsat.operators import arange, cumsum, expand, full, permute, reshape, scatter, slice_
from eqsat.rewrite import ROUNDING, Rewrite, attribute
from rewrites.attributes import STEADY, whole
from rewrites.movement import resized

Shape = tuple[Any, ...]
ROUNDERS = frozenset(("floor", "ceil", "round", "trunc"))


@attribute
def permuted(z: Shape, p: tuple[int, ...]) -> Shape:
    """The shape `z` with its dims permuted."""
    return tuple(z[d] for d in p)


@attribute
def image(f: Function, t: torch.dtype, *values: Any) -> Any:
    """What a function makes of one element of dtype `t`, and of other numbers."""
    return f(torch.tensor(values[0], dtype=t), *values[1:]).item()


@attribute
def kind(f: Function, t: torch.dtype, *values: Any) -> torch.dtype:
    """The dtype of what a function makes of a tensor of dtype `t`, and of other numbers."""
    return f(torch.zeros(1, dtype=t), *values[1:]).dtype


@attribute
def image_second(f: Function, t: torch.dtype, value: Any, number: Any) -> Any:
    """What a function makes of a number and one element of dtype `t`."""
    return f(number, torch.tensor(value, dtype=t)).item()


@attribute
def kind_second(f: Function, t: torch.dtype, number: Any) -> torch.dtype:
    """The dtype of what a function makes of a number and a tensor of dtype `t`."""
    return f(number, torch.zeros(1, dtype=t)).dtype


@attribute
def column(size: Any, dim: int) -> Shape:
    """The shape of `size` elements along `dim`, with dims of one element after it."""
    return (size, *(1,) * (-dim - 1))


@attribute
def added_up(t: torch.dtype) -> torch.dtype:
    """The dtype of a running sum of numbers of dtype `t`."""
    return t if t.is_floating_point else torch.int64


@attribute
def plain(value: Any) -> Any:
    """A number, as an int where it is a bool."""
    return int(value) if isinstance(value, bool) else value


@attribute
def moved(start: Any, step: Any, by: Any) -> Any:
    """The number that comes `by` steps after `start`."""
    return start + step * by


def held(v: Any, t: torch.dtype) -> bool:
    """Whether a number is one of the dtype."""
    return not t.is_complex and torch.tensor(v, dtype=t).item() == v


def exactly(f: Function, t: torch.dtype, *values: Any) -> bool:
    """Whether a function of a fill rounds nothing; what a cast makes of numbers out of range depends on the kernel."""
    wide = torch.float64 if t.is_floating_point else t
    return f.name != "to" and held(values[0], t) and image(f, t, *values) == image(f, wide, *values)


def exactly_second(f: Function, t: torch.dtype, value: Any, number: Any) -> bool:
    """Whether a function of a number and a fill rounds nothing."""
    wide = torch.float64 if t.is_floating_point else t
    return held(value, t) and image_second(f, t, value, number) == image_second(f, wide, value, number)


def in_all_kernels(f: Function) -> bool:
    """Whether a kernel gives the elements of a tensor the bits that it gives one element."""
    return f.name in STEADY


def counted(*values: Any) -> bool:
    """Whether all values are integers."""
    return all(type(v) is int for v in values)


FILL = (
    Rewrite("slice-full",      lambda z, v, t, c, d, s, e, k:    (slice_(full(z, v, t, c), d, s, e, k), full(resized(z, d, s, e, k), v, t, c))),
    Rewrite("permute-full",    lambda z, v, t, c, p:             (permute(full(z, v, t, c), p), full(permuted(z, p), v, t, c))),
    Rewrite("reshape-full",    lambda z, v, t, c, y:             (reshape(full(z, v, t, c), y), full(y, v, t, c))),
    Rewrite("expand-full",     lambda z, v, t, c, y:             (expand(full(z, v, t, c), y), full(y, v, t, c))),
    Rewrite("unary-full",      lambda f, z, v, t, c:             (f(full(z, v, t, c)), full(z, image(f, t, v), kind(f, t), c)),                          when=lambda f, v, t: exactly(f, t, v), numerics=ROUNDING, exact=in_all_kernels),
    Rewrite("full-number",     lambda f, z, v, t, c, a:          (f(full(z, v, t, c), a), full(z, image(f, t, v, a.value), kind(f, t, v, a.value), c)),  when=lambda f, v, t, a: isinstance(a, Scalar) and exactly(f, t, v, a.value), numerics=ROUNDING, exact=in_all_kernels),
    Rewrite("number-full",     lambda f, z, v, t, c, a:          (f(a, full(z, v, t, c)), full(z, image_second(f, t, v, a.value), kind_second(f, t, a.value), c)), when=lambda f, v, t, a: isinstance(a, Scalar) and exactly_second(f, t, v, a.value), numerics=ROUNDING, exact=in_all_kernels),
    Rewrite("mul-zero",        lambda x, a:                      (x * a, full(x.shape, 0, x.dtype, x.device)),                                           when=lambda x, a: isinstance(a, Scalar) and type(a.value) is int and a.value == 0 and whole(x)),
    Rewrite("round-integers",  lambda f, x:                      (f(x), x),                                                                              when=lambda f, x: f.name in ROUNDERS and whole(x)),
    Rewrite("slice-arange",    lambda a, b, c, t, u, s, e, k:    (slice_(arange(a, b, c, t, u), -1, s, e, k), arange(moved(a, c, s), moved(a, c, e), c * k, t, u)), when=lambda a, b, c, t, s, e: counted(a, b, c, s, e) and not t.is_floating_point),
    Rewrite("cumsum-full",     lambda z, v, t, c, d:             (cumsum(full(z, v, t, c), d), expand(reshape(arange(1, z[d] + 1, 1, added_up(t), c), column(z[d], d)) * plain(v), z)), when=lambda v, t: held(v, t) and (t.itemsize >= 4 or not t.is_floating_point), numerics=ROUNDING, exact=lambda t: not t.is_floating_point),
    Rewrite("scatter-full",    lambda z, v, t, c, i, d, u:       (scatter(full(z, v, t, c), i, d, u), torch.where(torch.eq(i, reshape(arange(0, z[d], 1, torch.int64, c), column(z[d], d))), u, full(z, v, t, c))), when=lambda z, i, d: i.shape[d] == 1 and all(i.shape[e] == z[e] for e in range(-len(z), 0) if e != d)),
)
