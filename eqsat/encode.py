"""An FX graph as e-nodes: what the language can say becomes terms, everything else leaves and opaque operators."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from eqsat.engine import NUMBER, Row, Symbol
from eqsat.infer import Oracle
from eqsat.meta import EFFECT, INVALID, Symbolic, Texts, meta_of
from eqsat.spelling import Term, spell, spell_item, val

LEAF = Symbol("leaf", 0, 1)
SMALL = 1 << 20  # constants up to this many elements are read to know whether they are finite


@dataclass(frozen=True)
class Output:
    """One returned value: `base` is encoded, and the `views` (FX nodes of the given graph) lead from it."""

    value: Any  # what the given graph returns: a node, or a constant
    base: Node | None
    views: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Encoding:
    """A graph as rows for the e-graph, and what decoding needs to come back.

    Rows are in the order of the graph; a handle is a row's number. `leaves` are the FX nodes behind leaf
    e-nodes; `effects` those that must run, in this order; `origins` the first FX node of each handle.
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
    finite: tuple[int, ...]
    opaque: Mapping[str, str] = field(default_factory=dict)  # operator -> why it is not in the language

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The constructors that occur, in order."""
        return tuple(dict.fromkeys(row.symbol for row in self.rows))


def encode(graph: Graph, constants: Mapping[str, torch.Tensor]) -> Encoding:
    """The e-nodes of a functional ATen graph whose nodes carry `meta["val"]`.

    `constants` are the placeholders (by name) that never change: frozen parameters and buffers.
    """
    encoder = _Encoder(graph, constants)
    for node in graph.nodes:
        encoder.visit(node)
    return encoder.finish()


@dataclass
class _Encoder:
    graph: Graph
    constants: Mapping[str, torch.Tensor]

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
        self.finite: list[int] = []
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

    def _checked(self, node: Node, term: Any) -> int:
        """The handle of a node's term, or of an opaque e-node where the term's meta would differ."""
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
        if _integral(self.texts, meta):
            self.finite.append(handle)
        return handle

    def _leaf(self, node: Node) -> None:
        meta = meta_of(node.meta.get("val"))
        text = EFFECT if meta is None else self.texts.text(meta)
        handle = self._row(LEAF, (), (str(len(self.rows)),), text)
        self.handles[node] = handle
        self.leaves[handle] = node
        self.origins[handle] = node
        value = self.constants.get(node.name)
        if value is not None:
            self.constant.append(handle)
            small = value.numel() <= SMALL and value.is_floating_point()
            if small and bool(torch.isfinite(value.detach()).all()):
                self.finite.append(handle)

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
            finite=tuple(self.finite),
            opaque=self.opaque,
        )


def effect(node: Node) -> str | None:
    """Why a call must run exactly as given, in its place; None for a pure operator. Asked of the schema."""
    target = node.target
    if isinstance(target, HigherOrderOperator):
        return "higher-order operator: kept as given"
    if not isinstance(target, OpOverload):
        return None if target is operator.getitem or _symbolic(node) else "Python function: kept"
    if target._schema.is_mutable:
        return "mutates its operands"
    tags = target.tags
    if torch.Tag.nondeterministic_seeded in tags and not _deterministic(node):
        return "draws random numbers"
    if torch.Tag.data_dependent_output in tags or _makes_symbol(node):
        return "its result's size or value depends on data"
    if torch.Tag.maybe_aliasing_or_mutating in tags and spell(node) is None:
        return "may mutate its operands"
    if not target._schema.returns or node.meta.get("val") is None:
        return "returns nothing: runs for its effect"
    return None


def _makes_symbol(node: Node) -> bool:
    """Whether the size of a result is only known once it is computed."""
    made = free_unbacked_symbols(node.meta.get("val"))
    return bool(made) and not made <= free_unbacked_symbols([val(n) for n in node.all_input_nodes])


def _deterministic(node: Node) -> bool:
    """Whether an operator that may draw numbers does not here (dropout turned off)."""
    return spell(node) is not None


def _symbolic(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (*Symbolic, bool, int, float))


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
    value = val(node.args[0])
    dtype, device = node.kwargs.get("dtype"), node.kwargs.get("device")
    layout = node.kwargs.get("layout")
    return (
        len(node.args) == 1
        and dtype in (None, value.dtype)
        and (device is None or torch.device(str(device)) == value.device)
        and layout in (None, value.layout)
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


def _integral(texts: Texts, meta: str) -> bool:
    if meta in (INVALID, EFFECT):
        return False
    dtype = getattr(texts.value(meta), "dtype", None)
    return isinstance(dtype, torch.dtype) and not dtype.is_floating_point and not dtype.is_complex


def trace_outputs(output: Node) -> Sequence[Output]:
    """The returned values with their bases: views of inputs, or of what is returned too, keep their views."""
    values = output.args[0]
    flat = values if isinstance(values, (list, tuple)) else (values,)
    chains = {v: _view_chain(v) for v in flat if isinstance(v, Node)}
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


def _view_chain(node: Node) -> list[Node]:
    """The nodes from the one that owns the storage to `node`, each a view of the one before."""
    chain = [node]
    while (parent := _viewed(chain[-1])) is not None:
        chain.append(parent)
    return chain[::-1]


def _viewed(node: Node) -> Node | None:
    """The operand whose storage the result of `node` shares, found by running it on fake tensors."""
    if node.target is operator.getitem:
        parent = node.args[0]
        return parent if isinstance(parent, Node) and _viewed(parent) is not None else None
    if not isinstance(node.target, OpOverload):
        return None
    for value, argument in zip(node.args, node.target._schema.arguments, strict=False):
        if isinstance(value, Node) and isinstance(val(value), torch.Tensor):
            if argument.alias_info is not None and _shares(node, value):
                return value
    return None


def _shares(node: Node, operand: Node) -> bool:
    """Whether the result shares the operand's storage, given the operand's strides."""
    value = val(operand)
    fake = value.fake_mode if hasattr(value, "fake_mode") else None
    if fake is None:
        return True
    with fake, torch.no_grad():
        fresh = torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )

        def given(n: Node) -> Any:
            return fresh if n is operand else val(n)

        args = torch.fx.map_arg(node.args, given)
        kwargs = torch.fx.map_arg(node.kwargs, given)
        result = node.target(*args, **kwargs)  # type: ignore[operator]
    first = result[0] if isinstance(result, (list, tuple)) and result else result
    if not isinstance(first, torch.Tensor):
        return False
    return first.untyped_storage()._cdata == fresh.untyped_storage()._cdata
