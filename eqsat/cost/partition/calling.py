"""Lowering of calls of libraries: products, convolutions, attention and unknown operators."""

from __future__ import annotations

import math

from eqsat.cost.kernel import Product
from eqsat.cost.partition.access import contiguous, dense_strides
from eqsat.cost.partition.layout import channels_last, is_aligned, stride_order
from eqsat.cost.partition.lowering import Lowering
from eqsat.cost.partition.operation import Operation
from eqsat.cost.partition.steps import Buffer, Library, Value


def _call(
    lowering: Lowering,
    op: Operation,
    operands: list[Value],
    strides: tuple[int, ...] | None,
    product: Product | None,
    kind: str = "library",
) -> Value:
    """A call with one result, flexible without `strides`; flexible operands are laid out now."""
    buffer = lowering.buffer(kind, op.shape, op.dtype, strides)
    lowering.steps.append(Library(op, _buffers(lowering, operands), (buffer,), product))
    return lowering.stored(buffer)


def _buffers(lowering: Lowering, operands: list[Value]) -> list[Buffer]:
    found: list[Buffer] = []
    for value in operands:
        buffer = value.cell.buffer
        assert buffer is not None
        lowering.freeze(buffer)
        found.append(buffer)
    return found


def mm(lowering: Lowering, op: Operation) -> Value:
    """mm or bmm."""
    operands = [_with_unit_stride(lowering, lowering.of(x), op) for x in op.inputs]
    return _call(lowering, op, operands, _laid_out(op), _product(operands[0], operands[1]))


def addmm(lowering: Lowering, op: Operation) -> Value:
    """addmm or baddbmm: the operand that is added is expanded and read by the product."""
    bias, x, w = op.inputs
    operands = [_with_unit_stride(lowering, lowering.of(x), op) for x in (x, w)]
    value = lowering.of(bias)
    added = lowering.realized(value, op)
    return _call(lowering, op, [added, *operands], _laid_out(op), _product(*operands))


def _laid_out(op: Operation) -> tuple[int, ...] | None:
    """Strides of a batch of products; one alone is written as its reader likes it (choices.py)."""
    return None if len(op.shape) == 2 else contiguous(op.shape)


def _product(x: Value, w: Value) -> Product:
    batch = math.prod(x.shape[:-2])
    return Product(batch, x.shape[-2], w.shape[-1], x.shape[-1])


def _with_unit_stride(lowering: Lowering, value: Value, op: Operation) -> Value:
    """A matrix with a dimension of stride 1, else a copy (`require_stride1`, ir.py)."""
    value = lowering.realized(value, op)
    buffer = value.cell.buffer
    if not value.views and buffer is not None and buffer.strides is None:
        return value
    strides = lowering.strides(value)
    if strides is not None and (not strides or 1 in strides):
        return value
    return lowering.copy(value, None, op)


def convolution(lowering: Lowering, op: Operation) -> Value:
    """A convolution, of images often with channels-last operands (`convolution`, conv.py)."""
    transposed, groups = op.attrs
    rank = len(op.shape)
    image = lowering.images and rank == 4
    order = channels_last(rank) if image else stride_order(op.strides)
    operands = [lowering.of(x) for x in op.inputs]
    for value in operands:
        lowering.realize(value.cell)
    laid_out = lowering.device.freezing and op.inputs[1].kind == "input"  # the weight, ahead
    operands = [
        lowering.require_order(value, order, op)
        if len(value.shape) == rank and not (place == 1 and laid_out)
        else lowering.realized(value, op)
        for place, value in enumerate(operands)
    ]
    x, w = operands[0].shape, operands[1].shape
    strides = dense_strides(op.shape, order) if image else op.strides
    return _call(lowering, op, operands, strides, _implicit(x, w, op.shape, transposed, groups))


def _implicit(
    x: tuple[int, ...], w: tuple[int, ...], out: tuple[int, ...], transposed: bool, groups: int
) -> Product:
    """The product of patches and filters behind a convolution."""
    taps = math.prod(w[2:])
    if transposed:
        return Product(groups, math.prod(x) // max(1, w[0]), w[1] * taps, w[0] // groups)
    return Product(groups, math.prod(out) // max(1, w[0]), w[0] // groups, w[1] * taps)


def attention(lowering: Lowering, op: Operation) -> Value:
    """An attention, whose operands are aligned in memory (`sdpa_constraint`, lowering.py)."""
    operands: list[Value] = []
    for place, operand in enumerate(op.inputs):
        value = lowering.of(operand)
        if lowering.gpu:
            value = _aligned(lowering, value, operand, op, place)
        else:
            value = lowering.require_order(value, stride_order(operand.strides), op)
        operands.append(value)
    q, k, v = (value.shape for value in operands[:3])
    product = Product(math.prod(q[:-2]), q[-2], k[-2], q[-1] + v[-1])
    return _call(lowering, op, operands, op.strides, product, "fallback")


def _aligned(
    lowering: Lowering, value: Value, operand: Operation, op: Operation, place: int
) -> Value:
    buffer = value.cell.buffer
    if len(value.shape) not in (3, 4):
        return lowering.realized(value, op)
    if buffer is not None:
        strides = lowering.strides(value)
        if strides is not None and is_aligned(strides, value.shape):
            return value
    if place == 3 and op.name == "_scaled_dot_product_efficient_attention":
        return _bias(lowering, value, operand, op)
    return lowering.require_order(value, tuple(range(len(value.shape))), op)


def _bias(lowering: Lowering, value: Value, operand: Operation, op: Operation) -> Value:
    """The mask, dense along keys and padded to eight elements; what is expanded stays so."""
    shape = value.shape
    strides = [1] * len(shape)
    broadcast = [s == 0 for s in operand.strides]
    step = 1
    for i in range(len(shape) - 2, -1, -1):
        if strides[i + 1] != 0:
            step *= shape[i + 1]
        if broadcast[i] and strides[i + 1] % 8 == 0:
            strides[i] = 0
            continue
        step = -(-step // 8) * 8
        strides[i] = step
    narrow = value
    for i, stride in enumerate(strides):
        if stride == 0 and shape[i] > 1:
            size = (*narrow.shape[:i], 1, *narrow.shape[i + 1 :])
            narrow = Value(narrow.cell, (*narrow.views, ("narrow", i, 0, 1, 1)), size)
    copied = lowering.copy(narrow, tuple(strides), op)
    return Value(copied.cell, (("expand", shape),), shape)


def external(lowering: Lowering, op: Operation) -> Value | list[Value]:
    """An operator that nothing is known of: it reads its operands and writes its results."""
    operands = [lowering.realized(lowering.of(x), op) for x in op.inputs if lowering.values.get(x)]
    if not op.attrs:
        return _call(lowering, op, operands, op.strides, None, "fallback")
    buffers = [
        lowering.buffer("fallback", shape, dtype, strides or contiguous(shape))
        for shape, dtype, strides in op.attrs
    ]
    lowering.steps.append(Library(op, _buffers(lowering, operands), buffers, None))
    return [lowering.stored(buffer) for buffer in buffers]
