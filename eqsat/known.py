"""The values of what does not depend on the program's inputs, where they are small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node, map_arg

from eqsat.effect import effect
from eqsat.meta import Meta

SMALL = 1 << 20  # elements of what is computed to know it


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
