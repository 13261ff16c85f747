"""The ways to read an e-graph: by single e-nodes, by whole kernels, as given, as rewritten."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from eqsat.cost.additive import FUSED_SHARE
from eqsat.fusion import extract_fused
from eqsat.ground import LEAST_SECONDS, Ground
from eqsat.problem import Problem
from eqsat.rewritten import placed, rewritten
from eqsat.settings import AUTO, FIXPOINT, FUSED, Settings
from extract import Choice, Selection, dag_cost, judge, tree
from extract.selection import select

LEAST_GAIN = 1e-6  # of the cost: below it the given program stays as it is
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
    hurried = ground.left() < ground.settings.time_limit  # cuts are made by no clock
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
    fixed = placed(snapshot, choice, ground.snapshot, ground.encoding.roots)
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
