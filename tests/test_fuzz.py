"""A short run of the random programs of benchmarks/fuzz.py."""

from __future__ import annotations

import pytest

import rewrites
from benchmarks.fuzzing.programs import generate
from benchmarks.fuzzing.selections import Way, ways
from benchmarks.fuzzing.shrink import explain
from benchmarks.fuzzing.source import Leaf, Source, Step
from benchmarks.fuzzing.verdict import verdict
from eqsat.rewrite import Rewrite


@pytest.mark.parametrize("seed", range(0, 40, 10))
def test_random_programs_keep_their_meaning(seed: int) -> None:
    captured = 0
    for number in range(seed, seed + 10):
        source = generate(number)
        problem = verdict(source, ways(number)[0])
        assert not problem, f"{problem}\n\n{source}"
        captured += problem is not None
    assert captured >= 5


def test_a_wrong_rule_is_found_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Rewrite("neg-is-nothing", lambda x: (-x, x))
    monkeypatch.setattr(rewrites, "DEFAULT", (*rewrites.DEFAULT[:3], wrong))
    leaf = Leaf("i0", "input", "torch.randn(3, dtype=torch.float64)")
    steps = (Step("v0", "v0 = i0 + 1", ("i0",)), Step("v1", "v1 = -v0", ("v0",)))
    source = Source((leaf,), steps, ("v1",))
    way = Way("random", "default", 0)
    problem = verdict(source, way)
    assert problem
    shown = explain(source, way, problem)
    assert "rules: neg-is-nothing\n" in shown
    assert "v0 = i0 + 1" not in shown
