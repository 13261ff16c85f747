"""Every rule that ships is run: both sides on real tensors, and once in an e-graph."""

from __future__ import annotations

import functools
import importlib
import pkgutil

import pytest

import rewrites
from eqsat.rewrite import Rewrite
from eqsat.verify.filling import STYLES
from eqsat.verify.samples import Sample, Sampler
from eqsat.verify.sides import counterexample
from eqsat.verify.verdict import parts
from eqsat.verify.witness import count

ENOUGH = 10  # samples without which a rule does not count as tested
SAMPLES = 12
BUDGET = 6000  # attempts


def discover() -> tuple[Rewrite, ...]:
    """The rules of every tuple in every module of the package."""
    found: dict[int, Rewrite] = {}
    for module in pkgutil.iter_modules(rewrites.__path__):
        for value in vars(importlib.import_module(f"rewrites.{module.name}")).values():
            if isinstance(value, tuple):
                found.update((id(rule), rule) for rule in value if isinstance(rule, Rewrite))
    return tuple(found.values())


RULES = {rule.name: rule for rule in parts(discover())}
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())


@functools.cache
def samples(name: str) -> tuple[Sample, ...]:
    """Samples of a rule, drawn once for all tests."""
    return tuple(Sampler(RULES[name]).take(SAMPLES, BUDGET))


def test_names_are_unique() -> None:
    assert len({rule.name for rule in discover()}) == len(discover())


def test_the_default_set_holds_every_rule_once() -> None:
    shipped = (*rewrites.DEFAULT, *rewrites.TASO)
    assert sorted(rule.name for rule in shipped) == sorted(rule.name for rule in discover())


@each_rule
def test_both_sides_are_equal(rule: Rewrite) -> None:
    taken = samples(rule.name)
    assert len(taken) >= ENOUGH, f"{rule}: only {len(taken)} samples in {BUDGET} attempts"
    for seed, sample in enumerate(taken):
        for style in STYLES[rule.numerics]:
            found = counterexample(rule, sample, style, seed)
            assert found is None, f"{rule} ({rule.numerics.name}): {found}"


@each_rule
def test_it_fires_in_the_egraph_of_its_left_side(rule: Rewrite) -> None:
    refusals: list[str] = []
    for sample in samples(rule.name):
        try:
            done = count(rule, sample)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            refusals.append(f"{error} with {sample}")
            continue
        if done.admitted:
            return
        refusals.append(f"{done.matches} matches, {done.reason or 'none refused'} with {sample}")
    pytest.fail(f"{rule}: never united its sides; {'; '.join(refusals[:3])}")
