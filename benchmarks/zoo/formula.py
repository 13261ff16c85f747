"""A program that is a formula: a function of inputs and, by name, of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models import Program, ready
from benchmarks.zoo.entry import Check, Entry, Sizes, entry

Shape = tuple[int, ...]
FULL, SMALL = MappingProxyType({"n": 2048}), MappingProxyType({"n": 1024})


class Formula(nn.Module):
    """A function as a module, whose weights are its own."""

    def __init__(self, function: Callable[..., Any], weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.function, self.names = function, tuple(weights)
        for name, value in weights.items():
            self.register_buffer(name, value)

    def forward(self, *inputs: Tensor) -> Any:
        weights = {name: self.get_buffer(name) for name in self.names}
        return self.function(*inputs, **weights)


def formula(
    name: str,
    about: str,
    function: Callable[..., Any],
    inputs: Callable[[int], list[Shape]],
    weights: Callable[[int], dict[str, Shape]] = lambda _: {},
    expected: Mapping[str, Check] = MappingProxyType({}),
) -> Entry:
    """An entry of set C: `function` of tensors whose shapes are made of one size."""

    def make(s: Sizes) -> Program:
        given = tuple(_random(shape) for shape in inputs(s["n"]))
        own = {key: _random(shape) for key, shape in weights(s["n"]).items()}
        return ready(Formula(function, own), given)

    return entry(
        name,
        "C",
        about,
        make,
        full=FULL,
        small=SMALL,
        shape=lambda s: inputs(s["n"])[0],
        expected=expected,
        dtype=torch.float16,
    )


def _random(shape: Shape) -> Tensor:
    """Numbers whose products stay small: scaled by the square root of the last dimension."""
    return torch.randn(shape) * (shape[-1] if len(shape) > 1 else 1) ** -0.5
