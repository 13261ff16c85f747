"""Norms, softmax and activations of ATen as primitive operations.

Each is expanded as torch/_decomp, torch/_refs and torch/_inductor/decomposition.py do it: half
precision is computed in float32 and rounded at the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any  # arguments of operators are arbitrary Python values

from eqsat.cost.partition.arguments import Call, Expansion
from eqsat.cost.partition.operation import Operation, Program
from eqsat.cost.partition.shapes import normal_axes


def _layer_norm(call: Call) -> Any:
    p, x = call.program, call.tensor(0, "input")
    rank = len(call(1, "normalized_shape", (1,)))
    axes = tuple(range(len(x.shape) - rank, len(x.shape)))
    wide = p.upcast(x if x.is_dense else p.clone(x))
    variance, mean = p.moments(wide, axes)
    scale = p.pointwise("rsqrt", p.pointwise("add", variance, call(4, "eps", 1e-5)))
    y = p.pointwise("mul", p.pointwise("sub", wide, mean), scale)
    y = _affine(p, y, call.maybe(2, "weight"), call.maybe(3, "bias"))
    y = p.convert(y, call.dtype)
    return y if isinstance(call.result, tuple) else [y, mean, scale]


def _affine(
    p: Program, y: Operation, weight: Operation | None, bias: Operation | None
) -> Operation:
    y = y if weight is None else p.pointwise("mul", y, weight)
    return y if bias is None else p.pointwise("add", y, bias)


def _rms_norm(call: Call) -> Any:
    p, x = call.program, call.tensor(0, "input")
    rank = len(call(1, "normalized_shape", (1,)))
    wide = p.upcast(x)
    square = p.pointwise("pow", wide, 2)
    axes = tuple(range(len(x.shape) - rank, len(x.shape)))
    mean = p.reduce("mean", square, axes, True, square.dtype)
    scale = p.pointwise("rsqrt", p.pointwise("add", mean, call(3, "eps", 1e-6)))
    y = _affine(p, p.pointwise("mul", wide, scale), call.maybe(2, "weight"), None)
    y = p.convert(y, call.dtype)
    return y if isinstance(call.result, tuple) else [y, scale]


def _group_norm(call: Call) -> Any:
    """A normalization of groups of channels (`native_group_norm`, torch/_refs).

    On a CPU the scale and shift of each channel are computed first, and are memory for as_strided.
    """
    p, x, native = call.program, call.tensor(0, "input"), call.name == "native_group_norm"
    groups = call(6, "group", 1) if native else call(1, "num_groups", 1)
    weight = call.maybe(1, "weight") if native else call.maybe(2, "weight")
    bias = call.maybe(2, "bias") if native else call.maybe(3, "bias")
    batch, channels, *space = x.shape
    grouped = (batch, groups, channels // groups, math.prod(space))
    wide = p.upcast(x)
    rows = p.reshape(wide, grouped)
    variance, mean = p.moments(rows, (2, 3))
    scale = p.pointwise(
        "rsqrt", p.pointwise("add", variance, call(7 if native else 4, "eps", 1e-5))
    )
    tail = (1,) * len(space)
    if call.device.backend == "cpp" and weight is not None:
        y = _scaled_and_shifted(p, wide, mean, scale, (weight, bias), groups)
    else:
        y = p.pointwise("mul", p.pointwise("sub", rows, mean), scale)
        y = p.reshape(y, x.shape)
        columns = [v if v is None else p.reshape(v, (channels, *tail)) for v in (weight, bias)]
        y = _affine(p, y, *columns)
    y = p.convert(y, call.dtype)
    return y if isinstance(call.result, tuple) else [y, mean, scale]


def _scaled_and_shifted(
    p: Program,
    x: Operation,
    mean: Operation,
    scale: Operation,
    affine: tuple[Operation, Operation | None],
    groups: int,
) -> Operation:
    weight, bias = affine
    batch, channels = x.shape[:2]
    shape = (1, groups, channels // groups, 1)
    scale = p.pointwise("mul", scale, p.reshape(weight, shape))
    shift = p.pointwise("mul", p.pointwise("neg", mean), scale)
    if bias is not None:
        shift = p.pointwise("add", shift, p.reshape(bias, shape))
    full = (batch, channels, *(1,) * (len(x.shape) - 2))
    flat = [
        p.add("as_strided", "as_strided", (v,), (batch, channels), v.dtype) for v in (scale, shift)
    ]
    scale, shift = (p.reshape(v, full) for v in flat)
    return p.pointwise("add", p.pointwise("mul", x, scale), shift)


def _batch_norm(call: Call) -> Any:
    """Normalization by running statistics; with those of the batch it is a call of a library."""
    p, x = call.program, call.tensor(0, "input")
    training = call.name == "batch_norm" and bool(call(5, "training", False))
    mean, variance = call.maybe(3, "running_mean"), call.maybe(4, "running_var")
    if training or mean is None or variance is None:
        return None
    eps = call({"batch_norm": 7, "native_batch_norm": 7}.get(call.name, 6), "eps", 1e-5)
    mean, variance = p.upcast(mean), p.upcast(variance)
    scale = p.pointwise("reciprocal", p.pointwise("sqrt", p.pointwise("add", variance, eps)))
    scale = p.pointwise("mul", scale, 1)
    tail = (1,) * (len(x.shape) - 2)
    column = [p.reshape(v, (*v.shape, *tail)) for v in (mean, scale)]
    y = p.pointwise("mul", p.pointwise("sub", x, column[0]), column[1])
    weight, bias = call.maybe(1, "weight"), call.maybe(2, "bias")
    columns = [v if v is None else p.reshape(v, (*v.shape, *tail)) for v in (weight, bias)]
    y = p.convert(_affine(p, y, *columns), call.dtype)
    return y if isinstance(call.result, tuple) else [y] + [None] * (len(call.result) - 1)


def _softmax(call: Call) -> Operation:
    p, x = call.program, call.tensor(0, "self")
    axis = call(1, "dim", -1)
    wide = p.upcast(x)
    top = p.reduce("amax", wide, (axis,), True, wide.dtype)
    below = p.pointwise("sub", wide, top)
    raised = p.pointwise("exp", below)
    total = p.reduce("sum", raised, (axis,), True, wide.dtype)
    if "log" in call.name:
        return p.convert(p.pointwise("sub", below, p.pointwise("log", total)), call.dtype)
    return p.convert(p.pointwise("div", raised, total), call.dtype)


def _gelu(call: Call) -> Operation:
    p, x = call.program, call.tensor(0, "self")
    wide = p.upcast(x)
    if call(1, "approximate", "none") == "tanh":
        cube = p.pointwise("mul", p.pointwise("mul", wide, wide), wide)
        inner = p.pointwise("add", wide, p.pointwise("mul", cube, 0.044715))
        gate = p.pointwise("tanh", p.pointwise("mul", inner, 0.7978845608028654))
    else:
        gate = p.pointwise("erf", p.pointwise("mul", wide, 0.7071067811865476))
    half = p.pointwise("mul", wide, 0.5)
    return p.convert(p.pointwise("mul", half, p.pointwise("add", gate, 1)), call.dtype)


def _silu(call: Call) -> Operation:
    p, x = call.program, call.tensor(0, "self")
    wide = p.upcast(x)
    gate = p.pointwise("add", p.pointwise("exp", p.pointwise("neg", wide)), 1)
    return p.convert(p.pointwise("div", wide, gate), call.dtype)


def _hardtanh(call: Call) -> Operation:
    p = call.program
    y = p.pointwise("clamp_min", call.tensor(0, "self"), -1.0)
    return p.pointwise("clamp_max", y, 1.0)


def _hardswish(call: Call) -> Operation:
    p, x = call.program, call.tensor(0, "self")
    wide = p.upcast(x)
    gate = p.pointwise("clamp_max", p.pointwise("clamp_min", p.pointwise("add", wide, 3), 0), 6)
    return p.convert(p.pointwise("div", p.pointwise("mul", wide, gate), 6), call.dtype)


def _glu(call: Call) -> Operation:
    """The first half of a dimension, gated by the second."""
    p, x = call.program, call.tensor(0, "self")
    wide, axis = p.upcast(x), call(1, "dim", -1) % len(x.shape)
    half = x.shape[axis] // 2
    first, second = (
        p.view("slice", wide, ("narrow", axis, start, 1, half), call.shape, wide.strides)
        for start in (0, half)
    )
    return p.convert(p.pointwise("mul", first, p.pointwise("sigmoid", second)), call.dtype)


def _logsumexp(call: Call) -> Operation:
    """As of a softmax: the logarithm of a sum, and the maximum where it is finite."""
    p, x, axes, keep = (
        call.program,
        call.tensor(0, "self"),
        call(1, "dim"),
        call(2, "keepdim", False),
    )
    axes = normal_axes([axes] if isinstance(axes, int) else axes, len(x.shape))
    top = p.reduce("amax", x, axes, True, x.dtype)
    top = p.pointwise("where", top, p.pointwise("abs", top), 0.0, dtype=x.dtype)
    total = p.reduce("sum", p.pointwise("exp", p.pointwise("sub", x, top)), axes, keep, x.dtype)
    return p.pointwise("add", p.pointwise("log", total), p.reshape(top, total.shape))


def _outer(call: Call) -> Operation:
    p, x, y = call.program, call.tensor(0, "self"), call.tensor(1, "vec2")
    return p.pointwise("mul", p.reshape(x, (*x.shape, 1)), y, dtype=call.dtype)


def _where(call: Call) -> Operation:
    """A choice; a number among the choices is a constant."""
    return call.program.pointwise(
        call.name, *call.args[:3], dtype=call.dtype, shape=call.shape, strides=call.strides
    )


TABLE: Mapping[str, Expansion] = {
    **dict.fromkeys(("layer_norm", "native_layer_norm"), _layer_norm),
    **dict.fromkeys(("rms_norm", "_fused_rms_norm"), _rms_norm),
    **dict.fromkeys(("group_norm", "native_group_norm"), _group_norm),
    **dict.fromkeys(
        ("batch_norm", "_native_batch_norm_legit_no_training", "_batch_norm_no_update"), _batch_norm
    ),
    **dict.fromkeys(
        ("softmax", "_softmax", "_safe_softmax", "log_softmax", "_log_softmax"), _softmax
    ),
    "gelu": _gelu,
    "silu": _silu,
    "hardtanh": _hardtanh,
    "relu6": _hardtanh,
    "hardswish": _hardswish,
    "glu": _glu,
    "logsumexp": _logsumexp,
    **dict.fromkeys(("outer", "ger"), _outer),
    "positive": lambda call: call.tensor(0, "self"),
    "where": _where,
}
"""How each of them is made of primitive operations."""
