"""Planted mistakes are found, whoever plants them, and sound changes raise no alarm."""

import functools
from collections.abc import Callable

import oracle
import pytest
from adversarial.catalogue import NAMED, SMALL
from adversarial.graph_pass import Pass
from adversarial.planted import WRONG_META, WRONG_VALUE, Planted
from adversarial.program import Program, capture, compare, expected, observations
from adversarial.sound import SOUND
from adversarial.unsound import UNSOUND
from torch import Tensor, nn

import eqsat
import rewrites
from eqsat.check import check
from eqsat.settings import ALWAYS

# What no call without gradients, on inputs of the example's shapes and integers, can show.
SHOWN_BY_OTHER_CALLS = {"size-fixed", "assertions-dropped", "gradients-kept"}


@functools.cache
def reference(name: str) -> tuple[oracle.Observation, ...]:
    """What the unchanged program shows."""
    return expected(NAMED[name])


def differences(program: Program, change: Pass) -> list[str] | None:
    """What the oracle says of the changed program; None if the change finds nothing to do."""
    module = program.fresh()
    graph = capture(program, module).module()
    if not change.apply(graph):
        return None
    return compare(program, reference(program.name), observations(program, module, graph))


@pytest.mark.parametrize("change", UNSOUND, ids=repr)
def test_unsound_pass_is_found(change: Pass) -> None:
    found = differences(NAMED[change.shown_by], change)
    assert found is not None, "the program no longer invites this mistake"
    assert found


@pytest.mark.parametrize("change", SOUND, ids=repr)
def test_sound_pass_raises_no_alarm(change: Pass) -> None:
    found = {program.name: differences(program, change) for program in SMALL}
    applied = {name: lines for name, lines in found.items() if lines is not None}
    assert applied
    assert not any(applied.values()), applied


@pytest.mark.parametrize("program", SMALL, ids=repr)
def test_every_small_program_shows_some_mistake(program: Program) -> None:
    assert any(change.shown_by == program.name for change in UNSOUND)


@pytest.mark.parametrize("change", UNSOUND, ids=repr)
def test_unsound_pass_fails_the_check(change: Pass) -> None:
    program = NAMED[change.shown_by]
    given, changed = (capture(program, program.fresh()).module() for _ in range(2))
    change.apply(changed)
    passed = check(given, changed, *program.call(0)).passed
    assert passed == (change.name in SHOWN_BY_OTHER_CALLS)


@pytest.mark.parametrize("planted", WRONG_VALUE, ids=repr)
def test_unsound_rewrite_ends_with_the_given_program(planted: Planted) -> None:
    result = optimize(planted)
    assert result.report.check is not None
    assert not result.report.check.passed
    assert result.report.kept is not None
    same(planted, result)


@pytest.mark.parametrize("planted", WRONG_META, ids=repr)
def test_rewrite_that_changes_shape_or_dtype_is_refused(planted: Planted) -> None:
    result = optimize(planted)
    assert result.report.saturation is not None
    counts = {count.name: count for count in result.report.saturation.rules}
    count = counts[planted.rewrite.name]
    assert (count.matches > 0, count.admitted) == (True, 0)
    assert count.refused > 0
    assert count.reason
    same(planted, result)


def optimize(planted: Planted) -> eqsat.Result:
    """The planted function optimized with the wrong rewrite among the default ones."""
    rules = (*rewrites.DEFAULT, planted.rewrite)
    module = Called(planted.function)
    return eqsat.optimize(
        module, planted.inputs(), rules=rules, numerics=planted.numerics, margin=ALWAYS
    )


def same(planted: Planted, result: eqsat.Result) -> None:
    """The result is, bit for bit, what was given."""
    module = Called(planted.function)
    before = oracle.observe(module, planted.inputs(), {}, module=module)
    after = oracle.observe(result.module, planted.inputs(), {}, module=module)
    assert oracle.differences(before, after) == ()


class Called(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)
