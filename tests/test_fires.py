"""Every default rule fires in a small program of a real model, which stays equal."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from programs import PROGRAMS, Program

import eqsat
import rewrites
from eqsat.settings import ALWAYS

TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 5e-2}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_the_rules_that_a_program_claims_fire_and_it_stays_equal(program: Program) -> None:
    module, inputs = program.build()
    with torch.no_grad():
        result = eqsat.optimize(
            module, inputs, numerics=program.numerics, margin=ALWAYS, extractor="greedy-dag"
        )
        tolerance = TOLERANCE[program.dtype]
        torch.testing.assert_close(
            result.module(*inputs), module(*inputs), rtol=tolerance, atol=tolerance
        )
    assert result.report.kept is None
    assert result.report.saturation is not None
    fired = {rule.name for rule in result.report.saturation.rules if rule.admitted}
    assert set(program.rules) <= fired


def test_every_default_rule_has_one_witness() -> None:
    claims = Counter(rule for program in PROGRAMS.values() for rule in program.rules)
    assert claims == Counter(rule.name for rule in rewrites.DEFAULT)


def test_every_program_is_a_witness() -> None:
    assert [name for name, program in PROGRAMS.items() if not program.rules] == []
