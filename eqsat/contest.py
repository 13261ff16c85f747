"""Groups of equal programs on the device at hand: how long each takes, and what is predicted."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.fx import Graph

from eqsat.capture import capture, constants_of
from eqsat.cost.device import Device
from eqsat.cost.kernel import Kernel
from eqsat.cost.model import CostModel
from eqsat.cost.partition import partition
from eqsat.cost.roofline import time
from eqsat.cost.tune.rank import Ranked
from eqsat.cost.tune.timer import Kind, interleaved, one_thread
from eqsat.cost.tune.variants import GROUPS, Group, Program, tensors
from eqsat.encode import encode
from eqsat.kind import Kind as OperatorKind
from eqsat.limits import Limits
from eqsat.operators import OPERATORS
from eqsat.problem import problem
from eqsat.saturate import saturate
from extract import dag_cost

PREDICTORS = {
    "model": "kernels and roofline",
    "additive": "sum over operators",
    "bytes": "bytes only",
    "flops": "FLOPs only",
    "kernels": "kernel count only",
    "operators": "operator count",
}
"""The predictors that are compared, and what each is called in the table."""
CLOSE = 1e-2
"""How far the outputs of equal programs may be apart, relative to the largest."""


@dataclass(frozen=True)
class Time:
    """The measured seconds of one compiled program."""

    group: str
    program: str
    seconds: float
    device: str = ""
    torch: str = ""


class _Module(nn.Module):
    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program

    def forward(self, *operands: Tensor) -> Tensor:
        return self.program(*operands)


def read(path: Path) -> tuple[Time, ...]:
    """The times in a file of JSON lines; none where there is no file yet.

    Raises ValueError with the number of a line that is not a time.
    """
    if not path.exists():
        return ()
    found: list[Time] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            one = Time(**json.loads(line))
            if not (math.isfinite(one.seconds) and one.seconds > 0):
                raise ValueError(f"`seconds` must be positive and finite, not {one.seconds}")
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        found.append(one)
    return tuple(found)


def measure(
    place: Kind,
    device: str,
    path: Path,
    progress: Callable[[int, int, str], None] | None = None,
    groups: Sequence[Group] = GROUPS,
) -> tuple[Time, ...]:
    """Every time of the file, after timing the groups that it lacks, a whole group at once.

    Raises RuntimeError where two programs of a group do not compute the same.
    """
    known = {(one.group, one.device, one.torch) for one in read(path)}
    todo = [g for g in groups if (g.name, device, torch.__version__) not in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    with one_thread():
        for done, group in enumerate(todo):
            if progress is not None:
                progress(done, len(todo), group.name)
            lines = [
                Time(group.name, program, seconds, device, torch.__version__)
                for program, seconds in _timed(group, place).items()
            ]
            with path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(line)) + "\n" for line in lines)
    return read(path)


def _timed(group: Group, place: Kind) -> dict[str, float]:
    """The seconds of each program of a group, compiled; their outputs are compared first."""
    operands = tensors(group, place)
    calls: list[Callable[[], Tensor]] = []
    outputs: list[Tensor] = []
    torch._dynamo.reset()
    for program in group.programs.values():
        compiled = torch.compile(program, fullgraph=True, dynamic=False)
        outputs.append(compiled(*operands))
        calls.append(lambda compiled=compiled: compiled(*operands))
    for name, output in zip(group.programs, outputs, strict=True):
        worst = float((output - outputs[0]).abs().max())
        if not worst <= CLOSE * float(outputs[0].abs().max()):
            raise RuntimeError(f"{group.name}: {name} is not equal to the others, by {worst}")
    return dict(zip(group.programs, interleaved(calls, place), strict=True))


def ranked(
    times: Sequence[Time], device: Device, groups: Sequence[Group] = GROUPS
) -> tuple[Ranked, ...]:
    """The programs that have a time, each with what every predictor says of it."""
    by_name = {(one.group, one.program): one.seconds for one in times}
    found: list[Ranked] = []
    for group in groups:
        for name, program in group.programs.items():
            seconds = by_name.get((group.name, name))
            if seconds is not None:
                found.append(Ranked(group.name, name, seconds, _predicted(group, program, device)))
    return tuple(found)


def _predicted(group: Group, program: Program, device: Device) -> dict[str, float]:
    """What each of `PREDICTORS` says of a program, as captured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        captured = capture(_Module(program), tensors(group))
    graph = captured.program.graph
    kernels = partition(graph, device)
    whole = time(kernels, device)
    additive, operators = _by_operator(graph, constants_of(captured.program), device)
    return {
        "model": whole.seconds,
        "additive": device.base + additive,
        "bytes": float(sum(kernel.bytes for kernel in kernels)),
        "flops": float(sum(map(_flops, kernels))),
        "kernels": float(len(kernels)),
        "operators": float(operators),
    }


def _flops(kernel: Kernel) -> float:
    return kernel.flops + kernel.work + kernel.transcendental


def _by_operator(graph: Graph, constants: dict[str, Tensor], device: Device) -> tuple[float, int]:
    """The sum of the prices of single operators (`eqsat.cost.additive`), and how many there are."""
    encoding = encode(graph, constants)
    snapshot, _ = saturate(encoding, (), Limits())
    choices = problem(snapshot, encoding, CostModel(device), fold=False)
    free = (OperatorKind.VIEW, OperatorKind.SCALAR, OperatorKind.LEAF)
    names = [row.symbol.operator for row in encoding.rows]
    operators = [name for name in names if name in OPERATORS and OPERATORS[name].kind not in free]
    return dag_cost(choices.egraph, choices.given), len(operators)
