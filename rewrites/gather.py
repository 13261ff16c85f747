"""Elements that indices pick: picked as early as possible, out of what is computed row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from eqsat.operators import (
    affine,
    embedding,
    index,
    layer_norm,
    permute,
    reshape,
    rms_norm,
    slice_,
    softmax,
)
from eqsat.rewrite import ROUNDING, Condition, Rewrite, attribute, constant
from rewrites.attributes import both_steady, spans, steady
from rewrites.movement import permuted

Shape = tuple[Any, ...]


@attribute
def before(z: Shape, x: Any, dim: int) -> int:
    """The dim of `x` that dim `dim` of its reshape to `z` is, where the dims before are the same."""
    return len(z) + dim - x.ndim


@attribute
def picked(z: Shape, dim: int, *picks: Any) -> Shape:
    """The shape of a tensor of shape `z` indexed from `dim` on."""
    at = len(z) + dim
    return (*z[:at], *torch.broadcast_shapes(*(tuple(pick.shape) for pick in picks)), *z[at + len(picks) :])


@attribute
def within(dim: int, at: int) -> int:
    """The dim of a pick that dim `dim` of the result of indexing `at` is."""
    return dim - at - 1


@attribute
def outside(dim: int, pick: Any) -> int:
    """The dim of what is indexed that dim `dim` of the result is, before the dim that is indexed."""
    return dim + pick.ndim - 1


def apart(y: Any, d: int, *picks: Any) -> bool:
    """Whether `y` broadcasts over what is indexed: it has no such dim, or one element there."""
    return y.ndim <= -(d + len(picks)) or (len(picks) == 1 == picks[0].ndim and not spans(y, d))


def aligned(x: Any, y: Any, d: int, *picks: Any) -> bool:
    """Whether `x` and `y` are indexed alike: they are of one rank, and of the same sizes there."""
    return x.ndim == y.ndim and all(x.shape[d + i] == y.shape[d + i] for i in range(len(picks)))


def _rules(*i: str) -> tuple[Rewrite, ...]:
    """The rules for as many picks as there are names."""
    n = len(i)

    def rule(name: str, variables: str, law: Callable[..., Any], predicate: Callable[..., bool] | None = None, reads: str = "", **options: Any) -> Rewrite:
        """A law of `i` (the picks) and the variables; its condition reads some, `d` and the picks."""
        names = (*i, *variables.split())
        when = None if predicate is None else Condition((*reads.split(), "d", *i), predicate)
        return Rewrite(f"index-{name}-{n}", lambda *v: law(v[:n], *v[n:]), when, numerics=ROUNDING, variables=names, **options)

    def norm(name: str, operator: Any, k: int) -> Rewrite:
        """A norm of the dims behind those that are indexed, with `k` parameters."""
        weights = " ".join(f"w{j}" for j in range(k))
        return rule(
            f"{name}-{k}", f"x {weights} z e d",
            lambda i, x, *v: (index(operator(x, *v[:-1]), *i, v[-1]), operator(index(x, *i, v[-1]), *v[:-1])),
            lambda z, d, *_: d + n <= -len(z), "z",
        )

    return (
        rule("unary", "f x d",          lambda i, f, x, d:       (index(f(x), *i, d), f(index(x, *i, d))), exact=steady),
        rule("binary", "f x y d",       lambda i, f, x, y, d:    (index(f(x, y), *i, d), f(index(x, *i, d), index(y, *i, d))), aligned, "x y", exact=both_steady),
        rule("binary-left", "f x y d",  lambda i, f, x, y, d:    (index(f(x, y), *i, d), f(index(x, *i, d), y)),               lambda x, y, d, *i: x.ndim >= -d and apart(y, d, *i), "x y", exact=both_steady),
        rule("binary-right", "f x y d", lambda i, f, x, y, d:    (index(f(x, y), *i, d), f(x, index(y, *i, d))),               lambda x, y, d, *i: y.ndim >= -d and apart(x, d, *i), "x y", exact=both_steady),
        rule("matmul", "a b d",         lambda i, a, b, d:       (index(a @ b, *i, d), index(a, *i, d) @ b),                   lambda a, b, d, *_: a.ndim >= 2 == b.ndim and d + n < 0, "a b"),
        rule("affine", "x w b d",       lambda i, x, w, b, d:    (index(affine(x, w, b), *i, d), affine(index(x, *i, d), w, b)), lambda x, w, b, d, *_: x.ndim >= 2 == w.ndim and b.ndim <= 1 and d + n < 0, "x w b"),
        rule("softmax", "x s d",        lambda i, x, s, d:       (index(softmax(x, s), *i, d), softmax(index(x, *i, d), s)),   lambda s, d, *_: d + n <= s, "s"),
        rule("embedding", "w k d",      lambda i, w, k, d:       (index(embedding(w, k), *i, d), embedding(w, index(k, *i, d + 1))), lambda d, *_: d + n < 0),
        rule("reshape", "x z d",        lambda i, x, z, d:       (index(reshape(x, z), *i, d), reshape(index(x, *i, before(z, x, d)), picked(z, d, *i))), lambda x, z, d, *_: tuple(x.shape[: len(z) + d + n]) == z[: len(z) + d + n], "x z"),
        *(norm("layer-norm", layer_norm, k) for k in range(3)),
        *(norm("rms-norm", rms_norm, k) for k in range(2)),
        rule("slice", "x d t s e k",    lambda i, x, d, t, s, e, k: (slice_(index(x, *i, d), t, s, e, k), index(slice_(x, t, s, e, k), *i, d)), lambda t, d, *_: d + n <= t, "t"),
    )


GATHER = (
    *_rules("i"),
    *_rules("i", "j"),
    Rewrite("index-compose",        lambda x, i, j, d:             (index(index(x, i, d), j, d), index(x, index(i, j, -1), d)),                            when=lambda i: i.ndim == 1),
    Rewrite("index-permute",        lambda x, i, p, d:             (index(permute(x, p), i, d), permute(index(x, i, permuted(p, d)), p)),                  when=lambda i: i.ndim == 1),
    Rewrite("slice-index-pick",     lambda x, i, d, t, s, e, k:    (slice_(index(x, i, d), t, s, e, k), index(x, slice_(i, within(t, d), s, e, k), d)),     when=lambda i, d, t: d - i.ndim < t <= d),
    Rewrite("slice-index-before",   lambda x, i, d, t, s, e, k:    (slice_(index(x, i, d), t, s, e, k), index(slice_(x, outside(t, i), s, e, k), i, d)),    when=lambda i, d, t: t <= d - i.ndim),
    # Tables that are known ahead take over what is done to their rows.
    Rewrite("embedding-scale",      lambda w, i, s:                (embedding(w, i) * s, embedding(w * s, i)),                                             when=lambda s: s.ndim <= 1, numerics=ROUNDING, facts=(constant("w", "s"),)),
    Rewrite("embedding-matmul",     lambda w, i, v:                (embedding(w, i) @ v, embedding(w @ v, i)),                                             when=lambda i, v: v.ndim == 2 and i.ndim >= 1, numerics=ROUNDING, facts=(constant("w", "v"),)),
    Rewrite("embedding-affine",     lambda w, i, v, b:             (affine(embedding(w, i), v, b), embedding(affine(w, v, b), i)),                         when=lambda i, v, b: v.ndim == 2 and b.ndim <= 1 <= i.ndim, numerics=ROUNDING, facts=(constant("w", "v", "b"),)),
)
