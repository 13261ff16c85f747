"""The candidates that an e-graph holds, each priced as the kernels of a whole graph; the best."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node

from eqsat.clock import Clock
from eqsat.cost.additive import FUSED_SHARE
from eqsat.cost.model import CostModel, Prediction
from eqsat.decode import decode
from eqsat.encode import Encoding
from eqsat.fold import Folding, finish
from eqsat.fusion import extract_fused
from eqsat.peak import NOTHING, Memory, exceeds, memory
from eqsat.problem import Problem, problem
from eqsat.rewritten import placed, rewritten
from eqsat.settings import AUTO, FIXPOINT, FUSED, Settings
from eqsat.snapshot import Snapshot
from extract import Choice, Selection, dag_cost, judge, tree
from extract.selection import select

LEAST_GAIN = 1e-6  # of the cost: below it the given program stays as it is
LEAST_SECONDS = 0.05
PREPARING = 1e-4
"""Seconds for each e-node that extractors take before they look at the clock."""
LEAST_BUDGET = 64 << 20  # bytes: masks and position tables of programs with few weights
CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.conv2d.default)
SHARES = (FUSED_SHARE, 0.1)
"""The shares of its price that a fusible operator is charged: one candidate each.

No price of single e-nodes knows which operators become one kernel. At a half a chain of pointwise
operators is worth shortening; at a tenth it is left alone where something else becomes cheaper.
"""
FEW = 64
"""Rows of a program up to which it is also rewritten greedily."""
KEPT = 0.1
"""The share for fusible operators of the given program where others are charged in full."""
WHOLE = 1_000
"""E-nodes up to which "auto" also extracts whole kernels.

One block of a transformer is proven cheapest in half a second. Twelve take ten, and found nothing
that the other candidates had not on any of six networks (`benchmarks/results/fused.md`).
"""


@dataclass(frozen=True)
class Candidate:
    """A selection, the graph that it decodes to, and what that is predicted to cost.

    `decoded` is the graph before its constants were folded, where they are computed `ahead`.
    """

    name: str
    selection: Selection
    decoded: Graph
    ahead: bool
    graph: Graph
    folding: Folding
    prediction: Prediction
    memory: Memory = NOTHING


@dataclass(frozen=True)
class Ground:
    """What candidates are made from: the saturated e-graph, and the program it grew from."""

    snapshot: Snapshot
    encoding: Encoding
    settings: Settings
    mode: FakeTensorMode
    constants: Mapping[str, Tensor]
    fixed: Choice | None = None  # e-nodes of the snapshot: what a greedy search came to
    deadline: float = math.inf  # of time.perf_counter(), for all readings
    memory: Memory | None = None  # of the given program
    problems: dict[tuple[bool, float, float], Problem] = field(default_factory=dict[Any, Any])

    def priced(self, ahead: bool, share: float, new: float | None = None) -> Problem:
        """The extraction problem, with fusible operators at a share of their price; made once.

        Those that the given program has not are at the share `new`, if that is given.
        """
        key = (ahead, share, share if new is None else new)
        if key not in self.problems:
            self.problems[key] = problem(
                self.snapshot,
                self.encoding,
                self.settings.cost,
                fold=ahead,
                fused_share=share,
                new_share=new,
            )
        return self.problems[key]

    def allowed(self, found: Sequence[Candidate]) -> list[Candidate]:
        """Those that take no more memory than the settings allow."""
        growth, given = self.settings.max_memory_growth, self.memory
        if growth is None or given is None:
            return list(found)
        return [c for c in found if not exceeds(c.memory, given, growth)]

    def left(self) -> float:
        """Seconds that are left for all readings."""
        return self.deadline - time.perf_counter()

    def seconds(self) -> float:
        """Seconds that one reading may take."""
        return min(self.settings.time_limit, max(self.left(), LEAST_SECONDS))

    def late(self) -> bool:
        """Whether there is no time left for another reading by an extractor."""
        return self.left() < PREPARING * len(self.snapshot.symbols)

    def budget(self) -> int:
        """Bytes that constants computed ahead may take."""
        return budget(self.settings, self.constants)


def budget(settings: Settings, constants: Mapping[str, Tensor]) -> int:
    """Bytes that constants computed ahead may take: as many as the given ones, if none are set."""
    if settings.fold_budget is not None:
        return settings.fold_budget
    size = sum({id(t): t.nbytes for t in constants.values()}.values())
    return max(size, LEAST_BUDGET) if settings.rules else 0


@dataclass(frozen=True)
class Found:
    """What `optimize(observe=...)` shows: what there was to choose from, and what was chosen."""

    ground: Ground
    candidates: tuple[Candidate, ...]
    winner: Candidate | None

    def under(self, cost: CostModel) -> Found:
        """What would be chosen of the same e-graph at other prices; no rule runs again."""
        settings = replace(self.ground.settings, device=cost.device, mode=cost.mode)
        ground = replace(self.ground, settings=settings, problems={}, deadline=math.inf)
        found = tuple(candidates(ground, Clock()))
        given = cost.estimate(ground.encoding.graph)
        return Found(ground, found, best(ground.allowed(found), given, settings.margin))


def candidates(ground: Ground, clock: Clock) -> list[Candidate]:
    """One candidate for each of `readings`, in that order, those that choose the same only once.

    Where there are convolutions, each again with their weights laid out channels-last.
    """
    found: list[Candidate] = []
    for name, extract in readings(ground.settings) if ground.fixed is None else GREEDILY:
        if found and ground.late():
            break
        for ahead in (True, False) if ground.budget() else (False,):
            with clock("extract"):
                read = extract(ground, ahead, [c.selection.choice for c in found])
            if read is None or any(
                np.array_equal(read.selection.choice, c.selection.choice) for c in found
            ):
                break
            candidate = _candidate(name, ground, read, False, clock)
            if candidate is None:
                continue  # the constants take too much memory: compute them at every call
            found.append(candidate)
            strict = ground.settings.numerics == "strict"  # another kernel may round otherwise
            if ahead and not strict and _convolves(candidate.graph):
                laid = f"{name}, weights channels-last"
                again = _candidate(laid, ground, read, True, clock)
                if again is not None and again.memory.constants <= candidate.memory.constants:
                    found.append(again)  # else a weight is read in both layouts
            if ground.allowed([candidate]):
                break  # else nothing computed ahead may take less
    return found


@dataclass(frozen=True)
class Read:
    """A selection of a problem, with constants computed `ahead` or at every call."""

    choices: Problem
    selection: Selection
    ahead: bool


Reading = Callable[[Ground, bool, Sequence[Choice]], Read | None]
"""Reads the e-graph, with constants computed ahead or not; may start from the given choices."""


def readings(settings: Settings) -> Iterator[tuple[str, Reading]]:
    """The ways to read the e-graph that the settings ask for, each with its name."""
    for share in SHARES:
        yield f"fusible operators at {share:.0%}", partial(_by_enodes, share=share)
    if settings.extractor in (AUTO, FUSED):
        yield "whole kernels", _by_kernels
        yield "as given where nothing is saved", _sparingly
        yield "as given", _as_given
        yield "as rewritten to a fixpoint", _as_rewritten


def _by_enodes(
    ground: Ground, ahead: bool, _: Sequence[Choice], *, share: float, new: float | None = None
) -> Read:
    """The cheapest selection found, judged; the given program's own where nothing is cheaper."""
    choices = ground.priced(ahead, share, new)
    egraph, given = choices.egraph, choices.given
    settings = ground.settings
    extract = tree if ground.late() else settings.extract
    selection = extract(egraph, time_limit=ground.seconds(), seeds=[given])
    judge(egraph, selection)
    cost = dag_cost(egraph, given)
    if selection.cost >= cost * (1 - LEAST_GAIN):
        selection = replace(selection, choice=given, cost=cost)
    return Read(choices, selection, ahead)


def _by_kernels(ground: Ground, ahead: bool, seeds: Sequence[Choice]) -> Read | None:
    """The selection whose kernels are cheapest, no worse than those of the other candidates.

    Unless it is asked for, None for an e-graph of more than `WHOLE` e-nodes, or without time.
    """
    hurried = ground.left() < 2 * ground.settings.time_limit  # cuts are made by no clock
    if _large(ground) or (ground.settings.extractor == AUTO and hurried):
        return None
    choices = ground.priced(ahead, FUSED_SHARE)
    selection = extract_fused(
        ground.snapshot,
        ground.encoding,
        ground.settings.cost,
        choices,
        fold=ahead,
        time_limit=ground.seconds(),
        seeds=[choices.given, *seeds],
    )
    return Read(choices, selection, ahead)


def _sparingly(ground: Ground, ahead: bool, seeds: Sequence[Choice]) -> Read | None:
    """The cheapest selection where operators that the given program has hardly cost anything.

    What is fused with what changes where operators do: this one changes few of them in vain. Unless
    it is asked for, None for an e-graph of more than `WHOLE` e-nodes.
    """
    if _large(ground):
        return None
    return _by_enodes(ground, ahead, seeds, share=KEPT, new=1.0)


def _large(ground: Ground) -> bool:
    """Whether there is too much to read for more than the first candidates, unless asked for."""
    return ground.settings.extractor == AUTO and len(ground.snapshot.symbols) > WHOLE


def _as_given(ground: Ground, ahead: bool, _: Sequence[Choice]) -> Read | None:
    """The given program, but for what is computed ahead."""
    if _large(ground):
        return None
    started = time.perf_counter()
    choices = ground.priced(ahead, FUSED_SHARE)
    return Read(
        choices, select(choices.egraph, choices.given, method="given", started=started), ahead
    )


def _as_rewritten(ground: Ground, ahead: bool, _: Sequence[Choice]) -> Read | None:
    """What a greedy search comes to, if the program is small and the e-graph holds it."""
    if ground.settings.extractor == AUTO and len(ground.encoding.rows) > FEW:
        return None
    seconds = min(ground.settings.limits.seconds, max(ground.left(), LEAST_SECONDS))
    settings = replace(ground.settings, limits=replace(ground.settings.limits, seconds=seconds))
    snapshot, choice, _record = rewritten(ground.encoding, settings, FIXPOINT)
    fixed = placed(snapshot, choice, ground.snapshot)
    return None if fixed is None else _as_fixed(replace(ground, fixed=fixed), ahead, ())


def _as_fixed(ground: Ground, ahead: bool, _: Sequence[Choice]) -> Read:
    """What the greedy search came to: there is nothing to choose."""
    assert ground.fixed is not None
    started = time.perf_counter()
    choices = ground.priced(ahead, FUSED_SHARE)
    place = np.full(len(ground.snapshot.symbols) + 1, -1, dtype=np.int32)
    place[list(choices.enodes)] = np.arange(len(choices.enodes), dtype=np.int32)
    selection = select(choices.egraph, place[ground.fixed], method="greedy", started=started)
    judge(choices.egraph, selection)
    return Read(choices, selection, ahead)


GREEDILY: tuple[tuple[str, Reading], ...] = (("as rewritten", _as_fixed),)


def _convolves(graph: Graph) -> bool:
    """Whether there is a 2-d convolution."""
    return any(
        node.target in CONVOLUTIONS and node.meta["val"].ndim == 4
        for node in graph.nodes
        if node.op == "call_function"
    )


def _candidate(
    name: str,
    ground: Ground,
    read: Read,
    channels_last: bool,
    clock: Clock,
) -> Candidate | None:
    """The candidate of a selection; None where its constants take too much memory."""
    with clock("decode"):
        decoded = decode(
            ground.snapshot,
            ground.encoding,
            read.choices,
            read.selection.choice,
            ground.mode,
            channels_last=channels_last,
        )
        graph = _copied(decoded)
        allowed = ground.budget() if read.ahead else None
        folding = finish(graph, ground.constants, allowed)
        if folding is None:
            return None
    with clock("price"):
        prediction = ground.settings.cost.estimate(graph)
    held = memory(graph, ground.constants, folding.bytes)
    return Candidate(name, read.selection, decoded, read.ahead, graph, folding, prediction, held)


def _copied(graph: Graph) -> Graph:
    """A graph of the same nodes, each with the same values."""
    copy = Graph()
    env: dict[Node, Node] = {}
    for node in graph.nodes:
        env[node] = copy.node_copy(node, env.__getitem__)
        env[node].name = node.name
    return copy


def best(found: Sequence[Candidate], given: Prediction, margin: float) -> Candidate | None:
    """The best candidate that is better than the given program by `margin`; None if none is."""
    better = [c for c in found if c.prediction.improves(given, margin)]
    winner = better[0] if better else None
    for candidate in better[1:]:
        if winner is None or candidate.prediction.improves(winner.prediction, 0.0):
            winner = candidate
    return winner
