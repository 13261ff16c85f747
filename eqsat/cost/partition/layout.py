"""How Inductor orders loops and lays out buffers: by the strides of what is read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key, lru_cache
from itertools import pairwise

from eqsat.cost.partition.access import Strided, contiguous, dense_strides

Strides = tuple[int, ...]
PADDING_ALIGNMENT, PADDING_THRESHOLD = 128, 1024  # config.padding_*: bytes, elements


@lru_cache(1 << 14)
def pick_loop_order(strides: tuple[Strides, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The loops, innermost first (`pick_loop_order`, scheduler.py).

    Of two loops the one that steps less in more of the accesses is the inner one; in a tie the
    later one is. Loops of one iteration come last.
    """

    def compare(a: int, b: int) -> int:
        if sizes[a] == 1 or sizes[b] == 1:
            return (sizes[a] == 1) - (sizes[b] == 1)
        a_first = b_first = 0
        for access in strides:
            step_a, step_b = abs(access[a]), abs(access[b])
            a_first += step_b == 0 or step_a < step_b
            b_first += step_a == 0 or step_b < step_a
        return b_first - a_first if a_first != b_first else b - a

    return tuple(sorted(range(len(sizes) - 1, -1, -1), key=cmp_to_key(compare)))


@lru_cache(1 << 14)
def stride_hints(loops: Strided) -> Strides:
    """What each loop's first step moves, the stride of its last digit (`stride_hints`)."""
    return tuple([loop[-1][1] if loop else 0 for loop in loops])


@lru_cache(1 << 14)
def fill_order_strides(accesses: tuple[Strides, ...], shape: tuple[int, ...]) -> Strides:
    """The strides of a buffer without a layout yet (`ComputedBuffer.get_fill_order`, ir.py)."""
    if not accesses:
        return contiguous(shape)
    return dense_strides(shape, pick_loop_order(accesses, shape)[::-1])


@lru_cache(1 << 14)
def pad_strides(strides: Strides, shape: tuple[int, ...], itemsize: int) -> Strides:
    """The strides with the long ones at multiples of 128 bytes (`Layout._pad_strides`, ir.py)."""
    if is_channels_last(strides, shape) or not strides:
        return strides
    align, padded = PADDING_ALIGNMENT // itemsize, list(strides)
    order = sorted(range(len(strides)), key=lambda i: (strides[i], -i))
    padded[order[0]], changed = 1, False
    for inner, outer in pairwise(order):
        step = padded[inner] * shape[inner]
        if step > PADDING_THRESHOLD and step % align:
            step, changed = -(-step // align) * align, True
        padded[outer] = step
    return tuple(padded) if changed else strides


def is_channels_last(strides: Strides, shape: tuple[int, ...]) -> bool:
    """Whether it is a dense image with its channels innermost."""
    if len(shape) not in (4, 5) or shape[1] == 1:
        return False
    return matches(strides, dense_strides(shape, channels_last(len(shape))), shape)


@lru_cache(1 << 14)
def stride_order(strides: Strides) -> tuple[int, ...]:
    """The dimensions of a dense tensor with such strides, outermost first."""
    return tuple(sorted(range(len(strides)), key=lambda i: (-strides[i], i)))


@lru_cache(1 << 14)
def is_ordered(strides: Strides, shape: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether strides fall along `order`, which is outermost first (`Layout.is_stride_ordered`)."""
    walked = [strides[i] for i in order if shape[i] != 1]
    return all(a >= b for a, b in pairwise(walked))


def channels_last(rank: int) -> tuple[int, ...]:
    """The order of dimensions of a channels-last image, outermost first."""
    return (0, *range(2, rank), 1)


def matches(strides: Strides, wanted: Strides, shape: tuple[int, ...]) -> bool:
    """Whether two layouts are the same but for dimensions of one element."""
    return all(n <= 1 or a == b for n, a, b in zip(shape, strides, wanted, strict=True))


def is_aligned(strides: Strides, shape: Sequence[int], alignment: int = 8) -> bool:
    """Whether an attention takes it as it is (`is_aligned_realized_tensor`, ir.py)."""
    if not strides:
        return True
    outer = [s for s, n in zip(strides[:-1], shape[:-1], strict=True) if n != 1]
    return all(s % alignment == 0 for s in outer) and (strides[-1] == 1 or shape[-1] <= 1)
