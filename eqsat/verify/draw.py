"""One attempt at the left side of a rule: its variables drawn so that every operator fits."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from eqsat.expression import Attr, Expr, Var
from eqsat.infer import Oracle
from eqsat.meta import Meta, Scalar, meta_of
from eqsat.operators import OPERATORS
from eqsat.rewrite import Rewrite
from eqsat.translate import evaluate
from eqsat.verify.attributes import Place, attribute
from eqsat.verify.hints import Hints
from eqsat.verify.operands import operand, rank_below
from eqsat.verify.palette import Palette

TRIES = 10  # at one operator, before the attempt is given up
FINITE = -1  # the role of what holds neither NaN nor infinity


class Misfit(ValueError):  # noqa: N818 - no error, an attempt that failed
    """An attempt that did not come to a well-typed left side."""


def computed(name: str, metas: list[Any], attributes: list[Any]) -> Any:
    """The meta of an operator's result, found by computing it; None where torch refuses."""
    return _computed(name, operands_key(metas), tuple((type(a), a) for a in attributes))


def operands_key(metas: list[Any]) -> tuple[Any, ...]:
    """What the result of an operator depends on, of its operands: shapes and dtypes, or numbers."""
    return tuple(
        (type(m.value), m.value) if isinstance(m, Scalar) else (tuple(m.shape), m.dtype)
        for m in metas
    )


@functools.lru_cache(1 << 16)
def _computed(name: str, operands: tuple[Any, ...], attributes: tuple[Any, ...]) -> Any:
    values = [value if isinstance(kind, type) else _zeros(kind, value) for kind, value in operands]
    try:
        return meta_of(OPERATORS[name].evaluate(*values, *(value for _, value in attributes)))
    except Exception:  # noqa: BLE001 - whatever torch refuses
        return None


@functools.lru_cache(1 << 12)
def _zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def mentioned(attr: Any) -> Iterator[Var]:
    """The variables that an attribute on a left side reads."""
    if isinstance(attr, Var):
        yield attr
    for argument in attr.arguments if isinstance(attr, Attr) else ():
        yield from mentioned(argument)


def roles(name: str, metas: list[Any], attributes: list[Any]) -> Iterator[tuple[int, int]]:
    """The operands of which an operator wants indices, positive or finite values, and the role."""
    if name == "embedding":
        yield 1, metas[0].shape[0]
    if name == "batch_norm":
        yield 4, 0
    if name == "convolution":  # whether a weight meets the padding is up to the kernel
        yield 1, FINITE
    if name in ("index", "scatter"):
        for place in range(1, len(metas)):
            yield place, metas[0].shape[attributes[0] + place - 1]


@dataclass
class Draw:
    """One attempt at the left side, bottom up: every variable is drawn where it is first met."""

    rule: Rewrite
    palette: Palette
    oracle: Oracle
    hints: Hints
    values: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, int] = field(default_factory=dict)
    shapes: list[tuple[Any, ...]] = field(default_factory=list)
    refused: bool = False  # by the condition, once

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
        if not all(name in self.values for name in self.hints.names):
            return True
        holds = self.hints.holds(self.values)
        self.refused |= not holds
        return holds

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
        for place, bound in roles(name, metas, attributes):
            if isinstance(child := expr.children[place], Var):
                self.roles[child.name] = bound
