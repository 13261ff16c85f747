"""The judge finds every way in which a selection can be wrong, and names the class."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from extract import Choice, EGraph, InvalidSelection, Selection, Status, dag_cost, judge, reached
from extract.selection import select

# Class 3 is the root; 0 and 1 need each other or a leaf; 2 is shared; nothing needs 4.
DIAMOND = EGraph.build(
    [
        (0, 1.0, [1]),
        (1, 1.0, [0]),
        (1, 5.0, []),
        (2, 2.0, [1]),
        (3, 4.0, [2, 0, 2]),
        (4, 9.0, []),
    ],
    roots=[3],
    names=["f", "g", "x", "h", "add", "y"],
)
GOOD = np.array([0, 2, 3, 4, -1], np.int32)


def selection(choice: Choice, cost: float = 12.0, lower_bound: float = 0.0) -> Selection:
    return Selection(choice, cost, lower_bound, Status.FEASIBLE, "by hand", 0.0)


def changed(cls: int, enode: int) -> Selection:
    choice = GOOD.copy()
    choice[cls] = enode
    return selection(choice)


def test_a_good_selection_is_let_through() -> None:
    judge(DIAMOND, selection(GOOD))
    judge(DIAMOND, replace(selection(GOOD, lower_bound=12.0), status=Status.OPTIMAL))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (changed(1, -1), "class 1 is needed, but nothing is chosen"),
        (changed(3, -1), "class 3 is needed, but nothing is chosen"),
        (changed(2, 2), "class 2 has chosen 2, which is no e-node of it"),
        (changed(2, 77), "class 2 has chosen 77"),
        (changed(2, -2), "class 2 has chosen -2"),
        (changed(1, 1), "class 0 needs itself"),
        (changed(4, 5), "class 4 has a choice, but no root needs it"),
        (selection(GOOD[:3]), "5 classes, but a choice of shape"),
        (selection(GOOD, cost=11.0), "says it costs 11.0, but its e-nodes cost 12.0"),
        (selection(GOOD, cost=float("nan")), "says it costs nan"),
        (selection(GOOD, lower_bound=12.5), "lower bound 12.5 is above the cost"),
        (replace(selection(GOOD, lower_bound=7.0), status=Status.OPTIMAL), "said to be optimal"),
    ],
)
def test_a_wrong_selection_is_refused(wrong: Selection, message: str) -> None:
    with pytest.raises(InvalidSelection, match=message):
        judge(DIAMOND, wrong)


def test_reached_lists_children_first_and_each_once() -> None:
    assert reached(DIAMOND, GOOD) == [1, 0, 2, 3]
    assert dag_cost(DIAMOND, GOOD) == 12.0


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (changed(1, -1).choice, "class 1 is needed, but its choice -1"),
        (changed(2, 2).choice, "class 2 is needed, but its choice 2"),
        (changed(1, 1).choice, r"class 0 needs itself, by e-node 0 \(f\)"),
        (GOOD[:3], r"5 integers, one a class; this one is int32\[3\]"),
        (GOOD.astype(np.float64), r"this one is float64\[5\]"),
    ],
)
def test_what_cannot_be_reached_is_named(choice: Choice, message: str) -> None:
    with pytest.raises(InvalidSelection, match=message):
        reached(DIAMOND, choice)


def test_select_leaves_out_what_no_root_needs() -> None:
    whole = changed(4, 5).choice
    trimmed = select(DIAMOND, whole, method="by hand", started=time.perf_counter(), lower_bound=3.0)
    judge(DIAMOND, trimmed)
    assert trimmed.choice.tolist() == GOOD.tolist()
    assert (trimmed.cost, trimmed.lower_bound, trimmed.gap) == (12.0, 3.0, 0.75)


def test_select_of_an_optimum_has_no_gap() -> None:
    proven = select(
        DIAMOND, GOOD, method="by hand", started=time.perf_counter(), status=Status.OPTIMAL
    )
    assert (proven.lower_bound, proven.gap) == (12.0, 0.0)


def test_the_cost_does_not_depend_on_the_order_of_the_classes() -> None:
    costs = [0.1, 0.2, 0.3, 1e16, 0.7, 1.0]
    forth = EGraph.build([(i, cost, []) for i, cost in enumerate(costs)], range(6))
    back = EGraph.build([(i, cost, []) for i, cost in enumerate(costs[::-1])], range(6))
    every = np.arange(6, dtype=np.int32)
    assert dag_cost(forth, every) == dag_cost(back, every)
