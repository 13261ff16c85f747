"""The shapes and strides of results, from those of operands, as eager PyTorch has them."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.cost.partition.access import contiguous


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that tensors of these shapes have together."""
    if not shapes:
        return ()
    longest = max(shapes, key=len)
    if all(shape == longest for shape in shapes):
        return longest
    result = list(longest)
    for shape in shapes:
        for i in range(1, len(shape) + 1):
            if result[-i] == 1:
                result[-i] = shape[-i]
    return tuple(result)


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in ascending order; all of them where none are named."""
    if rank == 0:
        return ()
    return tuple(sorted({axis % rank for axis in axes})) or tuple(range(rank))


def reduced_shape(shape: tuple[int, ...], axes: Sequence[int], keep: bool) -> tuple[int, ...]:
    """The shape after a reduction over `axes`."""
    if keep:
        return tuple([1 if i in axes else n for i, n in enumerate(shape)])
    return tuple([n for i, n in enumerate(shape) if i not in axes])


def reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The strides of a view in another shape; None where it takes a copy (ATen computeStride)."""
    if 0 in shape:
        return contiguous(target)
    blocks: list[list[int]] = []  # [elements, stride of the last one]
    for n, stride in zip(shape, strides, strict=True):
        if n == 1:
            continue
        if blocks and blocks[-1][1] == stride * n:
            blocks[-1] = [blocks[-1][0] * n, stride]
        else:
            blocks.append([n, stride])
    result, block = [0] * len(target), len(blocks) - 1
    left, stride = blocks[block] if blocks else (1, 1)
    for axis in range(len(target) - 1, -1, -1):
        n = target[axis]
        if n != 1 and left == 1 and block > 0:
            block -= 1
            left, stride = blocks[block]
        if n != 1 and left % n:
            return None
        result[axis] = stride
        left, stride = (left // n, stride * n) if n else (left, stride)
    return tuple(result)
