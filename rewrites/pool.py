"""Pooling, resampling, padding and rolling: after what does less on small images, before what does less on large ones."""

from __future__ import annotations

import math
from typing import Any

import torch

from eqsat.functions import Function
from eqsat.meta import Meta, Scalar
from eqsat.operators import (
    MEAN,
    adaptive_avg_pool2d,
    affine,
    avg_pool2d,
    convolution,
    max_pool2d,
    pad,
    permute,
    reduction,
    reshape,
    roll,
    slice_,
    upsample_bilinear2d,
    upsample_nearest2d,
)
from eqsat.rewrite import ROUNDING, Condition, Rewrite, attribute, finite
from rewrites.attributes import additive, steady
from rewrites.conv import matrix, mean_weights, placewise
from rewrites.movement import cut
from rewrites.reduce import MONOTONE

Padding = tuple[int, ...]
AVERAGE, MAXIMUM = "k s p c i v", "k s p u c"


@attribute
def absorbed(padding: tuple[int, ...], added: Padding) -> tuple[int, ...]:
    """The padding of a convolution of what was padded by `added` before."""
    n = len(padding)
    return tuple(p + beside(added, d - n)[0] for d, p in enumerate(padding))


@attribute
def summed(p: Padding, q: Padding) -> Padding:
    """The padding that is `p`, then `q`."""
    size = max(len(p), len(q))
    return tuple(a + b for a, b in zip(p + (0,) * (size - len(p)), q + (0,) * (size - len(q)), strict=True))


@attribute
def beside(padding: Padding, dim: int) -> tuple[int, int]:
    """What is added before and after dim `dim`."""
    at = -2 * dim - 2
    return (padding[at], padding[at + 1]) if at < len(padding) else (0, 0)


@attribute
def without(padding: Padding, dim: int) -> Padding:
    """The padding of the dims other than `dim`."""
    at = -2 * dim - 2
    return tuple(0 if at <= i <= at + 1 else n for i, n in enumerate(padding))


@attribute
def inner(padding: Padding, dim: int, start: Any, end: Any, step: int) -> tuple[int, Any, Any, int]:
    """The slice of the operand that is this slice of it padded."""
    low = beside(padding, dim)[0]
    return dim, start - low, end - low, step


@attribute
def turned(shape: tuple[Any, ...], s: tuple[int, ...], t: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    """The shifts that are `s`, then `t`."""
    return tuple((a + b) % max(shape[d], 1) for a, b, d in zip(s, t, dims, strict=True))


@attribute
def mapped(z: tuple[Any, ...], w: Any) -> tuple[Any, ...]:
    """The shape of an image of shape `z` with the output channels of the weight `w`."""
    return (z[0], w.shape[0], *z[2:])


def of_rows(x: Any, r: Any, z: Any, w: Any, a: Any, b: Any, t: bool, g: int) -> bool:
    """Whether an image of shape `z` holds rows of channels, of which the convolution maps each by itself."""
    rows = x.ndim == 3 and r == (0, 2, 1) and len(z) == w.ndim and tuple(z[:2]) == (x.shape[0], x.shape[2])
    return rows and g == 1 and placewise(w, a, b, t)


def imaged(x: Any, w: Any) -> bool:
    """Whether images have elements: not every kernel takes others, even where the padding makes them an image."""
    return all(size != 0 for size in x.shape[2 - w.ndim :])


def symmetric(t: Any, padding: Padding, ndim: int) -> bool:
    """Whether a convolution that is not transposed can pad by `padding` itself."""
    pairs = zip(padding[::2], padding[1::2], strict=True)
    return not t and len(padding) <= 2 * (ndim - 2) and all(a == b for a, b in pairs)


def seen(p: Any, u: Any) -> bool:
    """Whether every window of a max pool holds an element: with a dilation, one may lie in the padding."""
    return set(u) == {1} or set(p) == {0}


def planar(y: Any) -> bool:
    """Whether `y` is a number, or has one element for each plane."""
    return y.ndim == 0 or (y.ndim >= 2 and tuple(y.shape[-2:]) == (1, 1))


def plane(x: Any, y: Any) -> bool:
    """Whether `y` scales whole planes of `x`, and leaves its dtype and rank."""
    return planar(y) and y.ndim <= x.ndim and (y.ndim == 0 or y.dtype == x.dtype)


def stay(f: Function, *operands: Any) -> bool:
    """Whether a function of floating-point numbers gives such: no kernel resamples others."""
    values = [torch.ones(1, dtype=x.dtype) if isinstance(x, Meta) else x.value for x in operands]
    return operands[0].dtype.is_floating_point and f(*values).dtype.is_floating_point


def stays(f: Function, x: Any) -> bool:
    """Whether a function of one operand does."""
    return stay(f, x)


def _plane(name: str, operator: Any, attributes: str) -> Rewrite:
    """A slice of planes that are pooled or resampled one by one."""

    def rule(x: Any, d: Any, s: Any, e: Any, k: Any, *a: Any) -> Any:
        return slice_(operator(x, *a), d, s, e, k), operator(slice_(x, d, s, e, k), *a)

    variables = ("x", "d", "s", "e", "k", *(f"a_{a}" for a in attributes.split()))
    return Rewrite(f"slice-{name}", rule, when=lambda d, s, e: d < -2 and s < e, numerics=ROUNDING, variables=variables)


def _linear(name: str, operator: Any, attributes: str, padding: str, early: bool) -> tuple[Rewrite, ...]:
    """Scales, shifts and sums across a linear map of planes: to the side where planes are small.

    `padding` are the attributes that say whether the weights of a place add up to 1, which they do
    without any; `early` says whether what follows the map moves before it.
    """
    a = tuple(attributes.split())

    def scale(f: Any, x: Any, y: Any, *a: Any) -> Any:
        sides = operator(f(x, y), *a), f(operator(x, *a), y)
        return sides[::-1] if early else sides

    def both(f: Any, x: Any, y: Any, *a: Any) -> Any:
        sides = operator(f(x, y), *a), f(operator(x, *a), operator(y, *a))
        return sides[::-1] if early else sides

    def shifts(f: Function, x: Any, y: Any, *padding: Any) -> bool:
        return additive(f) and plane(x, y) and (not padding or mean_weights(*padding))

    return (
        Rewrite(f"{name}-number", scale, Condition(("f", "y"), lambda f, y: f.name == "mul" and y.ndim == 0 and isinstance(y, Scalar) and math.isfinite(y.value)), numerics=ROUNDING, variables=("f", "x", "y", *a)),
        Rewrite(f"{name}-scale", scale, Condition(("f", "x", "y"), lambda f, x, y: f.name == "mul" and plane(x, y)), numerics=ROUNDING, facts=(finite("y"),), variables=("f", "x", "y", *a)),
        Rewrite(f"{name}-shift", scale, Condition(("f", "x", "y", *padding.split()), shifts), numerics=ROUNDING, variables=("f", "x", "y", *a)),
        Rewrite(f"{name}-sum", both, Condition(("f", "x", "y"), lambda f, x, y: additive(f) and x.shape == y.shape and x.dtype == y.dtype), numerics=ROUNDING, variables=("f", "x", "y", *a)),
    )


POOL = (
    _plane("avg-pool", avg_pool2d, AVERAGE),
    _plane("adaptive-avg-pool", adaptive_avg_pool2d, "z"),
    _plane("max-pool", max_pool2d, MAXIMUM),
    _plane("nearest", upsample_nearest2d, "z s"),
    _plane("bilinear", upsample_bilinear2d, "z a s"),
    *_linear("avg-pool", avg_pool2d, AVERAGE, "p i v", early=False),
    *_linear("adaptive-avg-pool", adaptive_avg_pool2d, "z", "", early=False),
    *_linear("bilinear", upsample_bilinear2d, "z a s", "", early=True),
    Rewrite("adaptive-mean",          lambda x, z:                         (adaptive_avg_pool2d(x, z), reduction(MEAN, x, (-2, -1), True)),                                          when=lambda z: z == (1, 1), numerics=ROUNDING),
    Rewrite("avg-pool-mean",          lambda x, k, s, p, c, i, v:          (avg_pool2d(x, k, s, p, c, i, v), reduction(MEAN, x, (-2, -1), True)),                                    when=lambda x, k, p, v: v is None and set(p) == {0} and k == tuple(x.shape[-2:]), numerics=ROUNDING),
    Rewrite("max-pool-monotone",      lambda f, x, k, s, p, u, c:          (max_pool2d(f(x), k, s, p, u, c), f(max_pool2d(x, k, s, p, u, c))),                                       when=lambda f, x, p, u: x.dtype.is_floating_point and f.name in MONOTONE and seen(p, u), numerics=ROUNDING),
    # A nearest neighbour is a copy.
    Rewrite("nearest-unary",          lambda f, x, z, s:                   (f(upsample_nearest2d(x, z, s)), upsample_nearest2d(f(x), z, s)),                                         when=stays, numerics=ROUNDING, exact=steady),
    Rewrite("nearest-binary",         lambda f, x, y, z, s:                (f(upsample_nearest2d(x, z, s), upsample_nearest2d(y, z, s)), upsample_nearest2d(f(x, y), z, s)),         when=lambda f, x, y: x.shape == y.shape and stay(f, x, y), numerics=ROUNDING),
    Rewrite("nearest-binary-planes",  lambda f, x, y, z, s:                (f(upsample_nearest2d(x, z, s), y), upsample_nearest2d(f(x, y), z, s)),                                   when=lambda f, x, y: planar(y) and y.ndim <= x.ndim and stay(f, x, y), numerics=ROUNDING),
    # Padding. Some kernels multiply the zeros beside an image, which is NaN where a weight is not finite; others skip them.
    Rewrite("pad-nothing",            lambda x, p, v:                      (pad(x, p, v), x),                                                                                        when=lambda p: not any(p)),
    Rewrite("pad-compose",            lambda x, p, q, v:                   (pad(pad(x, p, v), q, v), pad(x, summed(p, q), v))),
    Rewrite("slice-pad",              lambda x, p, v, d, s, e, k:          (slice_(pad(x, p, v), d, s, e, k), pad(slice_(x, d, s, e, k), p, v)),                                     when=lambda p, d: beside(p, d) == (0, 0)),
    Rewrite("slice-pad-inside",       lambda x, p, v, d, s, e, k:          (slice_(pad(x, p, v), d, s, e, k), pad(cut(x, inner(p, d, s, e, k)), without(p, d), v)),                   when=lambda x, p, d, s, e: any(beside(p, d)) and beside(p, d)[0] <= s and e <= beside(p, d)[0] + x.shape[d]),
    Rewrite("convolution-pad",        lambda x, q, v, w, a, b, c, t, o, g: (convolution(pad(x, q, v), w, a, b, c, t, o, g), convolution(x, w, a, absorbed(b, q), c, t, o, g)),       when=lambda x, w, q, v, t: v == 0 and symmetric(t, q, x.ndim) and imaged(x, w), numerics=ROUNDING, facts=(finite("w"),)),
    Rewrite("convolution-bias-pad",   lambda x, q, v, w, u, a, b, c, t, o, g: (convolution(pad(x, q, v), w, u, a, b, c, t, o, g), convolution(x, w, u, a, absorbed(b, q), c, t, o, g)), when=lambda x, w, q, v, t: v == 0 and symmetric(t, q, x.ndim) and imaged(x, w), numerics=ROUNDING, facts=(finite("w"),)),
    # Rolling.
    Rewrite("roll-compose",           lambda x, s, t, d:                   (roll(roll(x, s, d), t, d), roll(x, turned(x.shape, s, t, d), d))),
    Rewrite("roll-nothing",           lambda x, s, d:                      (roll(x, s, d), x),                                                                                       when=lambda s: not any(s)),
    # A convolution of one place is a product of rows, and moves with them: what was rows becomes rows again.
    Rewrite("convolution-rows",       lambda x, r, z, w, a, b, c, t, o, g: (convolution(reshape(permute(x, r), z), w, a, b, c, t, o, g), reshape((x @ reshape(w, matrix(w)).mT).mT, mapped(z, w))),        when=of_rows, numerics=ROUNDING),
    Rewrite("convolution-bias-rows",  lambda x, r, z, w, u, a, b, c, t, o, g: (convolution(reshape(permute(x, r), z), w, u, a, b, c, t, o, g), reshape(affine(x, reshape(w, matrix(w)).mT, u).mT, mapped(z, w))),  when=of_rows, numerics=ROUNDING),
)
