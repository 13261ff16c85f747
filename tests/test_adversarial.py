"""Programs that broke other optimizers come out of ours as they went in, or are refused."""

import functools
from typing import Any

import oracle
import pytest
import torch
from adversarial.catalogue import NAMED, PROGRAMS, SMALL
from adversarial.program import Program, capture, compare, expected, observations
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import eqsat
from eqsat.settings import ALWAYS

MODES: dict[str, dict[str, Any]] = {  # what `optimize` is told
    "default": {},
    "no-rules": {"rules": ()},
    "strict": {"numerics": "strict"},
}
REFUSED = {"trained-table": "would lose gradients"}  # and what the refusal says
KEPT = {"written-views": "functional"}  # returned as given, and what the report says of it
OPTIMIZED = [program for program in SMALL if program.name not in REFUSED]


@functools.cache
def reference(name: str) -> tuple[oracle.Observation, ...]:
    """What the program shows as it was given, that is, exported."""
    return expected(NAMED[name])


@functools.cache
def optimized(name: str, mode: str) -> tuple[nn.Module, eqsat.Result]:
    """The program's module, and what became of it."""
    module = NAMED[name].fresh()
    return module, optimize(NAMED[name], module, *NAMED[name].call(0), mode=mode)


def optimize(
    program: Program,
    module: nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    mode: str = "default",
) -> eqsat.Result:
    """The module optimized, with gradients on only where the program needs them."""
    with torch.set_grad_enabled(program.gradients):
        return eqsat.optimize(
            module,
            args,
            kwargs,
            dynamic_shapes=program.dynamic_shapes,
            margin=ALWAYS,
            **MODES[mode],
        )


def check(program: Program, mode: str) -> eqsat.Result:
    """Optimizing changes nothing that a caller can see."""
    module, result = optimized(program.name, mode)
    got = observations(program, module, result.module)
    strict = mode != "default"
    assert compare(program, reference(program.name), got, strict=strict) == []
    return result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", OPTIMIZED, ids=repr)
def test_result_does_what_was_given(program: Program, mode: str) -> None:
    check(program, mode)


def test_a_deep_and_wide_program_is_optimized_within_its_limits() -> None:
    result = check(NAMED["deep-and-wide"], "default")
    report = result.report
    assert sum(report.operators_after.values()) <= sum(report.operators_before.values())
    assert report.saturation is not None


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_out_of_scope_is_refused_with_the_reason(name: str) -> None:
    program = NAMED[name]
    with pytest.raises(ValueError, match=REFUSED[name]):
        optimize(program, program.fresh(), *program.call(0))


@pytest.mark.parametrize("program", OPTIMIZED, ids=repr)
def test_a_program_is_kept_as_given_only_where_expected(program: Program) -> None:
    kept = optimized(program.name, "default")[1].report.kept
    assert (kept is not None) == (program.name in KEPT), kept
    assert kept is None or KEPT[program.name] in kept


@pytest.mark.parametrize("program", OPTIMIZED, ids=repr)
def test_optimizing_leaves_module_inputs_and_generator_alone(program: Program) -> None:
    module, twin, given = program.fresh(), program.fresh(), program.call(0)
    generator = torch.random.get_rng_state()
    optimize(program, module, *given)
    assert torch.equal(generator, torch.random.get_rng_state())
    assert bits(given) == bits(program.call(0))
    assert bits(oracle.state_of(module)) == bits(oracle.state_of(twin))
    assert module.training is twin.training


def bits(tree: object) -> list[str]:
    """The values, NaN included, of the tensors in a tree."""
    leaves = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
    return [f"{leaf.dtype} {leaf.stride()} {leaf.tolist()}" for leaf in leaves]


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
def test_the_given_program_passes_its_own_comparison(program: Program) -> None:
    module = program.fresh()
    exported = capture(program, module).module()
    got = observations(program, module, exported)
    assert compare(program, reference(program.name), got, strict=True) == []
