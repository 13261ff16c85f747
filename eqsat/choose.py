"""The candidates that an e-graph holds, each priced as the kernels of a whole graph; the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph

from eqsat.clock import Clock
from eqsat.cost.additive import FUSED_SHARE
from eqsat.cost.model import Prediction
from eqsat.decode import decode
from eqsat.encode import Encoding
from eqsat.fold import Folding, drop_unread, fold
from eqsat.problem import Problem, problem
from eqsat.settings import Settings
from eqsat.snapshot import Snapshot
from extract import Selection, dag_cost, judge

LEAST_GAIN = 1e-6  # of the cost: below it the given program stays as it is
LEAST_BUDGET = 64 << 20  # bytes: masks and position tables of programs with few weights
CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.conv2d.default)
SHARES = (FUSED_SHARE, 0.1)
"""The shares of its price that a fusible operator is charged: one candidate each.

No price of single e-nodes knows which operators become one kernel. At a half a chain of pointwise
operators is worth shortening; at a tenth it is left alone where something else becomes cheaper.
"""


@dataclass(frozen=True)
class Candidate:
    """A selection, the graph that it decodes to, and what that is predicted to cost."""

    name: str
    selection: Selection
    graph: Graph
    folding: Folding
    prediction: Prediction


@dataclass(frozen=True)
class Ground:
    """What candidates are made from: the saturated e-graph, and the program it grew from."""

    snapshot: Snapshot
    encoding: Encoding
    settings: Settings
    mode: FakeTensorMode
    constants: Mapping[str, Tensor]

    def budget(self) -> int:
        """Bytes that constants computed ahead may take."""
        if self.settings.fold_budget is not None:
            return self.settings.fold_budget
        size = sum({id(t): t.nbytes for t in self.constants.values()}.values())
        return max(size, LEAST_BUDGET) if self.settings.rules else 0


def candidates(ground: Ground, clock: Clock) -> list[Candidate]:
    """One candidate for each of `SHARES`, in that order, those that choose the same only once.

    Where there are convolutions, each again with their weights laid out channels-last.
    """
    found: list[Candidate] = []
    for share in SHARES:
        name = f"fusible operators at {share:.0%}"
        for ahead in (True, False) if ground.budget() else (False,):
            settings = ground.settings
            with clock("extract"):
                choices = problem(
                    ground.snapshot,
                    ground.encoding,
                    settings.cost,
                    fold=ahead,
                    fused_share=share,
                )
                selection = _extract(choices, settings)
            if any(np.array_equal(selection.choice, c.selection.choice) for c in found):
                break
            candidate = _candidate(name, ground, choices, selection, ahead, False, clock)
            if candidate is None:
                continue  # the constants take too much memory: compute them at every call
            found.append(candidate)
            if ahead and settings.numerics != "strict" and _convolves(candidate.graph):
                name += ", weights channels-last"  # another kernel may round otherwise
                laid = _candidate(name, ground, choices, selection, ahead, True, clock)
                found += [] if laid is None else [laid]
            break
    return found


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
    choices: Problem,
    selection: Selection,
    ahead: bool,
    channels_last: bool,
    clock: Clock,
) -> Candidate | None:
    """The candidate of a selection; None where its constants take too much memory."""
    with clock("decode"):
        graph = decode(
            ground.snapshot,
            ground.encoding,
            choices,
            selection.choice,
            ground.mode,
            channels_last=channels_last,
        )
        budget, constants = ground.budget(), ground.constants
        folding = fold(graph, constants, ground.mode, budget) if ahead else Folding({}, 0)
        if folding is None:
            return None
        drop_unread(graph, constants)
    with clock("price"):
        prediction = ground.settings.cost.estimate(graph)
    return Candidate(name, selection, graph, folding, prediction)


def best(found: list[Candidate], given: Prediction, margin: float) -> Candidate | None:
    """The best candidate; None where it is not better than the given program by `margin`."""
    winner = found[0]
    for candidate in found[1:]:
        if candidate.prediction.improves(winner.prediction, 0.0):
            winner = candidate
    return winner if winner.prediction.improves(given, margin) else None


def _extract(choices: Problem, settings: Settings) -> Selection:
    """The cheapest selection found, judged; the given program's own where nothing is cheaper."""
    egraph, given = choices.egraph, choices.given
    selection = settings.extract(egraph, time_limit=settings.time_limit, seeds=[given])
    judge(egraph, selection)
    cost = dag_cost(egraph, given)
    if selection.cost < cost * (1 - LEAST_GAIN):
        return selection
    return replace(selection, choice=given, cost=cost)
