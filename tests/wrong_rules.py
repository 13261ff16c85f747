"""Rules that are wrong, each in another way, and right ones that look like them."""

from __future__ import annotations

from typing import Any

import torch

from eqsat.operators import (
    AMAX,
    MEAN,
    SUM,
    affine,
    attention,
    avg_pool2d,
    cat,
    convolution,
    embedding,
    full,
    layer_norm,
    permute,
    reduction,
    reshape,
    rms_norm,
    slice_,
    softmax,
    to,
)
from eqsat.rewrite import RELAXED, ROUNDING, Rewrite, attribute, finite

CPU = torch.device("cpu")


@attribute
def compose(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that is `p`, then `q`."""
    return tuple(p[i] for i in q)


@attribute
def wider(padding: tuple[int, ...]) -> tuple[int, ...]:
    """One element more on both sides of the last dim."""
    return (*padding[:-1], padding[-1] + 1)


@attribute
def halved(count: int) -> int:
    """Half as many, rounded up."""
    return -(-count // 2)


@attribute
def doubled(groups: int) -> int:
    """Twice as many groups."""
    return 2 * groups


def filled(x: Any, value: float) -> Any:
    """A tensor like `x` that holds one value."""
    return full(x.shape, value, x.dtype, CPU)


def real(x: Any) -> bool:
    """Whether a meta is that of a floating-point tensor."""
    return x.ndim > 0 and x.dtype.is_floating_point


def whole(x: Any) -> bool:
    """Whether a meta is that of a tensor of signed integers."""
    return x.ndim > 0 and x.dtype in (torch.int64, torch.int32)


def divided(a: Any, b: Any) -> Any:
    """The quotient of integers, rounded down."""
    return torch.div(a, b, rounding_mode="floor")


def halves(y: Any, dim: int, n: Any, m: Any) -> tuple[Any, Any]:
    """The first `n` and the next `m` elements of `y` along `dim`."""
    return slice_(y, dim, 0, n, 1), slice_(y, dim, n, n + m, 1)


# The unsound rules of TASO's released set, as one family each: what groups do to channels.


def convolutions_of_one_input(
    x: Any, a: Any, b: Any, s: Any, p: Any, d: Any, o: Any, g: Any
) -> Any:
    """Two convolutions of one input become one with their weights set side by side."""
    geometry = (s, p, d, False, o, g)
    merged = convolution(x, cat([a, b], -3), *geometry)
    sides = convolution(x, a, *geometry), convolution(x, b, *geometry)
    return sides, halves(merged, -2, a.shape[0], b.shape[0])


def convolutions_side_by_side(
    x: Any, a: Any, b: Any, s: Any, p: Any, d: Any, o: Any, g: Any
) -> Any:
    """Results of one input set side by side become one convolution."""
    geometry = (s, p, d, False, o, g)
    return (
        cat([convolution(x, a, *geometry), convolution(x, b, *geometry)], -2),
        convolution(x, cat([a, b], -3), *geometry),
    )


def convolutions_grouped(
    x: Any, y: Any, a: Any, b: Any, s: Any, p: Any, d: Any, o: Any, g: Any
) -> Any:
    """Results of two inputs set side by side become one convolution of twice the groups."""
    geometry = (s, p, d, False, o)
    return (
        cat([convolution(x, a, *geometry, g), convolution(y, b, *geometry, g)], -2),
        convolution(cat([x, y], -2), cat([a, b], -3), *geometry, doubled(g)),
    )


def convolutions_added(
    x: Any, y: Any, a: Any, b: Any, s: Any, p: Any, d: Any, o: Any, g: Any
) -> Any:
    """A sum of convolutions becomes one of inputs, and of weights, set side by side."""
    geometry = (s, p, d, False, o, g)
    return (
        convolution(x, a, *geometry) + convolution(y, b, *geometry),
        convolution(cat([x, y], -2), cat([a, b], -2), *geometry),
    )


def convolutions_enlarged(x: Any, a: Any, b: Any, s: Any, p: Any, d: Any, o: Any, g: Any) -> Any:
    """A weight is framed by zeros to the width of another, and both become one convolution."""
    edge = slice_(a, -1, 0, 1, 1) * 0
    geometry = (s, wider(p), d, False, o, g)
    merged = convolution(x, cat([cat([edge, a, edge], -1), b], -3), *geometry)
    sides = convolution(x, a, s, p, d, False, o, g), convolution(x, b, *geometry)
    return sides, halves(merged, -2, a.shape[0], b.shape[0])


def one_dim(a: Any) -> bool:
    """Whether `a` is the weight of a convolution of one dim."""
    return a.ndim == 3


def one_group(a: Any, g: Any) -> bool:
    """Whether `a` is the weight of such a convolution without groups."""
    return a.ndim == 3 and g == 1


def dense(a: Any, d: Any) -> bool:
    """Whether `a` is such a weight, and is not dilated."""
    return a.ndim == 3 and set(d) == {1}


def dense_group(a: Any, d: Any, g: Any) -> bool:
    """Whether it is so, and there are no groups."""
    return dense(a, d) and g == 1


UNSOUND = (
    Rewrite("zero-product-exact", lambda x: (x * 0, filled(x, 0)), when=real),
    Rewrite("zero-product", lambda x: (x * 0, filled(x, 0)), when=real, numerics=ROUNDING),
    Rewrite("self-difference", lambda x: (x - x, filled(x, 0)), when=real, numerics=ROUNDING),
    Rewrite("self-quotient", lambda x: (x / x, filled(x, 1)), when=real, numerics=ROUNDING),
    Rewrite("log-exp", lambda x: (torch.log(torch.exp(x)), x)),
    Rewrite("add-then-subtract", lambda x, a: ((x + a) - a, x)),
    Rewrite("add-associate-exact", lambda x, a, b: ((x + a) + b, x + (a + b))),
    Rewrite("add-zero", lambda x: (x + 0.0, x)),
    Rewrite("negate-zero", lambda x: (0.0 - x, -x)),
    Rewrite("sub-swapped", lambda x, y: (x - y, y - x), numerics=ROUNDING),
    Rewrite("div-swapped", lambda x, y: (x / y, y / x), numerics=RELAXED),
    Rewrite("transpose-dropped", lambda x: (x.mT, x), numerics=RELAXED),
    Rewrite("product-transpose", lambda a, b: ((a @ b).mT, a.mT @ b.mT), numerics=ROUNDING),
    Rewrite("product-commute", lambda a, b: (a @ b, b @ a), numerics=ROUNDING),
    Rewrite("product-distribute", lambda x, a, b: (x @ (a * b), (x @ a) * b), numerics=ROUNDING),
    Rewrite(
        "permute-order", lambda x, p, q: (permute(permute(x, p), q), permute(x, compose(q, p)))
    ),
    Rewrite("permute-as-reshape", lambda x: (x.mT, reshape(x, x.mT.shape))),
    Rewrite("softmax-dim", lambda x: (softmax(x, -1), softmax(x, -2)), numerics=ROUNDING),
    Rewrite("softmax-scale", lambda x: (softmax(x * 2.0, -1), softmax(x, -1)), numerics=RELAXED),
    Rewrite("relu-of-nan", lambda x: (torch.relu(x), torch.where(torch.gt(x, 0), x, 0.0))),
    Rewrite("relu-of-sum", lambda x, y: (torch.relu(x + y), torch.relu(x) + torch.relu(y))),
    Rewrite("maximum-zero", lambda x: (torch.maximum(x, -x), torch.abs(x)), when=real),
    Rewrite("sqrt-square", lambda x: (torch.sqrt(x * x), x), numerics=ROUNDING),
    Rewrite("cast-narrow", lambda x: (to(to(x, torch.bfloat16), torch.float32), x)),
    Rewrite(
        "sum-dim",
        lambda x: (reduction(SUM, x, (-1,), False), reduction(SUM, x, (-2,), False)),
        numerics=ROUNDING,
    ),
    Rewrite(
        "amax-of-product",
        lambda x: (reduction(AMAX, x * -1, (-1,), False), reduction(AMAX, x, (-1,), False) * -1),
        numerics=RELAXED,
    ),
    Rewrite("slice-shift", lambda x, d, s, e: (slice_(x, d, s, e, 1), slice_(x, d, 0, e - s, 1))),
    Rewrite("cat-swapped", lambda x, y: (cat([x, y], -1), cat([y, x], -1))),
    Rewrite("where-swapped", lambda c, x, y: (torch.where(c, x, y), torch.where(c, y, x))),
    Rewrite("any-function-is-odd", lambda f, x: (f(-x), -f(x)), numerics=RELAXED),
    Rewrite(
        "any-function-distributes",
        lambda f, x, y: (f(x, y) * 2, f(x * 2, y * 2)),
        numerics=ROUNDING,
    ),
    Rewrite("number-product", lambda x, a, b: (x * a + x * b, x * (a * b)), numerics=ROUNDING),
    Rewrite("second-output", lambda x, y: ((x + y, x - y), (y + x, y - x)), numerics=ROUNDING),
    Rewrite(
        "norm-scale",
        lambda x, n, e: (layer_norm(x * 3.0, n, e), layer_norm(x, n, e)),
        numerics=ROUNDING,
    ),
    # Groups.
    Rewrite("convolution-merge", convolutions_of_one_input, when=one_dim, numerics=ROUNDING),
    Rewrite("convolution-cat", convolutions_side_by_side, when=one_dim, numerics=ROUNDING),
    Rewrite("convolution-group", convolutions_grouped, when=one_dim, numerics=ROUNDING),
    Rewrite("convolution-add", convolutions_added, when=one_dim, numerics=ROUNDING),
    Rewrite("convolution-enlarge", convolutions_enlarged, when=dense, numerics=ROUNDING),
    # Arithmetic.
    Rewrite("divide-then-multiply", lambda x, y: (divided(x, y) * y, x), when=whole),
    Rewrite("floor-of-product", lambda x, a: (divided(x * a, a), x), when=whole),
    Rewrite(
        "floor-as-truncation",
        lambda x, y: (divided(x, y), torch.div(x, y, rounding_mode="trunc")),
        when=whole,
    ),
    Rewrite(
        "remainder-as-fmod", lambda x, y: (torch.remainder(x, y), torch.fmod(x, y)), when=whole
    ),
    Rewrite(
        "integer-is-not-negative",
        lambda x: (torch.abs(torch.abs(x)), torch.relu(torch.abs(x))),
        when=whole,
    ),
    Rewrite("halve-integer", lambda x: ((x + x) / 2, x * 1.0), when=whole),
    Rewrite(
        "exp-of-sum",
        lambda x, y: (torch.exp(x + y), torch.exp(x) + torch.exp(y)),
        numerics=ROUNDING,
    ),
    Rewrite(
        "log-of-product",
        lambda x, y: (torch.log(x * y), torch.log(x) + torch.log(y)),
        when=lambda x, y: real(x) and real(y),
        numerics=ROUNDING,
    ),
    Rewrite("negative-zero", lambda x: (x * 0.0, x - x), when=real),
    Rewrite(
        "maximum-of-nan",
        lambda x, y: (torch.maximum(x, y), torch.where(torch.gt(x, y), x, y)),
        when=lambda x, y: real(x) and real(y),
    ),
    Rewrite(
        "not-less",
        lambda x, y: (torch.logical_not(torch.lt(x, y)), torch.ge(x, y)),
        when=lambda x, y: real(x) and real(y),
    ),
    Rewrite(
        "equal-to-itself",
        lambda x: (torch.eq(x, x), full(x.shape, True, torch.bool, CPU)),
        when=real,
    ),
    Rewrite(
        "clamp-order",
        lambda x: (
            torch.minimum(torch.relu(x - 1.0), x * 0.0 + 1.0),
            torch.relu(torch.minimum(x - 1.0, x * 0.0)) + 1.0,
        ),
        when=real,
        numerics=ROUNDING,
    ),
    Rewrite(
        "almost-equal",
        lambda x: (x * 65537, x * 65536),
        when=lambda x: x.ndim > 0 and x.dtype == torch.float32,
        numerics=ROUNDING,
    ),
    # Casts.
    Rewrite(
        "cast-to-integer",
        lambda x: (to(to(x, torch.int64), torch.float64), x),
        when=lambda x: x.dtype == torch.float64,
        numerics=ROUNDING,
    ),
    Rewrite(
        "cast-to-byte",
        lambda x: (to(to(x, torch.uint8), torch.int64), x),
        when=lambda x: x.dtype == torch.int64,
    ),
    Rewrite(
        "cast-to-bool",
        lambda x: (to(to(x, torch.bool), torch.float32), x),
        when=lambda x: x.dtype == torch.float32,
        numerics=ROUNDING,
    ),
    Rewrite(
        "cast-before-sum",
        lambda x, y: (to(x + y, torch.float64), to(x, torch.float64) + to(y, torch.float64)),
        when=lambda x, y: x.dtype == y.dtype == torch.float32,
    ),
    Rewrite(
        "cast-drops-overflow",
        lambda x: (to(to(x, torch.float16), torch.float32), x),
        when=lambda x: x.dtype == torch.float32,
    ),
    # Reductions and norms.
    Rewrite(
        "mean-of-means",
        lambda x: (
            reduction(MEAN, x, (-2, -1), False),
            reduction(SUM, reduction(MEAN, x, (-1,), False), (-1,), False),
        ),
        when=real,
        numerics=ROUNDING,
    ),
    Rewrite(
        "mean-weights",
        lambda x, y: (
            reduction(MEAN, cat([x, y], -1), (-1,), False),
            (reduction(MEAN, x, (-1,), False) + reduction(MEAN, y, (-1,), False)) * 0.5,
        ),
        when=lambda x, y: real(x) and real(y),
        numerics=ROUNDING,
    ),
    Rewrite(
        "mean-of-product",
        lambda x, y: (
            reduction(MEAN, x * y, (-1,), False),
            reduction(MEAN, x, (-1,), False) * reduction(MEAN, y, (-1,), False),
        ),
        when=lambda x, y: real(x) and real(y) and x.shape == y.shape,
        numerics=ROUNDING,
    ),
    Rewrite(
        "sum-of-broadcast",
        lambda x, y: (
            reduction(SUM, x + y, (-1,), False),
            reduction(SUM, x, (-1,), False) + reduction(SUM, y, (-1,), False),
        ),
        when=lambda x, y: real(x) and real(y),
        numerics=ROUNDING,
    ),
    Rewrite(
        "softmax-product",
        lambda x, v: (softmax(x, -1) @ v, softmax(x @ v, -1)),
        when=real,
        numerics=ROUNDING,
    ),
    Rewrite(
        "norm-weight-order",
        lambda x, w, n, e: (rms_norm(x * w, n, e), rms_norm(x, n, e) * w),
        when=real,
        numerics=ROUNDING,
    ),
    Rewrite(
        "norm-without-mean",
        lambda x, n, e: (layer_norm(x, n, e), rms_norm(x, n, e)),
        numerics=ROUNDING,
    ),
    # Products and biases.
    Rewrite(
        "bias-of-rows", lambda x, w, b: (x @ w + b, affine(w.mT, x.mT, b).mT), numerics=ROUNDING
    ),
    Rewrite(
        "bias-twice",
        lambda x, w, v, b: (affine(x, w, b) + affine(x, v, b), affine(x, w + v, b)),
        numerics=ROUNDING,
    ),
    Rewrite(
        "bias-before-product",
        lambda x, w, v, b: (affine(x, w, b) @ v, affine(x, w @ v, b)),
        numerics=ROUNDING,
    ),
    Rewrite(
        "product-power", lambda a, b: ((a @ b) @ (a @ b), (a @ a) @ (b @ b)), numerics=ROUNDING
    ),
    Rewrite(
        "attention-scale-forgotten",
        lambda q, k, v, c, a, g: (attention(q * 0.5, k, v, c, a, g), attention(q, k, v, c, a, g)),
        numerics=ROUNDING,
    ),
    Rewrite(
        "attention-causality-lost",
        lambda q, k, v, a, g: (attention(q, k, v, True, a, g), attention(q, k, v, False, a, g)),
        numerics=ROUNDING,
    ),
    # Views.
    Rewrite(
        "slice-end",
        lambda x, d, s, e: (
            slice_(slice_(x, d, s, e, 1), d, 0, 1, 1),
            slice_(x, d, s + 1, s + 2, 1),
        ),
    ),
    Rewrite(
        "slice-step",
        lambda x, d, s, e: (
            slice_(x, d, s, e, 2),
            slice_(slice_(x, d, s, e, 1), d, 0, halved(e - s), 1),
        ),
    ),
    Rewrite(
        "embedding-commute",
        lambda w, i: (embedding(w, i), embedding(w, permute(i, (1, 0)))),
        when=lambda i: i.ndim == 2,
    ),
    Rewrite(
        "pool-of-relu",
        lambda x, k, s, p, c, i, o: (
            avg_pool2d(torch.relu(x), k, s, p, c, i, o),
            torch.relu(avg_pool2d(x, k, s, p, c, i, o)),
        ),
        numerics=ROUNDING,
    ),
)


SOUND = (
    Rewrite("zero-product-finite", lambda x: (x * 0, filled(x, 0)), when=real, numerics=RELAXED),
    Rewrite("neg-neg", lambda x: (torch.neg(torch.neg(x)), x)),
    Rewrite("add-commute", lambda x, y: (x + y, y + x), when=lambda x, y: real(x) and real(y)),
    Rewrite("sub-as-add", lambda x, y: (x - y, x + (-y)), when=lambda x, y: real(x) and real(y)),
    Rewrite(
        "product-associate",
        lambda a, b, c: ((a @ b) @ c, a @ (b @ c)),
        when=lambda b: b.ndim == 2,
        numerics=ROUNDING,
    ),
    Rewrite(
        "slice-of-relu",
        lambda x, d, s, e, k: (
            slice_(torch.relu(x), d, s, e, k),
            torch.relu(slice_(x, d, s, e, k)),
        ),
    ),
    Rewrite("cast-widen", lambda x: (to(to(x, torch.float64), torch.float32), x)),
    Rewrite(
        "add-numbers",
        lambda x, a, b: ((x + a) + b, x + (a + b)),
        when=lambda a, b: a.ndim + b.ndim == 0,
        numerics=ROUNDING,
    ),
    Rewrite(
        "norm-shift",
        lambda x, n, e: (layer_norm(x + 3.0, n, e), layer_norm(x, n, e)),
        numerics=ROUNDING,
    ),
    Rewrite("softmax-shift", lambda x, d: (softmax(x + 1.0, d), softmax(x, d)), numerics=ROUNDING),
    Rewrite(
        "sum-zero",
        lambda x: (x * 0, filled(x, 0)),
        when=real,
        numerics=ROUNDING,
        facts=(finite("x"),),
    ),
    Rewrite("convolution-merge", convolutions_of_one_input, when=one_group, numerics=ROUNDING),
    Rewrite("convolution-cat", convolutions_side_by_side, when=one_group, numerics=ROUNDING),
    Rewrite(
        "convolution-group",
        convolutions_grouped,
        when=lambda a, b, g: one_group(a, g) and a.shape == b.shape,
        numerics=ROUNDING,
    ),
    Rewrite("convolution-add", convolutions_added, when=one_group, numerics=ROUNDING),
    Rewrite("convolution-enlarge", convolutions_enlarged, when=dense_group, numerics=RELAXED),
    Rewrite(
        "mean-of-means",
        lambda x: (
            reduction(MEAN, x, (-2, -1), False),
            reduction(MEAN, reduction(MEAN, x, (-1,), False), (-1,), False),
        ),
        when=real,
        numerics=ROUNDING,
    ),
)


# The union of these is refused for every shape: their sides differ in shape or dtype.
UNMATCHED = (
    Rewrite(
        "cast-dropped", lambda x: (to(x, torch.float64), x), when=lambda x: x.dtype == torch.float32
    ),
    Rewrite(
        "bias-of-another-shape",
        lambda x, w, b: (affine(x, w, b), x @ w + reshape(b, (1, 1, 1, 1, 1, 1, -1))),
    ),
    Rewrite("sum-kept", lambda x, d: (reduction(SUM, x, d, False), reduction(SUM, x, d, True))),
    Rewrite("never", lambda x: (torch.relu(x), torch.relu(x) + 0), when=lambda x: x.ndim > 99),
)
