"""Two of the same behind each other, as in guidance: what is the same in both halves is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eqsat.operators import (
    adaptive_avg_pool2d,
    affine,
    attention,
    avg_pool2d,
    batch_norm,
    cat,
    convolution,
    embedding,
    expand,
    group_norm,
    layer_norm,
    max_pool2d,
    permute,
    reduction,
    reshape,
    rms_norm,
    softmax,
    upsample_bilinear2d,
    upsample_nearest2d,
)
from eqsat.rewrite import ROUNDING, Condition, Rewrite, attribute
from rewrites.attention import shown
from rewrites.cat import names
from rewrites.movement import placed
from rewrites.part import joined

Shape = tuple[Any, ...]


@attribute
def half(z: Shape) -> Shape:
    """The shape of the first half of a tensor of shape `z`."""
    return (z[0] // 2, *z[1:])


@attribute
def first(z: Shape) -> int:
    """The first dim of a tensor of shape `z`."""
    return -len(z)


@attribute
def reduced(r: tuple[int, ...], keepdim: bool, dim: int) -> int:
    """The dim of a reduction over `r` that dim `dim` of its operand, which is not in `r`, becomes."""
    return dim if keepdim else dim + sum(d > dim for d in r)


@attribute
def ended(z: Shape, w: Any) -> Shape:
    """The shape `z` with the columns of the matrix `w` at its end."""
    return (*z[:-1], w.shape[1])


@attribute
def lengthened(shape: Shape, z: Shape, y: Shape) -> Shape:
    """The shape of what is expanded to `z`, with the dims of one element that `y` has after those of `z`."""
    return (*shape, *y[len(z) :])


def matched(x: Any, y: Any, d: int) -> bool:
    """Whether two tensors of one rank differ in size along `d` only."""
    return all(x.shape[e] == y.shape[e] for e in range(-x.ndim, 0) if e != d)


def twice(x: Any, d: Any) -> Any:
    """The tensor behind itself."""
    return cat(x, x, d)


def _twins(name: str, operator: Any, attributes: str, when: Callable[..., bool], reads: str, parameters: int = 0, operands: int = 1) -> Rewrite:
    """An operator of twins: `operands` tensors that are each behind itself, and `parameters` shared ones."""
    x, w = names(operands), tuple(f"w{i}" for i in range(parameters))
    many = f"-{parameters}" if name.endswith("norm") and "batch" not in name else ""

    def rule(d: Any, *v: Any) -> Any:
        parts, rest = v[:operands], v[operands:]
        return operator(*(twice(part, d) for part in parts), *rest), twice(operator(*parts, *rest), d)

    condition = Condition(("d", *reads.split()), when)
    return Rewrite(f"{name}-twins{many}", rule, condition, numerics=ROUNDING, variables=("d", *x, *w, *attributes.split()))


CONVOLUTION, POOL, MAX_POOL = "s p u t o g", "k s p c i v", "k s p u c"
image = (lambda d: d < -2), ""
batched = (lambda d, x0: d == -x0.ndim), "x0"

TWIN = (
    _twins("convolution", convolution, CONVOLUTION, *batched, parameters=1),
    _twins("convolution-bias", convolution, CONVOLUTION, *batched, parameters=2),
    *(_twins("group-norm", group_norm, "g e", *batched, parameters=k) for k in range(3)),
    _twins("batch-norm", batch_norm, "e", *batched, parameters=4),
    *(_twins("layer-norm", layer_norm, "n e", lambda d, n: -d > len(n), "n", parameters=k) for k in range(3)),
    *(_twins("rms-norm", rms_norm, "n e", lambda d, n: -d > len(n), "n", parameters=k) for k in range(2)),
    _twins("softmax", softmax, "n", lambda d, n: d != n, "n"),
    _twins("matmul", lambda x, w: x @ w, "", lambda d, w0: d < -1 and w0.ndim == 2, "w0", parameters=1),
    _twins("affine", affine, "", lambda d, w0, w1: d < -1 and w0.ndim == 2 and w1.ndim <= 1, "w0 w1", parameters=2),
    _twins("attention", attention, "c a g", lambda d, x0, x1, x2, c, g: d < -2 and not g and x0.ndim == x1.ndim == x2.ndim and shown(x1, x1.shape[-2], c), "x0 x1 x2 c g", operands=3),
    _twins("avg-pool", avg_pool2d, POOL, *image),
    _twins("adaptive-avg-pool", adaptive_avg_pool2d, "z", *image),
    _twins("max-pool", max_pool2d, MAX_POOL, *image),
    _twins("nearest", upsample_nearest2d, "z s", *image),
    _twins("bilinear", upsample_bilinear2d, "z a s", *image),
    Rewrite("embedding-twins",  lambda w, i, d:       (embedding(w, twice(i, d)), twice(embedding(w, i), d - 1))),
    Rewrite("permute-twins",    lambda x, p, d:       (permute(twice(x, d), p), twice(permute(x, p), placed(p, d)))),
    Rewrite("reshape-twins",    lambda x, z, d:       (reshape(twice(x, d), z), twice(reshape(x, half(z)), first(z))),                            when=lambda x, z, d: d == -x.ndim and len(z) > 0 and z[0] % 2 == 0),
    Rewrite("reduction-twins",  lambda f, x, r, h, d: (reduction(f, twice(x, d), r, h), twice(reduction(f, x, r, h), reduced(r, h, d))),          when=lambda r, d: d not in r, numerics=ROUNDING),
    # What is expanded to a batch, too.
    Rewrite("matmul-expand-rows", lambda x, w, z:     (expand(x, z) @ w, expand(x @ w, ended(z, w))),                                            when=lambda x, w, z: x.ndim >= 2 == w.ndim and x.shape[-1] == z[-1], numerics=ROUNDING),
    Rewrite("affine-expand-rows", lambda x, w, b, z:  (affine(expand(x, z), w, b), expand(affine(x, w, b), ended(z, w))),                        when=lambda x, w, b, z: x.ndim >= 2 == w.ndim and b.ndim <= 1 and x.shape[-1] == z[-1], numerics=ROUNDING),
    Rewrite("reshape-expand",   lambda x, z, y:       (reshape(expand(x, z), y), expand(reshape(x, lengthened(x.shape, z, y)), y)),               when=lambda z, y: len(z) < len(y) and y[: len(z)] == z and set(y[len(z) :]) == {1}),
    Rewrite("cat-expand",       lambda x, y, z, u, d: (cat(expand(x, z), expand(y, u), d), expand(cat(x, y, d), joined(d, z, u))),               when=lambda x, y, z, u, d: x.ndim == y.ndim == len(z) == len(u) and x.shape[d] == z[d] and y.shape[d] == u[d] and matched(x, y, d)),
    Rewrite("cat-twins",        lambda x, y, d, e:    (cat(twice(x, d), twice(y, d), e), twice(cat(x, y, e), d)),                                 when=lambda d, e: d != e),
)
