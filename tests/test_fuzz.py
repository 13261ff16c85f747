"""A short run of the random programs of benchmarks/fuzz.py."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).parent.parent / "benchmarks" / "fuzz.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("fuzz", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module
    spec.loader.exec_module(module)
    return module


fuzz = _load()


@pytest.mark.parametrize("seed", range(0, 40, 10))
def test_random_programs_keep_their_meaning(seed: int) -> None:
    captured = 0
    for number in range(seed, seed + 10):
        source = fuzz.Generator(number).program()
        problem = fuzz.verdict(source, fuzz.ways(number)[0])
        assert not problem, f"{problem}\n\n{source}"
        captured += problem is not None
    assert captured >= 5


def test_a_wrong_rule_is_found_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = fuzz.Rewrite("neg-is-nothing", lambda x: (-x, x))
    monkeypatch.setattr(fuzz.rewrites, "DEFAULT", (*fuzz.rewrites.DEFAULT[:3], wrong))
    leaf = fuzz.Leaf("i0", "input", "torch.randn(3, dtype=torch.float64)")
    steps = (fuzz.Step("v0", "v0 = i0 + 1", ("i0",)), fuzz.Step("v1", "v1 = -v0", ("v0",)))
    source = fuzz.Source((leaf,), steps, ("v1",))
    way = fuzz.Way("random", "default", 0)
    problem = fuzz.verdict(source, way)
    assert problem
    shown = fuzz.explain(source, way, problem)
    assert "rules: neg-is-nothing\n" in shown
    assert "v0 = i0 + 1" not in shown
