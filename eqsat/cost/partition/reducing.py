"""Lowering of reductions: unrolled when short, split when the device would idle (ir.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from eqsat.cost.device import Device
from eqsat.cost.partition import access
from eqsat.cost.partition.access import contiguous, resolve
from eqsat.cost.partition.lowering import Lowering
from eqsat.cost.partition.operation import HALF, Operation
from eqsat.cost.partition.steps import Buffer, Cell, Loop, Read, Value, Work

UNROLLED = 8  # config.unroll_reductions_threshold
WARP, MOST_PER_THREAD = 32, 512
TWO_STEPS = 1024  # config.cpp.use_two_step_variance_threshold
UNSPLIT = frozenset({"argmax", "argmin"})


@dataclass(frozen=True, slots=True)
class Reduction:
    """What is reduced: `reads` and `work` over loops `shape`, then `reduced`."""

    shape: tuple[int, ...]
    """The shape of the result: reduced dimensions are 1 or gone."""
    reduced: tuple[int, ...]
    reads: tuple[Read, ...]
    work: Work

    @property
    def numel(self) -> int:
        """Elements of the result."""
        return math.prod(self.shape)

    @property
    def rnumel(self) -> int:
        """Elements reduced to one."""
        return math.prod(self.reduced)


def reduction_of(
    lowering: Lowering, value: Value, axes: tuple[int, ...], shape: tuple[int, ...]
) -> Reduction:
    """A reduction of a value over `axes` to `shape`."""
    keep = len(shape) == len(value.shape)
    kept = [i for i in range(len(value.shape)) if i not in axes]
    reads: list[Read] = []
    for buffer, index in lowering.load(value):
        loops = index.loops
        outer = (
            [() if i in axes else loops[i] for i in range(len(loops))]
            if keep
            else [loops[i] for i in kept]
        )
        reads.append((buffer, index._replace(loops=(*outer, *[loops[i] for i in axes]))))
    return Reduction(
        shape, tuple([value.shape[i] for i in axes]), tuple(reads), lowering.work(value)
    )


def reduce(lowering: Lowering, op: Operation) -> Value:
    """A reduction to one value; a mean is a sum, divided lazily (`mean`, lowering.py)."""
    (axes,) = op.attrs
    value = lowering.of(op.inputs[0])
    what = reduction_of(lowering, value, axes, op.shape)
    if what.rnumel < UNROLLED:
        result = _unrolled(what, op)
    else:
        dtype = torch.float32 if op.name == "mean" and op.dtype in HALF else op.dtype
        (buffer,) = _reduced(lowering, what, op, (dtype,), op.name not in UNSPLIT)
        result = lowering.stored(buffer)
    if op.name == "mean" and result.cell.buffer is not None:
        cell = Cell(op.shape, op.dtype, lowering.load(result), {(op.node, "div"): 2})
        return Value(cell)
    return result


def moments(lowering: Lowering, op: Operation) -> list[Value]:
    """A variance and a mean, by Welford's algorithm in one pass (`var_mean_welford_`).

    A CPU takes two passes over what is short enough (`use_two_step_variance`).
    """
    (axes,) = op.attrs
    what = reduction_of(lowering, lowering.of(op.inputs[0]), axes, op.shape)
    if what.rnumel < UNROLLED:
        return [_unrolled(what, op), _unrolled(what, op)]
    if not lowering.gpu and what.rnumel <= TWO_STEPS and what.numel > 1:
        return _two_steps(lowering, what, op)
    mean, squares = _reduced(lowering, what, op, (op.dtype, op.dtype), True)
    return [_divided(lowering, squares, op, "var"), lowering.stored(mean)]


def _divided(lowering: Lowering, total: Buffer, op: Operation, by: str) -> Value:
    """A sum over the number of its elements, not in memory yet."""
    return Value(
        Cell(op.shape, op.dtype, lowering.load(lowering.stored(total)), {(op.node, by): 2})
    )


def _two_steps(lowering: Lowering, what: Reduction, op: Operation) -> list[Value]:
    """The mean, in memory, and then the mean square of what is off it (`var_mean_sum_`)."""
    (total,) = _reduced(lowering, what, op, (op.dtype,), False)
    mean = _divided(lowering, total, op, "mean")
    buffer = lowering.realize(mean.cell)
    index = access.whole(what.shape)
    still = tuple([((n, access.NOWHERE, 0),) if n != 1 else () for n in what.reduced])
    reads = (*what.reads, (buffer, index._replace(loops=index.loops + still)))
    (squares,) = _reduced(
        lowering, Reduction(what.shape, what.reduced, reads, what.work), op, (op.dtype,), False
    )
    return [_divided(lowering, squares, op, "var"), mean]


def scan(lowering: Lowering, op: Operation) -> Value:
    """A running reduction along one dimension (`Scan`, ir.py)."""
    axis = op.attrs
    value = lowering.of(op.inputs[0])
    what = reduction_of(lowering, value, (axis,), op.shape)
    buffer = lowering.buffer("reduction", op.shape, op.dtype)
    write = access.whole(op.shape)
    loops = [() if i == axis else loop for i, loop in enumerate(write.loops)] + [write.loops[axis]]
    shape = tuple([1 if i == axis else n for i, n in enumerate(op.shape)])
    write = write._replace(loops=tuple(loops))
    lowering.steps.append(Loop(buffer, shape, what.reduced, what.reads, write, what.work | {op: 1}))
    return lowering.stored(buffer)


def window_reduction(lowering: Lowering, op: Operation, value: Value) -> Value:
    """A pooling over windows too large to unroll."""
    sizes = op.attrs[0]
    reads = [
        (buffer, access.opaque(index, (*op.shape, *sizes), op.attrs))
        for buffer, index in lowering.load(value)
    ]
    what = Reduction(op.shape, tuple(sizes), tuple(reads), lowering.work(value))
    (buffer,) = _reduced(lowering, what, op, (op.dtype,), False)
    return lowering.stored(buffer)


def _unrolled(what: Reduction, op: Operation) -> Value:
    """A short reduction as a pointwise expression: each element is a read of its own."""
    count, rank = what.rnumel, len(what.shape)
    reads: dict[Read, None] = {}
    for buffer, index in what.reads:
        flat = access.reshape(index, (*what.shape, count))
        for i in range(count):
            reads[buffer, access.select(flat, rank, i)] = None
    work: Work = {one: times * count for one, times in what.work.items()}
    return Value(Cell(what.shape, op.dtype, reads, work | {op: count}))


def _reduced(
    lowering: Lowering,
    what: Reduction,
    op: Operation,
    dtypes: tuple[torch.dtype, ...],
    splits: bool,
) -> list[Buffer]:
    """The buffers of a reduction's results; it is split while need be (`create_multilayer`)."""
    factor = splits_of(lowering, what) if splits and lowering.gpu else 1
    if factor <= 1:
        return [_loop(lowering, what, op, dtype) for dtype in dtypes]
    block, rank = -(-what.rnumel // factor), len(what.shape)
    reads = list[Read]()
    for buffer, index in what.reads:
        flat = access.reshape(index, (*what.shape, what.rnumel))
        if factor * block != what.rnumel:
            flat = access.shift(flat, rank, 0, 1, factor * block)
        reads.append((buffer, access.reshape(flat, (*what.shape, factor, block))))
    first = Reduction((*what.shape, factor), (block,), tuple(reads), what.work)
    wide = [torch.float32 if dtype in HALF else dtype for dtype in dtypes]
    if op.kind == "moments" and len(wide) == 2:
        wide.append(wide[0])  # the number of elements that a mean is of
    parts = _reduced(lowering, first, op, tuple(wide), splits)
    rest = tuple([(buffer, access.whole(buffer.shape)) for buffer in parts])
    second = Reduction(what.shape, (factor,), rest, {})
    return [_loop(lowering, second, op, dtype) for dtype in dtypes]


def _loop(lowering: Lowering, what: Reduction, op: Operation, dtype: torch.dtype) -> Buffer:
    buffer = lowering.buffer("reduction", what.shape, dtype)
    write = access.whole(what.shape)
    write = write._replace(
        loops=write.loops
        + tuple([((n, access.NOWHERE, 0),) if n != 1 else () for n in what.reduced])
    )
    lowering.steps.append(
        Loop(buffer, what.shape, what.reduced, what.reads, write, what.work | {op: 1})
    )
    return buffer


def splits_of(lowering: Lowering, what: Reduction) -> int:
    """Into how many parts a reduction is split, so that no processor idles (`num_splits`)."""
    device, numel, rnumel = lowering.device, what.numel, what.rnumel
    if numel == 1:
        return split_factor(device, rnumel, numel, inner=True)
    if rnumel <= WARP or numel >= device.sms * 2 * 32 or numel == 0:
        return 1
    inner = _is_inner(lowering, what)
    return 1 if inner is None else split_factor(device, rnumel, numel, inner)


def _is_inner(lowering: Lowering, what: Reduction) -> bool | None:
    """Whether most operands of full size are contiguous along what is reduced."""
    rank = len(what.shape)
    sizes = (*what.shape, *what.reduced)
    full: list[tuple[int, ...]] = []
    partial: list[tuple[int, ...]] = []
    for buffer, index in what.reads:
        strides = _layout(lowering, buffer)
        loops, _ = resolve(index, strides)
        used = [any(stride for _, stride in loop) for loop in loops]
        hints = tuple([loop[-1][1] if loop else 0 for loop in loops])
        if all(u or n == 1 for u, n in zip(used, sizes, strict=True)):
            full.append(hints[rank:])
        elif any(used[rank:]):
            partial.append(hints[rank:])
    chosen = full or partial
    if not chosen:
        return None
    outer = sum([all(s == 0 or s > 1 for s in hints) for hints in chosen])
    return len(chosen) - outer > outer


def _layout(lowering: Lowering, buffer: Buffer) -> tuple[int, ...]:
    if buffer.strides is None:
        for step in reversed(lowering.steps):
            if isinstance(step, Loop) and step.buffer is buffer:
                lowering.decide_layout(buffer, step)
                break
    return buffer.strides if buffer.strides is not None else contiguous(buffer.shape)


def split_factor(device: Device, rnumel: int, numel: int, inner: bool) -> int:
    """The parts of a split reduction (`reduction_split_factor`, choices.py)."""
    threads = device.threads_per_sm
    least = WARP * device.sms * threads
    most = MOST_PER_THREAD * device.sms * threads
    block = WARP * 8
    if inner:
        if numel >= 2 * device.sms or rnumel <= (524288 if device.capability >= 10 else 8192):
            return 1
        if rnumel * numel <= least:
            size = WARP
        elif rnumel * numel < most:
            blocks = -(-(device.sms * threads // (2 * block)) // numel)
            size = _even(rnumel, -(-rnumel // (block * blocks)), 30)
        else:
            size = _near(rnumel, MOST_PER_THREAD, 50)
        return -(-rnumel // (size * block))
    columns = -(-numel // 128)
    if rnumel * numel < least:
        size = WARP
    elif rnumel * numel < most:
        blocks = -(-(device.sms * threads // block) // columns)
        size = _even(rnumel, -(-rnumel // (4 * blocks)), 20)
    else:
        size = _near(rnumel, MOST_PER_THREAD, 50)
    return -(-rnumel // (4 * size))


def _even(total: int, size: int, tolerance: int) -> int:
    """A divisor of `total` near `size`, not below a warp; `size` where there is none."""
    nearest = min(_divisors(total), key=lambda d: abs(d - size))
    return max(nearest, WARP) if abs(nearest - size) < tolerance else size


def _near(total: int, size: int, tolerance: int) -> int:
    nearest = min(_divisors(total), key=lambda d: abs(d - size))
    return nearest if abs(nearest - size) < tolerance else size


def _divisors(total: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(total) + 1) if total % d == 0]
    return sorted({*small, *[total // d for d in small]})
