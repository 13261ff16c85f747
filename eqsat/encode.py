"""An FX graph as e-nodes: terms of the language where it has them, else leaves and opaque calls."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from eqsat.alias import Output, trace_outputs
from eqsat.effect import effect
from eqsat.infer import Oracle
from eqsat.interval import Interval, interval_of
from eqsat.known import Known, known
from eqsat.meta import EFFECT, INVALID, Symbolic, Texts, meta_of
from eqsat.snapshot import NUMBER, Row, Symbol
from eqsat.spelling import spell, spell_item
from eqsat.term import Call, Term, val

LEAF = Symbol("leaf", 0, 1)


@dataclass(frozen=True)
class Encoding:
    """A graph as rows for the e-graph, and what decoding needs to come back.

    Rows are in the order of the graph; a handle is a row's number. `leaves` are the FX nodes behind
    leaf e-nodes; `effects` those that must run, in this order; `origins` the first FX node of each
    handle; `opaque` says why an operator is not in the language.
    """

    graph: Graph
    texts: Texts
    oracle: Oracle
    rows: tuple[Row, ...]
    metas: Mapping[int, str]
    handles: Mapping[Node, int]
    leaves: Mapping[int, Node]
    effects: tuple[Node, ...]
    outputs: tuple[Output, ...]
    roots: tuple[int, ...]
    reads: Mapping[int, tuple[int, ...]]  # leaf handle -> handles of what it reads
    origins: Mapping[int, Node]
    constant: tuple[int, ...]
    intervals: Mapping[int, Interval]
    numbers: Mapping[int, tuple[str, ...]]  # handles of constants that one fill equals: how
    opaque: Mapping[str, str] = field(default_factory=dict)

    @property
    def returned(self) -> frozenset[int]:
        """The handles of what is returned in memory of its own, laid out as it was given."""
        bases = (output.base for output in self.outputs)
        made = (b for b in bases if b is not None and b.op == "call_function")
        return frozenset(self.handles[b] for b in made if b in self.handles) - self.reads.keys()

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The constructors that occur, in order."""
        return tuple(dict.fromkeys(row.symbol for row in self.rows))


def encode(
    graph: Graph,
    constants: Mapping[str, torch.Tensor],
    facts: Mapping[Node, Known] | None = None,
) -> Encoding:
    """The e-nodes of a functional ATen graph whose nodes carry `meta["val"]`.

    `constants` are the placeholders (by name) that never change: frozen parameters and buffers. Of
    their values nothing is read but `facts`, which `known` finds where they are not given.
    """
    encoder = _Encoder(
        graph, frozenset(constants), known(graph, constants) if facts is None else facts
    )
    for node in graph.nodes:
        encoder.visit(node)
    return encoder.finish()


@dataclass
class _Encoder:
    graph: Graph
    constants: frozenset[str]
    facts: Mapping[Node, Known]

    def __post_init__(self) -> None:
        self.texts = Texts()
        self.oracle = Oracle(self.texts)
        self.rows: list[Row] = []
        self.known: dict[tuple[Symbol, tuple[int, ...], tuple[str, ...]], int] = {}
        self.metas: dict[int, str] = {}
        self.handles: dict[Node, int] = {}
        self.leaves: dict[int, Node] = {}
        self.effects: list[Node] = []
        self.origins: dict[int, Node] = {}
        self.constant: list[int] = []
        self.intervals: dict[int, Interval] = {}
        self.numbers: dict[int, tuple[str, ...]] = {}
        self.opaque: dict[str, str] = {}
        self.outputs: tuple[Output, ...] = ()

    def visit(self, node: Node) -> None:
        if node.op in ("placeholder", "get_attr"):
            if meta_of(node.meta.get("val")) is not None:
                self._leaf(node)
        elif node.op == "output":
            self.outputs = tuple(trace_outputs(node))
        elif node.op == "call_function":
            self._call(node)
        else:
            raise ValueError(f"{node.op} node {node.name!r} is not ATen: capture the program first")

    def _call(self, node: Node) -> None:
        value = node.meta.get("val")
        reason = effect(node)
        if node.target is operator.getitem and node.args[0] in self.handles:
            term = spell_item(node) or Term("getitem", (node.args[0],), (node.args[1],))
        elif node.target is operator.getitem and _known_split(node):
            term = spell_item(node)
        elif isinstance(value, Symbolic) and reason is None:
            return  # symbolic arithmetic is rebuilt from its expression where it is used
        elif _asserts_metadata(node):
            return
        else:
            term = spell(node) if isinstance(node.target, OpOverload) else None
            if term is None and _known_split_parent(node):
                return
            if term is None and reason is not None:
                self.opaque.setdefault(str(node.target), reason)
                self.effects.append(node)
                self._leaf(node)
                return
        handle = self._checked(node, term)
        self.handles[node] = handle
        self.origins.setdefault(handle, node)
        self._know(node)

    def _know(self, node: Node) -> None:
        """Note what is known of the value of a constant."""
        fact, handle = self.facts.get(node), self.handles[node]
        if fact is None:
            return
        if fact.interval is not None:
            self.intervals.setdefault(handle, fact.interval)
        if fact.number is not None:
            self.numbers[handle] = tuple(self.texts.text(part) for part in ((), *fact.number))

    def _checked(self, node: Node, term: Any) -> int:
        """The handle of a node's term, or of an opaque e-node where its meta would differ."""
        wanted = self.texts.text(meta_of(node.meta["val"]))
        if term is not None:
            handle = self._term(term)
            if handle is not None and self.metas.get(handle, wanted) == wanted:
                return handle
        self.opaque.setdefault(str(node.target), "no term: shared when equal, matched by no rule")
        symbol, children, attributes = self._opaque(node)
        return self._row(symbol, children, attributes, wanted)

    def _term(self, term: Any) -> int | None:
        """The handle of a term (shallow: a few levels at most); None when an operand has none."""
        if isinstance(term, Node) and not isinstance(val(term), Symbolic):
            return self.handles.get(term)
        if not isinstance(term, Term):
            number = val(term)
            if meta_of(number) is None:
                return None
            return self._row(NUMBER, (), (self.texts.text(number),), None)
        children: list[int] = []
        for child in term.children:
            handle = self._term(child)
            if handle is None:
                return None
            children.append(handle)
        if any(isinstance(a, (Node, list)) or _holds_node(a) for a in term.attributes):
            return None
        attributes = tuple(self.texts.text(a) for a in term.attributes)
        symbol = Symbol(term.operator, len(children), len(attributes), term.layout)
        return self._row(symbol, tuple(children), attributes, None)

    def _row(
        self,
        symbol: Symbol,
        children: tuple[int, ...],
        attributes: tuple[str, ...],
        meta: str | None,
    ) -> int:
        key = (symbol, children, attributes)
        if key in self.known:
            return self.known[key]
        if meta is None:
            meta = self.oracle(symbol, [self.metas[c] for c in children], attributes)
        handle = self.known[key] = len(self.rows)
        self.rows.append(Row(handle, symbol, children, attributes))
        self.metas[handle] = meta
        self._enclose(handle)
        return handle

    def _enclose(self, handle: int) -> None:
        """Note the interval of a new row, if it has some."""
        row, meta = self.rows[handle], self.metas[handle]
        if meta in (INVALID, EFFECT):
            return
        operands = [self.intervals.get(child) for child in row.children]
        attributes = [self.texts.value(text) for text in row.attributes if row.symbol != LEAF]
        found = interval_of(row.symbol.operator, operands, attributes, self.texts.meta(meta))
        if found is not None:
            self.intervals[handle] = found

    def _leaf(self, node: Node) -> None:
        meta = meta_of(node.meta.get("val"))
        text = EFFECT if meta is None else self.texts.text(meta)
        handle = self._row(LEAF, (), (str(len(self.rows)),), text)
        self.handles[node] = handle
        self.leaves[handle] = node
        self.origins[handle] = node
        if node.name in self.constants:
            self.constant.append(handle)
            self._know(node)

    def _opaque(self, node: Node) -> tuple[Symbol, tuple[int, ...], tuple[str, ...]]:
        """A pure operator that is not in the table, as a constructor made from its schema."""
        children: list[int] = []
        attributes: list[str] = []

        def one(value: Any) -> str:
            if isinstance(value, Node) and value in self.handles:
                children.append(self.handles[value])
                return "T"
            if isinstance(value, (list, tuple)) and any(
                isinstance(v, Node) and v in self.handles for v in value
            ):
                return "L" + "".join(one(v) for v in value) + "E"
            attributes.append(self.texts.text(_plain(value)))
            return "A"

        layout = "".join(one(argument) for argument in node.args)
        for name, argument in sorted(node.kwargs.items()):
            layout += f"K{name}Q" + one(argument)
        symbol = Symbol(str(node.target), len(children), len(attributes), layout)
        self.texts.text(node.target)
        return symbol, tuple(children), tuple(attributes)

    def finish(self) -> Encoding:
        roots: dict[int, None] = {}
        reads: dict[int, tuple[int, ...]] = {}
        previous: tuple[int, ...] = ()
        for node in self.effects:
            handle = self.handles[node]
            inputs = [self.handles[n] for n in node.all_input_nodes if n in self.handles]
            reads[handle] = (*inputs, *previous)
            previous = (handle,)
            roots[handle] = None
        for output in self.outputs:
            if output.base is not None and output.base in self.handles:
                roots[self.handles[output.base]] = None
            for view, parent in zip(output.views, (output.base, *output.views), strict=False):
                lent = [n for n in view.all_input_nodes if n is not parent and n in self.handles]
                roots.update((self.handles[n], None) for n in lent)
        return Encoding(
            graph=self.graph,
            texts=self.texts,
            oracle=self.oracle,
            rows=tuple(self.rows),
            metas=self.metas,
            handles=self.handles,
            leaves=self.leaves,
            effects=tuple(self.effects),
            outputs=self.outputs,
            roots=tuple(roots),
            reads=reads,
            origins=self.origins,
            constant=tuple(self.constant),
            intervals=self.intervals,
            numbers=self.numbers,
            opaque=self.opaque,
        )


def _known_split(node: Node) -> bool:
    parent = node.args[0]
    return isinstance(parent, Node) and spell_item(node) is not None


def _known_split_parent(node: Node) -> bool:
    """Whether every use of a multi-output call has a term of its own, so the call needs none."""
    return bool(node.users) and all(
        u.target is operator.getitem and spell_item(u) is not None for u in node.users
    )


def _asserts_metadata(node: Node) -> bool:
    """Whether a call asserts a dtype or device that the metas already show to hold."""
    if str(node.target) != "aten._assert_tensor_metadata.default":
        return False
    call = Call(node)
    value, dtype, device = val(call.x), call["dtype"], call["device"]
    return (
        call["size"] is None
        and call["stride"] is None
        and dtype in (None, value.dtype)
        and (device is None or torch.device(str(device)) == value.device)
        and call["layout"] in (None, value.layout)
    )


def _plain(value: Any) -> Any:
    """An argument without FX nodes: symbolic nodes become their symbolic values."""
    if isinstance(value, Node):
        return val(value)
    if isinstance(value, (list, tuple)):
        return tuple(_plain(v) for v in value)
    return value


def _holds_node(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(v, Node) for v in value)
