"""The text of a program: what it reads, what it does, and what it returns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from re import Pattern
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from eqsat.functions import Function
from eqsat.operators import OPERATORS

NAMES = {
    "torch": torch,
    "F": torch.nn.functional,
    "op": OPERATORS,
    "Function": Function,
    "fn": Function,
}
HEADER = """import torch
import torch.nn.functional as F
from eqsat.functions import Function
from eqsat.operators import OPERATORS as op

fn = Function
"""


@dataclass(frozen=True)
class Leaf:
    """An input, parameter or buffer, and the expression that makes it."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True)
class Step:
    """A statement of `forward` that gives `name` a value made of `reads`."""

    name: str
    text: str
    reads: tuple[str, ...]

    @property
    def writes(self) -> bool:
        """Whether the statement changes a value in place."""
        return any(mark in self.text for mark in ("_(", "] = ", "inplace"))


@dataclass(frozen=True)
class Source:
    """A program: what it reads, its statements, and the names that it returns."""

    leaves: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    dynamic: bool = False

    def trimmed(self) -> Source:
        """This program without what its outputs do not need; steps that write stay."""
        needed = set(self.outputs)
        steps: list[Step] = []
        for step in reversed(self.steps):
            if step.name in needed or step.writes:
                needed |= {step.name, *step.reads}
                steps.append(step)
        leaves = tuple(leaf for leaf in self.leaves if leaf.name in needed)
        return replace(self, leaves=leaves, steps=tuple(reversed(steps)))

    def __str__(self) -> str:
        inputs = [leaf for leaf in self.leaves if leaf.kind == "input"]
        state = [leaf for leaf in self.leaves if leaf.kind != "input"]
        lines = [
            "class M(torch.nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
        ]
        for leaf in state:
            if leaf.kind == "parameter":
                made = f"self.{leaf.name} = torch.nn.Parameter({leaf.text})"
            else:
                made = f"self.register_buffer({leaf.name!r}, {leaf.text})"
            lines.append(f"        {made}")
        lines += ["", f"    def forward({', '.join(['self', *(leaf.name for leaf in inputs)])}):"]
        lines += [f"        {leaf.name} = self.{leaf.name}" for leaf in state]
        lines += [f"        {step.text}" for step in self.steps]
        lines.append(f"        return ({', '.join(self.outputs)},)")
        made = "".join(f"\n    {leaf.text}," for leaf in inputs)
        return "\n".join(lines) + f"\n\n\nargs = ({made}\n)\n"

    def build(self) -> tuple[torch.nn.Module, tuple[Tensor, ...]]:
        """The module and its example inputs, the same every time."""
        torch.manual_seed(0)
        names = run([str(self)])
        return names["M"]().eval(), names["args"]

    def leaf_values(self) -> dict[str, Tensor]:
        """The value of each leaf, the same every time."""
        torch.manual_seed(0)
        names = run(f"{leaf.name} = {leaf.text}" for leaf in self.leaves)
        return {leaf.name: names[leaf.name] for leaf in self.leaves}

    def values(self) -> dict[str, Tensor]:
        """The value of each name."""
        names = run((step.text for step in self.steps), self.leaf_values())
        return {name: value for name, value in names.items() if isinstance(value, Tensor)}


def merged(sources: Iterable[Source]) -> Source:
    """The programs as one, which returns what each of them does."""
    leaves: list[Leaf] = []
    steps: list[Step] = []
    outputs: list[str] = []
    for number, source in enumerate(sources):
        names = {n.name: f"{n.name}_{number}" for n in (*source.leaves, *source.steps)}
        pattern = re.compile("|".join(rf"\b{name}\b" for name in names))

        def renamed(text: str, names: dict[str, str] = names, p: Pattern[str] = pattern) -> str:
            return p.sub(lambda match: names[match[0]], text)

        leaves += [Leaf(names[leaf.name], leaf.kind, leaf.text) for leaf in source.leaves]
        for step in source.steps:
            reads = tuple(names[name] for name in step.reads)
            steps.append(Step(names[step.name], renamed(step.text), reads))
        outputs += [names[name] for name in source.outputs]
    return Source(tuple(leaves), tuple(steps), tuple(outputs))


def run(
    statements: Iterable[str | CodeType], given: dict[str, Tensor] | None = None
) -> dict[str, Any]:
    """The names after these statements, run one after the other. Raises what they raise."""
    names: dict[str, Any] = {**NAMES, **(given or {})}
    with torch.no_grad():
        for statement in statements:
            exec(statement, names)
    return names


def random_text(shape: Iterable[int], dtype: torch.dtype) -> str:
    """An expression for a random tensor."""
    size = tuple(shape)
    if dtype.is_floating_point:
        return f"torch.randn({size}, dtype={dtype})"
    if dtype == torch.bool:
        return f"torch.randint(0, 2, {size}) > 0"
    return f"torch.randint(0, 3, {size}, dtype={dtype})"
