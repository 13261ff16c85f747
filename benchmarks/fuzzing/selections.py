"""Programs taken from an e-graph at random, or by an extractor, without the product's own check."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph

import eqsat
import rewrites
from eqsat.capture import capture, constants_of
from eqsat.cost.model import CostModel
from eqsat.decode import decode
from eqsat.encode import Encoding, encode
from eqsat.fold import compute, finish
from eqsat.numerics import NAMES
from eqsat.problem import problem
from eqsat.rebuild import drop_in, rebuild
from eqsat.rewrite import Rewrite
from eqsat.saturate import saturate
from eqsat.settings import ALWAYS
from eqsat.snapshot import Snapshot
from extract import EGraph, Selection, judge
from extract.egraph import derivation
from extract.selection import select

LIMITS = eqsat.Limits(iterations=6, enodes=3_000, seconds=60.0)
SELECTIONS = 4  # of one e-graph
EXTRACTORS = ("auto", "tree", "greedy-dag", "exact")


@dataclass(frozen=True)
class Way:
    """How a program is optimized; "random" tries a few selections of one e-graph."""

    extractor: str
    numerics: str
    seed: int
    rules: tuple[str, ...] | None = None

    def results(self, program: torch.export.ExportedProgram) -> Iterator[torch.nn.Module]:
        """The program optimized this way, without its check. Raises what the optimizer raises."""
        rules: tuple[Rewrite, ...] = rewrites.DEFAULT
        if self.rules is not None:
            rules = tuple(rule for rule in rules if rule.name in self.rules)
        if self.extractor == "random":
            yield from _selections(program, rules, self.numerics, self.seed)
            return
        result = eqsat.optimize(
            program,
            rules=rules,
            numerics=self.numerics,
            extractor=self.extractor,
            limits=LIMITS,
            time_limit=1.0,
            margin=ALWAYS,
            check=False,
            cache=False,
        )
        if "failed" in (result.report.kept or ""):
            raise AssertionError(result.report.kept)
        yield result.module


def ways(seed: int) -> tuple[Way, ...]:
    """How program number `seed` is optimized."""
    other = "random" if seed % 3 else EXTRACTORS[seed % len(EXTRACTORS)]
    return Way("random", "default", seed), Way(other, "strict" if seed % 2 else "default", seed)


def _selections(
    program: torch.export.ExportedProgram, rules: Sequence[Rewrite], numerics: str, seed: int
) -> Iterator[torch.nn.Module]:
    """Some of the programs in the e-graph, each e-node as likely to be taken as any other."""
    captured = capture(program, None, None, None)
    if captured.blocked is not None:
        return
    graph = captured.program.graph
    constants = constants_of(captured.program)
    encoding = encode(graph, constants)
    within = (rule.within(NAMES[numerics]) for rule in rules)
    snapshot, _ = saturate(encoding, [rule for rule in within if rule is not None], LIMITS)
    values = (node.meta.get("val") for node in graph.nodes)
    mode = detect_fake_mode([v for v in values if isinstance(v, Tensor)]) or FakeTensorMode()
    for offset in range(SELECTIONS):
        new = taken(snapshot, encoding, mode, seed + offset)
        folding = finish(new, constants, 1 << 26 if offset % 2 else None)
        tensors = {} if folding is None else compute(folding, new, constants, mode)
        yield drop_in(rebuild(captured.program, new, tensors))


def taken(snapshot: Snapshot, encoding: Encoding, mode: FakeTensorMode, seed: int) -> Graph:
    """A program of the e-graph, each e-node as likely to be taken as any other."""
    choices = problem(snapshot, encoding, CostModel.of("h200"), fold=False)
    selection = random_selection(choices.egraph, seed)
    judge(choices.egraph, selection)
    return decode(snapshot, encoding, choices, selection.choice, mode)


def random_selection(egraph: EGraph, seed: int) -> Selection:
    """Any e-node of every class, as long as nothing needs itself."""
    started = time.perf_counter()
    shuffled = list(range(egraph.num_nodes))
    random.Random(seed).shuffle(shuffled)
    classes = egraph.node_class.tolist()
    order = derivation([classes[i] for i in shuffled], [egraph.kids[i] for i in shuffled])
    rank = {cls: place for place, cls in enumerate(order)}
    choice = np.full(egraph.num_classes, -1, np.int32)
    for enode in shuffled:
        cls = classes[enode]
        if cls in rank and all(rank.get(k, len(rank)) < rank[cls] for k in egraph.kids[enode]):
            choice[cls] = enode
    return select(egraph, choice, method="random", started=started)
