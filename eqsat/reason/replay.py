"""A small e-graph that knows why: what united two terms, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.encode import Encoding
from eqsat.expression import Expr, Var
from eqsat.reason.goal import Goal, Term
from eqsat.reason.instance import Instance
from eqsat.saturate import FULL
from eqsat.snapshot import Row, Snapshot, Symbol
from eqsat.translate import symbol_of

CONGRUENCE = -1  # equal operators of equal operands
FILL = -2  # a constant of the given program that holds one number
Equality = tuple[int, int]


@dataclass(frozen=True)
class Match:
    """An instance at terms: those of its left side and variables, and what had to be equal."""

    instance: int
    roots: tuple[int, ...]
    bound: Mapping[str, int]
    terms: tuple[int, ...]
    equalities: tuple[Equality, ...]


class Replay:
    """Terms with their classes; a term is known by the order in which it was made.

    Every union is an edge of a forest, labelled with the number of the application that made it, so
    that a path between two terms is a proof of their equality (Nieuwenhuis and Oliveras, 2005).
    """

    def __init__(self, encoding: Encoding, final: Mapping[Term, int], snapshot: Snapshot) -> None:
        self.final = final
        self.terms: list[Row] = []
        self.classes: list[int] = []  # of each term in the saturated e-graph
        self.by: list[int] = []  # the application that made each term, or -1
        self.parent: list[int] = []
        self.edge: list[tuple[int, int] | None] = []
        self.readers: list[list[int]] = []
        self.known: dict[Term, int] = {}
        self.like: dict[Term, list[int]] = {}  # terms by their e-node in the saturated e-graph
        for row in encoding.rows:
            self.add(row.symbol, row.children, row.attributes, -1, snapshot.handles[row.handle])
        self.given = len(self.terms)
        for handle, number in encoding.numbers.items():
            self.unite(handle, self.add(FULL, (), number, -1), FILL)

    def copy(self) -> Replay:
        """The same terms and classes, to go on with."""
        other = object.__new__(Replay)
        other.__dict__.update(self.__dict__)
        other.terms, other.classes = self.terms.copy(), self.classes.copy()
        other.by, other.parent, other.edge = self.by.copy(), self.parent.copy(), self.edge.copy()
        other.readers = [readers.copy() for readers in self.readers]
        other.known = self.known.copy()
        other.like = {key: terms.copy() for key, terms in self.like.items()}
        return other

    def find(self, term: int) -> int:
        """The term that stands for the class of another."""
        root = term
        while self.parent[root] != root:
            root = self.parent[root]
        while self.parent[term] != root:
            self.parent[term], term = root, self.parent[term]
        return root

    def _key(self, row: Row) -> Term:
        return row.symbol, tuple(map(self.find, row.children)), row.attributes

    def lookup(self, row: Row) -> int | None:
        """The first term that is equal to a row by congruence."""
        return self.known.get(self._key(row))

    def add(
        self,
        symbol: Symbol,
        children: Sequence[int],
        attributes: Sequence[str],
        by: int,
        cls: int | None = None,
    ) -> int:
        """The term of an operator on terms, made by an application where it is not there."""
        row = Row(len(self.terms), symbol, tuple(children), tuple(attributes))
        key = self._key(row)
        if key in self.known:
            return self.known[key]
        like = symbol, tuple(self.classes[c] for c in children), row.attributes
        self.terms.append(row)
        self.classes.append(self.final.get(like, -1) if cls is None else cls)
        self.by.append(by)
        self.parent.append(row.handle)
        self.edge.append(None)
        self.readers.append([])
        self.known[key] = row.handle
        self.like.setdefault(like, []).append(row.handle)
        for child in dict.fromkeys(map(self.find, children)):
            self.readers[child].append(row.handle)
        return row.handle

    def unite(self, a: int, b: int, why: int) -> None:
        """Make two terms equal, and what is equal by congruence then."""
        todo = [(a, b, why)]
        while todo:
            a, b, why = todo.pop()
            left, right = self.find(a), self.find(b)
            if left == right:
                continue
            if len(self.readers[left]) > len(self.readers[right]):
                a, b, left, right = b, a, right, left
            self._link(a, b, why)
            readers = self.readers[left]
            self.parent[left] = right
            for reader in readers:
                key = self._key(self.terms[reader])
                twin = self.known.setdefault(key, reader)
                if self.find(twin) != self.find(reader):
                    todo.append((reader, twin, CONGRUENCE))
            self.readers[right].extend(readers)
            self.readers[left] = []

    def _link(self, a: int, b: int, why: int) -> None:
        """Hang the tree of `a` below `b`, with `a` as its root."""
        edge: tuple[int, int] | None = (b, why)
        node = a
        while True:
            after, self.edge[node] = self.edge[node], edge
            if after is None:
                return
            edge, node = (node, after[1]), after[0]

    def path(self, a: int, b: int) -> Iterator[tuple[int, int, int]]:
        """The edges between two equal terms, each with its reason."""
        above = {node: place for place, node in enumerate(self._up(a))}
        meeting = next(node for node in self._up(b) if node in above)
        for start in (a, b):
            for node in self._up(start):
                if node == meeting:
                    break
                edge = self.edge[node]
                assert edge is not None
                yield node, *edge

    def _up(self, node: int) -> Iterator[int]:
        yield node
        while (edge := self.edge[node]) is not None:
            node = edge[0]
            yield node

    # Matching one instance.

    def matches(self, number: int, instance: Instance) -> Iterator[Match]:
        """The places at which the left sides of an instance stand."""
        partial: list[Match] = [Match(number, (), {}, (), ())]
        for side in instance.rule.left:
            found: list[Match] = []
            for match in partial:
                for root in self.like.get(instance.keys[id(side)], ()):
                    found += self._at(instance, side, root, match)
            partial = found
        yield from partial

    def _at(self, instance: Instance, side: Expr, root: int, match: Match) -> Iterable[Match]:
        """The ways in which a term is the left side, its operands up to equality."""
        partial = [(match.bound, match.terms, match.equalities, (root,))]
        # `open` are the terms at which the expressions stand that are still to be matched
        for expr in _from_the_root(side):
            after: list[
                tuple[Mapping[str, int], tuple[int, ...], tuple[Equality, ...], tuple[int, ...]]
            ] = []
            for bound, terms, equal, open_ in partial:
                here, rest = open_[0], open_[1:]
                if isinstance(expr, Var):
                    seen = bound.get(expr.name)
                    if seen is None:
                        after.append(({**bound, expr.name: here}, terms, equal, rest))
                    elif self.find(seen) == self.find(here):
                        after.append((bound, terms, (*equal, (seen, here)), rest))
                    continue
                for term in self.like.get(instance.keys[id(expr)], ()):
                    if self.find(term) == self.find(here) and (expr is not side or term == here):
                        row = self.terms[term]
                        after.append(
                            (bound, (*terms, term), (*equal, (here, term)), (*rest, *row.children))
                        )
            partial = after
        for bound, terms, equal, _ in partial:
            yield Match(match.instance, (*match.roots, root), bound, terms, equal)

    def apply(self, match: Match, instance: Instance, number: int) -> tuple[Equality, ...] | None:
        """Add the right sides and unite what the search did; None where nothing was new.

        Else what had to be equal for a term of the right side to be one that was there.
        """
        before = len(self.terms)
        united = False
        equal: list[Equality] = []
        made: dict[int, int] = {}
        for place, (root, side) in enumerate(zip(match.roots, instance.rule.right, strict=True)):
            for expr in side.walk():
                if isinstance(expr, Var):
                    made[id(expr)] = match.bound[expr.name]
                    continue
                children = [made[id(child)] for child in expr.children]
                _, _, attributes = instance.keys[id(expr)]
                term = made[id(expr)] = self.add(symbol_of(expr), children, attributes, number)
                pairs = zip(children, self.terms[term].children, strict=True)
                equal += [(a, b) for a, b in pairs if a != b]
            value = made[id(side)]
            if place in instance.pairs and self.find(root) != self.find(value):
                self.unite(root, value, number)
                united = True
        return tuple(equal) if united or len(self.terms) > before else None

    def reached(self, goal: Goal) -> list[int] | None:
        """The terms that the goal's are, if all are there and each target is what it must be."""
        found: list[int] = []
        for row in goal.terms:
            children = tuple(found[c] for c in row.children)
            term = self.lookup(Row(-1, row.symbol, children, row.attributes))
            if term is None:
                return None
            found.append(term)
        if all(self.find(handle) == self.find(found[term]) for handle, term in goal.targets):
            return found
        return None


def _from_the_root(side: Expr) -> Iterator[Expr]:
    """The expressions of a side, level by level: the order in which operands are opened."""
    queue = [side]
    for expr in queue:
        yield expr
        queue.extend(expr.children)
