"""Which rules can ever match a program: those whose operators it has, or another rule makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from eqsat.expression import Attr, Expr, Var
from eqsat.raw import EgglogRule
from eqsat.rewrite import Rewrite
from eqsat.snapshot import Row, Symbol
from eqsat.translate import symbol_of

ANY = "any"  # an attribute that is computed: no value of an operator prints so
Values = dict[str, list[set[str]]]  # constructor -> for each of its attributes, the values it has


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
        for values, value in zip(_values(row.symbol, known), row.attributes, strict=True):
            values.add(value)
    kept: set[int] = set()
    size = -1
    while size != (size := _size(known) + len(kept)):
        for index, rule in enumerate(rules):
            if index in kept or _matches(rule, known, text):
                kept.add(index)
                _add(rule, known, text)
    return [rule for index, rule in enumerate(rules) if index in kept]


def _values(symbol: Symbol, known: Values) -> list[set[str]]:
    """The values known of each attribute of a constructor, which is known from now on."""
    return known.setdefault(symbol.name, [set() for _ in range(symbol.attributes)])


def _size(known: Values) -> int:
    return len(known) + sum(len(values) for places in known.values() for values in places)


def _calls(sides: Iterable[Expr]) -> Iterator[Expr]:
    return (expr for side in sides for expr in side.walk() if not isinstance(expr, Var))


def _matches(rule: Rewrite, known: Values, text: Callable[[Any], str]) -> bool:
    """Whether the left sides can be; those of raw egglog are not known."""
    for expr in _calls(rule.left):
        places = known.get(symbol_of(expr).name)
        if places is None:
            return False
        for values, attr in zip(places, expr.attributes, strict=True):
            if not isinstance(attr, (Var, Attr)) and not values & {text(attr), ANY}:
                return False
    return True


def _add(rule: Rewrite, known: Values, text: Callable[[Any], str]) -> None:
    """Makes known what a match of the rule adds."""
    if isinstance(rule, EgglogRule):
        for symbol in rule.symbols():
            for values in _values(symbol, known):
                values.add(ANY)
        return
    bound: dict[str, set[str]] = {}  # attribute variables: the values they can have
    for expr in _calls(rule.left):
        for values, attr in zip(known[symbol_of(expr).name], expr.attributes, strict=True):
            if isinstance(attr, Var):
                bound.setdefault(attr.name, values)
    for expr in _calls(rule.right):
        for values, attr in zip(_values(symbol_of(expr), known), expr.attributes, strict=True):
            if isinstance(attr, Var):
                values.update(bound[attr.name])
            else:
                values.add(ANY if isinstance(attr, Attr) else text(attr))
