"""Convolutions: what scales, shifts or norms channels goes into the weights, and what acts on places goes first."""

from typing import Any

import torch

from eqsat.operators import (
    MEAN,
    adaptive_avg_pool2d,
    avg_pool2d,
    batch_norm,
    convolution,
    reduction,
    reshape,
    upsample_bilinear2d,
    upsample_nearest2d,
)
from eqsat.rewrite import ROUNDING, Rewrite, attribute, constant
from rewrites.attributes import additive


@attribute
def channels(count: Any, ndim: int) -> tuple[Any, ...]:
    """The shape of one number a channel, as the first of `ndim` dims."""
    return (count, *(1,) * (ndim - 1))


def by_channel(w: Any, s: Any) -> bool:
    """Whether `s` broadcasts as one number for each output channel of the convolution weight `w`."""
    return tuple(s.shape[max(0, s.ndim - w.ndim + 1) :]) == (w.shape[0], *(1,) * (w.ndim - 2)) and s.shape[: 1 - w.ndim] in ((), (1,))


def placewise(w: Any, a: Any, b: Any, t: Any) -> bool:
    """Whether a convolution of stride `a` and padding `b` maps the real channels of each place by themselves."""
    return w.dtype.is_floating_point and not t and set(w.shape[2:]) == set(a) == {1} and set(b) == {0}


def mean_weights(b: Any, h: Any, d: Any) -> bool:
    """Whether the weights of an average pool add up to 1 in every window: no padding counted, no divisor given."""
    return d is None and (set(b) == {0} or not h)


def scaled(w: Any, s: Any) -> Any:
    """The convolution weight `w` with its output channels scaled by `s`."""
    return w * reshape(s, channels(w.shape[0], w.ndim))


def vector(w: Any, s: Any) -> Any:
    """The numbers of `s`, one for each output channel of `w`, as a vector."""
    return reshape(s, w.shape[:1])


def beside(x: Any, p: Any) -> Any:
    """The vector `p` as one number for each channel of `x`."""
    return reshape(p, channels(p.shape[0], x.ndim - 1))


def normed(x: Any, w: Any, b: Any, m: Any, v: Any, e: Any) -> Any:
    """Batch norm with fixed statistics as a scale and a shift."""
    scale = w * torch.rsqrt(v + e)
    return x * beside(x, scale) + beside(x, b - m * scale)


# w: the weight, p: its bias; a, b, c: stride, padding, dilation; t: transposed; o: output padding; g: groups.
CONV = (
    Rewrite("batch-norm-split",          lambda x, w, b, m, v, e:                            (batch_norm(x, w, b, m, v, e),                                                normed(x, w, b, m, v, e)),                                             numerics=ROUNDING, facts=(constant("w", "b", "m", "v"),)),
    Rewrite("convolution-split",         lambda x, w, p, a, b, c, t, o, g:                   (convolution(x, w, p, a, b, c, t, o, g),                                      convolution(x, w, a, b, c, t, o, g) + beside(x, p)),                   numerics=ROUNDING),
    Rewrite("convolution-join",          lambda x, w, s, a, b, c, o, g:                      (convolution(x, w, a, b, c, False, o, g) + s,                                 convolution(x, w, vector(w, s), a, b, c, False, o, g)),                when=by_channel, numerics=ROUNDING),
    Rewrite("convolution-shift",         lambda x, w, p, s, a, b, c, o, g:                   (convolution(x, w, p, a, b, c, False, o, g) + s,                              convolution(x, w, p + vector(w, s), a, b, c, False, o, g)),            when=by_channel, numerics=ROUNDING),
    Rewrite("convolution-scale",         lambda x, w, s, a, b, c, o, g:                      (convolution(x, w, a, b, c, False, o, g) * s,                                 convolution(x, scaled(w, s), a, b, c, False, o, g)),                   when=by_channel, numerics=ROUNDING, facts=(constant("w", "s"),)),
    Rewrite("convolution-bias-scale",    lambda x, w, p, s, a, b, c, o, g:                   (convolution(x, w, p, a, b, c, False, o, g) * s,                              convolution(x, scaled(w, s), p * vector(w, s), a, b, c, False, o, g)), when=by_channel, numerics=ROUNDING, facts=(constant("w", "p", "s"),)),
    Rewrite("convolution-number",        lambda x, w, s, a, b, c, t, o, g:                   (convolution(x, w, a, b, c, t, o, g) * s,                                     convolution(x, w * s, a, b, c, t, o, g)),                              when=lambda s: s.ndim == 0, numerics=ROUNDING, facts=(constant("w", "s"),)),
    Rewrite("convolution-bias-number",   lambda x, w, p, s, a, b, c, t, o, g:                (convolution(x, w, p, a, b, c, t, o, g) * s,                                  convolution(x, w * s, p * s, a, b, c, t, o, g)),                       when=lambda s: s.ndim == 0, numerics=ROUNDING, facts=(constant("w", "p", "s"),)),
    Rewrite("convolution-input",         lambda x, w, s, a, b, c, t, o, g:                   (convolution(x * s, w, a, b, c, t, o, g),                                     convolution(x, w * s, a, b, c, t, o, g)),                              when=lambda s: s.ndim == 0, numerics=ROUNDING, facts=(constant("w", "s"),)),
    Rewrite("convolution-bias-input",    lambda x, w, p, s, a, b, c, t, o, g:                (convolution(x * s, w, p, a, b, c, t, o, g),                                  convolution(x, w * s, p, a, b, c, t, o, g)),                           when=lambda s: s.ndim == 0, numerics=ROUNDING, facts=(constant("w", "s"),)),
    Rewrite("convolution-factor-left",   lambda x, w, v, a, b, c, t, o, g, f:                (f(convolution(x, w, a, b, c, t, o, g), convolution(x, v, a, b, c, t, o, g)), convolution(x, f(w, v), a, b, c, t, o, g)),                            when=lambda w, v, f: additive(f) and w.shape == v.shape, numerics=ROUNDING),
    Rewrite("convolution-factor-right",  lambda x, y, w, a, b, c, t, o, g, f:                (f(convolution(x, w, a, b, c, t, o, g), convolution(y, w, a, b, c, t, o, g)), convolution(f(x, y), w, a, b, c, t, o, g)),                            when=lambda x, y, f: additive(f) and x.shape == y.shape, numerics=ROUNDING),
    # A map of channels and a map of places commute; its bias passes where the weights of a place add up to 1.
    Rewrite("pool-convolution",          lambda x, w, a, b, c, t, o, g, k, s, q, i, h, d:    (avg_pool2d(convolution(x, w, a, b, c, t, o, g), k, s, q, i, h, d),           convolution(avg_pool2d(x, k, s, q, i, h, d), w, a, b, c, t, o, g)),    when=placewise, numerics=ROUNDING),
    Rewrite("pool-convolution-bias",     lambda x, w, p, a, b, c, t, o, g, k, s, q, i, h, d: (avg_pool2d(convolution(x, w, p, a, b, c, t, o, g), k, s, q, i, h, d),        convolution(avg_pool2d(x, k, s, q, i, h, d), w, p, a, b, c, t, o, g)), when=lambda w, a, b, t, q, h, d: placewise(w, a, b, t) and mean_weights(q, h, d), numerics=ROUNDING),
    Rewrite("adaptive-convolution",      lambda x, w, a, b, c, t, o, g, z:                   (adaptive_avg_pool2d(convolution(x, w, a, b, c, t, o, g), z),                 convolution(adaptive_avg_pool2d(x, z), w, a, b, c, t, o, g)),          when=placewise, numerics=ROUNDING),
    Rewrite("adaptive-convolution-bias", lambda x, w, p, a, b, c, t, o, g, z:                (adaptive_avg_pool2d(convolution(x, w, p, a, b, c, t, o, g), z),              convolution(adaptive_avg_pool2d(x, z), w, p, a, b, c, t, o, g)),       when=placewise, numerics=ROUNDING),
    Rewrite("mean-convolution",          lambda x, w, a, b, c, t, o, g, d:                   (reduction(MEAN, convolution(x, w, a, b, c, t, o, g), d, True),               convolution(reduction(MEAN, x, d, True), w, a, b, c, t, o, g)),        when=lambda w, a, b, t, d: placewise(w, a, b, t) and d == tuple(range(2 - w.ndim, 0)), numerics=ROUNDING),
    Rewrite("mean-convolution-bias",     lambda x, w, p, a, b, c, t, o, g, d:                (reduction(MEAN, convolution(x, w, p, a, b, c, t, o, g), d, True),            convolution(reduction(MEAN, x, d, True), w, p, a, b, c, t, o, g)),     when=lambda w, a, b, t, d: placewise(w, a, b, t) and d == tuple(range(2 - w.ndim, 0)), numerics=ROUNDING),
    Rewrite("convolution-nearest",       lambda x, w, a, b, c, t, o, g, z, s:                (convolution(upsample_nearest2d(x, z, s), w, a, b, c, t, o, g),               upsample_nearest2d(convolution(x, w, a, b, c, t, o, g), z, s)),        when=placewise, numerics=ROUNDING),
    Rewrite("convolution-nearest-bias",  lambda x, w, p, a, b, c, t, o, g, z, s:             (convolution(upsample_nearest2d(x, z, s), w, p, a, b, c, t, o, g),            upsample_nearest2d(convolution(x, w, p, a, b, c, t, o, g), z, s)),     when=placewise, numerics=ROUNDING),
    Rewrite("convolution-bilinear",      lambda x, w, a, b, c, t, o, g, z, y, s:             (convolution(upsample_bilinear2d(x, z, y, s), w, a, b, c, t, o, g),           upsample_bilinear2d(convolution(x, w, a, b, c, t, o, g), z, y, s)),    when=placewise, numerics=ROUNDING),
    Rewrite("convolution-bilinear-bias", lambda x, w, p, a, b, c, t, o, g, z, y, s:          (convolution(upsample_bilinear2d(x, z, y, s), w, p, a, b, c, t, o, g),        upsample_bilinear2d(convolution(x, w, p, a, b, c, t, o, g), z, y, s)), when=placewise, numerics=ROUNDING),
)
