"""Softmax between two products is attention, however its scale and mask are written."""

import math
from typing import Any

import torch

from eqsat.operators import AMAX, SUM, attention, expand, full, reduction, reshape, softmax
from eqsat.rewrite import RELAXED, ROUNDING, Rewrite, attribute, finite
from rewrites.attributes import widened

LARGE = 1e30  # a score less this is this: what a mask may hold where it hides
VECTOR = 64  # bytes: torch's CPU kernel without a mask loses NaN in rows shorter than a vector

Shape = tuple[Any, ...]


def heads(q: Any, kt: Any, v: Any) -> bool:
    """Whether the operands are matrices of one batch, of rank 2 to 4: what fused kernels take. All heads may share one key."""
    if not (q.ndim == kt.ndim == v.ndim in (2, 3, 4)) or kt.shape[:-2] != v.shape[:-2] or kt.shape[-1] != v.shape[-2]:
        return False
    return q.shape[:-2] == kt.shape[:-2] or (q.ndim == 4 and q.shape[0] == kt.shape[0] and kt.shape[1] == 1)


@attribute
def shared(q: Any, kt: Any) -> bool:
    """Whether several heads of queries share one of keys."""
    return q.shape[:-2] != kt.shape[:-2]


def shown(k: Any, keys: Any, causal: bool = False) -> bool:
    """Whether attention without a mask keeps the NaN of so many keys; the first rows of a causal one have few."""
    return k.device != "cpu" or (not causal and keys * k.dtype.itemsize >= VECTOR)


def kept(k: Any, keys: Any) -> bool:
    """Whether attention with a mask keeps the NaN of so many keys: torch's CPU kernel for halves needs a vector."""
    return k.dtype.itemsize >= 4 or shown(k, keys)


def unmasked(q: Any, kt: Any, v: Any) -> bool:
    """Whether attention without a mask gives what its parts give, NaN included."""
    return heads(q, kt, v) and shown(kt, kt.shape[-1])


def fits(n: Any, size: Any) -> bool:
    """Whether a size broadcasts to another; of symbolic ones, the same is known to do."""
    return (isinstance(n, int) and n == 1) or n == size


def masked(q: Any, kt: Any, v: Any, m: Any) -> bool:
    """Whether `m` can be a mask that is added to the scores, and broadcasts to them."""
    sizes = zip(reversed(m.shape), (kt.shape[-1], *reversed(q.shape[:-1])), strict=False)
    return heads(q, kt, v) and kept(kt, kt.shape[-1]) and m.dtype == q.dtype and 0 < m.ndim <= q.ndim and all(fits(n, size) for n, size in sizes)


def positive(s: Any) -> bool:
    """Whether `s` is a number that kernels take as a scale: they find the largest score before scaling."""
    return isinstance(s.dtype, type) and s.dtype in (int, float) and 0 < s.value < math.inf


def hides(x: Any, n: Any) -> bool:
    """Whether adding the number `n` to a score gives `n`: -1e9, say, keeps much of a score of 100."""
    return isinstance(n.dtype, type) and n.value <= -LARGE and torch.finfo(x.dtype).max > LARGE


@attribute
def least(dtype: torch.dtype) -> float:
    """The least number of a dtype."""
    return torch.finfo(dtype).min


def real(*x: Any) -> bool:
    """Whether all have one floating-point dtype."""
    return len({v.dtype for v in x}) == 1 and x[0].dtype.is_floating_point


def zero_like(x: Any) -> Any:
    """The number 0 in the dtype of `x`, as a tensor."""
    return full((), 0.0, x.dtype, x.device)


@attribute
def apart(shape: Shape) -> Shape:
    """The shape of heads with a dim of their own for what repeats them."""
    return (*shape[:-2], 1, *shape[-2:])


@attribute
def beside(size: Shape) -> Shape:
    """The shape of repeated heads, side by side."""
    return (*size[:-4], size[-4] * size[-3], *size[-2:])


def repeated(k: Any, y: Shape, v: Any, z: Shape) -> bool:
    """Whether expanding keys and values, with heads apart, to `y` and `z` repeats each head alike."""
    return min(k.ndim, v.ndim) >= 3 and all(size == (*x.shape[:-2], y[-3], *x.shape[-2:]) for x, size in ((k, y), (v, z)))


MASK, MASKS = (finite("m"),), (finite("m", "n"),)

ATTENTION = (
    Rewrite("attention-unscaled",           lambda q, kt, v:               (softmax(q @ kt, -1) @ v,                                        attention(q, kt.mT, v, False, 1.0, shared(q, kt))),            when=unmasked, numerics=ROUNDING),
    Rewrite("attention-scaled",             lambda q, kt, v, s:            (softmax((q @ kt) * s, -1) @ v,                                  attention(q, kt.mT, v, False, s.value, shared(q, kt))),        when=lambda q, kt, v, s: positive(s) and unmasked(q, kt, v), numerics=ROUNDING),
    # A row hidden whole (-inf everywhere) is NaN in a softmax and 0 in attention: the mask must be finite.
    Rewrite("attention-masked",             lambda q, kt, v, m:            (softmax((q @ kt) + m, -1) @ v,                                  attention(q, kt.mT, v, m, False, 1.0, shared(q, kt))),         when=masked, numerics=ROUNDING, facts=MASK),
    Rewrite("attention-scaled-masked",      lambda q, kt, v, m, s:         (softmax((q @ kt) * s + m, -1) @ v,                              attention(q, kt.mT, v, m, False, s.value, shared(q, kt))),     when=lambda q, kt, v, m, s: positive(s) and masked(q, kt, v, m), numerics=ROUNDING, facts=MASK),
    Rewrite("attention-masked-any",         lambda q, kt, v, m:            (softmax((q @ kt) + m, -1) @ v,                                  attention(q, kt.mT, v, m, False, 1.0, shared(q, kt))),         when=masked, numerics=RELAXED),
    Rewrite("attention-scaled-masked-any",  lambda q, kt, v, m, s:         (softmax((q @ kt) * s + m, -1) @ v,                              attention(q, kt.mT, v, m, False, s.value, shared(q, kt))),     when=lambda q, kt, v, m, s: positive(s) and masked(q, kt, v, m), numerics=RELAXED),
    Rewrite("attention-two-masks",          lambda q, kt, v, m, n:         (softmax((q @ kt) + (m + n), -1) @ v,                            attention(q, kt.mT, v, m + n, False, 1.0, shared(q, kt))),     when=lambda q, kt, v, m, n: masked(q, kt, v, m) and masked(q, kt, v, n), numerics=ROUNDING, facts=MASKS),
    Rewrite("attention-scaled-two-masks",   lambda q, kt, v, m, n, s:      (softmax((q @ kt) * s + (m + n), -1) @ v,                        attention(q, kt.mT, v, m + n, False, s.value, shared(q, kt))), when=lambda q, kt, v, m, n, s: positive(s) and masked(q, kt, v, m) and masked(q, kt, v, n), numerics=ROUNDING, facts=MASKS),
    # Heads of keys and values that groups of queries share.
    Rewrite("attention-grouped",            lambda q, k, y, v, z, c, a:    (attention(q, reshape(expand(reshape(k, apart(k.shape)), y), beside(y)), reshape(expand(reshape(v, apart(v.shape)), z), beside(z)), c, a, False), attention(q, k, v, c, a, True)), when=lambda k, y, v, z, c: repeated(k, y, v, z) and shown(k, k.shape[-2], c), numerics=ROUNDING),
    Rewrite("attention-grouped-masked",     lambda q, k, y, v, z, m, c, a: (attention(q, reshape(expand(reshape(k, apart(k.shape)), y), beside(y)), reshape(expand(reshape(v, apart(v.shape)), z), beside(z)), m, c, a, False), attention(q, k, v, m, c, a, True)), when=lambda k, y, v, z: repeated(k, y, v, z) and kept(k, k.shape[-2]), numerics=ROUNDING),
    # What `where` hides it hides from NaN too.
    Rewrite("softmax-where-mask",           lambda x, c, n:                (softmax(torch.where(c, x, n), -1),                              softmax(x + torch.where(c, zero_like(x), n), -1)),     when=hides, numerics=RELAXED),
    Rewrite("softmax-where-mask-out",       lambda x, c, n:                (softmax(torch.where(c, n, x), -1),                              softmax(x + torch.where(c, n, zero_like(x)), -1)),     when=hides, numerics=RELAXED),
    Rewrite("softmax-lowest",               lambda x, z, t, c:             (softmax(torch.maximum(x, full(z, least(t), t, c)), -1),          softmax(x, -1)),                                       when=lambda x, t: x.dtype == t, numerics=RELAXED),
    # Casts around a softmax: attention computes it in single precision anyhow.
    Rewrite("softmax-upcast",               lambda x, f, g:                (f(softmax(g(x), -1)),                                           softmax(x, -1)),                                       when=widened, numerics=ROUNDING),
    Rewrite("softmax-upcast-scaled",        lambda x, f, g, s:             (f(softmax(g(x) * s, -1)),                                       softmax(x * s, -1)),                                   when=lambda f, g, x, s: widened(f, g, x) and positive(s), numerics=ROUNDING),
    Rewrite("softmax-upcast-masked",        lambda x, f, g, m:             (f(softmax(g(x) + g(m), -1)),                                    softmax(x + m, -1)),                                   when=lambda f, g, x, m: widened(f, g, x) and x.dtype == m.dtype, numerics=ROUNDING),
    Rewrite("softmax-upcast-scaled-masked", lambda x, f, g, s, m:          (f(softmax(g(x) * s + m, -1)),                                   f(softmax(g(x * s) + m, -1))),                         when=lambda f, g, x, s: widened(f, g, x) and positive(s), numerics=ROUNDING),
    # Scales and masks in other places.
    Rewrite("softmax-masks",                lambda x, m, n:                (softmax((x + m) + n, -1),                                       softmax(x + (m + n), -1)),                             when=lambda x, m, n: x.dtype == m.dtype == n.dtype, numerics=ROUNDING),
    Rewrite("softmax-scaled-mask",          lambda x, m, s:                (softmax((x + m) * s, -1),                                       softmax(x * s + m * s, -1)),                           when=lambda x, m, s: positive(s) and real(x, m), numerics=ROUNDING),
    Rewrite("softmax-scaled-masks",         lambda x, m, n, s:             (softmax((x + m) * s + n, -1),                                   softmax(x * s + (m * s + n), -1)),                     when=lambda x, m, n, s: positive(s) and real(x, m, n), numerics=ROUNDING),
    Rewrite("softmax-from-parts",           lambda x, d:                   (torch.exp(x) / reduction(SUM, torch.exp(x), d, True),           softmax(x, d[0])),                                     when=lambda d: len(d) == 1, numerics=ROUNDING),
    Rewrite("softmax-late",                 lambda x, v:                   ((torch.exp(x) @ v) / reduction(SUM, torch.exp(x), (-1,), True), softmax(x, -1) @ v),                                   when=lambda x, v: min(x.ndim, v.ndim) >= 2, numerics=ROUNDING),
    Rewrite("softmax-shift",                lambda x, d:                   (softmax(x - reduction(AMAX, x, (d,), True), d),                 softmax(x, d)),                                        numerics=ROUNDING),
    Rewrite("attention-scale-query",        lambda q, k, v, s, c, a, g:    (attention(q * s, k, v, c, a, g),                                attention(q, k, v, c, a * s.value, g)),                when=lambda k, s, c: positive(s) and shown(k, k.shape[-2], c), numerics=ROUNDING),
    Rewrite("attention-scale-key",          lambda q, k, v, s, c, a, g:    (attention(q, k * s, v, c, a, g),                                attention(q, k, v, c, a * s.value, g)),                when=lambda k, s, c: positive(s) and shown(k, k.shape[-2], c), numerics=ROUNDING),
    Rewrite("attention-scale-query-masked", lambda q, k, v, m, s, c, a, g: (attention(q * s, k, v, m, c, a, g),                             attention(q, k, v, m, c, a * s.value, g)),             when=lambda k, s: positive(s) and kept(k, k.shape[-2]), numerics=ROUNDING),
    Rewrite("attention-scale-key-masked",   lambda q, k, v, m, s, c, a, g: (attention(q, k * s, v, m, c, a, g),                             attention(q, k, v, m, c, a * s.value, g)),             when=lambda k, s: positive(s) and kept(k, k.shape[-2]), numerics=ROUNDING),
)
