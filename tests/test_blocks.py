"""Blocks: the same part of a network is found again, solved once, and fits where it is put."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from extract import Choice, EGraph, dag_cost, reached
from extract.blocks import colours, improved, repeated
from extract.exact import exact
from extract.stamping import stamped

BLOCK = (
    # class in the block (0 is what the block before made), cost, children
    (1, 5.0, [0]),
    (1, 2.0, [0, 3]),
    (2, 4.0, [0]),
    (2, 1.0, [3]),
    (3, 3.0, [0]),
    (4, 7.0, [1, 2]),
    (4, 20.0, [0]),
)
"""A shared class, 3, that no greedy way takes: it costs 3, and saves 3 twice."""
SIZE = 4
SECONDS = 30.0


def network(count: int, order: Sequence[int] | None = None) -> EGraph:
    """Blocks in a row, each on the result of the one before; classes renamed by `order`."""
    names = list(range(1 + count * SIZE)) if order is None else list(order)
    nodes: list[tuple[int, float, list[int]]] = [(names[0], 1.0, [])]
    for block in range(count):
        at = [names[block * SIZE + number] for number in range(SIZE + 1)]
        nodes += [(at[cls], cost, [at[child] for child in kids]) for cls, cost, kids in BLOCK]
    return EGraph.build(nodes, [names[count * SIZE]], len(names))


def unshared(egraph: EGraph, count: int) -> Choice:
    """The selection that takes the dear e-node of every class of `network(count)`."""
    choice = np.full(egraph.num_classes, -1, np.int32)
    choice[0] = 0
    for block in range(count):
        first = 1 + block * len(BLOCK)
        for cls, enode in ((1, 0), (2, 2), (4, 5)):
            choice[block * SIZE + cls] = first + enode
    return choice


def check(egraph: EGraph, choice: Choice, *, span: int) -> tuple[float, int]:
    """The cost after blocks are improved, which is a selection's, and how many were solved."""
    solved: list[EGraph] = []

    def solve(part: EGraph, seconds: float, seed: Choice) -> Choice:
        solved.append(part)
        return exact(part, time_limit=seconds, seeds=[seed]).choice

    deadline = time.perf_counter() + SECONDS
    better = improved(
        egraph,
        choice,
        colours(egraph, 2),
        span=span,
        solve=solve,
        part=SECONDS,
        deadline=deadline,
    )
    reached(egraph, better)
    return dag_cost(egraph, better), len(solved)


def test_every_block_becomes_as_cheap_as_one() -> None:
    for span in (1, 2):
        egraph = network(8)
        assert dag_cost(egraph, unshared(egraph, 8)) == 1 + 8 * 16
        cost, _ = check(egraph, unshared(egraph, 8), span=span)
        assert cost == exact(egraph).cost == 1 + 8 * 13


def test_equal_blocks_are_solved_once() -> None:
    counts = [check(network(n), unshared(network(n), n), span=1)[1] for n in (6, 12, 24)]
    assert counts[0] == counts[1] == counts[2] < 12


def test_what_is_not_repeated_is_left_alone() -> None:
    egraph = network(1)
    assert check(egraph, unshared(egraph, 1), span=1) == (17.0, 0)
    assert repeated(egraph, unshared(egraph, 1), colours(egraph, 2)) == []


def test_a_block_is_found_for_each_that_there_is() -> None:
    egraph = network(9)
    choice = unshared(egraph, 9)
    anchors = repeated(egraph, choice, colours(egraph, 1))
    assert 7 <= len(anchors) <= 9
    place = {cls: number for number, cls in enumerate(reached(egraph, choice))}
    assert [place[a] for a in anchors] == sorted(place[a] for a in anchors)


def test_colours_do_not_depend_on_numbers() -> None:
    order = np.random.default_rng(0).permutation(1 + 6 * SIZE).tolist()
    plain, renamed = colours(network(6), 3), colours(network(6, order), 3)
    assert [renamed[cls] for cls in order] == plain
    assert len(set(plain)) > SIZE


def test_after_the_deadline_nothing_is_solved() -> None:
    egraph = network(6)
    choice = unshared(egraph, 6)

    def solve(part: EGraph, seconds: float, seed: Choice) -> Choice:
        raise AssertionError("there is no time left")

    past = time.perf_counter() - 1
    colour = colours(egraph, 2)
    better = improved(egraph, choice, colour, span=1, solve=solve, part=1.0, deadline=past)
    assert dag_cost(egraph, better) <= dag_cost(egraph, choice)


def test_the_choice_of_one_block_is_put_on_all() -> None:
    egraph = network(8)
    choice = unshared(egraph, 8)
    first = 1 + 3 * len(BLOCK)  # the fourth block shares
    for cls, enode in ((1, 1), (2, 3), (3, 4)):
        choice[3 * SIZE + cls] = first + enode
    assert dag_cost(egraph, choice) == 1 + 7 * 16 + 13
    block = [0, *(number for number in range(1, 9) for _ in range(SIZE))]
    better, cost = stamped(egraph, choice, block, [0, *list(range(1, SIZE + 1)) * 8])
    assert cost == dag_cost(egraph, better) == 1 + 16 + 7 * 13  # the first is at the edge
