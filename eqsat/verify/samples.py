"""Well-typed samples of a rule: values of its variables under which its union is admitted."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.expression import Expr, Var
from eqsat.infer import Oracle
from eqsat.meta import Meta, Scalar, Texts
from eqsat.rewrite import EXACT, Rewrite
from eqsat.translate import evaluate
from eqsat.verify.draw import Draw, Misfit, operands_key
from eqsat.verify.hints import Hints
from eqsat.verify.palette import COMPLEX, FLOATS, INTEGERS, Palette
from eqsat.verify.tape import Tape, varied

AGAIN = 0.6  # how many attempts are variations of a success
NEARBY = 0.25  # and, before there is one, of what only the condition refused
Drawn = tuple[tuple[float, ...], int]  # the draws of an attempt, and how many made its taste
PARENTS = 200  # how many successes are kept to be varied
BASES = {  # base dtypes with their weights: bits are compared in all of them, rounding in float64
    True: (
        (*FLOATS, *INTEGERS, *COMPLEX),
        (0.34, 0.14, 0.1, 0.1, 0.11, 0.04, 0.07, 0.02, 0.02, 0.03, 0.03),
    ),
    False: (
        (*FLOATS, *INTEGERS, *COMPLEX),
        (0.12, 0.46, 0.12, 0.06, 0.1, 0.03, 0.04, 0.01, 0.01, 0.02, 0.03),
    ),
}


@dataclass(frozen=True)
class Sample:
    """Metas, numbers and attributes by variable; `pairs` are the outputs whose union is admitted.

    `roles` says which tensors hold indices (below the number given), positive values (0) or
    `FINITE` ones.
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
    """Draws samples of one rule: for one seed always the same ones."""

    rule: Rewrite
    seed: int = 0
    attempts: int = 0

    def __post_init__(self) -> None:
        chance = zlib.crc32(self.rule.name.encode()) + self.seed
        self.rng = random.Random(chance)
        self.tape = Tape(chance)
        self.oracle = Oracle(Texts())
        self.hints = Hints(self.rule)
        self.known: set[str] = set()
        self.inferred: dict[tuple[Any, ...], Any] = {}
        self.parents: list[Drawn] = []  # the draws of successes
        self.near: list[Drawn] = []  # of attempts that only the condition refused

    def take(self, count: int, budget: int) -> list[Sample]:
        """Up to `count` samples from at most `budget` attempts, few of them twice."""
        found: list[Sample] = []
        for _ in range(budget):
            if len(found) == count:
                break
            sample = self.attempt()
            if sample is not None and (str(sample) not in self.known or self.rng.random() < 0.1):
                self.known.add(str(sample))
                found.append(sample)
        return found

    def attempt(self) -> Sample | None:
        """One attempt: a sample, or None where an operator or the rule's condition refuses.

        Many are variations of a success or, before there is one, of what only the condition
        refused.
        """
        self.attempts += 1
        parents = self.parents or self.near
        again = bool(parents) and self.rng.random() < (AGAIN if self.parents else NEARBY)
        self.tape.start(varied(*self.rng.choice(parents), self.rng) if again else ())
        exact = self.rule.numerics is EXACT
        palette = Palette(self.tape, BASES[exact], exact)
        draw = Draw(self.rule, palette, self.oracle, self.hints)
        sample = self._sample(draw)
        if sample is not None:
            self._keep(self.parents, palette)
        elif draw.refused and not self.parents:
            self._keep(self.near, palette)
        return sample

    def _keep(self, kept: list[Drawn], palette: Palette) -> None:
        drawn = tuple(self.tape.drawn), palette.head
        if len(kept) < PARENTS:
            kept.append(drawn)
        else:
            kept[self.rng.randrange(PARENTS)] = drawn

    def _sample(self, draw: Draw) -> Sample | None:
        try:
            for side in self.rule.left:
                draw.value(side, None)
        except Misfit:
            return None
        for fact in self.rule.facts:
            for name in fact.variables if fact.name == "finite" else ():
                number = draw.values.get(name)
                if isinstance(number, Scalar) and not abs(number.value) < float("inf"):
                    return None
        pairs = tuple(
            i
            for i, (left, right) in enumerate(zip(self.rule.left, self.rule.right, strict=True))
            if self._admitted(left, right, draw.values)
        )
        return Sample(draw.values, draw.roles, pairs) if pairs else None

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
        key = name, operands_key(metas), tuple((type(a), a) for a in attributes)
        if key not in self.inferred:
            self.inferred[key] = self.oracle.infer(name, metas, attributes)
        if (meta := self.inferred[key]) is None:
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
