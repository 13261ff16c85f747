"""How far the left side of a rule goes from an e-class, on whichever way goes furthest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.encode import Encoding
from eqsat.expression import Attr, Expr, Var
from eqsat.snapshot import Snapshot, Symbol
from eqsat.translate import symbol_of

MOST = 5_000
"""Ways that are followed at once; a pattern of a handful of operators has a handful of them."""


@dataclass(frozen=True)
class Way:
    """A left side as far as it matched: the e-nodes of its expressions, what variables stand for.

    `open` are the expressions still to match, with their classes, breadth first. `computed` are
    attributes that can be compared when all is bound.
    """

    enodes: tuple[int, ...]
    bound: Mapping[str, int | str]
    open: tuple[tuple[Expr, int], ...]
    computed: tuple[tuple[Attr, str], ...] = ()


@dataclass(frozen=True)
class Stop:
    """Where a way ends: the expression, the class at which it should stand, and why it does not."""

    expr: Expr
    cls: int
    why: str


class Walker:
    """Left sides walked over the e-nodes of a snapshot."""

    def __init__(self, snapshot: Snapshot, encoding: Encoding) -> None:
        self.snapshot = snapshot
        self.encoding = encoding
        self.members: dict[int, list[int]] = {}
        self.of: dict[Symbol, list[int]] = {}  # the classes with an e-node of a constructor
        for k, symbol in enumerate(snapshot.symbols):
            self.members.setdefault(snapshot.classes[k], []).append(k)
            self.of.setdefault(symbol, []).append(snapshot.classes[k])

    def walk(
        self, sides: Sequence[tuple[Expr, int]], start: Way | None = None
    ) -> tuple[list[Way], tuple[Way, Stop] | None]:
        """The ways to the end from sides at classes; without any, the deepest and its stop."""
        begin = Way((), {}, tuple(sides)) if start is None else start
        ways = [Way(begin.enodes, begin.bound, (*begin.open, *sides)) if start else begin]
        whole: list[Way] = []
        deepest: tuple[Way, Stop] | None = None
        while ways:
            way = ways.pop()
            if not way.open:
                whole.append(way)
                continue
            further, stop = self._further(way)
            ways += reversed(further)
            del ways[:-MOST]
            if stop is not None and (deepest is None or _depth(way) > _depth(deepest[0])):
                deepest = way, stop
        return whole, None if whole else deepest

    def _further(self, way: Way) -> tuple[list[Way], Stop | None]:
        """The ways on over the first open expression, or why there is none."""
        (expr, cls), rest = way.open[0], way.open[1:]
        if isinstance(expr, Var):
            seen = way.bound.get(expr.name, cls)
            if seen != cls:
                return [], Stop(expr, cls, f"{expr.name} would stand for two values")
            return [Way(way.enodes, {**way.bound, expr.name: cls}, rest, way.computed)], None
        found: list[Way] = []
        why = ""
        for k in self.members.get(cls, ()):
            if self.snapshot.symbols[k] != symbol_of(expr):
                continue
            step = self._attributes(way, expr, k)
            if isinstance(step, str):
                why = why or step
                continue
            bound, computed = step
            operands = zip(expr.children, self.snapshot.children[k], strict=True)
            open_ = (*rest, *operands)
            found.append(Way((*way.enodes, k), bound, open_, (*way.computed, *computed)))
        return found, None if found else Stop(expr, cls, why)

    def _attributes(
        self, way: Way, expr: Expr, k: int
    ) -> tuple[dict[str, int | str], list[tuple[Attr, str]]] | str:
        """What the attributes of an e-node bind, and what is compared later; or why it does not."""
        bound, computed = dict(way.bound), list[tuple[Attr, str]]()
        for attr, text in zip(expr.attributes, self.snapshot.attributes[k], strict=True):
            if isinstance(attr, Attr):
                computed.append((attr, text))
            elif isinstance(attr, Var):
                if bound.setdefault(attr.name, text) != text:
                    return f"{attr.name} is {bound[attr.name]}, and here {text}"
            elif (wanted := self.encoding.texts.text(attr)) != text:
                return f"{text}, not {wanted}"
        return bound, computed


def _depth(way: Way) -> tuple[int, int]:
    """How far a way is: operators that match, then variables."""
    return len(way.enodes), len(way.bound)
