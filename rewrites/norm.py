"""Norms, recognised in their parts and given their weights."""

import math
from typing import Any

import torch

from eqsat.functions import Function
from eqsat.operators import (
    AMAX,
    AMIN,
    MEAN,
    SUM,
    affine,
    full,
    group_norm,
    layer_norm,
    log_softmax,
    permute,
    reduction,
    reshape,
    rms_norm,
    softmax,
)
from eqsat.rewrite import ROUNDING, Rewrite, attribute, constant
from rewrites.attributes import widened

VAR = Function("var", (0,))
LOGSUMEXP, NORM_2, MAX, MIN = (Function(name) for name in ("logsumexp", "vector_norm", "max", "min"))

Shape = tuple[Any, ...]


@attribute
def last(ndim: int, d: int) -> tuple[int, ...]:
    """The permutation that brings a dim, counted from the end, to the end."""
    return (*(i for i in range(ndim) if i != ndim + d), ndim + d)


@attribute
def back(ndim: int, d: int) -> tuple[int, ...]:
    """The permutation that brings the last dim to the place of dim `d`."""
    order = last(ndim, d)
    return tuple(order.index(i) for i in range(ndim))


@attribute
def plain(f: Function) -> Function:
    """The variance or mean as torch computes it alone."""
    return MEAN if f.name == "welford_mean" else Function("var", f.parameters)


@attribute
def squared(f: Function) -> Function:
    """The variance of which a standard deviation is the root."""
    return Function("var", f.parameters)


@attribute
def numbered(f: Function) -> Function:
    """The largest or least element by a reduction that gives no places."""
    return AMAX if f == MAX else AMIN


def mean(x: Any, d: Any = -1) -> Any:
    """The mean of `x` over a dim, which is kept."""
    return reduction(MEAN, x, (d,), True)


@attribute
def channels(x: Any) -> Shape:
    """The shape of a vector of one number for each channel of `x`."""
    return (x.shape[1],)


def weighs(x: Any, w: Any, z: Any) -> bool:
    """Whether `w` has one number for each element that is normed together."""
    return tuple(w.shape) == z and w.dtype == x.dtype


def biases(w: Any, b: Any) -> bool:
    """Whether `b` has a number where `w` has one."""
    return b.shape == w.shape and b.dtype == w.dtype


def narrows(f: Function, g: Function, x: Any, w: Any) -> bool:
    """Whether the casts widen and narrow, and `w` has the wide dtype."""
    return widened(f, g, x) and w.dtype == g.parameters[0]


def per_channel(x: Any, w: Any) -> bool:
    """Whether `w` has a number for each channel of `x` and is broadcast over all that follows."""
    if x.ndim < 3 or w.dtype != x.dtype:
        return False
    shape = (x.shape[1], *(1,) * (x.ndim - 2))
    return tuple(w.shape) in (shape, (1, *shape))


def grouped(x: Any, y: Shape, z: Shape, u: Shape) -> bool:
    """Whether `x` reshaped to `y` has groups of channels in its last dim, and `u` brings back its shape."""
    return x.ndim >= 3 and len(y) == 3 and z == y[-1:] and y[0] == x.shape[0] and y[1] > 0 and x.shape[1] % y[1] == 0 and u == tuple(x.shape)


def number(e: Any) -> bool:
    """Whether `e` is a Python number."""
    return isinstance(e.dtype, type)


def epsilon(x: Any, e: Any) -> bool:
    """Whether `e` is a number that norms take, and that the dtype of `x` can add."""
    return number(e) and x.dtype.is_floating_point and (e.value == 0 or torch.finfo(x.dtype).tiny <= e.value < math.inf)


def is_root(x: Any, d: tuple[int, ...], c: Any) -> bool:
    """Whether `c` is one over the square root of the size of the only dim `d`."""
    return len(d) == 1 and number(c) and c.value > 0 and math.isclose(c.value**2 * x.shape[d[0]], 1.0, rel_tol=1e-6)


def is_row(w: Any, p: Any) -> bool:
    """Whether `p` scales the rows of the matrix `w`."""
    return w.ndim == 2 and p.ndim == 1


def column(p: Any) -> Any:
    """A vector as a column."""
    return reshape(p, p.shape + (1,))


def to_last(x: Any, d: Any) -> Any:
    """`x` with a dim at the end."""
    return permute(x, last(x.ndim, d))


NORM = (
    # Variances and extremes in one form.
    Rewrite("welford",                   lambda f, x, d, h:           (reduction(f, x, d, h),                                       reduction(plain(f), x, d, h)),              when=lambda f: f.name.startswith("welford"), numerics=ROUNDING),
    Rewrite("max-values",                lambda f, x, d, h:           (reduction(f, x, d, h),                                       reduction(numbered(f), x, d, h)),           when=lambda f: f in (MAX, MIN), numerics=ROUNDING),
    Rewrite("std-variance",              lambda f, x, d, h:           (reduction(f, x, d, h),                                       torch.sqrt(reduction(squared(f), x, d, h))), when=lambda f: f.name == "std", numerics=ROUNDING),
    Rewrite("variance-from-parts",       lambda x, d, h:              (reduction(MEAN, (x - reduction(MEAN, x, d, True)) * (x - reduction(MEAN, x, d, True)), d, h), reduction(VAR, x, d, h)), when=lambda x: x.dtype.is_floating_point, numerics=ROUNDING),
    Rewrite("variance-of-squares",       lambda x, d, h:              (reduction(MEAN, x * x, d, h) - reduction(MEAN, x, d, h) * reduction(MEAN, x, d, h), reduction(VAR, x, d, h)), when=lambda x: x.dtype.is_floating_point, numerics=ROUNDING),
    Rewrite("norm-from-squares",         lambda x, d, h:              (reduction(NORM_2, x, d, h),                                  torch.sqrt(reduction(SUM, x * x, d, h))),   numerics=ROUNDING),
    # A norm over any one dim.
    Rewrite("rms-norm-from-parts",       lambda x, d, e:              (x * torch.rsqrt(reduction(MEAN, x * x, d, True) + e),     permute(rms_norm(to_last(x, d[0]), (x.shape[d[0]],), e.value), back(x.ndim, d[0]))), when=lambda x, d, e: len(d) == 1 and epsilon(x, e), numerics=ROUNDING),
    Rewrite("rms-norm-without-eps",      lambda x, d:                 (x * torch.rsqrt(reduction(MEAN, x * x, d, True)),         permute(rms_norm(to_last(x, d[0]), (x.shape[d[0]],), 0.0), back(x.ndim, d[0]))), when=lambda d: len(d) == 1, numerics=ROUNDING),
    Rewrite("rms-norm-from-length",      lambda x, d, c:              (x / (reduction(NORM_2, x, d, True) * c),                     permute(rms_norm(to_last(x, d[0]), (x.shape[d[0]],), 0.0), back(x.ndim, d[0]))), when=is_root, numerics=ROUNDING),
    Rewrite("rms-norm-weight-first",     lambda x, w, e:              ((x * w) * torch.rsqrt(mean(x * x) + e),                      rms_norm(x, w, x.shape[-1:], e.value)),     when=lambda x, w, e: epsilon(x, e) and weighs(x, w, tuple(x.shape[-1:])), numerics=ROUNDING),
    Rewrite("layer-norm-from-parts",     lambda x, d, e:              ((x - reduction(MEAN, x, d, True)) * torch.rsqrt(reduction(VAR, x, d, True) + e), permute(layer_norm(to_last(x, d[0]), (x.shape[d[0]],), e.value), back(x.ndim, d[0]))), when=lambda x, d, e: len(d) == 1 and epsilon(x, e), numerics=ROUNDING),
    Rewrite("layer-norm-without-eps",    lambda x, d:                 ((x - reduction(MEAN, x, d, True)) * torch.rsqrt(reduction(VAR, x, d, True)), permute(layer_norm(to_last(x, d[0]), (x.shape[d[0]],), 0.0), back(x.ndim, d[0]))), when=lambda d: len(d) == 1, numerics=ROUNDING),
    Rewrite("group-norm-from-parts",     lambda x, y, z, e, u:        (reshape(layer_norm(reshape(x, y), z, e), u),                 group_norm(x, y[1], e)),                    when=grouped, numerics=ROUNDING),
    # Weights and biases.
    Rewrite("rms-norm-weight",           lambda x, w, z, e:           (rms_norm(x, z, e) * w,                                       rms_norm(x, w, z, e)),                      when=weighs, numerics=ROUNDING),
    Rewrite("layer-norm-weight",         lambda x, w, z, e:           (layer_norm(x, z, e) * w,                                     layer_norm(x, w, z, e)),                    when=weighs, numerics=ROUNDING),
    Rewrite("layer-norm-bias",           lambda x, w, b, z, e:        (layer_norm(x, w, z, e) + b,                                  layer_norm(x, w, b, z, e)),                 when=biases, numerics=ROUNDING),
    Rewrite("layer-norm-bias-alone",     lambda x, w, z, e:           (layer_norm(x, z, e) + w,                                     layer_norm(x, full(z, 1.0, x.dtype, x.device), w, z, e)), when=weighs, numerics=ROUNDING),
    Rewrite("group-norm-weight",         lambda x, w, g, e:           (group_norm(x, g, e) * w,                                     group_norm(x, reshape(w, channels(x)), g, e)), when=per_channel, numerics=ROUNDING),
    Rewrite("group-norm-bias",           lambda x, v, w, g, e:        (group_norm(x, v, g, e) + w,                                  group_norm(x, v, reshape(w, channels(x)), g, e)), when=per_channel, numerics=ROUNDING),
    # Norms compute in single precision anyhow.
    Rewrite("rms-norm-narrow",           lambda x, f, g, z, e:        (f(rms_norm(g(x), z, e)),                                     rms_norm(x, z, e)),                         when=widened, numerics=ROUNDING),
    Rewrite("rms-norm-narrow-weight",    lambda x, w, f, g, z, e:     (f(rms_norm(g(x), w, z, e)),                                  rms_norm(x, f(w), z, e)),                   when=narrows, numerics=ROUNDING),
    Rewrite("layer-norm-narrow",         lambda x, f, g, z, e:        (f(layer_norm(g(x), z, e)),                                   layer_norm(x, z, e)),                       when=widened, numerics=ROUNDING),
    Rewrite("layer-norm-narrow-weight",  lambda x, w, f, g, z, e:     (f(layer_norm(g(x), w, z, e)),                                layer_norm(x, f(w), z, e)),                 when=narrows, numerics=ROUNDING),
    Rewrite("layer-norm-narrow-bias",    lambda x, w, b, f, g, z, e:  (f(layer_norm(g(x), w, b, z, e)),                             layer_norm(x, f(w), f(b), z, e)),           when=narrows, numerics=ROUNDING),
    # Constant weights of a norm go into those of the product that reads it.
    Rewrite("rms-norm-weight-out",       lambda x, p, z, e, w:        (rms_norm(x, p, z, e) @ w,                                    rms_norm(x, z, e) @ (w * column(p))),       when=is_row, numerics=ROUNDING, facts=(constant("p", "w"),)),
    Rewrite("rms-norm-weight-out-affine", lambda x, p, z, e, w, c:    (affine(rms_norm(x, p, z, e), w, c),                          affine(rms_norm(x, z, e), w * column(p), c)), when=is_row, numerics=ROUNDING, facts=(constant("p", "w"),)),
    # The logarithm of a softmax; of one that underflows it is infinite, so that it is not written as one.
    Rewrite("log-softmax-from-sum",      lambda x, d:                 (x - reduction(LOGSUMEXP, x, d, True),                     log_softmax(x, d[0])),                         when=lambda d: len(d) == 1, numerics=ROUNDING),
    Rewrite("log-softmax-from-parts",    lambda x, d:                 (x - torch.log(reduction(SUM, torch.exp(x), d, True)),     log_softmax(x, d[0])),                         when=lambda d: len(d) == 1, numerics=ROUNDING),
    Rewrite("log-softmax-shift",         lambda x, d:                 (log_softmax(x - reduction(AMAX, x, (d,), True), d),          log_softmax(x, d)),                         numerics=ROUNDING),
    Rewrite("exp-log-softmax",           lambda x, d:                 (torch.exp(log_softmax(x, d)),                                softmax(x, d)),                             numerics=ROUNDING),
)
