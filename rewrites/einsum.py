"""Einsum, and products that are scaled as something is added, in plain products of matrices."""

import functools
import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch

from eqsat.operators import SUM, einsum, permute, reduction, reshape, scaled_affine
from eqsat.rewrite import ROUNDING, Rewrite, attribute
from rewrites.attributes import whole

Dims = tuple[int, ...]
Shape = tuple[Any, ...]


@functools.lru_cache(1 << 12)
def labels(equation: str) -> tuple[str, ...]:
    """The labels of the operands, and of the result."""
    inputs, _, output = equation.partition("->")
    return (*inputs.split(","), output)


@functools.lru_cache(1 << 12)
def roles(equation: str) -> tuple[str, str, str, str]:
    """The labels of a product of two: of a batch, of the left and the right operand alone, and summed."""
    a, b, out = labels(equation)
    return (
        "".join(n for n in out if n in a and n in b),
        "".join(n for n in out if n in a and n not in b),
        "".join(n for n in out if n in b and n not in a),
        "".join(n for n in a if n in b and n not in out),
    )


def lonely(equation: str, operand: int) -> Dims:
    """The dims of an operand that are in no other operand and not in the result."""
    every = labels(equation)
    others = "".join(every[:operand] + every[operand + 1 :])
    return tuple(d - len(every[operand]) for d, n in enumerate(every[operand]) if n not in others)


def order(of: str, wanted: str) -> Dims:
    """The permutation that brings dims with the labels `of` into the order `wanted`."""
    return tuple(of.index(n) for n in wanted)


def measured(wanted: str, of: str, shape: Shape) -> Shape:
    """The sizes that the labels `wanted` have in a tensor of `shape` with the labels `of`."""
    return tuple(shape[of.index(n)] for n in wanted)


def grouped(batch: str, kept: str, of: str, shape: Shape) -> Shape:
    """The sizes of the dims of an operand that are not summed: one dim for `kept` under a batch."""
    sizes = measured(kept, of, shape)
    return (*measured(batch, of, shape), math.prod(sizes)) if batch or not sizes else sizes


@attribute
def rows(equation: str) -> Dims:
    """The permutation of the left operand that makes it a batch of rows."""
    batch, left, _, summed = roles(equation)
    return order(labels(equation)[0], batch + left + summed)


@attribute
def row_shape(equation: str, shape: Shape) -> Shape:
    """The shape of the left operand as matrices."""
    batch, left, _, summed = roles(equation)
    a = labels(equation)[0]
    return (*grouped(batch, left, a, shape), math.prod(measured(summed, a, shape)))


@attribute
def columns(equation: str) -> Dims:
    """The permutation of the right operand that makes it a batch of columns."""
    batch, _, right, summed = roles(equation)
    return order(labels(equation)[1], batch + summed + right)


@attribute
def column_shape(equation: str, shape: Shape) -> Shape:
    """The shape of the right operand as matrices."""
    batch, _, right, summed = roles(equation)
    b = labels(equation)[1]
    sizes = (math.prod(measured(names, b, shape)) for names in (summed, right))
    return (*measured(batch, b, shape), *sizes)


@attribute
def product_shape(equation: str, a: Shape, b: Shape) -> Shape:
    """The shape of the product of the matrices, each label a dim."""
    batch, left, right, _ = roles(equation)
    first, second, _ = labels(equation)
    return (*measured(batch + left, first, a), *measured(right, second, b))


@attribute
def result_order(equation: str) -> Dims:
    """The permutation that gives the product of the matrices the order of the result."""
    batch, left, right, _ = roles(equation)
    return order(batch + left + right, labels(equation)[2])


@attribute
def kept_order(equation: str, operand: int) -> Dims:
    """The permutation of an operand, less its lonely dims, into the order of the result."""
    every = labels(equation)
    others = "".join(every[:operand] + every[operand + 1 :])
    return order("".join(n for n in every[operand] if n in others), "".join(n for n in every[-1] if n in every[operand]))


@attribute
def spread(equation: str, operand: int, shape: Shape) -> Shape:
    """The shape of an operand in the order of the result, of size 1 where it lacks a dim."""
    every = labels(equation)
    return tuple(shape[every[operand].index(n)] if n in every[operand] else 1 for n in every[-1])


@attribute
def summed_dims(equation: str, operand: int) -> Dims:
    """The lonely dims of an operand."""
    return lonely(equation, operand)


@attribute
def without(equation: str, operand: int) -> str:
    """The equation once the lonely dims of an operand are summed."""
    *inputs, output = labels(equation)
    gone = [inputs[operand][d] for d in lonely(equation, operand)]
    inputs[operand] = "".join(n for n in inputs[operand] if n not in gone)
    return f"{','.join(inputs)}->{output}"


@attribute
def first_pair(equation: str, i: int, j: int) -> str:
    """The equation of the product of two of the operands: what no other needs is summed."""
    every = labels(equation)
    needed = "".join(text for k, text in enumerate(every) if k not in (i, j))
    kept = dict.fromkeys(n for n in every[i] + every[j] if n in needed)
    return f"{every[i]},{every[j]}->{''.join(kept)}"


@attribute
def others(equation: str, i: int, j: int) -> str:
    """The equation of the product of two of the operands with all others."""
    *inputs, output = labels(equation)
    pair = labels(first_pair(equation, i, j))[2]
    return f"{','.join([pair, *(text for k, text in enumerate(inputs) if k not in (i, j))])}->{output}"


def is_product(a: Any, q: str) -> bool:
    """Whether something is summed, and nothing that only one operand has: of numbers, as there is no product of bools."""
    return a.dtype != torch.bool and bool(roles(q)[3]) and not lonely(q, 0) and not lonely(q, 1)


def is_pointwise(q: str) -> bool:
    """Whether nothing is summed."""
    return not roles(q)[3] and not lonely(q, 0) and not lonely(q, 1)


def _pair(n: int, i: int, j: int) -> Rewrite:
    """A product of `n` operands as that of the `i`-th and the `j`-th, and then of the others."""

    def rule(*v: Any) -> Any:
        x, equation = v[:n], v[n]
        rest = (part for k, part in enumerate(x) if k not in (i, j))
        first = einsum(x[i], x[j], first_pair(equation, i, j))
        return einsum(*x, equation), einsum(first, *rest, others(equation, i, j))

    return Rewrite(f"einsum-pair-{n}-{i}-{j}", rule, when=lambda x0: not whole(x0), numerics=ROUNDING, variables=(*(f"x{k}" for k in range(n)), "equation"))


@attribute
def scale(value: Any) -> Any:
    """An attribute as a number."""
    return value


def has_lonely(operand: int) -> Callable[[str], bool]:
    """The condition that an operand has dims of its own that are summed."""
    return lambda q: bool(lonely(q, operand))


EINSUM = (
    Rewrite("einsum-matmul",    lambda a, b, q: (einsum(a, b, q), permute(reshape(reshape(permute(a, rows(q)), row_shape(q, a.shape)) @ reshape(permute(b, columns(q)), column_shape(q, b.shape)), product_shape(q, a.shape, b.shape)), result_order(q))), when=is_product, numerics=ROUNDING),
    Rewrite("einsum-mul",       lambda a, b, q: (einsum(a, b, q), reshape(permute(a, kept_order(q, 0)), spread(q, 0, a.shape)) * reshape(permute(b, kept_order(q, 1)), spread(q, 1, b.shape))), when=is_pointwise, numerics=ROUNDING),
    Rewrite("einsum-sum-left",  lambda a, b, q: (einsum(a, b, q), einsum(reduction(SUM, a, summed_dims(q, 0), False), b, without(q, 0))), when=has_lonely(0), numerics=ROUNDING),
    Rewrite("einsum-sum-right", lambda a, b, q: (einsum(a, b, q), einsum(a, reduction(SUM, b, summed_dims(q, 1), False), without(q, 1))), when=has_lonely(1), numerics=ROUNDING),
    Rewrite("einsum-sum",       lambda x, q:    (einsum(x, q),    permute(reduction(SUM, x, summed_dims(q, 0), False), kept_order(q, 0))), when=has_lonely(0), numerics=ROUNDING),
    Rewrite("einsum-permute",   lambda x, q:    (einsum(x, q),    permute(x, kept_order(q, 0))), when=lambda q: not lonely(q, 0)),
    Rewrite("scaled-affine",    lambda x, w, b, beta, alpha: (scaled_affine(x, w, b, beta, alpha), (x @ w) * scale(alpha) + b * scale(beta)), when=lambda x, beta: x.dtype.is_floating_point and beta != 0, numerics=ROUNDING),
    Rewrite("scaled-affine-none", lambda x, w, b, beta, alpha: (scaled_affine(x, w, b, beta, alpha), (x @ w) * scale(alpha)), when=lambda x, beta: x.dtype.is_floating_point and beta == 0, numerics=ROUNDING),
    *(_pair(n, i, j) for n in (3, 4) for i, j in combinations(range(n), 2)),
)
