"""Concatenation: parts taken out again, parts put together, and functions across them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from eqsat.operators import cat, slice_
from eqsat.rewrite import ROUNDING, Condition, Rewrite, attribute
from rewrites.attributes import spans, steady

PARTS = (2, 3, 4)


@attribute
def inside(value: Any, dim: int, *before: Any) -> Any:
    """A position along `dim` of a cat, counted from the end of the parts `before`."""
    return value - sum(x.shape[dim] for x in before)


@attribute
def length(x: Any, dim: int) -> Any:
    """The size of `x` along `dim`."""
    return x.shape[dim]


def names(n: int) -> tuple[str, ...]:
    """The variables that stand for `n` parts."""
    return tuple(f"x{i}" for i in range(n))


def _slice(n: int, i: int, j: int) -> Rewrite:
    """A slice of a cat of `n` parts that starts in part `i` and ends in part `j`."""

    def rule(*v: Any) -> Any:
        x, (d, s, e, k) = v[:n], v[n:]
        start, end = inside(s, d, *x[:i]), inside(e, d, *x[:j])
        if i == j:
            return slice_(cat(*x, d), d, s, e, k), slice_(x[i], d, start, end, k)
        ends = slice_(x[i], d, start, length(x[i], d), k), slice_(x[j], d, 0, end, k)
        return slice_(cat(*x, d), d, s, e, k), cat(ends[0], *x[i + 1 : j], ends[1], d)

    def within(d: int, s: Any, e: Any, k: int, *x: Any) -> bool:
        if not inside(s, d, *x[:i]) >= 0 or not inside(e, d, *x[: j + 1]) <= 0:
            return False
        return i == j or (k == 1 and inside(s, d, *x[: i + 1]) < 0 and inside(e, d, *x[:j]) > 0)

    when = Condition(("d", "s", "e", "k", *names(n)), within)
    return Rewrite(f"cat-slice-{n}-{i}-{j}", rule, when=when, variables=(*names(n), "d", "s", "e", "k"))


def _slice_apart(n: int) -> Rewrite:
    """A slice of a cat along another dim."""

    def rule(*v: Any) -> Any:
        x, (n_, d, s, e, k) = v[:n], v[n:]
        return slice_(cat(*x, n_), d, s, e, k), cat(*(slice_(part, d, s, e, k) for part in x), n_)

    return Rewrite(f"cat-slice-{n}-apart", rule, when=lambda n, d: n != d, variables=(*names(n), "n", "d", "s", "e", "k"))


def _tiles(n: int) -> Rewrite:
    """Neighbouring slices put together."""

    def rule(x: Any, d: Any, *at: Any) -> Any:
        parts = (slice_(x, d, a, b, 1) for a, b in pairwise(at))
        return cat(*parts, d), slice_(x, d, at[0], at[-1], 1)

    return Rewrite(f"cat-tiles-{n}", rule, variables=("x", "d", *(f"s{i}" for i in range(n + 1))))


def _flatten(n: int, i: int, m: int) -> Rewrite:
    """A cat whose part `i` is a cat of `m` parts, as one cat."""

    def rule(*v: Any) -> Any:
        x, d = v[:-1], v[-1]
        return cat(*x[:i], cat(*x[i : i + m], d), *x[i + m :], d), cat(*x, d)

    return Rewrite(f"cat-flatten-{n}-{i}-{m}", rule, variables=(*names(n + m - 1), "d"))


def _pointwise(n: int) -> tuple[Rewrite, ...]:
    """Pointwise functions across a cat of `n` parts, both ways."""
    x, y = names(n), tuple(f"y{i}" for i in range(n))

    def unary(f: Any, d: Any, *v: Any) -> Any:
        return f(cat(*v, d)), cat(*(f(part) for part in v), d)

    def shared(f: Any, d: Any, a: Any, *v: Any) -> Any:
        return f(cat(*v, d), a), cat(*(f(part, a) for part in v), d)

    def binary(f: Any, d: Any, *v: Any) -> Any:
        pairs = zip(v[:n], v[n:], strict=True)
        return f(cat(*v[:n], d), cat(*v[n:], d)), cat(*(f(a, b) for a, b in pairs), d)

    def backwards(rule: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *v: rule(*v)[::-1]

    def alike(*parts: Any) -> bool:
        return len({part.dtype for part in parts}) == 1

    def around(d: int, a: Any, *parts: Any) -> bool:
        return alike(*parts) and not spans(a, d)

    def aligned(d: int, *v: Any) -> bool:
        same = all(a.ndim == b.ndim and a.shape[d] == b.shape[d] for a, b in zip(v[:n], v[n:], strict=True))
        return same and alike(*v[:n]) and alike(*v[n:])

    def all_steady(f: Any, *v: Any) -> bool:
        return all(steady(f, part) for part in v)

    one, beside, both = ("f", "d", *x), ("f", "d", "a", *x), ("f", "d", *x, *y)
    return (
        Rewrite(f"cat-unary-{n}",       backwards(unary),  when=Condition(x, alike), numerics=ROUNDING, exact=Condition(("f", *x), all_steady), variables=one),
        Rewrite(f"unary-cat-{n}",       unary,             when=Condition(x, alike), numerics=ROUNDING, exact=Condition(("f", *x), all_steady), variables=one),
        Rewrite(f"cat-binary-{n}",      backwards(binary), when=Condition(both[1:], aligned),    numerics=ROUNDING, exact=Condition(("f", *x, *y), all_steady), variables=both),
        Rewrite(f"binary-cat-{n}",      binary,            when=Condition(both[1:], aligned),    numerics=ROUNDING, exact=Condition(("f", *x, *y), all_steady), variables=both),
        Rewrite(f"cat-binary-with-{n}", backwards(shared), when=Condition(beside[1:], around),   numerics=ROUNDING, exact=Condition(("f", "a", *x), all_steady), variables=beside),
        Rewrite(f"binary-with-cat-{n}", shared,            when=Condition(beside[1:], around),   numerics=ROUNDING, exact=Condition(("f", "a", *x), all_steady), variables=beside),
    )


EXCHANGE = Rewrite("cat-exchange", lambda a, b, x, y, d, e: (cat(cat(a, b, d), cat(x, y, d), e), cat(cat(a, x, e), cat(b, y, e), d)), when=lambda d, e: d != e)

CAT = (
    EXCHANGE,
    *(_slice(n, i, j) for n in PARTS for i in range(n) for j in range(i, n)),
    *(_slice_apart(n) for n in PARTS),
    *(_tiles(n) for n in PARTS),
    *(_flatten(n, i, m) for n, m in ((2, 2), (2, 3), (3, 2)) for i in range(n)),
    *(rule for n in PARTS[:2] for rule in _pointwise(n)),
)
