"""Why a rule did not match at a node, or matched nowhere: how far it got and what refused."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, TypeVar  # programs take arbitrary inputs

import torch
from torch.export import ExportedProgram
from torch.fx import Node

import rewrites
from eqsat.capture import capture, constants_of
from eqsat.encode import LEAF, Encoding, encode
from eqsat.expression import Expr, Var
from eqsat.limits import Limits
from eqsat.meta import INVALID
from eqsat.numerics import NAMES
from eqsat.raw import EgglogRule
from eqsat.reason.condition import refusal
from eqsat.reason.goal import index
from eqsat.reason.instance import environment, keyed
from eqsat.reason.partial import Stop, Walker, Way
from eqsat.reason.step import source
from eqsat.rewrite import Fact, Rewrite
from eqsat.saturate import saturate
from eqsat.snapshot import NUMBER, Snapshot
from eqsat.translate import computed_ahead, evaluate, symbol_of

FACTS = {
    "constant": "depends on the program's inputs, and must not",
    "finite": "may hold NaN or infinity, as far as is known",
    "given": "does not stand in the given program",
    "varying": "does not depend on the program's inputs: it is computed ahead in any form",
}
LIMITS = Limits()
Named = TypeVar("Named")
SHOWN = 3  # near misses, where no node was named


@dataclass(frozen=True)
class Attempt:
    """A rule tried at a node: how many of its operators stood there, what refused, what was bound.

    `fired` where nothing refused.
    """

    rule: str
    node: str
    source: str
    matched: int
    operators: int
    refused: str
    values: tuple[str, ...]

    @property
    def fired(self) -> bool:
        """Whether the rule matched and its two sides were united."""
        return not self.refused


class Inquiry:
    """Asks of a saturated e-graph with facts why a rule did what it did at the given nodes."""

    def __init__(self, snapshot: Snapshot, encoding: Encoding, rules: Sequence[Rewrite]) -> None:
        self.snapshot = snapshot
        self.encoding = encoding
        self.rules = {rule.name: rule for rule in rules}
        self.walker = Walker(snapshot, encoding)
        self.known = index(snapshot)
        self.matches = set(snapshot.matches)
        self.nodes: dict[int, Node] = {}  # the first given node of each class
        self.rank: dict[int, int] = {}
        for handle, cls in snapshot.handles.items():
            self.rank.setdefault(cls, handle)
            if handle in encoding.origins:
                self.nodes.setdefault(cls, encoding.origins[handle])

    def at(self, rule: Rewrite, node: Node) -> Attempt:
        """The rule tried at a given node: as any of its left sides, whichever goes furthest."""
        return self._tried(rule, self.snapshot.handles[self.encoding.handles[node]], node)

    def nearest(self, rule: Rewrite) -> list[Attempt]:
        """Where the rule goes furthest: where it fired, else the nearest misses."""
        tried = [self._tried(rule, cls, node) for cls, node in self.nodes.items()]
        fired = [attempt for attempt in tried if attempt.fired]
        near = sorted(tried, key=lambda attempt: attempt.matched, reverse=True)
        return (
            fired
            or [attempt for attempt in near if attempt.matched][:SHOWN]
            or [Attempt(rule.name, "any node", "", 0, _count(rule), self._absent(rule), ())]
        )

    def _absent(self, rule: Rewrite) -> str:
        """What stands nowhere in the program, though a rule asks for it."""
        parts = (e for side in rule.left for e in side.walk() if not isinstance(e, Var))
        absent = (e for e in parts if symbol_of(e) not in self.walker.of)
        symbol = symbol_of(next(absent, rule.left[0]))
        operands = f" of {symbol.children} operands" if symbol.children > 1 else ""
        return f"nothing in the program is {symbol.operator}{operands}"

    def _tried(self, rule: Rewrite, cls: int, node: Node) -> Attempt:
        best: Attempt | None = None
        for place in range(len(rule.left)):
            attempt = self._anchored(rule, place, cls, node)
            if best is None or (attempt.fired, attempt.matched) > (best.fired, best.matched):
                best = attempt
        assert best is not None
        return best

    def _anchored(self, rule: Rewrite, place: int, cls: int, node: Node) -> Attempt:
        """The rule tried with one of its left sides at a class, the others anywhere."""
        count = _count(rule)

        def attempt(matched: int, refused: str, bound: Mapping[str, int | str]) -> Attempt:
            values = tuple(f"{name} = {self._shown(v)}" for name, v in bound.items())
            return Attempt(rule.name, node.name, source(node), matched, count, refused, values)

        ways, stop = self.walker.walk([(rule.left[place], cls)])
        for other, side in enumerate(rule.left):
            if other == place or not ways:
                continue
            places = dict.fromkeys(self.walker.of.get(symbol_of(side), ()))
            longer: list[Way] = []
            for way in ways:
                for root in places:
                    found, end = self.walker.walk([(side, root)], way)
                    longer += found
                    if end is not None and (
                        stop is None or len(end[0].enodes) > len(stop[0].enodes)
                    ):
                        stop = end
            if not longer and stop is None:
                return attempt(len(ways[0].enodes), f"nothing is {side}", ways[0].bound)
            ways = longer
        if not ways:
            assert stop is not None
            return attempt(len(stop[0].enodes), self._missing(stop[1]), stop[0].bound)
        refusals = [(self._refused(rule, way), way) for way in ways]
        refused, way = next((r for r in refusals if not r[0]), refusals[0])
        return attempt(count, refused, way.bound)

    def _missing(self, stop: Stop) -> str:
        """What should have stood at a class, and what stands there."""
        here = self._shown(stop.cls)
        if stop.why:
            return f"{_operator(stop.expr)} is wanted at {here}: {stop.why}"
        found = dict.fromkeys(self._called(k) for k in self.walker.members.get(stop.cls, ()))
        return f"{_operator(stop.expr)} is wanted at {here}, which is {' or '.join(found)}"

    def _called(self, k: int) -> str:
        """What an e-node is, in a word."""
        symbol, attributes = self.snapshot.symbols[k], self.snapshot.attributes[k]
        if symbol == LEAF:
            return (
                "an input"
                if self.snapshot.classes[k] not in self.snapshot.constant
                else ("a parameter")
            )
        if symbol == NUMBER:
            return f"the number {attributes[0]}"
        function = attributes[0] if symbol.operator in ("unary", "binary", "ternary") else ""
        return function or symbol.operator

    def _shown(self, value: int | str) -> str:
        """A value by the node that computes it, with its shape and dtype; an attribute as it is."""
        if isinstance(value, str):
            return value
        meta = self.snapshot.metas.get(value, INVALID).split("@")[0]
        node = self.nodes.get(value)
        if node is None:
            numbers = (k for k in self.walker.members[value] if self.snapshot.symbols[k] == NUMBER)
            number = next(numbers, None)
            return meta if number is not None else f"a new value {meta}"
        return f"{node.name} {meta}"

    def _refused(self, rule: Rewrite, way: Way) -> str:
        """What refuses a whole match; empty where nothing does."""
        values = environment(rule, way.bound, self.snapshot, self.encoding)
        oracle, text = self.encoding.oracle, self.encoding.texts.text
        for attr, found in way.computed:
            try:
                wanted = text(evaluate(attr, values, oracle))
            except Exception as error:  # noqa: BLE001 - what a rule cannot compute does not match
                return f"{attr} cannot be computed: {error}"
            if wanted != found:
                return f"{found} stands where {attr} is {wanted}"
        if rule.when is not None:
            with oracle.decided([*values.values()]):
                told = refusal(rule.when, [values[n] for n in rule.predicate_variables()])
            if told:
                return told
        roots = self._roots(rule, way)
        for left, right, root in zip(rule.left, rule.right, roots, strict=True):
            if computed_ahead(left, right) and root not in self.snapshot.facts["varying"]:
                return f"{self._shown(root)} {FACTS['varying']}"
        for fact in rule.facts:
            if told := self._fact(fact, way.bound, roots):
                return told
        return self._not_united(rule, way)

    def _roots(self, rule: Rewrite, way: Way) -> list[int]:
        """The class at which each left side stands."""
        found = keyed(rule.left, rule, way.bound, self.snapshot, self.encoding, self.known)
        assert found is not None
        return [found[1][id(side)] for side in rule.left]

    def _fact(self, fact: Fact, bound: Mapping[str, int | str], roots: Sequence[int]) -> str:
        """Which fact is not known; empty where it is."""
        classes = [c for v in fact.variables if isinstance(c := bound[v], int)] or list(roots)
        if fact.name == "ordered":
            for a, b in pairwise(classes):
                if a not in self.rank or b not in self.rank or self.rank[a] >= self.rank[b]:
                    return f"{self._shown(a)} does not stand before {self._shown(b)}"
            return ""
        if fact.name == "distinct":
            same = (a for a, b in combinations(classes, 2) if a == b)
            return next((f"{self._shown(a)} stands in two places" for a in same), "")
        if fact.name == "neighbours":
            return ""  # of which the recorded matches tell
        known = self.snapshot.facts[fact.name]
        unknown = (c for c in classes if c not in known)
        return next((f"{self._shown(c)} {FACTS[fact.name]}" for c in unknown), "")

    def _not_united(self, rule: Rewrite, way: Way) -> str:
        """Why the two sides of a match are not one class; empty where they are."""
        found = keyed(
            (*rule.left, *rule.right), rule, way.bound, self.snapshot, self.encoding, self.known
        )
        values = tuple(way.bound[name] for name in rule.variables)
        if (list(self.rules).index(rule.name), values) not in self.matches:
            if rule.joins_neighbours:
                return "they are no neighbours among the products of one input"
            return "the search stopped before it came to it"
        if found is None:
            return "its right side cannot be computed here"
        classes = found[1]
        for left, right in zip(rule.left, rule.right, strict=True):
            a, b = classes[id(left)], classes[id(right)]
            if a != b:
                metas = [self.snapshot.metas.get(c, INVALID) for c in (a, b)]
                return f"the right side would be {metas[1]}, not {metas[0]}"
        return ""


def why(
    program: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    rule: str,
    at: str | None = None,
    rules: Sequence[Rewrite] | None = None,
    numerics: str = "default",
    limits: Limits = LIMITS,
    dynamic_shapes: Any = None,
) -> tuple[Attempt, ...]:
    """How far a rule got at a node (of the captured graph), and what refused it.

    A name that is no rule's asks every rule that it begins: "attention" is a family.
    All rules search first: what stands at a node is also what they found to be equal to it. Without
    a node, where the rule fired or, if it did nowhere, where it got furthest. Raises ValueError,
    with the nearest names, for a rule or node that does not exist.
    """
    captured = capture(program, args, None if kwargs is None else dict(kwargs), dynamic_shapes)
    constants, graph = constants_of(captured.program), captured.program.graph
    encoding = encode(graph, constants)
    every = rewrites.DEFAULT if rules is None else tuple(rules)
    family = [r for r in every if r.name == rule] or [
        r for r in every if r.name.startswith(f"{rule}-")
    ]
    asked = family or [_named("rule", rule, {r.name: r for r in every})]
    node = None if at is None else _named("node", at, {n.name: n for n in encoding.handles})
    within = {r.name: i for r in every if (i := r.within(NAMES[numerics])) is not None}
    tried = [r for r in asked if r.name in within and not isinstance(r, EgglogRule)]
    if not tried:
        return tuple(_never(r, at, numerics) for r in asked)
    snapshot, _ = saturate(encoding, tuple(within.values()), limits, record=True)
    inquiry = Inquiry(snapshot, encoding, tuple(within.values()))
    if node is not None:
        found = [inquiry.at(within[r.name], node) for r in tried]
    else:
        found = [a for r in tried for a in inquiry.nearest(within[r.name])]
    fired = [attempt for attempt in found if attempt.fired]
    return tuple(fired or sorted(found, key=lambda a: a.matched / a.operators, reverse=True))


def _never(rule: Rewrite, at: str | None, numerics: str) -> Attempt:
    """The attempt of a rule that takes no part in the search, or has no pattern."""
    told = f"it is {rule.numerics.name}, and numerics {numerics!r} leave such rules out"
    if isinstance(rule, EgglogRule):
        told = "it is written in egglog: there is no pattern to walk"
    return Attempt(rule.name, at or "any node", "", 0, _count(rule), told, ())


def _named(kind: str, name: str, known: Mapping[str, Named]) -> Named:
    """What has that name."""
    if name not in known:
        near = difflib.get_close_matches(name, known, 5, 0.0)
        raise ValueError(f"no {kind} is named {name!r}; near it: {', '.join(near)}")
    return known[name]


def _count(rule: Rewrite) -> int:
    """The operators on the left of a rule."""
    return sum(1 for side in rule.left for expr in side.walk() if not isinstance(expr, Var))


def _operator(expr: Expr) -> str:
    """An expression as it is written, cut where it is long."""
    text = str(expr)
    return f"`{text}`" if len(text) <= 60 else f"`{text[:57]}...`"
