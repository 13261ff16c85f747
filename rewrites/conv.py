"""Convolutions: what scales, shifts or norms channels goes into the weights, and what acts on places goes first."""

import math
from typing import Any

import torch

from eqsat.operators import (
    MEAN,
    SUM,
    adaptive_avg_pool2d,
    avg_pool2d,
    batch_norm,
    cat,
    convolution,
    full,
    permute,
    reduction,
    reshape,
    upsample_bilinear2d,
    upsample_nearest2d,
)
from eqsat.rewrite import RELAXED, ROUNDING, Rewrite, attribute, constant, distinct, finite, given
from rewrites.attributes import additive


@attribute
def channels(count: Any, ndim: int) -> tuple[Any, ...]:
    """The shape of one number a channel, as the first of `ndim` dims."""
    return (count, *(1,) * (ndim - 1))


@attribute
def listed(count: Any) -> tuple[Any, ...]:
    """The shape of a vector of so many numbers."""
    return (count,)


@attribute
def outputs(w: Any, t: bool, g: int) -> Any:
    """The number of output channels of a convolution with the weight `w`; transposed, they stand second."""
    return w.shape[1] * g if t else w.shape[0]


@attribute
def outward(w: Any, t: bool) -> tuple[Any, ...]:
    """The shape of one number for each output channel that `w` names."""
    return (1, w.shape[1], *(1,) * (w.ndim - 2)) if t else (w.shape[0], *(1,) * (w.ndim - 1))


@attribute
def inward(w: Any, t: bool, g: int) -> tuple[Any, ...]:
    """The shape of one number for each input channel that `w` names: the first dim of it or, without groups, the second."""
    return (w.shape[0], *(1,) * (w.ndim - 1)) if t or g != 1 else (1, w.shape[1], *(1,) * (w.ndim - 2))


@attribute
def within(w: Any) -> tuple[int, ...]:
    """The dims of a weight over which an output channel sums."""
    return tuple(range(1 - w.ndim, 0))


def channelwise(w: Any, s: Any, count: Any) -> bool:
    """Whether `s` broadcasts as one number for each of `count` channels of an image that meets `w`."""
    return s.ndim >= w.ndim - 1 and tuple(s.shape[1 - w.ndim :]) == (count, *(1,) * (w.ndim - 2)) and s.shape[: 1 - w.ndim] in ((), (1,))


def by_channel(w: Any, s: Any, t: bool, g: int) -> bool:
    """Whether `s` broadcasts as one number for each output channel of the convolution weight `w`."""
    return channelwise(w, s, outputs(w, t, g))


def scales_outputs(w: Any, s: Any, t: bool, g: int) -> bool:
    """Whether `s` scales output channels that `w` names one by one: transposed, it does so for each group anew."""
    return by_channel(w, s, t, g) and (not t or g == 1)


def by_input(x: Any, w: Any, s: Any, t: bool, g: int) -> bool:
    """Whether `s` broadcasts as one number for each channel of the image `x`, and `w` names those: without groups, or depthwise."""
    depthwise = w.shape[0] == g and w.shape[1] == 1
    count = w.shape[0] if t or g != 1 else w.shape[1]
    return (t or g == 1 or depthwise) and x.ndim >= w.ndim - 1 and x.shape[1 - w.ndim] == count and channelwise(w, s, count)


def reads_scaled(x: Any, w: Any, s: Any, b: Any, t: bool, g: int) -> bool:
    """Whether `s` scales input channels, and no padding is met, whose zeros an infinite weight would make NaN."""
    return (t or set(b) == {0}) and by_input(x, w, s, t, g)


def reads_shifted(x: Any, w: Any, s: Any, b: Any, t: bool, g: int) -> bool:
    """Whether `s` shifts input channels, and no padding is met, which is not shifted."""
    return not t and set(b) == {0} and by_input(x, w, s, t, g)


def placewise(w: Any, a: Any, b: Any, t: Any) -> bool:
    """Whether a convolution of stride `a` and padding `b` maps the real channels of each place by themselves."""
    return w.dtype.is_floating_point and not t and set(w.shape[2:]) == set(a) == {1} and set(b) == {0}


def mean_weights(b: Any, h: Any, d: Any) -> bool:
    """Whether the weights of an average pool add up to 1 in every window: no padding counted, no divisor given."""
    return d is None and (set(b) == {0} or not h)


def of_places(v: Any, j: Any) -> bool:
    """Whether a convolution with the weight `v` and padding `j` reads one place only."""
    return set(v.shape[2:]) == {1} and set(j) == {0}


@attribute
def times(a: Any, b: Any) -> tuple[int, ...]:
    """The strides of two convolutions, one after the other."""
    return tuple(m * n for m, n in zip(a, b, strict=True))


@attribute
def matrix(w: Any) -> tuple[Any, ...]:
    """The shape of a weight as a matrix: its output channels by all the rest."""
    return (w.shape[0], math.prod(w.shape[1:]))


@attribute
def joint(v: Any, w: Any) -> tuple[Any, ...]:
    """The shape of the weight of two convolutions in one: the outputs of `v`, the inputs and places of `w`."""
    return (v.shape[0], *w.shape[1:])


@attribute
def last(ndim: int) -> tuple[int, ...]:
    """The permutation that puts the second dim last."""
    return (0, *range(2, ndim), 1)


@attribute
def second(ndim: int) -> tuple[int, ...]:
    """The permutation that puts the last dim second."""
    return (0, ndim - 1, *range(1, ndim - 1))


def after(v: Any, w: Any) -> Any:
    """The weight of a convolution with `w`, its channels mapped by `v` after it."""
    return reshape(reshape(v, matrix(v)) @ reshape(w, matrix(w)), joint(v, w))


def before(v: Any, w: Any) -> Any:
    """The weight of a convolution with `v`, its channels mapped by `w` before it."""
    return permute(permute(v, last(v.ndim)) @ reshape(w, matrix(w)), second(v.ndim))


@attribute
def smallest(v: Any, w: Any) -> int:
    """The first dim, counted from the end, in which `v` has fewer places than `w`."""
    return next(d for d in range(2 - v.ndim, 0) if v.shape[d] < w.shape[d])


@attribute
def rim(v: Any, w: Any) -> tuple[Any, ...]:
    """The shape of the zeros that `v` lacks on either side in that dim."""
    d = smallest(v, w) % v.ndim
    return (*v.shape[:d], (w.shape[d] - v.shape[d]) // 2, *v.shape[d + 1 :])


@attribute
def wider(b: Any, c: Any, v: Any, w: Any) -> tuple[int, ...]:
    """The padding `b`, of dilation `c`, where `v` has got its rim."""
    d = smallest(v, w)
    more = c[d] * (w.shape[d] - v.shape[d]) // 2
    return tuple(n + more * (i - len(b) == d) for i, n in enumerate(b))


def enlarges(v: Any, w: Any, b: Any, q: Any, c: Any) -> bool:
    """Whether `v` with zeros around it, and padding for them, covers the places that `w` with padding `q` does."""
    rims = [n - m for m, n in zip(v.shape[2:], w.shape[2:], strict=True)]
    fits = all(r >= 0 and r % 2 == 0 for r in rims) and any(rims) and v.dtype == w.dtype
    return fits and tuple(q) == tuple(p + k * r // 2 for p, k, r in zip(b, c, rims, strict=True))


def enlarged(v: Any, w: Any) -> Any:
    """The weight `v` with zeros on either side, so that in one more dim it has the places of `w`."""
    zeros = full(rim(v, w), 0.0, v.dtype, v.device)
    return cat(zeros, v, zeros, smallest(v, w))


def in_groups(v: Any, w: Any, g: int, h: int) -> bool:
    """Whether the groups of two convolutions have as many channels each, in and out: else they would change places."""
    return v.shape[1:] == w.shape[1:] and v.shape[0] * h == w.shape[0] * g


def scaled(w: Any, s: Any, t: Any) -> Any:
    """The convolution weight `w` with its output channels scaled by `s`."""
    return w * reshape(s, outward(w, t))


def read(w: Any, s: Any, t: Any, g: Any) -> Any:
    """The convolution weight `w` with its input channels scaled by `s`."""
    return w * reshape(s, inward(w, t, g))


def total(w: Any, s: Any, g: Any) -> Any:
    """What a convolution with `w` makes of the image of `s` everywhere: a number for each output channel."""
    return reduction(SUM, read(w, s, False, g), within(w), False)


def vector(w: Any, s: Any, t: Any, g: Any) -> Any:
    """The numbers of `s`, one for each output channel of `w`, as a vector."""
    return reshape(s, listed(outputs(w, t, g)))


def beside(x: Any, p: Any) -> Any:
    """The vector `p` as one number for each channel of `x`."""
    return reshape(p, channels(p.shape[0], x.ndim - 1))


def normed(x: Any, w: Any, b: Any, m: Any, v: Any, e: Any) -> Any:
    """Batch norm with fixed statistics as a scale and a shift."""
    scale = w * torch.rsqrt(v + e)
    return x * beside(x, scale) + beside(x, b - m * scale)


# w: the weight, p: its bias; a, b, c: stride, padding, dilation; t: transposed; o: output padding; g: groups.
CONV = (
    Rewrite("batch-norm-split",             lambda x, w, b, m, v, e:                   (batch_norm(x, w, b, m, v, e),                                                      normed(x, w, b, m, v, e)),                                                  numerics=ROUNDING, facts=(constant("w", "b", "m", "v"),)),
    Rewrite("convolution-split",            lambda x, w, p, a, b, c, t, o, g:          (convolution(x, w, p, a, b, c, t, o, g),                                            convolution(x, w, a, b, c, t, o, g) + beside(x, p)),                        numerics=ROUNDING),
    Rewrite("convolution-join",             lambda x, w, s, a, b, c, t, o, g:          (convolution(x, w, a, b, c, t, o, g) + s,                                           convolution(x, w, vector(w, s, t, g), a, b, c, t, o, g)),                   when=by_channel, numerics=ROUNDING),
    Rewrite("convolution-shift",            lambda x, w, p, s, a, b, c, t, o, g:       (convolution(x, w, p, a, b, c, t, o, g) + s,                                        convolution(x, w, p + vector(w, s, t, g), a, b, c, t, o, g)),               when=by_channel, numerics=ROUNDING),
    Rewrite("convolution-scale",            lambda x, w, s, a, b, c, t, o, g:          (convolution(x, w, a, b, c, t, o, g) * s,                                           convolution(x, scaled(w, s, t), a, b, c, t, o, g)),                         when=scales_outputs, numerics=ROUNDING, facts=(constant("w", "s"),)),
    Rewrite("convolution-bias-scale",       lambda x, w, p, s, a, b, c, t, o, g:       (convolution(x, w, p, a, b, c, t, o, g) * s,                                        convolution(x, scaled(w, s, t), p * vector(w, s, t, g), a, b, c, t, o, g)), when=scales_outputs, numerics=ROUNDING, facts=(constant("w", "p", "s"),)),
    Rewrite("convolution-input-scale",      lambda x, w, s, a, b, c, t, o, g:          (convolution(x * s, w, a, b, c, t, o, g),                                           convolution(x, read(w, s, t, g), a, b, c, t, o, g)),                        when=reads_scaled, numerics=ROUNDING, facts=(constant("w", "s"),)),
    Rewrite("convolution-bias-input-scale", lambda x, w, p, s, a, b, c, t, o, g:       (convolution(x * s, w, p, a, b, c, t, o, g),                                        convolution(x, read(w, s, t, g), p, a, b, c, t, o, g)),                     when=reads_scaled, numerics=ROUNDING, facts=(constant("w", "s"),)),
    Rewrite("convolution-input-shift",      lambda x, w, s, a, b, c, t, o, g:          (convolution(x + s, w, a, b, c, t, o, g),                                           convolution(x, w, total(w, s, g), a, b, c, t, o, g)),                       when=reads_shifted, numerics=ROUNDING, facts=(constant("w", "s"),)),
    Rewrite("convolution-bias-input-shift", lambda x, w, p, s, a, b, c, t, o, g:       (convolution(x + s, w, p, a, b, c, t, o, g),                                        convolution(x, w, p + total(w, s, g), a, b, c, t, o, g)),                   when=reads_shifted, numerics=ROUNDING, facts=(constant("w", "p", "s"),)),
    Rewrite("convolution-number",           lambda x, w, s, a, b, c, t, o, g:          (convolution(x, w, a, b, c, t, o, g) * s,                                           convolution(x, w * s, a, b, c, t, o, g)),                                   when=lambda s: s.ndim == 0, numerics=ROUNDING, facts=(constant("w", "s"),)),
    Rewrite("convolution-bias-number",      lambda x, w, p, s, a, b, c, t, o, g:       (convolution(x, w, p, a, b, c, t, o, g) * s,                                        convolution(x, w * s, p * s, a, b, c, t, o, g)),                            when=lambda s: s.ndim == 0, numerics=ROUNDING, facts=(constant("w", "p", "s"),)),
    Rewrite("convolution-input",            lambda x, w, s, a, b, c, t, o, g:          (convolution(x * s, w, a, b, c, t, o, g),                                           convolution(x, w * s, a, b, c, t, o, g)),                                   when=lambda s: s.ndim == 0, numerics=ROUNDING, facts=(constant("w", "s"), finite("s"))),
    Rewrite("convolution-bias-input",       lambda x, w, p, s, a, b, c, t, o, g:       (convolution(x * s, w, p, a, b, c, t, o, g),                                        convolution(x, w * s, p, a, b, c, t, o, g)),                                when=lambda s: s.ndim == 0, numerics=ROUNDING, facts=(constant("w", "s"), finite("s"))),
    Rewrite("convolution-factor-left",      lambda x, w, v, a, b, c, t, o, g, f:       (f(convolution(x, w, a, b, c, t, o, g), convolution(x, v, a, b, c, t, o, g)),       convolution(x, f(w, v), a, b, c, t, o, g)),                                 when=lambda w, v, f: additive(f) and w.shape == v.shape, numerics=ROUNDING),
    Rewrite("convolution-factor-right",     lambda x, y, w, a, b, c, t, o, g, f:       (f(convolution(x, w, a, b, c, t, o, g), convolution(y, w, a, b, c, t, o, g)),       convolution(f(x, y), w, a, b, c, t, o, g)),                                 when=lambda x, y, f: additive(f) and x.shape == y.shape, numerics=ROUNDING),
    Rewrite("convolution-factor-bias",      lambda x, w, p, v, q, a, b, c, t, o, g, f: (f(convolution(x, w, p, a, b, c, t, o, g), convolution(x, v, q, a, b, c, t, o, g)), convolution(x, f(w, v), f(p, q), a, b, c, t, o, g)),                        when=lambda w, v, f: additive(f) and w.shape == v.shape, numerics=ROUNDING),
    # One after the other, of which one maps the channels of each place by themselves. Weights that were scaled, composed or set
    # side by side before would make ever new ones.
    Rewrite("convolution-compose",       lambda x, w, v, a, b, c, o, i, j, k, n:    (convolution(convolution(x, w, a, b, c, False, o, 1), v, i, j, k, False, n, 1),    convolution(x, after(v, w), times(a, i), b, c, False, o, 1)),                            when=of_places, numerics=ROUNDING, facts=(constant("w", "v"), given("w", "v"))),
    Rewrite("convolution-compose-bias",  lambda x, w, p, v, a, b, c, o, i, j, k, n: (convolution(convolution(x, w, p, a, b, c, False, o, 1), v, i, j, k, False, n, 1), convolution(x, after(v, w), reshape(v, matrix(v)) @ p, times(a, i), b, c, False, o, 1)), when=of_places, numerics=ROUNDING, facts=(constant("w", "p", "v"), given("w", "v"))),
    Rewrite("convolution-compose-first", lambda x, w, v, a, b, c, o, i, j, k, n:    (convolution(convolution(x, w, a, b, c, False, o, 1), v, i, j, k, False, n, 1),    convolution(x, before(v, w), i, j, k, False, n, 1)),                                     when=lambda w, a, b: of_places(w, b) and set(a) == {1}, numerics=ROUNDING, facts=(constant("w", "v"), given("w", "v"), finite("w"))),
    # Side by side. Without groups, or in groups of equal size: else the channels of one would read those of another.
    Rewrite("convolution-add",               lambda x, y, v, w, a, b, c, o:                   (convolution(x, v, a, b, c, False, o, 1) + convolution(y, w, a, b, c, False, o, 1),              convolution(cat(x, y, 1 - v.ndim), cat(v, w, 1 - v.ndim), a, b, c, False, o, 1)),        numerics=ROUNDING, facts=(distinct("x", "y"), distinct("v", "w"))),
    Rewrite("convolution-add-bias",          lambda x, y, v, p, w, q, a, b, c, o:             (convolution(x, v, p, a, b, c, False, o, 1) + convolution(y, w, q, a, b, c, False, o, 1),        convolution(cat(x, y, 1 - v.ndim), cat(v, w, 1 - v.ndim), p + q, a, b, c, False, o, 1)), numerics=ROUNDING, facts=(distinct("x", "y"), distinct("v", "w"))),
    Rewrite("cat-convolution-images",        lambda x, y, w, a, b, c, t, o, g, d:             (cat(convolution(x, w, a, b, c, t, o, g), convolution(y, w, a, b, c, t, o, g), d),               convolution(cat(x, y, d), w, a, b, c, t, o, g)),                                         when=lambda w, d: d == -w.ndim, numerics=ROUNDING, facts=(finite("w"),)),
    Rewrite("cat-convolution-images-bias",   lambda x, y, w, p, a, b, c, t, o, g, d:          (cat(convolution(x, w, p, a, b, c, t, o, g), convolution(y, w, p, a, b, c, t, o, g), d),         convolution(cat(x, y, d), w, p, a, b, c, t, o, g)),                                      when=lambda w, d: d == -w.ndim, numerics=ROUNDING, facts=(finite("w"),)),
    Rewrite("cat-convolution-channels",      lambda x, v, w, a, b, c, o, d:                   (cat(convolution(x, v, a, b, c, False, o, 1), convolution(x, w, a, b, c, False, o, 1), d),       convolution(x, cat(v, w, d - 1), a, b, c, False, o, 1)),                                 when=lambda v, d: d == 1 - v.ndim, numerics=ROUNDING),
    Rewrite("cat-convolution-channels-bias", lambda x, v, p, w, q, a, b, c, o, d:             (cat(convolution(x, v, p, a, b, c, False, o, 1), convolution(x, w, q, a, b, c, False, o, 1), d), convolution(x, cat(v, w, d - 1), cat(p, q, -1), a, b, c, False, o, 1)),                  when=lambda v, d: d == 1 - v.ndim, numerics=ROUNDING),
    Rewrite("cat-convolution-groups",        lambda x, y, v, w, a, b, c, t, o, g, h, d:       (cat(convolution(x, v, a, b, c, t, o, g), convolution(y, w, a, b, c, t, o, h), d),               convolution(cat(x, y, d), cat(v, w, d - 1), a, b, c, t, o, g + h)),                      when=lambda v, w, g, h, d: d == 1 - v.ndim and in_groups(v, w, g, h), numerics=ROUNDING, facts=(distinct("x", "y"), finite("v", "w"))),
    Rewrite("cat-convolution-groups-bias",   lambda x, y, v, p, w, q, a, b, c, t, o, g, h, d: (cat(convolution(x, v, p, a, b, c, t, o, g), convolution(y, w, q, a, b, c, t, o, h), d),         convolution(cat(x, y, d), cat(v, w, d - 1), cat(p, q, -1), a, b, c, t, o, g + h)),       when=lambda v, w, g, h, d: d == 1 - v.ndim and in_groups(v, w, g, h), numerics=ROUNDING, facts=(distinct("x", "y"), finite("v", "w"))),
    # A small kernel beside a larger one: then they are siblings, and their sum is one. Zeros make NaN of what is not finite.
    Rewrite("convolution-enlarge",      lambda x, v, w, a, b, q, c, o, g:       ((convolution(x, v, a, b, c, False, o, g), convolution(x, w, a, q, c, False, o, g)),       (convolution(x, enlarged(v, w), a, wider(b, c, v, w), c, False, o, g), convolution(x, w, a, q, c, False, o, g))),       when=enlarges, numerics=RELAXED, facts=(constant("v", "w"), given("w"))),
    Rewrite("convolution-enlarge-bias", lambda x, v, p, w, r, a, b, q, c, o, g: ((convolution(x, v, p, a, b, c, False, o, g), convolution(x, w, r, a, q, c, False, o, g)), (convolution(x, enlarged(v, w), p, a, wider(b, c, v, w), c, False, o, g), convolution(x, w, r, a, q, c, False, o, g))), when=enlarges, numerics=RELAXED, facts=(constant("v", "p", "w", "r"), given("w"))),
    # A map of channels and a map of places commute; its bias passes where the weights of a place add up to 1.
    Rewrite("pool-convolution",          lambda x, w, a, b, c, t, o, g, k, s, q, i, h, d:    (avg_pool2d(convolution(x, w, a, b, c, t, o, g), k, s, q, i, h, d),    convolution(avg_pool2d(x, k, s, q, i, h, d), w, a, b, c, t, o, g)),    when=placewise, numerics=ROUNDING),
    Rewrite("pool-convolution-bias",     lambda x, w, p, a, b, c, t, o, g, k, s, q, i, h, d: (avg_pool2d(convolution(x, w, p, a, b, c, t, o, g), k, s, q, i, h, d), convolution(avg_pool2d(x, k, s, q, i, h, d), w, p, a, b, c, t, o, g)), when=lambda w, a, b, t, q, h, d: placewise(w, a, b, t) and mean_weights(q, h, d), numerics=ROUNDING),
    Rewrite("adaptive-convolution",      lambda x, w, a, b, c, t, o, g, z:                   (adaptive_avg_pool2d(convolution(x, w, a, b, c, t, o, g), z),          convolution(adaptive_avg_pool2d(x, z), w, a, b, c, t, o, g)),          when=placewise, numerics=ROUNDING),
    Rewrite("adaptive-convolution-bias", lambda x, w, p, a, b, c, t, o, g, z:                (adaptive_avg_pool2d(convolution(x, w, p, a, b, c, t, o, g), z),       convolution(adaptive_avg_pool2d(x, z), w, p, a, b, c, t, o, g)),       when=placewise, numerics=ROUNDING),
    Rewrite("mean-convolution",          lambda x, w, a, b, c, t, o, g, d:                   (reduction(MEAN, convolution(x, w, a, b, c, t, o, g), d, True),        convolution(reduction(MEAN, x, d, True), w, a, b, c, t, o, g)),        when=lambda w, a, b, t, d: placewise(w, a, b, t) and d == tuple(range(2 - w.ndim, 0)), numerics=ROUNDING),
    Rewrite("mean-convolution-bias",     lambda x, w, p, a, b, c, t, o, g, d:                (reduction(MEAN, convolution(x, w, p, a, b, c, t, o, g), d, True),     convolution(reduction(MEAN, x, d, True), w, p, a, b, c, t, o, g)),     when=lambda w, a, b, t, d: placewise(w, a, b, t) and d == tuple(range(2 - w.ndim, 0)), numerics=ROUNDING),
    Rewrite("convolution-nearest",       lambda x, w, a, b, c, t, o, g, z, s:                (convolution(upsample_nearest2d(x, z, s), w, a, b, c, t, o, g),        upsample_nearest2d(convolution(x, w, a, b, c, t, o, g), z, s)),        when=placewise, numerics=ROUNDING),
    Rewrite("convolution-nearest-bias",  lambda x, w, p, a, b, c, t, o, g, z, s:             (convolution(upsample_nearest2d(x, z, s), w, p, a, b, c, t, o, g),     upsample_nearest2d(convolution(x, w, p, a, b, c, t, o, g), z, s)),     when=placewise, numerics=ROUNDING),
    Rewrite("convolution-bilinear",      lambda x, w, a, b, c, t, o, g, z, y, s:             (convolution(upsample_bilinear2d(x, z, y, s), w, a, b, c, t, o, g),    upsample_bilinear2d(convolution(x, w, a, b, c, t, o, g), z, y, s)),    when=placewise, numerics=ROUNDING),
    Rewrite("convolution-bilinear-bias", lambda x, w, p, a, b, c, t, o, g, z, y, s:          (convolution(upsample_bilinear2d(x, z, y, s), w, p, a, b, c, t, o, g), upsample_bilinear2d(convolution(x, w, p, a, b, c, t, o, g), z, y, s)), when=placewise, numerics=ROUNDING),
)
