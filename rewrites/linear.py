"""Products of matrices: association, distribution, transposition, scales and biases."""

from typing import Any

from eqsat.operators import affine, cat, matmul, reshape
from eqsat.rewrite import ROUNDING, Rewrite, constant, distinct, given
from rewrites.attributes import additive


def chained(a: Any, b: Any, c: Any) -> bool:
    """Whether a @ b @ c is a product of matrices; (a @ b) @ c of vectors b is not a @ (b @ c)."""
    return b.ndim == 2 or min(a.ndim, b.ndim, c.ndim) >= 2


def of_columns(x: Any, w: Any, s: Any) -> bool:
    """Whether `s` scales whole columns of `w`, and of `x @ w` (whose dims a vector `x` shifts)."""
    return s.ndim == 0 or (w.ndim >= 2 and (s.ndim == 1 or (x.ndim >= 2 and s.shape[-2] == 1)))


def of_rows(x: Any, w: Any, s: Any) -> bool:
    """Whether `s` scales whole rows of `x`."""
    return 0 < s.ndim <= x.ndim and s.shape[-1] == 1 and w.ndim >= 2


def is_bias(w: Any, b: Any) -> bool:
    """Whether `b` has one number for each column of the matrix `w`."""
    return w.ndim == 2 and tuple(b.shape) == (w.shape[-1],)


def is_table(x: Any, w: Any, b: Any) -> bool:
    """Whether `b` has one number for each element of a product of matrices."""
    return x.ndim == w.ndim == 2 and tuple(b.shape) == (x.shape[0], w.shape[1])


def stacked(x: Any, y: Any, w: Any, d: int) -> bool:
    """Whether `d` counts rows, or products of one matrix `w`, in a cat of `x @ w` and `y @ w`."""
    return w.ndim >= 2 and -d <= min(x.ndim, y.ndim) and (d == -2 or (d < -2 and w.ndim < -d))


LINEAR = (
    Rewrite("matmul-associate",        lambda a, b, c:       ((a @ b) @ c,                       a @ (b @ c)),                          when=chained, numerics=ROUNDING),
    Rewrite("matmul-associate-left",   lambda a, b, c:       (a @ (b @ c),                       (a @ b) @ c),                          when=chained, numerics=ROUNDING),
    Rewrite("matmul-transpose",        lambda a, b:          ((a @ b).mT,                        b.mT @ a.mT),                          numerics=ROUNDING),
    Rewrite("matmul-untranspose",      lambda a, b:          (a.mT @ b.mT,                       (b @ a).mT),                           numerics=ROUNDING),
    Rewrite("matmul-factor-left",      lambda x, a, b, f:    (f(x @ a, x @ b),                   x @ f(a, b)),                          when=lambda a, b, f: additive(f) and a.ndim == b.ndim, numerics=ROUNDING),
    Rewrite("matmul-factor-right",     lambda x, y, w, f:    (f(x @ w, y @ w),                   f(x, y) @ w),                          when=lambda x, y, f: additive(f) and x.ndim == y.ndim, numerics=ROUNDING),
    Rewrite("matmul-distribute-left",  lambda x, a, b, f:    (x @ f(a, b),                       f(x @ a, x @ b)),                      when=lambda a, b, f: additive(f) and a.ndim == b.ndim, numerics=ROUNDING),
    Rewrite("matmul-distribute-right", lambda x, y, w, f:    (f(x, y) @ w,                       f(x @ w, y @ w)),                      when=lambda x, y, f: additive(f) and x.ndim == y.ndim, numerics=ROUNDING),
    Rewrite("matmul-scale-left",       lambda x, w, s:       ((x * s) @ w,                       (x @ w) * s),                          when=lambda s: s.ndim == 0, numerics=ROUNDING),
    Rewrite("matmul-scale-right",      lambda x, w, s:       (x @ (w * s),                       (x @ w) * s),                          when=of_columns, numerics=ROUNDING),
    Rewrite("matmul-scale-weight",     lambda x, w, s:       ((x @ w) * s,                       x @ (w * s)),                          when=of_columns, numerics=ROUNDING, facts=(constant("w", "s"),)),
    Rewrite("matmul-scale-rows",       lambda x, w, s:       ((x @ w) * s,                       (x * s) @ w),                          when=of_rows, numerics=ROUNDING),
    Rewrite("matmul-input-scale",      lambda x, w, s:       ((x * s) @ w,                       x @ (w * reshape(s, s.shape + (1,)))), when=lambda w, s: s.ndim == 1 and w.ndim == 2, numerics=ROUNDING, facts=(given("w"), constant("w", "s"))),
    Rewrite("matmul-input-shift",      lambda x, w, c:       ((x + c) @ w,                       affine(x, w, c @ w)),                  when=lambda w, c: c.ndim == 1 and w.ndim == 2, numerics=ROUNDING, facts=(constant("w", "c"),)),
    Rewrite("affine-split",            lambda x, w, b:       (affine(x, w, b),                   matmul(x, w) + b),                     numerics=ROUNDING),
    Rewrite("affine-join",             lambda x, w, b:       (matmul(x, w) + b,                  affine(x, w, b)),                      when=is_bias, numerics=ROUNDING),
    Rewrite("affine-join-rows",        lambda x, w, b:       (matmul(x, w) + b,                  affine(x, w, b)),                      when=is_table, numerics=ROUNDING, facts=(constant("b"),)),
    Rewrite("affine-shift",            lambda x, w, b, c:    (affine(x, w, b) + c,               affine(x, w, b + c)),                  when=lambda w, b, c: is_bias(w, b) and is_bias(w, c), numerics=ROUNDING),
    Rewrite("affine-scale",            lambda x, w, b, s:    (affine(x, w, b) * s,               affine(x, w * s, b * s)),              when=lambda w, b, s: is_bias(w, b) and (s.ndim == 0 or is_bias(w, s)), numerics=ROUNDING, facts=(constant("w", "b", "s"),)),
    Rewrite("affine-factor",           lambda x, a, b, c, d: (affine(x, a, b) + affine(x, c, d), affine(x, a + c, b + d)),              when=lambda a, b, c, d: a.shape == c.shape and is_bias(a, b) and is_bias(c, d), numerics=ROUNDING),
    Rewrite("affine-factor-matmul",    lambda x, a, b, c:    (affine(x, a, b) + x @ c,           affine(x, a + c, b)),                  when=lambda a, b, c: a.shape == c.shape and is_bias(a, b), numerics=ROUNDING),
    # Across what stands between them: sums in general are not associated.
    Rewrite("matmul-factor-left-across",  lambda x, a, b, c: ((x @ a + c) + x @ b,               x @ (a + b) + c),                             when=lambda a, b, c: a.shape == b.shape and c.dtype == a.dtype, numerics=ROUNDING),
    Rewrite("matmul-factor-right-across", lambda x, y, w, c: ((x @ w + c) + y @ w,               (x + y) @ w + c),                             when=lambda x, y, c: x.shape == y.shape and c.dtype == x.dtype, numerics=ROUNDING),
    # Side by side.
    Rewrite("matmul-add",         lambda x, y, v, w:       (x @ v + y @ w,                     cat(x, y, -1) @ cat(v, w, -2)),               numerics=ROUNDING, facts=(given("v", "w"), constant("v", "w"), distinct("x", "y"), distinct("v", "w"))),
    Rewrite("affine-add",         lambda x, y, v, b, w, c: (affine(x, v, b) + affine(y, w, c), affine(cat(x, y, -1), cat(v, w, -2), b + c)), when=lambda v, b, w, c: is_bias(v, b) and is_bias(w, c), numerics=ROUNDING, facts=(given("v", "w"), constant("v", "b", "w", "c"), distinct("x", "y"), distinct("v", "w"))),
    Rewrite("affine-add-matmul",  lambda x, y, w, b, v:    (affine(x, w, b) + y @ v,           affine(cat(x, y, -1), cat(w, v, -2), b)),     when=is_bias, numerics=ROUNDING, facts=(given("v", "w"), constant("v", "b", "w"), distinct("x", "y"), distinct("v", "w"))),
    Rewrite("cat-matmul-columns", lambda x, v, w:          (cat(x @ v, x @ w, -1),             x @ cat(v, w, -1)),                           when=lambda v, w: v.ndim == w.ndim >= 2, numerics=ROUNDING),
    Rewrite("cat-matmul-rows",    lambda x, y, w, d:       (cat(x @ w, y @ w, d),              cat(x, y, d) @ w),                            when=stacked, numerics=ROUNDING),
)
