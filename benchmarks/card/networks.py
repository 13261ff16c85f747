"""The stage `networks`: what eqsat makes of whole networks, against what it was given."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator, Mapping
from functools import partial
from typing import Any  # what a network returns

import torch
import torch._inductor.metrics as inductor_metrics
from torch import Tensor

import eqsat
from eqsat.cost.device import MODES

from .bench import Bench, Network
from .programs import Run, compiled, difference, predicted_seconds, times
from .stage import COMPILE_NETWORK, Json, Rows, Stage, Step


def _steps(bench: Bench) -> Generator[Step]:
    """For each network and dtype: optimize, compile both programs, time both in either mode."""
    for dtype in bench.dtypes:
        for name, build in bench.networks.items():
            subject = f"{name} {str(dtype).removeprefix('torch.')}"
            torch._dynamo.reset()
            programs: dict[str, partial[Any]] = {}
            calls: dict[str, Run] = {}
            expected = 1 if bench.dry else COMPILE_NETWORK
            optimize = partial(_optimize, bench, build, dtype, programs)
            yield Step(subject, "optimize", optimize, expected)
            for which in programs:
                compile_one = partial(_compile_network, bench, programs, which, calls)
                yield Step(subject, f"compile {which}", compile_one, expected)
            for mode in MODES if len(calls) == 2 else ():
                yield Step(subject, mode, partial(times, bench, calls, mode))


def _optimize(
    bench: Bench, build: Network, dtype: torch.dtype, programs: dict[str, partial[Any]]
) -> Json:
    """Optimizes a network for the replay of CUDA graphs, where the device alone counts."""
    module, args = build()
    module = module.to(bench.place, dtype)
    args = tuple(x.to(bench.place, dtype if x.is_floating_point() else None) for x in args)
    device = [*bench.devices.values()][-1]
    result = eqsat.optimize(module, args, device=device, mode="graph", cache=False)
    report = result.report
    if report.before is None:
        raise RuntimeError(f"it was not optimized: {report.kept}")
    before, after = report.before.kernels, (report.after or report.before).kernels
    programs |= {"given": partial(module, *args), "result": partial(result.module, *args)}
    expected, output = _flat(module(*args)), _flat(result.module(*args))
    return {
        "kept": report.kept,
        "seconds": report.seconds,
        "error": difference(output, expected),
        "operators": [sum(report.operators_before.values()), sum(report.operators_after.values())],
        "kernels": [len(before), len(after)],
        "generated": [sum(k.kind != "extern" for k in found) for found in (before, after)],
        "predicted": {
            profile: {mode: [predicted_seconds(k, figures, mode) for k in (before, after)]
                      for mode in MODES}
            for profile, figures in bench.devices.items()
        },
    }  # fmt: skip


def _flat(output: Any) -> Tensor:
    tensors = output if isinstance(output, tuple) else (output,)
    return torch.cat([x.flatten().float() for x in tensors])


def _compile_network(
    bench: Bench, programs: Mapping[str, partial[Any]], which: str, calls: dict[str, Run]
) -> Json:
    program = programs[which]
    call = partial(compiled(bench, program.func), *program.args)
    inductor_metrics.reset()
    start = time.perf_counter()
    call()
    calls[which] = call
    seconds = round(time.perf_counter() - start, 3)
    return {"seconds": seconds, "generated": inductor_metrics.generated_kernel_count}


def _tables(_: Bench, rows: Rows) -> dict[str, list[Json]]:
    """The measured speed-up beside the predicted one, and the generated kernels."""
    return {
        "eqsat's result against torch.compile": _speedups(rows),
        "Predicted and real kernels": _counts(rows),
    }


def _speedups(rows: Rows) -> list[Json]:
    lines: list[Json] = []
    for subject, row in rows.items():
        for mode in MODES:
            if mode not in row:
                continue
            given, result = row[mode]["given"], row[mode]["result"]
            ratios = [a / b for a, b in zip(given["samples"], result["samples"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            line: Json = {
                "program": subject,
                "launches": mode,
                "given us": round(given["median"] * 1e6, 1),
                "result us": round(result["median"] * 1e6, 1),
                "measured": f"{middle:.3f}x",
                "middle half": f"{low:.3f} to {high:.3f}",
            }
            for profile, predicted in row["optimize"]["predicted"].items():
                before, after = predicted[mode]
                line[profile] = f"{before / after:.3f}x"
            lines.append(line)
    return lines


def _counts(rows: Rows) -> list[Json]:
    lines: list[Json] = []
    for subject, row in rows.items():
        if "optimize" not in row:
            continue
        done = row["optimize"]
        line: Json = {"program": subject, "kept": "yes" if done["kept"] else "no"}
        line |= {key: " -> ".join(map(str, done[key])) for key in ("kernels", "generated")}
        made = [row.get(f"compile {which}", {}).get("generated") for which in ("given", "result")]
        line["generated by torch"] = " -> ".join("?" if n is None else str(n) for n in made)
        lines.append({**line, "error": done["error"]})
    return lines


NETWORKS = Stage(
    "networks",
    0.32,
    lambda bench: (2 * len(bench.networks) * len(bench.dtypes), COMPILE_NETWORK),
    _steps,
    _tables,
)
