"""How programs are compiled, timed in turns, predicted and compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any  # a program may take and return anything

import torch
from torch import Tensor

from eqsat.cost import roofline
from eqsat.cost.device import Device, Mode
from eqsat.cost.kernel import Kernel
from eqsat.cost.tune import timer

from .bench import Bench
from .stage import Json

Run = Callable[[], Any]


def compiled(bench: Bench, program: Callable[..., Any]) -> Callable[..., Any]:
    """The program as Inductor compiles it, or in a dry run as it is, once it is traced."""
    return torch.compile(program, dynamic=False, backend="eager" if bench.dry else "inductor")


def difference(output: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    return float((output - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def predicted_seconds(found: Sequence[Kernel], device: Device, mode: Mode) -> float:
    """The seconds that are predicted; where a graph is replayed, no call is paid for."""
    seconds = roofline.time(found, device, mode).seconds
    return seconds if mode == "stream" else seconds - device.base


def times(bench: Bench, calls: Mapping[str, Run], mode: Mode) -> Json:
    """The seconds of calls that are compared: of each its median, the middle half, all samples."""
    blocks = [_block(bench, call, mode) for call in calls.values()]
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(bench.rounds):
        for taken, block in zip(samples, blocks, strict=True):
            taken.append(float(f"{block():.4g}"))
    found: Json = {}
    for name, taken in zip(calls, samples, strict=True):
        low, median, high = statistics.quantiles(taken, n=4)
        found[name] = {"median": median, "low": low, "high": high, "samples": taken}
    return found


def _block(bench: Bench, call: Run, mode: Mode) -> Callable[[], float]:
    """What times a block of calls, in seconds of one; a dry run looks at the clock of the wall."""
    if bench.dry:
        return partial(_on_the_wall, call)
    for _ in range(3):
        call()
    once, copies = timer._between_events(call, 1), 1
    if mode == "graph":
        copies = min(timer.REPLAYED, timer._number(once))
        call = timer._captured(call, copies).replay
        call()
    number = timer._number(copies * once)
    return lambda: timer._between_events(call, number) / copies


def _on_the_wall(call: Run) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
