"""A lowered loop as the scheduler sees it: its iteration space, and what it reads and writes where.

Follows `ComputedBuffer.simplify_and_reorder` (ir.py) and `MemoryDep` (dependencies.py).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import NamedTuple

from eqsat.cost.partition.access import Chosen, Strided, resolve
from eqsat.cost.partition.layout import pick_loop_order, stride_hints
from eqsat.cost.partition.steps import Buffer, Loop

Walk = tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
"""For each loop its size and digits (`access`); loops at the end that do not move are left out."""


class Dependency(NamedTuple):
    """An access of a buffer; two are the same access if their keys are equal (`MemoryDep`)."""

    key: tuple[int, int, tuple[Hashable, ...], Walk]
    """The number of the buffer, the offset, what digits cannot say, and the loops."""
    buffer: Buffer
    bytes: int
    """Bytes of the elements that are reached (`numbytes_hint`)."""

    @property
    def loops(self) -> Walk:
        """The loops, outermost first."""
        return self.key[3]

    @property
    def tag(self) -> tuple[Hashable, ...]:
        """What digits cannot say of the place (`Index`)."""
        return self.key[2]

    def along(self, walk: Walk) -> Dependency:
        """The same access by other loops."""
        return self._replace(key=(*self.key[:3], walk))


class Nest(NamedTuple):
    """The loops of a kernel's part, each part of its accesses over them."""

    sizes: tuple[int, ...]
    """The loops outside the reduction, outermost first, without those of one iteration."""
    reduced: tuple[int, ...]
    walks: tuple[Walk, ...]


@lru_cache(1 << 14)
def nest(sizes: tuple[int, ...], rank: int, accesses: tuple[Strided, ...]) -> Nest:
    """The loops in the order that suits the accesses; the first `rank` are not reduced."""
    hints = [stride_hints(loops) for loops in accesses]
    order: list[int] = []
    parts: list[tuple[int, ...]] = []
    for axes in (range(rank), range(rank, len(sizes))):
        kept = [axis for axis in axes if sizes[axis] != 1]
        steps = tuple([tuple([hint[axis] for axis in kept]) for hint in hints])
        chosen = pick_loop_order(steps, tuple([sizes[axis] for axis in kept]))[::-1]
        order += [kept[i] for i in chosen]
        parts.append(tuple([sizes[kept[i]] for i in chosen]))
    walks = tuple([_walk(sizes, loops, order) for loops in accesses])
    return Nest(parts[0], parts[1], walks)


def _walk(sizes: tuple[int, ...], loops: Strided, order: list[int]) -> Walk:
    walk = [(sizes[axis], loops[axis]) for axis in order]
    while walk and not moves(walk[-1][1]):
        walk.pop()
    return tuple(walk)


def moves(digits: tuple[tuple[int, int], ...]) -> bool:
    """Whether a loop moves the access at all."""
    return any(stride for _, stride in digits)


@lru_cache(1 << 14)
def merged(walk: Walk) -> Walk:
    """The loops with neighbours as one where they walk on (`MemoryDep.normalize`)."""
    return _trimmed(_joined(walk))


@lru_cache(1 << 14)
def sorted_walk(walk: Walk) -> Walk:
    """The loops by stride, and then merged (`normalize_with_stride_order`)."""
    return _joined(tuple(sorted(walk, key=lambda loop: -(loop[1][-1][1] if loop[1] else 0))))


def _joined(walk: Walk) -> Walk:
    result: list[tuple[int, tuple[tuple[int, int], ...]]] = []
    for size, digits in walk:
        if result:
            outer_size, outer = result[-1]
            if len(outer) <= 1 and len(digits) <= 1:
                outer_step = outer[0][1] if outer else 0
                step = digits[0][1] if digits else 0
                if outer_step == step * size:
                    total = outer_size * size
                    result[-1] = (total, ((total, step),))
                    continue
        result.append((size, digits))
    return tuple(result)


class Part:
    """One lowered loop in the scheduler (`SchedulerNode`)."""

    __slots__ = ("loop", "numel", "reads", "reduced", "rnumel", "sizes", "write")

    def __init__(
        self,
        loop: Loop,
        sizes: tuple[int, ...],
        reduced: tuple[int, ...],
        accesses: Iterable[Dependency],
    ) -> None:
        self.loop = loop
        self.sizes = sizes
        self.reduced = reduced
        self.numel = math.prod(loop.shape)
        self.rnumel = math.prod(loop.reduced)
        self.write, *self.reads = {access.key: access for access in accesses}.values()

    @property
    def is_reduction(self) -> bool:
        """Whether it reduces (or scans)."""
        return bool(self.loop.reduced)

    def reordered(self, order: tuple[int, ...]) -> Part:
        """The same loops in another order (`apply_new_loop_order`)."""
        sizes = tuple([self.sizes[i] for i in order])
        walks = [_full(access.loops, self.sizes) for access in (self.write, *self.reads)]
        return self._with(sizes, [tuple([walk[i] for i in order]) for walk in walks])

    def over(self, sizes: tuple[int, ...]) -> Part | None:
        """The same iterations counted by other loops (`apply_loop_reindexing`)."""
        walks: list[Walk] = []
        for access in (self.write, *self.reads):
            walk = recounted(_full(access.loops, self.sizes), sizes)
            if walk is None:
                return None
            walks.append(walk)
        return self._with(sizes, walks)

    def _with(self, sizes: tuple[int, ...], walks: list[Walk]) -> Part:
        accesses = [
            access.along(_trimmed(walk))
            for access, walk in zip((self.write, *self.reads), walks, strict=True)
        ]
        return Part(self.loop, sizes, self.reduced, accesses)


def part_of(loop: Loop) -> Part:
    """A lowered loop with its loops in the order that suits its accesses."""
    places = [(loop.buffer, loop.write), *loop.reads]
    resolved = [resolve(index, buffer.strides or ()) for buffer, index in places]
    sizes = (*loop.shape, *loop.reduced)
    nested = nest(sizes, len(loop.shape), tuple([loops for loops, _ in resolved]))
    accesses = [
        Dependency(
            (buffer.number, offset + buffer.start, index.tag, walk),
            buffer,
            _reach(buffer, walk, index.tag),
        )
        for (buffer, index), (_, offset), walk in zip(places, resolved, nested.walks, strict=True)
    ]
    return Part(loop, nested.sizes, nested.reduced, accesses)


def _full(walk: Walk, sizes: tuple[int, ...]) -> Walk:
    """A walk with the loops at the end that were left out."""
    return walk + tuple([(size, ((size, 0),)) for size in sizes[len(walk) :]])


def _trimmed(walk: Walk) -> Walk:
    end = len(walk)
    while end and not moves(walk[end - 1][1]):
        end -= 1
    return walk[:end]


@lru_cache(1 << 14)
def recounted(walk: Walk, sizes: tuple[int, ...]) -> Walk | None:
    """The walk with its counters, as one number, written over loops of `sizes`, if it can be."""
    pending = [digit for _, digits in reversed(walk) for digit in reversed(digits)]
    result: list[tuple[int, tuple[tuple[int, int], ...]]] = []
    for size in sizes:
        needed, digits = size, list[tuple[int, int]]()
        while needed > 1 and pending:
            n, stride = pending.pop()
            if needed % n == 0:
                needed //= n
            elif n % needed == 0:
                pending.append((n // needed, stride))
                n, stride, needed = needed, stride * (n // needed), 1
            else:
                return None
            if digits and digits[-1][1] == stride * n:
                digits[-1] = (digits[-1][0] * n, stride)
            else:
                digits.append((n, stride))
        if needed != 1:
            return None
        result.append((size, tuple(digits)))
    return tuple(result)


def _reach(buffer: Buffer, walk: Walk, tag: tuple[Hashable, ...]) -> int:
    if any(isinstance(what, Chosen) for what in tag):
        return buffer.bytes
    count = math.prod([size for size, digits in walk if moves(digits)])
    return count * buffer.dtype.itemsize


@lru_cache(1 << 14)
def order_to_match(walk: Walk, other: Walk) -> tuple[int, ...] | None:
    """The order that makes a walk's loops the other's (`decide_loop_order_to_match`)."""
    if len(walk) != len(other) or not all(moves(digits) for _, digits in (*walk, *other)):
        return None
    mine = [digits[-1][1] for _, digits in walk]
    theirs = [digits[-1][1] for _, digits in other]
    if len({*mine}) != len(mine) or {*mine} != {*theirs}:
        return None
    return tuple([mine.index(stride) for stride in theirs])
