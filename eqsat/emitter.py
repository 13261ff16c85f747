"""A new FX graph in the making: each call runs once on fake tensors for its `val`."""

from __future__ import annotations

from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import disable_fake_tensor_cache
from torch.fx import Graph, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer
from torch.utils import _pytree as pytree
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from eqsat.infer import Oracle
from eqsat.meta import Symbolic

aten = torch.ops.aten
KEPT = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")


class Emitter:
    """Appends ATen calls to a graph; `origin` gives what comes next its stack trace and module."""

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
        """The node of a call, arguments that equal their defaults left out; raises as torch does.

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
        flat = pytree.tree_leaves((fake_args, fake_kwargs))
        shapes = [tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in flat]
        decided = self.oracle.decided(shapes, self.fake_mode)
        shape_env = self.fake_mode.shape_env
        if shape_env is not None and str(target).startswith(("aten.conv", "aten._conv")):
            decided = (
                shape_env.suppress_guards()
            )  # a fake convolution asks whether a batch is large
        # The cache of a fake mode may hold symbols for dims that have become static.
        cached = disable_fake_tensor_cache(self.fake_mode)
        # As while exporting: else operators made of others, such as `pad`, make sizes static.
        with decided, torch.no_grad(), cached, enable_python_dispatcher():
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
            function, args = last.target, torch.fx.map_arg(last.args, lambda n: n.meta["val"])
            assert callable(function)
            last.meta["val"] = function(*args)
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
    return (type(value), repr(value)) if isinstance(value, (bool, int, float, str)) else value
