"""Concatenations, paddings and gathers of ATen as primitive operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # arguments of operators are arbitrary Python values

import torch

from eqsat.cost.partition.arguments import Call, Expansion, axes_of
from eqsat.cost.partition.operation import Operation


def _cat(call: Call) -> Operation:
    parts = [part for part in call(0, "tensors") if isinstance(part, Operation)]
    return _concatenated(call, parts, call(1, "dim", 0))


def _concatenated(call: Call, parts: list[Operation], axis: int) -> Operation:
    parts = [part for part in parts if part.shape != (0,)]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return call.program.full(call.shape, call.dtype, None)
    axis %= len(call.shape)
    if all(part is parts[0] for part in parts):
        return _repeated(call, parts[0], axis, len(parts))
    parts = [call.program.convert(part, call.dtype) for part in parts]
    return call.program.add("cat", "cat", parts, call.shape, call.dtype, axis, call.strides)


def _repeated(call: Call, x: Operation, axis: int, times: int) -> Operation:
    """A concatenation of one tensor with itself (`cat` in torch/_inductor/decomposition.py)."""
    head, tail = x.shape[:axis], x.shape[axis:]
    more = call.program.reshape(x, (*head, 1, *tail))
    more = call.program.clone(call.program.expand(more, (*head, times, *tail)))
    return call.program.reshape(more, call.shape)


def _stack(call: Call) -> Operation:
    parts = [part for part in call(0, "tensors") if isinstance(part, Operation)]
    axis = call(1, "dim", 0) % len(call.shape)
    shape = (*call.shape[:axis], 1, *call.shape[axis + 1 :])
    return _concatenated(call, [call.program.reshape(part, shape) for part in parts], axis)


def _repeat(call: Call) -> Operation:
    x, repeats = call.tensor(0, "self"), call(1, "repeats", ())
    shape = (1,) * (len(repeats) - len(x.shape)) + x.shape
    wide = [n for pair in zip(repeats, shape, strict=True) for n in pair]
    x = call.program.reshape(x, [n for size in shape for n in (1, size)])
    return call.program.reshape(call.program.clone(call.program.expand(x, wide)), call.shape)


def _pad(call: Call) -> Operation | None:
    """A constant padding; `mode` of aten.pad may say otherwise."""
    x, amounts = call.tensor(0, "self"), call(1, "pad", ())
    if call.name == "pad" and call(2, "mode", "constant") != "constant":
        attrs = (call.name, *amounts)
        return call.program.add("window", call.name, (x,), call.shape, x.dtype, attrs)
    if not any(amounts):
        return x
    before = [0] * len(x.shape)
    for i, amount in enumerate(amounts[::2]):
        before[len(x.shape) - 1 - i] = amount
    return call.program.add("pad", "constant_pad_nd", (x,), call.shape, x.dtype, tuple(before))


def _scattered(call: Call) -> Operation:
    """A tensor with a part replaced: slice_scatter, select_scatter, tril, roll of a whole."""
    tensors = call.operands()
    what = tuple([arg for arg in call.args if isinstance(arg, (int, str))])
    return call.program.add(
        "window", call.name, tensors, call.shape, call.dtype, (call.name, *what)
    )


def _roll(call: Call) -> Operation:
    x = call.tensor(0, "self")
    axes = [d % max(len(x.shape), 1) for d in axes_of(call(2, "dims", ()), len(x.shape))]
    for together in [[axis] for axis in axes] or [list(range(len(x.shape)))]:
        x = _gathered(call, x, [], together, x.shape)
    return x


def _gathered(
    call: Call, x: Operation, indices: list[Operation], axes: Any, shape: tuple[int, ...]
) -> Operation:
    """Elements of `x` at computed places along `axes`; the other loops walk along it."""
    rank = len(x.shape)
    kept = tuple(
        [
            i if i < rank and i not in axes and shape[i] == x.shape[i] else -1
            for i in range(len(shape))
        ]
    )
    return call.program.add("gather", call.name, (x, *indices), shape, x.dtype, kept)


def _embedding(call: Call) -> Operation:
    table, index = call.tensor(0, "weight"), call.tensor(1, "indices")
    kept = (-1,) * len(index.shape) + tuple(range(1, len(table.shape)))
    return call.program.add("gather", "embedding", (table, index), call.shape, table.dtype, kept)


def _gather(call: Call) -> Operation:
    x, axis, index = call.tensor(0, "self"), call(1, "dim", 0), call.tensor(2, "index")
    return _gathered(call, x, [index], (axis % max(len(x.shape), 1),), call.shape)


def _index_select(call: Call) -> Operation:
    x, axis, index = call.tensor(0, "self"), call(1, "dim", 0), call.tensor(2, "index")
    axis %= max(len(x.shape), 1)
    shape = tuple([-1 if i != axis else index.shape[0] for i in range(len(call.shape))])
    column = call.program.reshape(index, [1 if n < 0 else n for n in shape]) if shape else index
    return _gathered(call, x, [column], (axis,), call.shape)


def _index(call: Call) -> Operation | None:
    """Indexing by tensors; by masks it is a call of a library, for its size is data."""
    x, given = call.tensor(0, "self"), call(1, "indices", ())
    indices = [index for index in given if isinstance(index, Operation)]
    if any(index.dtype in (torch.bool, torch.uint8) for index in indices) or not indices:
        return None
    places = [i for i, index in enumerate(given) if isinstance(index, Operation)]
    rank = max(len(index.shape) for index in indices)
    together = places[-1] - places[0] + 1 == len(places)
    at = places[0] if together else 0
    rest = [i for i in range(len(x.shape)) if i not in places]
    kept = (*rest[:at], *[-1] * rank, *rest[at:])
    if len(kept) != len(call.shape):
        return None
    wide = [
        call.program.reshape(index, (*index.shape, *(1,) * (len(kept) - at - rank)))
        for index in indices
    ]
    return call.program.add("gather", "index", (x, *wide), call.shape, x.dtype, kept)


TABLE: Mapping[str, Expansion] = {
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "stack": _stack,
    "repeat": _repeat,
    **dict.fromkeys(("constant_pad_nd", "pad"), _pad),
    **dict.fromkeys(
        ("slice_scatter", "select_scatter", "tril", "triu", "reflection_pad1d", "reflection_pad2d"),
        _scattered,
    ),
    **dict.fromkeys(("replication_pad1d", "replication_pad2d", "diagonal"), _scattered),
    "roll": _roll,
    "embedding": _embedding,
    "gather": _gather,
    "index_select": _index_select,
    **dict.fromkeys(("index", "_unsafe_index"), _index),
}
"""How each of them is made of primitive operations."""
