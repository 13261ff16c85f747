"""The extractors agree with brute force, keep their claims, and say what they know."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from extract import (
    EXTRACTORS,
    Choice,
    EGraph,
    InvalidSelection,
    Selection,
    Status,
    dag_cost,
    judge,
    reached,
)
from extract import linear as linear_program
from extract.exact import branch_and_cut

SEEDS = range(400)


def random_egraph(seed: int, classes: int = 9) -> EGraph:
    """Cycles, self-loops, sharing, repeated children, ties, free e-nodes, several roots."""
    rng = random.Random(seed)
    costs = rng.choice([[0.0, 1.0], [0.0, 1.0, 2.0, 3.0], [0.25, 1.5, 2.125], [1e-6, 2e-6, 0.0]])
    nodes: list[tuple[int, float, list[int]]] = []
    for cls in range(classes):
        for _ in range(rng.choice([1, 2, 2, 3])):
            reach = classes if rng.random() < 0.3 else max(cls, 1)
            count = rng.choice([0, 1, 2, 2, 3] if cls < 4 else [1, 2, 2, 3]) if cls else 0
            nodes.append((cls, rng.choice(costs), [rng.randrange(reach) for _ in range(count)]))
    rng.shuffle(nodes)
    roots = rng.sample(range(classes // 2, classes), rng.choice([1, 1, 2]))
    try:
        return EGraph.build(nodes, roots)
    except ValueError:  # a root without a derivation
        leaves = [(root, rng.choice(costs), ()) for root in roots]
        return EGraph.build([*nodes, *leaves], roots)


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


def optimum(egraph: EGraph) -> float:
    """The least DAG cost, by trying everything, with nothing of the package."""
    rows = [
        (cls, cost, egraph.children[start:stop].tolist())
        for cls, cost, (start, stop) in zip(
            egraph.node_class.tolist(),
            egraph.node_cost.tolist(),
            itertools.pairwise(egraph.child_ptr.tolist()),
            strict=True,
        )
    ]
    best = math.inf
    waiting: list[dict[int, int]] = [{}]
    while waiting:
        chosen = waiting.pop()
        cost = sum(rows[enode][1] for enode in chosen.values())
        if cost >= best:
            continue
        needed = [*egraph.roots, *(kid for enode in chosen.values() for kid in rows[enode][2])]
        missing = next((cls for cls in needed if cls not in chosen), None)
        if missing is not None:
            options = [enode for enode, row in enumerate(rows) if row[0] == missing]
            waiting += [chosen | {missing: enode} for enode in options]
        elif is_founded({cls: rows[enode][2] for cls, enode in chosen.items()}):
            best = cost
    return best


def is_founded(needs: dict[int, list[int]]) -> bool:
    left = dict(needs)
    while ready := [cls for cls, kids in left.items() if not any(kid in left for kid in kids)]:
        for cls in ready:
            del left[cls]
    return not left


def tree_costs(egraph: EGraph) -> list[float]:
    """The least tree cost of every class, by relaxing until nothing changes."""
    least = [math.inf] * egraph.num_classes
    for _ in range(egraph.num_classes + 1):
        for enode, cls in enumerate(egraph.node_class.tolist()):
            total = float(egraph.node_cost[enode]) + sum(least[kid] for kid in egraph.kids[enode])
            least[cls] = min(least[cls], total)
    return least


def check(egraph: EGraph, name: str) -> Selection:
    selection = EXTRACTORS[name].extract(egraph)
    judge(egraph, selection)
    assert selection.method
    assert selection.seconds >= 0
    return selection


@pytest.mark.parametrize("name", EXTRACTORS)
def test_every_extractor_is_valid_and_keeps_its_claim(name: str) -> None:
    for seed in SEEDS:
        egraph = random_egraph(seed)
        selection, best = check(egraph, name), optimum(egraph)
        assert selection.cost >= best * (1 - 1e-9), seed
        assert selection.lower_bound <= best * (1 + 1e-9), seed
        if EXTRACTORS[name].claim == "dag-optimal":
            assert selection.status is Status.OPTIMAL, seed
            assert selection.cost == pytest.approx(best, rel=1e-9, abs=0), seed
        if EXTRACTORS[name].claim == "tree-optimal":
            least, paid = tree_costs(egraph), dict[int, float]()
            for cls in reached(egraph, selection.choice):
                enode = int(selection.choice[cls])
                paid[cls] = egraph.node_cost[enode] + sum(paid[kid] for kid in egraph.kids[enode])
                assert paid[cls] == pytest.approx(least[cls], rel=1e-9), (seed, cls)


def test_the_random_egraphs_need_every_extractor() -> None:
    costs = [[check(random_egraph(seed), name).cost for name in EXTRACTORS] for seed in SEEDS]
    assert sum(tree > greedy * 1.001 for tree, greedy, _, _ in costs) > 2
    assert sum(greedy > exact * 1.001 for _, greedy, exact, _ in costs) > 2


@pytest.mark.parametrize("name", EXTRACTORS)
def test_the_same_egraph_gives_the_same_choice(name: str) -> None:
    for egraph in [*(random_egraph(seed, 30) for seed in range(20)), layered_egraph(2, 20, 0)]:
        first, second = check(egraph, name), check(egraph, name)
        assert first.choice.tolist() == second.choice.tolist()
        assert first.cost == second.cost


def test_reductions_do_not_change_what_the_program_alone_finds() -> None:
    for seed in range(25):
        egraph = random_egraph(seed, 24)
        start = EXTRACTORS["tree"].extract(egraph)
        alone = branch_and_cut(egraph, start, time.perf_counter() + 20)
        assert alone.status is Status.OPTIMAL, seed
        assert check(egraph, "exact").cost == pytest.approx(alone.cost, rel=1e-9), seed


def test_layers_are_solved_to_the_optimum_and_below_the_greedy_ones() -> None:
    egraph = layered_egraph(6, 30, 3)
    selection = check(egraph, "portfolio")
    assert selection.status is Status.OPTIMAL
    assert selection.method == "exact"
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
    for seed in range(40):
        egraph = random_egraph(seed, 30)
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


def test_ctrl_c_gives_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(linear_program.highspy.Highs, "run", interrupted)
    egraph = layered_egraph(2, 20, 0)
    selection = check(egraph, "exact")
    assert selection.status is Status.INTERRUPTED


def test_a_vector_that_does_not_cost_what_highs_says_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    egraph = layered_egraph(2, 20, 0)
    expected = check(egraph, "exact").cost
    genuine, calls = linear_program.highspy.Highs.getSolution, list[int]()

    def stale(highs: linear_program.highspy.Highs) -> object:
        calls.append(len(calls))
        solution = genuine(highs)
        if calls[-1] % 2 == 0:
            solution.col_value = [1.0] * len(solution.col_value)
        return solution

    monkeypatch.setattr(linear_program.highspy.Highs, "getSolution", stale)
    assert check(egraph, "exact").cost == expected
    assert len(calls) > 1


def test_json_gives_the_egraph_back(tmp_path: Path) -> None:
    for seed in range(20):
        egraph = random_egraph(seed)
        egraph.to_json(tmp_path / "egraph.json")
        again = EGraph.from_json(tmp_path / "egraph.json")
        assert (again.roots, again.num_classes) == (egraph.roots, egraph.num_classes)
        for name in ("node_class", "node_cost", "child_ptr", "children"):
            assert getattr(again, name).tolist() == getattr(egraph, name).tolist(), name


def test_json_of_others_is_read(tmp_path: Path) -> None:
    nodes = {
        "a": {"op": "x", "children": [], "eclass": "7"},
        "b": {"op": "add", "children": ["a", "a"], "eclass": "3", "cost": 2.5},
    }
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"nodes": nodes, "root_eclasses": ["3"]}))
    egraph = EGraph.from_json(path)
    assert egraph.names == ("x", "add")
    assert egraph.children.tolist() == [0, 0]
    assert check(egraph, "portfolio").cost == 3.5
    path.write_text(json.dumps({"nodes": nodes, "root_eclasses": ["9"]}))
    with pytest.raises(ValueError, match="root '9' is no class"):
        EGraph.from_json(path)


def test_networkx_has_classes_and_enodes() -> None:
    graph = EGraph.build([(0, 1.0, []), (1, 2.0, [0, 0])], [1], names=["x", "add"]).to_networkx()
    assert set(graph.edges) == {
        (("class", 0), ("enode", 0)),
        (("class", 1), ("enode", 1)),
        (("enode", 1), ("class", 0)),
    }
    assert graph.nodes["enode", 1] == {"cost": 2.0, "name": "add"}
    assert graph.nodes["class", 1] == {"root": True}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: EGraph.build([(3, 1.0, [])], [], 2),
            r"e-node 0 lies in class 3; classes are 0\.\.1",
        ),
        (
            lambda: EGraph.build([(0, 1.0, []), (0, 1.0, [5])], [], 2),
            "e-node 1 has the child class 5",
        ),
        (lambda: EGraph.build([(0, 1.0, [])], [2], 2), "root class 2 is out of range"),
        (lambda: EGraph.build([(0, 1.0, [])], [-1]), "root class -1 is out of range"),
        (lambda: EGraph.build([(0, -1.0, [])], [0]), "e-node 0 costs -1.0"),
        (lambda: EGraph.build([(0, math.inf, [])], [0]), "e-node 0 costs inf"),
        (lambda: EGraph.build([(0, math.nan, [])], [0]), "e-node 0 costs nan"),
        (lambda: EGraph.build([(0, 1.0, [1]), (1, 1.0, [0])], [1]), "root class 1 has no finite"),
        (lambda: EGraph.build([(0, 1.0, [])], [1], 2), "root class 1 has no finite derivation"),
        (lambda: EGraph.build([(0, 1.0, [])], [0], names=["a", "b"]), "1 e-nodes but 2 names"),
        (lambda: arrays(child_ptr=[0, 2, 1]), "child_ptr must rise from 0 to 1 in 3 entries"),
        (lambda: arrays(node_cost=[1.0]), "2 e-nodes but 1 costs"),
    ],
)
def test_a_mistake_in_an_egraph_is_named(build: Callable[[], EGraph], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_ids_that_are_no_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="node_class holds float64"):
        arrays(node_class=[0.0, 1.0])


def arrays(
    node_class: Sequence[float] = (0, 1),
    node_cost: Sequence[float] = (1.0, 1.0),
    child_ptr: Sequence[int] = (0, 0, 1),
) -> EGraph:
    columns = map(np.array, (node_class, node_cost, child_ptr, (0,)))
    return EGraph(*columns, roots=(1,), num_classes=2)


def test_an_egraph_cannot_be_changed_from_outside() -> None:
    costs = np.array([1.0, 1.0])
    egraph = arrays(node_cost=costs)  # pyright: ignore[reportArgumentType] - an array is a sequence
    costs[0] = 9.0
    assert egraph.node_cost.tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        egraph.node_cost[0] = 9.0


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
