"""A program: a function or module as model code writes it, with inputs that run in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Source = TypeVar("Source", bound=Callable[..., Any])
Given = tuple[int, ...] | Tensor

PROGRAMS: dict[str, Program] = {}
"""Every program by its name, in the order in which the files are imported."""


@dataclass(frozen=True)
class Program:
    """A function, or a class of modules, with the tensors that it reads.

    `inputs` and `parameters` are tensors, or the shapes of such of `dtype`; a function is given its
    parameters, which are frozen, by name. `rules` are those that it is the witness of.
    """

    name: str
    source: Callable[..., Any]
    inputs: tuple[Given, ...]
    parameters: dict[str, Given]
    dtype: torch.dtype
    numerics: str
    rules: tuple[str, ...] = ()

    def build(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """The module in evaluation mode and its inputs, always the same."""
        torch.manual_seed(0)
        inputs = tuple(_tensor(given, 1.0, self.dtype) for given in self.inputs)
        if isinstance(self.source, type):
            module: nn.Module = self.source()
            module = module.to(self.dtype)
        else:
            found = {k: _tensor(given, 0.3, self.dtype) for k, given in self.parameters.items()}
            module = Written(self.source, found)
        return module.eval().requires_grad_(False), inputs


class Written(nn.Module):
    """A function of inputs and of parameters of its own."""

    def __init__(self, function: Callable[..., Any], parameters: dict[str, Tensor]) -> None:
        super().__init__()
        self.function = function
        self.names = tuple(parameters)
        for name, value in parameters.items():
            self.register_buffer(name, value)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs, **{name: getattr(self, name) for name in self.names})


def program(
    *inputs: Given,
    numerics: str = "default",
    dtype: torch.dtype = torch.float32,
    **parameters: Given,
) -> Callable[[Source], Source]:
    """Notes the function or class below as a program with these inputs and parameters."""

    def note(source: Source) -> Source:
        name = source.__name__
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Program(name, source, inputs, parameters, dtype, numerics)
        return source

    return note


def fires(*rules: str) -> Callable[[Source], Source]:
    """Notes which rules, named in lines, the program below is the witness of."""

    def note(source: Source) -> Source:
        name = source.__name__
        names = tuple(name for line in rules for name in line.split())
        PROGRAMS[name] = replace(PROGRAMS[name], rules=names)
        return source

    return note


def _tensor(given: Given, scale: float, dtype: torch.dtype) -> Tensor:
    if isinstance(given, Tensor):
        return given
    return (torch.randn(given) * scale).to(dtype)


def ids(*shape: int, high: int = 10) -> Tensor:
    """Integers from 0 to `high`, such as those of tokens."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) * 7 % high).reshape(shape)


def positive(*shape: int) -> Tensor:
    """Positive numbers, such as variances."""
    return torch.linspace(0.5, 1.5, torch.Size(shape).numel()).reshape(shape)
