"""Lower bounds: rows that say how a class cannot be derived without one of a set of others."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extract.choosing import program
from extract.egraph import EGraph, derivation
from extract.linear import Relaxation, Row

VIOLATED = 2e-3
"""How far a row must be violated to be added."""
TARGETS = 800
"""Most classes that are tried as a shared part of sets."""
ADDED = 400
"""Most rows a round."""
PATIENCE = 5
"""For how many rounds a row may be slack before it goes."""
STALLED = 25
"""After how many rounds without progress the bound is taken as it is."""


@dataclass(frozen=True, eq=False)
class Bound:
    """A cost that no selection is below, and the rows of the program that prove it."""

    cost: float
    rows: tuple[Row, ...]


def bound(egraph: EGraph, best: float, deadline: float, *, shared: bool = True) -> Bound:
    """The bound of the linear program with blocking sets, as far as the deadline and `best` let it
    rise.

    If every derivation of class `c` meets a set of classes and e-nodes, `c` is needed only as far
    as these are. With `shared`, sets with one class that others share are looked for; without, only
    sets of e-nodes, which forbid cycles. The AND/OR form of directed Steiner cuts.
    """
    start = program(egraph)
    relaxed = Relaxation(start)
    fixed = len(start.rows)
    live: list[Row] = []
    slack: list[int] = []
    costs: list[float] = [0.0]
    while (rest := deadline - time.perf_counter()) > 0:
        solved = relaxed.solve(rest)
        if solved is None:
            break
        values, cost = solved
        costs.append(max(costs[-1], cost))
        stalled = len(costs) > STALLED and costs[-1] - costs[-STALLED] < 2e-4 * costs[-1]
        if cost >= best * (1 - 1e-9) or stalled:
            break
        idle = relaxed.slack()[fixed:] > 1e-5
        slack = [age + 1 if out else 0 for age, out in zip(slack, idle, strict=True)]
        if len(costs) % PATIENCE == 0:
            old = [i for i, age in enumerate(slack) if age >= PATIENCE]
            relaxed.remove([fixed + i for i in old])
            live = [row for row, age in zip(live, slack, strict=True) if age < PATIENCE]
            slack = [age for age in slack if age < PATIENCE]
        added = _Separation(egraph, values, shared).rows()
        if not added:
            break
        relaxed.add(added)
        live += added
        slack += [0] * len(added)
    return Bound(min(costs[-1], best), tuple(live))


class _Separation:
    """The search for blocking sets that a point of the relaxation violates.

    `mass[c, t]` is how much of class `c` the point can derive without target `t`: what its e-nodes
    have, each no more than its children. The last target is none at all.
    """

    def __init__(self, egraph: EGraph, values: NDArray[np.float64], shared: bool) -> None:
        self.egraph = egraph
        count = egraph.num_nodes
        self.x: list[float] = values[:count].tolist()
        self.y: list[float] = values[count:].tolist()
        self.columns = values
        partly = np.flatnonzero((values[count:] > 1e-9) & (values[count:] < 1 - 1e-6))
        if len(partly) > TARGETS:
            spread = np.argsort(-(values[count:][partly] * (1 - values[count:][partly])))
            partly = np.sort(partly[spread[:TARGETS]])
        self.targets: list[int] = partly.tolist() if shared else []
        self.mass = self._mass()

    def rows(self) -> list[Row]:
        """The rows of the sets found, the most violated first."""
        y, mass = np.array(self.y, np.float32), self.mass
        over = y[:, None] - mass
        over[:, : len(self.targets)] -= y[self.targets][None, :]
        over[self.targets, range(len(self.targets))] = -1
        pairs: list[tuple[float, int, int]] = []
        for axis in (0, 1):
            top = np.argsort(-over, axis=axis, kind="stable")
            top = top[:3] if axis == 0 else top[:, :3].T
            for place in top:
                index = (place, range(over.shape[1])) if axis == 0 else (range(len(y)), place)
                pairs += zip(over[index].tolist(), *map(list, index), strict=True)
        pairs = sorted({(-v, int(c), int(t)) for v, c, t in pairs if v > VIOLATED})
        rows: dict[tuple[int, frozenset[int]], Row] = {}
        for _, cls, target in pairs:
            blocking = self._blocking(cls, target)
            weight = float(self.columns[sorted(blocking)].sum())
            key = (cls, frozenset(blocking))
            top_column = self.egraph.num_nodes + cls
            if weight < self.y[cls] - VIOLATED / 2 and top_column not in blocking:
                columns = [top_column, *sorted(blocking)]
                rows[key] = (-math.inf, 0.0, columns, [1.0] + [-1.0] * len(blocking))
            if len(rows) >= ADDED:
                break
        return list(rows.values())

    def _mass(self) -> NDArray[np.float32]:
        """The least fixpoint, from below; a few rounds do, as sets are weighed again."""
        egraph, x = self.egraph, self.x
        mass = np.zeros((egraph.num_classes, len(self.targets) + 1), np.float32)
        place = {cls: t for t, cls in enumerate(self.targets)}
        used = [[e for e in enodes if x[e] > 1e-9] for enodes in egraph.members]
        order = [
            cls for cls in derivation(egraph.node_class.tolist(), egraph.kids) if self.y[cls] > 1e-9
        ]
        for _ in range(10):
            changed = False
            for cls in order:
                total = np.zeros(mass.shape[1], np.float32)
                for enode in used[cls]:
                    total += mass[list(egraph.kids[enode])].min(axis=0, initial=x[enode])
                np.minimum(total, self.y[cls], out=total)
                if cls in place:
                    total[place[cls]] = 0.0
                changed |= bool((total > mass[cls] + 1e-6).any())
                mass[cls] = total
            if not changed:
                break
        return mass

    def _blocking(self, cls: int, target: int) -> set[int]:
        """The columns of a set that every derivation of the class meets, where the mass is least.

        From the class down: a class stands for itself where its e-nodes have more, an e-node where
        its children do.
        """
        egraph, mass, count = self.egraph, self.mass[:, target].tolist(), self.egraph.num_nodes
        shared = self.targets[target] if target < len(self.targets) else -1
        blocking: set[int] = set()
        stack, seen = [cls], {cls}
        while stack:
            top = stack.pop()
            if top == shared:
                blocking.add(count + top)
                continue
            low: list[tuple[int, int]] = []
            total = 0.0
            for enode in egraph.members[top]:
                child = min(egraph.kids[enode], key=mass.__getitem__, default=-1)
                if child >= 0 and mass[child] < self.x[enode] - 1e-7:
                    low.append((enode, child))
                    total += mass[child]
                else:
                    low.append((enode, -1))
                    total += self.x[enode]
            if top != cls and total >= self.y[top] - 1e-7:
                blocking.add(count + top)
                continue
            for enode, child in low:
                if child < 0:
                    blocking.add(enode)
                elif child not in seen:
                    seen.add(child)
                    stack.append(child)
        return blocking
