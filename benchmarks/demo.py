"""Optimizes a BERT classifier and a GPT-2, shows why, and times both through torch.compile."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable

import models
import torch
from rich.console import Console
from rich.rule import Rule
from rich.table import Table

import eqsat

Run = Callable[[], object]

STOCK, OURS = "torch.compile(model)", "torch.compile(result.module)"

PROGRAMS: dict[str, Callable[[], models.Program]] = {
    "BERT classifier, 4 layers, padding mask": lambda: models.bert_classifier(
        layers=4, hidden=256, heads=4, batch=2, tokens=64, vocabulary=2048
    ),
    "GPT-2, 4 layers, logits of the last position": lambda: models.gpt2(
        layers=4, hidden=256, heads=4, batch=2, tokens=64, vocabulary=8192
    ),
}


def main() -> None:
    """One section for each program: the report, the error against eager, the timings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12.0, help="timing budget a program")
    seconds: float = parser.parse_args().seconds
    warnings.filterwarnings("ignore")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    console.print(f"eqsat {eqsat.__version__}, torch {torch.__version__}, on this machine's CPU")
    for title, build in PROGRAMS.items():
        console.print(Rule(title))
        with torch.no_grad():
            show(console, build(), seconds)


def show(console: Console, program: models.Program, seconds: float) -> None:
    """Optimizes one program and prints what came of it."""
    module, args, _ = program
    exported = torch.export.export(module, args, strict=False)
    result = eqsat.optimize(exported)
    console.print(result.report if console.is_terminal else str(result.report), markup=False)
    error = (result.module(*args) - module(*args)).abs().max().item()
    console.print(f"\nMax difference from the eager module on its own inputs: {error:.1e}")
    runs: dict[str, Run] = {"eager": lambda: module(*args)}
    torch.compiler.reset()  # the programs before
    try:
        runs |= {STOCK: compiled(module, args), OURS: compiled(result.module, args)}
    except Exception as failure:  # noqa: BLE001 no C++ compiler, most likely: time what there is
        reason = str(failure).strip().splitlines()[0]
        console.print(f"torch.compile does not work here, so it is not timed: {reason}")
    times = time_interleaved(runs, seconds)
    console.print(table(times))
    if OURS in times:
        console.print(f"[bold]{comparison(times[STOCK], times[OURS])}[/]")


def compiled(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> Run:
    """The module as Inductor compiles it, compiled now."""
    fast = torch.compile(module)
    fast(*args)
    return lambda: fast(*args)


def time_interleaved(runs: dict[str, Run], seconds: float) -> dict[str, list[float]]:
    """Seconds of each call of each run, in turns, so that what disturbs one disturbs all."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    deadline = time.perf_counter() + seconds
    for _ in range(3):  # warm up
        for run in runs.values():
            run()
    while time.perf_counter() < deadline or len(times["eager"]) < 10:
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def table(times: dict[str, list[float]]) -> Table:
    """The median of each run, the middle half of its calls, and their number."""
    rows = Table(box=None, title="\nMeasured on this CPU", title_justify="left", pad_edge=False)
    for column in ("run", "median", "middle half", "calls"):
        rows.add_column(column, justify="left" if column == "run" else "right")
    for name, samples in times.items():
        low, middle, high = (1e3 * second for second in statistics.quantiles(samples, n=4))
        rows.add_row(name, f"{middle:.2f} ms", f"{low:.2f} to {high:.2f} ms", str(len(samples)))
    return rows


def comparison(stock: list[float], ours: list[float]) -> str:
    """How many times as fast the result is, call against the call beside it."""
    ratios = [a / b for a, b in zip(stock, ours, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{OURS}: {middle:.2f}x as fast as {STOCK} (middle half {low:.2f}x to {high:.2f}x)"


if __name__ == "__main__":
    main()
