"""Greedy rewriting: the same rules, as Inductor's own pattern matcher applies them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from torch._inductor.pattern_matcher import (
    MULTIPLE,
    CallFunction,
    FailedMatch,
    GraphPatternEntry,
    KeywordArg,
    Match,
    MultiOutputPattern,
    PatternExpr,
    PatternMatcherPass,
)
from torch.fx import Node

from eqsat.expression import Attr, Expr, Var
from eqsat.limits import Limits
from eqsat.raw import EgglogRule
from eqsat.rewrite import Fact, Rewrite
from eqsat.saturate import IterationSize, RuleCount, Saturation, StopReason
from eqsat.terms import Refused, Terms, facts, target_of
from eqsat.translate import computed_ahead, evaluate, symbol_of

LEAST = 1e-12
"""Of the price of all given terms: a rewrite that saves less is none."""


class Another(CallFunction):
    """A pattern that matches no node that another part of the match is."""

    def _match(self, node: Node, ctx: Any) -> Any:
        if any(node is found for found in ctx.pattern_to_node.values()):
            return FailedMatch("this node is another output")
        return super()._match(node, ctx)


@dataclass
class Counts:
    """What one rule did."""

    matches: int = 0
    applied: int = 0
    refused: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Application:
    """A rule that matched: its outputs, and the nodes and texts that its variables stand for."""

    rule: Rewrite
    roots: tuple[Node, ...]
    bound: dict[str, Any]


@dataclass
class Greedy:
    """A greedy search over the terms of a program.

    In one `sweep` it goes over the nodes from the last to the first and takes the first rule that
    matches, as Inductor does; what is inside a pattern has no other reader, unless `shared`. A
    rewrite is made only where the price of all terms drops: without orientation, rules would undo
    each other for ever.
    """

    terms: Terms
    rules: Sequence[Rewrite]
    limits: Limits
    shared: bool = False
    counts: dict[str, Counts] = field(init=False)
    sizes: list[IterationSize] = field(default_factory=list[IterationSize])

    def __post_init__(self) -> None:
        self.start = time.perf_counter()
        self.least = LEAST * self.terms.seconds()
        self.matcher = PatternMatcherPass(pass_name="eqsat")
        self.counts = {rule.name: Counts() for rule in self.rules}
        self.rule_of: dict[PatternExpr, Rewrite] = {}
        for rule in self.rules:
            if isinstance(rule, EgglogRule):
                self.counts[rule.name].reason = "written in egglog: no pattern"
                continue
            self._register(rule)

    def _register(self, rule: Rewrite) -> None:
        pattern = _Patterns(rule, self._text, self.shared).pattern()

        def matches(match: Match) -> bool:
            return self._admits(application(rule, match))

        def handle(match: Match, **_: Any) -> None:
            self.apply(application(rule, match))

        self.rule_of[pattern] = rule
        entry = GraphPatternEntry(pattern=pattern, extra_check=matches, handler=handle)
        entry.register(self.matcher)  # pyright: ignore[reportArgumentType] - as torch does it

    def _text(self, value: Any) -> str:
        return self.terms.encoding.texts.text(value)

    # Running.

    def sweep(self) -> StopReason:
        """One pass over all nodes."""
        self._pass()
        return self._reason() or StopReason.SATURATED

    def fixpoint(self) -> StopReason:
        """Passes until one changes nothing."""
        for _ in range(self.limits.iterations):
            before = sum(c.applied for c in self.counts.values())
            self._pass()
            if reason := self._reason():
                return reason
            if sum(c.applied for c in self.counts.values()) == before:
                return StopReason.SATURATED
        return StopReason.ITERATIONS

    def _pass(self) -> None:
        self.matcher.apply(self.terms.module)
        self.sizes.append(IterationSize(len(self.terms.graph.nodes), self.spent()))

    def _reason(self) -> StopReason | None:
        return StopReason.SECONDS if self.spent() > self.limits.seconds else None

    def spent(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self.start

    def record(self, stop: StopReason) -> Saturation:
        """The record of the search."""
        counts = tuple(
            RuleCount(name, c.matches, c.applied, c.refused, c.reason, 0.0)
            for name, c in self.counts.items()
        )
        size = len(self.terms.graph.nodes) - 1
        return Saturation(stop, tuple(self.sizes), counts, size, size)

    # One rule.

    def _admits(self, found: Application) -> bool:
        """Whether facts and conditions hold of a match."""
        if self._reason() is not None:
            return False
        rule, oracle = found.rule, self.terms.encoding.oracle
        for left, right, root in zip(rule.left, rule.right, found.roots, strict=True):
            if computed_ahead(left, right) and not facts(root).varying:
                return False
        if not all(_holds(fact, found) for fact in rule.facts):
            return False
        environment = self._environment(found)
        try:
            for name, attr in _computed(rule):
                if self._text(evaluate(attr, environment, oracle)) != found.bound[name]:
                    return False
            if rule.when is None:
                return True
            with oracle.decided(list(environment.values())):
                return bool(rule.when(*(environment[n] for n in rule.predicate_variables())))
        except Exception:  # noqa: BLE001 - what a user's rule raises means: no match
            return False

    def _environment(self, found: Application) -> dict[str, Any]:
        value = self.terms.encoding.texts.value
        return {
            name: value(facts(bound).meta if isinstance(bound, Node) else bound)
            for name, bound in found.bound.items()
        }

    def apply(self, found: Application) -> bool:
        """Rewrite a match if that is cheaper; whether it was."""
        count = self.counts[found.rule.name]
        count.matches += 1
        made: list[Node] = []
        try:
            values = self.build(found, made)
            saved = self.saving(found, values, made)
        except Refused as error:
            self.terms.forget(made)
            count.refused += 1
            count.reason = count.reason or str(error)
            return False
        if saved <= self.least:
            self.terms.forget(made)
            count.refused += 1
            count.reason = count.reason or "not cheaper"
            return False
        self.terms.replace(found.roots, values)
        count.applied += 1
        return True

    def build(self, found: Application, made: list[Node]) -> list[Node]:
        """The right sides, in the graph but read by nobody; what is new is added to `made`."""
        first = min(found.roots)
        environment = self._environment(found)
        values = [self._built(side, found, environment, first, made) for side in found.rule.right]
        for root, value in zip(found.roots, values, strict=True):
            if facts(root).meta != facts(value).meta:
                raise Refused(f"{facts(root).meta} is not {facts(value).meta}")
        return values

    def _built(
        self,
        side: Expr,
        found: Application,
        environment: dict[str, Any],
        before: Node,
        made: list[Node],
    ) -> Node:
        if isinstance(side, Var):
            value: Node = found.bound[side.name]
            self.terms.hoist([value], before)
            return value
        children = tuple(self._built(c, found, environment, before, made) for c in side.children)
        oracle = self.terms.encoding.oracle
        try:
            attributes = tuple(
                found.bound[a.name] if isinstance(a, Var)
                else self._text(evaluate(a, environment, oracle))
                for a in side.attributes
            )  # fmt: skip
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        node, new = self.terms.add(symbol_of(side), children, attributes, before)
        if new:
            made.append(node)
        return node

    def saving(self, found: Application, values: Sequence[Node], made: Sequence[Node]) -> float:
        """The seconds by which all terms together would become cheaper."""
        dead = self.terms.dying(found.roots, [*made, *values])
        saved = sum(facts(n).seconds for n in dead) - sum(facts(n).seconds for n in made)
        for root, value in zip(found.roots, values, strict=True):
            saved += self.terms.exit_seconds(root, root) - self.terms.exit_seconds(value, root)
        return saved

    def matches(self) -> Iterator[Application]:
        """Every match of every rule, from the last node to the first."""
        for node in reversed(list(self.terms.graph.nodes)):
            for entry in self.matcher.patterns.get((node.op, node.target), ()):
                match: Any = entry.pattern.match(node)
                if match and entry.extra_check(match):
                    yield application(self.rule_of[entry.pattern], match)


def application(rule: Rewrite, match: Match) -> Application:
    """What a match of a rule's pattern binds."""
    roots = tuple(n for n in match.output_nodes() if n is not None)
    return Application(rule, roots, dict(match.kwargs))


def _computed(rule: Rewrite) -> list[tuple[str, Attr]]:
    """The attributes of the left sides that are computed, by the names they are bound to."""
    attrs = [a for side in rule.left for e in side.walk() for a in e.attributes]
    return [(f"computed {id(a)}", a) for a in attrs if isinstance(a, Attr)]


def _holds(fact: Fact, found: Application) -> bool:
    """Whether a fact is known of what its variables stand for."""
    nodes: Sequence[Any] = [found.bound[v] for v in fact.variables] or found.roots
    if fact.name == "neighbours":
        first, second = found.roots
        return first is not second and facts(first).varying and facts(second).varying
    known = [facts(n) for n in nodes]
    if fact.name == "ordered":
        ranks = [k.rank for k in known]
        return all(a is not None and b is not None and a < b for a, b in pairwise(ranks))
    if fact.name == "distinct":
        return len(set(nodes)) == len(nodes)
    if fact.name == "finite":
        return all(k.interval is not None for k in known)
    return all(getattr(k, fact.name) for k in known)


class _Patterns:
    """The pattern of a rule's left sides: an expression that occurs twice is one pattern."""

    def __init__(self, rule: Rewrite, text: Callable[[Any], str], shared: bool) -> None:
        self.rule = rule
        self.text = text
        self.shared = shared
        self.patterns: dict[Any, PatternExpr] = {}
        self.variables = {name: KeywordArg(name) for name in rule.variables}
        self.readers = Counter[Any]()
        counted = () if shared else rule.left  # where any number may read it, none are counted
        for key in {key for side in counted for key in self._keys(side)}:
            self.readers.update({child for child in key[1] if child is not None})

    def pattern(self) -> PatternExpr:
        first, *others = self.rule.left
        outputs = [self._call(first, CallFunction)]
        outputs += [self._call(side, Another) for side in others]
        return MultiOutputPattern(outputs) if others else outputs[0]

    def _key(self, expr: Expr) -> Any:
        """What an expression is, for comparing; None for a variable."""
        if isinstance(expr, Var):
            return None
        children = tuple(self._key(c) for c in expr.children)
        names = tuple(c.name if isinstance(c, Var) else "" for c in expr.children)
        attributes = tuple(self._attribute_key(a) for a in expr.attributes)
        return symbol_of(expr), children, names, attributes

    def _attribute_key(self, attr: Any) -> Any:
        if isinstance(attr, Var):
            return ("variable", attr.name)
        return ("computed", id(attr)) if isinstance(attr, Attr) else self.text(attr)

    def _keys(self, side: Expr) -> Iterator[Any]:
        for expr in side.walk():
            if not isinstance(expr, Var):
                yield self._key(expr)

    def _operand(self, expr: Expr) -> PatternExpr:
        return self.variables[expr.name] if isinstance(expr, Var) else self._call(expr)

    def _call(self, expr: Expr, kind: type[CallFunction] = CallFunction) -> PatternExpr:
        key = self._key(expr)
        if key not in self.patterns:
            users = MULTIPLE if self.shared else max(1, self.readers[key])
            operands = [self._operand(child) for child in expr.children]
            attributes = [self._attribute(attr) for attr in expr.attributes]
            target = target_of(symbol_of(expr))
            self.patterns[key] = kind(target, *operands, *attributes, _users=users)
        return self.patterns[key]

    def _attribute(self, attr: Any) -> Any:
        if isinstance(attr, Var):
            return self.variables[attr.name]
        return KeywordArg(f"computed {id(attr)}") if isinstance(attr, Attr) else self.text(attr)
