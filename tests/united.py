"""Two spellings of a value in one e-graph: whether rules find that they are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.fx import Node

from eqsat.capture import capture, constants_of
from eqsat.encode import encode
from eqsat.rewrite import Rewrite
from eqsat.saturate import Limits, saturate


@dataclass(frozen=True)
class Case:
    """Two spellings as functions of the inputs, then the constants, of one value or several."""

    left: Callable[..., Any]
    right: Callable[..., Any]
    inputs: Sequence[Tensor]
    constants: Sequence[Tensor] = ()


class Both(nn.Module):
    """A program that computes both sides."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        for i, value in enumerate(case.constants):
            self.register_buffer(f"c{i}", value)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        constants = (getattr(self, f"c{i}") for i in range(len(self.case.constants)))
        values = (*inputs, *constants)
        return (*listed(self.case.left(*values)), *listed(self.case.right(*values)))


def listed(result: Any) -> tuple[Tensor, ...]:
    """One result, or several, as a tuple."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def united(case: Case, rules: Sequence[Rewrite]) -> bool:
    """Whether each result of the left side is in the e-class of that of the right side."""
    captured = capture(Both(case).eval(), tuple(case.inputs), None, None)
    encoding = encode(captured.program.graph, constants_of(captured.program))
    snapshot, _ = saturate(encoding, rules, Limits())
    output = next(iter(reversed(captured.program.graph.nodes)))
    values = [node for node in output.args[0] if isinstance(node, Node)]
    classes = [snapshot.handles[encoding.handles[node]] for node in values]
    half = len(classes) // 2
    return classes[:half] == classes[half:]
