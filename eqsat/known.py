"""What is known of the values of what does not depend on the program's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node, map_arg

from eqsat.effect import effect
from eqsat.interval import Interval, of_tensor
from eqsat.meta import Meta

READ = 1 << 22  # elements of a parameter or buffer that is read
SMALL = 1 << 20  # elements of what is computed to know it


@dataclass(frozen=True)
class Known:
    """Between which numbers the elements of a constant lie, and which it is where it is one."""

    interval: Interval | None
    number: tuple[Any, torch.dtype, torch.device] | None


def known(graph: Graph, constants: Mapping[str, torch.Tensor]) -> dict[Node, Known]:
    """What is known of each constant and of each call of constants: all that a search sees of them.

    `constants` are the placeholders (by name) that never change.
    """
    values: dict[Node, torch.Tensor] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and node.name in constants:
            values[node] = constants[node.name].detach()
        elif node.op == "call_function" and (value := evaluated(node, values)) is not None:
            values[node] = value
    return {node: _of(value, node) for node, value in values.items()}


def _of(value: torch.Tensor, node: Node) -> Known:
    reads = node.op == "call_function" or value.numel() <= READ
    number = (value.item(), value.dtype, value.device) if is_number(value) else None
    return Known(of_tensor(value) if reads else None, number)


def evaluated(node: Node, values: Mapping[Node, torch.Tensor]) -> torch.Tensor | None:
    """The value of a call whose operands' `values` are known; None where it is not found.

    It is not where it is large, symbolic or no tensor, or the call cannot run here.
    """
    result = node.meta.get("val")
    if not isinstance(node.target, OpOverload) or not isinstance(result, torch.Tensor):
        return None
    if not all(operand in values for operand in node.all_input_nodes) or effect(node) is not None:
        return None
    meta = Meta(tuple(result.shape), result.dtype, str(result.device))
    if meta.symbolic or meta.numel() > SMALL:
        return None
    arguments: Any = map_arg((node.args, node.kwargs), values.__getitem__)
    try:
        with torch.no_grad():
            value = node.target(*arguments[0], **arguments[1])
    except (RuntimeError, ValueError, NotImplementedError, AssertionError):
        return None  # such as a device that is not there
    known = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
    return value if known and value.device.type != "meta" else None


def is_number(value: torch.Tensor) -> bool:
    """Whether a value is one real number, which a fill can hold with all its bits."""
    plain = value.layout == torch.strided and not value.is_complex() and not value.is_quantized
    return plain and value.ndim == 0 and bool(value == value)
