"""Blocking sets are true of every selection, and prove more than the plain linear program."""

from __future__ import annotations

import math
import random
import signal
import time

import numpy as np
import pytest

from benchmarks.fuzzing.egraphs import optimum, random_egraph
from extract import EXTRACTORS, EGraph, Status, judge
from extract.blocking import Bound, bound
from extract.choosing import point, program
from extract.exact import exact
from extract.linear import Relaxation

# Both ways to class 2 need the dear class 0 in the end; half of each needs only half of it.
SHARED = EGraph.build(
    [(0, 6.0, []), (1, 1.0, [0]), (2, 1.0, [0]), (2, 0.0, [1])],
    [2],
)


def check(egraph: EGraph, best: float, *, shared: bool) -> Bound:
    """The bound is below the optimum, and its rows hold for the best selection."""
    found = bound(egraph, math.inf, time.perf_counter() + 20, shared=shared)
    selection = EXTRACTORS["exact"].extract(egraph)
    values = point(egraph, selection.choice)
    assert found.cost <= best * (1 + 1e-6) + 1e-12
    for low, high, columns, factors in found.rows:
        assert low <= float(values[columns] @ np.array(factors)) <= high + 1e-9
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_no_selection_is_below_the_bound_and_every_row_holds(shared: bool) -> None:
    rows = 0
    for seed in range(400):
        egraph = random_egraph(seed)
        rows += len(check(egraph, optimum(egraph), shared=shared).rows)
    assert rows > 20


def test_blocking_sets_prove_more_than_the_relaxation() -> None:
    plain = Relaxation(program(SHARED)).solve(10.0)
    assert plain is not None
    assert plain[1] == pytest.approx(4.0)
    assert check(SHARED, 7.0, shared=True).cost == pytest.approx(7.0)


def test_without_a_shared_class_the_rows_still_forbid_cycles() -> None:
    ring = [(0, 1.0, [1]), (1, 1.0, [2]), (2, 1.0, [0]), (2, 9.0, []), (3, 0.0, [0, 1])]
    egraph = EGraph.build(ring, [3])
    plain = Relaxation(program(egraph)).solve(10.0)
    assert plain is not None
    assert plain[1] < 4
    assert check(egraph, 11.0, shared=False).cost == pytest.approx(11.0)


def test_exact_with_blocking_sets_finds_the_same_and_says_the_truth() -> None:
    for seed in range(60):
        egraph = random_egraph(seed)
        selection = exact(egraph, blocking=True)
        judge(egraph, selection)
        assert selection.status is Status.OPTIMAL
        assert selection.cost == pytest.approx(optimum(egraph), rel=1e-7)


def test_a_bound_without_time_is_nothing() -> None:
    assert bound(SHARED, 7.0, 0.0).cost == 0.0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_ctrl_c_leaves_no_solver_behind_whenever_it_comes() -> None:
    def interrupt(*_: object) -> None:
        handler = signal.getsignal(signal.SIGINT)
        assert callable(handler)
        handler(signal.SIGINT, None)

    relaxation, rng, heard = Relaxation(program(SHARED)), random.Random(0), 0
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + rng.random() * 2e-3)
                relaxation.solve(10.0)
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            except KeyboardInterrupt:
                heard += 1
            plain = relaxation.solve(10.0)
            assert plain is not None
            assert plain[1] == pytest.approx(4.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)
    assert heard > 30
