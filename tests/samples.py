"""Well-typed samples of a rule: values of its variables under which its union is admitted."""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from attributes import Place, attribute
from hints import Hints
from operands import operand, rank_below
from palette import Palette

from eqsat.expression import Attr, Expr, Var
from eqsat.infer import Oracle
from eqsat.meta import Meta, Scalar, Texts, meta_of
from eqsat.operators import OPERATORS
from eqsat.rewrite import EXACT, Rewrite
from eqsat.translate import evaluate

TRIES = 10  # at one operator, before the attempt is given up
BASES = {  # base dtypes with their weights: bits are compared in all of them, rounding in float64
    True: (
        (torch.float32, torch.float64, torch.bfloat16, torch.float16)
        + (torch.int64, torch.int32, torch.bool),
        (0.4, 0.15, 0.1, 0.1, 0.13, 0.04, 0.08),
    ),
    False: (
        (torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool),
        (0.55, 0.12, 0.13, 0.12, 0.03, 0.05),
    ),
}


class Misfit(ValueError):  # noqa: N818 - no error, an attempt that failed
    """An attempt that did not come to a well-typed left side."""


@dataclass(frozen=True)
class Sample:
    """Metas, numbers and attributes by variable; `pairs` are the outputs whose union is admitted.

    `roles` says which tensors hold indices (below the number given) or positive values (0).
    """

    values: Mapping[str, Any]
    roles: Mapping[str, int]
    pairs: tuple[int, ...]

    def __str__(self) -> str:
        return ", ".join(f"{name}={show(value)}" for name, value in self.values.items())


def show(value: Any) -> str:
    """How the value of a variable prints in a message."""
    if isinstance(value, Meta):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value.value) if isinstance(value, Scalar) else getattr(value, "label", repr(value))


@dataclass
class Sampler:
    """Draws samples of one rule, always the same ones."""

    rule: Rewrite
    attempts: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(zlib.crc32(self.rule.name.encode()))
        self.oracle = Oracle(Texts())
        self.hints = Hints(self.rule)
        self.good: list[Palette] = []

    def take(self, count: int, budget: int) -> list[Sample]:
        """Up to `count` samples from at most `budget` attempts."""
        found: list[Sample] = []
        for _ in range(budget):
            if len(found) == count:
                break
            self.attempts += 1
            sample = self.attempt()
            if sample is not None:
                found.append(sample)
        return found

    def attempt(self) -> Sample | None:
        """One attempt: a sample, or None where an operator or the rule's condition refuses."""
        exact = self.rule.numerics is EXACT
        palette = Palette(self.rng, BASES[exact], exact)
        if self.good and palette.chance(0.5):
            palette.resemble(self.rng.choice(self.good))
        draw = _Draw(self.rule, palette, self.oracle, self.hints)
        try:
            for side in self.rule.left:
                draw.value(side, None)
        except Misfit:
            return None
        for fact in self.rule.facts:
            for name in fact.variables if fact.name == "finite" else ():
                number = draw.values[name]
                if isinstance(number, Scalar) and not abs(number.value) < float("inf"):
                    return None
        pairs = tuple(
            i
            for i, (left, right) in enumerate(zip(self.rule.left, self.rule.right, strict=True))
            if self._admitted(left, right, draw.values)
        )
        if not pairs:
            return None
        self.good.append(palette)
        return Sample(draw.values, draw.roles, pairs)

    def _admitted(self, left: Expr, right: Expr, values: Mapping[str, Any]) -> bool:
        """Whether the engine would unite the two: their metas are known and equal."""
        try:
            metas = [run(side, values, values, self._infer, self.oracle) for side in (left, right)]
        except Exception:  # noqa: BLE001 - a right side that cannot be made is never admitted
            return False
        return self.oracle.texts.text(metas[0]) == self.oracle.texts.text(metas[1])

    def _infer(self, name: str, metas: list[Any], attributes: list[Any]) -> Any:
        if name == "number":
            return Scalar(attributes[0])
        meta = self.oracle.infer(name, metas, attributes)
        if meta is None:
            raise Misfit(name)
        return meta


def run(
    side: Expr,
    metas: Mapping[str, Any],
    values: Mapping[str, Any],
    apply: Callable[[str, list[Any], list[Any]], Any],
    oracle: Oracle,
) -> Any:
    """What `apply` makes of a side, operator by operator; attributes come from `metas`."""
    results: dict[int, Any] = {}
    for expr in side.walk():
        if isinstance(expr, Var):
            results[id(expr)] = values[expr.name]
            continue
        children = [results[id(child)] for child in expr.children]
        attributes = [evaluate(a, dict(metas), oracle) for a in expr.attributes]
        results[id(expr)] = apply(expr.operator, children, attributes)
    return results[id(side)]


@functools.cache
def _zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def computed(name: str, metas: list[Any], attributes: list[Any]) -> Any:
    """The meta of an operator's result, found by computing it; None where torch refuses."""
    operands = [m.value if isinstance(m, Scalar) else _zeros(m.shape, m.dtype) for m in metas]
    try:
        return meta_of(OPERATORS[name].evaluate(*operands, *attributes))
    except Exception:  # noqa: BLE001 - whatever torch refuses
        return None


def mentioned(attr: Any) -> Iterator[Var]:
    """The variables that an attribute on a left side reads."""
    if isinstance(attr, Var):
        yield attr
    for argument in attr.arguments if isinstance(attr, Attr) else ():
        yield from mentioned(argument)


@dataclass
class _Draw:
    """One attempt at the left side, bottom up: every variable is drawn where it is first met."""

    rule: Rewrite
    palette: Palette
    oracle: Oracle
    hints: Hints
    values: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, int] = field(default_factory=dict)
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def value(self, expr: Expr, rank: int | None) -> Any:
        """The meta of `expr`, its unbound variables drawn; raises Misfit."""
        if isinstance(expr, Var):
            if expr.name not in self.values:
                self.values[expr.name] = operand(self.palette, "", 0, (), {}, rank)
            return self.values[expr.name]
        if expr.operator == "number":
            return Scalar(self._attribute(expr, 0, "value", [], {}, rank))
        known: list[Any] = [None] * len(expr.children)
        for i, child in enumerate(expr.children):
            if not isinstance(child, Var):
                known[i] = self.value(child, rank_below(self.palette, expr.operator, i, rank))
        for i, child in enumerate(expr.children):
            if isinstance(child, Var):
                known[i] = self.values.get(child.name)
        before = dict(self.values)
        for _ in range(TRIES):
            try:
                metas = self._operands(expr, list(known), rank)
                attributes = self._attributes(expr, metas, rank)
            except Exception:  # noqa: BLE001 - the operands are of no shape that the operator takes
                self.values = dict(before)
                continue
            result = computed(expr.operator, metas, attributes)
            fits = result is not None and rank in (None, result.ndim)
            if fits and self._permitted():
                self._remember(expr, metas, attributes, result)
                return result
            self.values = dict(before)
        raise Misfit(expr.operator)

    def _permitted(self) -> bool:
        """Whether the rule's condition holds, or reads a variable that is not drawn yet."""
        drawn = all(name in self.values for name in self.hints.names)
        return not drawn or self.hints.holds(self.values)

    def _operands(self, expr: Expr, metas: list[Any], rank: int | None) -> list[Any]:
        given = {
            key: known
            for key, attr in zip(OPERATORS[expr.operator].attributes, expr.attributes, strict=True)
            if (known := self._known(attr)) is not None
        }
        order = list(range(len(metas)))
        if expr.operator in ("binary", "matmul") and self.palette.chance(0.3):
            order.reverse()
        for i in order:
            child = expr.children[i]
            if metas[i] is None and isinstance(child, Var):
                below = rank_below(self.palette, expr.operator, i, rank)
                if child.name not in self.values:
                    number = self.hints.number(child.name, self.palette)
                    self.values[child.name] = number or operand(
                        self.palette, expr.operator, i, metas, given, below
                    )
                metas[i] = self.values[child.name]
        return metas

    def _attributes(self, expr: Expr, metas: list[Any], rank: int | None) -> list[Any]:
        keys = OPERATORS[expr.operator].attributes
        given: dict[str, Any] = {}
        for k, key in enumerate(keys):
            given[key] = self._attribute(expr, k, key, metas, given, rank)
        return [given[key] for key in keys]

    def _attribute(
        self,
        expr: Expr,
        k: int,
        key: str,
        metas: list[Any],
        given: dict[str, Any],
        rank: int | None,
    ) -> Any:
        attr = expr.attributes[k]
        for var in mentioned(attr):
            if var.kind == "attribute" and var.name not in self.values:
                name, place = (expr.operator, key) if var is attr else self.hints.places[var.name]
                around = Place(self.palette, metas, given, self.shapes, rank)
                self.values[var.name] = attribute(name, place, around)
        return evaluate(attr, self.values, self.oracle)

    def _known(self, attr: Any) -> Any:
        if isinstance(attr, Var):
            return self.values.get(attr.name)
        if isinstance(attr, Attr):
            try:
                return evaluate(attr, self.values, self.oracle)
            except Exception:  # noqa: BLE001 - it speaks of a variable that is not drawn yet
                return None
        return attr

    def _remember(self, expr: Expr, metas: list[Any], attributes: list[Any], result: Any) -> None:
        used, name = self.palette.used, expr.operator
        for i, meta in enumerate(metas):
            used.setdefault((name, i), []).append(meta)
        for key, value in zip(OPERATORS[name].attributes, attributes, strict=True):
            used.setdefault((name, key), []).append(value)
        self.shapes += [m.shape for m in (*metas, result) if isinstance(m, Meta)]
        place = {"embedding": 1, "batch_norm": 4}.get(name)
        if place is not None and isinstance(child := expr.children[place], Var):
            self.roles[child.name] = metas[0].shape[0] if name == "embedding" else 0
