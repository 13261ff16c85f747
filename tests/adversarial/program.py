"""A program that invites a wrong optimization, the inputs it is tried on, and how it is judged."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import oracle
import torch
from torch import nn
from torch.export import ExportedProgram

Inputs = tuple[tuple[object, ...], dict[str, object]]

ALL = frozenset(range(64))


@dataclass(frozen=True, kw_only=True)
class Program:
    """A module with inputs, called in turn and the first ones once more at the end.

    `rounded` are the outputs that sound real algebra may round, `products` those that a matrix
    product, attention or convolution may round even where all else is bit for bit.
    """

    name: str
    module: Callable[[], nn.Module]
    inputs: tuple[Callable[[], Inputs], ...]
    dynamic_shapes: dict[str, object] | None = None
    rounded: frozenset[int] = frozenset()
    products: frozenset[int] = frozenset()
    state_rounded: bool = False
    tolerance: float | None = None
    train: bool = False
    gradients: bool = False
    log: list[object] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return self.name

    def fresh(self) -> nn.Module:
        """The module, equal each time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(zlib.crc32(self.name.encode()))
            return self.module().train(self.train)

    def call(self, number: int) -> Inputs:
        """The inputs of call `number`, fresh and equal each time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(zlib.crc32(self.name.encode()) + 1 + number)
            return self.inputs[number % len(self.inputs)]()


def capture(program: Program, module: nn.Module) -> ExportedProgram:
    """The program as `torch.export` sees it."""
    args, kwargs = program.call(0)
    shapes = program.dynamic_shapes
    return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)


def expected(program: Program) -> tuple[oracle.Observation, ...]:
    """What the exported program shows, call by call."""
    module = program.fresh()
    return observations(program, module, capture(program, module).module())


def observations(
    program: Program, module: nn.Module, function: oracle.Function
) -> tuple[oracle.Observation, ...]:
    """What `function` shows, call by call, when it stands for the program's `module`."""
    return tuple(
        oracle.observe(
            function,
            *program.call(number),
            module=module,
            log=program.log,
            seed=number,
            gradients=program.gradients,
        )
        for number in range(len(program.inputs) + 1)
    )


def compare(
    program: Program,
    reference: tuple[oracle.Observation, ...],
    got: tuple[oracle.Observation, ...],
    *,
    strict: bool = False,
) -> list[str]:
    """The differences as lines of text; `strict` lets only products round."""
    judgement = oracle.Judgement(
        rounded=program.products if strict else program.rounded | program.products,
        state_rounded=program.state_rounded,
        tolerance=program.tolerance,
        frozen=not program.gradients,
    )
    return [
        f"call {number}: {difference}"
        for number, (a, b) in enumerate(zip(reference, got, strict=True))
        for difference in oracle.differences(a, b, judgement)
    ]
