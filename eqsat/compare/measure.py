"""Seconds of a call on this CPU: all arms of a program in one process, in turns."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast  # programs take and return arbitrary values; JSON

import torch
from torch import Tensor, nn
from torch._inductor import config
from torch.utils._pytree import tree_map_only

from eqsat.check import check
from eqsat.compare.arms import built, searched
from eqsat.compare.interval import interval
from eqsat.compare.task import EAGER, PATCHES, SEARCHES, Options, Task
from eqsat.observe import first_line

BLOCK = 10e-3
"""Seconds of a block of calls that is timed as one."""
ROUNDS = 31
"""Rounds: in each, every arm is timed once, in an order of its own."""
WARM = 3
"""Calls before any is timed."""
THREADS = (1, 2)

Call = Callable[[], object]


@dataclass(frozen=True)
class Arm:
    """A program as an arm runs it: the module, and the settings that Inductor compiles it with."""

    module: nn.Module
    patches: Mapping[str, Any]


def measured(tasks: Sequence[Task], options: Options) -> dict[str, dict[str, Any]]:
    """For each arm of one program: `measured` and `max_error` of its row, or `error`.

    Times are wall seconds of one call, by the number of threads, that of no more threads than the
    machine has processors. Arms that do not compile, or differ from eager mode, have none.
    """
    first = tasks[0]
    program = built(first.source, first.size, first.seed)
    found: dict[str, dict[str, Any]] = {task.arm: {"measured": {}} for task in tasks}
    arms: dict[str, Arm] = {}
    for task in tasks:
        module = program.module
        if task.arm in SEARCHES:
            result, _ = searched(task, replace(options, explain=False))
            if result.report.kept is None:  # else it is the given program, and runs as that
                module = result.module
        arms[task.arm] = Arm(module, PATCHES.get(task.arm, {}))
    inputs = (program.args, program.kwargs)
    for threads in THREADS:
        if threads <= (os.cpu_count() or 1):
            _measure(arms, program.module, inputs, threads, found)
    return {
        arm: one if one["measured"] else {**one, "measured": None} for arm, one in found.items()
    }


def _measure(
    arms: Mapping[str, Arm],
    eager: nn.Module,
    inputs: tuple[tuple[Any, ...], dict[str, Any]],
    threads: int,
    found: dict[str, dict[str, Any]],
) -> None:
    """Adds the times of every arm on so many threads to what was found."""
    torch._dynamo.reset()
    torch.set_num_threads(threads)
    calls: dict[str, Call] = {}
    args, kwargs = inputs
    with torch.no_grad():
        for name, arm in arms.items():
            if "error" in found[name]:
                continue
            try:
                patches = {**arm.patches, "cpp.threads": threads}
                run = arm.module if name == EAGER else _compiled(arm.module, patches)
                with config.patch(patches):  # Dynamo looks there, not at options, for `freezing`
                    both = (_Dense(eager), _Dense(run))
                    verdict = check(*both, args, kwargs, probes=("example",))
            except Exception as error:  # noqa: BLE001 - Inductor raises many kinds
                found[name]["error"] = f"Inductor: {type(error).__name__}: {first_line(error)}"
                continue
            worst = found[name].get("max_error", 0.0)
            found[name]["max_error"] = max(worst, verdict.max_error)
            if not verdict.passed and name in SEARCHES:
                found[name]["error"] = f"differs from eager: {verdict.probes[0].difference}"
                continue
            calls[name] = lambda run=run: run(*args, **kwargs)
        for name, times in interleaved(calls).items():
            one = interval(times)
            shown = {"median": one.median, "low": one.low, "high": one.high, "times": times}
            found[name]["measured"][str(threads)] = shown


class _Dense(nn.Module):
    """A program with its results in dense memory: Inductor may give them other strides."""

    def __init__(self, program: nn.Module) -> None:
        super().__init__()
        self.program = program

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return tree_map_only(Tensor, Tensor.contiguous, self.program(*args, **kwargs))


def _compiled(module: nn.Module, patches: dict[str, Any]) -> nn.Module:
    return cast("nn.Module", torch.compile(module, fullgraph=True, dynamic=False, options=patches))


def interleaved(
    calls: Mapping[str, Call],
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """The seconds of one call of each, once a round, so that all meet the same disturbances.

    Before it is timed each is called once, and rounds are in random order: what another left in
    the caches is nobody's loss.
    """
    names = list(calls)
    numbers: dict[str, int] = {}
    for name, call in calls.items():
        for _ in range(WARM):
            call()
        once = _block(call, 1, clock)
        numbers[name] = max(1, min(1000, int(BLOCK / max(once, 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in names}
    rng = random.Random(0)
    for _ in range(rounds):
        for name in rng.sample(names, len(names)):
            calls[name]()
            times[name].append(_block(calls[name], numbers[name], clock))
    return times


def _block(call: Call, number: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(number):
        call()
    return (clock() - start) / number
