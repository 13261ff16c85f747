"""An e-graph checks what it is made of, and goes to files and graphs and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fuzzing.egraphs import random_egraph
from extract import EXTRACTORS, EGraph


@pytest.mark.parametrize("name", ["egraph.json", "egraph.json.gz"])
def test_json_gives_the_egraph_back(tmp_path: Path, name: str) -> None:
    for seed in range(20):
        egraph = random_egraph(seed)
        if not all(egraph.members[child] for child in egraph.children):
            continue
        egraph.to_json(tmp_path / name)
        again = EGraph.from_json(tmp_path / name)
        assert (again.roots, again.num_classes) == (egraph.roots, egraph.num_classes)
        for array in ("node_class", "node_cost", "child_ptr", "children"):
            assert getattr(again, array).tolist() == getattr(egraph, array).tolist(), array
    packed = (tmp_path / name).read_bytes()[:2] == b"\x1f\x8b"
    assert packed == name.endswith(".gz")


def test_a_child_class_without_enodes_cannot_be_written(tmp_path: Path) -> None:
    egraph = EGraph.build([(0, 1.0, []), (0, 1.0, [1])], [0], 2)
    with pytest.raises(ValueError, match="e-node 1 has the child class 1, which has no e-node"):
        egraph.to_json(tmp_path / "egraph.json")


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
    assert EXTRACTORS["tree"].extract(egraph).cost == 3.5
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
