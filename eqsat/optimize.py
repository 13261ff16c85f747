"""The pipeline: capture, encode, saturate, extract, decode, check."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule

import rewrites
from eqsat.capture import Captured, capture, constants_of
from eqsat.check import Check, check
from eqsat.cost.device import Device, load
from eqsat.decode import decode
from eqsat.encode import Encoding, encode
from eqsat.fold import Folding, drop_unread, fold
from eqsat.problem import Problem, problem
from eqsat.rebuild import drop_in, rebuild
from eqsat.report import Extraction, Report
from eqsat.rewrite import NAMES, Rewrite, require_unique
from eqsat.saturate import IterationSize, Limits, Saturation, saturate
from eqsat.snapshot import Snapshot
from extract import EXTRACTORS, Extract, Selection, dag_cost, judge

LEAST_GAIN = 1e-6  # of the cost: below it the given program stays as it is
LIMITS = Limits()
LEAST_BUDGET = 64 << 20  # bytes: masks and position tables of programs with few weights


@dataclass(frozen=True)
class Result:
    """An optimized program: a drop-in `module`, the same exported, and what was done."""

    module: GraphModule
    program: ExportedProgram
    report: Report

    def save(self, path: str | Path) -> None:
        """Write the program to a `.pt2` file that `torch.export.load` and AOTInductor read."""
        torch.export.save(self.program, path)


def optimize(
    program: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    rules: Sequence[Rewrite] | None = None,
    device: str | Device = "h200",
    numerics: str = "default",
    extractor: str | Extract = "auto",
    limits: Limits = LIMITS,
    time_limit: float = 5.0,
    fold_budget: int | None = None,
    check: bool = True,
    progress: Callable[[IterationSize], None] | None = None,
) -> Result:
    """An equal program that is predicted to be faster on `device`, for inference.

    `program` is a module with example `args` and `kwargs`, an FX GraphModule or an ExportedProgram.
    `rules` (by default `rewrites.DEFAULT`) are applied as far as `numerics` lets them: "strict"
    keeps every bit, "default" may move rounding, "relaxed" needs finite values. `limits` bound the
    search and `time_limit` (seconds) the extraction. Constants are computed ahead as long as they
    take at most `fold_budget` bytes (by default as many as the weights, at least 64 MiB; 0 turns
    folding off). With `check` the result runs beside the given program, and where they differ the
    given program comes back.

    Raises ValueError for a program that cannot be captured and for settings that do not exist.
    """
    settings = _Settings.of(rules, device, numerics, extractor, limits, time_limit, fold_budget)
    clock = _Clock()
    with clock("capture"):
        captured = capture(program, args, None if kwargs is None else dict(kwargs), dynamic_shapes)
    if captured.blocked is not None:
        return _kept(captured, settings, captured.blocked, clock)
    if check and captured.args is None:
        raise ValueError("the check runs the program: pass example inputs as args, or check=False")
    verdict = None
    try:
        candidate = _search(captured, settings, clock, progress)
        if check:
            with clock("check"):
                verdict = _verify(captured, candidate.program, numerics)
    except Exception as error:  # noqa: BLE001 - the one border that promises to give the program back
        reason = f"the optimizer failed: {type(error).__name__}: {error}"
        return _kept(captured, settings, reason, clock)
    if verdict is not None and not verdict.passed:
        return _kept(captured, settings, f"the check failed: {verdict}", clock, verdict)
    with clock("build"):
        module = drop_in(candidate.program)
    report = _report(captured, settings, candidate, verdict, clock)
    return Result(module, candidate.program, report)


@dataclass(frozen=True)
class _Settings:
    rules: tuple[Rewrite, ...]
    device: Device
    numerics: str
    extractor: str
    extract: Extract
    limits: Limits
    time_limit: float
    fold_budget: int | None

    @staticmethod
    def of(
        rules: Sequence[Rewrite] | None,
        device: str | Device,
        numerics: str,
        extractor: str | Extract,
        limits: Limits,
        time_limit: float,
        fold_budget: int | None,
    ) -> _Settings:
        if numerics not in NAMES:
            raise ValueError(f"numerics {numerics!r}: one of {', '.join(NAMES)}")
        if not time_limit > 0:
            raise ValueError(f"time_limit must be positive, not {time_limit!r}")
        if fold_budget is not None and fold_budget < 0:
            raise ValueError(f"fold_budget must be at least 0, not {fold_budget!r}")
        if isinstance(extractor, str):
            name = "portfolio" if extractor == "auto" else extractor
            if name not in EXTRACTORS:
                raise ValueError(f"extractor {name!r}: one of auto, {', '.join(EXTRACTORS)}")
            function: Extract = EXTRACTORS[name].extract
        else:
            name, function = getattr(extractor, "__name__", "custom"), extractor
        chosen = rewrites.DEFAULT if rules is None else tuple(rules)
        require_unique(chosen)
        within = (rule.within(NAMES[numerics]) for rule in chosen)
        allowed = tuple(rule for rule in within if rule is not None)
        profile = load(device) if isinstance(device, str) else device
        return _Settings(
            allowed, profile, numerics, name, function, limits, time_limit, fold_budget
        )


@dataclass(frozen=True)
class _Candidate:
    program: ExportedProgram
    encoding: Encoding
    saturation: Saturation
    problem: Problem
    selection: Selection
    folding: Folding
    budget: int


def _search(
    captured: Captured,
    settings: _Settings,
    clock: _Clock,
    progress: Callable[[IterationSize], None] | None,
) -> _Candidate:
    """Encode, saturate, extract and decode."""
    graph = captured.program.graph
    constants = constants_of(captured.program)
    with clock("encode"):
        encoding = encode(graph, constants)
    with clock("saturate"):
        snapshot, saturation = saturate(encoding, settings.rules, settings.limits, progress)
    mode = _fake_mode(graph)
    size = sum({id(t): t.nbytes for t in constants.values()}.values())
    budget = settings.fold_budget
    if budget is None:
        budget = max(size, LEAST_BUDGET) if settings.rules else 0
    for ahead in (budget > 0, False):
        with clock("extract"):
            choices = problem(snapshot, encoding, settings.device, ahead)
            selection = _extract(choices, settings)
        with clock("decode"):
            new, folding = _decoded(
                snapshot, encoding, choices, selection, mode, constants, budget if ahead else None
            )
            if folding is not None:
                rebuilt = rebuild(captured.program, new, dict(folding.tensors))
                return _Candidate(
                    rebuilt, encoding, saturation, choices, selection, folding, budget
                )
    raise AssertionError("decoding without folding always succeeds")


def _extract(choices: Problem, settings: _Settings) -> Selection:
    """The cheapest selection found, judged; the given program's own where nothing is cheaper."""
    egraph, given = choices.egraph, choices.given
    selection = settings.extract(egraph, time_limit=settings.time_limit, seeds=[given])
    judge(egraph, selection)
    cost = dag_cost(egraph, given)
    if selection.cost < cost * (1 - LEAST_GAIN):
        return selection
    return replace(selection, choice=given, cost=cost)


def _decoded(
    snapshot: Snapshot,
    encoding: Encoding,
    choices: Problem,
    selection: Selection,
    mode: FakeTensorMode,
    constants: Mapping[str, Tensor],
    budget: int | None,
) -> tuple[Graph, Folding | None]:
    graph = decode(snapshot, encoding, choices, selection.choice, mode)
    folding = Folding({}, 0) if budget is None else fold(graph, constants, mode, budget)
    drop_unread(graph, constants)
    return graph, folding


def _fake_mode(graph: Graph) -> FakeTensorMode:
    values = [n.meta.get("val") for n in graph.nodes]
    mode = detect_fake_mode([v for v in values if isinstance(v, Tensor)])
    return mode if mode is not None else FakeTensorMode(allow_non_fake_inputs=True)


def _verify(captured: Captured, program: ExportedProgram, numerics: str) -> Check:
    given = drop_in(captured.original)
    return check(given, drop_in(program), captured.args, captured.kwargs, numerics=numerics)


def _operators(graph: Graph) -> dict[str, int]:
    targets = [n.target for n in graph.nodes if n.op == "call_function"]
    names = [str(t) if isinstance(t, OpOverload) else getattr(t, "__name__", t) for t in targets]
    return dict(sorted(Counter(map(str, names)).items()))


def _report(
    captured: Captured,
    settings: _Settings,
    candidate: _Candidate,
    verdict: Check | None,
    clock: _Clock,
) -> Report:
    selection, choices = candidate.selection, candidate.problem
    return Report(
        kept=None,
        numerics=settings.numerics,
        device=settings.device.name,
        extractor=settings.extractor,
        saturation=candidate.saturation,
        before=choices.estimate(choices.given),
        after=choices.estimate(selection.choice),
        extraction=Extraction(
            selection.method,
            selection.status,
            selection.cost,
            selection.lower_bound,
            selection.seconds,
        ),
        folded_bytes=candidate.folding.bytes,
        fold_budget=candidate.budget,
        check=verdict,
        operators_before=_operators(captured.program.graph),
        operators_after=_operators(candidate.program.graph),
        coverage=dict(candidate.encoding.opaque),
        seconds=clock.seconds,
    )


def _kept(
    captured: Captured,
    settings: _Settings,
    reason: str,
    clock: _Clock,
    verdict: Check | None = None,
) -> Result:
    """The given program, with the reason why it came back as it was."""
    operators = _operators(captured.original.graph)
    report = Report(
        kept=reason,
        numerics=settings.numerics,
        device=settings.device.name,
        extractor=settings.extractor,
        saturation=None,
        before=None,
        after=None,
        extraction=None,
        folded_bytes=0,
        fold_budget=settings.fold_budget,
        check=verdict,
        operators_before=operators,
        operators_after=operators,
        coverage={},
        seconds=clock.seconds,
    )
    return Result(drop_in(captured.original), captured.original, report)


class _Clock:
    """Wall seconds by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, step: str) -> Generator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[step] = self.seconds.get(step, 0.0) + spent
