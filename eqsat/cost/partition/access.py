"""Where a loop reads a buffer: the arithmetic of views, in Python integers and without torch.

A view never moves data, so Inductor folds a chain of views into the index of a load. Here such an
index has one entry for each loop: a tuple of digits, most significant first, as a loop counter is
written in a mixed radix. A digit `(size, dim, step)` says that of a counter's value this digit
takes `size` values, and that each one moves `step` elements along dimension `dim` of the buffer.
A plain loop has one digit, a loop of one iteration none, a broadcast loop one along `NOWHERE`; a
loop over merged dimensions has several, which is Inductor's `FloorDiv` and `ModularIndexing`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import NamedTuple

NOWHERE = -2
"""The dimension of a digit that does not move the read: a broadcast."""
OPAQUE = -1
"""The dimension of a digit that moves the read in a way that only the tag says."""

Digit = tuple[int, int, int]
Loop = tuple[Digit, ...]
Loops = tuple[Loop, ...]
Strided = tuple[tuple[tuple[int, int], ...], ...]
"""Loops whose digits are `(size, stride)`, the stride in elements of storage."""


class Index(NamedTuple):
    """An element of a buffer for each value of the loop counters."""

    loops: Loops
    offset: tuple[int, ...]
    """Where the counters' zeros read: a coordinate for each dimension, and one for `OPAQUE`."""
    tag: tuple[Hashable, ...] = ()
    """What no digits can say (an indirect index, a mask); equal indices have equal tags."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of iterations of each loop."""
        return extents(self.loops)


class Chosen(NamedTuple):
    """The tag of an index that other values choose in part."""

    by: Hashable
    """What chooses; equal for equal choices."""
    indices: tuple[int, ...]
    """The numbers of the buffers that hold those values; none where loop counters choose."""


@lru_cache(1 << 14)
def whole(shape: tuple[int, ...]) -> Index:
    """The index that reads a buffer of this shape with one loop for each dimension."""
    loops = tuple([((n, dim, 1),) if n != 1 else () for dim, n in enumerate(shape)])
    return Index(loops, (0,) * (len(shape) + 1))


@lru_cache(1 << 14)
def extents(loops: Loops) -> tuple[int, ...]:
    """The number of iterations of each loop."""
    return tuple([math.prod([digit[0] for digit in loop]) for loop in loops])


@lru_cache(1 << 14)
def permute(index: Index, order: tuple[int, ...]) -> Index:
    """The loops in another order."""
    return index._replace(loops=tuple([index.loops[i] for i in order]))


@lru_cache(1 << 14)
def expand(index: Index, shape: tuple[int, ...]) -> Index:
    """The index broadcast to `shape`: loops of one iteration repeat, and missing ones are added."""
    added = len(shape) - len(index.loops)
    loops = ((),) * added + index.loops
    return index._replace(
        loops=tuple(
            [
                loop if loop or n == 1 else ((n, NOWHERE, 0),)
                for loop, n in zip(loops, shape, strict=True)
            ]
        )
    )


@lru_cache(1 << 14)
def reshape(index: Index, shape: tuple[int, ...]) -> Index:
    """The index with its counters, read as one number, written in other radices.

    Where the new radices cut through a digit (12 as 4 x 3 from 2 x 6 of two dimensions) no digits
    say it, and the index becomes opaque.
    """
    pending = [digit for loop in reversed(index.loops) for digit in reversed(loop)]
    if 0 in shape or any(size == 0 for size, _, _ in pending):
        return opaque(index, shape, "reshape")
    loops: list[Loop] = []
    for n in shape:
        loop: list[Digit] = []
        needed = n
        while needed > 1 and pending:
            size, dim, step = pending.pop()
            if needed % size == 0:
                loop.append((size, dim, step))
                needed //= size
            elif size % needed == 0:
                rest = size // needed
                loop.append((needed, dim, step * rest))
                pending.append((rest, dim, step))
                needed = 1
            else:
                return opaque(index, shape, "reshape")
        if needed != 1:
            return opaque(index, shape, "reshape")
        loops.append(_joined(loop))
    return index._replace(loops=tuple(loops))


def _joined(loop: list[Digit]) -> Loop:
    """The digits with neighbours along one dimension as one, where they count on."""
    joined: list[Digit] = []
    for size, dim, step in loop:
        if joined and joined[-1][1] == dim and joined[-1][2] == step * size:
            joined[-1] = (joined[-1][0] * size, dim, step)
        else:
            joined.append((size, dim, step))
    return tuple(joined)


@lru_cache(1 << 14)
def narrow(index: Index, axis: int, start: int, step: int, length: int) -> Index:
    """`length` iterations of one loop, from `start` on, `step` apart."""
    loop = index.loops[axis]
    if start == 0 and step == 1 and length == extents(index.loops)[axis]:
        return index
    offset = index.offset
    rest: Loop = ()
    if len(loop) > 1:
        inner = math.prod([digit[0] for digit in loop[1:]])
        if length == 1:
            return _fixed(index, axis, start)
        if step % inner == 0:  # the inner digits stay where they begin
            offset = _at(offset, loop[1:], start % inner)
            start, step = start // inner, step // inner
        elif step == 1 and start % inner == length % inner == 0:
            start, length, rest = start // inner, length // inner, loop[1:]
        else:
            return _clouded(index, axis, start, step, length)
    if loop:
        _, dim, stride = loop[0]
        offset = _moved(offset, dim, start * stride)
        loop = ((length, dim, stride * step), *rest) if length != 1 else rest
    return index._replace(loops=_replaced(index.loops, axis, loop), offset=offset)


@lru_cache(1 << 14)
def select(index: Index, axis: int, position: int) -> Index:
    """One iteration of one loop, which is gone after it."""
    index = _fixed(index, axis, position)
    return index._replace(loops=index.loops[:axis] + index.loops[axis + 1 :])


def _fixed(index: Index, axis: int, position: int) -> Index:
    offset = _at(index.offset, index.loops[axis], position)
    return index._replace(loops=_replaced(index.loops, axis, ()), offset=offset)


def _at(offset: tuple[int, ...], loop: Loop, position: int) -> tuple[int, ...]:
    """The offset where a loop stays at one position."""
    for size, dim, step in reversed(loop):
        offset = _moved(offset, dim, position % size * step)
        position //= size
    return offset


@lru_cache(1 << 14)
def flip(index: Index, axes: tuple[int, ...]) -> Index:
    """Some loops counted backwards."""
    loops, offset = list(index.loops), index.offset
    for axis in axes:
        for size, dim, step in loops[axis]:
            offset = _moved(offset, dim, (size - 1) * step)
        loops[axis] = tuple([(size, dim, -step) for size, dim, step in loops[axis]])
    return index._replace(loops=tuple(loops), offset=offset)


@lru_cache(1 << 14)
def shift(index: Index, axis: int, start: int, step: int, length: int) -> Index:
    """`length` iterations of a loop that begin `start` before or after it; a mask hides the rest.

    This is how a concatenation, a padding or a pooling window reads its operand.
    """
    loop = index.loops[axis]
    if len(loop) != 1 or loop[0][1] == NOWHERE:
        if not loop and start == 0:
            return expand(index, _replaced(index.shape, axis, length))
        return _clouded(index, axis, start, step, length)
    _, dim, stride = loop[0]
    digit: Loop = ((length, dim, stride * step),) if length != 1 else ()
    return index._replace(
        loops=_replaced(index.loops, axis, digit), offset=_moved(index.offset, dim, start * stride)
    )


def _clouded(index: Index, axis: int, start: int, step: int, length: int) -> Index:
    """An index of which one loop is opaque, `length` steps from `start` on; the others stay."""
    loop = index.loops[axis]
    _, dim, stride = loop[-1] if loop else (1, OPAQUE, 1)
    digit: Loop = ((length, dim, stride * step),) if length != 1 else ()
    tag = (*index.tag, ("along", axis, loop, start, step))
    return Index(_replaced(index.loops, axis, digit), index.offset, tag)


@lru_cache(1 << 14)
def indirect(
    index: Index,
    shape: tuple[int, ...],
    kept: tuple[int, ...],
    by: Hashable,
    indices: tuple[int, ...] = (),
) -> Index:
    """An index that other values choose in part: only the loops at `kept` walk along the buffer.

    `kept` has, for each loop of `shape`, the loop of `index` that it walks along, or -1.
    """
    loops = tuple(
        [
            index.loops[source] if source >= 0 else (((n, NOWHERE, 0),) if n != 1 else ())
            for n, source in zip(shape, kept, strict=True)
        ]
    )
    return Index(loops, index.offset, (*index.tag, Chosen(by, indices)))


@lru_cache(1 << 14)
def opaque(index: Index, shape: tuple[int, ...], what: Hashable) -> Index:
    """An index of which only the shape is known; it equals what was made the same way."""
    steps = contiguous(shape)
    loops = tuple(
        [((n, OPAQUE, step),) if n != 1 else () for n, step in zip(shape, steps, strict=True)]
    )
    return Index(loops, index.offset, (*index.tag, (what, index.loops, shape)))


@lru_cache(1 << 14)
def resolve(index: Index, strides: tuple[int, ...]) -> tuple[Strided, int]:
    """The strides of an index's loops and its offset, in elements of a storage with `strides`."""
    strides = (*strides, 1)  # that of `OPAQUE`
    loops: list[tuple[tuple[int, int], ...]] = []
    for loop in index.loops:
        digits: list[tuple[int, int]] = []
        for size, dim, step in loop:
            stride = 0 if dim == NOWHERE else step * strides[dim]
            if digits and digits[-1][1] == stride * size:
                digits[-1] = (digits[-1][0] * size, stride)
            else:
                digits.append((size, stride))
        loops.append(tuple(digits))
    offset = sum([start * stride for start, stride in zip(index.offset, strides, strict=True)])
    return tuple(loops), offset


@lru_cache(1 << 14)
def view_strides(index: Index, strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of the view that the index is of a buffer; None if only a copy says it."""
    if index.tag:
        return None
    loops, _ = resolve(index, strides)
    if any(len(loop) > 1 for loop in loops):
        return None
    return tuple([loop[0][1] if loop else 1 for loop in loops])


@lru_cache(1 << 14)
def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a row-major tensor."""
    strides, step = [0] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def _replaced(values: tuple, axis: int, value: object) -> tuple:  # pyright: ignore  # of any items
    return (*values[:axis], value, *values[axis + 1 :])


def _moved(offset: tuple[int, ...], dim: int, distance: int) -> tuple[int, ...]:
    if dim == NOWHERE or distance == 0:
        return offset
    moved = list(offset)
    moved[dim] += distance
    return tuple(moved)


def dense_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor with its dimensions in `order`, outermost first."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
