"""A rule: a name, two sides written as one function of its variables, and what it may change."""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.expression import Attr, Expr, Var, attribute, tensor
from eqsat.numerics import EXACT, RELAXED, ROUNDING, Numerics
from eqsat.operators import OPERATORS

__all__ = [
    "EXACT",
    "RELAXED",
    "ROUNDING",
    "Condition",
    "Fact",
    "Numerics",
    "Rewrite",
    "RuleSet",
    "attribute",
    "constant",
    "distinct",
    "finite",
    "given",
    "neighbours",
    "ordered",
]


@dataclass(frozen=True)
class Fact:
    """What must be known of the values of variables, such as that they are `constant`."""

    name: str
    variables: tuple[str, ...]


def constant(*variables: str) -> Fact:
    """The values do not depend on the program's inputs."""
    return Fact("constant", variables)


def finite(*variables: str) -> Fact:
    """The values are known to hold neither NaN nor infinity."""
    return Fact("finite", variables)


def ordered(*variables: str) -> Fact:
    """The values stand in the given program, in this order: a merge fires once a set of siblings.

    Without names, the values are those of the left sides.
    """
    return Fact("ordered", variables)


def distinct(*variables: str) -> Fact:
    """The values are not the same value, as far as is known."""
    return Fact("distinct", variables)


def given(*variables: str) -> Fact:
    """The values stand in the given program, or are fills or constant sums of such.

    What rules cut out of them, or set side by side, does not match.
    """
    return Fact("given", variables)


def neighbours(x: str) -> Fact:
    """The left sides are products of `x` with constant parameters, of which one follows the other.

    They follow each other in the given program, or the first is itself a merge of what precedes the
    second; see `eqsat.siblings`.
    """
    return Fact("neighbours", (x,))


@dataclass(frozen=True)
class Condition:
    """A predicate on variables that are named at run time, where a signature cannot name them."""

    names: tuple[str, ...]
    predicate: Callable[..., bool]

    def __call__(self, *values: Any) -> bool:
        """Whether the condition holds for the values of `names`, in this order."""
        return self.predicate(*values)

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.names])


def both(first: Callable[..., bool], second: Callable[..., bool]) -> Condition:
    """The condition that two conditions on variables hold."""
    a, b = (tuple(inspect.signature(c).parameters) for c in (first, second))
    names = tuple(dict.fromkeys((*a, *b)))

    def predicate(*values: Any) -> bool:
        value = dict(zip(names, values, strict=True))
        return first(*(value[n] for n in a)) and second(*(value[n] for n in b))

    return Condition(names, predicate)


@dataclass(frozen=True)
class Rewrite:
    """A rule `left = right`, applied from left to right.

    `rule` takes the variables and returns (left, right) in plain torch and functions of
    `eqsat.operators`; a tuple on both sides is a multi-output rule. `when` is a predicate on the
    metas of tensor variables and the values of attribute variables, named as in `rule`. A match
    adds the right side; the two are united only if their shapes, dtypes and devices are equal.
    `numerics` is what the rule may change; where `exact`, a predicate like `when`, holds as well it
    changes nothing.

    >>> associate = Rewrite("matmul-associate", lambda a, b, c: ((a @ b) @ c, a @ (b @ c)))
    >>> print(associate)
    matmul-associate: matmul(matmul(a, b), c) => matmul(a, matmul(b, c))

    Raises ValueError, naming the rule, when it is malformed: a variable of the right side that the
    left side does not bind, an unknown function, or a left side that is a bare variable.
    """

    name: str
    rule: Callable[..., Any]
    when: Callable[..., bool] | None = None
    numerics: Numerics = EXACT
    exact: Callable[..., bool] | None = None
    facts: tuple[Fact, ...] = ()
    variables: tuple[str, ...] = ()
    left: tuple[Expr, ...] = field(default=(), init=False, compare=False, repr=False)
    right: tuple[Expr, ...] = field(default=(), init=False, compare=False, repr=False)
    kinds: dict[str, str] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        names = self.variables or tuple(inspect.signature(self.rule).parameters)
        variables = [Var(name) for name in names]
        try:
            sides = self.rule(*variables)
            if not isinstance(sides, tuple) or len(sides) != 2:
                raise ValueError("the function must return (left, right)")
            left, right = (side if isinstance(side, tuple) else (side,) for side in sides)
            left, right = tuple(map(tensor, left)), tuple(map(tensor, right))
            self._validate(left, right, variables)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"rule {self.name!r}: {error}") from error
        object.__setattr__(self, "variables", names)
        object.__setattr__(self, "left", left)
        object.__setattr__(self, "right", right)
        object.__setattr__(self, "kinds", {v.name: v.kind for v in variables})

    def _validate(
        self, left: tuple[Expr, ...], right: tuple[Expr, ...], variables: list[Var]
    ) -> None:
        if len(left) != len(right):
            raise ValueError(f"{len(left)} left sides and {len(right)} right sides")
        if any(isinstance(side, Var) for side in left):
            raise ValueError("a left side that is a bare variable matches everything")
        bound = {v.name for side in left for v in bound_variables(side)}
        used = {v.name for side in right for v in used_variables(side)}
        if used - bound:
            raise ValueError(f"the left side does not bind {', '.join(sorted(used - bound))}")
        if unused := [v.name for v in variables if v.name not in bound]:
            raise ValueError(f"unused variable {', '.join(unused)}")
        for predicate in (self.when, self.exact):
            for name in inspect.signature(predicate).parameters if predicate else ():
                if name not in bound:
                    raise ValueError(f"`when` names {name!r}, which is no variable of the rule")
        for fact in self.facts:
            if missing := [v for v in fact.variables if v not in bound]:
                raise ValueError(f"fact {fact.name!r} names unknown variable {missing[0]!r}")
        for side in (*left, *right):
            for expr in side.walk():
                if expr.operator not in OPERATORS and expr.operator not in ("variable", "number"):
                    raise ValueError(f"unknown operator {expr.operator!r}")

    def within(self, numerics: Numerics) -> Rewrite | None:
        """This rule as far as it changes no more than `numerics`; None if it always may."""
        if self.numerics <= numerics:
            return self
        if self.exact is None:
            return None
        when = self.exact if self.when is None else both(self.when, self.exact)
        return replace(self, when=when, numerics=EXACT, exact=None)

    @property
    def joins_neighbours(self) -> bool:
        """Whether the left sides are `neighbours`."""
        return any(fact.name == "neighbours" for fact in self.facts)

    def predicate_variables(self) -> tuple[str, ...]:
        """The variables that `when` reads."""
        return tuple(inspect.signature(self.when).parameters) if self.when else ()

    def __str__(self) -> str:
        left, right = (
            ", ".join(map(str, side)) if len(side) == 1 else f"({', '.join(map(str, side))})"
            for side in (self.left, self.right)
        )
        return f"{self.name}: {left} => {right}"


class RuleSet(tuple[Rewrite, ...]):
    """Rules of different names, as a tuple that can be added to and taken from.

    >>> neg = Rewrite("neg-neg", lambda x: (-(-x), x))
    >>> print(*(RuleSet() + [neg]))
    neg-neg: neg(neg(x)) => x
    >>> (RuleSet() + [neg]).without("neg-ng")
    Traceback (most recent call last):
    ValueError: no rule is named 'neg-ng'; near it: neg-neg
    """

    __slots__ = ()

    def __new__(cls, rules: Iterable[Rewrite] = ()) -> RuleSet:
        rules = tuple(rules)
        for rule in rules:
            if not isinstance(rule, Rewrite):  # pyright: ignore[reportUnnecessaryIsInstance] - what users give
                raise TypeError(f"{rule!r} is no rule: a rule set holds Rewrite objects")
        require_unique(rules)
        return super().__new__(cls, rules)

    def __add__(self, other: Iterable[Rewrite]) -> RuleSet:  # pyright: ignore[reportIncompatibleMethodOverride] - a tuple adds any tuple
        return RuleSet((*self, *other))

    def __radd__(self, other: Iterable[Rewrite]) -> RuleSet:
        return RuleSet((*other, *self))

    def without(self, *names: str) -> RuleSet:
        """The rules but for those named; "matmul-merge" also names every "matmul-merge-...".

        Raises ValueError, with the nearest names, for a name that no rule has.
        """
        left_out: set[str] = set()
        for name in names:
            found = [r.name for r in self if r.name == name]
            found = found or [r.name for r in self if r.name.startswith(f"{name}-")]
            if not found:
                near = difflib.get_close_matches(name, [r.name for r in self], 3, 0.0)
                raise ValueError(f"no rule is named {name!r}; near it: {', '.join(near)}")
            left_out.update(found)
        return RuleSet(rule for rule in self if rule.name not in left_out)


def require_unique(rules: Iterable[Rewrite]) -> None:
    """Raises ValueError if two rules have one name: reports and switches know rules by name."""
    for name, count in sorted(Counter(rule.name for rule in rules).items()):
        if count > 1:
            raise ValueError(f"two rules are named {name!r}: names must be unique")


def bound_variables(side: Expr) -> Iterator[Var]:
    """The variables that matching `side` binds: operands, and attributes that stand alone."""
    for expr in side.walk():
        if isinstance(expr, Var):
            yield expr
        for attribute_ in expr.attributes:
            if isinstance(attribute_, Var):
                yield attribute_


def used_variables(side: Expr) -> Iterator[Var]:
    """Every variable that `side` mentions, inside computed attributes too."""
    yield from bound_variables(side)
    for expr in side.walk():
        for attribute_ in expr.attributes:
            if isinstance(attribute_, Attr):
                yield from _mentioned(attribute_)


def _mentioned(attr: Attr) -> Iterator[Var]:
    for argument in attr.arguments:
        if isinstance(argument, Attr):
            yield from _mentioned(argument)
        elif isinstance(argument, Expr):
            yield from used_variables(argument)
