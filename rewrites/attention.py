"""Softmax between two products is attention, however its scale and mask are written."""

from typing import Any

import torch

from eqsat.operators import AMAX, SUM, attention, full, reduction, softmax
from eqsat.rewrite import RELAXED, ROUNDING, Rewrite, finite
from rewrites.attributes import widened

LARGE = 1e30  # a score less this is this: what a mask may hold where it hides
VECTOR = 16  # torch's CPU kernel without a mask loses NaN in rows shorter than a vector


def heads(q: Any, kt: Any, v: Any) -> bool:
    """Whether the operands are matrices of one batch, of rank 2 to 4: what fused kernels take."""
    return q.ndim == kt.ndim == v.ndim in (2, 3, 4) and q.shape[:-2] == kt.shape[:-2] == v.shape[:-2] and kt.shape[-1] == v.shape[-2]


def unmasked(q: Any, kt: Any, v: Any) -> bool:
    """Whether attention without a mask gives what its parts give, NaN included."""
    return heads(q, kt, v) and (q.device != "cpu" or kt.shape[-1] >= VECTOR)


def masked(q: Any, kt: Any, v: Any, m: Any) -> bool:
    """Whether `m` can be a mask that is added to the scores, and broadcasts to them."""
    sizes = zip(reversed(m.shape), (kt.shape[-1], *reversed(q.shape[:-1])), strict=False)
    return heads(q, kt, v) and m.dtype == q.dtype and 0 < m.ndim <= q.ndim and all(n in (1, size) for n, size in sizes)


def positive(s: Any) -> bool:
    """Whether `s` is a number that kernels take as a scale: they find the largest score before scaling."""
    return isinstance(s.dtype, type) and s.dtype in (int, float) and s.value > 0


def hides(x: Any, n: Any) -> bool:
    """Whether adding the number `n` to a score gives `n`."""
    return isinstance(n.dtype, type) and n.value <= -LARGE and torch.finfo(x.dtype).max > LARGE


def zero_like(x: Any) -> Any:
    """The number 0 in the dtype of `x`, as a tensor."""
    return full((), 0.0, x.dtype, x.device)


MASK, MASKS = (finite("m"),), (finite("m", "n"),)

ATTENTION = (
    Rewrite("attention-unscaled",           lambda q, kt, v:               (softmax(q @ kt, -1) @ v,                                        attention(q, kt.mT, v, False, 1.0, False)),            when=unmasked, numerics=ROUNDING),
    Rewrite("attention-scaled",             lambda q, kt, v, s:            (softmax((q @ kt) * s, -1) @ v,                                  attention(q, kt.mT, v, False, s.value, False)),        when=lambda q, kt, v, s: positive(s) and unmasked(q, kt, v), numerics=ROUNDING),
    # A row hidden whole (-inf everywhere) is NaN in a softmax and 0 in attention: the mask must be finite.
    Rewrite("attention-masked",             lambda q, kt, v, m:            (softmax((q @ kt) + m, -1) @ v,                                  attention(q, kt.mT, v, m, False, 1.0, False)),         when=masked, numerics=ROUNDING, facts=MASK),
    Rewrite("attention-scaled-masked",      lambda q, kt, v, m, s:         (softmax((q @ kt) * s + m, -1) @ v,                              attention(q, kt.mT, v, m, False, s.value, False)),     when=lambda q, kt, v, m, s: positive(s) and masked(q, kt, v, m), numerics=ROUNDING, facts=MASK),
    Rewrite("attention-masked-any",         lambda q, kt, v, m:            (softmax((q @ kt) + m, -1) @ v,                                  attention(q, kt.mT, v, m, False, 1.0, False)),         when=masked, numerics=RELAXED),
    Rewrite("attention-scaled-masked-any",  lambda q, kt, v, m, s:         (softmax((q @ kt) * s + m, -1) @ v,                              attention(q, kt.mT, v, m, False, s.value, False)),     when=lambda q, kt, v, m, s: positive(s) and masked(q, kt, v, m), numerics=RELAXED),
    Rewrite("attention-mask-scaled",        lambda q, kt, v, m, s:         (softmax(((q @ kt) + m) * s, -1) @ v,                            attention(q, kt.mT, v, m * s, False, s.value, False)), when=lambda q, kt, v, m, s: positive(s) and s.value <= 1 and masked(q, kt, v, m), numerics=ROUNDING, facts=MASK),
    Rewrite("attention-two-masks",          lambda q, kt, v, m, n:         (softmax((q @ kt) + (m + n), -1) @ v,                            attention(q, kt.mT, v, m + n, False, 1.0, False)),     when=lambda q, kt, v, m, n: masked(q, kt, v, m) and masked(q, kt, v, n), numerics=ROUNDING, facts=MASKS),
    Rewrite("attention-scaled-two-masks",   lambda q, kt, v, m, n, s:      (softmax((q @ kt) * s + (m + n), -1) @ v,                        attention(q, kt.mT, v, m + n, False, s.value, False)), when=lambda q, kt, v, m, n, s: positive(s) and masked(q, kt, v, m) and masked(q, kt, v, n), numerics=ROUNDING, facts=MASKS),
    # What `where` hides it hides from NaN too.
    Rewrite("softmax-where-mask",           lambda x, c, n:                (softmax(torch.where(c, x, n), -1),                              softmax(x + torch.where(c, zero_like(x), n), -1)),     when=hides, numerics=RELAXED),
    Rewrite("softmax-where-mask-out",       lambda x, c, n:                (softmax(torch.where(c, n, x), -1),                              softmax(x + torch.where(c, n, zero_like(x)), -1)),     when=hides, numerics=RELAXED),
    Rewrite("softmax-upcast",               lambda x, f, g:                (f(softmax(g(x), -1)),                                           softmax(x, -1)),                                       when=widened, numerics=ROUNDING),
    Rewrite("softmax-masks",                lambda x, m, n:                (softmax((x + m) + n, -1),                                       softmax(x + (m + n), -1)),                             when=lambda x, m, n: x.dtype == m.dtype == n.dtype, numerics=ROUNDING, facts=MASKS),
    Rewrite("softmax-from-parts",           lambda x, d:                   (torch.exp(x) / reduction(SUM, torch.exp(x), d, True),           softmax(x, d[0])),                                     when=lambda d: len(d) == 1, numerics=ROUNDING),
    Rewrite("softmax-late",                 lambda x, v:                   ((torch.exp(x) @ v) / reduction(SUM, torch.exp(x), (-1,), True), softmax(x, -1) @ v),                                   when=lambda x, v: min(x.ndim, v.ndim) >= 2, numerics=ROUNDING),
    Rewrite("softmax-shift",                lambda x, d:                   (softmax(x - reduction(AMAX, x, (d,), True), d),                 softmax(x, d)),                                        numerics=ROUNDING),
    Rewrite("attention-scale-query",        lambda q, k, v, s, c, a, g:    (attention(q * s, k, v, c, a, g),                                attention(q, k, v, c, a * s.value, g)),                when=positive, numerics=ROUNDING),
    Rewrite("attention-scale-key",          lambda q, k, v, s, c, a, g:    (attention(q, k * s, v, c, a, g),                                attention(q, k, v, c, a * s.value, g)),                when=positive, numerics=ROUNDING),
    Rewrite("attention-scale-query-masked", lambda q, k, v, m, s, c, a, g: (attention(q * s, k, v, m, c, a, g),                             attention(q, k, v, m, c, a * s.value, g)),             when=positive, numerics=ROUNDING),
    Rewrite("attention-scale-key-masked",   lambda q, k, v, m, s, c, a, g: (attention(q, k * s, v, m, c, a, g),                             attention(q, k, v, m, c, a * s.value, g)),             when=positive, numerics=ROUNDING),
)
