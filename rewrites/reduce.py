"""Reductions: over several dims at once, before what they do not touch, and through products."""

from __future__ import annotations

import math
from typing import Any

import torch

from eqsat.functions import Function
from eqsat.operators import MEAN, SUM, affine, cat, permute, reduction, reshape
from eqsat.rewrite import ROUNDING, Rewrite, attribute
from rewrites.attributes import additive, spans

# Functions that keep the order of their arguments, and NaN.
MONOTONE = frozenset(("relu", "hardtanh", "sigmoid", "tanh", "exp", "expm1", "erf", "floor", "ceil", "round", "trunc"))
FEW = 32  # as in Inductor's decompose_mm
Dims = tuple[int, ...]
Shape = tuple[Any, ...]


@attribute
def together(inner: Dims, keepdim: bool, outer: Dims, ndim: int) -> Dims:
    """The dims of the operand that a reduction over `inner`, then over `outer`, reduces."""
    kept = [d for d in range(-ndim, 0) if keepdim or d not in inner]
    return tuple(sorted({*inner, *(kept[d] for d in outer)}))


@attribute
def sources(p: Dims, dims: Dims) -> Dims:
    """The dims of the operand that `dims` of its permutation are."""
    return tuple(sorted(p[d] - len(p) for d in dims))


@attribute
def remaining(p: Dims, dims: Dims) -> Dims:
    """The permutation of the dims that stay when `dims` of a permutation are reduced."""
    left = [p[d] for d in range(-len(p), 0) if d not in dims]
    return tuple(sorted(left).index(d) for d in left)


@attribute
def shape_after(shape: Shape, dims: Dims, keepdim: bool) -> Shape:
    """The shape of a reduction."""
    ndim = len(shape)
    return tuple(1 if d in dims else shape[d] for d in range(-ndim, 0) if keepdim or d not in dims)


@attribute
def regrouped(shape: Shape, size: Shape, dims: Dims) -> Dims | None:
    """The dims of a tensor of `shape` that are `dims` of its reshape to `size`; None where they are none.

    The two shapes are read in groups of equal product; a group is reduced whole or not at all.
    """
    found: list[int] = []
    i, j = len(shape), len(size)
    while i > 0 or j > 0:
        a, b = i, j
        i, j = max(i - 1, 0), max(j - 1, 0)
        while math.prod(shape[i:a]) != math.prod(size[j:b]):
            if math.prod(shape[i:a]) < math.prod(size[j:b]) and i > 0:
                i -= 1
            elif j > 0:
                j -= 1
            else:
                return None
        part = {d - len(size) in dims for d in range(j, b)}
        if len(part) > 1 or (not part and i < a and any(n != 1 for n in shape[i:a])):
            return None
        if part == {True}:
            found += [d - len(shape) for d in range(i, a)]
    return tuple(sorted(found))


@attribute
def count(shape: Shape, dims: Dims) -> Any:
    """The number of elements that are reduced to one."""
    return math.prod(shape[d] for d in dims)


@attribute
def placed(dims: Dims, keepdim: bool, dim: int) -> int:
    """The dim of a reduction that dim `dim` of its operand, which is not reduced, becomes."""
    return dim if keepdim else dim + sum(d > dim for d in dims)


def unsqueezed(a: Any, b: Any, y: Shape, z: Shape) -> bool:
    """Whether reshaping `a` to `y` and `b` to `z` sets the rows of one against the columns of the other."""
    matrices = a.ndim == b.ndim >= 2 and a.shape[-1] == b.shape[-2]
    return matrices and tuple(y) == (*a.shape, 1) and tuple(z) == (*b.shape[:-2], 1, *b.shape[-2:])


def few(a: Any, w: Any) -> bool:
    """Whether a product is of one column and of few rows: more of them a kernel for products sums up better."""
    return min(a.ndim, w.ndim) >= 2 and w.shape[-1] == 1 != w.shape[-2] and w.shape[-2] <= FEW and a.dtype.itemsize >= 4


def over_dims(f: Function) -> bool:
    """Whether a reduction over some dims, then over others, is the reduction over all."""
    return f.name in ("sum", "mean", "amax", "amin", "logsumexp")


def linear(f: Function, x: Any) -> bool:
    """Whether the reduction is linear in `x` and keeps its dtype: the sum of integers is wider than they are."""
    return f in (SUM, MEAN) and x.dtype.is_floating_point


def fits(y: Any, x: Any) -> bool:
    """Whether `y` times `x` has the dtype of `x`: a sum in a narrower one would round more."""
    return torch.promote_types(x.dtype, y.dtype) == x.dtype


REDUCE = (
    Rewrite("reduction-compose",       lambda f, x, r, h, q, g: (reduction(f, reduction(f, x, r, h), q, g), reduction(f, x, together(r, h, q, x.ndim), g)),                                                  when=lambda f, h, g: over_dims(f) and (h or not g), numerics=ROUNDING),
    Rewrite("reduction-keepdim",       lambda f, x, r:          (reduction(f, x, r, True), reshape(reduction(f, x, r, False), shape_after(x.shape, r, True)))),
    Rewrite("reduction-permute-keep",  lambda f, x, p, r:       (reduction(f, permute(x, p), r, True), permute(reduction(f, x, sources(p, r), True), p)),                                                     numerics=ROUNDING),
    Rewrite("reduction-permute",       lambda f, x, p, r:       (reduction(f, permute(x, p), r, False), permute(reduction(f, x, sources(p, r), False), remaining(p, r))),                                     numerics=ROUNDING),
    Rewrite("reduction-reshape",       lambda f, x, z, r, h:    (reduction(f, reshape(x, z), r, h), reshape(reduction(f, x, regrouped(x.shape, z, r), False), shape_after(z, r, h))),                         when=lambda x, z, r: bool(regrouped(x.shape, z, r)), numerics=ROUNDING),
    Rewrite("mean-sum",                lambda x, r, h:          (reduction(MEAN, x, r, h), reduction(SUM, x, r, h) * (1.0 / count(x.shape, r))),                                                              when=lambda x: x.dtype.itemsize >= 4, numerics=ROUNDING),
    Rewrite("sum-mean",                lambda x, r, h, n:       (reduction(SUM, x, r, h) * n, reduction(MEAN, x, r, h)),                                                                                      when=lambda x, r, n: n.ndim == 0 and math.isclose(n.value * count(x.shape, r), 1.0), numerics=ROUNDING),
    Rewrite("reduction-scale",         lambda f, x, a, r, h:    (reduction(f, x * a, r, h), reduction(f, x, r, h) * a),                                                                                       when=lambda f, x, a: linear(f, x) and a.ndim == 0, numerics=ROUNDING),
    Rewrite("reduction-factor",        lambda f, x, y, r:       (reduction(f, x * y, r, True), reduction(f, x, r, True) * y),                                                                                 when=lambda f, x, y, r: linear(f, x) and y.ndim > 0 and fits(y, x) and all(spans(x, d) and not spans(y, d) for d in r), numerics=ROUNDING),
    Rewrite("reduction-matmul-rows",   lambda f, a, b, h:       (reduction(f, a @ b, (-2,), h), reshape(reduction(f, a, (-2,), True) @ b, shape_after((a @ b).shape, (-2,), h))),                              when=lambda f, a, b: linear(f, a) and a.ndim >= 2 < b.ndim, numerics=ROUNDING),
    Rewrite("reduction-matmul-columns", lambda f, a, b, h:      (reduction(f, a @ b, (-1,), h), reshape(a @ reduction(f, b, (-1,), True), shape_after((a @ b).shape, (-1,), h))),                              when=lambda f, a, b: linear(f, a) and min(a.ndim, b.ndim) >= 2, numerics=ROUNDING),
    Rewrite("reduction-matmul",        lambda f, a, b, h:       (reduction(f, a @ b, (-2, -1), h), reshape(reduction(f, a, (-2,), True) @ reduction(f, b, (-1,), True), shape_after((a @ b).shape, (-2, -1), h))), when=lambda f, a, b: linear(f, a) and min(a.ndim, b.ndim) >= 2, numerics=ROUNDING),
    # Sums over other dims than those that are multiplied.
    Rewrite("reduction-matmul-outer",  lambda f, x, w, r, h:    (reduction(f, x @ w, r, h), reduction(f, x, r, h) @ w),                                                                                         when=lambda f, x, w, r: linear(f, x) and x.ndim >= 2 == w.ndim and -1 not in r, numerics=ROUNDING),
    Rewrite("mean-affine",             lambda x, w, b, r, h:    (reduction(MEAN, affine(x, w, b), r, h), affine(reduction(MEAN, x, r, h), w, b)),                                                               when=lambda x, w, b, r: x.ndim >= 2 == w.ndim and b.ndim <= 1 and -1 not in r, numerics=ROUNDING),
    Rewrite("reduction-distribute",    lambda f, g, x, y, r, h: (reduction(f, g(x, y), r, h), g(reduction(f, x, r, h), reduction(f, y, r, h))),                                                                 when=lambda f, g, x, y: linear(f, x) and additive(g) and x.shape == y.shape and x.dtype == y.dtype, numerics=ROUNDING),
    Rewrite("mean-shift",              lambda g, x, y, r:       (reduction(MEAN, g(x, y), r, True), g(reduction(MEAN, x, r, True), y)),                                                                         when=lambda g, x, y, r: additive(g) and (y.ndim == 0 or y.dtype == x.dtype) and y.ndim <= x.ndim and not any(spans(y, d) for d in r), numerics=ROUNDING),
    Rewrite("reduction-monotone",      lambda f, g, x, r, h:    (reduction(f, g(x), r, h), g(reduction(f, x, r, h))),                                                                                           when=lambda f, g: f.name in ("amax", "amin") and g.name in MONOTONE, numerics=ROUNDING),
    Rewrite("reduction-cat",           lambda f, x, y, d, r, h: (reduction(f, cat(x, y, d), r, h), cat(reduction(f, x, r, h), reduction(f, y, r, h), placed(r, h, d))),                                         when=lambda d, r: d not in r, numerics=ROUNDING),
    Rewrite("sum-cat",                 lambda x, y, d, r, h:    (reduction(SUM, cat(x, y, d), r, h), reduction(SUM, x, r, h) + reduction(SUM, y, r, h)),                                                        when=lambda d, r: d in r, numerics=ROUNDING),
    # What is reduced over some dims already needs only the others.
    Rewrite("reduction-partial",       lambda f, x, q, r, h, g: ((reduction(f, x, q, h), reduction(f, x, r, g)), (reduction(f, reduction(f, x, r, True), q, h), reduction(f, x, r, g))),                        when=lambda f, q, r: over_dims(f) and set(r) < set(q), numerics=ROUNDING),
    # Products of matrices in their parts; one whose sums have one term, or one column of few, is rather a pointwise product.
    Rewrite("matmul-from-parts",       lambda a, b, y, z:       (reduction(SUM, reshape(a, y) * reshape(b, z), (-2,), False), a @ b),                                                                           when=unsqueezed, numerics=ROUNDING),
    Rewrite("matmul-from-vector",      lambda x, y:             (reduction(SUM, x * y, (-1,), False), x @ y),                                                                                                   when=lambda x, y: y.ndim == 1 <= x.ndim and x.shape[-1] == y.shape[0], numerics=ROUNDING),
    Rewrite("matmul-outer",            lambda a, b:             (a @ b, a * b),                                                                                                                                 when=lambda a, b: min(a.ndim, b.ndim) >= 2 and a.shape[-1] == 1, numerics=ROUNDING),
    Rewrite("matmul-column",           lambda a, w:             (a @ w, reduction(SUM, a * w.mT, (-1,), True)),                                                                                                 when=few, numerics=ROUNDING),
)
