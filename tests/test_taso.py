"""Every rule of TASO holds as it is written, and the rules that the page names derive it."""

from __future__ import annotations

import doctest
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from benchmarks.taso import PAGE, RULES, Sides, filled, known, sides_of
from tests.taso import LAWS, Law

TEXT = PAGE.read_text(encoding="utf-8")
KNOWN = known(TEXT)
RULE = {rule.name: rule for rule in RULES}
UNSOUND = tuple(law for law in LAWS if law.counter)
each_law = pytest.mark.parametrize("law", LAWS, ids=[law.number for law in LAWS])
each_unsound_law = pytest.mark.parametrize("law", UNSOUND, ids=[law.number for law in UNSOUND])


def derived(sides: Sides, names: Sequence[str]) -> bool:
    """Whether the rules of these names lead from the left side to the right one."""
    return sides.derived([RULE[name] for name in names])


def equal(law: Law, shapes: str) -> bool:
    """Whether the sides have equal values on random tensors of these shapes."""
    left, right = (
        side if isinstance(side, tuple) else (side,)
        for side in law.sides(*law.values(shapes).values())
    )
    pairs: list[tuple[Tensor, Tensor]] = list(zip(left, right, strict=True))
    assert all(a.shape == b.shape for a, b in pairs)
    return all(torch.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in pairs)


def test_every_rule_has_its_number() -> None:
    numbers = [law.number for law in LAWS]
    assert max(Counter(numbers).values()) == 1
    assert numbers[:120] == [str(i) for i in range(120)]
    assert numbers[120:133] == [f"multi {i}" for i in range(13)]
    assert numbers[133:] == [*(f"merge {i}" for i in range(4)), "enlarge 0", "enlarge 1"]


@each_law
def test_both_sides_are_equal_under_the_condition(law: Law) -> None:
    assert equal(law, law.shapes)


@each_law
def test_the_rules_named_derive_it_and_none_of_them_is_idle(law: Law) -> None:
    names, sides = KNOWN[law.number], sides_of(law, law.shapes)
    assert derived(sides, names)
    for name in names:
        assert not derived(sides, [other for other in names if other != name]), name


@each_unsound_law
def test_an_unsound_rule_has_a_counterexample_where_none_of_our_rules_derives_it(law: Law) -> None:
    assert not equal(law, law.counter)
    sides = sides_of(law, law.counter)
    assert not sides.derived(())
    assert not sides.derived(RULES)


def test_unsound_rules_are_those_that_move_channels_between_groups() -> None:
    numbers = {law.number for law in UNSOUND}
    single = {"90", "91", "92", "97", "114", "115", "116", "117", "118"}
    assert numbers == single | {"multi 11", "multi 12", "enlarge 0", "enlarge 1"}


def test_the_page_says_what_is_tested() -> None:
    assert filled(TEXT, KNOWN) == TEXT
    assert doctest.script_from_examples(TEXT)
