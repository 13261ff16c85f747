"""A selection as an FX graph: given calls where they still stand, else new ones, laid out alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node

from eqsat.alias import fresh_like
from eqsat.emit import emit
from eqsat.emitter import Emitter
from eqsat.encode import Encoding
from eqsat.exits import Exit, storage_of
from eqsat.layout import makes_memory, reads_layout, restride, same_strides
from eqsat.meta import Scalar, Symbolic, meta_of
from eqsat.operators import OPERATORS
from eqsat.problem import Problem
from eqsat.snapshot import Snapshot
from extract import Choice

aten = torch.ops.aten
NONE: Mapping[int, Node] = MappingProxyType({})
_VIEWS = ("aten.view.default", "aten._unsafe_view.default")


def decode(
    snapshot: Snapshot,
    encoding: Encoding,
    problem: Problem,
    choice: Choice,
    mode: FakeTensorMode,
    *,
    channels_last: bool = False,
) -> Graph:
    """The FX graph of `choice`: same placeholders in the same order, same outputs.

    Outputs have the strides and the aliasing of the given program; calls that must run do, in their
    order; every node carries `val` and the source of the given node it stems from. With
    `channels_last` the constant weights of 2-d convolutions are copied to that memory format, which
    Inductor otherwise does at every call: whoever folds constants pays for it once.
    """
    return Decoder(snapshot, encoding, problem, choice, mode, channels_last).graph()


@dataclass
class Decoder:
    """The new graph in the making, and what has been emitted of each class."""

    snapshot: Snapshot
    encoding: Encoding
    problem: Problem
    choice: Choice
    mode: FakeTensorMode
    channels_last: bool

    def __post_init__(self) -> None:
        self.emitter = Emitter(self.mode, self.encoding.oracle)
        self.values: dict[int, Any] = {}  # class -> node of the new graph, or a number
        self.copies: dict[Node, Any] = {}  # given leaf or view -> node of the new graph
        self.laid: dict[int, Node] = {}  # class -> its value in channels-last memory
        self.inputs: set[int] = set()  # the storages of the new graph's inputs
        self.attributes: set[int] = set()  # and those of its attributes
        given = self.encoding.graph.nodes
        held = [node for node in given if node.op in ("placeholder", "get_attr")]
        self.given_inputs = {storage_of(node) for node in held}
        handles = self.snapshot.handles
        self.leaves = {handles[h]: node for h, node in self.encoding.leaves.items()}
        self.origins: dict[int, Node] = {}  # class -> the first given node that computes it
        self.spelled: dict[tuple[Any, ...], Node] = {}  # e-node -> the given call that spells it
        for row in self.encoding.rows:
            origin = self.encoding.origins.get(row.handle)
            if origin is None:
                continue
            self.origins.setdefault(handles[row.handle], origin)
            self.spelled.setdefault(self.snapshot.enode(row), origin)

    def graph(self) -> Graph:
        """The decoded graph; to be asked once."""
        graph = self.emitter.graph
        for node in self.encoding.graph.nodes:
            if node.op == "placeholder":
                self.copies[node] = self.emitter.placeholder(node)
                self.inputs.add(storage_of(self.copies[node]))
                if node in self.encoding.handles:
                    cls = self.class_of(node)
                    self.values.setdefault(cls, self.copies[node])
        for node in self.encoding.effects:
            self._effect(node)
        returned = Exit(self).outputs(self.encoding.outputs)
        output: Any = self.encoding.graph.output_node()
        new = graph.output(type(output.args[0])(returned) if _sequence(output) else returned[0])
        new.meta = dict(output.meta)
        effects = {self.copies[n] for n in self.encoding.effects}
        graph.eliminate_dead_code(lambda n: n in effects or n.is_impure())
        graph.lint()
        return graph

    def class_of(self, node: Node) -> int:
        """The e-class of a node of the given graph."""
        return self.snapshot.handles[self.encoding.handles[node]]

    def value(self, cls: int) -> Any:
        """The node (or number) of a class, its operands emitted first, without recursion."""
        stack = [cls]
        while stack:
            top = stack[-1]
            if top in self.values:
                stack.pop()
                continue
            k = self.problem.enodes[self.choice[top]]
            missing = [c for c in self._needs(top, k) if c not in self.values]
            if missing:
                stack.extend(reversed(missing))
                continue
            self.values[top] = self._emit(top, k)
            stack.pop()
        return self.values[cls]

    def _needs(self, cls: int, k: int) -> Sequence[int]:
        if isinstance(self._meta(cls), Scalar):
            return ()
        return self.snapshot.children[k]

    def _meta(self, cls: int) -> Any:
        return self.encoding.texts.meta(self.snapshot.metas[cls])

    def _emit(self, cls: int, k: int) -> Any:
        s, meta = self.snapshot, self._meta(cls)
        if isinstance(meta, Scalar):
            return self.emitter.argument(meta.value)
        symbol = s.symbols[k]
        self.emitter.origin = self.origins.get(cls, self.emitter.origin)
        if symbol.operator == "leaf":
            return self._leaf(cls)
        given = self.spelled.get((symbol, s.children[k], s.attributes[k]))
        laid = self._channels_last(k) if symbol.operator == "convolution" else {}
        if given is not None:
            node = self._as_given(given, self._readable(s.children[k]), laid)
            if node is not None:
                return node
        attributes = [self.encoding.texts.value(a) for a in s.attributes[k]]
        if symbol.operator not in OPERATORS:
            raise AssertionError(f"no given call spells {symbol.operator}")
        operands = [laid.get(c, self.values[c]) for c in s.children[k]]
        node = emit(self.emitter, symbol.operator, operands, attributes)
        made = self.encoding.texts.text(meta_of(node.meta["val"]))
        if made != s.metas[cls]:
            raise AssertionError(f"{symbol.operator} made {made}, not {s.metas[cls]}")
        return node

    def _leaf(self, cls: int) -> Any:
        """The node of a leaf: an attribute of the given module, copied on first use."""
        node = self.leaves[cls]
        if node in self.copies:
            return self.copies[node]
        if node.op == "get_attr":
            return self.attribute(node)
        raise AssertionError(f"leaf {node.name!r} is read before it runs")

    def attribute(self, node: Node) -> Node:
        """The copy of a `get_attr` node."""
        if node not in self.copies:
            copy = self.emitter.graph.get_attr(str(node.target))
            copy.meta = dict(node.meta)
            self.copies[node] = copy
            self.attributes.add(storage_of(copy))
        return self.copies[node]

    def _readable(self, children: tuple[int, ...]) -> set[int]:
        """These classes, and those the given program makes them of, where the choice does too.

        A given call can stand for two e-nodes: `select` is a reshaped slice, `stack` a cat of
        reshapes.
        """
        within = [c for c in children if self.choice[c] == self.problem.given[c]]
        nested = (self.snapshot.children[self.problem.enodes[self.choice[c]]] for c in within)
        return {*children, *(c for parts in nested for c in parts if c in self.values)}

    def _channels_last(self, k: int) -> dict[int, Node]:
        """The weight of a convolution in channels-last memory, by its class, where that is asked.

        Inductor lays out the weights of a graph so where that pays, and a copy of each is a kernel.
        """
        weight = self.snapshot.children[k][1]
        value = self.values[weight]
        if not self.channels_last or weight not in self.snapshot.constant:
            return {}
        if weight not in self.laid and value.meta["val"].ndim == 4:
            with self.mode:
                like = value.meta["val"].to(memory_format=torch.channels_last)
            self.laid[weight] = restride(self.emitter, value, like)
        return {weight: self.laid[weight]} if weight in self.laid else {}

    def _as_given(
        self, given: Node, children: set[int], laid: Mapping[int, Node] = NONE
    ) -> Node | None:
        """The given call on the new operands; None where it read other values or is refused now.

        Where strides changed a view must be a reshape: that it fits, fake tensors say too often.
        """
        if str(given.target) in _VIEWS and not self._operands_lie_as_given(given, laid):
            return None

        def new(node: Node) -> Any:
            if node in self.encoding.handles:
                cls = self.class_of(node)
                if cls not in children:
                    raise _OtherValueError
                value = laid.get(cls, self.values[cls])
                return self._laid_as(node, value) if pinned else value
            if node.op == "get_attr":
                return self.attribute(node)
            if not isinstance(node.meta["val"], Symbolic):
                raise _OtherValueError
            return self.emitter.argument(node.meta["val"])

        target, pinned = given.target, reads_layout(given.target)
        try:
            args = torch.fx.map_arg(given.args, new)
            kwargs = torch.fx.map_arg(given.kwargs, new)
            known = None
            if self._lies_as_given(given, laid):
                with self.mode:
                    known = fresh_like(given.meta["val"])
            return self.emitter.call(target, *args, known=known, **kwargs)
        except _OtherValueError:
            return None

    def _lies_as_given(self, given: Node, laid: Mapping[int, Node]) -> bool:
        """Whether the result is new memory and the operands lie as they did: then so does it."""
        if not makes_memory(given.target) or not isinstance(given.meta["val"], torch.Tensor):
            return False
        return self._operands_lie_as_given(given, laid)

    def _operands_lie_as_given(self, given: Node, laid: Mapping[int, Node]) -> bool:
        pairs = [
            (n, laid.get(self.class_of(n), self.values.get(self.class_of(n))))
            for n in given.all_input_nodes
            if n in self.encoding.handles
        ]
        return all(
            isinstance(new, Node) and same_strides(new.meta["val"], old.meta["val"], every=True)
            for old, new in pairs
            if isinstance(old.meta["val"], torch.Tensor)
        )

    def _laid_as(self, given: Node, new: Any) -> Any:
        """The new operand with the strides that `given` has."""
        like = given.meta.get("val")
        if isinstance(new, Node) and isinstance(like, torch.Tensor):
            return restride(self.emitter, new, like)
        return new

    def _own(self, given: Node, new: Any) -> Any:
        """The operand in other memory than the inputs', where `given` was: it may be kept."""
        if not isinstance(new, Node) or not isinstance(new.meta["val"], torch.Tensor):
            return new
        storage = storage_of(new)
        if storage_of(given) in self.given_inputs or storage not in self.inputs | self.attributes:
            return new
        lifted = storage in self.attributes  # a clone of an attribute Inductor leaves out
        copied = aten.lift_fresh_copy.default if lifted else aten.clone.default
        return restride(self.emitter, self.emitter.call(copied, new), given.meta["val"])

    def _effect(self, node: Node) -> None:
        """Run a call as given, on operands with their given strides."""
        self.emitter.origin = node

        def new(argument: Node) -> Any:
            if argument in self.encoding.handles:
                value = self._laid_as(argument, self.value(self.class_of(argument)))
                return self._own(argument, value)
            if argument.op == "get_attr":
                return self.attribute(argument)
            return self.emitter.argument(argument.meta["val"])

        args = torch.fx.map_arg(node.args, new)
        kwargs = torch.fx.map_arg(node.kwargs, new)
        assert callable(node.target)
        copy = self.emitter.graph.call_function(node.target, args, kwargs)
        copy.meta = dict(node.meta)
        self.copies[node] = copy
        self.values[self.class_of(node)] = copy
        self.emitter.learn(copy)


class _OtherValueError(Exception):
    """A given call read a value that its e-node does not give it."""


def _sequence(output: Node) -> bool:
    return isinstance(output.args[0], (list, tuple))
