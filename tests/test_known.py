"""Small values that depend on no input are known while a program is encoded."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import eqsat
from eqsat.capture import capture, constants_of
from eqsat.encode import Encoding, encode
from eqsat.interval import Interval
from eqsat.settings import ALWAYS

X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Scaled(nn.Module):
    """Divides by the root of a buffer, and returns the buffer."""

    size: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("size", torch.tensor(64.0))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x / torch.sqrt(self.size), self.size


class Masked(nn.Module):
    """Adds a mask that is computed from nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.triu(torch.full((3, 4), -1e4), 1) + torch.exp(torch.arange(4) / 4)


def encoded(module: nn.Module) -> Encoding:
    """The encoding of a module applied to X."""
    program = capture(module, (X,), {}).program
    return encode(program.graph, constants_of(program))


def test_constants_of_no_dims_are_numbers() -> None:
    fills = [float(value) for _, value, _, _ in encoded(Scaled()).numbers.values()]
    assert fills == [64.0, 8.0]


def test_a_scale_in_a_buffer_is_folded_as_a_number_is() -> None:
    result = eqsat.optimize(Scaled(), (X,), margin=ALWAYS, fold_budget=0)
    outputs = result.module(X)
    torch.testing.assert_close(outputs, (X / 8, torch.tensor(64.0)), rtol=0, atol=0)
    (call,) = (n for n in result.program.graph.nodes if n.op == "call_function")
    assert call.args[1] in (8.0, 0.125)


def test_computed_constants_have_intervals() -> None:
    encoding = encoded(Masked())
    names = {node.name: handle for handle, node in encoding.origins.items()}
    assert encoding.intervals[names["triu"]] == Interval(-1e4, 0.0)
    powers = encoding.intervals[names["exp"]]
    assert powers.low == 1.0 and math.isclose(powers.high, math.exp(0.75), rel_tol=1e-6)


def test_what_depends_on_an_input_is_not_known() -> None:
    encoding = encoded(Masked())
    names = {node.name: handle for handle, node in encoding.origins.items()}
    assert names["add"] not in encoding.intervals
