"""Linear maps of tensors put together, part by part, and linear maps put together as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any

from eqsat.operators import affine, cat, convolution, reshape, slice_
from eqsat.rewrite import ROUNDING, Condition, Rewrite, attribute, given
from rewrites.cat import PARTS, length, names

Shape = tuple[Any, ...]


def shares(w: Any, dim: int, x: tuple[Any, ...], along: int) -> list[Any]:
    """The slices of `w` along `dim` that meet the parts `x`, put together along `along`."""
    ends = accumulate((length(part, along) for part in x), initial=0)
    return [slice_(w, dim, start, end, 1) for start, end in pairwise(ends)]


def total(parts: list[Any]) -> Any:
    """The sum of the parts, from the first on."""
    return reduce(lambda a, b: a + b, parts)


@attribute
def under_one(shape: Shape) -> Shape:
    """The shape of a matrix as the only one of a batch."""
    return (1, *shape)


@attribute
def as_row(shape: Shape) -> Shape:
    """The shape of a vector as the only row of the only matrix of a batch."""
    return (1, 1, *shape)


@attribute
def along(d: int, shape: Shape, z: Shape) -> int | None:
    """The dim along which tensors like one of `shape` lie as their reshapes to `z` do along `d`; None without one."""
    outer = math.prod(z[: len(z) + d])
    return next((e - len(shape) for e in range(len(shape)) if math.prod(shape[:e]) == outer), None)


@attribute
def joined(d: int, *z: Shape) -> Shape:
    """The shape of a cat along `d` of tensors of these shapes."""
    at = len(z[0]) + d
    return (*z[0][:at], sum(size[d] for size in z), *z[0][at + 1 :])


def one(x: Any) -> Any:
    """A matrix as the only one of a batch."""
    return reshape(x, under_one(x.shape))


def row(b: Any) -> Any:
    """A vector as the only row of the only matrix of a batch."""
    return reshape(b, as_row(b.shape))


def stack(parts: Iterable[Any]) -> Any:
    """The matrices of one batch."""
    return cat(*parts, -3)


def _linear(n: int) -> tuple[Rewrite, ...]:
    """Linear maps of a cat of `n` parts, and cats of as many linear maps."""
    x, v, b, z = (tuple(f"{letter}{i}" for i in range(n)) for letter in "xvbz")

    def rule(name: str, variables: tuple[str, ...], law: Callable[..., Any], reads: tuple[str, ...], when: Callable[..., bool], *facts: Any) -> Rewrite:
        condition = Condition(reads, when)
        return Rewrite(f"{name}-{n}", law, when=condition, numerics=ROUNDING, facts=facts, variables=variables)

    def matmul_cat(w: Any, *x: Any) -> Any:
        return cat(*x, -1) @ w, total([part @ share for part, share in zip(x, shares(w, -2, x, -1), strict=True)])

    def affine_cat(w: Any, b: Any, *x: Any) -> Any:
        first, *rest = zip(x, shares(w, -2, x, -1), strict=True)
        return affine(cat(*x, -1), w, b), total([affine(*first, b), *(part @ share for part, share in rest)])

    def rows(d: Any, w: Any, b: Any, *x: Any) -> Any:
        return cat(*(affine(part, w, b) for part in x), d), affine(cat(*x, d), w, b)

    def stacked(z: Any, *xv: Any) -> Any:
        pairs = zip(xv[:n], xv[n:], strict=True)
        return stack([reshape(a @ b, z) for a, b in pairs]), stack(map(one, xv[:n])) @ stack(map(one, xv[n:]))

    def stacked_affine(z: Any, *xvb: Any) -> Any:
        x, v, b = xvb[:n], xvb[n : 2 * n], xvb[2 * n :]
        products = stack(map(one, x)) @ stack(map(one, v))
        return stack([reshape(affine(*parts), z) for parts in zip(x, v, b, strict=True)]), products + stack(map(row, b))

    def reshaped(d: Any, *xz: Any) -> Any:
        x, z = xz[:n], xz[n:]
        parts = [reshape(part, size) for part, size in zip(x, z, strict=True)]
        return cat(*parts, d), reshape(cat(*x, along(d, x[0].shape, z[0])), joined(d, *z))

    def alike_shapes(z: tuple[Any, ...], *xv: Any) -> bool:
        same = all(tuple(a.shape) == tuple(b.shape) for half in (xv[:n], xv[n : 2 * n]) for a, b in pairwise(half))
        biases = all(b.ndim == 1 for b in xv[2 * n :])
        return len(z) == 3 and z[0] == 1 and xv[0].ndim == xv[n].ndim == 2 and same and biases

    def beside(d: int, *xz: Any) -> bool:
        e = along(d, xz[0].shape, xz[n])
        rest = {(*x.shape[: x.ndim + e], *x.shape[x.ndim + e + 1 :]) for x in xz[:n]} if e else set()
        return e is not None and len(rest) == 1 and len({x.ndim for x in xz[:n]}) == 1

    def alike(d: int, w: Any, b: Any, *x: Any) -> bool:
        return d < -1 and w.ndim == 2 and b.ndim <= 1 and len({part.ndim for part in x}) == 1 and -d <= x[0].ndim

    return (
        rule("matmul-of-cat", ("w", *x), matmul_cat, ("w",), lambda w: w.ndim == 2, given("w")),
        rule("affine-of-cat", ("w", "b", *x), affine_cat, ("w", "b"), lambda w, b: w.ndim == 2 and b.ndim <= 1, given("w")),
        *_convolutions(n),
        rule("cat-affine-rows", ("d", "w", "b", *x), rows, ("d", "w", "b", *x), alike),
        rule("stack-matmul", ("z", *x, *v), stacked, ("z", *x, *v), alike_shapes),
        rule("stack-affine", ("z", *x, *v, *b), stacked_affine, ("z", *x, *v, *b), alike_shapes),
        Rewrite(f"cat-reshape-{n}", reshaped, Condition(("d", *x, *z), beside), variables=("d", *x, *z)),
    )


def _convolutions(n: int) -> tuple[Rewrite, Rewrite]:
    """A convolution of the channels of `n` parts, without and with bias."""
    geometry = ("s", "p", "u", "o")
    x = names(n)

    def plain(w: Any, d: Any, s: Any, p: Any, u: Any, o: Any, *x: Any) -> Any:
        rest = (s, p, u, False, o, 1)
        parts = zip(x, shares(w, 1 - w.ndim, x, 1 - w.ndim), strict=True)
        return convolution(cat(*x, d), w, *rest), total([convolution(part, share, *rest) for part, share in parts])

    def biased(w: Any, b: Any, d: Any, s: Any, p: Any, u: Any, o: Any, *x: Any) -> Any:
        rest = (s, p, u, False, o, 1)
        first, *others = zip(x, shares(w, 1 - w.ndim, x, 1 - w.ndim), strict=True)
        parts = [convolution(*first, b, *rest), *(convolution(part, share, *rest) for part, share in others)]
        return convolution(cat(*x, d), w, b, *rest), total(parts)

    when = Condition(("w", "d"), lambda w, d: d == 1 - w.ndim)
    facts = (given("w"),)
    return (
        Rewrite(f"convolution-of-cat-{n}", plain, when, numerics=ROUNDING, facts=facts, variables=("w", "d", *geometry, *x)),
        Rewrite(f"convolution-bias-of-cat-{n}", biased, when, numerics=ROUNDING, facts=facts, variables=("w", "b", "d", *geometry, *x)),
    )


PART = tuple(rule for n in PARTS for rule in _linear(n))
