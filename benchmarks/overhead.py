"""What the backend adds to the time of `torch.compile`: cold, and from Inductor's caches."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import models
import torch

PROGRAMS = ("bert-base-12", "gpt2-12", "llama-16", "resnet-50")
ARMS = ("inductor", "eqsat")
RESULT = Path(__file__).parent / "results" / "overhead.md"


def main() -> None:
    """Prints the table as markdown; with `--write`, into `benchmarks/results/overhead.md` too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=PROGRAMS, help=", ".join(models.BUILDERS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    parser.add_argument("--one", choices=ARMS, help="compile once, in this process, and print it")
    options = parser.parse_args()
    if unknown := sorted({*options.programs} - {*models.BUILDERS}):
        parser.error(f"unknown program {unknown[0]}; there are {', '.join(models.BUILDERS)}")
    if options.one is not None:
        print(json.dumps(compile_once(options.programs[0], options.one)))
        return
    text = markdown([row(name, options.repeats) for name in options.programs], options.repeats)
    print(text)
    if options.write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(text + "\n")


def compile_once(name: str, arm: str) -> float:
    """CPU seconds, with those of the C++ compiler, of the first call of the compiled program."""
    warnings.filterwarnings("ignore")
    module, args, kwargs = models.BUILDERS[name]()
    compiled = torch.compile(module, backend=arm)
    with torch.no_grad():
        start = _cpu_seconds()
        compiled(*args, **kwargs)
        return _cpu_seconds() - start


def _cpu_seconds() -> float:
    """Of this process and of those that it waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def row(name: str, repeats: int) -> list[str]:
    """One row: the arms in turn, each in an empty cache folder and then again with that folder."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for arm in ARMS:
            with tempfile.TemporaryDirectory() as cache:
                for state in ("cold", "warm"):
                    seconds.setdefault((state, arm), []).append(_in_process(name, arm, cache))
                    print(f"{name} {arm} {state}: {seconds[state, arm][-1]:.2f} s", file=sys.stderr)
    cells = [name]
    for state in ("cold", "warm"):
        theirs, ours = (seconds[state, arm] for arm in ARMS)
        added = statistics.median(ours) / statistics.median(theirs) - 1
        cells += [_spread(theirs), _spread(ours), f"{added:+.0%}"]
    return cells


def _in_process(name: str, arm: str, cache: str) -> float:
    command = [sys.executable, __file__, name, "--one", arm]
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": cache,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # else the compiler is not our child
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _spread(values: Sequence[float]) -> str:
    """The median, with the least and the most."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def markdown(rows: Sequence[Sequence[str]], repeats: int) -> str:
    """The rows as a markdown table."""
    columns = ["program"]
    columns += [f"{state}: {what}" for state in ("cold", "warm") for what in (*ARMS, "added")]
    lines = [columns, ["---"] * len(columns), *rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    setting = (
        f"torch {torch.__version__}, inference on a CPU, one thread, one compiler at a time, a "
        f"process for each time; medians of {repeats} with the least and the most; the arms in "
        "turn. Cold is with empty caches, warm with those of the run before. Importing eqsat is "
        "part of it."
    )
    return f"# CPU seconds of the first call of a compiled program\n\n{setting}\n\n{table}"


if __name__ == "__main__":
    main()
