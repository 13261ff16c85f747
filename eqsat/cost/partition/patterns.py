"""What Inductor decides of a whole graph before it lowers it (fx_passes, graph.py)."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

import torch

from eqsat.cost.partition.inlining import are_pointwise_uses
from eqsat.cost.partition.operation import HALF, Operation

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
GROUPED, SMALL, SHRINKING, USUAL = 1.358, 0.783, 0.725, 0.823
"""Time in channels-last layout over that in the usual one, by kind of convolution."""


def live(operations: Sequence[Operation], outputs: Sequence[Operation]) -> list[Operation]:
    """The operations that `outputs` need, in order, each with the distinct users among them."""
    needed = set(outputs)
    kept: list[Operation] = []
    for op in reversed(operations):
        if op in needed:
            needed.update(op.inputs)
            kept.append(op)
    kept.reverse()
    for op in kept:
        op.users = []
    for op in kept:
        for operand in dict.fromkeys(op.inputs):
            operand.users.append(op)
    return kept


def drop_conversions(operations: Sequence[Operation]) -> bool:
    """Skip a conversion that another one follows (`pointless_convert`, joint_graph.py).

    Not one to fewer bytes before one to more: it rounds, and its result may be kept. Returns
    whether anything changed.
    """
    changed = False
    for op in operations:
        if op.name != "convert_element_type" or not op.inputs:
            continue
        first = op.inputs[0]
        if first.name != "convert_element_type" or not first.inputs or len(first.users) != 1:
            continue
        source = first.inputs[0]
        if any(one.dtype not in FLOATS for one in (op, first, source)):
            continue
        if first.dtype.itemsize >= op.dtype.itemsize:
            op.inputs = (source,)
            changed = True
    return changed


def join_softmax(operations: Sequence[Operation]) -> bool:
    """Let sums of a softmax read what its maximum does, in one pass; whether there are any.

    `prepare_softmax_pattern` in torch/_inductor/fx_passes/post_grad.py.
    """
    changed = False
    for op in operations:
        if op.name != "sum" or op.inputs[0].name != "exp" or op.inputs[0].inputs[0].name != "sub":
            continue
        below = op.inputs[0].inputs[0]
        if len(below.inputs) != 2 or below.inputs[1].name != "amax":
            continue
        x, top = below.inputs
        if top.inputs[0] is x and top.attrs == op.attrs:
            op.inputs = (x,)
            changed = True
    return changed


def place_additions(
    operations: Sequence[Operation], outputs: Sequence[Operation], gpu: bool
) -> list[Operation]:
    """The operations, with each addition to a product in it or after it (`addmm`, post_grad.py).

    It is in it, but for where a GPU adds in passing: all users are pointwise, and no bias of half
    precision would be rounded once more.
    """
    after: dict[Operation, Operation] = {}  # the product, by the addition
    returned = set(outputs)
    for op in reversed(operations):
        passing = gpu and bool(op.users) and are_pointwise_uses(op, returned)
        if op.kind == "addmm" and op.attrs == (1, 1) and passing and op.dtype not in HALF:
            bias, x, w = op.inputs
            after[op] = Operation("mm", "mm", (x, w), op.shape, op.dtype, op.node)
            _turn(op, "pointwise", "add", (bias, after[op]), ())
        elif op.kind == "pointwise" and not passing and (parts := _added(op, returned)):
            _turn(op, "addmm", "addmm", parts, (1, 1))
    return [one for op in operations for one in ((after[op], op) if op in after else (op,))]


def _added(op: Operation, returned: Container[Operation]) -> tuple[Operation, ...] | None:
    """What is added, and the factors of the product that only this addition reads."""
    if op.name != "add" or len(op.inputs) != 2 or op.attrs:
        return None
    for product, other in (op.inputs, op.inputs[::-1]):
        if (
            product.kind == "mm"
            and product is not other
            and len(product.users) == 1
            and product not in returned
            and other.dtype is product.dtype
            and op.shape == product.shape
            and _expands(other.shape, op.shape)
        ):
            return other, *product.inputs
    return None


def _turn(
    op: Operation, kind: str, name: str, inputs: tuple[Operation, ...], attrs: tuple[int, ...]
) -> None:
    """Make an operation another one."""
    for old in set(op.inputs):
        old.users.remove(op)
    op.kind, op.name, op.inputs, op.attrs = kind, name, inputs, attrs
    for new in dict.fromkeys(inputs):
        new.users.append(op)


def _expands(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    if len(shape) > len(to):
        return False
    return all(n in (1, m) for n, m in zip(reversed(shape), reversed(to), strict=False))


def lays_out_images(operations: Sequence[Operation], gpu: bool) -> bool:
    """Whether convolutions compute channels-last (`GraphLowering.decide_layout_opt`, graph.py)."""
    convolutions = [op for op in operations if op.kind == "convolution"]
    if not convolutions:
        return False
    if not gpu:
        return True
    if len(operations) >= 300 * len(convolutions):
        return False
    usual = weighted = 0.0
    for op in convolutions:
        weight = op.inputs[1].shape
        flops = 2.0 * math.prod(op.shape) * math.prod(weight[1:])
        usual += flops
        weighted += flops * _slowdown(weight, op.attrs[1])
    return weighted <= usual


def _slowdown(weight: tuple[int, ...], groups: int) -> float:
    if groups > 1 and weight[1] > 1:
        return GROUPED
    if weight[0] <= 64 and weight[1] <= 64:
        return SMALL
    if weight[0] * 2 <= weight[1] and weight[2] > 1:
        return SHRINKING
    return USUAL


def prefer_channels_last(operations: Sequence[Operation]) -> set[Operation]:
    """What leads to a convolution, or comes from one before the last (graph.py).

    `GraphLowering.find_nodes_prefer_channels_last`.
    """
    chosen: set[Operation] = set()
    last: Operation | None = None
    for op in reversed(operations):
        if op.kind == "convolution":
            chosen.add(op)
            last = last or op
        elif op.name != "bmm" and any(user in chosen for user in op.users):
            chosen.add(op)
    for op in operations:
        if op is last:
            break
        if op in chosen:
            chosen.update(user for user in op.users if user.name != "bmm")
    return chosen


def dislike_padding(
    operations: Sequence[Operation], outputs: Sequence[Operation]
) -> set[Operation | None]:
    """What must stay dense: results, and what leads to a convolution but through a reduction.

    `mark_nodes_dislike_padding` (graph.py).
    """
    chosen: set[Operation | None] = set()
    for op in reversed(operations):
        if op.kind == "convolution":
            chosen.add(op)
        if op in chosen:
            chosen.update(x for x in op.inputs if x.kind not in ("reduce", "moments", "input"))
    return chosen.union(op for op in outputs if op.kind not in ("reduce", "moments"))
