"""From the language back to ATen: the calls that each operator of the table becomes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from eqsat.emitter import Emitter
from eqsat.functions import FLIPPED, NUMBER_SPELLING, POINTWISE, SPELLING, Function, fill, overload
from eqsat.operators import fill_value

aten = torch.ops.aten
SPREADS = {  # how a variance or standard deviation is called, and which of two results it is
    "var": (aten.var.correction, None),
    "std": (aten.std.correction, None),
    "welford_var": (aten.var_mean.correction, 0),
    "welford_mean": (aten.var_mean.correction, 1),
}
VECTOR = 16  # elements in the widest vector of a CPU kernel


def emit(emitter: Emitter, name: str, operands: Sequence[Any], attributes: Sequence[Any]) -> Node:
    """The node of an operator of the table applied to nodes and numbers."""
    return EMITTERS[name](emitter, *operands, *attributes)


def _transposed(weight: Any) -> Any:
    """The matrix of which `weight` is the transpose, if it was emitted as one."""
    if not isinstance(weight, Node) or not isinstance(weight.meta["val"], torch.Tensor):
        return None
    swapped = (
        (weight.target is aten.permute.default and weight.args[1] == [1, 0])
        or weight.target is aten.t.default
        or (weight.target is aten.transpose.int and weight.meta["val"].ndim == 2)
    )
    return weight.args[0] if swapped and weight.meta["val"].ndim == 2 else None


def _matmul(e: Emitter, x: Node, w: Node) -> Node:
    matrix = _transposed(w)
    if matrix is not None:
        return e.call(aten.linear.default, x, matrix)
    return e.call(aten.matmul.default, x, w)


def _affine(e: Emitter, x: Node, w: Node, b: Node) -> Node:
    matrix, bias = w.meta["val"], b.meta["val"]
    rows, columns = str(x.meta["val"].shape[0]), str(matrix.shape[-1])
    if matrix.ndim == 2 and [str(n) for n in bias.shape] == [columns]:
        swapped = _transposed(w)
        if swapped is None and x.meta["val"].ndim != 2:
            swapped = e.call(aten.permute.default, w, [1, 0])
        if swapped is not None:
            return e.call(aten.linear.default, x, swapped, b)
    sides = zip([str(n) for n in reversed(bias.shape)], (columns, rows), strict=False)
    fits = bias.ndim <= 2 and all(n in ("1", size) for n, size in sides)
    if x.meta["val"].ndim == matrix.ndim == 2 and fits:
        return e.call(aten.addmm.default, b, x, w)
    return e.call(aten.add.Tensor, _matmul(e, x, w), b)


def _scaled_affine(e: Emitter, x: Node, w: Node, b: Node, beta: Any, alpha: Any) -> Node:
    target = aten.addmm.default if x.meta["val"].ndim == 2 else aten.baddbmm.default
    return e.call(target, b, x, w, beta=beta, alpha=alpha)


def _convolution(e: Emitter, x: Node, w: Node, *rest: Any) -> Node:
    bias, geometry = (rest[0], rest[1:]) if len(rest) == 7 else (None, rest)
    stride, padding, dilation, transposed, output_padding, groups = geometry
    target = {3: aten.conv1d, 4: aten.conv2d, 5: aten.conv3d}.get(w.meta["val"].ndim)
    if transposed or target is None:
        return e.call(
            aten.convolution.default,
            *(x, w, bias, stride, padding, dilation, transposed, output_padding, groups),
        )
    return e.call(target.default, x, w, bias, stride, padding, dilation, groups)


def _attention(e: Emitter, q: Node, k: Node, v: Node, *rest: Any) -> Node:
    """A call of attention with a batch and a head dim: what fused kernels take."""
    mask, (causal, scale, gqa) = (rest[0], rest[1:]) if len(rest) == 4 else (None, rest)
    size, rank = q.meta["val"].shape[-1], q.meta["val"].ndim
    if isinstance(size, int) and scale == 1.0 / size**0.5:
        scale = None
    if isinstance(mask, Node) and mask.meta["val"].ndim == 1:  # kernels take no vector
        mask = e.call(aten.unsqueeze.default, mask, 0)
    fused = 4 if mask is not None or _keeps_nan(k.meta["val"]) else rank
    for _ in range(rank, fused):
        if isinstance(mask, Node) and mask.meta["val"].ndim == q.meta["val"].ndim:
            mask = e.call(aten.unsqueeze.default, mask, 0)
        q, k, v = (e.call(aten.unsqueeze.default, n, 0) for n in (q, k, v))
    result = e.call(
        aten.scaled_dot_product_attention.default,
        *(q, k, v, mask, 0.0, causal),
        scale=scale,
        enable_gqa=gqa,
    )
    return e.call(aten.squeeze.dims, result, list(range(4 - rank))) if rank < fused else result


def _keeps_nan(k: Any) -> bool:
    """Whether the fused kernel keeps NaN: torch's for CPUs does in rows as long as a vector."""
    return k.device.type != "cpu" or (isinstance(k.shape[-2], int) and k.shape[-2] >= VECTOR)


def _pointwise(e: Emitter, *arguments: Any) -> Node:
    *operands, function = arguments
    name, parameters = function.name, function.parameters
    if name not in POINTWISE:
        return e.call(overload(name), *fill(parameters, tuple(operands)))
    if len(operands) == 2 and not isinstance(operands[0], Node):
        return _number_first(e, function, operands[0], operands[1])
    if len(operands) == 3 and not all(isinstance(o, Node) for o in operands):
        return _where(e, operands)
    if len(operands) == 2 and not isinstance(operands[1], Node):
        target = NUMBER_SPELLING.get(name, SPELLING[name])
    else:
        target = SPELLING[name]
    if name.startswith("div_"):
        return e.call(target, *operands, rounding_mode=name.removeprefix("div_"))
    named = {a.name for a in target._schema.arguments if a.kwarg_only}
    if named and parameters:
        return e.call(target, *operands, **dict(zip(sorted(named), parameters, strict=True)))
    return e.call(target, *operands, *parameters)


def _number_first(e: Emitter, function: Function, number: Any, x: Node) -> Node:
    if function.name in FLIPPED:
        return _pointwise(e, x, number, Function(FLIPPED[function.name]))
    if function.name == "sub":
        return e.call(aten.rsub.Scalar, x, number)
    if function.name == "pow":
        return e.call(aten.pow.Scalar, number, x)
    value = x.meta["val"]
    dtype = torch.result_type(torch.empty(0, dtype=value.dtype), number)
    filled = e.call(aten.full.default, [], number, dtype=dtype, device=value.device)
    return _pointwise(e, filled, x, function)


def _where(e: Emitter, operands: Sequence[Any]) -> Node:
    condition, a, b = operands
    if isinstance(a, Node):
        return e.call(aten.where.ScalarOther, condition, a, b)
    if isinstance(b, Node):
        return e.call(aten.where.ScalarSelf, condition, a, b)
    return e.call(aten.where.Scalar, condition, a, b)


def _reduction(e: Emitter, x: Node, function: Function, dims: Any, keepdim: bool) -> Node:
    spelled = {"sum": aten.sum.dim_IntList, "mean": aten.mean.dim}
    if function.name in SPREADS:
        target, item = SPREADS[function.name]
        correction = function.parameters[0]
        result = e.call(target, x, list(dims), correction=correction, keepdim=keepdim)
        return result if item is None else e.call(operator.getitem, result, item)
    if function.name in ("max", "min"):
        target = getattr(aten, function.name).dim
        return e.call(operator.getitem, e.call(target, x, dims[0], keepdim), 0)
    if function.name == "vector_norm":
        return e.call(aten.linalg_vector_norm.default, x, 2, list(dims), keepdim)
    target = spelled.get(function.name) or getattr(aten, function.name).default
    if function.parameters:
        return e.call(target, x, list(dims), keepdim, dtype=function.parameters[0])
    return e.call(target, x, list(dims), keepdim)


def _batch_norm(e: Emitter, x: Node, w: Node, b: Node, mean: Node, var: Node, eps: float) -> Node:
    return e.call(aten.batch_norm.default, x, w, b, mean, var, False, 0.0, eps, False)


def _layer_norm(e: Emitter, x: Node, *rest: Any) -> Node:
    *parameters, shape, eps = rest
    weight, bias = [*parameters, None, None][:2]
    return e.call(aten.layer_norm.default, x, list(shape), weight, bias, eps)


def _rms_norm(e: Emitter, x: Node, *rest: Any) -> Node:
    *parameters, shape, eps = rest
    return e.call(aten.rms_norm.default, x, list(shape), *[*parameters, None][:1], eps)


def _group_norm(e: Emitter, x: Node, *rest: Any) -> Node:
    *parameters, groups, eps = rest
    return e.call(aten.group_norm.default, x, groups, *[*parameters, None, None][:2], eps)


def _full(e: Emitter, size: Any, value: Any, dtype: Any, device: Any) -> Node:
    number = fill_value(value, dtype)
    return e.call(aten.full.default, list(size), number, dtype=dtype, device=device)


def _arange(e: Emitter, start: Any, end: Any, step: Any, dtype: Any, device: Any) -> Node:
    return e.call(aten.arange.start_step, start, end, step, dtype=dtype, device=device)


def _index(e: Emitter, x: Node, *rest: Any) -> Node:
    *picks, dim = rest
    return e.call(aten.index.Tensor, x, [*(None,) * (x.meta["val"].ndim + dim), *picks])


EMITTERS: dict[str, Callable[..., Node]] = {
    "unary": _pointwise,
    "binary": _pointwise,
    "ternary": _pointwise,
    "reduction": _reduction,
    "reshape": lambda e, x, size: e.call(aten.reshape.default, x, list(size)),
    "permute": lambda e, x, dims: e.call(aten.permute.default, x, list(dims)),
    "expand": lambda e, x, size: e.call(aten.expand.default, x, list(size)),
    "slice": lambda e, x, d, s, t, n: e.call(aten.slice.Tensor, x, d, s, t, n),
    "getitem": lambda e, x, index: e.call(operator.getitem, x, index),
    "cat": lambda e, *a: e.call(aten.cat.default, list(a[:-1]), a[-1]),
    "embedding": lambda e, w, i: e.call(aten.embedding.default, w, i),
    "full": _full,
    "arange": _arange,
    "matmul": _matmul,
    "affine": _affine,
    "scaled_affine": _scaled_affine,
    "einsum": lambda e, *a: e.call(aten.einsum.default, a[-1], list(a[:-1])),
    "convolution": _convolution,
    "attention": _attention,
    "softmax": lambda e, x, dim: e.call(aten.softmax.int, x, dim),
    "log_softmax": lambda e, x, dim: e.call(aten.log_softmax.int, x, dim),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "avg_pool2d": lambda e, x, *a: e.call(aten.avg_pool2d.default, x, *a),
    "adaptive_avg_pool2d": lambda e, x, size: e.call(
        aten.adaptive_avg_pool2d.default, x, list(size)
    ),
    "upsample_nearest2d": lambda e, x, *a: e.call(aten.upsample_nearest2d.vec, x, *a),
    "upsample_bilinear2d": lambda e, x, *a: e.call(aten.upsample_bilinear2d.vec, x, *a),
    "max_pool2d": lambda e, x, *a: e.call(aten.max_pool2d.default, x, *a),
    # What picks, pads and shifts.
    "index": _index,
    "scatter": lambda e, x, i, dim, value: e.call(aten.scatter.value, x, dim, i, value),
    "pad": lambda e, x, padding, v: e.call(aten.constant_pad_nd.default, x, list(padding), v),
    "roll": lambda e, x, shifts, dims: e.call(aten.roll.default, x, list(shifts), list(dims)),
    "cumsum": lambda e, x, dim: e.call(aten.cumsum.default, x, dim),
}
