"""What goes into the e-graph and comes out of it: constructors, rows, and the whole read back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat.operators import OPERATORS


@dataclass(frozen=True)
class Symbol:
    """One typed constructor: an operator with a fixed number of children and of attributes.

    `layout` says how the arguments of an operator outside the table interleave (see `encode`).
    """

    operator: str
    children: int
    attributes: int
    layout: str = ""

    @property
    def name(self) -> str:
        """The constructor's name in egglog text."""
        base, known = self.operator, OPERATORS.get(self.operator)
        if self.layout:
            base = f"{base}_{self.layout}"
        elif known is not None and known.variadic:
            base = f"{base}_{self.children}"
        return re.sub(r"\W", lambda m: f"_{ord(m[0]):x}" if m[0] != "." else "_", base)

    @property
    def operand_names(self) -> list[str]:
        """The variables of a query that stand for the children."""
        return [f"x{i}" for i in range(self.children)]

    @property
    def attribute_names(self) -> list[str]:
        """The variables of a query that stand for the attributes."""
        return [f"a{i}" for i in range(self.attributes)]

    @property
    def query(self) -> str:
        """The egglog query that `e` holds an e-node of this constructor."""
        return f"(= e ({' '.join([self.name, *self.operand_names, *self.attribute_names])}))"


NUMBER = Symbol("number", 0, 1)


@dataclass(frozen=True)
class Row:
    """One e-node to insert: its handle, constructor, children's handles and attribute texts."""

    handle: int
    symbol: Symbol
    children: tuple[int, ...]
    attributes: tuple[str, ...]


@dataclass(frozen=True)
class Snapshot:
    """The e-graph read back: e-nodes as arrays, sorted so that equal e-graphs give equal snapshots.

    `symbols[k]`, `classes[k]`, `children[k]` and `attributes[k]` are e-node k; `metas[c]` is the
    text of class c's meta, `handles[h]` the class of an inserted row, `constant` the constant
    classes. `pending` are the matches: rule, class of its left side, class of its right side.
    `matches`, where they were recorded, are a rule and what its variables stand for: the class of a
    tensor, the text of an attribute; `facts` then are the classes of which rules may ask them.
    """

    symbols: tuple[Symbol, ...]
    classes: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    attributes: tuple[tuple[str, ...], ...]
    metas: Mapping[int, str]
    handles: Mapping[int, int]
    constant: frozenset[int]
    pending: tuple[tuple[int, int, int], ...]
    num_classes: int
    matches: tuple[tuple[int, tuple[int | str, ...]], ...] = ()
    facts: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])

    def enode(self, row: Row) -> tuple[Symbol, tuple[int, ...], tuple[str, ...]]:
        """The e-node that an inserted row became: symbol, children's classes, attributes."""
        return row.symbol, tuple(self.handles[c] for c in row.children), row.attributes
