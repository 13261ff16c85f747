"""Laws that hold but make e-graphs grow without end: with `DEFAULT` they derive every sound rule of TASO."""

from __future__ import annotations

from typing import Any

from eqsat.functions import Function
from eqsat.meta import Meta
from eqsat.operators import cat, convolution, full, reshape, slice_
from eqsat.rewrite import (
    RELAXED,
    ROUNDING,
    Rewrite,
    attribute,
    constant,
    distinct,
    finite,
    ordered,
)
from rewrites.attributes import additive, steady
from rewrites.linear import stacked
from rewrites.merge import halves

ASSOCIATIVE = frozenset(("add", "mul", "minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or"))
SELECTING = ASSOCIATIVE - {"add", "mul"}


def associates(f: Function, x: Any, y: Any, z: Any) -> bool:
    """Whether three tensors of one dtype may be put together in any order."""
    return f.name in ASSOCIATIVE and all(isinstance(v, Meta) for v in (x, y, z)) and x.dtype == y.dtype == z.dtype


def unrounded(f: Function, x: Any) -> bool:
    """Whether the function of numbers like those of `x` rounds nothing, nor loses the sign of a zero."""
    return not x.dtype.is_floating_point and not x.dtype.is_complex if f.name in ("add", "mul", "minimum", "maximum") else True


def spreads(f: Function, x: Any, a: Any, b: Any) -> bool:
    """Whether a product with a sum or difference of `a` and `b` is one of products, in one dtype."""
    return additive(f) and all(isinstance(v, Meta) and v.dtype.is_floating_point and v.dtype == x.dtype for v in (x, a, b))


def splits(x: Any, y: Any, w: Any, d: int) -> bool:
    """Whether `d` counts the input channels of the images `x` and `y`, which meet a convolution weight `w`."""
    return d == 1 - w.ndim and x.shape[d] + y.shape[d] == w.shape[1]


@attribute
def paired(w: Any, g: int) -> tuple[Any, ...]:
    """The shape of a weight of `g` groups, of which every two stand together."""
    return (g // 2, 2, w.shape[0] // g, *w.shape[1:])


@attribute
def blank(w: Any, g: int) -> tuple[Any, ...]:
    """The shape of the zeros beside one group of every two."""
    return (g // 2, 1, w.shape[0] // g, *w.shape[1:])


@attribute
def doubled(w: Any) -> tuple[Any, ...]:
    """The shape of a weight that reads twice as many channels."""
    return (w.shape[0], 2 * w.shape[1], *w.shape[2:])


def in_pairs(w: Any, g: Any) -> Any:
    """The weight of half as many groups: each output channel reads its own group's inputs, and zeros times the other's."""
    dims, groups = w.ndim, reshape(w, paired(w, g))
    zeros = full(blank(w, g), 0.0, w.dtype, w.device)
    first, other = (slice_(groups, -1 - dims, i, i + 1, 1) for i in (0, 1))
    return reshape(cat(cat(first, zeros, 1 - dims), cat(zeros, other, 1 - dims), -1 - dims), doubled(w))


@attribute
def half(g: int) -> int:
    """Half of an even number."""
    return g // 2


def _stack(d: int) -> Rewrite:
    """One function of two values as one of both, set one after the other along the dim `d`."""
    return Rewrite(
        f"unary-stack{d}",
        lambda f, x, y: ((f(x), f(y)), halves(f(cat(x, y, d)), d, x.shape[d], y.shape[d])),
        when=lambda x, y: x.dtype == y.dtype,
        numerics=ROUNDING,
        exact=steady,
        facts=(ordered(),),
    )


TASO = (
    # Associativity makes every bracketing of a sum, and with commutativity every subset of its terms: 3^n of n terms.
    Rewrite("binary-associate", lambda f, x, y, z: (f(f(x, y), z), f(x, f(y, z))), when=associates, numerics=ROUNDING, exact=unrounded),
    # What only makes work: products of each term, a convolution of each.
    Rewrite("mul-expand",               lambda f, x, a, b:                   (x * f(a, b),                                        f(x * a, x * b)),                                                                                                                                      when=spreads, numerics=ROUNDING),
    Rewrite("convolution-expand-left",  lambda x, v, w, a, b, c, t, o, g, f: (convolution(x, f(v, w), a, b, c, t, o, g),          f(convolution(x, v, a, b, c, t, o, g), convolution(x, w, a, b, c, t, o, g))),                                                                          when=lambda v, w, f: additive(f) and v.shape == w.shape, numerics=ROUNDING),
    Rewrite("convolution-expand-right", lambda x, y, w, a, b, c, t, o, g, f: (convolution(f(x, y), w, a, b, c, t, o, g),          f(convolution(x, w, a, b, c, t, o, g), convolution(y, w, a, b, c, t, o, g))),                                                                          when=lambda x, y, f: additive(f) and x.shape == y.shape, numerics=ROUNDING),
    Rewrite("convolution-cat",          lambda x, y, w, a, b, c, o, d:       (convolution(cat(x, y, d), w, a, b, c, False, o, 1), convolution(x, slice_(w, d, 0, x.shape[d], 1), a, b, c, False, o, 1) + convolution(y, slice_(w, d, x.shape[d], w.shape[1], 1), a, b, c, False, o, 1)), when=splits, numerics=ROUNDING),
    Rewrite("matmul-cat-rows",          lambda x, y, w, d:                   (cat(x, y, d) @ w,                                   cat(x @ w, y @ w, d)),                                                                                                                                 when=stacked, numerics=ROUNDING),
    # Whatever is done to two values alike is done to both at once: any two, along any dim. Two copies for a launch.
    *(_stack(d) for d in (-1, -2, -3, -4)),
    Rewrite("matmul-stack",      lambda x, y, w:                   ((x @ w, y @ w),                                                             halves(cat(x, y, -2) @ w, -2, x.shape[-2], y.shape[-2])),                                             when=lambda x, y, w: min(x.ndim, y.ndim, w.ndim) >= 2, numerics=ROUNDING, facts=(ordered(), distinct("x", "y"))),
    Rewrite("convolution-stack", lambda x, y, w, a, b, c, t, o, g: ((convolution(x, w, a, b, c, t, o, g), convolution(y, w, a, b, c, t, o, g)), halves(convolution(cat(x, y, 0 - w.ndim), w, a, b, c, t, o, g), 0 - w.ndim, x.shape[0], y.shape[0])), numerics=ROUNDING, facts=(ordered(), distinct("x", "y"), finite("w"))),
    # Twice the work for half the groups, half of it with zeros.
    Rewrite("convolution-pair-groups", lambda x, w, a, b, c, o, g: (convolution(x, w, a, b, c, False, o, g), convolution(x, in_pairs(w, g), a, b, c, False, o, half(g))), when=lambda g: g % 2 == 0, numerics=RELAXED, facts=(constant("w"),)),
)
