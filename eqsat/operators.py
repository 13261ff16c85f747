"""The operators of the language: what each takes, how it evaluates, and what kind of work it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name it has everywhere

from eqsat import moving
from eqsat.expression import Attr, Expr, Var, attribute_of, tensor
from eqsat.functions import Function
from eqsat.kind import Kind
from eqsat.meta import Meta

aten = torch.ops.aten


@dataclass(frozen=True)
class Operator:
    """One operator: `tensors` operands (a range where some are optional), then its attributes.

    Called on tensors it evaluates; called on the variables of a rule it makes an expression.
    Dims are counted from the end (-1 is the last), so that they survive broadcasting; sizes are in
    full (no -1); `start`, `end` of a slice lie in 0..size.
    """

    name: str
    kind: Kind
    tensors: tuple[int, int]
    attributes: tuple[str, ...]
    evaluate: Callable[..., Any]
    infer: Callable[..., Meta | None] | None = None  # from metas, where evaluating would be slow

    @property
    def variadic(self) -> bool:
        """Whether the number of tensor operands varies."""
        return self.tensors[0] != self.tensors[1]

    def __call__(self, *arguments: Any) -> Any:
        """The operator applied to tensors, or its expression in a rule."""
        flat: list[Any] = []
        for argument in arguments[: len(arguments) - len(self.attributes)]:
            flat.extend(argument if isinstance(argument, (list, tuple)) else [argument])
        operands = [a for a in flat if a is not None]
        attributes = arguments[len(arguments) - len(self.attributes) :]
        low, high = self.tensors
        if not low <= len(operands) <= high or len(arguments) < len(self.attributes):
            raise ValueError(
                f"{self.name} takes {low}..{high} tensors and ({', '.join(self.attributes)}), "
                f"not {len(operands)} tensors and {len(attributes)} attributes"
            )
        if any(isinstance(a, (Expr, Attr)) for a in (*operands, *attributes)):
            return Expr(
                self.name,
                tuple(tensor(o) for o in operands),
                tuple(attribute_of(a) for a in attributes),
            )
        return self.evaluate(*operands, *attributes)


def _convolution(x: Any, weight: Any, *rest: Any) -> torch.Tensor:
    """A convolution. Along a kernel of one element a dilation means nothing, and is left out.

    With it torch 2.13 ends the process in float16 on CPUs with AVX512-FP16 (x of (7, 1, 7, 1),
    stride (1, 2), padding (1, 1), dilation (2, 2)).
    """
    bias, geometry = (rest[0], rest[1:]) if len(rest) == 7 else (None, rest)
    stride, padding, dilation, transposed, *others = geometry
    if not transposed and len(dilation) == weight.ndim - 2:
        sizes = zip(weight.shape[2:], dilation, strict=True)
        dilation = [1 if n == 1 and d > 1 else d for n, d in sizes]
    return torch.convolution(x, weight, bias, stride, padding, dilation, transposed, *others)


def _attention(q: Any, k: Any, v: Any, *rest: Any) -> torch.Tensor:
    mask, (causal, scale, gqa) = (rest[0], rest[1:]) if len(rest) == 4 else (None, rest)
    if mask is not None and mask.ndim == 1:  # kernels take no vector
        mask = mask[None]
    if gqa and 0 in (*k.shape[-3:-2], *v.shape[-3:-2]):  # torch divides by it: the process ends
        raise ValueError(f"no heads to share: {tuple(k.shape)} keys and {tuple(v.shape)} values")
    return F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=gqa
    )


def _layer_norm(x: Any, *rest: Any) -> torch.Tensor:
    *parameters, shape, eps = rest
    return F.layer_norm(x, shape, *parameters, eps=eps)


def _rms_norm(x: Any, *rest: Any) -> torch.Tensor:
    *parameters, shape, eps = rest
    return F.rms_norm(x, shape, *parameters, eps=eps)


def _group_norm(x: Any, *rest: Any) -> torch.Tensor:
    *parameters, groups, eps = rest
    return F.group_norm(x, groups, *parameters, eps=eps)


def _normed(x: Meta, *rest: Any) -> Meta | None:
    *parameters, shape, _ = rest
    fits = tuple(x.shape[x.ndim - len(shape) :]) == tuple(shape)
    fits &= all(tuple(p.shape) == tuple(shape) and p.dtype == x.dtype for p in parameters)
    return x if fits else None


def _reshape(x: Any, size: Any) -> torch.Tensor:
    return x.reshape(size)


def fill_value(value: Any, dtype: torch.dtype) -> Any:
    """A number that `torch.full` takes for any size.

    Beyond the range of half precision it takes one for a single element only, and rounds it.
    """
    if dtype not in (torch.float16, torch.bfloat16) or not isinstance(value, (int, float)):
        return value
    limit = torch.finfo(dtype).max
    return value if -limit <= value <= limit else torch.full((), value, dtype=dtype).item()


def _full(size: Any, value: Any, dtype: Any, device: Any) -> torch.Tensor:
    return torch.full(size, fill_value(value, dtype), dtype=dtype, device=device)


def _arange(start: Any, end: Any, step: Any, dtype: Any, device: Any) -> torch.Tensor:
    return torch.arange(start, end, step, dtype=dtype, device=device)


def _filled(size: Any, _value: Any, dtype: Any, device: Any) -> Meta:
    return Meta(tuple(size), dtype, str(device))


def _scaled_affine(x: Any, w: Any, b: Any, beta: Any, alpha: Any) -> torch.Tensor:
    function = torch.addmm if x.ndim == 2 else torch.baddbmm
    return function(b, x, w, beta=beta, alpha=alpha)


def _einsum(*arguments: Any) -> torch.Tensor:
    return aten.einsum.default(arguments[-1], arguments[:-1])


def _getitem(x: Any, index: int) -> Any:
    return x[index]


def _table(*operators: Operator) -> dict[str, Operator]:
    return {operator.name: operator for operator in operators}


_CONV = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
_POOL = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_MAX_POOL = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

OPERATORS = _table(
    # The three families of pointwise functions, and the reductions.
    Operator("unary", Kind.POINTWISE, (1, 1), ("function",), lambda x, f: f(x)),
    Operator("binary", Kind.POINTWISE, (2, 2), ("function",), lambda x, y, f: f(x, y)),
    Operator("ternary", Kind.POINTWISE, (3, 3), ("function",), lambda x, y, z, f: f(x, y, z)),
    Operator(
        "reduction",
        Kind.REDUCTION,
        (1, 1),
        ("function", "dims", "keepdim"),
        lambda x, f, dims, keepdim: f(x, dims, keepdim),
    ),
    # Views: free.
    Operator("reshape", Kind.VIEW, (1, 1), ("size",), _reshape),
    Operator("permute", Kind.VIEW, (1, 1), ("dims",), torch.permute),
    Operator("expand", Kind.VIEW, (1, 1), ("size",), lambda x, size: x.expand(size)),
    Operator("slice", Kind.VIEW, (1, 1), ("dim", "start", "end", "step"), aten.slice.Tensor),
    Operator("getitem", Kind.VIEW, (1, 1), ("index",), _getitem),
    # Data movement and creation.
    Operator("cat", Kind.CAT, (1, 4096), ("dim",), lambda *a: torch.cat(a[:-1], a[-1])),
    Operator("embedding", Kind.GATHER, (2, 2), (), lambda w, i: F.embedding(i, w)),
    Operator(
        "full",
        Kind.CREATION,
        (0, 0),
        ("size", "value", "dtype", "device"),
        _full,
        infer=_filled,
    ),
    Operator("arange", Kind.CREATION, (0, 0), ("start", "end", "step", "dtype", "device"), _arange),
    # Contractions.
    Operator("matmul", Kind.MATMUL, (2, 2), (), torch.matmul),
    Operator("affine", Kind.MATMUL, (3, 3), (), lambda x, w, b: torch.matmul(x, w) + b),
    # b * beta + x @ w * alpha, of matrices or batches of them; with beta 0, b is not read.
    Operator("scaled_affine", Kind.MATMUL, (3, 3), ("beta", "alpha"), _scaled_affine),
    # Of an equation in which each label has one size and occurs once an operand: "ab,bc->ac".
    Operator("einsum", Kind.MATMUL, (1, 4096), ("equation",), _einsum),
    Operator("convolution", Kind.CONVOLUTION, (2, 3), _CONV, _convolution),
    Operator("attention", Kind.ATTENTION, (3, 4), ("causal", "scale", "gqa"), _attention),
    # Norms and softmax, kept whole.
    Operator("softmax", Kind.NORM, (1, 1), ("dim",), torch.softmax),
    Operator("log_softmax", Kind.NORM, (1, 1), ("dim",), torch.log_softmax),
    Operator("layer_norm", Kind.NORM, (1, 3), ("shape", "eps"), _layer_norm, infer=_normed),
    Operator("rms_norm", Kind.NORM, (1, 2), ("shape", "eps"), _rms_norm, infer=_normed),
    Operator("group_norm", Kind.NORM, (1, 3), ("groups", "eps"), _group_norm),
    Operator(
        "batch_norm",
        Kind.POINTWISE,
        (5, 5),
        ("eps",),
        lambda x, w, b, mean, var, eps: F.batch_norm(x, mean, var, w, b, False, 0.0, eps),
    ),
    # Pooling and resampling.
    Operator("avg_pool2d", Kind.REDUCTION, (1, 1), _POOL, aten.avg_pool2d.default),
    Operator(
        "adaptive_avg_pool2d",
        Kind.REDUCTION,
        (1, 1),
        ("size",),
        F.adaptive_avg_pool2d,
    ),
    Operator(
        "upsample_nearest2d",
        Kind.POINTWISE,
        (1, 1),
        ("size", "scales"),
        aten.upsample_nearest2d.vec,
    ),
    Operator(
        "upsample_bilinear2d",
        Kind.POINTWISE,
        (1, 1),
        ("size", "align_corners", "scales"),
        aten.upsample_bilinear2d.vec,
    ),
    Operator("max_pool2d", Kind.REDUCTION, (1, 1), _MAX_POOL, aten.max_pool2d.default),
    # What picks, pads, shifts and fills elements: an index of one dim, or of two in a row.
    Operator("index", Kind.GATHER, (2, 3), ("dim",), moving.index),
    Operator("scatter", Kind.POINTWISE, (2, 2), ("dim", "value"), moving.scatter),
    Operator("pad", Kind.POINTWISE, (1, 1), ("padding", "value"), moving.pad),
    Operator("roll", Kind.POINTWISE, (1, 1), ("shifts", "dims"), moving.roll),
    Operator("cumsum", Kind.REDUCTION, (1, 1), ("dim",), moving.cumsum),
)

reshape = OPERATORS["reshape"]
permute = OPERATORS["permute"]
expand = OPERATORS["expand"]
slice_ = OPERATORS["slice"]
cat = OPERATORS["cat"]
embedding = OPERATORS["embedding"]
full = OPERATORS["full"]
arange = OPERATORS["arange"]
matmul = OPERATORS["matmul"]
affine = OPERATORS["affine"]
scaled_affine = OPERATORS["scaled_affine"]
einsum = OPERATORS["einsum"]
convolution = OPERATORS["convolution"]
attention = OPERATORS["attention"]
softmax = OPERATORS["softmax"]
log_softmax = OPERATORS["log_softmax"]
layer_norm = OPERATORS["layer_norm"]
rms_norm = OPERATORS["rms_norm"]
group_norm = OPERATORS["group_norm"]
batch_norm = OPERATORS["batch_norm"]
avg_pool2d = OPERATORS["avg_pool2d"]
adaptive_avg_pool2d = OPERATORS["adaptive_avg_pool2d"]
upsample_nearest2d = OPERATORS["upsample_nearest2d"]
upsample_bilinear2d = OPERATORS["upsample_bilinear2d"]
max_pool2d = OPERATORS["max_pool2d"]
index = OPERATORS["index"]
scatter = OPERATORS["scatter"]
pad = OPERATORS["pad"]
roll = OPERATORS["roll"]
cumsum = OPERATORS["cumsum"]


def reduction(function: Any, x: Any, dims: Any, keepdim: Any) -> Any:
    """`function` (a reduction: `SUM`) of `x` over `dims`, sorted and counted from the end."""
    return OPERATORS["reduction"](x, function, dims, keepdim)


def to(x: Any, dtype: Any) -> Any:
    """`x` cast to `dtype`."""
    return Function("to", (dtype,))(x) if not isinstance(x, Expr) else _cast(x, dtype)


def _cast(x: Expr, dtype: Any) -> Expr:
    function = Function("to", (dtype,))
    if isinstance(dtype, (Attr, Var)):
        return Expr("unary", (tensor(x),), (Attr(cast, (attribute_of(dtype),)),))
    return Expr("unary", (tensor(x),), (function,))


def cast(dtype: torch.dtype) -> Function:
    """The function that casts to `dtype`."""
    return Function("to", (dtype,))


SUM, MEAN, AMAX, AMIN = (Function(name) for name in ("sum", "mean", "amax", "amin"))
