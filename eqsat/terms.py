"""A program as one graph of terms, which a greedy search changes in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from torch import nn
from torch.fx import Graph, GraphModule, Node

from eqsat.encode import LEAF, Encoding
from eqsat.interval import Interval, interval_of
from eqsat.meta import EFFECT, INVALID
from eqsat.operators import OPERATORS
from eqsat.problem import STRIDED, Pricer
from eqsat.snapshot import NUMBER, Row, Snapshot, Symbol
from extract import Choice

FACTS = "facts"  # where a node's facts stand in its meta
Key = tuple[Symbol, tuple[Node, ...], tuple[str, ...]]


class Refused(ValueError):  # noqa: N818 - no error, an answer
    """A term cannot stand where it would have to."""


@dataclass(frozen=True)
class Facts:
    """What is known of a term: the text of its meta, its price, and what rules ask of values."""

    symbol: Symbol
    meta: str
    seconds: float
    constant: bool
    varying: bool
    given: bool
    interval: Interval | None
    rank: int | None
    """Its place in the given program, of which it is a part."""


@cache
def target_of(symbol: Symbol) -> Callable[..., Any]:
    """The function that stands for a constructor in an FX graph; nobody calls it."""

    def term(*_: Any) -> None:
        raise NotImplementedError(f"{symbol} is a term: decode it")

    term.__name__ = symbol.name.replace(".", "_").rstrip("_")
    return term


class Terms:
    """The live terms of a program as an FX graph: equal terms are one node.

    A node's arguments are the nodes of its operands, then the texts of its attributes. The output
    holds the roots.
    """

    def __init__(self, encoding: Encoding, pricer: Pricer) -> None:
        self.encoding = encoding
        self.pricer = pricer
        self.module = GraphModule(nn.Module(), Graph())  # Inductor's matcher asks for a module
        self.graph = self.module.graph
        self.known: dict[Key, Node] = {}
        self.forward: dict[Node, Node] = {}  # what was replaced -> by what
        self.of_handle: dict[int, Node] = {}
        self.ranks: dict[Key, int] = {}
        self.symbolic = any("<" in text for text in encoding.metas.values())
        self.gone: set[Node] = set()
        constant = set(encoding.constant)
        for row in encoding.rows:
            self.of_handle[row.handle] = self._given(row, row.handle in constant)
        self.returned = {self.of_handle[h] for h in encoding.returned}
        self.output = self.graph.output(tuple(self.of_handle[h] for h in encoding.roots))
        self._bury(n for n in reversed(self.graph.nodes) if n is not self.output)

    def _given(self, row: Row, constant: bool) -> Node:
        encoding = self.encoding
        children = tuple(self.of_handle[c] for c in row.children)
        reads = tuple(self.of_handle[h] for h in encoding.reads.get(row.handle, ()))
        node = self.graph.call_function(target_of(row.symbol), (*children, *reads, *row.attributes))
        meta = encoding.metas[row.handle]
        leaf = row.symbol == LEAF
        ahead = constant if leaf else self._constant(row.symbol, children, row.attributes)
        node.meta[FACTS] = Facts(
            symbol=row.symbol,
            meta=meta,
            seconds=0.0 if leaf else self._seconds(row.symbol, meta, children, row.attributes),
            constant=ahead,
            varying=(leaf and not ahead) or any(facts(c).varying for c in children),
            given=True,
            interval=encoding.intervals.get(row.handle),
            rank=row.handle,
        )
        key = (row.symbol, children, row.attributes)
        self.known[key] = node
        self.ranks[key] = row.handle
        return node

    def _seconds(
        self, symbol: Symbol, meta: str, children: tuple[Node, ...], attributes: tuple[str, ...]
    ) -> float:
        if meta in (INVALID, EFFECT):
            return 0.0
        metas = tuple(facts(c).meta for c in children)
        constant = self._constant(symbol, children, attributes)
        return self.pricer.seconds(symbol, meta, metas, children, attributes, constant)

    def _constant(
        self, symbol: Symbol, children: tuple[Node, ...], attributes: tuple[str, ...]
    ) -> bool:
        """Whether a term that is no leaf can be computed ahead."""
        if not (children or symbol.operator in OPERATORS or symbol == NUMBER):
            return False
        if self.symbolic and any("<" in text for text in attributes):
            return False
        return all(facts(c).constant for c in children)

    # Changing the graph.

    def add(
        self, symbol: Symbol, children: tuple[Node, ...], attributes: tuple[str, ...], before: Node
    ) -> tuple[Node, bool]:
        """The node of a term, made or moved so that it stands before another; whether it is new.

        Raises Refused where the term has no meta, or is computed from `before`.
        """
        key = (symbol, children, attributes)
        found = self.known.get(key)
        if found is not None:
            self.hoist([found], before)
            return found, False
        metas = [facts(c).meta for c in children]
        meta = self.encoding.oracle(symbol, metas, attributes)
        if meta == INVALID:
            raise Refused(f"{symbol.operator} cannot be applied to {metas}")
        self.hoist(children, before)
        with self.graph.inserting_before(before):
            node = self.graph.call_function(target_of(symbol), (*children, *attributes))
        constant = self._constant(symbol, children, attributes)
        node.meta[FACTS] = Facts(
            symbol=symbol,
            meta=meta,
            seconds=self._seconds(symbol, meta, children, attributes),
            constant=constant,
            varying=any(facts(c).varying for c in children),
            given=key in self.ranks or self._like_given(symbol, children, attributes, constant),
            interval=self._interval(symbol, meta, children, attributes),
            rank=self.ranks.get(key),
        )
        self.known[key] = node
        return node, True

    def _like_given(
        self,
        symbol: Symbol,
        children: tuple[Node, ...],
        attributes: tuple[str, ...],
        constant: bool,
    ) -> bool:
        added = symbol.operator == "binary" and attributes == ("add",) and constant
        return symbol.operator == "full" or (added and facts(children[0]).given)

    def _interval(
        self, symbol: Symbol, meta: str, children: tuple[Node, ...], attributes: tuple[str, ...]
    ) -> Interval | None:
        texts = self.encoding.texts
        operands = [facts(c).interval for c in children]
        values = [texts.value(text) for text in attributes]
        return interval_of(symbol.operator, operands, values, texts.meta(meta))

    def hoist(self, nodes: Iterable[Node], before: Node) -> None:
        """Move nodes, with all that they read, before another; Refused where they read it."""
        late: set[Node] = set()
        stack = [n for n in nodes if not n < before]
        while stack:
            node = stack.pop()
            if node is before:
                raise Refused("a term would be computed from itself")
            if node not in late:
                late.add(node)
                stack.extend(n for n in node.all_input_nodes if not n < before)
        for node in sorted(late):
            before.prepend(node)

    def dying(self, roots: Sequence[Node], kept: Iterable[Node]) -> set[Node]:
        """What nobody would read if all that read the roots, but for what is `kept`, did not."""
        kept = set(kept)
        dead: set[Node] = set()
        stack = [r for r in roots if r not in kept and kept.isdisjoint(r.users)]
        while stack:
            node = stack.pop()
            if node in dead or node in kept:
                continue
            if node in roots or all(user in dead for user in node.users):
                dead.add(node)
                stack.extend(node.all_input_nodes)  # each comes again with its last reader
        return dead

    def replace(self, roots: Sequence[Node], values: Sequence[Node]) -> None:
        """Let everything read `values` in place of `roots`, and forget what nobody reads then.

        Terms that become equal become one.
        """
        pairs = list(zip(roots, values, strict=True))
        for root, value in pairs:
            if root is value or root in self.gone:
                continue
            readers = [user for user in root.users if user is not self.output]
            for reader in readers:
                if self.known.get(self.key(reader)) is reader:
                    del self.known[self.key(reader)]
            root.replace_all_uses_with(value)
            self.forward[root] = value
            if root in self.returned:
                self.returned.add(value)
            for reader in readers:
                twin = self.known.setdefault(self.key(reader), reader)
                if twin is not reader:
                    pairs.append((reader, twin) if twin < reader else (twin, reader))
                    self.known[self.key(reader)] = min(twin, reader)
        self._bury(root for root, _ in pairs)

    def _bury(self, nodes: Iterable[Node]) -> None:
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node in self.gone or node.users or node is self.output:
                continue
            inputs = node.all_input_nodes
            if self.known.get(self.key(node)) is node:
                del self.known[self.key(node)]
            self.gone.add(node)
            self.graph.erase_node(node)
            stack.extend(inputs)

    def forget(self, made: Sequence[Node]) -> None:
        """Take back nodes that were added last, the newest first."""
        self._bury(reversed(made))

    def copy(self) -> tuple[Terms, dict[Node, Node]]:
        """The same terms in a graph of their own, and where each of these nodes is there."""
        other = object.__new__(Terms)
        other.__dict__.update(self.__dict__)
        other.module = GraphModule(nn.Module(), Graph())
        other.graph = other.module.graph
        nodes: dict[Node, Node] = {}
        for node in self.graph.nodes:
            nodes[node] = other.graph.node_copy(node, nodes.__getitem__)
        other.output = nodes[self.output]
        other.known = {other.key(new): new for old, new in nodes.items() if old is not self.output}
        other.forward = {a: nodes.get(b, b) for a, b in self.forward.items()}
        other.forward.update(nodes)
        other.returned = {nodes[n] for n in self.returned if n in nodes}
        other.gone = set(self.gone)
        return other, nodes

    def key(self, node: Node) -> Key:
        """The term of a node."""
        symbol = facts(node).symbol
        children: Any = node.args[: symbol.children]
        attributes: Any = node.args[len(node.args) - symbol.attributes :]
        return symbol, tuple(children), tuple(attributes)

    def seconds(self) -> float:
        """The price of all terms together."""
        return sum(facts(n).seconds for n in self.graph.nodes if n is not self.output)

    def exit_seconds(self, node: Node, root: Node) -> float:
        """The price of copying a node that is returned in place of a root; 0 where it is not."""
        if root not in self.returned or facts(node).symbol.operator not in STRIDED:
            return 0.0
        return 0.0 if facts(node).rank is not None else self.pricer.copy_seconds(facts(node).meta)

    # Reading it back.

    def _now(self, node: Node) -> Node:
        while node in self.forward:
            node = self.forward[node]
        return node

    def snapshot(self) -> tuple[Snapshot, Choice]:
        """The graph as an e-graph with what was given beside it, and the e-node of each class.

        The choice is by the e-nodes of the snapshot.
        """
        classes: dict[Node, int] = {}
        enodes: dict[tuple[int, Symbol, tuple[int, ...], tuple[str, ...]], int] = {}
        metas: dict[int, str] = {}
        constant: set[int] = set()
        chosen: dict[int, int] = {}

        def enter(node: Node) -> int:
            cls = classes.setdefault(node, len(classes))
            metas[cls] = facts(node).meta
            if facts(node).constant:
                constant.add(cls)
            return cls

        for node in self.graph.nodes:
            if node is not self.output:
                symbol, children, attributes = self.key(node)
                operands = tuple(classes[c] for c in children)
                cls = enter(node)
                chosen[cls] = enodes.setdefault((cls, symbol, operands, attributes), len(enodes))
        handles: dict[int, int] = {}
        for row in self.encoding.rows:
            cls = handles[row.handle] = enter(self._now(self.of_handle[row.handle]))
            operands = tuple(handles[c] for c in row.children)
            enodes.setdefault((cls, row.symbol, operands, row.attributes), len(enodes))
        choice = np.full(len(classes), -1, dtype=np.int32)
        for cls, enode in chosen.items():
            choice[cls] = enode
        found = Snapshot(
            symbols=tuple(symbol for _, symbol, _, _ in enodes),
            classes=tuple(cls for cls, _, _, _ in enodes),
            children=tuple(children for _, _, children, _ in enodes),
            attributes=tuple(attributes for _, _, _, attributes in enodes),
            metas=metas,
            handles=handles,
            constant=frozenset(constant),
            pending=(),
            num_classes=len(classes),
        )
        return found, choice


def facts(node: Node) -> Facts:
    """What is known of a term."""
    return node.meta[FACTS]
