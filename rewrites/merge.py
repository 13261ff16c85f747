"""Siblings that read the same input become one operator with weights set side by side, and slices of its result."""

from collections.abc import Sequence
from typing import Any

from eqsat.operators import affine, cat, convolution, full, matmul, slice_
from eqsat.rewrite import ROUNDING, Rewrite, constant, ordered

GEOMETRY = ("stride", "padding", "dilation", "output_padding")


def slices(y: Any, dim: Any, sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The consecutive parts of `y` along `dim` that have these sizes."""
    ends = [sum(sizes[1 : i + 1], sizes[0]) for i in range(len(sizes))]
    starts = [0, *ends[:-1]]
    return tuple(slice_(y, dim, a, b, 1) for a, b in zip(starts, ends, strict=True))


def numbered(letter: str, count: int) -> tuple[str, ...]:
    """The names of `count` variables, such as w0, w1."""
    return tuple(f"{letter}{i}" for i in range(count))


def merged_matmuls(count: int) -> Rewrite:
    """The rule that merges `count` products of one matrix."""

    def rule(x: Any, *w: Any) -> tuple[Any, Any]:
        return tuple(x @ a for a in w), slices(x @ cat(w, -1), -1, [a.shape[-1] for a in w])

    weights = numbered("w", count)
    return Rewrite(f"matmul-merge-{count}", rule, numerics=ROUNDING, facts=(ordered(), constant(*weights)), variables=("x", *weights))


def merged_affines(count: int) -> Rewrite:
    """The rule that merges `count` products of one matrix with their biases."""

    def rule(x: Any, *rest: Any) -> tuple[Any, Any]:
        w, b = rest[:count], rest[count:]
        merged = affine(x, cat(w, -1), cat(b, -1))
        return tuple(map(affine, (x,) * count, w, b)), slices(merged, -1, [a.shape[-1] for a in w])

    parameters = (*numbered("w", count), *numbered("b", count))
    return Rewrite(f"affine-merge-{count}", rule, numerics=ROUNDING, facts=(ordered(), constant(*parameters)), variables=("x", *parameters))


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
    *map(merged_matmuls, (2, 3, 4)),
    *map(merged_affines, (2, 3, 4)),
    *(merged_convolutions(count, biased) for biased in (False, True) for count in (2, 3, 4)),
    # An affine map without a bias beside one with: not exact, for -0.0 + 0.0 is 0.0.
    Rewrite("matmul-zero-bias",       lambda x, w, a, b: ((matmul(x, w), affine(x, a, b)), (affine(x, w, zeros(w)), affine(x, a, b))), when=lambda w: w.ndim == 2, numerics=ROUNDING, facts=(ordered(), constant("w"))),
    Rewrite("matmul-zero-bias-after", lambda x, w, a, b: ((affine(x, a, b), matmul(x, w)), (affine(x, a, b), affine(x, w, zeros(w)))), when=lambda w: w.ndim == 2, numerics=ROUNDING, facts=(ordered(), constant("w"))),
)
