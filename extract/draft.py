"""A selection while it is changed: who needs whom, what it costs, and the way back."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from extract.egraph import EGraph
from extract.selection import Choice

REGION = 100
"""Most classes without a choice that are looked at for one derivation."""
LEAST = 1e-9
"""Share of the cost that counts as a gain; less is rounding."""


class Draft:
    """A selection of an e-graph that is edited in place; `undo` takes edits back.

    A class has a choice exactly if something needs it, between edits: a root, a class that is
    pinned, or the choice of another class.
    """

    def __init__(self, egraph: EGraph, choice: Choice) -> None:
        self.kids = egraph.kids
        self.members = egraph.members
        self.home: list[int] = egraph.node_class.tolist()
        self.price: list[float] = egraph.node_cost.tolist()
        self.needed = [0] * egraph.num_classes  # by roots and pins
        for root in egraph.roots:
            self.needed[root] += 1
        self.users: list[list[int]] = [[] for _ in range(egraph.num_classes)]
        for enode, kids in enumerate(self.kids):
            for child in kids:
                self.users[child].append(enode)
        self.choice = [-1] * egraph.num_classes
        self.parents: list[set[int]] = [set() for _ in range(egraph.num_classes)]
        self.cost = 0.0
        self.log: list[tuple[int, int]] = []
        for cls in np.flatnonzero(choice >= 0).tolist():
            self._assign(cls, int(choice[cls]))
        self.log.clear()

    def to_choice(self) -> Choice:
        """What is chosen now."""
        return np.array(self.choice, np.int32)

    def undo(self, mark: int) -> None:
        """Takes back what was done since the log was `mark` entries long."""
        while len(self.log) > mark:
            cls, enode = self.log.pop()
            self._assign(cls, enode)
            self.log.pop()

    def become(self, choice: Sequence[int]) -> None:
        """Takes on another selection."""
        for cls, (before, enode) in enumerate(zip(self.choice, choice, strict=True)):
            if before != enode:
                self._assign(cls, enode)

    def take(self, picks: Iterable[tuple[int, int]]) -> None:
        """Chooses e-nodes for classes that have none, or another one."""
        for cls, enode in picks:
            before = self.choice[cls]
            self._assign(cls, enode)
            if before >= 0:
                self.collect(self.kids[before])

    def release(self, cls: int) -> None:
        """Takes the choice of a class, and of all that only it needed."""
        before = self.choice[cls]
        self._assign(cls, -1)
        self.collect(self.kids[before])

    def collect(self, classes: Sequence[int]) -> None:
        """Takes the choice of those of `classes` that nothing needs, and so on below."""
        stack = list(classes)
        while stack:
            cls = stack.pop()
            enode = self.choice[cls]
            if enode >= 0 and not self.parents[cls] and not self.needed[cls]:
                self._assign(cls, -1)
                stack += self.kids[enode]

    def above(self, classes: Iterable[int]) -> set[int]:
        """The classes and those that need one of them."""
        above = set(classes)
        stack = list(above)
        while stack:
            fresh = self.parents[stack.pop()] - above
            above |= fresh
            stack += fresh
        return above

    def below(self, classes: Iterable[int]) -> set[int]:
        """The classes and those that one of them needs."""
        below = set(classes)
        stack = list(below)
        while stack:
            fresh = [child for child in self.kids[self.choice[stack.pop()]] if child not in below]
            below.update(fresh)
            stack += fresh
        return below

    def derivation(
        self, top: int, banned: set[int], budget: float = math.inf
    ) -> list[tuple[int, int]] | None:
        """The picks for a class without a choice and for what it needs that has none; None if they
        cost `budget` or more, or are further away than `REGION`.

        It is the cheapest tree over what is chosen and not `banned`, which is free.
        """
        away, found = {top: 0.0}, list[tuple[int, list[int]]]()
        queue = [(0.0, top)]
        settled: set[int] = set()
        while queue and len(settled) < REGION:
            path, cls = heapq.heappop(queue)
            if cls in settled:
                continue
            settled.add(cls)
            for enode in self.members[cls]:
                length = path + self.price[enode]
                if length >= budget or not banned.isdisjoint(self.kids[enode]):
                    continue
                missing = [child for child in self.kids[enode] if self.choice[child] < 0]
                found.append((enode, missing))
                for child in missing:
                    if length < away.get(child, math.inf):
                        away[child] = length
                        heapq.heappush(queue, (length, child))
        picked = self._cheapest(top, found, budget)
        return None if top not in picked else self._below(top, picked)

    def _cheapest(
        self, top: int, found: Sequence[tuple[int, list[int]]], budget: float
    ) -> dict[int, int]:
        users: dict[int, list[int]] = {}
        total: dict[int, float] = {}
        count: dict[int, int] = {}
        heap: list[tuple[float, int]] = []
        for enode, missing in found:
            total[enode], count[enode] = self.price[enode], len(missing)
            for child in missing:
                users.setdefault(child, []).append(enode)
            if not missing:
                heap.append((total[enode], enode))
        heapq.heapify(heap)
        picked: dict[int, int] = {}
        while heap and top not in picked:
            cost, enode = heapq.heappop(heap)
            cls = self.home[enode]
            if cls in picked:
                continue
            picked[cls] = enode
            for user in users.get(cls, ()):
                total[user] += cost
                count[user] -= 1
                if not count[user] and total[user] < budget:
                    heapq.heappush(heap, (total[user], user))
        return picked

    def _below(self, top: int, picked: Mapping[int, int]) -> list[tuple[int, int]]:
        picks = {top: picked[top]}
        stack = [top]
        while stack:
            for child in self.kids[picks[stack.pop()]]:
                if self.choice[child] < 0 and child not in picks:
                    picks[child] = picked[child]
                    stack.append(child)
        return list(picks.items())

    def _assign(self, cls: int, enode: int) -> None:
        before = self.choice[cls]
        self.log.append((cls, before))
        if before >= 0:
            self.cost -= self.price[before]
            for child in self.kids[before]:
                self.parents[child].discard(cls)
        if enode >= 0:
            self.cost += self.price[enode]
            for child in self.kids[enode]:
                self.parents[child].add(cls)
        self.choice[cls] = enode
