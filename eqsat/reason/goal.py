"""What is to be explained: the chosen graph as terms, and which given value each root must be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqsat.choose import Candidate
from eqsat.cost.additive import FUSED_SHARE
from eqsat.ground import Ground
from eqsat.meta import Scalar
from eqsat.snapshot import NUMBER, Row, Snapshot, Symbol

Term = tuple[Symbol, tuple[int, ...], tuple[str, ...]]
"""What an e-node is by: its symbol, the classes of its operands, its attributes."""


@dataclass(frozen=True)
class Goal:
    """A graph of terms, operands first; a row's handle is its place.

    `targets` are pairs of a handle of the encoding and the term that must be equal to it.
    """

    terms: tuple[Row, ...]
    targets: tuple[tuple[int, int], ...]

    def held(self, snapshot: Snapshot) -> bool:
        """Whether an e-graph holds the terms, and each target is equal to its given value."""
        known = index(snapshot)
        classes: list[int] = []
        for row in self.terms:
            key = row.symbol, tuple(classes[c] for c in row.children), row.attributes
            if key not in known:
                return False
            classes.append(known[key])
        return all(snapshot.handles[handle] == classes[term] for handle, term in self.targets)


def index(snapshot: Snapshot) -> dict[Term, int]:
    """The class of each e-node of an e-graph, by symbol, classes of the operands, attributes."""
    keys = zip(snapshot.symbols, snapshot.children, snapshot.attributes, strict=True)
    return dict(zip(keys, snapshot.classes, strict=True))


def goal_of(ground: Ground, chosen: Candidate) -> Goal:
    """The goal that the selection of a candidate is."""
    return _Reader(ground, chosen).goal()


class _Reader:
    """Reads a selection from its roots down."""

    def __init__(self, ground: Ground, chosen: Candidate) -> None:
        self.snapshot, self.encoding = ground.snapshot, ground.encoding
        choices = ground.priced(chosen.ahead, FUSED_SHARE)
        given, picked = choices.given, chosen.selection.choice
        places = np.where(picked >= 0, picked, given)
        self.enode = [choices.enodes[i] if i >= 0 else -1 for i in places.tolist()]
        for k, symbol in enumerate(self.snapshot.symbols):
            cls = self.snapshot.classes[k]
            if self.enode[cls] < 0 or (symbol == NUMBER and self._scalar(cls)):
                self.enode[cls] = k  # a number is spelled as itself, whatever else it equals
        self.places: dict[int, int] = {}
        self.terms: list[Row] = []

    def goal(self) -> Goal:
        encoding, handles = self.encoding, self.snapshot.handles
        read = (handle for reads in encoding.reads.values() for handle in reads)
        targets = dict.fromkeys([*encoding.roots, *read])
        pairs = tuple((handle, self._place(handles[handle])) for handle in targets)
        return Goal(tuple(self.terms), pairs)

    def _scalar(self, cls: int) -> bool:
        meta = self.snapshot.metas.get(cls)
        return meta is not None and isinstance(self.encoding.texts.meta(meta), Scalar)

    def _place(self, cls: int) -> int:
        """The place of a class's term, its operands before it."""
        stack = [cls]
        while stack:
            top = stack[-1]
            k = self.enode[top]
            children = self.snapshot.children[k]
            missing = [c for c in children if c not in self.places]
            if top in self.places or not missing:
                stack.pop()
            if top not in self.places:
                if missing:
                    stack.extend(missing)
                    continue
                operands = tuple(self.places[c] for c in children)
                attributes = self.snapshot.attributes[k]
                row = Row(len(self.terms), self.snapshot.symbols[k], operands, attributes)
                self.places[top] = row.handle
                self.terms.append(row)
        return self.places[cls]
