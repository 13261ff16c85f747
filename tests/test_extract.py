"""The extractors agree with brute force and a second solver, keep their claims, and say what they
know.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fuzzing.egraphs import (
    SMALL,
    least_of_all,
    least_of_model,
    optimum,
    problem,
    random_egraph,
)
from extract import (
    EXTRACTORS,
    Choice,
    EGraph,
    InvalidSelection,
    Selection,
    Status,
    constraint,
    dag_cost,
    judge,
    linear,
)
from extract.branching import branch_and_cut

CHUNK = 250


def layered_egraph(layers: int, length: int, seed: int) -> EGraph:
    """Like a deep network after saturation: three-output merges, rings of views, equal layers."""
    nodes: list[tuple[int, float, list[int]]] = [(0, 0.0, [])]
    top, free = 0, itertools.count(1)
    for layer in range(layers):
        rng = random.Random(seed + layer % 2)
        outs, merged = [next(free) for _ in range(3)], next(free)
        for out in outs:
            nodes += [(out, 10e-6, [top]), (out, 0.0, [merged])]
        nodes.append((merged, rng.choice([22e-6, 28e-6, 33e-6]), [top]))
        recent = [top, *outs]
        for _ in range(length):
            cls, view = next(free), next(free)
            nodes += [(view, 0.0, [cls]), (cls, 0.0, [view])]
            for _ in range(rng.choice([1, 2, 2, 3])):
                kids = rng.sample(recent[-4:], rng.choice([1, 1, 2]))
                nodes.append((rng.choice([cls, view]), rng.randint(1, 9) * 1e-6, kids))
            nodes.append((recent[-1], rng.randint(5, 9) * 1e-6, [cls]))
            nodes.append((cls, 9e-6, [top]))
            recent.append(view)
        previous, top = top, next(free)
        nodes.append((top, 1e-6, [*recent[-2:], previous]))
    return EGraph.build(nodes, [top])


def covering_egraph(classes: int, seed: int) -> EGraph:
    """Tasks that are done by a few tools each, with ways back: no reduction solves it."""
    rng = random.Random(seed)
    nodes = [(tool, rng.randint(5, 9), []) for tool in range(classes)]
    for task in range(classes, 3 * classes):
        nodes += [(task, rng.randint(0, 1), rng.sample(range(task), 2)) for _ in range(3)]
        nodes.append((rng.randrange(classes, task + 1), 1, [task]))
    return EGraph.build(nodes, range(2 * classes, 3 * classes))


HARD = covering_egraph(15, 0)


def check(egraph: EGraph, name: str) -> Selection:
    selection = EXTRACTORS[name].extract(egraph)
    judge(egraph, selection)
    assert selection.method
    assert selection.seconds >= 0
    return selection


@pytest.mark.parametrize("chunk", range(4))
def test_extractors_keep_their_claims_on_random_egraphs(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        egraph = random_egraph(seed)
        least = optimum(egraph)
        for name, extractor in EXTRACTORS.items():
            assert not problem(egraph, extractor, least), (seed, name)


def test_the_random_egraphs_have_what_extractors_trip_over() -> None:
    egraphs = [random_egraph(seed) for seed in range(300)]
    costs = [
        {name: check(e, name).cost for name in ("tree", "greedy-dag", "exact")} for e in egraphs
    ]
    assert sum(cost["tree"] > cost["exact"] * 1.001 for cost in costs) > 50
    assert sum(cost["greedy-dag"] > cost["exact"] * 1.001 for cost in costs) > 40
    assert sum(cost["tree"] > cost["greedy-dag"] * 1.001 for cost in costs) > 5
    assert sum(e.num_classes > SMALL for e in egraphs) > 30
    assert sum(len(e.roots) > 1 for e in egraphs) > 50
    assert sum(not all(e.members) for e in egraphs) > 10
    loops = [any(cls in e.kids[n] for n, cls in enumerate(e.node_class.tolist())) for e in egraphs]
    assert sum(loops) > 50


def test_brute_force_and_the_plain_model_agree() -> None:
    for seed in range(60):
        egraph = random_egraph(seed)
        if egraph.num_classes <= 7:
            assert least_of_all(egraph) == pytest.approx(least_of_model(egraph), rel=1e-6), seed


@pytest.mark.parametrize("name", EXTRACTORS)
def test_the_same_egraph_gives_the_same_choice(name: str) -> None:
    stops = name in ("lns", "portfolio")  # the clock does, where it proves nothing
    hard = [] if stops else [layered_egraph(2, 20, 0), HARD]
    for egraph in [*map(random_egraph, range(40)), *hard]:
        first, second = check(egraph, name), check(egraph, name)
        assert first.choice.tolist() == second.choice.tolist()
        assert first.cost == second.cost


def test_reductions_do_not_change_what_the_program_alone_finds() -> None:
    for seed in range(60):
        egraph = random_egraph(seed)
        start = EXTRACTORS["tree"].extract(egraph)
        alone = branch_and_cut(egraph, start, time.perf_counter() + 20)
        assert alone.status is Status.OPTIMAL, seed
        assert check(egraph, "exact").cost == pytest.approx(alone.cost, rel=1e-9), seed


def test_the_solvers_prove_the_same_without_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ortools")
    for seed in range(80):
        egraph = random_egraph(seed)
        start = EXTRACTORS["tree"].extract(egraph)
        other = constraint.constraint_search(egraph, start, time.perf_counter() + 20)
        judge(egraph, other)
        assert other.status is Status.OPTIMAL, seed
        with monkeypatch.context() as without:
            without.setattr(constraint, "INSTALLED", False)
            assert check(egraph, "exact").cost == pytest.approx(other.cost, rel=1e-9), seed


def test_layers_are_solved_to_the_optimum_and_below_the_greedy_ones() -> None:
    egraph = layered_egraph(6, 30, 3)
    selection = check(egraph, "portfolio")
    assert selection.status is Status.OPTIMAL
    assert selection.gap == 0
    assert selection.cost < 0.99 * min(check(egraph, name).cost for name in ("tree", "greedy-dag"))


def test_a_merge_pays_when_all_its_outputs_are_needed() -> None:
    alone = [(cls, 10.0, [0]) for cls in (1, 2, 3)]
    slices = [(cls, 0.0, [4]) for cls in (1, 2, 3)]
    egraph = EGraph.build([(0, 0.0, []), *alone, *slices, (4, 22.0, [0]), (5, 1.0, [1, 2, 3])], [5])
    assert check(egraph, "tree").cost == check(egraph, "greedy-dag").cost == 31
    assert check(egraph, "exact").cost == 23
    assert check(egraph, "exact").choice.tolist() == [0, 4, 5, 6, 7, 8]


def test_greedy_dag_pays_once_for_what_is_shared_below_one_class() -> None:
    shared = [(0, 10.0, []), (1, 1.0, [0]), (2, 1.0, [0])]
    egraph = EGraph.build([*shared, (3, 0.0, [1, 2]), (3, 15.0, [])], [3])
    assert check(egraph, "tree").cost == 15
    assert check(egraph, "greedy-dag").cost == 12


def test_ties_go_to_the_lowest_enode() -> None:
    egraph = EGraph.build([(0, 1.0, []), (0, 1.0, []), (1, 1.0, [0]), (1, 1.0, [0])], [1])
    for name in EXTRACTORS:
        assert check(egraph, name).choice.tolist() == [0, 2], name


def test_a_chain_of_ten_thousand_classes_with_ways_back_is_solved() -> None:
    chain = [(cls, 1.0, [cls - 1]) for cls in range(1, 10_000)]
    back = [(cls, 2.0, [cls + 1]) for cls in range(9_999)]
    egraph = EGraph.build([(0, 0.0, []), *chain, *back], [9_999])
    for name in EXTRACTORS:
        assert check(egraph, name).cost == 9_999, name


@pytest.mark.parametrize("name", EXTRACTORS)
def test_nothing_to_do_is_an_empty_selection(name: str) -> None:
    selection = check(EGraph.build([(0, 1.0, [])], [], num_classes=2), name)
    assert selection.choice.tolist() == [-1, -1]
    assert selection.cost == 0


@pytest.mark.parametrize("name", ["exact", "portfolio"])
def test_without_time_the_answer_is_no_worse_than_the_seeds_and_the_bound_holds(name: str) -> None:
    for egraph in [*map(random_egraph, range(40)), HARD]:
        best = check(egraph, "exact")
        hasty = EXTRACTORS[name].extract(egraph, time_limit=0.0, seeds=[best.choice])
        judge(egraph, hasty)
        assert hasty.cost == best.cost
        unaided = EXTRACTORS[name].extract(egraph, time_limit=0.0)
        judge(egraph, unaided)
        assert unaided.lower_bound <= best.cost * (1 + 1e-9)


def test_a_seed_stays_where_the_reductions_have_no_place_for_it() -> None:
    detour = [(0, 0.0, []), (1, 5.0, []), (1, 5.0, [0])]  # the reductions drop the last one
    users = [(2, 0.0, [1]), (2, 4.0, []), (3, 0.0, [1]), (3, 4.0, [])]
    egraph = EGraph.build([*detour, *users, (4, 0.0, [2, 3])], [4])
    seed = np.array([0, 2, 3, 5, 7], np.int32)
    hasty = EXTRACTORS["exact"].extract(egraph, time_limit=0.0, seeds=[seed])
    judge(egraph, hasty)
    assert hasty.cost == 5
    assert hasty.choice.tolist() == seed.tolist()
    assert EXTRACTORS["exact"].extract(egraph, time_limit=0.0).cost == 8


def test_a_seed_that_is_no_selection_is_refused() -> None:
    egraph = EGraph.build([(0, 1.0, []), (1, 1.0, [0]), (0, 1.0, [1])], [1])
    with pytest.raises(InvalidSelection, match="class 1 needs itself"):
        EXTRACTORS["exact"].extract(egraph, seeds=[np.array([2, 1], np.int32)])


@pytest.mark.parametrize("name", ["local-search", "lns", "exact", "portfolio"])
@pytest.mark.parametrize(
    "place", ["parts.prepare", "draft.Draft.derivation", "linear._wait", "constraint._solve"]
)
def test_ctrl_c_gives_the_best_so_far(
    monkeypatch: pytest.MonkeyPatch, name: str, place: str
) -> None:
    met: list[str] = []

    def interrupted(*_: object, **__: object) -> None:
        met.append(place)
        raise KeyboardInterrupt

    monkeypatch.setattr(f"extract.{place}", interrupted)
    selection = check(HARD, name)
    assert selection.cost <= check(HARD, "greedy-dag").cost
    assert (selection.status is Status.INTERRUPTED) == bool(met)


def test_a_vector_that_does_not_cost_what_highs_says_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    egraph = layered_egraph(2, 20, 0)
    expected = check(egraph, "exact").cost
    genuine, calls = linear.highspy.Highs.getSolution, list[int]()

    def stale(highs: linear.highspy.Highs) -> object:
        calls.append(len(calls))
        solution = genuine(highs)
        if calls[-1] % 2 == 0:
            solution.col_value = [1.0] * len(solution.col_value)
        return solution

    monkeypatch.setattr(linear.highspy.Highs, "getSolution", stale)
    assert check(egraph, "exact").cost == expected
    assert len(calls) > 1


@pytest.mark.parametrize("name", EXTRACTORS)
def test_reductions_stop_at_the_time_limit(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def late(*_: object) -> None:
        raise AssertionError("after the deadline")

    for reduction in ("with_free_groups_merged", "without_dominated", "with_forced_roots"):
        monkeypatch.setattr(f"extract.prepare.{reduction}", late)
    judge(HARD, EXTRACTORS[name].extract(HARD, time_limit=0.0))


GYM = os.environ.get("EQSAT_GYM", "")


@pytest.mark.skipif(not GYM, reason="EQSAT_GYM names no folder of extraction-gym e-graphs")
def test_public_egraphs_have_their_known_optima() -> None:
    known = json.loads((Path(GYM) / "best_known.json").read_text())
    sizes = {name: entry["enodes"] for name, entry in known.items() if entry["status"] == "opt"}
    names = [name for name in sizes if sizes[name] < 1500 and (Path(GYM) / name).exists()]
    assert len(names) > 5
    for name in sorted(names, key=sizes.__getitem__)[:40]:
        egraph = EGraph.from_json(Path(GYM) / name)
        selection: Selection = check(egraph, "portfolio")
        best = known[name]["best"]
        assert selection.cost >= best * (1 - 1e-6), name
        if selection.status is Status.OPTIMAL:
            assert selection.cost == pytest.approx(best, rel=1e-6), name
        choice: Choice = selection.choice
        assert dag_cost(egraph, choice) == selection.cost
