"""The stage `variants`: groups of equal programs, timed and ranked by predictions."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Generator, Mapping
from functools import partial

import torch
from torch import Tensor

from eqsat import contest
from eqsat.capture import capture
from eqsat.cost.device import MODES, Device, Mode
from eqsat.cost.partition import partition
from eqsat.cost.tune.rank import Ranked, score
from eqsat.cost.tune.variants import Group, tensors

from .bench import Bench
from .partition import listed, unlisted
from .programs import Run, compiled, difference, predicted_seconds, times
from .stage import COMPILE, Json, Rows, Stage, Step, spread_out


def _steps(bench: Bench) -> Generator[Step]:
    """For each group its predicted kernels, and the times of its programs in either mode."""
    for group in spread_out(bench.groups):
        torch._dynamo.reset()
        calls: dict[str, Run] = {}
        yield Step(group.name, "kernels", partial(_group_kernels, bench, group))
        expected = COMPILE * len(group.programs)
        yield Step(group.name, "compile", partial(_compile_group, bench, group, calls), expected)
        for mode in MODES if calls else ():
            yield Step(group.name, mode, partial(times, bench, calls, mode))


def _group_kernels(bench: Bench, group: Group) -> Json:
    found: Json = {}
    for name, program in group.programs.items():
        graph = capture(contest._Module(program), tensors(group)).program.graph
        found[name] = listed(partial(partition, graph, Device.of(bench.profile)))
    return found


def _compile_group(bench: Bench, group: Group, calls: dict[str, Run]) -> Json:
    """Compiles the programs of a group into `calls`; they must compute the same."""
    operands = tensors(group, bench.place)
    made: dict[str, Run] = {}
    seconds: dict[str, float] = {}
    outputs: list[Tensor] = []
    for name, program in group.programs.items():
        start = time.perf_counter()
        call = partial(compiled(bench, program), *operands)
        outputs.append(call())
        made[name] = call
        seconds[name] = round(time.perf_counter() - start, 3)
    errors = [difference(output, outputs[0]) for output in outputs]
    if not max(errors) <= contest.CLOSE:
        raise RuntimeError(f"{group.name}: not equal: {dict(zip(made, errors, strict=True))}")
    calls |= made
    return {"seconds": seconds}


def _tables(bench: Bench, rows: Rows) -> dict[str, list[Json]]:
    """For either mode, how well each predictor ranks, and how far off the predicted times are."""
    return {
        f"Ranking of equal programs, {_launches(mode)}": _ranking(bench.devices, rows, mode)
        for mode in MODES
        if any(mode in row and "kernels" in row for row in rows.values())
    }


def _launches(mode: Mode) -> str:
    return "launched on a stream" if mode == "stream" else "replayed by a CUDA graph"


def _ranking(devices: Mapping[str, Device], rows: Rows, mode: Mode) -> list[Json]:
    programs: list[Ranked] = []
    for group, row in rows.items():
        for name, spread in row.get(mode, {}).items() if "kernels" in row else ():
            found = unlisted(row["kernels"][name])
            predicted = {
                key: predicted_seconds(found, device, mode) for key, device in devices.items()
            }
            predicted["bytes only"] = float(sum(kernel.bytes for kernel in found))
            predicted["kernel count only"] = float(len(found))
            programs.append(Ranked(group, name, spread["median"], predicted))
    lines: list[Json] = []
    for predictor in programs[0].predicted:
        one = score(programs, predictor)
        ratios = [abs(math.log(p.predicted[predictor] / p.seconds)) for p in programs]
        lines.append(
            {
                "predictor": predictor,
                "pairs": one.pairs,
                "in order": round(one.accuracy, 3),
                "pairs > 25 %": one.large_pairs,
                "in order > 25 %": round(one.large_accuracy, 3),
                "tau": round(one.tau, 3),
                "top": round(one.top, 3),
                "regret": f"{one.regret:.1%}",
                "worst": f"{one.worst:.0%}",
                "time off by": round(math.exp(statistics.mean(ratios)), 3)
                if predictor in devices
                else None,
            }
        )
    return lines


VARIANTS = Stage(
    "variants",
    0.22,
    lambda bench: (sum(len(group.programs) for group in bench.groups), COMPILE),
    _steps,
    _tables,
)
