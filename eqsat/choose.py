"""The candidates that an e-graph holds, each priced as the kernels of a whole graph; the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.fx import Graph, Node

from eqsat.clock import Clock
from eqsat.cost.model import CostModel, Prediction
from eqsat.decode import decode
from eqsat.fold import Folding, finish
from eqsat.ground import Ground
from eqsat.peak import NOTHING, Memory, exceeds, memory
from eqsat.readings import GREEDILY, Read, readings
from extract import Selection

SLIGHT = 1e-3
"""A share of the time by which predictions differ for nothing that a device would show."""
CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.conv2d.default)


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
        return Found(ground, found, best(allowed(ground, found), given, settings.margin))


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
            if allowed(ground, [candidate]):
                break  # else nothing computed ahead may take less
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
    """The best candidate that is better than the given program by `margin`; None if none is.

    Those that come first share more, and name what they compute: they stay unless another is
    better by more than `SLIGHT`.
    """
    better = [c for c in found if c.prediction.improves(given, margin)]
    winner = better[0] if better else None
    for candidate in better[1:]:
        if winner is None or candidate.prediction.improves(winner.prediction, SLIGHT):
            winner = candidate
    return winner


def allowed(ground: Ground, found: Sequence[Candidate]) -> list[Candidate]:
    """Those that take no more memory than the settings allow."""
    growth, given = ground.settings.max_memory_growth, ground.memory
    if growth is None or given is None:
        return list(found)
    return [c for c in found if not exceeds(c.memory, given, growth)]
