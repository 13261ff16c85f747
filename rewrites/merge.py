"""Siblings that read the same input become one operator with weights set side by side, and slices of its result."""

from typing import Any

from eqsat.operators import affine, cat, convolution, full, slice_
from eqsat.rewrite import ROUNDING, Fact, Rewrite, constant, neighbours


def halves(y: Any, d: Any, n: Any, m: Any) -> tuple[Any, Any]:
    """The first `n` and the next `m` elements of `y` along `d`."""
    return slice_(y, d, 0, n, 1), slice_(y, d, n, n + m, 1)


def columns(y: Any, v: Any, w: Any) -> tuple[Any, Any]:
    """The columns of `y` that are those of the matrices `v` and `w`."""
    return halves(y, -1, v.shape[-1], w.shape[-1])


def channels(y: Any, v: Any, w: Any) -> tuple[Any, Any]:
    """The channels of `y` that the convolution weights `v` and `w` make."""
    return halves(y, 1 - w.ndim, v.shape[0], w.shape[0])


def zeros(w: Any) -> Any:
    """A bias of zeros for the matrix `w`."""
    return full(w.shape[1:], 0.0, w.dtype, w.device)


def parameters(*names: str) -> tuple[Fact, ...]:
    """The facts of a merge of neighbours with these parameters."""
    return neighbours("x"), constant(*names)


# Without groups: with them, the channels of a merged convolution would change places.
MERGE = (
    Rewrite("matmul-merge",           lambda x, v, w:                   ((x @ v, x @ w),                                                   columns(x @ cat([v, w], -1), v, w)),                                      numerics=ROUNDING, facts=parameters("v", "w")),
    Rewrite("affine-merge",           lambda x, v, b, w, c:             ((affine(x, v, b), affine(x, w, c)),                               columns(affine(x, cat([v, w], -1), cat([b, c], -1)), v, w)),              numerics=ROUNDING, facts=parameters("v", "w", "b", "c")),
    Rewrite("matmul-affine-merge",    lambda x, v, w, c:                ((x @ v, affine(x, w, c)),                                         columns(affine(x, cat([v, w], -1), cat([zeros(v), c], -1)), v, w)),       numerics=ROUNDING, facts=parameters("v", "w", "c")),
    Rewrite("affine-matmul-merge",    lambda x, v, b, w:                ((affine(x, v, b), x @ w),                                         columns(affine(x, cat([v, w], -1), cat([b, zeros(w)], -1)), v, w)),       numerics=ROUNDING, facts=parameters("v", "w", "b")),
    Rewrite("convolution-merge",      lambda x, v, w, s, p, d, o:       ((convolution(x, v, s, p, d, False, o, 1), convolution(x, w, s, p, d, False, o, 1)), channels(convolution(x, cat([v, w], 0 - v.ndim), s, p, d, False, o, 1), v, w), ), numerics=ROUNDING, facts=parameters("v", "w")),
    Rewrite("convolution-bias-merge", lambda x, v, b, w, c, s, p, d, o: ((convolution(x, v, b, s, p, d, False, o, 1), convolution(x, w, c, s, p, d, False, o, 1)), channels(convolution(x, cat([v, w], 0 - v.ndim), cat([b, c], -1), s, p, d, False, o, 1), v, w)), numerics=ROUNDING, facts=parameters("v", "w", "b", "c")),
)
