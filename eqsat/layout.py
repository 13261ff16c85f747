"""Strides: which calls see them, where they are the same, and copies that have others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node

from eqsat.emitter import Emitter
from eqsat.hint import own_hint

aten = torch.ops.aten
_NEW = frozenset(
    f"aten::{name}"
    for name in (
        "linear",
        "matmul",
        "conv1d",
        "conv2d",
        "conv3d",
        "layer_norm",
        "rms_norm",
        "softmax",
    )
)
"""Operators made of others that always return new memory."""
_FORMATS: dict[tuple[int, ...], torch.memory_format] = {
    (0, 2, 3, 1): torch.channels_last,
    (0, 2, 3, 4, 1): torch.channels_last_3d,
}


def restride(emitter: Emitter, node: Node, like: torch.Tensor) -> Node:
    """`node` with the strides of `like` (in dims that have any), copied where they differ."""
    value = node.meta["val"]
    if same_strides(value, like):
        return node
    shape, stride = tuple(like.shape), tuple(like.stride())
    order = sorted(range(like.ndim), key=lambda d: (-own_hint(stride[d]), d))
    result = _dense(emitter, node, order)
    if same_strides(result.meta["val"], like):
        return result
    if 0 not in shape and any(s == 0 and n != 1 for n, s in zip(shape, stride, strict=True)):
        return _overlapping(emitter, node, like)
    # Gaps: a buffer of the given extent, written where the value lies.
    last = sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    extent = 0 if 0 in shape else last + 1
    buffer = emitter.call(aten.empty.memory_format, [extent], dtype=like.dtype, device=like.device)
    filled = emitter.call(aten.as_strided_scatter.default, buffer, node, shape, stride, 0)
    return emitter.call(aten.as_strided.default, filled, shape, stride, 0)


def _dense(emitter: Emitter, node: Node, order: Sequence[int]) -> Node:
    """A copy without gaps whose dims lie in memory in this order, outermost first."""
    memory_format = _FORMATS.get(tuple(order))
    if list(order) == sorted(order):
        memory_format = torch.contiguous_format
    if memory_format is not None:
        return emitter.call(aten.clone.default, node, memory_format=memory_format)
    moved = emitter.call(aten.permute.default, node, order)
    dense = emitter.call(aten.clone.default, moved, memory_format=torch.contiguous_format)
    back = [order.index(d) for d in range(len(order))]
    return emitter.call(aten.permute.default, dense, back)


def _overlapping(emitter: Emitter, node: Node, like: torch.Tensor) -> Node:
    """The value with strides of 0: one element of each such dim, laid out, then expanded."""
    sizes = list(like.shape)
    for dim, stride in enumerate(like.stride()):
        if stride == 0 and sizes[dim] != 1:
            sizes[dim] = 1
            node = emitter.call(aten.slice.Tensor, node, dim, 0, 1)
    with emitter.fake_mode:
        thin = torch.empty_strided(sizes, like.stride(), dtype=like.dtype, device=like.device)
    return emitter.call(aten.expand.default, restride(emitter, node, thin), tuple(like.shape))


def same_strides(a: torch.Tensor, b: torch.Tensor, *, every: bool = False) -> bool:
    """Whether the strides agree in every dim of more than one element, or in `every` dim.

    A convolution reads those of dims of one element, too. No symbolic size is decided.
    """
    if a.layout != torch.strided or b.layout != torch.strided:
        return a.layout == b.layout
    pairs = zip(a.shape, a.stride(), b.stride(), strict=True)
    return all(str(x) == str(y) for size, x, y in pairs if every or str(size) not in ("0", "1"))


def makes_memory(target: Any) -> bool:
    """Whether the results of a call lie in memory of their own."""
    if not isinstance(target, OpOverload):
        return False
    if torch.Tag.maybe_aliasing_or_mutating in target.tags:
        return False
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    if target.has_kernel_for_dispatch_key(composite) and target._schema.name not in _NEW:
        return False  # einsum and others return views, and their schemas do not say so
    return all(r.alias_info is None for r in target._schema.returns)


def reads_layout(target: Any) -> bool:
    """Whether a call may see its operands' strides: custom operators, views not in the table."""
    if isinstance(target, HigherOrderOperator):
        return True
    if not isinstance(target, OpOverload):
        return False
    if target.namespace not in ("aten", "prims"):
        return True
    known = ("view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "squeeze")
    name = target._schema.name.split("::")[1]
    views = any(r.alias_info is not None for r in target._schema.returns)
    return views and name not in (*known, "unsqueeze", "to", "contiguous", "alias", "detach")
