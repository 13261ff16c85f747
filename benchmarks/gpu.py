"""What one NVIDIA GPU says of our predictions: of its kernels, of their times, of what is saved.

    python -m benchmarks.gpu --out DIR [--budget 540] [--stages tune networks]

`partition` compares the kernels that Inductor makes on the card with those it makes where the card
is pretended and with the predicted ones. `tune` fits a profile, as `eqsat tune --device cuda` does.
`variants` times groups of equal programs and ranks them by predictions. `networks` times what eqsat
makes of whole networks against torch.compile of the given ones.

Each stage has a share of the budget, and what it leaves goes to the next. DIR/gpu.json is whole
after every step. What fails is written there and the rest goes on: the exit code is then 1.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import multiprocessing
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar  # the results of a stage are JSON

import torch
import torch._inductor.config as inductor_config
import torch._inductor.metrics as inductor_metrics
from rich.console import Console, RenderableType
from rich.text import Text
from torch import Tensor, nn

import eqsat
from benchmarks import models, truth, zoo
from benchmarks.partition import agreement
from eqsat import contest
from eqsat.capture import capture
from eqsat.cost import roofline
from eqsat.cost.device import MODES, Device, Mode, load
from eqsat.cost.figure import FIGURES
from eqsat.cost.inductor import kernels
from eqsat.cost.kernel import Kernel
from eqsat.cost.partition import partition
from eqsat.cost.profile import Profile, find
from eqsat.cost.tune import calibrate, measure, timer
from eqsat.cost.tune.measure import Measurement
from eqsat.cost.tune.microbench import Benchmark, grid
from eqsat.cost.tune.rank import Ranked, score
from eqsat.cost.tune.timer import Kind
from eqsat.cost.tune.variants import GROUPS, Group, tensors
from eqsat.table import table

T = TypeVar("T")
Json = dict[str, Any]
Rows = dict[str, Json]
"""What the steps of a stage gave, by subject and part."""
Run = Callable[[], Any]
Network = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]

SCHEMA = 1
BUDGET = 540.0
GRACE = 0.03
"""The share of the budget by which a step may outlast its stage before it is cut off."""
COMPILE, COMPILE_NETWORK = 1.5, 25.0
"""Guessed seconds to compile a small program and a network with an empty cache, for the plan."""
WORKERS = 2
"""Processes in which the card is pretended."""
COMPILE_THREADS = 8
"""The most processes that compile Triton kernels; each first imports torch."""
ROUNDS = 20
"""Rounds over programs that are compared, each timed once a round."""
TAIL = 8
"""The innermost frames that are kept of a traceback."""
PARTITION_DTYPE = torch.bfloat16
MODELS = (
    "bert", "gpt2", "llama", "vit", "resnet_basic", "convnext", "swin", "t5_enc", "unet", "mixer",
)  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """A card and what is tried on it, or with `dry` what stands in for both on a CPU."""

    place: Kind
    profile: Profile
    out: Path
    models: tuple[str, ...]
    grid: tuple[Benchmark, ...]
    groups: tuple[Group, ...]
    networks: Mapping[str, Network]
    dtypes: tuple[torch.dtype, ...]
    rounds: int = ROUNDS
    dry: bool = False

    @property
    def devices(self) -> dict[str, Device]:
        """The device as the profile of the package says, and as tuned here if it is."""
        tuned = {"tuned": load(self.tuned)} if self.tuned.exists() else {}
        return {"shipped": Device.of(self.profile), **tuned}

    @property
    def tuned(self) -> Path:
        """Where the tuned profile goes."""
        return self.out / f"{self.profile.name}.toml"

    @property
    def measurements(self) -> Path:
        """Where the measurements go that it is fitted to."""
        return self.out / "grid.jsonl"


@dataclass(frozen=True)
class Step:
    """One thing that is tried: of a stage's subject, the part that `run` gives."""

    subject: str
    part: str
    run: Callable[[], Json]
    expected: float = 1.0
    """The seconds that it is taken for until a step of the same part was run."""


@dataclass(frozen=True)
class Stage:
    """Steps that share a part of the budget, and what follows from their results."""

    name: str
    share: float
    compiles: Callable[[Bench], tuple[int, float]]
    """How many programs are compiled, and the guessed seconds of each."""
    steps: Callable[[Bench], Generator[Step]]
    conclude: Callable[[Bench, Rows], dict[str, list[Json]]]
    """The tables of the summary, by title."""


class OutOfTime(BaseException):
    """The step that runs has outlasted its stage; no `except Exception` in torch stops it."""


# partition: real kernels, those with the card pretended, predicted ones


def partition_steps(bench: Bench) -> Generator[Step]:
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
                yield Step(model, "real", partial(_listed, real), 4)
                yield Step(model, "predicted", partial(_listed, predicted), 0.1)
            yield Step(model, "patched", patched[model].get, 4)


def _hide_gpus() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    warnings.filterwarnings("ignore")


def _captured(model: str, held: list[Any]) -> Json:
    module, inputs = zoo.build(model, PARTITION_DTYPE)
    held.append(capture(module, inputs).program)
    return {"operators": sum(node.op == "call_function" for node in held[0].graph.nodes)}


def _patched(model: str, device: Device) -> Json:
    held: list[Any] = []
    _captured(model, held)
    return _listed(lambda: kernels(held[0], device, pretend=True))


def _listed(found: Callable[[], Iterable[Kernel]]) -> Json:
    return {"kernels": [{**truth.kernel_to_json(kernel), "nodes": []} for kernel in found()]}


def _unlisted(row: Json) -> list[Kernel]:
    return [truth.kernel_from_json(kernel) for kernel in row["kernels"]]


def partition_tables(_: Bench, rows: Rows) -> dict[str, list[Json]]:
    """Counts, bytes and F1 of the kernels by model, and the mean of each."""
    lines: list[Json] = []
    for model, row in rows.items():
        found = {way: _unlisted(row[way]) for way in ("real", "patched", "predicted") if way in row}
        line: Json = {"model": model}
        line |= {way: len(listed) for way, listed in found.items()}
        line |= {f"MB {way}": _megabytes(listed) for way, listed in found.items()}
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


# tune: the figures of the card


def tune_steps(bench: Bench) -> Generator[Step]:
    """The measurements that the file lacks, the classes in turns, so that each gets its share."""
    known = {one.key() for one in measure.read(bench.measurements)}
    classes: defaultdict[str, list[Benchmark]] = defaultdict(list)
    for one in bench.grid:
        if (one.group, one.name, _name(bench), torch.__version__) not in known:
            classes[one.group].append(one)
    for one in _in_turns(map(_spread, classes.values())):
        compiled = one.compiled and not bench.dry
        part, expected = ("compiled", COMPILE) if compiled else ("library", 0.3)
        yield Step(f"{one.group}: {one.name}", part, partial(_measured, bench, one), expected)


def _measured(bench: Bench, one: Benchmark) -> Json:
    line = Measurement(
        one.group, 1.0, one.kernels, one.name, one.mode, one.base, _name(bench), torch.__version__
    )
    predicted = line.predicted(Device.of(bench.profile))
    if bench.dry:  # a clock by which a device is slower than its profile says
        spent = predicted * 1.2
    else:
        with timer.one_thread():
            spent = timer.seconds(one.call(bench.place), bench.place, one.mode)
    measure.append(bench.measurements, replace(line, seconds=spent))
    return {"seconds": spent, "predicted": predicted}


def _name(bench: Bench) -> str:
    return "dry run" if bench.dry else calibrate.device_name(bench.place)


def tune_tables(bench: Bench, _: Rows) -> dict[str, list[Json]]:
    """Writes the profile; the figures that changed, and the error of each class."""
    profile = calibrate.fitted(measure.read(bench.measurements), bench.profile)
    calibrate.write(profile, bench.tuned)
    report = profile.fit
    assert report is not None
    changed = [
        {"figure": key, "prior": bench.profile.figures.get(key), "fitted": value,
         "unit": FIGURES[key].unit}
        for key, value in profile.figures.items()
        if value != bench.profile.figures.get(key)
    ]  # fmt: skip
    errors = [
        {"class": name, "n": one.n, "error": one.error, "held out": one.heldout}
        for name, one in report.classes.items()
    ]
    n, error, heldout = report.measurements, report.error, report.heldout
    errors.append({"class": "all", "n": n, "error": error, "held out": heldout})
    return {"Figures that changed": changed, "Errors of the fit, as factors": errors}


# variants: groups of equal programs


def variant_steps(bench: Bench) -> Generator[Step]:
    """For each group its predicted kernels, and the times of its programs in either mode."""
    for group in _spread(bench.groups):
        torch._dynamo.reset()
        calls: dict[str, Run] = {}
        yield Step(group.name, "kernels", partial(_group_kernels, bench, group))
        expected = COMPILE * len(group.programs)
        yield Step(group.name, "compile", partial(_compile_group, bench, group, calls), expected)
        for mode in MODES if calls else ():
            yield Step(group.name, mode, partial(_times, bench, calls, mode))


def _group_kernels(bench: Bench, group: Group) -> Json:
    found: Json = {}
    for name, program in group.programs.items():
        graph = capture(contest._Module(program), tensors(group)).program.graph
        found[name] = _listed(partial(partition, graph, Device.of(bench.profile)))
    return found


def _compile_group(bench: Bench, group: Group, calls: dict[str, Run]) -> Json:
    """Compiles the programs of a group into `calls`; they must compute the same."""
    operands = tensors(group, bench.place)
    made: dict[str, Run] = {}
    seconds: dict[str, float] = {}
    outputs: list[Tensor] = []
    for name, program in group.programs.items():
        start = time.perf_counter()
        compiled = _compiled(bench, program)
        outputs.append(compiled(*operands))
        made[name] = partial(compiled, *operands)
        seconds[name] = round(time.perf_counter() - start, 3)
    errors = [_difference(output, outputs[0]) for output in outputs]
    if not max(errors) <= contest.CLOSE:
        raise RuntimeError(f"{group.name}: not equal: {dict(zip(made, errors, strict=True))}")
    calls |= made
    return {"seconds": seconds}


def variant_tables(bench: Bench, rows: Rows) -> dict[str, list[Json]]:
    """For either mode, how well each predictor ranks, and how far off the predicted times are."""
    return {
        f"Ranking of equal programs, {_launches(mode)}": _ranking(bench.devices, rows, mode)
        for mode in MODES
        if any(mode in row and "kernels" in row for row in rows.values())
    }


def _ranking(devices: Mapping[str, Device], rows: Rows, mode: Mode) -> list[Json]:
    programs: list[Ranked] = []
    for group, row in rows.items():
        for name, spread in row.get(mode, {}).items() if "kernels" in row else ():
            found = _unlisted(row["kernels"][name])
            predicted = {key: _predicted(found, device, mode) for key, device in devices.items()}
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


# networks: the result against the given program


def network_steps(bench: Bench) -> Generator[Step]:
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
                yield Step(subject, mode, partial(_times, bench, calls, mode))


def _optimize(
    bench: Bench, build: Network, dtype: torch.dtype, programs: dict[str, partial[Any]]
) -> Json:
    """Optimizes a network for the replay of CUDA graphs, where the device alone counts."""
    module, args = build()
    module = module.to(bench.place, dtype)
    args = tuple(x.to(bench.place, dtype if x.is_floating_point() else None) for x in args)
    device = [*bench.devices.values()][-1]
    result = eqsat.optimize(module, args, device=device, mode="graph")
    report = result.report
    if report.before is None:
        raise RuntimeError(f"it was not optimized: {report.kept}")
    before, after = report.before.kernels, (report.after or report.before).kernels
    programs |= {"given": partial(module, *args), "result": partial(result.module, *args)}
    expected, output = _flat(module(*args)), _flat(result.module(*args))
    return {
        "kept": report.kept,
        "seconds": report.seconds,
        "error": _difference(output, expected),
        "operators": [sum(report.operators_before.values()), sum(report.operators_after.values())],
        "kernels": [len(before), len(after)],
        "generated": [sum(k.kind != "extern" for k in found) for found in (before, after)],
        "predicted": {
            profile: {mode: [_predicted(k, figures, mode) for k in (before, after)]
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
    call = partial(_compiled(bench, program.func), *program.args)
    inductor_metrics.reset()
    start = time.perf_counter()
    call()
    calls[which] = call
    seconds = round(time.perf_counter() - start, 3)
    return {"seconds": seconds, "generated": inductor_metrics.generated_kernel_count}


def network_tables(_: Bench, rows: Rows) -> dict[str, list[Json]]:
    """The measured speed-up beside the predicted one, and the generated kernels."""
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
    counts: list[Json] = []
    for subject, row in rows.items():
        if "optimize" not in row:
            continue
        done = row["optimize"]
        line = {"program": subject, "kept": "yes" if done["kept"] else "no"}
        line |= {key: " -> ".join(map(str, done[key])) for key in ("kernels", "generated")}
        made = [row.get(f"compile {which}", {}).get("generated") for which in ("given", "result")]
        line["generated by torch"] = " -> ".join("?" if n is None else str(n) for n in made)
        counts.append({**line, "error": done["error"]})
    return {"eqsat's result against torch.compile": lines, "Predicted and real kernels": counts}


# what the stages share


def _compiled(bench: Bench, program: Callable[..., Any]) -> Callable[..., Any]:
    """The program as Inductor compiles it, or in a dry run as it is, once it is traced."""
    return torch.compile(program, dynamic=False, backend="eager" if bench.dry else "inductor")


def _difference(output: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    return float((output - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def _predicted(found: Sequence[Kernel], device: Device, mode: Mode) -> float:
    """The seconds that are predicted; where a graph is replayed, no call is paid for."""
    seconds = roofline.time(found, device, mode).seconds
    return seconds if mode == "stream" else seconds - device.base


def _times(bench: Bench, calls: Mapping[str, Run], mode: Mode) -> Json:
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


def _spread(items: Sequence[T]) -> list[T]:
    """Every second one, then the others: whoever stops early has seen small and large."""
    return [*items[::2], *items[1::2]]


def _in_turns(lists: Iterable[Sequence[T]]) -> Iterator[T]:
    """The first of each list, then the second of each, and so on."""
    lists = list(lists)
    for i in range(max(map(len, lists), default=0)):
        yield from (items[i] for items in lists if i < len(items))


def _launches(mode: Mode) -> str:
    return "launched on a stream" if mode == "stream" else "replayed by a CUDA graph"


STAGES = (
    Stage("partition", 0.14, lambda _: (0, 0.0), partition_steps, partition_tables),
    Stage(
        "tune",
        0.26,
        lambda bench: (sum(one.compiled for one in bench.grid), COMPILE),
        tune_steps,
        tune_tables,
    ),
    Stage(
        "variants",
        0.22,
        lambda bench: (sum(len(group.programs) for group in bench.groups), COMPILE),
        variant_steps,
        variant_tables,
    ),
    Stage(
        "networks",
        0.32,
        lambda bench: (2 * len(bench.networks) * len(bench.dtypes), COMPILE_NETWORK),
        network_steps,
        network_tables,
    ),
)
"""The stages in order; 0.06 of the budget are for imports and for the last step to end."""


# the run


def run(
    bench: Bench, stages: Sequence[Stage], budget: float, document: Json, console: Console
) -> bool:
    """Runs the stages within `budget` seconds, each into `document`; whether nothing failed.

    The document is in its file, whole, after every step.
    """
    start, due = time.monotonic(), 0.0
    scale = sum(stage.share for stage in STAGES) / sum(stage.share for stage in stages) * budget
    for stage in stages:
        due += stage.share * scale
        begin = time.monotonic()
        report: Json = {"rows": {}, "failures": [], "stopped": None, "steps": 0}
        document["stages"][stage.name] = report
        for _ in _progress(stage, bench, start + due, GRACE * budget, report):
            write(document, bench.out)
        report["seconds"] = round(time.monotonic() - begin, 1)
        report["clocks"] = (
            None if bench.dry else _ask_driver("clocks.sm,clocks.mem,temperature.gpu")
        )
        write(document, bench.out)
        console.print(*shown(stage.name, report), sep="\n")
    return not any(document["stages"][stage.name]["failures"] for stage in stages)


def _progress(stage: Stage, bench: Bench, end: float, grace: float, report: Json) -> Iterator[None]:
    """Takes the steps of a stage until `end`, then concludes; yields when `report` has changed."""
    taken: defaultdict[str, list[float]] = defaultdict(list)
    steps = stage.steps(bench)
    try:
        with closing(steps):
            for step in steps:
                begin, known = time.monotonic(), taken[step.part]
                expected = statistics.mean(known) if known else step.expected
                where = f"{step.subject}: {step.part}"
                if begin + expected > end:
                    report["stopped"] = f"{where} would take {expected:.1f} s; too little is left"
                    break
                try:
                    with _limit(end + grace - begin):
                        row = step.run()
                    report["rows"].setdefault(step.subject, {})[step.part] = row
                except OutOfTime:
                    report["stopped"] = (
                        f"{where} was cut off after {time.monotonic() - begin:.1f} s"
                    )
                    break
                except Exception as error:  # noqa: BLE001 - it is recorded, and the rest goes on
                    report["failures"].append(failure(where, error))
                taken[step.part].append(time.monotonic() - begin)
                report["steps"] += 1
                yield
        report["tables"] = stage.conclude(bench, report["rows"])
    except Exception as error:  # noqa: BLE001 - the same
        report["failures"].append(failure(stage.name, error))
    yield


@contextmanager
def _limit(seconds: float) -> Generator[None]:
    """Raises OutOfTime inside after so many seconds."""

    def ring(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def failure(where: str, error: Exception) -> Json:
    """What went wrong and where: type, message and the innermost frames."""
    frames = traceback.extract_tb(error.__traceback__)[-TAIL:]
    return {
        "where": where,
        "type": type(error).__name__,
        "message": str(error)[:2000],
        "traceback": [f"{Path(f.filename).name}:{f.lineno} {f.name}: {f.line}" for f in frames],
    }


def write(document: Json, out: Path) -> None:
    """Writes DIR/gpu.json, whole or not at all."""
    handle, name = tempfile.mkstemp(".json", ".gpu.", out)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(document))
    Path(name).chmod(0o644)
    os.replace(name, out / "gpu.json")


def machine(bench: Bench) -> Json:
    """The versions and the card that the results are of."""
    found: Json = {
        "eqsat": eqsat.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "cpus": os.cpu_count(),
        "matmul": torch.get_float32_matmul_precision(),
        "cudnn tf32": torch.backends.cudnn.allow_tf32,
        "card": _name(bench),
    }
    if bench.dry:
        return found
    card = torch.cuda.get_device_properties(0)
    return found | {
        "driver": _ask_driver("driver_version"),
        "capability": f"{card.major}.{card.minor}",
        "multiprocessors": card.multi_processor_count,
        "memory": card.total_memory,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _ask_driver(what: str) -> str | None:
    """What nvidia-smi says of the first card; None where it is not to be had."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={what}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def plan(bench: Bench, stages: Sequence[Stage], budget: float) -> list[Json]:
    """What each stage has of the budget, and how much of it compiling is guessed to take."""
    scale = sum(stage.share for stage in STAGES) / sum(stage.share for stage in stages) * budget
    lines: list[Json] = []
    for stage in stages:
        count, each = (0, 0.0) if bench.dry else stage.compiles(bench)
        share = round(stage.share * scale)
        lines.append(
            {"stage": stage.name, "seconds": share, "compiles": count, "guess": round(count * each)}
        )
    return lines


def shown(name: str, report: Json) -> list[RenderableType]:
    """A stage as a person reads it: what was done, its tables, what failed."""
    done = f"{name}: {report['steps']} steps in {report['seconds']} s"
    stopped = f"; stopped: {report['stopped']}" if report["stopped"] else ""
    lines: list[RenderableType] = [Text(f"\n{done}{stopped}", "bold")]
    for title, rows in report.get("tables", {}).items():
        lines += _table(title, rows)
    for one in report["failures"]:
        lines.append(Text(f"failed: {one['where']}: {one['type']}: {one['message'][:300]}", "red"))
        lines.append(Text("\n".join(f"    {frame}" for frame in one["traceback"][-3:])))
    return lines


def _table(title: str, rows: Sequence[Json]) -> list[RenderableType]:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return table(title, columns, [[_cell(row.get(column)) for column in columns] for row in rows])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# the command


def card(out: Path, like: str | None) -> Bench:
    """What is tried on the card at hand. Raises ValueError where no profile is of it."""
    profile = calibrate.prior_of("cuda", like)
    return Bench(
        place="cuda",
        profile=profile,
        out=out,
        models=MODELS,
        grid=grid(Device.of(profile), "cuda"),
        groups=GROUPS,
        networks={
            "BERT-base": lambda: models.bert_base(8, 128, "sdpa")[:2],
            "GPT-2": lambda: models.gpt2(batch=8, tokens=128, attention="sdpa")[:2],
            "ResNet-50": lambda: models.resnet50(batch=8)[:2],
        },
        dtypes=(torch.bfloat16, torch.float32),
    )


def stand_in(out: Path) -> Bench:
    """A little of everything, on the CPU, with the card of a profile pretended."""
    profile, sums = find("h200"), next(one for one in GROUPS if one.name == "distribute")
    return Bench(
        place="cpu",
        profile=profile,
        out=out,
        models=("dlrm",),
        grid=grid(Device.of(profile), "cuda")[::4],
        groups=GROUPS[:2],
        networks={sums.name: lambda: (contest._Module(sums.programs["two"]), tensors(sums))},
        dtypes=(torch.float32,),
        rounds=3,
        dry=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code: 1 where something failed, 2 where nothing could be done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="made if missing")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds in all")
    names = [stage.name for stage in STAGES]
    parser.add_argument("--stages", nargs="+", choices=names, default=names)
    parser.add_argument("--profile", help="the profile to start from, if none is of the card")
    parser.add_argument("--dry-run", action="store_true", help="try the script without a card")
    options = parser.parse_args(arguments)
    if not options.dry_run and (torch.version.cuda is None or not torch.cuda.is_available()):
        return _refuse("torch sees no NVIDIA GPU: run it where the card is, or with --dry-run")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        bench = stand_in(options.out) if options.dry_run else card(options.out, options.profile)
        document = begun(bench)
    except (ValueError, OSError) as error:
        return _refuse(str(error))
    return _main(bench, options, document)


def _refuse(reason: str) -> int:
    print(f"gpu.py: {reason}", file=sys.stderr)
    return 2


def begun(bench: Bench) -> Json:
    """The document of an earlier run of this machine into the same folder, or a new one.

    Raises ValueError where the folder has results of another machine.
    """
    here = machine(bench)
    new: Json = {"schema": SCHEMA, "dry": bench.dry, "profile": bench.profile.name}
    new |= {"machine": here, "stages": {}}
    file = bench.out / "gpu.json"
    if not file.exists():
        return new
    old = json.loads(file.read_text("utf-8"))
    if old.get("machine") != here:
        raise ValueError(f"{file} has results of another machine or torch: name another folder")
    return old


def _main(bench: Bench, options: argparse.Namespace, document: Json) -> int:
    warnings.filterwarnings("ignore")
    if not bench.dry:
        inductor_config.compile_threads = max(1, min(COMPILE_THREADS, os.cpu_count() or 1))
    stages = [stage for stage in STAGES if stage.name in options.stages]
    document["plan"] = plan(bench, stages, options.budget)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    here = document["machine"]
    console.print(Text(", ".join(f"{key} {value}" for key, value in here.items()), "bold"))
    console.print(*_table("Plan, in seconds", document["plan"]), sep="\n")
    try:
        with torch.no_grad():
            good = run(bench, stages, options.budget, document, console)
    except KeyboardInterrupt:
        print(f"gpu.py: interrupted; {bench.out / 'gpu.json'} has what was done", file=sys.stderr)
        return 130
    console.print(f"\nwrote {bench.out / 'gpu.json'}{'' if good else '; something failed'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
