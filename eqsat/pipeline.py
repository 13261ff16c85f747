"""The pipeline: capture, encode, saturate, extract, decode, check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule

from eqsat.aftermath import blamed, explained, script
from eqsat.apart import FailedError, LostError
from eqsat.capture import Captured, capture, constants_of, mask_with_gradient
from eqsat.check import Check, check
from eqsat.choose import Found
from eqsat.clock import Clock
from eqsat.cost.device import Device, Mode
from eqsat.hint import hinted, require_hints
from eqsat.isolate import isolated
from eqsat.limits import Limits
from eqsat.rebuild import drop_in, rebuild
from eqsat.replacing import replacing
from eqsat.report import Report
from eqsat.rewrite import Rewrite
from eqsat.saturate import IterationSize
from eqsat.saving import save
from eqsat.search import Search
from eqsat.search import search as searched
from eqsat.settings import LIMITS, MARGIN, SATURATION, TIME_LIMIT, Settings
from eqsat.turn import in_turn
from extract import Extract


@dataclass(frozen=True)
class Result:
    """An optimized program: a drop-in `module`, the same exported, and what was done."""

    module: GraphModule
    program: ExportedProgram
    report: Report

    def save(self, path: str | Path) -> None:
        """Write the program to a `.pt2` file that `torch.export.load` and AOTInductor read.

        Whole or not at all: what was there before is replaced when all is written.
        """
        save(self.program, Path(path))

    def package(self, path: str | Path) -> None:
        """Compile the program into a `.pt2` package that runs where neither eqsat nor egglog is.

        `torch._inductor.aoti_load_package` loads it. The weights are written once. Raises
        ValueError for another suffix, and what AOTInductor raises where it cannot compile.
        """
        path = Path(path)
        if path.suffix != ".pt2":
            raise ValueError(f"a package is a .pt2 file, not {path.name!r}")
        with replacing(path) as part:
            torch._inductor.aoti_compile_and_package(self.program, package_path=str(part))


@in_turn
def optimize(
    program: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    rules: Sequence[Rewrite] | None = None,
    device: str | Device = "h200",
    mode: Mode = "stream",
    numerics: str = "default",
    extractor: str | Extract = "auto",
    limits: Limits = LIMITS,
    time_limit: float = TIME_LIMIT,
    fold_budget: int | None = None,
    max_memory_growth: float | None = None,
    margin: float = MARGIN,
    search: str = SATURATION,
    hints: Mapping[str, int] | None = None,
    check: bool = True,
    cache: bool = True,
    memory_limit: int | None = None,
    isolate: bool = False,
    progress: Callable[[IterationSize], None] | None = None,
    observe: Callable[[Found], None] | None = None,
    explain: bool = False,
    dump: str | Path | None = None,
) -> Result:
    """An equal program that is predicted to be faster on `device`, for inference.

    `program` is a module with example `args` and `kwargs`, an FX GraphModule or an ExportedProgram.
    `mode` says whether kernels are launched one by one on a "stream" or by the replay of a "graph".
    `rules` (by default `rewrites.DEFAULT`) are applied as far as `numerics` lets them: "strict"
    keeps every bit, "default" may move rounding, "relaxed" needs finite values. `limits` bound the
    search and `time_limit` (seconds) the extraction. Constants are computed ahead as long as they
    take at most `fold_budget` bytes (by default as many as the weights, at least 64 MiB; 0, and the
    default without rules, turns folding off), and no more than as many again on the way. Dynamic
    dimensions cost what they cost at the sizes of the example inputs; `hints` gives others, by the
    name of a `Dim` or of its symbol as printed in the graph. With `check` the result runs beside
    the given program; where they differ the search is made once more, to name the rule, unless
    `isolate` is set.

    `search` is how rules are applied: all of them to "saturation", or "greedy", one sweep in the
    order of Inductor's pattern matcher, or greedily to a "fixpoint" (`eqsat.greedy`), or
    "backtracking" over whole programs, as TASO does it (`eqsat.backtrack`).

    The given program comes back where they differ, and where no result is predicted to be better by
    `margin`: that share of the time or, at equal time, fewer kernels. With a margin of minus
    infinity the result of the search always comes back.

    With `cache`, what was found before for the same graph with the same settings is taken from
    Inductor's cache folder: weights are folded anew, and the check runs as ever. `observe` is shown
    the e-graph and what was read from it, before anything is rebuilt; such a search is made anew.

    With `explain` the search is made again with fewer and fewer rules, and `report.rules` are those
    that the result needs, `report.explanation` their steps (`eqsat.explain`).

    Where the optimizer or the check fails, or a program cannot be made functional, a small script
    that repeats it is written to the folder `dump` (`report.dumped`), which takes up to a minute.

    `max_memory_growth` refuses what buys speed with memory: 1.2 allows a fifth more than the given
    program takes, of intermediates at their peak and weights together.

    `memory_limit` (bytes, beyond what the process held before) ends the growth of the e-graph. The
    rules of one iteration run to its end, though; with `isolate` the search is a process of its
    own, which is killed where it takes more memory, or half as long again as `limits` and
    `time_limit` allow together. Whatever becomes of it, the given program comes back.

    Calls in several threads wait for each other; processes run beside each other.

    Raises ValueError for a program that cannot be captured and for settings that do not exist.
    """
    settings = Settings.of(
        rules=rules,
        device=device,
        mode=mode,
        numerics=numerics,
        extractor=extractor,
        limits=limits,
        time_limit=time_limit,
        fold_budget=fold_budget,
        margin=margin,
        search=search,
        memory_limit=memory_limit,
        max_memory_growth=max_memory_growth,
    )
    if explain and settings.search != SATURATION:
        raise ValueError(f"search {search!r}: only a saturation can be explained")
    if isolate and (explain or observe is not None):
        raise ValueError(
            "explain and observe look at the e-graph, which isolate leaves in another process"
        )
    clock = Clock()
    with clock("capture"):
        captured = capture(program, args, None if kwargs is None else dict(kwargs), dynamic_shapes)
    require_hints(captured.program.graph, hints)
    dumped = partial(_dumped, captured=captured, settings=settings, isolate=isolate, folder=dump)
    blocked = captured.blocked
    if blocked is None and settings.numerics == "strict":
        blocked = mask_with_gradient(captured.program)
    if blocked is not None:
        kept = _kept(captured, settings, blocked, clock)
        return dumped(kept)
    if check and captured.args is None:
        raise ValueError("the check runs the program: pass example inputs as args, or check=False")
    verdict, found, seen = None, None, list[Found]()

    def shown(made: Found) -> None:
        seen.append(made)
        if observe is not None:
            observe(made)

    try:
        functional = captured.program
        constants = constants_of(functional)
        with hinted(functional.graph, hints):
            look = isolated if isolate else partial(searched, observe=shown if explain else observe)
            found = look(functional.graph, constants, settings, clock, progress, cached=cache)
        if found.winner is None:
            return _kept(captured, settings, found.no_better(settings), clock, found=found)
        result = rebuild(captured.program, found.winner.graph, found.winner.folded)
        if check:
            with clock("check"):
                verdict = _verify(captured, result, numerics)
        with clock("build"):
            module = drop_in(result)
    except LostError as error:
        kept = _kept(captured, settings, str(error), clock)
        return dumped(kept) if isinstance(error, FailedError) else kept
    except Exception as error:  # noqa: BLE001 - the one border that promises to give the program back
        reason = f"the optimizer failed: {type(error).__name__}: {error}"
        kept = _kept(captured, settings, reason, clock, found=found)
        return dumped(kept)
    if verdict is not None and not verdict.passed:
        rule = "" if isolate else blamed(captured, settings, verdict, hints)
        reason = f"the check failed: {verdict}{rule}"
        kept = _kept(captured, settings, reason, clock, verdict, found)
        return dumped(kept)
    report = _report(captured, settings, clock, verdict=verdict, found=found, result=result)
    if explain:
        report = explained(captured, seen[0], report, clock)
    return Result(module, result, report)


def _dumped(
    kept: Result,
    *,
    captured: Captured,
    settings: Settings,
    isolate: bool,
    folder: str | Path | None,
) -> Result:
    """The given program that came back, its failure written to a folder if there is one."""
    reason = kept.report.kept
    if folder is None or reason is None:
        return kept
    place = script(captured, settings, isolate, reason, Path(folder), optimize)
    return replace(kept, report=replace(kept.report, dumped=place))


def _verify(captured: Captured, program: ExportedProgram, numerics: str) -> Check:
    given = drop_in(captured.original)
    return check(given, drop_in(program), captured.args, captured.kwargs, numerics=numerics)


def _operators(graph: Graph) -> dict[str, int]:
    targets = [n.target for n in graph.nodes if n.op == "call_function"]
    names = [str(t) if isinstance(t, OpOverload) else getattr(t, "__name__", t) for t in targets]
    return dict(sorted(Counter(map(str, names)).items()))


def _report(
    captured: Captured,
    settings: Settings,
    clock: Clock,
    *,
    kept: str | None = None,
    verdict: Check | None = None,
    found: Search | None = None,
    result: ExportedProgram | None = None,
) -> Report:
    before = captured.original if result is None else captured.program
    winner = None if found is None else found.winner
    return Report(
        kept=kept,
        numerics=settings.numerics,
        device=settings.cost.device.name,
        extractor=settings.extractor,
        saturation=None if found is None else found.saturation,
        before=None if found is None else found.given,
        after=None if winner is None else winner.prediction,
        extractions=() if found is None else found.candidates,
        folded_bytes=0 if winner is None else winner.bytes,
        fold_budget=settings.fold_budget,
        check=verdict,
        operators_before=_operators(before.graph),
        operators_after=_operators((result or captured.original).graph),
        coverage={} if found is None else dict(found.coverage),
        cached=found is not None and found.cached,
        seconds=clock.seconds,
        memory_before=None if found is None else found.memory,
        memory_after=None if found is None else found.memory_after,
    )


def _kept(
    captured: Captured,
    settings: Settings,
    reason: str,
    clock: Clock,
    verdict: Check | None = None,
    found: Search | None = None,
) -> Result:
    """The given program, with the reason why it came back as it was."""
    report = _report(captured, settings, clock, kept=reason, verdict=verdict, found=found)
    return Result(drop_in(captured.original), captured.original, report)
