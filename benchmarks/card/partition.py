"""The stage `partition`: kernels on the card, with the card pretended, and predicted."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any  # what a process found comes back unseen

import torch

from benchmarks import networks, truth
from benchmarks.partition import agreement
from eqsat.capture import capture
from eqsat.cost.device import Device
from eqsat.cost.inductor import kernels
from eqsat.cost.kernel import Kernel
from eqsat.cost.partition import partition

from .bench import Bench
from .stage import Json, Rows, Stage, Step

WORKERS = 2
"""Processes in which the card is pretended."""
DTYPE = torch.bfloat16


def _steps(bench: Bench) -> Generator[Step]:
    """For each model the kernels on the card, predicted, and where no card is to be seen.

    The last are those of other processes, so that what is pretended there stays there.
    """
    device = Device.of(bench.profile)
    workers = min(WORKERS, len(bench.models))
    with multiprocessing.get_context("spawn").Pool(workers, _hide_gpus) as pool:
        patched = {m: pool.apply_async(_patched, (m, device)) for m in bench.models}
        for model in bench.models:
            held: list[Any] = []
            yield Step(model, "capture", partial(_captured, model, held), 2)
            for program in held:
                real = partial(kernels, program, device, pretend=bench.dry)
                predicted = partial(partition, program.graph, device)
                yield Step(model, "real", partial(listed, real), 4)
                yield Step(model, "predicted", partial(listed, predicted), 0.1)
            yield Step(model, "patched", patched[model].get, 4)


def _hide_gpus() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    warnings.filterwarnings("ignore")


def _captured(model: str, held: list[Any]) -> Json:
    module, inputs = networks.build(model, DTYPE)
    held.append(capture(module, inputs).program)
    return {"operators": sum(node.op == "call_function" for node in held[0].graph.nodes)}


def _patched(model: str, device: Device) -> Json:
    held: list[Any] = []
    _captured(model, held)
    return listed(lambda: kernels(held[0], device, pretend=True))


def listed(found: Callable[[], Iterable[Kernel]]) -> Json:
    """Kernels as JSON, without the names of their nodes."""
    return {"kernels": [{**truth.kernel_to_json(kernel), "nodes": []} for kernel in found()]}


def unlisted(row: Json) -> list[Kernel]:
    """The kernels that were `listed`."""
    return [truth.kernel_from_json(kernel) for kernel in row["kernels"]]


def _tables(_: Bench, rows: Rows) -> dict[str, list[Json]]:
    """Counts, bytes and F1 of the kernels by model, and the mean of each."""
    lines: list[Json] = []
    for model, row in rows.items():
        found = {way: unlisted(row[way]) for way in ("real", "patched", "predicted") if way in row}
        line: Json = {"model": model}
        line |= {way: len(some) for way, some in found.items()}
        line |= {f"MB {way}": _megabytes(some) for way, some in found.items()}
        if "real" in found:
            for way in ("patched", "predicted"):
                if way in found:
                    line[f"F1 {way}"] = round(agreement(found["real"], found[way]).f1, 4)
        lines.append(line)
    return {"Kernels: on the card, with the card pretended, predicted": [*lines, *_means(lines)]}


def _megabytes(found: Iterable[Kernel]) -> float:
    return round(sum(kernel.bytes for kernel in found) / 1e6, 3)


def _means(lines: Sequence[Json]) -> list[Json]:
    """A last line: the mean error of counts and bytes against the real ones, the mean F1."""
    mean: Json = {"model": "mean error, F1"}
    for way in ("patched", "predicted"):
        for real, other in (("real", way), ("MB real", f"MB {way}")):
            pairs = [(line[real], line[other]) for line in lines if {real, other} <= line.keys()]
            errors = [abs(b - a) / a for a, b in pairs if a]
            if errors:
                mean[other] = f"{statistics.mean(errors):.1%}"
        scores = [line[f"F1 {way}"] for line in lines if f"F1 {way}" in line]
        if scores:
            mean[f"F1 {way}"] = round(statistics.mean(scores), 4)
    return [mean] if len(mean) > 1 else []


PARTITION = Stage("partition", 0.14, lambda _: (0, 0.0), _steps, _tables)
