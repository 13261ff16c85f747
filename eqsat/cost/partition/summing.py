"""Reductions, scans and pooling of ATen as primitive operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # arguments of operators are arbitrary Python values

import torch

from eqsat.cost.partition.arguments import Call, Expansion, axes_of, pair
from eqsat.cost.partition.operation import Operation
from eqsat.cost.partition.vocabulary import REDUCTIONS


def _reduction(call: Call) -> Operation:
    p, x = call.program, call.tensor(0, "self")
    if call.name in ("any", "all") and x.dtype is not torch.bool:
        x = p.pointwise("ne", x, 0, dtype=torch.bool)
    axes = (
        axes_of(call(1, "dim"), len(x.shape)) if len(call.args) > 1 or "dim" in call.kwargs else ()
    )
    keep = bool(call(2, "keepdim", False))
    if not x.shape:
        return p.convert(x, call.dtype)
    made = p.reduce(call.name, x, tuple(axes), keep, call.dtype)
    return made if made.shape == call.shape else p.reshape(made, call.shape)


def _extremum(call: Call) -> Any:
    """max and min: of two tensors, of all elements, or along a dimension with the index."""
    p, x = call.program, call.tensor(0, "self")
    if call.maybe(1, "other") is not None:
        return p.pointwise("maximum" if call.name == "max" else "minimum", *call.operands())
    name = "amax" if call.name == "max" else "amin"
    if isinstance(call.result, tuple):
        return p.reduce(name, x, (), False, x.dtype)
    axes, keep = (call(1, "dim", 0),), bool(call(2, "keepdim", False))
    return [p.reduce(name, x, axes, keep, x.dtype), p.reduce("argmax", x, axes, keep, torch.int64)]


def _variance(call: Call) -> Any:
    p, x = call.program, call.tensor(0, "self")
    axes = axes_of(call(1, "dim"), len(x.shape))
    wide = p.upcast(x)
    values = [p.convert(v, x.dtype) for v in p.moments(wide, tuple(axes))]
    if call.name.startswith("std"):
        values[0] = p.pointwise("sqrt", values[0])
    values = [v if v.shape == call.shape else p.reshape(v, call.shape) for v in values]
    return values[0] if isinstance(call.result, tuple) else values


def _norm(call: Call) -> Operation:
    p, x = call.program, call.tensor(0, "self")
    axes = axes_of(call(2, "dim"), len(x.shape))
    square = p.pointwise("pow", p.upcast(x), 2)
    total = p.reduce("sum", square, tuple(axes), bool(call(3, "keepdim", False)), square.dtype)
    made = p.convert(p.pointwise("sqrt", total), call.dtype)
    return made if made.shape == call.shape else p.reshape(made, call.shape)


def _scan(call: Call) -> Operation | None:
    """A running sum; the CPU backend calls a library for it.

    That of equal elements counts (`pointless_cumsum_replacement`, post_grad.py).
    """
    x, axis = call.tensor(0, "self"), call(1, "dim", 0)
    if x.uniform is not None and call.name == "cumsum":
        return call.program.full(call.shape, call.dtype, None)
    if call.device.backend == "cpp" or not x.shape:
        return None
    return call.program.add("scan", call.name, (x,), call.shape, call.dtype, axis % len(x.shape))


def _diff(call: Call) -> Any:
    """Differences of neighbours: the tensor after `prepend`, minus itself one place off."""
    p, x, before = call.program, call.tensor(0, "self"), call.maybe(3, "prepend")
    axis = call(2, "dim", -1) % max(len(x.shape), 1)
    if call(1, "n", 1) != 1 or call.maybe(4, "append") is not None:
        return None
    if before is not None:
        size = x.shape[axis] + before.shape[axis]
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        x = p.add("cat", "cat", (before, x), shape, x.dtype, axis)
    ends = [
        p.view("slice", x, ("narrow", axis, start, 1, x.shape[axis] - 1), call.shape)
        for start in (1, 0)
    ]
    return p.pointwise("sub", *ends, dtype=call.dtype)


def _mean_pool(call: Call) -> Any:
    """An adaptive pooling to one element is a mean over the space (`adaptive_avg_pool2d`)."""
    x = call.tensor(0, "self")
    rank = 1 if call.name.endswith("1d") else 2
    if any(n != 1 for n in call.shape[-rank:]):
        window = [-(-n // m) for n, m in zip(x.shape[-rank:], call.shape[-rank:], strict=True)]
        attrs = (tuple(window), tuple(window), (0,) * rank, (1,) * rank)
        return call.program.add("avg_pool", call.name, (x,), call.shape, x.dtype, attrs)
    axes = tuple(range(-rank, 0))
    return call.program.reduce("mean", x, axes, True, x.dtype)


def _pool(call: Call) -> Any:
    """An average or maximum over windows."""
    x = call.tensor(0, "self")
    rank = 1 if "1d" in call.name else 3 if "3d" in call.name else 2
    window = pair(call(1, "kernel_size", 1), rank)
    step = pair(call(2, "stride", window) or window, rank)
    padding = pair(call(3, "padding", 0), rank)
    kind = "avg_pool" if "avg" in call.name else "max_pool"
    dilation = pair(call(4, "dilation", 1), rank) if kind == "max_pool" else (1,) * rank
    attrs = (window, step, padding, dilation)
    made = call.program.add(kind, call.name, (x,), call.shape, x.dtype, attrs, call.strides)
    if isinstance(call.result, tuple):
        return made
    dtype = call.result[1][1]
    return [made, call.program.add(kind, call.name, (x,), call.shape, dtype, attrs, call.strides)]


def _upsample(call: Call) -> Any:
    """The nearest element of a coarser tensor, or a mean of those around."""
    x = call.tensor(0, "self")
    kind = "bilinear" if "bilinear" in call.name else "nearest"
    return call.program.add(kind, call.name, (x,), call.shape, x.dtype, (), call.strides)


TABLE: Mapping[str, Expansion] = {
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("max", "min"), _extremum),
    **dict.fromkeys(("var", "var_mean", "std", "std_mean"), _variance),
    "linalg_vector_norm": _norm,
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp"), _scan),
    "diff": _diff,
    **dict.fromkeys(
        ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d"), _mean_pool
    ),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _pool),
    **dict.fromkeys(
        ("max_pool1d", "max_pool2d", "max_pool3d", "_low_memory_max_pool_with_offsets"), _pool
    ),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), _pool),
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"), _upsample),
    **dict.fromkeys(
        ("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "upsample_bilinear2d"), _upsample
    ),
}
"""How each of them is made of primitive operations."""
