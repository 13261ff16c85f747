"""Which values of a graph share storage: what each returned value is a view of."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Node

from eqsat.term import val


@dataclass(frozen=True)
class Output:
    """One returned value: `base` is encoded; `views` (nodes of the given graph) lead from it."""

    value: Any  # what the given graph returns: a node, or a constant
    base: Node | None
    views: tuple[Node, ...] = ()


def trace_outputs(output: Node) -> Sequence[Output]:
    """The returned values; views of inputs, or of what else is returned, keep their views."""
    values = output.args[0]
    flat = values if isinstance(values, (list, tuple)) else (values,)
    chains = {v: view_chain(v) for v in flat if isinstance(v, Node)}
    members: dict[Node, set[Node]] = {}
    for value, chain in chains.items():
        members.setdefault(chain[0], set()).add(value)
    outputs: list[Output] = []
    for value in flat:
        if not isinstance(value, Node):
            outputs.append(Output(value, None))
            continue
        base, *views = chains[value]
        aliased = base.op in ("placeholder", "get_attr") or len(members[base]) > 1
        if aliased and views:
            outputs.append(Output(value, base, tuple(views)))
        else:
            outputs.append(Output(value, value))
    return outputs


def view_chain(node: Node) -> list[Node]:
    """The nodes from the one that owns the storage to `node`, each a view of the one before."""
    chain: list[Any] = [node]
    while True:
        top = chain[-1]
        parent, index = top, None
        if top.target is operator.getitem:
            parent, index = top.args
        owner = _owner(parent, index)
        if owner is None:
            return chain[::-1]
        chain += [owner] if parent is top else [parent, owner]


def _owner(node: Any, index: Any) -> Node | None:
    """The operand whose storage (part `index` of) the result shares, seen by running on fakes.

    The schema does not say it of what returns an operand unchanged, such as dropout turned off.
    """
    if not isinstance(node, Node) or not isinstance(node.target, OpOverload):
        return None
    if node.target._schema.is_mutable:
        return None  # it runs once, as given
    operands = [n for n in node.all_input_nodes if _strided(n)]
    modes = [mode for n in operands if (mode := getattr(val(n), "fake_mode", None)) is not None]
    if not modes:
        return None
    with modes[0], torch.no_grad():
        fresh = {n: fresh_like(val(n)) for n in operands}
        args = torch.fx.map_arg(node.args, lambda n: fresh.get(n, val(n)))
        kwargs = torch.fx.map_arg(node.kwargs, lambda n: fresh.get(n, val(n)))
        try:
            result = node.target(*args, **kwargs)
        except (RuntimeError, ValueError, TypeError):  # depends on data, which fake tensors lack
            return None
    part = result if index is None else result[index]
    if not isinstance(part, Tensor) or part.layout != torch.strided:
        return None
    storage = part.untyped_storage()._cdata
    shared = (n for n, t in fresh.items() if t.untyped_storage()._cdata == storage)
    return next(shared, None)


def _strided(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.layout == torch.strided


def fresh_like(value: Tensor) -> Tensor:
    """A tensor with the sizes and strides of `value`, in memory of its own."""
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
