"""Attention of ATen as primitive operations, by the kernel that torch picks for the device.

Which one that is stands in torch's `sdp_utils.cpp`, what its operands are in `attention.cpp`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any  # arguments of operators are arbitrary Python values

import torch

from eqsat.cost.attention import AttentionKernel, attention_kernel
from eqsat.cost.partition.access import dense_strides
from eqsat.cost.partition.arguments import Call, Expansion
from eqsat.cost.partition.operation import Operation, Program
from eqsat.cost.partition.products import matmul

NAMED: Mapping[str, AttentionKernel] = {
    "_scaled_dot_product_cudnn_attention": "cudnn",
    "_scaled_dot_product_efficient_attention": "efficient",
    "_scaled_dot_product_flash_attention": "flash",
}
"""The operators that are one kernel by their name, on a GPU."""
FOR_CPU = "_scaled_dot_product_flash_attention_for_cpu"
"""The one of a graph that was captured on a CPU, wherever it is to run."""


def _attention(call: Call) -> Any:
    """An attention by one kernel; by matrix products where no kernel takes the operands."""
    p = call.program
    q, k, v = call.tensor(0, "query"), call.tensor(1, "key"), call.tensor(2, "value")
    mask = _mask(call)
    kind = _kind(call, q, k, v, mask)
    if kind == "math":
        return _products(call, q, k, v, mask)
    if call.device.backend == "cpp":
        operands = [q, k, v] if mask is None else [q, k, v, _numbers(p, mask, q.dtype)]
        return _results(call, "flash_attention_for_cpu", operands, call.strides)
    if kind == "flash":
        return _flash(call, q, k, v)
    operands = [q, k, v]
    if kind == "efficient":
        operands = [q, _repeated(p, k, q.shape[1]), _repeated(p, v, q.shape[1])]
    if mask is not None:
        mask = _numbers(p, mask, q.dtype)
        operands.append(_aligned(p, mask, q, k) if kind == "efficient" else mask)
    shape = (*q.shape[:-1], v.shape[-1])
    like = dense_strides(shape, (0, 2, 1, 3)) if kind == "efficient" else _like(q, shape)
    return _results(call, f"{kind}_attention", operands, like)


def _results(call: Call, kind: str, operands: list[Operation], strides: Any) -> Any:
    """The attention, and nothing for the other results of the operator."""
    name = f"_scaled_dot_product_{kind}"
    out = call.program.add("attention", name, operands, call.shape, call.dtype, (), strides)
    return out if isinstance(call.result, tuple) else [out] + [None] * (len(call.result) - 1)


def _mask(call: Call) -> Operation | None:
    if call.name == FOR_CPU:
        return call.maybe(5, "attn_mask")
    if call.name == "_scaled_dot_product_flash_attention":
        return None
    return call.maybe(3, "attn_mask") or call.maybe(3, "attn_bias")


def _kind(
    call: Call, q: Operation, k: Operation, v: Operation, mask: Operation | None
) -> AttentionKernel:
    """The first of the kernels that torch tries in turn and that takes such operands."""
    if (kind := NAMED.get(call.name)) is not None:
        return kind
    if call.device.backend == "cpp":
        if call.name == FOR_CPU:
            return "flash"
        if any(x.strides[-1] != 1 for x in (q, k, v)):
            return "math"
    masked, is_causal = mask is not None, bool(call(5, "is_causal", False))
    shapes = (q.shape, k.shape, v.shape)
    return attention_kernel(call.device, *shapes, q.dtype, masked=masked, is_causal=is_causal)


def _like(q: Operation, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in the query's order (`alloc_with_matching_layout`, _meta_registrations.py)."""
    return dense_strides(shape, sorted(range(4), key=lambda i: -q.strides[i]))


def _flash(call: Call, q: Operation, k: Operation, v: Operation) -> Any:
    """Flash attention on heads padded to a multiple of 8."""
    p, width = call.program, q.shape[-1]
    padding = -width % 8
    if not padding:
        return _results(call, "flash_attention", [q, k, v], _like(q, call.shape))
    wide = [
        p.add("pad", "constant_pad_nd", (x,), (*x.shape[:-1], width + padding), x.dtype, (0,) * 4)
        for x in (q, k, v)
    ]
    shape, name = wide[0].shape, "_scaled_dot_product_flash_attention"
    out = p.add("attention", name, wide, shape, q.dtype, (), _like(wide[0], shape))
    narrow = p.view("slice", out, ("narrow", 3, 0, 1, width), call.shape, out.strides)
    return narrow if isinstance(call.result, tuple) else [narrow] + [None] * (len(call.result) - 1)


def _repeated(p: Program, x: Operation, heads: int) -> Operation:
    """Keys or values once for each of the query's heads that share them."""
    if x.shape[1] == heads or heads % x.shape[1]:
        return x
    batch, few, length, width = x.shape
    wide = p.reshape(x, (batch, few, 1, length, width))
    wide = p.clone(p.expand(wide, (batch, few, heads // few, length, width)))
    return p.reshape(wide, (batch, heads, length, width))


def _numbers(p: Program, mask: Operation, dtype: torch.dtype) -> Operation:
    """The mask as numbers to add to the scores."""
    if mask.dtype is not torch.bool:
        return mask
    kept, never = p.full((), dtype, 0.0), p.full((), dtype, float("-inf"))
    return p.pointwise("where", mask, kept, never, dtype=dtype)


def _aligned(p: Program, mask: Operation, q: Operation, k: Operation) -> Operation:
    """The numbers for each query and key, in rows that begin at multiples of 8."""
    if any(stride % 8 for stride in mask.strides[:-1]) or mask.strides[-1] != 1:
        width = mask.shape[-1]
        shape = (*mask.shape[:-1], width + 8 - width % 8)
        mask = p.add("pad", "constant_pad_nd", (mask,), shape, mask.dtype, (0,) * len(shape))
        narrow = (*shape[:-1], width)
        mask = p.view("slice", mask, ("narrow", len(shape) - 1, 0, 1, width), narrow, mask.strides)
    return p.expand(mask, (*q.shape[:-1], k.shape[-2]))


def _products(call: Call, q: Operation, k: Operation, v: Operation, mask: Operation | None) -> Any:
    """The scores, their softmax and the weighted sum (`_scaled_dot_product_attention_math`)."""
    p, rank = call.program, len(q.shape)
    root = math.sqrt(call.kwargs.get("scale") or 1 / math.sqrt(max(q.shape[-1], 1)))
    if rank == 4:
        k, v = _repeated(p, k, q.shape[1]), _repeated(p, v, q.shape[1])
    q = p.pointwise("mul", q, root)
    k = p.pointwise("mul", p.transpose(k, rank - 2, rank - 1), root)
    shape = (*q.shape[:-1], k.shape[-1])
    scores = matmul(p, q, k, shape)
    if mask is not None:
        scores = p.pointwise("add", scores, _numbers(p, mask, q.dtype), dtype=q.dtype)
    wide = p.upcast(scores)
    below = p.pointwise("sub", wide, p.reduce("amax", wide, (-1,), True, wide.dtype))
    raised = p.pointwise("exp", below)
    total = p.reduce("sum", raised, (-1,), True, wide.dtype)
    weights = p.convert(p.pointwise("div", raised, total), q.dtype)
    out = matmul(p, weights, v, (*q.shape[:-1], v.shape[-1]))
    return out if isinstance(call.result, tuple) else [out] + [None] * (len(call.result) - 1)


TABLE: Mapping[str, Expansion] = dict.fromkeys(
    ("scaled_dot_product_attention", FOR_CPU, *NAMED),
    _attention,
)
"""How each of them is made of primitive operations."""
