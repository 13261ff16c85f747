"""What Inductor has scheduled, read as kernels."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast  # torch annotates neither its scheduler nor what a node holds

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Node
from torch.utils import _pytree as pytree

from eqsat.cost.kernel import Kernel, Product
from eqsat.hint import hint

_aten = torch.ops.aten
OPERANDS: Mapping[Any, tuple[int, ...]] = {
    _aten.mm.default: (0, 1),
    _aten.addmm.default: (1, 2),
    _aten.bmm.default: (0, 1),
    _aten.baddbmm.default: (1, 2),
    _aten.convolution.default: (0, 1),
    _aten._scaled_dot_product_flash_attention.default: (0, 1, 2),
    _aten._scaled_dot_product_efficient_attention.default: (0, 1, 2),
    _aten._scaled_dot_product_cudnn_attention.default: (0, 1, 2),
    _aten._scaled_dot_product_flash_attention_for_cpu.default: (0, 1, 2),
}
"""The operators that multiply matrices, and the positions of the matrices (query, key, value)."""


def kernels_of(scheduled: Iterable[Any]) -> Iterator[Kernel]:
    """Yields the kernel of each scheduler node that launches one, while its graph is lowered."""
    from torch._inductor import ir, scheduler

    for snode in scheduled:
        if isinstance(snode, scheduler.NopKernelSchedulerNode):
            continue
        if isinstance(snode, scheduler.ExternKernelSchedulerNode):
            if not isinstance(snode.node, ir.MultiOutput):  # one of the results of another
                yield _library(snode)
        else:
            yield _generated(snode)


def _library(snode: Any) -> Kernel:
    node = snode.node.get_origin_node() or _origins(snode)[-1]
    product = product_of(node)
    outputs = _tensors([node])
    return Kernel(
        kind="extern",
        operators=(_short_name(node),),
        nodes=(_given_name(node),),
        read=int(snode.get_read_buffer_sizes()),
        written=int(snode.get_write_buffer_sizes()),
        flops=product.flops() if product else 0,
        numel=outputs[0].numel() if outputs else 0,
        rnumel=1,
        dtype=_widest(_tensors(node.all_input_nodes) or outputs),
        product=product,
    )


def _generated(snode: Any) -> Kernel:
    origins = [node for node in _origins(snode) if node.op == "call_function"]
    computed = [node for node in origins if not (_is_view(node) or node.target in OPERANDS)]
    computed = computed or origins  # a copy that changes the layout of an operand
    numel, rnumel = (_size(part) for part in snode.group[1])
    reduces = any(part.is_reduction() for part in snode.get_nodes())
    return Kernel(
        kind="reduction" if reduces else "pointwise",
        operators=tuple(_short_name(node) for node in computed),
        nodes=tuple(dict.fromkeys(_given_name(node) for node in computed)),
        read=int(snode.get_read_buffer_sizes()),
        written=int(snode.get_write_buffer_sizes()),
        flops=0,
        numel=numel,
        rnumel=rnumel,
        dtype=_widest(_tensors(computed)),
    )


def product_of(node: Node) -> Product | None:
    """Returns the matrix products behind a node of a lowered graph, None if there are none.

    Those of an attention count as one, whose k is that of the scores and of the weighted sum.
    """
    positions = OPERANDS.get(node.target)
    if positions is None:
        return None
    shapes = [cast("Node", node.args[i]).meta["val"].shape for i in positions]
    x, w = (hint([*shape]) for shape in shapes[:2])
    if node.target is _aten.convolution.default:
        return _convolution(node, x, w)
    if len(positions) == 3:
        return Product(math.prod(x[:-2]), x[-2], w[-2], x[-1] + hint(shapes[2][-1]))
    return Product(math.prod(x[:-2]), x[-2], w[-1], x[-1])


def _convolution(node: Node, x: list[int], w: list[int]) -> Product:
    """Patches by filters, one product for each group."""
    transposed, groups = bool(node.args[6]), cast("int", node.args[8])
    kernel = math.prod(w[2:])
    if transposed:  # weight: (in, out / groups, *kernel)
        return Product(groups, math.prod(x) // max(1, w[0]), w[1] * kernel, w[0] // groups)
    positions = math.prod(hint([*node.meta["val"].shape])) // max(1, w[0])
    return Product(groups, positions, w[0] // groups, w[1] * kernel)


def _origins(snode: Any) -> list[Node]:
    """The nodes of the lowered graph whose work is in it, in the order of that graph."""
    parts = [part.node for part in snode.get_nodes() if part.node is not None]
    found = {origin for part in parts for origin in part.get_origins()}
    graphs = {id(node.graph): node.graph for node in found}
    return [node for graph in graphs.values() for node in graph.nodes if node in found]


def _size(part: Any) -> int:
    """The number of elements of one part of an iteration: an expression, or one for each loop."""
    from torch._inductor.virtualized import V

    loops = part if isinstance(part, (tuple, list)) else (part,)
    return math.prod(int(V.graph.sizevars.optimization_hint(loop)) for loop in loops)


def _is_view(node: Node) -> bool:
    if isinstance(node.target, OpOverload):
        return node.target.is_view
    return node.target is operator.getitem


def _short_name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


def _given_name(node: Node) -> str:
    """The name of the node of the given graph that it comes from.

    Of a node that a pattern of Inductor made it is that of its first input which has one.
    """
    seen = node
    while not seen.meta.get("from_node") and seen.all_input_nodes:
        seen = seen.all_input_nodes[0]
    name, sources = node.name, seen.meta.get("from_node")
    while sources:
        name, sources = sources[-1].name, sources[-1].from_node
    return name


def _tensors(nodes: Sequence[Node]) -> list[Tensor]:
    values = [node.meta.get("val") for node in nodes]
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def _widest(values: Sequence[Tensor]) -> torch.dtype:
    """The widest floating dtype of `values`, or the widest of all if there is none."""
    dtypes = [value.dtype for value in values]
    floats = [dtype for dtype in dtypes if dtype.is_floating_point or dtype.is_complex]
    return max(floats or dtypes or [torch.float32], key=lambda d: (d.itemsize, str(d)))
