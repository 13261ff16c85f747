"""Every reduction keeps the optimum and the way back to it, and reduces what it is there for."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Mapping, Sequence

import pytest

from extract import EGraph, Status, dag_cost, judge
from extract.contract import (
    with_costs_raised,
    with_forced_roots,
    with_free_classes_inlined,
    with_free_groups_merged,
    with_single_uses_merged,
)
from extract.core import Core, restore
from extract.exact import branch_and_cut
from extract.loops import dominating, enclosed, strongly_connected
from extract.prepare import prepare, with_closed_solved
from extract.prune import derivable, reachable, without_dear, without_dominated, without_returns
from extract.selection import Selection, select
from extract.tree import tree

Reduction = Callable[[Core], Core]


def without_dear_ones(core: Core) -> Core:
    """Without what no selection uses that is as cheap as the cheapest."""
    return without_dear(core, optimum_of(core) * (1 + 1e-9))


def with_closed_parts_solved(core: Core) -> Core:
    return with_closed_solved(core, lambda part: solved(part).choice)


REDUCTIONS: tuple[Reduction, ...] = (
    derivable,
    reachable,
    without_returns,
    without_dominated,
    with_forced_roots,
    with_free_groups_merged,
    with_free_classes_inlined,
    with_costs_raised,
    with_single_uses_merged,
    without_dear_ones,
    with_closed_parts_solved,
)


@functools.cache
def random_egraph(seed: int) -> EGraph:
    """Mostly downward, with free views both ways, ways up, and a class that nothing derives."""
    rng = random.Random(seed)
    count = rng.choice([6, 12, 25])
    nodes: list[tuple[int, float, list[int]]] = [(0, 0.0, []), (1, 1.0, [])]
    for cls in range(2, count):
        low = max(0, cls - 6)
        for _ in range(rng.choice([1, 1, 2, 3])):
            kids = rng.sample(range(low, cls), min(cls - low, rng.choice([1, 1, 2, 3])))
            nodes.append((cls, float(rng.choice([0, 1, 2, 2, 5])), kids))
        if rng.random() < 0.3:
            kid = rng.randrange(low, cls)
            nodes += [(kid, rng.choice([0.0, 1.0]), [cls]), (cls, rng.choice([0.0, 2.0]), [kid])]
        if rng.random() < 0.1:
            nodes.append((cls, 0.0, [count]))
    return EGraph.build(nodes, rng.sample(range(2, count), 2), count + 1)


def solved(egraph: EGraph) -> Selection:
    answer = branch_and_cut(egraph, tree(egraph), time.perf_counter() + 20)
    assert answer.status is Status.OPTIMAL
    return answer


@functools.cache
def optimum(egraph: EGraph) -> float:
    return solved(egraph).cost


def optimum_of(core: Core) -> float:
    return solved(core.egraph()[0]).cost


def check(egraph: EGraph, cores: Sequence[Core], whole: Core) -> None:
    """The optima of `cores` and what `whole` pays make the optimum, and can be restored."""
    chosen: dict[int, int] = {}
    cost = whole.base
    for core in cores:
        part, classes, enodes = core.egraph()
        answer = solved(part)
        cost += answer.cost
        pairs = zip(classes, answer.choice.tolist(), strict=True)
        chosen |= {cls: enodes[enode] for cls, enode in pairs if enode >= 0}
    choice = restore(whole.steps, chosen, egraph.num_classes)
    assert cost == pytest.approx(optimum(egraph))
    assert dag_cost(egraph, choice) == pytest.approx(cost)
    judge(egraph, select(egraph, choice, method="restored", started=0.0))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_reduction_keeps_the_optimum(reduction: Reduction) -> None:
    fewer = 0
    for seed in range(100):
        egraph = random_egraph(seed)
        core = Core.of(egraph)
        if reduction is not derivable:
            core = derivable(core)
        if reduction not in (derivable, reachable):
            core = reachable(core)
        smaller = reduction(core)
        fewer += smaller.size != core.size or smaller.cost != core.cost
        smaller = derivable(smaller)
        check(egraph, [smaller], smaller)
    assert fewer > 1


def test_all_reductions_together_keep_the_optimum() -> None:
    for seed in range(100):
        egraph = random_egraph(seed)
        check(egraph, *prepare(egraph))
        check(egraph, *prepare(egraph, limit=optimum(egraph)))
        check(egraph, *prepare(egraph, limit=1.1 * tree(egraph).cost))


def core_of(*nodes: tuple[int, float, list[int]], roots: Sequence[int]) -> Core:
    return Core.of(EGraph.build(nodes, roots))


def left(core: Core) -> Mapping[int, tuple[int, ...]]:
    return core.members


def test_what_has_no_finite_derivation_goes() -> None:
    core = core_of((0, 1.0, []), (0, 0.0, [1]), (1, 0.0, [1]), (2, 1.0, [0]), roots=[2])
    assert left(derivable(core)) == {0: (0,), 2: (3,)}


def test_what_no_root_comes_to_goes() -> None:
    core = core_of((0, 1.0, []), (1, 1.0, [0]), (2, 1.0, [0]), roots=[1])
    assert left(reachable(core)) == {0: (0,), 1: (1,)}


def test_an_enode_that_needs_its_own_class_goes() -> None:
    core = core_of((0, 1.0, []), (0, 0.0, [0]), roots=[0])
    assert left(without_returns(core)) == {0: (0,)}


def test_an_enode_whose_child_is_above_it_everywhere_goes() -> None:
    core = core_of((0, 1.0, []), (0, 0.0, [1]), (1, 1.0, [0]), (1, 9.0, []), roots=[1])
    assert left(without_returns(core)) == {0: (0,), 1: (2, 3)}


def test_an_enode_whose_child_needs_its_class_below_goes() -> None:
    nodes = [(0, 1.0, []), (0, 0.0, [1]), (1, 1.0, [0]), (2, 1.0, [0, 1])]
    core = core_of(*nodes, roots=[0, 2])
    assert left(without_returns(core)) == {0: (0,), 1: (2,), 2: (3,)}


def test_an_enode_goes_if_a_cheaper_one_needs_less() -> None:
    nodes = [
        (0, 1.0, []),
        (1, 1.0, []),
        (2, 2.0, [0, 1]),
        (2, 2.0, [0]),
        (2, 1.0, [1]),
        (3, 1.0, []),
    ]
    alone = [(3, 0.0, [2])]
    core = core_of(*nodes, *alone, roots=[3])
    assert left(without_dominated(core))[2] == (3, 4)


def test_an_enode_goes_if_another_needs_what_it_needs_further_down() -> None:
    nodes = [(0, 1.0, []), (1, 1.0, [0]), (2, 2.0, [1]), (2, 2.0, [0]), (3, 9.0, []), (3, 1.0, [2])]
    core = core_of(*nodes, roots=[3])
    assert left(without_dominated(core))[2] == (3,)


def test_a_dearer_enode_does_not_push_out_a_cheaper_one() -> None:
    core = core_of(
        (0, 1.0, []), (1, 2.0, [0]), (1, 3.0, []), (2, 1.0, [1]), (2, 9.0, []), roots=[2]
    )
    assert left(without_dominated(core))[1] == (1, 2)


def test_a_class_in_every_selection_is_settled_and_costs_no_more() -> None:
    nodes = [(0, 5.0, []), (1, 1.0, [0]), (1, 1.5, [0]), (2, 1.0, [1, 0])]
    core = with_forced_roots(core_of(*nodes, roots=[2]))
    assert left(core) == {1: (1, 2)}
    assert (core.roots, core.base, core.kids) == ((1,), 6.0, {1: (), 2: ()})


def test_an_edge_to_a_forced_class_stays_where_a_cycle_could_pass() -> None:
    nodes = [(0, 1.0, [1]), (0, 8.0, []), (1, 1.0, [0]), (1, 8.0, []), (2, 0.0, [0, 1])]
    core = with_forced_roots(core_of(*nodes, roots=[2]))
    assert core.roots == (0, 1)
    assert core.kids == {0: (1,), 1: (), 2: (0,), 3: ()}


def test_a_ring_of_views_becomes_one_class() -> None:
    ring = [(0, 0.0, [2]), (1, 0.0, [0]), (2, 0.0, [1])]
    core = core_of(*ring, (0, 3.0, []), (2, 2.0, []), (3, 1.0, [0, 1]), (1, 4.0, [2]), roots=[3])
    merged = with_free_groups_merged(core)
    assert left(merged) == {0: (3, 4), 3: (5,)}
    assert merged.kids[5] == (0,)
    assert restore(merged.steps, {0: 4, 3: 5}, 4).tolist() == [0, 1, 4, 5]


def test_a_chain_of_views_of_a_root_disappears() -> None:
    core = core_of((0, 3.0, []), (1, 0.0, [0]), (2, 0.0, [1]), (3, 0.0, []), roots=[2, 3])
    inlined = with_free_classes_inlined(core)
    assert left(inlined) == {0: (0,)}
    assert inlined.roots == (0,)
    assert restore(inlined.steps, {0: 0}, 4).tolist() == [0, 1, 2, 3]


def test_a_free_class_with_two_children_gives_them_to_its_users() -> None:
    nodes = [(0, 3.0, []), (1, 2.0, []), (2, 0.0, [0, 1]), (3, 1.0, [2]), (3, 9.0, [])]
    inlined = with_free_classes_inlined(core_of(*nodes, (4, 1.0, [2, 3]), roots=[4]))
    assert left(inlined) == {0: (0,), 1: (1,), 3: (3, 4), 4: (5,)}
    assert inlined.kids == {0: (), 1: (), 3: (0, 1), 4: (), 5: (0, 1, 3)}
    assert restore(inlined.steps, {0: 0, 1: 1, 3: 3, 4: 5}, 5).tolist() == [0, 1, 2, 3, 5]


def test_what_a_class_costs_at_least_is_paid_where_it_is_needed() -> None:
    nodes = [(0, 3.0, []), (0, 5.0, []), (1, 1.0, [0]), (1, 9.0, []), (2, 0.0, [1])]
    raised = with_costs_raised(core_of(*nodes, roots=[2]))
    assert list(raised.cost) == [0.0, 2.0, 0.0, 5.0, 4.0]


def test_two_classes_that_only_need_each_other_become_one() -> None:
    nodes = [(0, 3.0, []), (1, 1.0, [0]), (2, 1.0, [1]), (2, 4.0, []), (3, 1.0, [2, 2])]
    merged = with_single_uses_merged(core_of(*nodes, roots=[3]))
    assert left(merged) == {2: (2, 3), 3: (4,)}
    assert (merged.kids[2], merged.cost[2]) == ((), 5.0)
    assert restore(merged.steps, {2: 2, 3: 4}, 4).tolist() == [0, 1, 2, 4]


def test_an_enode_too_dear_for_the_limit_goes_with_its_path() -> None:
    nodes = [(0, 5.0, []), (1, 3.0, [0]), (1, 6.0, []), (2, 1.0, [1]), (3, 2.0, []), (3, 1.0, [1])]
    core = core_of(*nodes, roots=[2, 3])
    assert left(without_dear(core, 9.5))[1] == (2,)
    assert left(without_dear(core, 11.0)) == left(core)


def test_a_part_that_one_class_closes_off_becomes_a_leaf() -> None:
    inside = [(0, 4.0, []), (0, 2.0, [1]), (1, 1.0, []), (2, 1.0, [0, 1]), (2, 9.0, [])]
    core = core_of(*inside, (3, 2.0, [2]), (3, 7.0, []), roots=[3])
    closed = with_closed_parts_solved(core)
    assert left(closed) == {2: (3,), 3: (5, 6)}
    assert (closed.kids[3], closed.cost[3]) == ((), 4.0)
    assert restore(closed.steps, {2: 3, 3: 5}, 4).tolist() == [1, 2, 3, 5]


def test_enclosed_parts_agree_with_their_definition() -> None:
    for seed in range(60):
        core = reachable(derivable(Core.of(random_egraph(seed))))
        graph = core.successors
        closing = {
            top: frozenset(without(graph, {top}, -1))
            for top in graph
            if top not in core.roots and len(without(graph, {top}, -1)) > 1
        }
        closing = {
            top: inside
            for top, inside in closing.items()
            if not inside & without(graph, set(core.roots), top)
        }
        inner = {t: i for t, i in closing.items() if not any(o in i for o in closing if o != t)}
        assert dict(enclosed(graph, core.roots)) == inner, seed


def test_layers_between_forced_classes_fall_apart() -> None:
    nodes: list[tuple[int, float, list[int]]] = [(0, 1.0, [])]
    for low in range(0, 30, 3):
        a, b, high = low + 1, low + 2, low + 3
        nodes += [(a, 5.0, [low]), (a, 2.0, [b]), (b, 4.0, [low]), (b, 2.0, [a])]
        nodes += [(high, 1.0, [a, low]), (high, 0.5, [b, low])]
    parts, whole = prepare(EGraph.build(nodes, [30]))
    assert len(parts) == 10
    assert whole.base == 1.0


def test_components_come_children_first() -> None:
    graph = {0: [1], 1: [2], 2: [1, 3], 3: [], 4: [0, 4]}
    found = [sorted(component) for component in strongly_connected(graph)]
    assert found == [[3], [1, 2], [0], [4]]


def test_dominators_agree_with_their_definition() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        graph = {cls: rng.sample(range(8), rng.choice([1, 1, 2])) for cls in range(8)}
        for loop in strongly_connected(graph):
            entered = set(rng.sample(loop, min(2, len(loop))))
            pairs = {
                (cls, child)
                for cls in loop
                for child in graph[cls]
                if child in loop and child != cls and cls not in without(graph, entered, child)
            }
            assert set(dominating(graph, loop, entered)) == pairs, seed


def without(graph: Mapping[int, Sequence[int]], entered: set[int], removed: int) -> set[int]:
    """What can be come to when a class is removed."""
    seen = entered - {removed}
    waiting = sorted(seen)
    for cls in waiting:
        fresh = [child for child in graph[cls] if child not in seen and child != removed]
        seen.update(fresh)
        waiting += fresh
    return seen


def test_what_is_required_agrees_with_its_definition() -> None:
    for seed in range(40):
        core = reachable(derivable(Core.of(random_egraph(seed))))
        for cls in core.members:
            bits = core.required[cls]
            for other in core.members:
                part = core.only(core.members.keys() - {other})
                assert bool(bits >> core.place[other] & 1) == (cls not in part.order), (seed, cls)


def test_numbers_beyond_the_limit_of_sets_are_still_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extract.prepare.SETS_LIMIT", 4)
    for seed in range(10):
        egraph = random_egraph(seed)
        check(egraph, *prepare(egraph))
