"""The programs between the given one and the result: one step more in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from torch.export import ExportedProgram
from torch.fx import Graph

from eqsat.capture import Captured
from eqsat.choose import Candidate, Found, candidates
from eqsat.clock import Clock
from eqsat.encode import Encoding
from eqsat.fold import compute
from eqsat.ground import Ground
from eqsat.reason.explanation import inputs_of
from eqsat.reason.goal import Goal
from eqsat.reason.needed import Needed
from eqsat.reason.replay import Replay
from eqsat.reason.step import Step, steps
from eqsat.reason.values import Values
from eqsat.rebuild import rebuild
from eqsat.snapshot import Row, Snapshot
from extract import Choice

GIVEN, AHEAD, LAID = "as given", "constants computed ahead", "weights laid out channels-last"


@dataclass(frozen=True)
class Stages:
    """The given program, it with constants computed ahead, then step by step to the result.

    The stage of a number is made when it is asked for. Where the program after a step cannot be
    made, for it would be computed from itself, it is that of the step before.
    """

    captured: Captured
    found: Found
    reason: Needed
    goal: Goal

    @property
    def count(self) -> int:
        """How many stages there are; the last is the result."""
        return len(self.reason.proof.steps) + 2 + self._laid

    @property
    def _laid(self) -> bool:
        assert self.found.winner is not None
        return self.found.winner.name.endswith("channels-last")

    def name(self, number: int) -> str:
        """What a stage does that the one before does not."""
        if number < 2:
            return (GIVEN, AHEAD)[number]
        return LAID if self._laid and number == self.count - 1 else f"step {number - 1}"

    def steps(self) -> tuple[tuple[Step, ...], ...]:
        """The matches of each step of the proof, with names and their own checks."""
        encoding = self.found.ground.encoding
        values = Values(encoding, self.captured.program, *inputs_of(self.captured))
        proof, flat = self.reason.proof, list[Step]()
        flat.extend(steps(proof, self.reason.snapshot, encoding, values))
        ends = np.cumsum([0, *(len(applied.matches) for applied in proof.steps)]).tolist()
        return tuple(tuple(flat[a:b]) for a, b in pairwise(ends))

    def graph(self, number: int) -> Graph | None:
        """The graph of a stage; None for the given program."""
        found = self._candidate(number)
        return None if found is None else found.graph

    def program(self, number: int) -> ExportedProgram:
        """The program of a stage."""
        found = self._candidate(number)
        if found is None:
            return self.captured.original
        ground = self.found.ground
        folded = compute(found.folding, found.graph, ground.constants, ground.mode)
        return rebuild(self.captured.program, found.graph, folded)

    def _candidate(self, number: int) -> Candidate | None:
        for step in range(number - 1, -1, -1):
            made = self._after(step, laid=number == self.count - 1 and self._laid)
            if made is not None:
                return made
        return None

    def _after(self, step: int, laid: bool) -> Candidate | None:
        """What the first steps come to; None where they do not give a program."""
        winner, ground = self.found.winner, self.found.ground
        assert winner is not None
        replay = self.reason.proof.after(step)
        snapshot, places = _snapshot(replay, self.reason.snapshot, ground.encoding)
        choice = _choice(replay, places, self.goal, snapshot)
        if choice is None:
            return None
        fixed = Ground(
            snapshot, ground.encoding, ground.settings, ground.mode, ground.constants, choice
        )
        made = [c for c in candidates(fixed, Clock()) if c.ahead == winner.ahead]
        same = [c for c in made if c.name.endswith("channels-last") == laid]
        return next(iter([*same, *made]), None)


def _snapshot(
    replay: Replay, final: Snapshot, encoding: Encoding
) -> tuple[Snapshot, dict[int, tuple[int, int]]]:
    """The terms as an e-graph, and the class and e-node of each term."""
    classes: dict[int, int] = {}
    enodes: dict[tuple[int, Row], int] = {}
    places: dict[int, tuple[int, int]] = {}
    metas: dict[int, str] = {}
    constant: set[int] = set()
    for term in range(len(replay.terms)):
        cls = classes.setdefault(replay.find(term), len(classes))
        known = replay.classes[term]
        if known in final.metas:
            metas[cls] = final.metas[known]
        if term < len(encoding.rows):
            metas.setdefault(cls, encoding.metas[term])
        if known in final.constant:
            constant.add(cls)
    for term, row in enumerate(replay.terms):
        cls = classes[replay.find(term)]
        operands = tuple(classes[replay.find(c)] for c in row.children)
        key = cls, Row(-1, row.symbol, operands, row.attributes)
        places[term] = cls, enodes.setdefault(key, len(enodes))
    rows = [row for _, row in enodes]
    snapshot = Snapshot(
        symbols=tuple(row.symbol for row in rows),
        classes=tuple(cls for cls, _ in enodes),
        children=tuple(row.children for row in rows),
        attributes=tuple(row.attributes for row in rows),
        metas=metas,
        handles={row.handle: places[row.handle][0] for row in encoding.rows},
        constant=frozenset(constant),
        pending=(),
        num_classes=len(classes),
    )
    return snapshot, places


def _choice(
    replay: Replay, places: dict[int, tuple[int, int]], goal: Goal, snapshot: Snapshot
) -> Choice | None:
    """The e-node of each class: the result's where it is there, else the newest, else the given.

    None where no choice in that order is free of cycles.
    """
    order: dict[int, dict[int, None]] = {cls: {} for cls, _ in places.values()}
    wanted = [term for term in _reached(replay, goal) if term is not None]
    made = range(len(replay.terms) - 1, replay.given - 1, -1)
    for term in (*wanted, *made, *range(replay.given)):
        cls, enode = places[term]
        order[cls].setdefault(enode)
    ranked = {cls: list(enodes) for cls, enodes in order.items()}
    roots = [places[handle][0] for handle, _ in goal.targets]
    while (cycle := _cycle(ranked, roots, snapshot)) is not None:
        late = next((cls for cls in cycle if len(ranked[cls]) > 1), None)
        if late is None:
            return None
        ranked[late].pop(0)
    choice = np.full(snapshot.num_classes, -1, dtype=np.int32)
    for cls, enodes in ranked.items():
        choice[cls] = enodes[0]
    return choice


def _reached(replay: Replay, goal: Goal) -> Iterator[int | None]:
    """The term that each of the goal's is, where it is there yet."""
    found: list[int | None] = []
    for row in goal.terms:
        operands = [found[c] for c in row.children]
        known = tuple(term for term in operands if term is not None)
        whole = len(known) == len(operands)
        term = replay.lookup(Row(-1, row.symbol, known, row.attributes)) if whole else None
        found.append(term)
        yield term


def _cycle(
    ranked: dict[int, list[int]], roots: Sequence[int], snapshot: Snapshot
) -> list[int] | None:
    """Classes that are computed from each other by the first e-node of each, the last one first."""
    done: set[int] = set()
    for root in roots:
        path: dict[int, None] = {}
        stack = [(root, False)]
        while stack:
            cls, left = stack.pop()
            if left:
                del path[cls]
                done.add(cls)
                continue
            if cls in path:
                above = list(path)
                return above[above.index(cls) :][::-1]
            if cls in done:
                continue
            path[cls] = None
            stack.append((cls, True))
            stack.extend((child, False) for child in snapshot.children[ranked[cls][0]])
    return None
