"""One run of the optimizer under random rules, limits and injuries, and what is wrong with it."""

from __future__ import annotations

import copy
import functools
import random
import threading
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import eqsat
import rewrites
from eqsat import Limits, Rewrite, apart, isolate
from eqsat.rewrite import ROUNDING
from eqsat.settings import ALWAYS

from .injuries import drawn, inflicted, rule
from .programs import generate, plan_of, small_plan
from .traps import Siblings, cats, chain, inputs, shared, tower
from .verdict import Seen, call, differences, exported, nudged

ASSOCIATIVE = (
    Rewrite("soak-commute", lambda a, b: (a + b, b + a)),
    Rewrite("soak-associate", lambda a, b, c: ((a + b) + c, a + (b + c)), numerics=ROUNDING),
)
TRAPS = (
    lambda: chain(120),
    lambda: Siblings(24),
    lambda: tower(60),
    lambda: cats(4),
    lambda: shared(30),
)
POOL = 300
"""Programs, each exported once: whenever torch exports one it keeps some 0.3 MB of it."""
ALLOWED = 1.5
"""The share of its limits that a search may take."""
MEMORY = (None, None, 64 << 20, 512 << 20)
OWN = ("capture", "check", "build", "fold", "cache")
"""Steps that run the program, or that no limit of the search is about."""
LENIENT = ("inf", "magnitude")
"""The probes that do not compare what is not finite."""
EXTRACTORS = ("auto", "auto", "tree", "greedy-dag", "exact", "fused")


@dataclass(frozen=True)
class Trial:
    """A run: how a program is optimized, and what happens meanwhile."""

    seed: int
    rules: tuple[Rewrite, ...]
    options: dict[str, Any]
    injury: str
    delay: float
    threads: int

    @property
    def allowed(self) -> float:
        """Seconds that the search may take."""
        return self.options["limits"].seconds + self.options["time_limit"]

    def __str__(self) -> str:
        threads = f"{self.threads} threads, " if self.threads > 1 else ""
        shown = {k: v for k, v in self.options.items() if k != "margin"}
        what = f"{threads}{self.injury or 'no injury'}"
        return f"run {self.seed}: {len(self.rules)} rules, {what}, {shown}"


@dataclass(frozen=True)
class Outcome:
    """What became of a run: `end` is a kind of end, `faults` say what is wrong with it."""

    end: str
    faults: tuple[str, ...] = ()
    share: float = 0.0


def trial(seed: int) -> Trial:
    """The trial of that number."""
    rng = random.Random(seed)
    isolated = rng.random() < 0.6
    injury = drawn(rng, isolated)
    share = rng.choice((0.05, 0.3, 1.0, 1.0))
    rules = [r for r in rewrites.DEFAULT if rng.random() < share]
    rules += ASSOCIATIVE if rng.random() < 0.2 else ()
    special = rule(injury)
    rules += [] if special is None else [special]
    limits = Limits(
        iterations=rng.choice((1, 4, 24)),
        enodes=rng.choice((100, 5_000, 100_000)),
        seconds=rng.choice((1.0, 2.0)),
        matches=rng.choice((10, 2_000, 20_000)),
    )
    options: dict[str, Any] = {
        "limits": limits,
        "time_limit": rng.choice((1.0, 2.0)),
        "isolate": isolated,
        "memory_limit": 128 << 20 if injury == "hunger" else rng.choice(MEMORY),
        "numerics": rng.choice(("strict", "default", "default")),
        "extractor": rng.choice(EXTRACTORS),
        "check": rng.random() < 0.3,
        "cache": rng.random() < 0.3,
        "margin": rng.choice((ALWAYS, ALWAYS, 0.05)),
    }
    threads = 2 if injury == "" and rng.random() < 0.1 else 1
    return Trial(seed, tuple(rules), options, injury, rng.random() * 2.0, threads)


@functools.cache
def program(number: int) -> tuple[torch.export.ExportedProgram, tuple[Tensor, ...]] | None:
    """The program of that number; None where torch does not capture it."""
    rng = random.Random(number)
    if rng.random() < 0.1:
        module = rng.choice(TRAPS)().eval()
        return torch.export.export(module, inputs(), strict=False), inputs()
    plan = plan_of(number) if rng.random() < 0.5 else small_plan(number)
    return exported(generate(plan))


def run(trial: Trial) -> Outcome:
    """Optimizes the program of a trial, and says what is wrong with the result."""
    captured = program(trial.seed % POOL)
    if captured is None:
        return Outcome("not captured")
    given, args = copy.deepcopy(captured)  # of each export torch keeps some for good
    try:
        expected = call(given.module(), args)
        noise = call(given.module(), [nudged(a) for a in args])
    except Exception:  # noqa: BLE001 - what torch does not run is not our subject
        return Outcome("not run")
    spent: list[float] = []
    results: list[eqsat.Result] = []
    errors: list[BaseException] = []
    before = time.process_time()

    def optimize() -> None:
        try:
            results.append(eqsat.optimize(given, args, rules=trial.rules, **trial.options))
        except BaseException as error:  # noqa: BLE001 - looked at below
            errors.append(error)

    try:
        with _Timed(spent), inflicted(trial.injury, trial.delay):
            if trial.threads == 1:
                optimize()
            else:
                many = [threading.Thread(target=optimize) for _ in range(trial.threads)]
                for thread in many:
                    thread.start()
                for thread in many:
                    thread.join()
    except KeyboardInterrupt:
        return Outcome("interrupted")
    for error in errors:
        if trial.injury == "interrupt" and isinstance(error, KeyboardInterrupt):
            return Outcome("interrupted")
        return Outcome("raised", (f"it raised {type(error).__name__}: {error}",))
    faults = [f for result in results for f in _faults(trial, result, expected, noise, args)]
    used = time.process_time() - before  # where others hold the cores, the clock tells of them
    here = [min(_searched(result), used) for result in results if trial.threads == 1]
    taken = spent or here
    share = max((s / trial.allowed for s in taken), default=0.0)
    if share > ALLOWED:
        faults.append(f"its search took {share:.2f} of its limits")
    kept = results[0].report.kept
    end = "optimized" if kept is None else _kind(kept)
    return Outcome(end, tuple(faults), share)


class _Timed:
    """Notes how long processes apart are waited for."""

    def __init__(self, spent: list[float]) -> None:
        self.spent = spent

    def __enter__(self) -> None:
        def timed(*args: Any) -> Any:
            started = time.perf_counter()
            try:
                return apart.apart(*args)
            finally:
                self.spent.append(time.perf_counter() - started)

        isolate.apart = timed

    def __exit__(self, *_: object) -> None:
        isolate.apart = apart.apart


def _searched(result: eqsat.Result) -> float:
    """Seconds of a search in this process; nothing if it was ended from outside."""
    return sum(s for step, s in result.report.seconds.items() if step not in OWN)


def _faults(
    trial: Trial, result: eqsat.Result, expected: Seen, noise: Seen, args: tuple[Tensor, ...]
) -> list[str]:
    """What is wrong with a result."""
    try:
        got = call(result.module, args)
    except Exception as error:  # noqa: BLE001 - a result that does not run is wrong
        return [f"the result raises {type(error).__name__}: {error}"]
    found = [f"wrong: {d}" for d in differences(expected, got, False, noise)]
    kept = result.report.kept or ""
    if _unequal(result) or ("optimizer failed" in kept and trial.injury != "panic"):
        found.append(kept)
    lost = "the search" in kept and "nothing faster" not in kept
    if lost and trial.injury not in ("kill", "crash", "hunger", "hang", "exit", "panic"):
        over = "longer than its limits" in kept or "bytes of memory" in kept
        found += [] if over else [kept]
    return found


def _unequal(result: eqsat.Result) -> bool:
    """Whether the check failed where rounding alone may not be to blame.

    Of infinite values a rule that rounds may make NaN, which a comparison makes True or False.
    """
    check = result.report.check
    return check is not None and any(not p.passed for p in check.probes if p.name not in LENIENT)


def _kind(kept: str) -> str:
    """A reason without its particulars."""
    kinds = ("nothing faster", "signal", "exit code", "longer than", "bytes of memory", "panic",
             "optimizer failed", "check failed", "search failed", "functional")  # fmt: skip
    return next((f"kept: {kind}" for kind in kinds if kind in kept.lower()), "kept")
