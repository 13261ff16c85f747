"""Views, copies and creations of ATen as primitive operations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any  # arguments of operators are arbitrary Python values

import torch

from eqsat.cost.partition.access import contiguous
from eqsat.cost.partition.arguments import Call, Expansion, axes_of
from eqsat.cost.partition.operation import Operation, Program


def _alias(call: Call) -> Any:
    return call.maybe(0, "self")


def _reshape(call: Call) -> Operation:
    x = call.tensor(0, "self")
    if x.dtype is not call.dtype:  # view.dtype
        return call.program.add("window", call.name, (x,), call.shape, call.dtype, (call.name,))
    return call.program.reshape(x, call.shape)


def _permute(call: Call) -> Operation:
    return call.program.permute(x := call.tensor(0, "self"), _order(call(1, "dims"), len(x.shape)))


def _order(dims: Any, rank: int) -> list[int]:
    return [d % rank for d in dims]


def _transpose(call: Call) -> Operation:
    x = call.tensor(0, "self")
    rank = max(len(x.shape), 1)
    first, second = call(1, "dim0", 0) % rank, call(2, "dim1", 1) % rank
    return call.program.transpose(x, first, second) if x.shape else x


def _last_two(call: Call) -> Operation:
    x = call.tensor(0, "self")
    rank = len(x.shape)
    return call.program.transpose(x, rank - 2, rank - 1) if rank > 1 else x


def _expand(call: Call) -> Operation:
    return call.program.expand(call.tensor(0, "self"), call.shape)


def _slice(call: Call) -> Operation:
    x = call.tensor(0, "self")
    axis = call(1, "dim", 0) % max(len(x.shape), 1)
    start, step = call(2, "start", 0), call(4, "step", 1)
    size = x.shape[axis]
    start = max(0, min(size, start + size if start < 0 else start))
    return _narrow(call.program, x, axis, start, step, call.shape[axis], call.name)


def _narrow(
    program: Program, x: Operation, axis: int, start: int, step: int, length: int, name: str
) -> Operation:
    if start == 0 and step == 1 and length == x.shape[axis]:
        return x
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    strides = (*x.strides[:axis], x.strides[axis] * step, *x.strides[axis + 1 :])
    return program.view(name, x, ("narrow", axis, start, step, length), shape, strides)


def _narrowed(call: Call) -> Operation:
    x = call.tensor(0, "self")
    axis, start = call(1, "dim", 0) % len(x.shape), call(2, "start", 0)
    start = start if isinstance(start, int) else 0
    start = start + x.shape[axis] if start < 0 else start
    return _narrow(call.program, x, axis, start, 1, call.shape[axis], call.name)


def _select(call: Call) -> Operation:
    x = call.tensor(0, "self")
    return _selected(call.program, x, call(1, "dim", 0) % len(x.shape), call(2, "index", 0))


def _selected(program: Program, x: Operation, axis: int, position: int) -> Operation:
    position = position + x.shape[axis] if position < 0 else position
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    strides = x.strides[:axis] + x.strides[axis + 1 :]
    return program.view("select", x, ("select", axis, position), shape, strides)


def _pieces(call: Call) -> list[Operation]:
    """split, chunk and the like: one slice for each result."""
    x = call.tensor(0, "self")
    position = 1 if call.name == "unsafe_chunk" else 2
    axis = call(position, "dim", 0) % max(len(x.shape), 1)
    made, start = list[Operation](), 0
    for shape, _, _ in call.result:
        made.append(_narrow(call.program, x, axis, start, 1, shape[axis], "slice"))
        start += shape[axis]
    return made


def _unbind(call: Call) -> list[Operation]:
    x = call.tensor(0, "self")
    axis = call(1, "dim", 0) % len(x.shape)
    return [_selected(call.program, x, axis, i) for i in range(x.shape[axis])]


def _flip(call: Call) -> Operation:
    x = call.tensor(0, "self")
    axes = tuple([d % len(x.shape) for d in axes_of(call(1, "dims"), len(x.shape))])
    return call.program.view("flip", x, ("flip", axes), x.shape)


def _as_strided(call: Call) -> Operation:
    """The operand goes to memory first (`needs_realized_inputs`), for its storage is read.

    Where the strides are those of a dense tensor it is a reshape, but on a CPU: of the
    decompositions that Inductor uses, only some for a CPU contain it. What was scattered into fresh
    memory, and is read where it lies, is written there once (`reinplace_inplaceable_ops`).
    """
    x = call.tensor(0, "self")
    if x.name == "as_strided_scatter" and x.inputs[0].name in _EMPTY:
        _, written = x.inputs
        if written.shape == call.shape:
            return call.program.pointwise("copy_", written, strides=call.strides)
    dense = call.strides == contiguous(call.shape) and x.strides == contiguous(x.shape)
    if call.device.backend == "triton" and dense and math.prod(x.shape) == math.prod(call.shape):
        return call.program.reshape(x, call.shape)
    return call.program.add("as_strided", call.name, (x,), call.shape, x.dtype, (), call.strides)


def _convert(call: Call) -> Operation:
    x = call.tensor(0, "self")
    return call.program.convert(x, call.dtype)


def _clone(call: Call) -> Operation:
    """A copy; nothing where the result has the metadata of the operand (`remove_noop_ops`)."""
    x = call.tensor(0, "self")
    form = call.kwargs.get("memory_format")
    strides = call.strides
    if form is torch.contiguous_format or call.name == "contiguous":
        strides = contiguous(call.shape)
    if strides in (x.strides, None):
        return x
    return call.program.pointwise("clone", x, strides=strides)


def _created(call: Call) -> Any:
    if not isinstance(call.result, tuple):
        return None
    position = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0}.get(call.name)
    known = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
    value = known.get(call.name)
    if position is not None:
        value = call(position, "s" if call.name == "scalar_tensor" else "fill_value")
    result = call.program.full(call.shape, call.dtype, value if _is_number(value) else None)
    result.name = call.name
    return result


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, bool))


def _copied(call: Call) -> Operation:
    """A value written over another tensor, which takes its shape, dtype and strides."""
    p, old, new = call.program, call.tensor(0, "self"), call.tensor(1, "src")
    new = p.expand(p.convert(new, old.dtype), old.shape)
    return p.pointwise("copy_", new, strides=old.strides)


_EMPTY = ("empty", "empty_strided")
TABLE: Mapping[str, Expansion] = {
    **dict.fromkeys(("alias", "detach", "lift_fresh", "lift_fresh_copy", "lift"), _alias),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout", "native_dropout_eval"), _alias),
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten"),
        _reshape,
    ),
    **dict.fromkeys(("view_as", "reshape_as", "_reshape_alias"), _reshape),
    "permute": _permute,
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), _transpose),
    **dict.fromkeys(("t", "mT", "numpy_T", "adjoint"), _last_two),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to", "broadcast_in_dim"), _expand),
    **dict.fromkeys(("slice",), _slice),
    **dict.fromkeys(("narrow",), _narrowed),
    **dict.fromkeys(("select",), _select),
    **dict.fromkeys(
        ("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk"),
        _pieces,
    ),
    **dict.fromkeys(("unbind",), _unbind),
    **dict.fromkeys(("flip", "fliplr", "flipud"), _flip),
    **dict.fromkeys(("as_strided",), _as_strided),
    **dict.fromkeys(
        ("_to_copy", "to", "type_as", "convert_element_type", "device_put", "float", "half"),
        _convert,
    ),
    **dict.fromkeys(("clone", "contiguous"), _clone),
    "copy_": _copied,
    **dict.fromkeys(
        (
            "arange",
            "empty",
            "empty_like",
            "empty_permuted",
            "empty_strided",
            "eye",
            "full",
            "full_like",
            "inductor_seeds",
            "iota",
            "linspace",
            "logspace",
            "new_empty",
            "new_full",
            "new_ones",
            "new_zeros",
            "ones",
            "ones_like",
            "rand",
            "rand_like",
            "randn",
            "randn_like",
            "scalar_tensor",
            "tril_indices",
            "triu_indices",
            "zeros",
            "zeros_like",
        ),
        _created,
    ),
}
"""How each of them is made of primitive operations."""
