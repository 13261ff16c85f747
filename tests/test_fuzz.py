"""Random programs, saturated together with all rules: every member of every class is computed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import rewrites
from benchmarks.fuzzing.batch import blame, examine, problem_of, way_of
from benchmarks.fuzzing.programs import ALL, Plan, generate, plan_of
from benchmarks.fuzzing.selections import Way, ways
from benchmarks.fuzzing.shrink import explain
from benchmarks.fuzzing.source import Leaf, Source, Step
from benchmarks.fuzzing.verdict import verdict
from eqsat.rewrite import Rewrite

PROGRAMS = 2_000
BATCH = 100  # programs that are saturated together
OPTIONS = settings(
    max_examples=2 * PROGRAMS // BATCH,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of small programs without writes, of steps of all kinds or of a few."""
    kinds = draw(st.one_of(st.just(ALL), st.sets(st.sampled_from(ALL), min_size=1, max_size=3)))
    seed, steps = draw(st.integers(0, 99_999)), draw(st.integers(3, 7))
    wild = draw(st.integers(0, 9)) == 9
    return Plan(seed, steps, tuple(sorted(kinds)), writes=False, wild=wild)


def test_all_members_of_a_class_are_equal_in_two_thousand_programs() -> None:
    known: set[Plan] = set()
    operators: Counter[str] = Counter()
    fired: Counter[str] = Counter()
    computed = 0

    @OPTIONS
    @given(st.lists(plans(), min_size=BATCH, max_size=BATCH, unique=True))
    def run(batch: list[Plan]) -> None:
        nonlocal computed
        new = [plan for plan in batch if plan not in known]
        if len(known) >= PROGRAMS:
            return
        number = len(known) // BATCH
        way = way_of(number)
        seen = examine([generate(plan) for plan in new], way, select=number % 3 == 0)
        assert not seen.faults, "\n\n".join(map(str, blame(seen, way))) or seen.faults
        known.update(new)
        operators.update(seen.operators)
        fired.update(seen.rules)
        computed += seen.computed

    run()
    silent = [rule.name for rule in rewrites.DEFAULT if not fired[rule.name]]
    assert len(known) >= PROGRAMS
    assert len(operators) >= 300
    assert computed >= 100_000
    assert len(silent) <= 0.1 * len(rewrites.DEFAULT), silent
