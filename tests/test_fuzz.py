"""Random programs, saturated together with all rules: every member of every class is computed."""

from __future__ import annotations

from collections import Counter

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import rewrites
from benchmarks.fuzzing.batch import blame, examine, way_of
from benchmarks.fuzzing.programs import ALL, Plan, generate, plan_of
from benchmarks.fuzzing.selections import Way, ways
from benchmarks.fuzzing.shrink import explain
from benchmarks.fuzzing.source import Leaf, Source, Step
from benchmarks.fuzzing.verdict import verdict
from eqsat.rewrite import Rewrite

PARTS, BATCHES, BATCH = 2, 2, 200  # 800 programs, 200 of them saturated together
STEPS = (4, 3, 5, 2)
NUMBERS = 2_500  # of programs, in each part others
SELECTED = 3  # one batch in so many is also decoded


@st.composite
def kinds(draw: st.DrawFn) -> tuple[str, ...]:
    """What the steps of a program are: of all kinds or of a few."""
    return tuple(sorted(draw(st.sets(st.sampled_from(ALL), min_size=1))))


def drawn(part: int) -> list[Plan]:
    """The plans of a part: small programs without writes, each of its own number."""
    found: dict[int, Plan] = {}

    @hypothesis.seed(part)
    @hypothesis.settings(
        max_examples=BATCHES * BATCH,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate,),
        suppress_health_check=list(hypothesis.HealthCheck),  # a busy machine is no failure
    )
    @hypothesis.given(
        kinds(), st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, NUMBERS - 1)
    )
    def draw(kinds: tuple[str, ...], steps: int, wild: int, seed: int) -> None:
        while seed in found:
            seed = (seed + 1) % NUMBERS
        found[seed] = Plan(PARTS * seed + part, steps, kinds, writes=False, wild=wild == 9)

    draw()
    return list(found.values())


@pytest.mark.parametrize("part", range(PARTS))
def test_all_members_of_a_class_are_equal_in_hundreds_of_programs(part: int) -> None:
    operators: Counter[str] = Counter()
    fired: Counter[str] = Counter()
    computed = programs = 0
    known = drawn(part)
    for number in range(BATCHES):
        way = way_of(part * BATCHES + number)
        batch = [generate(plan) for plan in known[number * BATCH : (number + 1) * BATCH]]
        seen = examine(batch, way, select=way.seed % SELECTED == 0)
        assert not seen.fault, "\n\n".join(map(str, blame(seen, way)))
        programs += len(seen.sources)
        operators.update(seen.operators)
        fired.update(seen.rules)
        computed += seen.computed
    assert programs >= 0.95 * BATCHES * BATCH
    assert len(operators) >= 200
    assert len(fired) >= 0.4 * len(rewrites.DEFAULT)
    assert computed >= 15_000


@pytest.mark.parametrize("seed", range(0, 12, 6))
def test_programs_that_write_keep_their_meaning_from_export_to_extraction(seed: int) -> None:
    problems = [verdict(generate(plan_of(n)), ways(n)[0]) for n in range(seed, seed + 6)]
    assert not any(problems)
    assert sum(problem is not None for problem in problems) >= 4


WRONG = Rewrite("neg-is-nothing", lambda x: (-x, x))
WITHOUT_NAN = Rewrite(
    "relu-without-nan", lambda x: (torch.relu(x), torch.where(torch.gt(x, 0), x, 0.0))
)
LEAF = Leaf("i0", "input", "torch.randn(64, dtype=torch.float64)")


def test_a_wrong_rule_is_found_among_all_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrites, "DEFAULT", rewrites.DEFAULT + [WRONG])
    way = Way("members", "default", 0)
    batch = [generate(Plan(n, 3, ("catalogue", "pointwise"), writes=False)) for n in range(24)]
    (finding,) = blame(examine(batch, way), way)
    assert finding.way.rules is not None
    assert WRONG.name in finding.way.rules
    assert len(finding.way.rules) <= 2
    assert len(finding.source.steps) <= 2
    assert f"rules: {', '.join(finding.way.rules)}\n" in str(finding)


def test_a_rule_that_is_wrong_on_nan_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrites, "DEFAULT", rewrites.DEFAULT + [WITHOUT_NAN])
    source = Source((LEAF,), (Step("v0", "v0 = torch.relu(i0)", ("i0",)),), ("v0",))
    seen = examine([source], Way("members", "default", 1))
    assert "nan inputs" in seen.fault


def test_a_wrong_rule_is_found_in_what_is_extracted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrites, "DEFAULT", (*rewrites.DEFAULT[:3], WRONG))
    steps = (Step("v0", "v0 = i0 + 1", ("i0",)), Step("v1", "v1 = -v0", ("v0",)))
    source, way = Source((LEAF,), steps, ("v1",)), Way("random", "default", 0)
    problem = verdict(source, way)
    assert problem
    shown = str(explain(source, way, problem, verdict))
    assert "rules: neg-is-nothing\n" in shown
    assert "v0 = i0 + 1" not in shown
