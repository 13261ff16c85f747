"""Cost-based backtracking search over whole programs, as TASO does it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from eqsat.greedy import Application, Greedy
from eqsat.limits import Limits
from eqsat.rewrite import Rewrite
from eqsat.saturate import IterationSize, StopReason
from eqsat.snapshot import Symbol
from eqsat.terms import Refused, Terms

ALPHA = 1.05
"""Programs up to this times the cheapest one's price are looked at further.

The value of TASO (Jia et al., 2019).
"""
BUDGET = 1_000
"""Programs that are looked at, at most."""


@dataclass(order=True)
class Waiting:
    """A program that is not made yet: the price it will have, and the rewrite that makes it."""

    seconds: float
    number: int
    parent: Terms = field(compare=False)
    found: Application | None = field(compare=False)


class Backtracking:
    """A search over programs, the cheapest first: each is rewritten in every way that matches.

    Programs dearer than `alpha` times the cheapest are left alone, equal ones are looked at once.
    """

    def __init__(
        self, terms: Terms, rules: Sequence[Rewrite], limits: Limits, alpha: float = ALPHA
    ) -> None:
        self.greedy = Greedy(terms, rules, limits, shared=True)
        self.alpha = alpha
        self.best, self.least = terms, terms.seconds()
        self.known: dict[tuple[Symbol, tuple[int, ...], tuple[Any, ...]], int] = {}

    def run(self) -> StopReason:
        """Look at programs until none is left, or a limit is reached."""
        waiting = [Waiting(self.least, 0, self.best, None)]
        seen: set[tuple[int, ...]] = set()
        number = 0
        for _ in range(BUDGET):
            if not waiting:
                return StopReason.SATURATED
            if self.greedy.spent() > self.greedy.limits.seconds:
                return StopReason.SECONDS
            terms = self._made(heapq.heappop(waiting))
            if terms is None or (name := self._name(terms)) in seen:
                continue
            seen.add(name)
            price = terms.seconds()
            if price < self.least:
                self.best, self.least = terms, price
            self.greedy.sizes.append(IterationSize(len(terms.graph.nodes), self.greedy.spent()))
            self.greedy.terms = terms
            for found in self.greedy.matches():
                seconds = self._price(terms, price, found)
                if seconds is not None and seconds < self.alpha * self.least:
                    number += 1
                    heapq.heappush(waiting, Waiting(seconds, number, terms, found))
        return StopReason.ITERATIONS

    def _price(self, terms: Terms, price: float, found: Application) -> float | None:
        """The price of a program after a rewrite; None where that is refused."""
        count = self.greedy.counts[found.rule.name]
        count.matches += 1
        made: list[Node] = []
        try:
            values = self.greedy.build(found, made)
            return price - self.greedy.saving(found, values, made)
        except Refused as error:
            count.refused += 1
            count.reason = count.reason or str(error)
            return None
        finally:
            terms.forget(made)

    def _made(self, item: Waiting) -> Terms | None:
        """The program of an entry of the queue."""
        if item.found is None:
            return item.parent
        terms, nodes = item.parent.copy()
        bound = {
            name: nodes[value] if isinstance(value, Node) else value
            for name, value in item.found.bound.items()
        }
        roots = tuple(nodes[root] for root in item.found.roots)
        found = Application(item.found.rule, roots, bound)
        self.greedy.terms = terms
        try:
            values = self.greedy.build(found, [])
        except Refused:
            return None  # what was computed before it in the parent has moved since
        terms.replace(roots, values)
        self.greedy.counts[found.rule.name].applied += 1
        return terms

    def _name(self, terms: Terms) -> tuple[int, ...]:
        """The same for equal programs: numbers of their roots, by what they are made of."""
        numbers: dict[Node, int] = {}
        for node in terms.graph.nodes:
            if node is terms.output:
                continue
            symbol, children, attributes = terms.key(node)
            key = symbol, tuple(numbers[c] for c in children), attributes
            numbers[node] = self.known.setdefault(key, len(self.known))
        return tuple(numbers[n] for n in terms.output.all_input_nodes)
