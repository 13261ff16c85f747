"""Casts vanish where they lose nothing, and broadcasts wait; nothing changes a bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import eqsat
from eqsat.settings import ALWAYS

HALF = torch.linspace(-3, 3, 24).reshape(4, 6).bfloat16()
HALF[0, 0] = float("nan")
NARROW = torch.bfloat16


class Function(nn.Module):
    """A function of two tensors."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.function(x, y)


def calls(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> dict[str, int]:
    """How often which operator is called when a function was optimized, in every bit equal."""
    result = eqsat.optimize(Function(function), (x, y), numerics="strict", margin=ALWAYS)
    same = {"rtol": 0, "atol": 0, "equal_nan": True}
    torch.testing.assert_close(result.module(x, y), function(x, y), **same)
    return {name.split(".")[1]: n for name, n in result.report.operators_after.items()}


@pytest.mark.parametrize(
    "function",
    [
        lambda x, _: x.float().relu().to(NARROW),
        lambda x, _: (-(x.float()[1:])).abs().to(NARROW),
        lambda x, _: x.float().mT.reshape(24).floor().to(NARROW),
        lambda x, y: torch.where(x > 0, x.float(), y.float()).to(NARROW),
        lambda x, y: torch.cat([x.float(), y.float()], -1).relu().to(NARROW),
        lambda x, _: x.float().double().to(NARROW).neg(),
        lambda x, y: (x.float() < y.float()).logical_not(),
        lambda x, _: x.float().isnan().logical_not(),
    ],
    ids=["relu", "slice", "view", "where", "cat", "chain", "less", "isnan"],
)
def test_casts_around_what_only_selects_vanish(
    function: Callable[[Tensor, Tensor], Tensor],
) -> None:
    assert not {"to", "_to_copy"} & calls(function, HALF, HALF.flip(0)).keys()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, _: x.float().exp().to(NARROW),
        lambda x, y: (x.float() + y.float()).to(NARROW),
        lambda x, _: x.to(torch.float16).float().to(NARROW),
        lambda x, _: (x.float() * 2).relu(),
    ],
    ids=["exp", "sum", "narrow", "kept"],
)
def test_casts_that_change_digits_stay(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert {"to", "_to_copy"} & calls(function, HALF, HALF.flip(0)).keys()


def test_a_broadcast_waits_for_what_is_pointwise() -> None:
    x, y = torch.linspace(-1, 1, 6), torch.ones(50, 6)
    result = eqsat.optimize(
        Function(lambda x, y: torch.exp(x.expand(50, 6)) * 2 + y), (x, y), margin=ALWAYS
    )
    torch.testing.assert_close(result.module(x, y), torch.exp(x) * 2 + y)
    (exp,) = (n for n in result.program.graph.nodes if "exp.default" in str(n.target))
    assert exp.meta["val"].shape == (6,)


def test_a_reshape_moves_across_a_broadcast_operand() -> None:
    x, y = torch.linspace(-1, 1, 96).reshape(8, 3, 4), torch.linspace(0, 1, 32).reshape(8, 1, 4)

    def twice(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x + y).view(2, 4, 3, 4), x.view(2, 4, 3, 4) + y.view(2, 4, 1, 4)

    result = eqsat.optimize(Function(twice), (x, y), margin=ALWAYS)
    torch.testing.assert_close(result.module(x, y), twice(x, y), rtol=0, atol=0)
    assert result.report.operators_after["aten.add.Tensor"] == 1
