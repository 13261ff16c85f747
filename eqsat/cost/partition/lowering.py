"""Inductor's lowering: values stay expressions over what they read, until something realizes them.

Follows `GraphLowering.run_node` (torch/_inductor/graph.py) and `StorageBox` (ir.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any  # the values of several results are lists

import torch

from eqsat.cost.device import Device
from eqsat.cost.partition import access
from eqsat.cost.partition.access import contiguous, resolve, whole
from eqsat.cost.partition.layout import (
    channels_last,
    fill_order_strides,
    is_ordered,
    matches,
    pad_strides,
    stride_hints,
)
from eqsat.cost.partition.operation import Operation
from eqsat.cost.partition.steps import Buffer, Cell, Loop, Read, Step, Value, Work
from eqsat.cost.partition.vocabulary import HEAVY_ON_CPU, NEEDS_REALIZED, WEIGHTS

REALIZE_READS = 4  # config.realize_reads_threshold
ACCUMULATED_READS, ACCUMULATED_READS_CPU = 8, 12  # config.realize_acc_reads_threshold
LARGE, LARGE_CPU, TOO_LARGE = 30, 50, 100  # config.realize_opcount_threshold


class Lowering:
    """The state of a lowering: the steps so far, and the value of every operation."""

    def __init__(self, device: Device, outputs: Iterable[Operation]) -> None:
        self.device = device
        self.gpu = device.backend == "triton"
        self.steps: list[Step] = []
        self.values: dict[Operation, Any] = {}
        self.outputs = set(outputs)
        self.images = False
        """Whether convolutions are given channels-last operands (`decide_layout_opt`)."""
        self.prefer_channels_last: set[Operation] = set()
        self.dislike_padding: set[Operation | None] = set()
        self.current: Operation | None = None
        """The operation that is being lowered."""
        self._count = 0

    # values -----------------------------------------------------------------------------------

    def of(self, operation: Operation) -> Value:
        """The value of an operand."""
        return self.values[operation]

    def buffer(
        self,
        kind: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        strides: tuple[int, ...] | None = None,
    ) -> Buffer:
        """A new buffer; one without strides is of flexible layout."""
        self._count += 1
        made = Buffer(self._count, kind, shape, dtype)
        made.strides = strides
        return made

    def stored(self, buffer: Buffer) -> Value:
        """The value that a buffer holds."""
        cell = Cell(buffer.shape, buffer.dtype, (), {})
        cell.buffer = buffer
        return Value(cell)

    def load(self, value: Value, shape: tuple[int, ...] | None = None) -> tuple[Read, ...]:
        """What an expression over a value reads, broadcast to `shape`."""
        cell = value.cell
        if cell.buffer is None or cell.inlined:
            reads = cell.reads
        else:
            reads = ((cell.buffer, whole(cell.shape)),)
        for name, *arguments in value.views:
            function = getattr(access, name)
            reads = tuple([(buffer, function(index, *arguments)) for buffer, index in reads])
        if shape is not None and shape != value.shape:
            reads = tuple([(buffer, access.expand(index, shape)) for buffer, index in reads])
        return reads

    def work(self, value: Value) -> Work:
        """What an expression over a value computes again."""
        return value.cell.work if value.cell.inlined else {}

    # realization ------------------------------------------------------------------------------

    def realize(self, cell: Cell, strides: tuple[int, ...] | None = None) -> Buffer:
        """The buffer of a storage, which is computed by a loop from here on."""
        if cell.buffer is None:
            buffer = self.buffer("loop", cell.shape, cell.dtype, strides)
            cell.buffer = buffer
            self.steps.append(
                Loop(buffer, cell.shape, (), cell.reads, whole(cell.shape), cell.work)
            )
            if cell.reads or not cell.work:
                cell.reads = ()
                cell.work = {}
        return cell.buffer

    def copy(self, value: Value, strides: tuple[int, ...] | None, of: Operation) -> Value:
        """A copy in a layout; what was lazy is computed in it (`ExternKernel.copy_input`)."""
        work = dict(self.work(value)) or {of: 0}
        cell = Cell(value.shape, value.cell.dtype, self.load(value), work)
        self.realize(cell, strides)
        return Value(cell)

    def freeze(self, buffer: Buffer, strides: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The strides of a buffer; a flexible one gets `strides`, padded row-major by default."""
        if buffer.strides is None:
            if strides is None:
                strides = self.padded(contiguous(buffer.shape), buffer)
            buffer.strides = strides
        return buffer.strides

    def padded(self, strides: tuple[int, ...], buffer: Buffer) -> tuple[int, ...]:
        """The strides, aligned where that is liked (`Layout._pad_strides`, ir.py)."""
        if self.current in self.dislike_padding:
            return strides
        return pad_strides(strides, buffer.shape, buffer.dtype.itemsize)

    def decide_layout(self, buffer: Buffer, loop: Loop) -> None:
        """Lay out a buffer that nothing constrained, as what it is computed from is laid out."""
        if buffer.strides is not None:
            return
        rank = len(loop.shape)
        hints = [
            stride_hints(resolve(index, self.freeze(source))[0])[:rank]
            for source, index in loop.reads
        ]
        buffer.strides = self.padded(fill_order_strides(tuple(hints), buffer.shape), buffer)

    # operands of library calls ----------------------------------------------------------------

    def realized(self, value: Value, of: Operation) -> Value:
        """A value that a library can read: a buffer, or a strided view of one (`realize_input`)."""
        buffer = self.realize(value.cell)
        if not value.views:
            return value
        strides = self.freeze(buffer)
        index = self.load(self._plain(value))[0][1]
        if access.view_strides(index, strides) is None:
            return self.copy(value, None, of)
        return value

    def _plain(self, value: Value) -> Value:
        """The same views of the buffer itself, even where loads would compute it again."""
        buffer = value.cell.buffer
        assert buffer is not None
        return Value(self.stored(buffer).cell, value.views, value.shape)

    def strides(self, value: Value) -> tuple[int, ...] | None:
        """The strides of a value in memory; None for a lazy one and for no strided view."""
        buffer = value.cell.buffer
        if buffer is None:
            return None
        index = self.load(self._plain(value))[0][1]
        return access.view_strides(index, self.freeze(buffer))

    def require_order(self, value: Value, order: tuple[int, ...], of: Operation) -> Value:
        """A value whose dimensions stand in memory in `order` (`require_stride_order`, ir.py).

        A flexible buffer takes that layout, a lazy value is computed into it, another is copied.
        """
        if math.prod(value.shape) <= 1:
            return self.realized(value, of)
        buffer = value.cell.buffer
        wanted = access.dense_strides(value.shape, order)
        if buffer is not None and not value.views and buffer.strides is None:
            usual = is_ordered(contiguous(buffer.shape), buffer.shape, order)
            self.freeze(buffer, None if usual else wanted)
            return value
        strides = self.strides(value)
        if strides is not None and is_ordered(strides, value.shape, order):
            return value
        return self.copy(value, wanted, of)

    def require_strides(self, value: Value, wanted: tuple[int, ...], of: Operation) -> Value:
        """A value with exactly these strides (`require_exact_strides`, ir.py)."""
        buffer = value.cell.buffer
        if buffer is not None and not value.views and buffer.strides is None:
            self.freeze(buffer, wanted)
            return value
        strides = self.strides(value)
        if strides is not None and matches(strides, wanted, value.shape):
            return value
        return self.copy(value, wanted, of)

    # the rules after each operation -----------------------------------------------------------

    def finish(self, operation: Operation, value: Value) -> Value:
        """The value after the decisions of `run_node` on whether it is worth its memory."""
        if operation in self.outputs:
            value = self._as_output(operation, value)
        cell, users = value.cell, operation.users
        if cell.buffer is not None:
            return value
        if len(users) > 1:
            if any(user.kind in NEEDS_REALIZED for user in users):
                value = self._hinted(operation, value)
            if value.cell.buffer is None and self.is_worth_memory(value.cell, len(users)):
                value = self._with_preferred_layout(operation, value)
                self.realize(value.cell)
        cell = value.cell
        if cell.buffer is None and self._has_accumulated(cell):
            value = self._with_preferred_layout(operation, value)
            if self._reads_much(value.cell):
                self.realize(value.cell)
        if not value.views and value.cell.operations() > TOO_LARGE:
            self.realize(value.cell)
        return value

    def _as_output(self, operation: Operation, value: Value) -> Value:
        """A result of the program, with the strides that eager PyTorch gives it."""
        if value.views:
            self.realize(value.cell)
        if value.cell.buffer is None and not value.cell.reads and len(operation.users) > 1:
            return value  # delay_realize_cheap_outputs
        if not value.shape:
            self.realize(value.cell)
            return value
        return self.require_strides(value, operation.strides, operation)

    def _hinted(self, operation: Operation, value: Value) -> Value:
        """Realized if it reads more than one buffer and a user needs memory (`realize_hint`).

        A product fixes the layout with it, so that a user's view is no reason for a copy.
        """
        if any(user.kind == "mm" for user in operation.users):
            order = tuple(sorted(range(len(value.shape)), key=lambda i: (-operation.strides[i], i)))
            return self.require_order(value, order, operation)
        if self._reads_much(value.cell):
            self.realize(value.cell)
        return value

    def _reads_much(self, cell: Cell) -> bool:
        return sum([bool(buffer.shape) for buffer, _ in cell.reads]) > 1

    def is_worth_memory(self, cell: Cell, users: int, fanout: bool = True) -> bool:
        """Whether a value with several users is computed once (`should_realize_on_reuse`)."""
        if users <= 1:
            return False
        if not self.gpu and any(
            isinstance(one, Operation) and one.name in HEAVY_ON_CPU for one in cell.work
        ):
            return True
        if cell.operations() > (LARGE if self.gpu else LARGE_CPU):
            return True
        return fanout and len(cell.reads) > REALIZE_READS

    def _has_accumulated(self, cell: Cell) -> bool:
        """Whether an expression has grown too long to be inlined on (`has_exceeded_max_reads`)."""
        reads = ACCUMULATED_READS if self.gpu else ACCUMULATED_READS_CPU
        large = LARGE if self.gpu else LARGE_CPU
        return len(cell.reads) > reads or cell.operations() > large

    def _with_preferred_layout(self, operation: Operation, value: Value) -> Value:
        """The value in channels-last memory, where convolutions around it prefer that."""
        if (
            operation not in self.prefer_channels_last
            or operation in self.outputs
            or len(value.shape) != 4
        ):
            return value
        return self.require_order(value, channels_last(4), operation)


def weight(operation: Operation) -> Work:
    """The IR operations of one operation and of its constants."""
    work: Work = {operation: WEIGHTS.get(operation.name, 1)}
    for number in operation.attrs:
        work["constant", number] = 1
    return work
