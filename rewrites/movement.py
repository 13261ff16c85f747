"""Views: slices move up towards the inputs, permutes and reshapes compose and cross what they do not touch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from eqsat.meta import Meta
from eqsat.operators import (
    affine,
    attention,
    batch_norm,
    convolution,
    cumsum,
    embedding,
    expand,
    group_norm,
    layer_norm,
    log_softmax,
    permute,
    reduction,
    reshape,
    rms_norm,
    slice_,
    softmax,
)
from eqsat.rewrite import ROUNDING, Condition, Rewrite, attribute, ordered
from rewrites.attributes import both_steady, shared_tail, spans, steady

Shape = tuple[Any, ...]
Cut = tuple[int, Any, Any, int]  # dim, start, end, step


@attribute
def composed(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that is `p`, then `q`."""
    return tuple(p[i] for i in q)


@attribute
def permuted(p: tuple[int, ...], dim: int) -> int:
    """The dim of the operand that dim `dim` of its permutation is."""
    return p[dim] - len(p)


@attribute
def placed(p: tuple[int, ...], dim: int) -> int:
    """The dim of the permutation that dim `dim` of the operand becomes."""
    return p.index(dim + len(p)) - len(p)


@attribute
def resized(size: Shape, dim: int, start: Any, end: Any, step: int) -> Shape:
    """The size after a slice."""
    new = list(size)
    new[dim] = end - start if step == 1 else -(-(end - start) // step)
    return tuple(new)


@attribute
def headed(size: Shape, tail: Shape, dims: int = 1) -> Shape:
    """The size with its last `dims` dims replaced by those of `tail`."""
    return (*size[: len(size) - dims], *tail[len(tail) - dims :])


@attribute
def matrix(shape: Shape) -> Shape:
    """The shape of the only matrix of a batch."""
    return shape[len(shape) - 2 :]


@attribute
def cut_twice(dim: int, s: Any, e: Any, k: int, start: Any, end: Any, step: int) -> Cut:
    """The slice `start:end:step` of the slice `s:e:k`, as one slice."""
    last = s + end if k == 1 else min(e, s + end * k)
    return dim, s + start * k, last, k * step


@attribute
def reduced(dims: tuple[int, ...], keepdim: bool, ndim: int, dim: int) -> int | None:
    """The dim of a reduction's operand that dim `dim` of the result is; None where it is reduced."""
    kept = [d for d in range(-ndim, 0) if keepdim or d not in dims]
    return None if kept[dim] in dims else kept[dim]


@attribute
def source(shape: Shape, size: Shape, dim: int, start: Any, end: Any, step: int) -> Cut | None:
    """The slice of a tensor of `shape` that, reshaped, is the slice of its reshape to `size`; None without one.

    The sliced dim may be a dim of the operand, the outer or (one element) the inner part of one, or several.
    """
    inner = math.prod(size[len(size) + dim + 1 :])
    for e in range(-len(shape), 0):
        stride, n = math.prod(shape[len(shape) + e + 1 :]), shape[e]
        if stride == inner and n == size[dim]:
            return e, start, end, step
        if not all(isinstance(v, int) for v in (inner, stride, n, size[dim], start, end)):
            continue
        if not inner or not stride or n == 1 or size[dim] == 1:
            continue
        if inner % stride == 0 and n == size[dim] * (inner // stride) and step == 1:
            return e, start * (inner // stride), end * (inner // stride), 1
        if stride == inner and n % size[dim] == 0 and end - start == 1:
            return e, start, n, size[dim]
        part = stride // inner
        if stride % inner == 0 and n * part == size[dim] and step == 1 and start % part == end % part == 0:
            return e, start // part, end // part, 1
    return None


@attribute
def first(ndim: int) -> int:
    """The first dim of so many."""
    return -ndim


@attribute
def causal_after(causal: bool, start: int) -> bool:
    """Whether attention is still causal for the queries from `start` on."""
    return causal and start == 0


def cut(x: Any, at: Any) -> Any:
    """The slice of `x` at a computed (dim, start, end, step)."""
    return slice_(x, at[0], at[1], at[2], at[3])


def fixed(p: tuple[int, ...], dims: int) -> bool:
    """Whether a permutation leaves the last `dims` dims where they are."""
    return p[len(p) - dims :] == tuple(range(len(p) - dims, len(p)))


def undoes(p: tuple[int, ...], q: tuple[int, ...]) -> bool:
    """Whether the permutation `q` is the inverse of `p`."""
    return fixed(composed(p, q), len(p))


def same(a: Shape, b: Shape) -> bool:
    """Whether two shapes are known to be equal."""
    return len(a) == len(b) and all(statically_known_true(m == n) for m, n in zip(a, b, strict=True))


def queries(start: int, end: int, step: int, causal: bool, q: Any, k: Any) -> bool:
    """Whether a slice of the queries keeps the mask expressible: none, the first rows, or the last row alone."""
    return not causal or (step == 1 and (start == 0 or (end - start == 1 and end == q.shape[-2] == k.shape[-2])))


# Views across pointwise functions; operands that broadcast along the view stay as they are.
POINTWISE = (
    Rewrite("slice-unary",         lambda f, x, d, s, e, k:    (slice_(f(x), d, s, e, k), f(slice_(x, d, s, e, k))),                              numerics=ROUNDING, exact=steady),
    Rewrite("slice-binary",        lambda f, x, y, d, s, e, k: (slice_(f(x, y), d, s, e, k), f(slice_(x, d, s, e, k), slice_(y, d, s, e, k))),   when=lambda x, y, d: spans(x, d) and spans(y, d), numerics=ROUNDING, exact=both_steady),
    Rewrite("slice-binary-left",   lambda f, x, y, d, s, e, k: (slice_(f(x, y), d, s, e, k), f(slice_(x, d, s, e, k), y)),                       when=lambda x, y, d: spans(x, d) and not spans(y, d), numerics=ROUNDING, exact=both_steady),
    Rewrite("slice-binary-right",  lambda f, x, y, d, s, e, k: (slice_(f(x, y), d, s, e, k), f(x, slice_(y, d, s, e, k))),                       when=lambda x, y, d: spans(y, d) and not spans(x, d), numerics=ROUNDING, exact=both_steady),
    Rewrite("permute-unary",       lambda f, x, p:             (permute(f(x), p), f(permute(x, p))),                                              numerics=ROUNDING, exact=steady),
    Rewrite("permute-binary",      lambda f, x, y, p:          (permute(f(x, y), p), f(permute(x, p), permute(y, p))),                           when=lambda x, y: x.ndim == y.ndim, numerics=ROUNDING, exact=both_steady),
    Rewrite("permute-binary-left", lambda f, x, y, p:          (permute(f(x, y), p), f(permute(x, p), y)),                                       when=lambda x, y, p: y.ndim < x.ndim and fixed(p, y.ndim), numerics=ROUNDING, exact=both_steady),
    Rewrite("permute-binary-right", lambda f, x, y, p:         (permute(f(x, y), p), f(x, permute(y, p))),                                       when=lambda x, y, p: x.ndim < y.ndim and fixed(p, x.ndim), numerics=ROUNDING, exact=both_steady),
    Rewrite("permute-scale",       lambda f, x, a, p:          (f(permute(x, p), a), permute(f(x, a), p)),                                       when=lambda a: a.ndim == 0, numerics=ROUNDING, exact=Condition(("f", "x", "a"), both_steady)),
    Rewrite("split-unary",         lambda f, x, z:             (reshape(f(x), z), f(reshape(x, z))),                                             when=lambda x, z: len(z) > x.ndim, numerics=ROUNDING, exact=steady),
    Rewrite("split-binary",        lambda f, x, y, z:          (reshape(f(x, y), z), f(reshape(x, z), reshape(y, z))),                           when=lambda x, y, z: len(z) > x.ndim and x.shape == y.shape, numerics=ROUNDING, exact=both_steady),
    Rewrite("split-binary-left",   lambda f, x, y, z:          (reshape(f(x, y), z), f(reshape(x, z), y)),                                       when=lambda x, y, z: len(z) > x.ndim > y.ndim and shared_tail(x.shape, z) >= y.ndim, numerics=ROUNDING, exact=both_steady),
    Rewrite("merge-unary",         lambda f, x, z:             (f(reshape(x, z)), reshape(f(x), z)),                                             when=lambda x, z: len(z) < x.ndim, numerics=ROUNDING, exact=steady),
    Rewrite("merge-binary",        lambda f, x, y, z:          (f(reshape(x, z), reshape(y, z)), reshape(f(x, y), z)),                           when=lambda x, y, z: len(z) < x.ndim and x.shape == y.shape, numerics=ROUNDING, exact=both_steady),
    Rewrite("merge-binary-left",   lambda f, x, y, z:          (f(reshape(x, z), y), reshape(f(x, y), z)),                                       when=lambda x, y, z: y.ndim <= len(z) < x.ndim and shared_tail(x.shape, z) >= y.ndim, numerics=ROUNDING, exact=both_steady),
    Rewrite("unary-expand",        lambda f, x, z:             (f(expand(x, z)), expand(f(x), z)),                                                numerics=ROUNDING, exact=steady),
    Rewrite("binary-expand",       lambda f, x, y, z:          (f(expand(x, z), expand(y, z)), expand(f(x, y), z)),                               numerics=ROUNDING, exact=both_steady),
    Rewrite("binary-expand-scale", lambda f, x, a, z:          (f(expand(x, z), a), expand(f(x, a), z)),                                         when=lambda a: a.ndim == 0, numerics=ROUNDING, exact=Condition(("f", "x", "a"), both_steady)),
    Rewrite("binary-expand-left",  lambda f, x, y, z:          (f(expand(x, z), y), f(x, y)),                                                    when=lambda x, y, z: covers(y, x, z), numerics=ROUNDING, exact=both_steady),
    Rewrite("binary-expand-right", lambda f, x, y, z:          (f(y, expand(x, z)), f(y, x)),                                                    when=lambda x, y, z: covers(y, x, z), numerics=ROUNDING, exact=both_steady),
)


def covers_batch(a: Any, b: Any, z: Shape) -> bool:
    """Whether a product of `a` and `b` has the batch dims that expanding `b` to `z` would give it."""
    return z[-2:] == b.shape[-2:] and covers(Meta((*a.shape[:-2], *z[-2:]), a.dtype, a.device), b, z)


def covers(y: Any, x: Any, size: Shape) -> bool:
    """Whether `y` broadcast with `x` is no smaller than `y` broadcast with `x` expanded to `size`."""
    return y.ndim >= len(size) and all(
        y.shape[d] == size[d] or size[d] == 1 or (x.ndim >= -d and x.shape[d] == size[d]) for d in range(-len(size), 0)
    )


def _where(c: bool, x: bool, y: bool) -> Rewrite:
    """A slice of `where`, of the operands that span the dim."""
    name = "slice-where-" + "".join(letter for letter, cut_ in zip("cxy", (c, x, y), strict=True) if cut_)

    def rule(p: Any, a: Any, b: Any, d: Any, s: Any, e: Any, k: Any) -> Any:
        parts = (slice_(v, d, s, e, k) if cut_ else v for v, cut_ in zip((p, a, b), (c, x, y), strict=True))
        return slice_(torch.where(p, a, b), d, s, e, k), torch.where(*parts)

    return Rewrite(name, rule, when=lambda p, a, b, d: (spans(p, d), spans(a, d), spans(b, d)) == (c, x, y))


def _normed(name: str, operator: Any, parameters: int, when: Callable[..., bool]) -> Rewrite:
    """A slice of a norm along a dim that it does not normalise."""
    variables = ("x", *(f"w{i}" for i in range(parameters)), "n", "eps", "d", "s", "e", "k")

    def rule(x: Any, *rest: Any) -> Any:
        w, (n, eps, d, s, e, k) = rest[:parameters], rest[parameters:]
        return slice_(operator(x, *w, n, eps), d, s, e, k), operator(slice_(x, d, s, e, k), *w, n, eps)

    return Rewrite(f"slice-{name}-{parameters}", rule, when=when, numerics=ROUNDING, variables=variables)


MOVEMENT = (
    # Views of views.
    Rewrite("permute-compose",       lambda x, p, q:                  (permute(permute(x, p), q), permute(x, composed(p, q))),                  when=lambda p, q: not undoes(p, q)),
    Rewrite("permute-inverse",       lambda x, p, q:                  (permute(permute(x, p), q), x),                                           when=undoes),
    Rewrite("permute-identity",      lambda x, p:                     (permute(x, p), x),                                                       when=lambda p: fixed(p, len(p))),
    Rewrite("reshape-compose",       lambda x, y, z:                  (reshape(reshape(x, y), z), reshape(x, z)),                               when=lambda x, z: not same(x.shape, z)),
    Rewrite("reshape-inverse",       lambda x, y, z:                  (reshape(reshape(x, y), z), x),                                           when=lambda x, z: same(x.shape, z)),
    Rewrite("reshape-identity",      lambda x, z:                     (reshape(x, z), x),                                                       when=lambda x, z: x.shape == z),
    Rewrite("expand-compose",        lambda x, y, z:                  (expand(expand(x, y), z), expand(x, z))),
    Rewrite("expand-identity",       lambda x, z:                     (expand(x, z), x),                                                        when=lambda x, z: x.shape == z),
    Rewrite("slice-whole",           lambda x, d, e:                  (slice_(x, d, 0, e, 1), x),                                               when=lambda x, d, e: x.shape[d] == e),
    Rewrite("slice-compose",         lambda x, d, s, e, k, a, b, c:   (slice_(slice_(x, d, s, e, k), d, a, b, c), cut(x, cut_twice(d, s, e, k, a, b, c)))),
    Rewrite("slice-commute",         lambda x, d, s, e, k, i, a, b, c: (slice_(slice_(x, d, s, e, k), i, a, b, c), slice_(slice_(x, i, a, b, c), d, s, e, k)), when=lambda d, i: i < d),
    Rewrite("slice-permute",         lambda x, p, d, s, e, k:         (slice_(permute(x, p), d, s, e, k), permute(slice_(x, permuted(p, d), s, e, k), p))),
    Rewrite("slice-reshape",         lambda x, z, d, s, e, k:         (slice_(reshape(x, z), d, s, e, k), reshape(cut(x, source(x.shape, z, d, s, e, k)), resized(z, d, s, e, k))), when=lambda x, z, d, s, e, k: source(x.shape, z, d, s, e, k) is not None),
    Rewrite("slice-expand",          lambda x, z, d, s, e, k:         (slice_(expand(x, z), d, s, e, k), expand(slice_(x, d, s, e, k), resized(z, d, s, e, k))), when=spans),
    Rewrite("slice-expanded",        lambda x, z, d, s, e, k:         (slice_(expand(x, z), d, s, e, k), expand(x, resized(z, d, s, e, k))),        when=lambda x, d: not spans(x, d)),
    # Pointwise functions.
    *POINTWISE,
    *(_where(*which) for which in ((True, False, False), (True, True, False), (True, False, True), (True, True, True))),
    # Rows that are computed apart.
    Rewrite("slice-embedding",       lambda w, i, d, s, e, k:         (slice_(embedding(w, i), d, s, e, k), embedding(w, slice_(i, d + 1, s, e, k))), when=lambda d: d < -1),
    Rewrite("slice-reduction",       lambda x, f, r, h, d, s, e, k:   (slice_(reduction(f, x, r, h), d, s, e, k), reduction(f, slice_(x, reduced(r, h, x.ndim, d), s, e, k), r, h)), when=lambda x, r, h, d: reduced(r, h, x.ndim, d) is not None, numerics=ROUNDING),
    Rewrite("slice-softmax",         lambda x, n, d, s, e, k:         (slice_(softmax(x, n), d, s, e, k), softmax(slice_(x, d, s, e, k), n)),       when=lambda n, d: n != d, numerics=ROUNDING),
    Rewrite("slice-log-softmax",     lambda x, n, d, s, e, k:         (slice_(log_softmax(x, n), d, s, e, k), log_softmax(slice_(x, d, s, e, k), n)), when=lambda n, d: n != d, numerics=ROUNDING),
    Rewrite("slice-cumsum",          lambda x, n, d, s, e, k:         (slice_(cumsum(x, n), d, s, e, k), cumsum(slice_(x, d, s, e, k), n)),         when=lambda n, d: n != d),
    Rewrite("slice-batch-norm",      lambda x, w, b, m, v, u, d, s, e, k: (slice_(batch_norm(x, w, b, m, v, u), d, s, e, k), batch_norm(slice_(x, d, s, e, k), w, b, m, v, u)), when=lambda x, d: d != 1 - x.ndim, numerics=ROUNDING),
    *(_normed("layer-norm", layer_norm, k, lambda n, d: -d > len(n)) for k in range(3)),
    *(_normed("rms-norm", rms_norm, k, lambda n, d: -d > len(n)) for k in range(2)),
    *(_normed("group-norm", group_norm, k, lambda x, d: d == -x.ndim) for k in range(3)),
    # Contractions.
    Rewrite("slice-matmul-left",     lambda a, b, d, s, e, k:         (slice_(a @ b, d, s, e, k), slice_(a, d, s, e, k) @ b),                     when=lambda a, b, d: min(a.ndim, b.ndim) >= 2 and (d == -2 or (d < -2 and spans(a, d) and not spans(b, d))), numerics=ROUNDING),
    # Columns of given weights only: those of weights set side by side by a merge lead back, many times over.
    Rewrite("slice-matmul-right",    lambda a, b, d, s, e, k:         (slice_(a @ b, d, s, e, k), a @ slice_(b, d, s, e, k)),                     when=lambda a, b, d: min(a.ndim, b.ndim) >= 2 and (d == -1 or (d < -2 and spans(b, d) and not spans(a, d))), numerics=ROUNDING, facts=(ordered("b"),)),
    Rewrite("slice-matmul",          lambda a, b, d, s, e, k:         (slice_(a @ b, d, s, e, k), slice_(a, d, s, e, k) @ slice_(b, d, s, e, k)), when=lambda a, b, d: d < -2 and spans(a, d) and spans(b, d), numerics=ROUNDING),
    Rewrite("slice-affine-rows",     lambda x, w, b, d, s, e, k:      (slice_(affine(x, w, b), d, s, e, k), affine(slice_(x, d, s, e, k), w, b)), when=lambda w, b, d: d < -1 and w.ndim == 2 and b.ndim <= 1, numerics=ROUNDING),
    Rewrite("slice-affine-columns",  lambda x, w, b, s, e, k:         (slice_(affine(x, w, b), -1, s, e, k), affine(x, slice_(w, -1, s, e, k), slice_(b, -1, s, e, k))), when=lambda x, w, b: x.ndim >= 2 and w.ndim >= 2 and spans(b, -1), numerics=ROUNDING, facts=(ordered("w"),)),
    Rewrite("slice-attention-rows",  lambda q, k, v, c, a, g, s, e, t: (slice_(attention(q, k, v, c, a, g), -2, s, e, t), attention(slice_(q, -2, s, e, t), k, v, causal_after(c, s), a, g)), when=lambda q, k, c, s, e, t: queries(s, e, t, c, q, k), numerics=ROUNDING),
    Rewrite("slice-attention-masked", lambda q, k, v, m, a, g, s, e, t: (slice_(attention(q, k, v, m, False, a, g), -2, s, e, t), attention(slice_(q, -2, s, e, t), k, v, slice_(m, -2, s, e, t), False, a, g)), when=lambda m: spans(m, -2), numerics=ROUNDING),
    Rewrite("slice-attention-mask-shared", lambda q, k, v, m, a, g, s, e, t: (slice_(attention(q, k, v, m, False, a, g), -2, s, e, t), attention(slice_(q, -2, s, e, t), k, v, m, False, a, g)), when=lambda m: not spans(m, -2), numerics=ROUNDING),
    Rewrite("slice-attention-batch", lambda q, k, v, c, a, g, d, s, e, t: (slice_(attention(q, k, v, c, a, g), d, s, e, t), attention(slice_(q, d, s, e, t), slice_(k, d, s, e, t), slice_(v, d, s, e, t), c, a, g)), when=lambda q, k, v, g, d: d < -2 and not (g and d == -3) and spans(q, d) and spans(k, d) and spans(v, d), numerics=ROUNDING),
    Rewrite("slice-attention-batch-masked", lambda q, k, v, m, c, a, g, d, s, e, t: (slice_(attention(q, k, v, m, c, a, g), d, s, e, t), attention(slice_(q, d, s, e, t), slice_(k, d, s, e, t), slice_(v, d, s, e, t), slice_(m, d, s, e, t), c, a, g)), when=lambda q, k, v, m, g, d: d < -2 and not (g and d == -3) and spans(q, d) and spans(k, d) and spans(v, d) and spans(m, d), numerics=ROUNDING),
    Rewrite("slice-attention-batch-mask-shared", lambda q, k, v, m, c, a, g, d, s, e, t: (slice_(attention(q, k, v, m, c, a, g), d, s, e, t), attention(slice_(q, d, s, e, t), slice_(k, d, s, e, t), slice_(v, d, s, e, t), m, c, a, g)), when=lambda q, k, v, m, g, d: d < -2 and not (g and d == -3) and spans(q, d) and spans(k, d) and spans(v, d) and not spans(m, d), numerics=ROUNDING),
    Rewrite("slice-convolution",     lambda x, w, a, b, c, f, g, h, d, s, e, k: (slice_(convolution(x, w, a, b, c, f, g, h), d, s, e, k), convolution(slice_(x, d, s, e, k), w, a, b, c, f, g, h)), when=lambda x, d: d == -x.ndim, numerics=ROUNDING),
    Rewrite("slice-convolution-bias", lambda x, w, v, a, b, c, f, g, h, d, s, e, k: (slice_(convolution(x, w, v, a, b, c, f, g, h), d, s, e, k), convolution(slice_(x, d, s, e, k), w, v, a, b, c, f, g, h)), when=lambda x, d: d == -x.ndim, numerics=ROUNDING),
    Rewrite("slice-convolution-channels", lambda x, w, a, b, c, o, d, s, e: (slice_(convolution(x, w, a, b, c, False, o, 1), d, s, e, 1), convolution(x, slice_(w, first(w.ndim), s, e, 1), a, b, c, False, o, 1)), when=lambda x, d, s, e: d == 1 - x.ndim and s < e, numerics=ROUNDING, facts=(ordered("w"),)),
    Rewrite("slice-convolution-bias-channels", lambda x, w, v, a, b, c, o, d, s, e: (slice_(convolution(x, w, v, a, b, c, False, o, 1), d, s, e, 1), convolution(x, slice_(w, first(w.ndim), s, e, 1), slice_(v, -1, s, e, 1), a, b, c, False, o, 1)), when=lambda x, d, s, e: d == 1 - x.ndim and s < e, numerics=ROUNDING, facts=(ordered("w"),)),
    # Products of reshaped operands: towards the form with more dims.
    Rewrite("split-matmul",          lambda x, w, z:                  (reshape(x @ w, z), reshape(x, headed(z, x.shape)) @ w),                    when=lambda x, w, z: w.ndim == 2 and len(z) > x.ndim >= 2 and z[-1] == w.shape[-1], numerics=ROUNDING),
    Rewrite("merge-matmul",          lambda x, w, z:                  (reshape(x, z) @ w, reshape(x @ w, headed(z, w.shape))),                    when=lambda x, w, z: w.ndim == 2 and 2 <= len(z) < x.ndim and z[-1] == x.shape[-1], numerics=ROUNDING),
    Rewrite("split-affine",          lambda x, w, b, z:               (reshape(affine(x, w, b), z), affine(reshape(x, headed(z, x.shape)), w, b)), when=lambda x, w, b, z: w.ndim == 2 and b.ndim <= 1 and len(z) > x.ndim >= 2 and z[-1] == w.shape[-1], numerics=ROUNDING),
    Rewrite("merge-affine",          lambda x, w, b, z:               (affine(reshape(x, z), w, b), reshape(affine(x, w, b), headed(z, w.shape))), when=lambda x, w, b, z: w.ndim == 2 and b.ndim <= 1 and 2 <= len(z) < x.ndim and z[-1] == x.shape[-1], numerics=ROUNDING),
    Rewrite("split-bmm",             lambda a, b, z:                  (reshape(a @ b, z), reshape(a, headed(z, a.shape, 2)) @ reshape(b, headed(z, b.shape, 2))), when=lambda a, b, z: len(z) > a.ndim == b.ndim >= 3 and a.shape[:-2] == b.shape[:-2] and z[-2:] == (a.shape[-2], b.shape[-1]), numerics=ROUNDING),
    Rewrite("merge-bmm",             lambda a, b, y, z:               (reshape(a, y) @ reshape(b, z), reshape(a @ b, headed(y, (a @ b).shape, 2))), when=lambda a, b, y, z: a.ndim == b.ndim > len(y) == len(z) >= 3 and a.shape[:-2] == b.shape[:-2] and y[-2:] == a.shape[-2:] and z[-2:] == b.shape[-2:], numerics=ROUNDING),
    Rewrite("split-softmax",         lambda x, d, z:                  (reshape(softmax(x, d), z), softmax(reshape(x, z), d)),                     when=lambda x, d, z: len(z) > x.ndim and shared_tail(x.shape, z) >= -d, numerics=ROUNDING),
    Rewrite("merge-softmax",         lambda x, d, z:                  (softmax(reshape(x, z), d), reshape(softmax(x, d), z)),                     when=lambda x, d, z: len(z) < x.ndim and shared_tail(x.shape, z) >= -d, numerics=ROUNDING),
    Rewrite("matmul-expand-left",    lambda a, b, z:                  (expand(a, z) @ b, a @ b),                                                  when=lambda a, b, z: covers_batch(b, a, z), numerics=ROUNDING),
    Rewrite("matmul-expand-right",   lambda a, b, z:                  (a @ expand(b, z), a @ b),                                                  when=covers_batch, numerics=ROUNDING),
    Rewrite("matmul-batch-of-one",   lambda a, b:                     (a @ b, a @ reshape(b, matrix(b.shape))),                                   when=lambda a, b: a.ndim >= b.ndim > 2 and set(b.shape[:-2]) == {1}, numerics=ROUNDING),
    Rewrite("permute-softmax",       lambda x, d, p:                  (permute(softmax(x, d), p), softmax(permute(x, p), placed(p, d))),          numerics=ROUNDING),
    Rewrite("permute-bmm",           lambda a, b, p:                  (permute(a @ b, p), permute(a, p) @ permute(b, p)),                         when=lambda a, b, p: a.ndim == b.ndim > 2 and fixed(p, 2), numerics=ROUNDING),
)
