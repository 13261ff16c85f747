"""Projections of keys and values absorbed: by associativity, few queries meet what the keys were projected from."""

from typing import Any

from eqsat.operators import cat, permute, reshape, slice_
from eqsat.rewrite import ROUNDING, Rewrite, attribute, constant
from rewrites.movement import placed

Shape = tuple[Any, ...]
KEYS, VALUES = (0, 2, 3, 1), (0, 2, 1, 3)  # (batch, length, heads, width) as transposed keys, and as values


@attribute
def rows(shape: Shape) -> Shape:
    """The shape of heads of rows as rows."""
    return (shape[0], shape[1] * shape[2], shape[3])


@attribute
def heads(z: Shape, shape: Shape) -> Shape:
    """The shape of a projection's weight, by heads."""
    return (shape[0], *z[2:])


def of_heads(z: Shape, x: Any, w: Any, q: Any) -> bool:
    """Whether `z` splits the projection `x @ w` into the heads of `q`."""
    return len(z) == q.ndim == 4 and x.ndim == 3 and w.ndim == 2 and z[:2] == tuple(x.shape[:2]) and z[:3:2] == tuple(q.shape[:2])


def few(q: Any, width: Any) -> bool:
    """Whether there are fewer rows than numbers in a head: with more, this order takes more work, whatever the rest."""
    return q.shape[-2] < width


def key_weight(w: Any, z: Any) -> Any:
    """The weight that a head's queries meet: (heads, width, channels)."""
    return permute(reshape(w, heads(z, w.shape)), (1, 2, 0))


def value_weight(w: Any, z: Any) -> Any:
    """The weight of a head's values: (heads, channels, width)."""
    return permute(reshape(w, heads(z, w.shape)), (1, 0, 2))


def met(q: Any, x: Any, size: Any) -> Any:
    """The products of all rows of `q` with `x`, which all heads share, in `size`."""
    return reshape(reshape(q, rows(q.shape)) @ x, size)


@attribute
def scores(q: Shape, keys: Any) -> Shape:
    """The shape of the scores of queries and so many keys."""
    return (*q[:-1], keys)


def is_matrices(a: Any, v: Any, w: Any) -> bool:
    """Whether all are matrices, or batches of them."""
    return min(a.ndim, v.ndim, w.ndim) >= 2


def part(a: Any, start: Any, end: Any) -> Any:
    """The columns of `a` from `start` to `end`."""
    return slice_(a, -1, start, end, 1)


ABSORB = (
    Rewrite("permute-cat",          lambda x, y, d, p:             (permute(cat(x, y, d), p),                                             cat(permute(x, p), permute(y, p), placed(p, d)))),
    Rewrite("matmul-of-cat-rows",   lambda a, v, w:                (a @ cat(v, w, -2),                                                    part(a, 0, v.shape[-2]) @ v + part(a, v.shape[-2], v.shape[-2] + w.shape[-2]) @ w), when=is_matrices, numerics=ROUNDING),
    Rewrite("absorb-keys",          lambda q, x, w, z:             (q @ permute(reshape(x @ w, z), KEYS),                                 met(q @ key_weight(w, z), x.mT, scores(q.shape, z[1]))), when=lambda q, x, w, z: of_heads(z, x, w, q) and few(q, z[3]), numerics=ROUNDING, facts=(constant("w"),)),
    Rewrite("absorb-keys-slice",    lambda q, x, w, z, s, e:       (q @ permute(slice_(reshape(x @ w, z), -1, s, e, 1), KEYS),            met(q @ slice_(key_weight(w, z), -2, s, e, 1), x.mT, scores(q.shape, z[1]))), when=lambda q, x, w, z, s, e: of_heads(z, x, w, q) and few(q, e - s), numerics=ROUNDING, facts=(constant("w"),)),
    Rewrite("absorb-values",        lambda p, x, w, z:             (p @ permute(reshape(x @ w, z), VALUES),                               met(p, x, scores(p.shape, x.shape[-1])) @ value_weight(w, z)), when=lambda p, x, w, z: of_heads(z, x, w, p) and few(p, z[3]), numerics=ROUNDING, facts=(constant("w"),)),
    Rewrite("absorb-values-slice",  lambda p, x, w, z, s, e:       (p @ permute(slice_(reshape(x @ w, z), -1, s, e, 1), VALUES),          met(p, x, scores(p.shape, x.shape[-1])) @ slice_(value_weight(w, z), -1, s, e, 1)), when=lambda p, x, w, z, s, e: of_heads(z, x, w, p) and few(p, e - s), numerics=ROUNDING, facts=(constant("w"),)),
)
