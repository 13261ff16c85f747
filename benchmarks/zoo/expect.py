"""What a graph computes, as far as expectations ask: products, convolutions, attention, norms."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.fx import Graph, Node

OPERANDS = {"linear": 0, "mm": 0, "bmm": 0, "matmul": 0, "addmm": 1, "baddbmm": 1}
"""The operators that are products, and where their first operand stands."""
CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "_convolution")
BATCH_NORMS = ("batch_norm", "_native_batch_norm_legit_no_training")


@dataclass(frozen=True)
class Product:
    """A product of `rows` by `inner` and `inner` by `width`, over all of a batch."""

    node: Node
    rows: int
    inner: int
    width: int


def named(graph: Graph, *names: str) -> list[Node]:
    """The calls of the operators of these names, whatever their overload."""
    return [n for n in graph.nodes if n.op == "call_function" and operator(n) in names]


def operator(node: Node) -> str:
    """The name of the operator that a node calls, without namespace and overload."""
    parts = str(node.target).split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def shape(node: Any) -> tuple[int, ...]:
    """The shape of a node's value, of the first where it has several; that of no tensor is ()."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    value = value[0] if isinstance(value, (tuple, list)) else value
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def products(graph: Graph) -> list[Product]:
    """All products of matrices."""
    found: list[Product] = []
    for node in named(graph, *OPERANDS):
        out, left = shape(node), shape(node.args[OPERANDS[operator(node)]])
        inner, width = left[-1], out[-1] if out else 1
        found.append(Product(node, math.prod(out) // max(width, 1), inner, width))
    return found


def rows(graph: Graph, width: int, inner: int | None = None) -> list[int]:
    """The rows of the products that are `width` wide (and read `inner` columns), fewest first."""
    of = [p for p in products(graph) if p.width == width and inner in (None, p.inner)]
    return sorted(p.rows for p in of)


def flops(graph: Graph) -> int:
    """Floating-point operations of all products of matrices."""
    return sum(2 * p.rows * p.inner * p.width for p in products(graph))


def attentions(graph: Graph) -> list[Node]:
    """The calls of attention as one operator."""
    return [n for n in graph.nodes if "scaled_dot_product" in str(n.target)]


def convolutions(graph: Graph) -> list[Node]:
    """All convolutions."""
    return named(graph, *CONVOLUTIONS)


def norms_folded(graph: Graph) -> bool:
    """Whether no batch norm is left, nor what one decomposes to."""
    return not named(graph, *BATCH_NORMS, "rsqrt")


def twin_convolutions(graph: Graph) -> int:
    """Convolutions that another of the same input, kernel, step and groups could be merged with."""
    keys = Counter((n.args[0], shape(n.args[1])[2:], str(n.args[3:])) for n in convolutions(graph))
    return sum(count for count in keys.values() if count > 1)


def weighted_norms(graph: Graph, width: int) -> int:
    """Norms by the mean square that read a weight: in the operator, or multiplied by it after."""
    whole = [n for n in named(graph, "rms_norm", "_fused_rms_norm") if any(map(_weight, n.args))]
    apart = [
        n
        for n in named(graph, "mul")
        if any(_weight(a) and shape(a) == (width,) for a in n.all_input_nodes)
    ]
    return len(whole) + len(apart)


def _weight(value: object) -> bool:
    return isinstance(value, Node) and value.op in ("placeholder", "get_attr")
