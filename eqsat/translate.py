"""A Rewrite as egglog text: patterns become queries, what is computed becomes callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from eqsat.engine import Engine, quote
from eqsat.expression import Attr, Expr, Var
from eqsat.infer import Oracle
from eqsat.kind import Kind
from eqsat.meta import INVALID, Meta
from eqsat.operators import OPERATORS
from eqsat.raw import EgglogRule
from eqsat.rewrite import Fact, Rewrite
from eqsat.siblings import PARAMETERS
from eqsat.snapshot import NUMBER, Symbol

Environment = dict[str, Any]


def symbol_of(expr: Expr) -> Symbol:
    """The constructor of an expression."""
    if expr.operator == "number":
        return NUMBER
    return Symbol(expr.operator, len(expr.children), len(expr.attributes))


def symbols_of(rewrite: Rewrite) -> Iterator[Symbol]:
    """The constructors a rule mentions."""
    if isinstance(rewrite, EgglogRule):
        yield from rewrite.symbols()
    for side in (*rewrite.left, *rewrite.right):
        for expr in side.walk():
            if not isinstance(expr, Var):
                yield symbol_of(expr)


def translate(
    rewrite: Rewrite, index: int, engine: Engine, oracle: Oracle, *, record: bool = False
) -> str:
    """The egglog rule of `rewrite`, its callbacks registered with the engine.

    A match adds the right side and records the pair as pending under `index`; the engine unites the
    two once their metas are known and equal. With `record`, what the variables stand for is kept.
    """
    if isinstance(rewrite, EgglogRule):
        for value in rewrite.values():
            oracle.texts.text(value)  # now known by its text
        return rewrite.text(index)
    return _Translation(rewrite, index, engine, oracle, record).text()


@dataclass
class _Translation:
    rewrite: Rewrite
    index: int
    engine: Engine
    oracle: Oracle
    record: bool = False

    def __post_init__(self) -> None:
        self.checks: list[tuple[str, Attr]] = []  # fresh variable, the attribute it must equal
        self.calls = 0

    def text(self) -> str:
        rewrite = self.rewrite
        body = [text for i, side in enumerate(rewrite.left) for text in self._left(i, side)]
        actions = [self._action(side) for side in rewrite.right]
        sides = enumerate(zip(rewrite.left, rewrite.right, strict=True))
        body += [f"(varying r{i})" for i, (left, right) in sides if computed_ahead(left, right)]
        body += [f"(= meta_{name} (meta {self._v(name)}))" for name in self._tensors()]
        for fact in rewrite.facts:
            body += self._fact(fact)
        if rewrite.when is not None or self.checks:
            body.append(f"(= true {self._condition()})")
        ruleset = self._ruleset()
        head = [f"(pending {self.index} r{i} {action})" for i, action in enumerate(actions)]
        if self.record:
            kinds = [rewrite.kinds[name] for name in rewrite.variables]
            head.append(self.engine.record(self.index, kinds, [*map(self._v, rewrite.variables)]))
        options = f":ruleset {ruleset} :name {quote(rewrite.name)}"
        return f"(rule ({' '.join(body)}) ({' '.join(head)}) {options})"

    def _ruleset(self) -> str:
        """The rules among which this one runs; see `Engine.run`."""
        if self.rewrite.joins_neighbours:
            return "siblings"
        side, *others = self.rewrite.left
        if others:
            return "merges"
        return "cuts" if side.operator == "slice" else "rules"

    def _fact(self, fact: Fact) -> list[str]:
        """The queries that a fact holds of its variables, or of the left sides."""
        names = [self._v(v) for v in fact.variables]
        last = len(self.rewrite.left) - 1
        if fact.name == "ordered":
            names = names or [f"r{i}" for i in range(last + 1)]
            ranks = [f"(= rank_{name} (rank {name}))" for name in names]
            return ranks + [f"(< rank_{a} rank_{b})" for a, b in pairwise(names)]
        if fact.name == "distinct":
            return [f"(!= {a} {b})" for a, b in combinations(names, 2)]
        if fact.name == "neighbours":
            before = f"(mergeable {names[0]} kind before r0)"
            after = [f"(= after (follower {names[0]} kind before))", "(= r1 (Node after))"]
            return [before, *after, *self._fixed()]
        return [f"({fact.name} {name})" for name in names]

    def _fixed(self) -> Iterator[str]:
        """The queries that the parameters of products are those that count."""
        for i, side in enumerate(self.rewrite.left):
            for n, name in zip(range(1, len(side.children)), PARAMETERS, strict=False):
                yield f"(= r{i}_{n} ({name} r{i} r{i}_0 kind))"

    def _v(self, name: str) -> str:
        return f"v_{name}"

    def _tensors(self) -> list[str]:
        """The tensor variables whose metas the conditions or the right side read."""
        read = set(self.rewrite.predicate_variables())
        for side in (*self.rewrite.left, *self.rewrite.right):
            for expr in side.walk():
                for attr in expr.attributes:
                    if isinstance(attr, Attr):
                        read |= {v.name for v in _variables(attr)}
        return [n for n, kind in self.rewrite.kinds.items() if kind == "tensor" and n in read]

    def _pattern(self, expr: Expr) -> str:
        if isinstance(expr, Var):
            return self._v(expr.name)
        parts = [symbol_of(expr).name, *map(self._pattern, expr.children)]
        parts += [self._matched(attr) for attr in expr.attributes]
        return f"({' '.join(parts)})"

    def _matched(self, attr: Any) -> str:
        if not isinstance(attr, Attr):
            return self._attribute(attr)
        fresh = f"c{len(self.checks)}"
        self.checks.append((fresh, attr))
        return fresh

    def _left(self, index: int, side: Expr) -> list[str]:
        """The queries of a left side; an e-node that is its own operand has nothing new to say."""
        operands = [self._pattern(child) for child in side.children]
        names = [f"r{index}_{i}" for i in range(len(operands))]
        attributes = [self._matched(attr) for attr in side.attributes]
        call = " ".join([symbol_of(side).name, *names, *attributes])
        found = [f"(= {name} {operand})" for name, operand in zip(names, operands, strict=True)]
        return [f"(= r{index} ({call}))", *found, *(f"(!= r{index} {name})" for name in names)]

    def _action(self, expr: Expr) -> str:
        if isinstance(expr, Var):
            return self._v(expr.name)
        parts = [symbol_of(expr).name, *map(self._action, expr.children)]
        parts += [
            self._computed(attr) if isinstance(attr, Attr) else self._attribute(attr)
            for attr in expr.attributes
        ]
        return f"({' '.join(parts)})"

    def _attribute(self, attr: Any) -> str:
        return self._v(attr.name) if isinstance(attr, Var) else quote(self.oracle.texts.text(attr))

    def _computed(self, attr: Attr) -> str:
        names = list(dict.fromkeys(v.name for v in _variables(attr)))

        def compute(*texts: str) -> str:
            environment = self._environment(names, texts)
            return self.oracle.texts.text(evaluate(attr, environment, self.oracle))

        return self._call(names, compute, "string", [])

    def _condition(self) -> str:
        """The query that `when` holds and that computed attributes of the left side agree."""
        when, oracle, checks = self.rewrite.when, self.oracle, tuple(self.checks)
        wanted = self.rewrite.predicate_variables()
        names = list(wanted)
        for _, attr in checks:
            names += [v.name for v in _variables(attr)]
        names = list(dict.fromkeys(names))

        def holds(*texts: str) -> bool:
            environment = self._environment(names, texts)
            for (_, attr), actual in zip(checks, texts[len(names) :], strict=True):
                if oracle.texts.text(evaluate(attr, environment, oracle)) != actual:
                    return False
            with oracle.decided(list(environment.values())):
                return when is None or bool(when(*(environment[name] for name in wanted)))

        return self._call(names, holds, "bool", [fresh for fresh, _ in checks])

    def _call(
        self, names: Sequence[str], function: Callable[..., Any], kind: str, extra: Sequence[str]
    ) -> str:
        key = f"{self.rewrite.name} {self.calls}"
        self.calls += 1
        # What cannot be computed makes an e-node that is never admitted; what is undecided fails.
        self.engine.callback(key, function, INVALID if kind == "string" else False)
        kinds = self.rewrite.kinds
        variables = [f"meta_{n}" if kinds[n] == "tensor" else self._v(n) for n in names]
        return self.engine.call(key, [*variables, *extra], kind)

    def _environment(self, names: Sequence[str], texts: Sequence[str]) -> Environment:
        value = self.oracle.texts.value
        return {name: value(text) for name, text in zip(names, texts, strict=False)}


def computed_ahead(side: Expr, right: Expr) -> bool:
    """Whether a constant of the form of the left `side` is computed ahead, whatever its form.

    Views and cats of constants must still meet: merged weights are found to hold the given ones. So
    must what is computed from fills, which may become one. What `right` shows to be nothing must
    not pile up in weights that take it over: `w * 1.0 * 1.0`.
    """
    if isinstance(right, Var):
        return False
    moves = (Kind.VIEW, Kind.CAT, Kind.CREATION)
    fills = (
        OPERATORS[c.operator].kind is Kind.CREATION
        for c in side.children
        if c.operator in OPERATORS
    )
    return OPERATORS[side.operator].kind not in moves and not any(fills)


def evaluate(attr: Any, environment: Environment, oracle: Oracle) -> Any:
    """The value of a computed attribute where its variables have the values and metas given."""
    if isinstance(attr, Attr):
        arguments = [evaluate(a, environment, oracle) for a in attr.arguments]
        with oracle.decided(arguments):
            return attr.function(*arguments)
    if isinstance(attr, Var):
        return environment[attr.name]
    if isinstance(attr, Expr):
        metas = [evaluate(child, environment, oracle) for child in attr.children]
        values = [evaluate(a, environment, oracle) for a in attr.attributes]
        if attr.operator == "number":
            return oracle.number(values[0])
        meta = oracle.infer(attr.operator, metas, values)
        if not isinstance(meta, Meta):
            raise ValueError(f"{attr} has no meta here")
        return meta
    return attr


def _variables(attr: Any) -> Iterator[Var]:
    if isinstance(attr, Var):
        yield attr
    elif isinstance(attr, Attr):
        for argument in attr.arguments:
            yield from _variables(argument)
    elif isinstance(attr, Expr):
        for part in (*attr.children, *attr.attributes):
            yield from _variables(part)
