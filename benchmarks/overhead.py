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
    parser.add_argument("--repeats", type=int, default=1, help="cold times of each")
    parser.add_argument("--warm", type=int, default=9, help="warm times of each")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    parser.add_argument("--one", choices=ARMS, help="compile once, in this process, and print it")
    options = parser.parse_args()
    if unknown := sorted({*options.programs} - {*models.BUILDERS}):
        parser.error(f"unknown program {unknown[0]}; there are {', '.join(models.BUILDERS)}")
    if options.one is not None:
        print(json.dumps(compile_once(options.programs[0], options.one)))
        return
    times = options.repeats, options.warm
    text = markdown([row(name, *times) for name in options.programs], *times)
    print(text)
    if options.write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(text + "\n")


def compile_once(name: str, arm: str) -> float:
    """CPU seconds of compiling a program and its first call, with those of the C++ compiler."""
    warnings.filterwarnings("ignore")
    module, args, kwargs = models.BUILDERS[name]()
    start = _cpu_seconds()  # it imports Inductor: the one in `compile`, the other in the call
    compiled = torch.compile(module, backend=arm)
    with torch.no_grad():
        compiled(*args, **kwargs)
        return _cpu_seconds() - start


def _cpu_seconds() -> float:
    """Of this process and of those that it waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def row(name: str, repeats: int, warm: int) -> list[str]:
    """One row: the arms in turn, in empty cache folders, and then again with the last of those."""
    seconds: dict[tuple[str, str], list[float]] = {}

    def measure(state: str, arm: str, cache: str) -> None:
        seconds.setdefault((state, arm), []).append(_in_process(name, arm, cache))
        print(f"{name} {arm} {state}: {seconds[state, arm][-1]:.2f} s", file=sys.stderr)

    with tempfile.TemporaryDirectory() as caches:
        for k in range(repeats):
            for arm in ARMS:
                measure("cold", arm, f"{caches}/{arm}-{k}")
        for _ in range(warm):
            for arm in ARMS:
                measure("warm", arm, f"{caches}/{arm}-{repeats - 1}")
    cells = [name]
    for state in ("cold", "warm"):
        theirs, ours = (seconds[state, arm] for arm in ARMS)
        added = statistics.median(ours) / statistics.median(theirs) - 1
        cells += [_spread(theirs), _spread(ours), f"{added:+.1%}"]
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
    """The median, with the least and the most of several."""
    middle = f"{statistics.median(values):.2f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2f} to {max(values):.2f})"


def markdown(rows: Sequence[Sequence[str]], repeats: int, warm: int) -> str:
    """The rows as a markdown table."""
    columns = ["program"]
    columns += [f"{state}: {what}" for state in ("cold", "warm") for what in (*ARMS, "added")]
    lines = [columns, ["---"] * len(columns), *rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    setting = (
        f"torch {torch.__version__}, inference on a CPU, one thread, one compiler at a time, a "
        f"process for each time, the arms in turn: {repeats} cold, with empty caches, and {warm} "
        "warm, with those of the last cold one; medians, with the least and the most. From "
        "`torch.compile` on: imports of Inductor and eqsat are part of it."
    )
    return f"# CPU seconds until a compiled program has been called once\n\n{setting}\n\n{table}"


if __name__ == "__main__":
    main()
