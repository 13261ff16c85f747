"""Greedy searches: Inductor's order and semantics over the same rules, and no wrong result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from programs import PROGRAMS
from torch import Tensor, nn

import eqsat
import rewrites
from eqsat.rewrite import ROUNDING, Rewrite
from eqsat.settings import ALWAYS

N = 256


class Function(nn.Module):
    """A function of tensors as a program."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def square(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Random operands."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def optimized(
    function: Callable[..., Any], args: tuple[Tensor, ...], search: str, **options: Any
) -> eqsat.Result:
    """The result of a search, whatever is predicted of it."""
    result = eqsat.optimize(Function(function), args, search=search, margin=ALWAYS, **options)
    assert result.report.kept is None, result.report.kept
    return result


def seconds(result: eqsat.Result) -> float:
    """What is predicted of the result."""
    assert result.report.after is not None
    return result.report.after.seconds


def applied(result: eqsat.Result) -> dict[str, int]:
    """How often each rule was applied."""
    assert result.report.saturation is not None
    return {rule.name: rule.admitted for rule in result.report.saturation.rules if rule.admitted}


@pytest.mark.parametrize("search", ["greedy", "fixpoint"])
def test_a_cheaper_order_of_products_is_found_in_a_sweep(search: str) -> None:
    result = optimized(lambda a, b, v: (a @ b) @ v, square((N, N), (N, N), (N, 1)), search)
    assert applied(result) == {"matmul-associate": 1}


def test_the_first_match_takes_what_the_next_one_needed() -> None:
    def function(x: Tensor, v: Tensor, w: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return x @ v + b + c + x @ w

    args = square((2048, 2048), (2048, 2048), (2048, 2048), (2048,), (2048,))
    found = {
        s: seconds(optimized(function, args, s, check=False)) for s in ("greedy", "saturation")
    }
    assert found["saturation"] < 0.8 * found["greedy"]


def test_a_sweep_leaves_alone_what_has_another_reader() -> None:
    def function(a: Tensor, b: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return (a @ b) @ v, torch.exp(a @ b)

    args = square((4096, 16), (16, 4096), (4096, 1))
    rules = [r for r in rewrites.DEFAULT if r.name == "matmul-associate"]
    options: dict[str, Any] = {"rules": rules, "check": False}
    assert applied(optimized(function, args, "greedy", **options)) == {}
    found = optimized(function, args, "fixpoint", **options)
    assert applied(found) == {"matmul-associate": 1}


def test_rules_that_undo_each_other_come_to_an_end() -> None:
    rules = [
        Rewrite("there", lambda x: (torch.relu(-x), -torch.clamp(x, max=0.0)), numerics=ROUNDING),
        Rewrite("back", lambda x: (-torch.clamp(x, max=0.0), torch.relu(-x)), numerics=ROUNDING),
    ]
    result = optimized(lambda x: torch.relu(-x), square((8, 8)), "fixpoint", rules=rules)
    assert applied(result) == {}
    assert result.report.saturation is not None
    assert str(result.report.saturation.stop) == "saturated"


def test_siblings_are_merged_two_by_two() -> None:
    class Gates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            a, b, c, d = (gate(x) for gate in self.gates)
            return torch.relu(a) * torch.sigmoid(b) + torch.tanh(c) * d

    args = square((32, 64))
    with torch.no_grad():
        for search, merges, products in (("greedy", 2, 2), ("fixpoint", 3, 1)):
            result = eqsat.optimize(Gates(), args, search=search, margin=ALWAYS)
            assert applied(result)["affine-merge"] == merges
            operators = result.report.operators_after
            assert operators["aten.addmm.default"] == products


@pytest.mark.parametrize("search", ["greedy", "fixpoint"])
@pytest.mark.parametrize("name", [*PROGRAMS][::12])
def test_a_greedy_result_is_equal_and_cheaper(name: str, search: str) -> None:
    program = PROGRAMS[name]
    module, inputs = program.build()
    with torch.no_grad():
        result = eqsat.optimize(
            module, inputs, numerics=program.numerics, search=search, margin=ALWAYS
        )
    report = result.report
    assert report.kept is None, report.kept
    assert report.check is not None
    assert report.check.passed
    assert report.extractions[0].method == "greedy"


def test_backtracking_goes_through_what_costs_as_much() -> None:
    def twice(x: Any) -> Any:
        return torch.neg(torch.neg(x))

    rules = [
        Rewrite("there", lambda x: (torch.relu(twice(x)), twice(torch.relu(x)))),
        Rewrite("on", lambda x: (twice(torch.relu(x)), torch.relu(x))),
    ]
    args = square((8, 8))
    for search, calls in (("fixpoint", 3), ("backtracking", 1)):
        result = optimized(lambda x: torch.relu(twice(x)), args, search, rules=rules)
        assert sum(result.report.operators_after.values()) == calls
    assert result.report.saturation is not None
    assert str(result.report.saturation.stop) == "saturated"


def test_backtracking_stops_at_its_time_limit() -> None:
    program = PROGRAMS["llama_rotary"]
    module, inputs = program.build()
    limits = eqsat.Limits(seconds=0.2)
    with torch.no_grad():
        result = eqsat.optimize(module, inputs, search="backtracking", limits=limits, margin=ALWAYS)
    assert result.report.kept is None
    assert result.report.saturation is not None
    assert str(result.report.saturation.stop) == "time limit"


def test_a_search_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        ValueError, match="search 'gredy': one of saturation, greedy, fixpoint, backtracking"
    ):
        eqsat.optimize(nn.ReLU(), square((2, 2)), search="gredy")
