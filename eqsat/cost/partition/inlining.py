"""Lowering of what Inductor computes inside its consumers (torch/_inductor/lowering.py)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container

from eqsat.cost.partition import access
from eqsat.cost.partition.access import contiguous
from eqsat.cost.partition.layout import channels_last, is_channels_last
from eqsat.cost.partition.lowering import Lowering, weight
from eqsat.cost.partition.operation import Operation
from eqsat.cost.partition.steps import Cell, Concat, Read, Value, Work

UNROLLED_WINDOW = 25
"""The largest pooling window that is unrolled into a pointwise kernel (`_avg_poolnd`)."""
PLACES = 12
"""IR operations that find the place of an up-sampled element; on a vector they come for free."""
CAT_INPUTS = 8  # config.max_pointwise_cat_inputs


def inputs(lowering: Lowering, op: Operation) -> Value:
    """A parameter or argument: a buffer of the strides it is given in."""
    strides = op.strides if len(op.strides) == len(op.shape) else contiguous(op.shape)
    return lowering.stored(lowering.buffer("input", op.shape, op.dtype, strides))


def create(_: Lowering, op: Operation) -> Value:
    """Values that no memory is read for."""
    return Value(Cell(op.shape, op.dtype, (), {op: 1}))


def pointwise(lowering: Lowering, op: Operation) -> Value:
    """An expression over what the operands read (`make_pointwise`)."""
    values = [lowering.of(operand) for operand in op.inputs]
    if len(values) == 1:
        value = values[0]
        work = lowering.work(value) | weight(op)
        return Value(Cell(op.shape, op.dtype, lowering.load(value, op.shape), work))
    reads: dict[Read, None] = {}
    work: Work = {}
    for value in values:
        reads.update(dict.fromkeys(lowering.load(value, op.shape)))
        work |= lowering.work(value)
    return Value(Cell(op.shape, op.dtype, reads, work | weight(op)))


def view(lowering: Lowering, op: Operation) -> Value:
    """Another view of the same storage; a stored one keeps its layout from here on.

    An expansion makes loops compute a lazy operand again, which a long one is realized before.
    """
    value = lowering.of(op.inputs[0])
    cell = value.cell
    stored = value.is_stored
    if stored and cell.buffer is not None:  # PermuteView freezes its layout, View a dense one
        dense = contiguous(cell.buffer.shape) if op.attrs[0] == "reshape" else None
        lowering.freeze(cell.buffer, dense)
    elif cell.buffer is None and op.attrs[0] == "expand":
        times = math.prod(op.shape) // max(1, math.prod(value.shape))
        if lowering.is_worth_memory(cell, times, fanout=False):
            lowering.realize(cell)
    return Value(cell, (*value.views, op.attrs), op.shape, stored)


def item(lowering: Lowering, op: Operation) -> Value | None:
    """One of several results."""
    results = lowering.values[op.inputs[0]]
    return results[op.attrs] if isinstance(results, (list, tuple)) else results


def as_strided(lowering: Lowering, op: Operation) -> Value:
    """A view of the storage of a realized operand."""
    value = lowering.of(op.inputs[0])
    buffer = lowering.realize(value.cell)
    lowering.freeze(buffer)
    if math.prod(op.shape) == buffer.numel:
        return Value(value.cell, (*value.views, ("reshape", op.shape)), op.shape)
    return Value(value.cell, (*value.views, ("opaque", op.shape, op.strides)), op.shape)


def gather(lowering: Lowering, op: Operation) -> Value:
    """Elements at computed places: the operand is read indirectly (`index_impl`, `embedding`)."""
    source, *indices = [lowering.of(operand) for operand in op.inputs]
    reads: dict[Read, None] = {}
    work: Work = {}
    by = list[tuple[int, access.Index]]()
    for index in indices:
        for buffer, place in lowering.load(index):
            by.append((buffer.number, place))
            leading = op.name == "embedding"
            reads[buffer, _index_of(place, op.shape, index.shape, leading, op.attrs)] = None
        work |= lowering.work(index)
    numbers = tuple([number for number, _ in by])
    for buffer, place in lowering.load(source):
        if len(place.loops) != len(source.shape):
            continue
        chosen = access.indirect(place, op.shape, op.attrs, tuple(by) or op.node, numbers)
        reads[buffer, chosen] = None
    return Value(Cell(op.shape, op.dtype, reads, work | lowering.work(source) | {op: 0}))


def _index_of(
    place: access.Index,
    shape: tuple[int, ...],
    own: tuple[int, ...],
    leading: bool,
    kept: tuple[int, ...],
) -> access.Index:
    """The index tensor's own index, within the loops of the result."""
    if leading:  # an embedding: the rest of the result walks along the rows of the table
        rest = len(shape) - len(own)
        place = place._replace(loops=place.loops + ((),) * rest)
        return access.expand(place, shape)
    if len(own) <= len(shape) and all(
        a in (1, b) for a, b in zip(reversed(own), reversed(shape), strict=False)
    ):
        return access.expand(place, shape)
    return access.opaque(place, shape, ("index", kept))


def pad(lowering: Lowering, op: Operation) -> Value:
    """A padding; one at the end of one dimension is a concatenation (`_pad_as_cat`)."""
    value = lowering.of(op.inputs[0])
    grown = [i for i, (n, m) in enumerate(zip(op.shape, value.shape, strict=True)) if n != m]
    at_the_end = len(grown) == 1 and not any(op.attrs)
    if lowering.gpu and at_the_end and op.shape[grown[0]] > value.shape[grown[0]]:
        filling = list(op.shape)
        filling[grown[0]] -= value.shape[grown[0]]
        fill = Value(Cell(tuple(filling), op.dtype, (), {(op.node, "fill"): 1}))
        return _concatenated(lowering, op, [value, fill], [op.inputs[0], None], grown[0])
    reads = list[Read]()
    for buffer, place in lowering.load(value):
        moved = place
        for axis in grown:
            moved = access.shift(moved, axis, -op.attrs[axis], 1, op.shape[axis])
        reads.append((buffer, moved))
    return Value(Cell(op.shape, op.dtype, reads, lowering.work(value) | {op: 2 + 2 * len(grown)}))


def cat(lowering: Lowering, op: Operation) -> Value:
    """A concatenation (`cat`)."""
    values = [lowering.of(operand) for operand in op.inputs]
    return _concatenated(lowering, op, values, list(op.inputs), op.attrs)


def _concatenated(
    lowering: Lowering,
    op: Operation,
    values: list[Value],
    sources: list[Operation | None],
    axis: int,
) -> Value:
    if (
        lowering.gpu
        and len(values) <= CAT_INPUTS
        and _is_pointwise_cat(op, values, sources, lowering.outputs)
    ):
        return _pointwise_cat(lowering, op, values, axis)
    return _concat_kernel(lowering, op, values, axis)


def _is_pointwise_cat(
    op: Operation,
    values: list[Value],
    sources: list[Operation | None],
    outputs: Container[Operation],
) -> bool:
    """Whether a concatenation is computed by masks: where that saves the memory of an operand.

    Not where an operand has another pointwise consumer, which would compute it again.
    """
    for value, source in zip(values, sources, strict=True):
        users = [] if source is None else source.users
        if len(users) > 1 and (
            any(is_pointwise_use(user, outputs) for user in users if user is not op)
            or value.cell.buffer is None
        ):
            return False
    copied = [_needs_copy(value) for value in values]
    if any(copied) and are_pointwise_uses(op, outputs, cats=True):
        return True
    reduced = any(map(_reads_reduction, values))
    return all(copied) and not reduced


def _needs_copy(value: Value) -> bool:
    """Whether an operand cannot be computed in place (`should_lower_cat_input`)."""
    buffer = value.cell.buffer
    return buffer is None or buffer.strides is not None


def _reads_reduction(value: Value) -> bool:
    if value.cell.buffer is not None:
        return value.cell.buffer.kind == "reduction"
    return any(buffer.kind == "reduction" for buffer, _ in value.cell.reads)


def are_pointwise_uses(op: Operation, outputs: Container[Operation], *, cats: bool = False) -> bool:
    """Whether a value is no output, and all users read it element by element."""
    return op not in outputs and all(is_pointwise_use(user, outputs, cats) for user in op.users)


def is_pointwise_use(user: Operation, outputs: Container[Operation], cats: bool = False) -> bool:
    """Whether all that becomes of a value is element by element (`is_pointwise_use`, utils.py).

    With `cats` what is concatenated or padded is, too.
    """
    kinds = ("pointwise", "create", "cat", "pad") if cats else ("pointwise", "create")
    pending = [user]
    while pending:
        one = pending.pop()
        if one.kind in ("view", "item") and one not in outputs:
            pending += one.users
        elif one.kind not in kinds:
            return False
    return True


def _pointwise_cat(lowering: Lowering, op: Operation, values: list[Value], axis: int) -> Value:
    """Every operand behind a mask (`pointwise_cat`): index, ends, comparisons, masks, choices."""
    reads: dict[Read, None] = {}
    n = len(values)
    work: Work = {op: 1 + n + 2 * n + n + max(0, n - 2) + n - 1, ("constant", 0): 1}
    start = 0
    for value in values:
        for buffer, place in lowering.load(value):
            reads[buffer, access.shift(place, axis, -start, 1, op.shape[axis])] = None
        work |= lowering.work(value)
        start += value.shape[axis]
    return Value(Cell(op.shape, op.dtype, reads, work))


def _concat_kernel(lowering: Lowering, op: Operation, values: list[Value], axis: int) -> Value:
    """Every operand is computed into its place of one buffer (`ConcatKernel.create`)."""
    whole = lowering.buffer("concat", op.shape, op.dtype)
    strides = lowering.freeze(whole)
    if len(op.shape) == 4 and _has_channels_last(op, values):
        strides = whole.strides = access.dense_strides(op.shape, channels_last(4))
    parts, start = [], 0
    for value in values:
        buffer = value.cell.buffer
        if buffer is None and not value.views:
            buffer = lowering.realize(value.cell, strides)
        elif value.views or buffer is None or buffer.strides is not None or buffer.kind == "input":
            work = dict(lowering.work(value)) or {op: 0}
            copied = Cell(value.shape, op.dtype, lowering.load(value), work)
            buffer = lowering.realize(copied, strides)
        else:
            buffer.strides = strides
        buffer.start = start * strides[axis]
        start += value.shape[axis]
        parts.append(buffer)
    lowering.steps.append(Concat(whole, parts))
    return lowering.stored(whole)


def _has_channels_last(op: Operation, values: list[Value]) -> bool:
    """Whether an image in memory has its channels last, or, if none is, one of eager PyTorch's."""
    if op.kind == "cat" and not any(value.is_stored for value in values):
        return any(is_channels_last(operand.strides, operand.shape) for operand in op.inputs)
    fixed = (value.cell.buffer for value in values if value.is_stored and not value.views)
    return any(
        buffer is not None
        and buffer.strides is not None
        and is_channels_last(buffer.strides, buffer.shape)
        for buffer in fixed
    )


def window(lowering: Lowering, op: Operation) -> Value:
    """An operand read at places that no digits say, once for each element of the result."""
    reads, work = list[Read](), dict[object, int]()
    for operand in op.inputs:
        value = lowering.of(operand)
        for buffer, place in lowering.load(value):
            reads.append((buffer, access.opaque(place, op.shape, op.attrs)))
        work |= lowering.work(value)
    return Value(Cell(op.shape, op.dtype, reads, work | {op: 4}))


def pool(lowering: Lowering, op: Operation) -> Value | list[Value]:
    """A reduction over small windows, unrolled (`_avg_poolnd`, `_max_pool_with_offsets`).

    The operand goes to memory first if it is an expression of several reads (`realize_hint`).
    """
    value = lowering.of(op.inputs[0])
    sizes, steps, padding, dilation = op.attrs
    count = math.prod(sizes)
    if value.cell.buffer is None and len(value.cell.reads) > 1:
        lowering.realize(value.cell)
    if count > UNROLLED_WINDOW or (count == UNROLLED_WINDOW and op.kind == "avg_pool"):
        from eqsat.cost.partition.reducing import window_reduction

        return window_reduction(lowering, op, value)
    rank, reads = len(op.shape) - len(sizes), list[Read]()
    for buffer, place in lowering.load(value):
        for taps in itertools.product(*map(range, sizes)):
            moved = place
            for i, tap in enumerate(taps):
                start = tap * dilation[i] - padding[i]
                moved = access.shift(moved, rank + i, start, steps[i], op.shape[rank + i])
            reads.append((buffer, moved))
    masks = 4 * count if any(padding) else 0
    work = {**_scaled(lowering.work(value), count), op: 2 * count + masks}
    return Value(Cell(op.shape, op.dtype, dict.fromkeys(reads), work))


def _scaled(work: Work, times: int) -> Work:
    return {one: count * times for one, count in work.items()}


def nearest(lowering: Lowering, op: Operation) -> Value:
    """The operand, in memory, read at the nearest place (`upsample_nearestnd`)."""
    value = lowering.of(op.inputs[0])
    if value.cell.buffer is None and len(value.cell.reads) > 1:
        lowering.realize(value.cell)
    return _resampled(lowering, op, value, 1)


def bilinear(lowering: Lowering, op: Operation) -> Value:
    """The operand read at the four places around (`_upsample_linear`, decompositions.py)."""
    return _resampled(lowering, op, lowering.of(op.inputs[0]), 4)


def _resampled(lowering: Lowering, op: Operation, value: Value, taps: int) -> Value:
    kept = tuple(
        [i if n == m else -1 for i, (n, m) in enumerate(zip(op.shape, value.shape, strict=True))]
    )
    reads = [
        (buffer, access.indirect(place, op.shape, kept, (op.shape, tap)))
        for buffer, place in lowering.load(value)
        for tap in range(taps)
    ]
    work = {**_scaled(lowering.work(value), taps), op: 6 * taps, (op.node, "places"): PLACES}
    return Value(Cell(op.shape, op.dtype, reads, work))
