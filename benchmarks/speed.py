"""How long optimizing whole networks takes, step by step, and whether the result is equal."""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import models
import torch

import eqsat

PROGRAMS = ("bert-base-12", "gpt2-12", "llama-16", "resnet-50")
RESULT = Path(__file__).parent / "results" / "speed.md"


def main() -> None:
    """Prints the table as markdown; with `--write`, into `benchmarks/results/speed.md` too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=PROGRAMS, help=", ".join(models.BUILDERS))
    parser.add_argument("--device", default="h200")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    if unknown := sorted({*options.programs} - {*models.BUILDERS}):
        parser.error(f"unknown program {unknown[0]}; there are {', '.join(models.BUILDERS)}")
    warnings.filterwarnings("ignore")
    text = markdown([measure(name, options.device) for name in options.programs], options.device)
    print(text)
    if options.write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(text + "\n")


def measure(name: str, device: str) -> dict[str, str]:
    """One row: what optimizing the program took, and what it gave."""
    module, args, kwargs = models.BUILDERS[name]()
    with torch.no_grad():
        start = time.perf_counter()
        result = eqsat.optimize(module, args, kwargs, device=device, cache=False)
        total = time.perf_counter() - start
        expected = module(*args, **kwargs)
        error = (result.module(*args, **kwargs) - expected).abs().max().item()
        error /= max(1.0, expected.abs().max().item())
    report = result.report
    row = {"program": name, "operators": arrow(report.operators_before, report.operators_after)}
    if report.before is not None and report.after is not None:
        row["predicted"] = f"{ratio(report.before.seconds, report.after.seconds):.2f}x"
        row["kernels"] = f"{len(report.before.kernels)} -> {len(report.after.kernels)}"
    if (grown := report.saturation) is not None:
        row["e-nodes"] = f"{grown.enodes:,}"
        row["stop"] = str(grown.stop)
    steps = {step: f"{seconds:.2f}" for step, seconds in report.seconds.items()}
    kept = {"kept": report.kept} if report.kept is not None else {}
    return {**row, **steps, "all": f"{total:.2f}", "max error": f"{error:.1e}", **kept}


def arrow(before: dict[str, int], after: dict[str, int]) -> str:
    """The number of ATen operators before and after."""
    return f"{sum(before.values())} -> {sum(after.values())}"


def ratio(before: float, after: float) -> float:
    """How many times as long it takes before as after."""
    return before / after if after else 1.0


def markdown(rows: list[dict[str, str]], device: str) -> str:
    """The rows as a markdown table; a row that lacks a column has a dash there."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[row.get(column, "-") for column in columns] for row in rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    setting = f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads, profile {device}"
    meaning = "Errors are against eager, relative to the largest output where it is above 1."
    return f"# Seconds to optimize, by step\n\n{setting}. {meaning}\n\n{table}"


if __name__ == "__main__":
    main()
