"""Siblings that read the same input become one operator with weights set side by side, and slices of its result."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from eqsat.operators import affine, cat, convolution, full, slice_
from eqsat.rewrite import ROUNDING, Rewrite, constant, given, ordered

GEOMETRY = ("stride", "padding", "dilation", "output_padding")


def slices(y: Any, dim: Any, sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The consecutive parts of `y` along `dim` that have these sizes."""
    ends = [sum(sizes[1 : i + 1], sizes[0]) for i in range(len(sizes))]
    starts = [0, *ends[:-1]]
    return tuple(slice_(y, dim, a, b, 1) for a, b in zip(starts, ends, strict=True))


def numbered(letter: str, count: int) -> tuple[str, ...]:
    """The names of `count` variables, such as w0, w1."""
    return tuple(f"{letter}{i}" for i in range(count))


def merged_products(*biased: bool) -> Rewrite:
    """The rule that merges products of one matrix, each with a bias or without (then zeros stand for it)."""
    weights = numbered("w", len(biased))
    biases = tuple(f"b{i}" for i, has in enumerate(biased) if has)

    def rule(x: Any, *rest: Any) -> tuple[Any, Any]:
        w, given_biases = rest[: len(biased)], iter(rest[len(biased) :])
        b = tuple(next(given_biases) if has else None for has in biased)
        merged = (cat([zeros(a) if c is None else c for a, c in zip(w, b, strict=True)], -1),) if biases else ()
        left = tuple(x @ a if c is None else affine(x, a, c) for a, c in zip(w, b, strict=True))
        right = affine(x, cat(w, -1), *merged) if biases else x @ cat(w, -1)
        return left, slices(right, -1, [a.shape[-1] for a in w])

    kinds = "".join("a" if has else "m" for has in biased)
    name = f"matmul-merge-{len(biased)}" if not biases else f"affine-merge-{len(biased)}" if all(biased) else f"affine-matmul-merge-{kinds}"
    parameters = (*weights, *biases)
    return Rewrite(name, rule, numerics=ROUNDING, facts=(ordered(), given(*parameters), constant(*parameters)), variables=("x", *parameters))


def merged_convolutions(count: int, biased: bool) -> Rewrite:
    """The rule that merges `count` convolutions of one image; with groups, outputs would change places."""

    def rule(x: Any, *rest: Any) -> tuple[Any, Any]:
        stride, padding, dilation, output_padding, *parameters = rest
        geometry = (stride, padding, dilation, False, output_padding, 1)
        w, b = parameters[:count], parameters[count:]
        dim = 0 - w[0].ndim
        operands = zip(w, b, strict=True) if biased else zip(w, strict=True)
        bias = (cat(b, -1),) if biased else ()
        merged = convolution(x, cat(w, dim), *bias, *geometry)
        return tuple(convolution(x, *p, *geometry) for p in operands), slices(merged, dim + 1, [a.shape[0] for a in w])

    parameters = (*numbered("w", count), *(numbered("b", count) if biased else ()))
    name = f"convolution-{'bias-' if biased else ''}merge-{count}"
    return Rewrite(name, rule, numerics=ROUNDING, facts=(ordered(), constant(*parameters)), variables=("x", *GEOMETRY, *parameters))


def zeros(w: Any) -> Any:
    """A bias of zeros for the matrix `w`."""
    return full(w.shape[1:], 0.0, w.dtype, w.device)


MERGE = (
    *(merged_products(*biased) for count in (2, 3) for biased in product((False, True), repeat=count)),
    *(merged_products(*[biased] * 4) for biased in (False, True)),
    *(merged_convolutions(count, biased) for biased in (False, True) for count in (2, 3, 4)),
)
