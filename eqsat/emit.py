"""From the language back to ATen: nodes of a new FX graph, each run once on fake tensors for its `val`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from eqsat.functions import FLIPPED, NUMBER_SPELLING, POINTWISE, SPELLING, Function, fill, overload
from eqsat.infer import Oracle
from eqsat.meta import Symbolic

aten = torch.ops.aten
KEPT = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")


class Emitter:
    """Appends ATen calls to a graph; `origin` gives the stack trace and module stack of what comes next."""

    def __init__(self, fake_mode: Any, oracle: Oracle) -> None:
        self.graph = Graph()
        self.fake_mode = fake_mode
        self.oracle = oracle
        self.origin: Node | None = None
        self.symbols: dict[Any, Any] = {}  # sympy expression -> node of the new graph

    def placeholder(self, node: Node) -> Node:
        """A copy of a placeholder of the given graph."""
        new = self.graph.placeholder(node.name)
        new.meta = dict(node.meta)
        self.learn(new)
        return new

    def learn(self, node: Node) -> None:
        """Remember which symbols a node can supply: a symbolic value, or the sizes of a tensor."""
        value = node.meta.get("val")
        if isinstance(value, Symbolic):
            self.symbols.setdefault(value.node.expr, node)

    def call(self, target: Any, *args: Any, known: Any = None, **kwargs: Any) -> Node:
        """The node of a call, arguments that equal their defaults left out; raises what torch raises.

        `known` is its fake value where that need not be computed.
        """
        if isinstance(target, OpOverload):
            args, kwargs = trimmed(target, args, kwargs)
        node_args = tuple(self.argument(a) for a in args)
        node_kwargs = {k: self.argument(v) for k, v in kwargs.items()}
        value = self.run(target, node_args, node_kwargs) if known is None else known
        node = self.graph.call_function(target, node_args, node_kwargs)
        node.meta["val"] = value
        self.describe(node)
        return node

    def describe(self, node: Node) -> None:
        """Give a new node the source of the given node that it stems from."""
        if self.origin is not None:
            for key in KEPT:
                if key in self.origin.meta:
                    node.meta[key] = self.origin.meta[key]

    def run(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The fake result of a call on nodes."""
        fake_args = torch.fx.map_arg(args, lambda n: n.meta["val"])
        fake_kwargs = torch.fx.map_arg(kwargs, lambda n: n.meta["val"])
        flat = torch.utils._pytree.tree_leaves((fake_args, fake_kwargs))
        shapes = [tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in flat]
        with self.oracle.decided(shapes, self.fake_mode), torch.no_grad():
            return target(*fake_args, **fake_kwargs)

    def argument(self, value: Any) -> Any:
        """An argument of a call: symbolic numbers become nodes that compute them."""
        if isinstance(value, Symbolic):
            return self.symbol(value)
        if isinstance(value, (list, tuple)):
            return [self.argument(v) for v in value]
        return value

    def symbol(self, value: Any) -> Any:
        """A node that computes a symbolic number from the sizes of the inputs."""
        expr = value.node.expr
        if expr in self.symbols:
            return self.symbols[expr]
        for free in sorted(expr.free_symbols, key=str):
            if free not in self.symbols:
                self.symbols[free] = self._size(free)
        tracer = GraphAppendingTracer(self.graph)
        env = {s: Proxy(self.symbols[s], tracer) for s in expr.free_symbols}
        last = next(reversed(self.graph.nodes))
        result = sympy_interp(PythonReferenceAnalysis, env, expr)
        while last.next.op != "root":
            last = last.next
            last.meta["val"] = last.target(*torch.fx.map_arg(last.args, lambda n: n.meta["val"]))  # type: ignore[operator]
            self.describe(last)
        self.symbols[expr] = result.node if isinstance(result, Proxy) else result
        return self.symbols[expr]

    def _size(self, symbol: Any) -> Node:
        for node in self.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                for dim, size in enumerate(value.shape):
                    if isinstance(size, torch.SymInt) and size.node.expr == symbol:
                        return self.call(aten.sym_size.int, node, dim)
        raise ValueError(f"no input has the size {symbol}")

    def emit(self, name: str, operands: Sequence[Any], attributes: Sequence[Any]) -> Node:
        """The node of an operator of the table applied to nodes and numbers."""
        return EMITTERS[name](self, *operands, *attributes)

    def restride(self, node: Node, like: torch.Tensor) -> Node:
        """`node` with the strides of `like` (in dims of more than one element), copied where they differ."""
        value = node.meta["val"]
        if not isinstance(like, torch.Tensor) or same_strides(value, like):
            return node
        shape, stride = tuple(like.shape), tuple(like.stride())
        order = sorted(range(like.ndim), key=lambda d: (-_hint(stride[d]), d))
        result = self._dense(node, order)
        if same_strides(result.meta["val"], like):
            return result
        if 0 not in shape and any(s == 0 and n != 1 for n, s in zip(shape, stride, strict=True)):
            return self._overlapping(node, like)
        # Gaps: a buffer of the given extent, written where the value lies.
        last = sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
        extent = 0 if 0 in shape else last + 1
        buffer = self.call(aten.empty.memory_format, [extent], dtype=like.dtype, device=like.device)
        filled = self.call(aten.as_strided_scatter.default, buffer, node, shape, stride, 0)
        return self.call(aten.as_strided.default, filled, shape, stride, 0)

    def _dense(self, node: Node, order: Sequence[int]) -> Node:
        """A copy without gaps whose dims lie in memory in this order, outermost first."""
        memory_format = _FORMATS.get(tuple(order))
        if list(order) == sorted(order):
            memory_format = torch.contiguous_format
        if memory_format is not None:
            return self.call(aten.clone.default, node, memory_format=memory_format)
        moved = self.call(aten.permute.default, node, order)
        dense = self.call(aten.clone.default, moved, memory_format=torch.contiguous_format)
        back = [order.index(d) for d in range(len(order))]
        return self.call(aten.permute.default, dense, back)

    def _overlapping(self, node: Node, like: torch.Tensor) -> Node:
        """The value with strides of 0: one element of each such dim, laid out, then expanded."""
        sizes = list(like.shape)
        for dim, stride in enumerate(like.stride()):
            if stride == 0 and sizes[dim] != 1:
                sizes[dim] = 1
                node = self.call(aten.slice.Tensor, node, dim, 0, 1)
        with self.fake_mode:
            thin = torch.empty_strided(sizes, like.stride(), dtype=like.dtype, device=like.device)
        return self.call(aten.expand.default, self.restride(node, thin), tuple(like.shape))


_FORMATS: dict[tuple[int, ...], torch.memory_format] = {
    (0, 2, 3, 1): torch.channels_last,
    (0, 2, 3, 4, 1): torch.channels_last_3d,
}


def _hint(size: Any) -> int:
    hint = getattr(getattr(size, "node", None), "hint", None)
    return int(hint) if hint is not None else int(size) if isinstance(size, int) else 1


def same_strides(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the strides agree in every dim of more than one element."""
    if a.layout != torch.strided or b.layout != torch.strided:
        return a.layout == b.layout
    pairs = zip(a.shape, a.stride(), b.stride(), strict=True)
    return all(str(x) == str(y) for size, x, y in pairs if str(size) not in ("0", "1"))


def trimmed(
    target: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without those at the end, and the keywords, that equal the schema's default."""
    schema = {a.name: a for a in target._schema.arguments}
    positional = [a for a in target._schema.arguments if not a.kwarg_only]
    kept = list(args)
    while kept and positional[len(kept) - 1].has_default_value():
        default = positional[len(kept) - 1].default_value
        if isinstance(kept[-1], Node) or _plain(kept[-1]) != _plain(default):
            break
        kept.pop()
    keywords = {
        k: v
        for k, v in kwargs.items()
        if isinstance(v, Node)
        or not schema[k].has_default_value()
        or _plain(v) != _plain(schema[k].default_value)
    }
    return tuple(kept), keywords


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [str(v) for v in value]
    return (type(value), value) if isinstance(value, (bool, int, float, str)) else value


def _transposed(weight: Any) -> Any:
    """The matrix of which `weight` is the transpose, if it was emitted as one."""
    if not isinstance(weight, Node) or not isinstance(weight.meta["val"], torch.Tensor):
        return None
    swapped = (
        (weight.target is aten.permute.default and list(weight.args[1]) == [1, 0])  # type: ignore[arg-type]
        or weight.target is aten.t.default
        or (weight.target is aten.transpose.int and weight.meta["val"].ndim == 2)
    )
    return weight.args[0] if swapped and weight.meta["val"].ndim == 2 else None


def _matmul(e: Emitter, x: Node, w: Node) -> Node:
    matrix = _transposed(w)
    if matrix is not None:
        return e.call(aten.linear.default, x, matrix)
    return e.call(aten.matmul.default, x, w)


def _affine(e: Emitter, x: Node, w: Node, b: Node) -> Node:
    matrix, bias = w.meta["val"], b.meta["val"]
    rows, columns = str(x.meta["val"].shape[0]), str(matrix.shape[-1])
    if matrix.ndim == 2 and [str(n) for n in bias.shape] == [columns]:
        swapped = _transposed(w)
        if swapped is None and x.meta["val"].ndim != 2:
            swapped = e.call(aten.permute.default, w, [1, 0])
        if swapped is not None:
            return e.call(aten.linear.default, x, swapped, b)
    sides = zip([str(n) for n in reversed(bias.shape)], (columns, rows), strict=False)
    fits = bias.ndim <= 2 and all(n in ("1", size) for n, size in sides)
    if x.meta["val"].ndim == matrix.ndim == 2 and fits:
        return e.call(aten.addmm.default, b, x, w)
    return e.call(aten.add.Tensor, _matmul(e, x, w), b)


def _convolution(e: Emitter, x: Node, w: Node, *rest: Any) -> Node:
    bias, geometry = (rest[0], rest[1:]) if len(rest) == 7 else (None, rest)
    stride, padding, dilation, transposed, output_padding, groups = geometry
    target = {3: aten.conv1d, 4: aten.conv2d, 5: aten.conv3d}.get(w.meta["val"].ndim)
    if transposed or target is None:
        return e.call(
            aten.convolution.default,
            *(x, w, bias, stride, padding, dilation, transposed, output_padding, groups),
        )
    return e.call(target.default, x, w, bias, stride, padding, dilation, groups)


def _attention(e: Emitter, q: Node, k: Node, v: Node, *rest: Any) -> Node:
    """A call of attention with a batch and a head dim: what fused kernels take."""
    mask, (causal, scale, gqa) = (rest[0], rest[1:]) if len(rest) == 4 else (None, rest)
    size, rank = q.meta["val"].shape[-1], q.meta["val"].ndim
    if isinstance(size, int) and scale == 1.0 / size**0.5:
        scale = None
    for _ in range(rank, 4):
        if isinstance(mask, Node) and mask.meta["val"].ndim == q.meta["val"].ndim:
            mask = e.call(aten.unsqueeze.default, mask, 0)
        q, k, v = (e.call(aten.unsqueeze.default, n, 0) for n in (q, k, v))
    result = e.call(
        aten.scaled_dot_product_attention.default,
        *(q, k, v, mask, 0.0, causal),
        scale=scale,
        enable_gqa=gqa,
    )
    return e.call(aten.squeeze.dims, result, list(range(4 - rank))) if rank < 4 else result


def _pointwise(e: Emitter, *arguments: Any) -> Node:
    *operands, function = arguments
    name, parameters = function.name, function.parameters
    if name not in POINTWISE:
        return e.call(overload(name), *fill(parameters, tuple(operands)))
    if len(operands) == 2 and not isinstance(operands[0], Node):
        return _number_first(e, function, operands[0], operands[1])
    if len(operands) == 3 and not all(isinstance(o, Node) for o in operands):
        return _where(e, operands)
    if len(operands) == 2 and not isinstance(operands[1], Node):
        target = NUMBER_SPELLING.get(name, SPELLING[name])
    else:
        target = SPELLING[name]
    if name.startswith("div_"):
        return e.call(target, *operands, rounding_mode=name.removeprefix("div_"))
    named = {a.name for a in target._schema.arguments if a.kwarg_only}
    if named and parameters:
        return e.call(target, *operands, **dict(zip(sorted(named), parameters, strict=True)))
    return e.call(target, *operands, *parameters)


def _number_first(e: Emitter, function: Function, number: Any, x: Node) -> Node:
    if function.name in FLIPPED:
        return _pointwise(e, x, number, Function(FLIPPED[function.name]))
    if function.name == "sub":
        return e.call(aten.rsub.Scalar, x, number)
    if function.name == "pow":
        return e.call(aten.pow.Scalar, number, x)
    value = x.meta["val"]
    dtype = torch.result_type(torch.empty(0, dtype=value.dtype), number)
    filled = e.call(aten.full.default, [], number, dtype=dtype, device=value.device)
    return _pointwise(e, filled, x, function)


def _where(e: Emitter, operands: Sequence[Any]) -> Node:
    condition, a, b = operands
    if isinstance(a, Node):
        return e.call(aten.where.ScalarOther, condition, a, b)
    if isinstance(b, Node):
        return e.call(aten.where.ScalarSelf, condition, a, b)
    return e.call(aten.where.Scalar, condition, a, b)


def _reduction(e: Emitter, x: Node, function: Function, dims: Any, keepdim: bool) -> Node:
    spelled = {"sum": aten.sum.dim_IntList, "mean": aten.mean.dim}
    target = spelled.get(function.name) or getattr(aten, function.name).default
    if function.parameters:
        return e.call(target, x, list(dims), keepdim, dtype=function.parameters[0])
    return e.call(target, x, list(dims), keepdim)


def _batch_norm(e: Emitter, x: Node, w: Node, b: Node, mean: Node, var: Node, eps: float) -> Node:
    return e.call(aten.batch_norm.default, x, w, b, mean, var, False, 0.0, eps, False)


def _layer_norm(e: Emitter, x: Node, *rest: Any) -> Node:
    *parameters, shape, eps = rest
    weight, bias = [*parameters, None, None][:2]
    return e.call(aten.layer_norm.default, x, list(shape), weight, bias, eps)


def _rms_norm(e: Emitter, x: Node, *rest: Any) -> Node:
    *parameters, shape, eps = rest
    return e.call(aten.rms_norm.default, x, list(shape), *[*parameters, None][:1], eps)


def _group_norm(e: Emitter, x: Node, *rest: Any) -> Node:
    *parameters, groups, eps = rest
    return e.call(aten.group_norm.default, x, groups, *[*parameters, None, None][:2], eps)


def _full(e: Emitter, size: Any, value: Any, dtype: Any, device: Any) -> Node:
    return e.call(aten.full.default, list(size), value, dtype=dtype, device=device)


def _arange(e: Emitter, start: Any, end: Any, step: Any, dtype: Any, device: Any) -> Node:
    return e.call(aten.arange.start_step, start, end, step, dtype=dtype, device=device)


EMITTERS: dict[str, Callable[..., Node]] = {
    "unary": _pointwise,
    "binary": _pointwise,
    "ternary": _pointwise,
    "reduction": _reduction,
    "reshape": lambda e, x, size: e.call(aten.reshape.default, x, list(size)),
    "permute": lambda e, x, dims: e.call(aten.permute.default, x, list(dims)),
    "expand": lambda e, x, size: e.call(aten.expand.default, x, list(size)),
    "slice": lambda e, x, d, s, t, n: e.call(aten.slice.Tensor, x, d, s, t, n),
    "getitem": lambda e, x, index: e.call(operator.getitem, x, index),
    "cat": lambda e, *a: e.call(aten.cat.default, list(a[:-1]), a[-1]),
    "embedding": lambda e, w, i: e.call(aten.embedding.default, w, i),
    "full": _full,
    "arange": _arange,
    "matmul": _matmul,
    "affine": _affine,
    "convolution": _convolution,
    "attention": _attention,
    "softmax": lambda e, x, dim: e.call(aten.softmax.int, x, dim),
    "log_softmax": lambda e, x, dim: e.call(aten.log_softmax.int, x, dim),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "avg_pool2d": lambda e, x, *a: e.call(aten.avg_pool2d.default, x, *a),
    "adaptive_avg_pool2d": lambda e, x, size: e.call(
        aten.adaptive_avg_pool2d.default, x, list(size)
    ),
    "upsample_nearest2d": lambda e, x, *a: e.call(aten.upsample_nearest2d.vec, x, *a),
    "upsample_bilinear2d": lambda e, x, *a: e.call(aten.upsample_bilinear2d.vec, x, *a),
}
