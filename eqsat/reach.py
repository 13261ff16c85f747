"""Which rules can ever match a program: those whose operators it has, or another rule makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from eqsat.expression import Attr, Expr, Var
from eqsat.raw import EgglogRule
from eqsat.rewrite import Rewrite
from eqsat.snapshot import Row
from eqsat.translate import symbol_of

ANY = "any"  # an attribute that is computed: no value of an operator prints so
Place = tuple[str, int]  # constructor, which of its attributes; -1 stands for the constructor alone
Values = dict[Place, set[str]]


def reachable(
    rules: Sequence[Rewrite], rows: Iterable[Row], text: Callable[[Any], str]
) -> list[Rewrite]:
    """The rules whose left sides can come to be, in their order.

    A left side can if each of its constructors stands in `rows`, or on the right side of a rule
    that can match, with the attributes that it asks for. The others would cost time and match
    nothing.
    """
    known: Values = {}
    for row in rows:
        known.setdefault((row.symbol.name, -1), set())
        for i, value in enumerate(row.attributes):
            known.setdefault((row.symbol.name, i), set()).add(value)
    kept: set[int] = set()
    size = -1
    while size != (size := _size(known) + len(kept)):
        for index, rule in enumerate(rules):
            if index in kept or _matches(rule, known, text):
                kept.add(index)
                _add(rule, known, text)
    return [rule for index, rule in enumerate(rules) if index in kept]


def _size(known: Values) -> int:
    return len(known) + sum(map(len, known.values()))


def _calls(sides: Iterable[Expr]) -> Iterator[Expr]:
    return (expr for side in sides for expr in side.walk() if not isinstance(expr, Var))


def _matches(rule: Rewrite, known: Values, text: Callable[[Any], str]) -> bool:
    if isinstance(rule, EgglogRule):
        return True
    for expr in _calls(rule.left):
        name = symbol_of(expr).name
        if (name, -1) not in known:
            return False
        for i, attr in enumerate(expr.attributes):
            if not isinstance(attr, (Var, Attr)) and not known[name, i] & {text(attr), ANY}:
                return False
    return True


def _add(rule: Rewrite, known: Values, text: Callable[[Any], str]) -> None:
    """Makes known what a match of the rule adds."""
    if isinstance(rule, EgglogRule):
        for symbol in rule.symbols():
            known.setdefault((symbol.name, -1), set())
            for i in range(symbol.attributes):
                known.setdefault((symbol.name, i), set()).add(ANY)
        return
    bound: dict[str, set[str]] = {}  # attribute variables: the values they can have
    for expr in _calls(rule.left):
        for i, attr in enumerate(expr.attributes):
            if isinstance(attr, Var):
                bound.setdefault(attr.name, known[symbol_of(expr).name, i])
    for expr in _calls(rule.right):
        name = symbol_of(expr).name
        known.setdefault((name, -1), set())
        for i, attr in enumerate(expr.attributes):
            values = known.setdefault((name, i), set())
            if isinstance(attr, Var):
                values |= bound[attr.name]
            else:
                values.add(ANY if isinstance(attr, Attr) else text(attr))
