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
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
import torch._inductor.config as inductor_config
from rich.console import Console
from rich.text import Text

from benchmarks.card.bench import Bench, card, stand_in
from benchmarks.card.document import begun
from benchmarks.card.run import STAGES, plan, run
from benchmarks.card.show import shown_table
from benchmarks.card.stage import Json

BUDGET = 540.0
COMPILE_THREADS = 8
"""The most processes that compile Triton kernels; each first imports torch."""


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


def _main(bench: Bench, options: argparse.Namespace, document: Json) -> int:
    warnings.filterwarnings("ignore")
    if not bench.dry:
        inductor_config.compile_threads = max(1, min(COMPILE_THREADS, os.cpu_count() or 1))
    stages = [stage for stage in STAGES if stage.name in options.stages]
    document["plan"] = plan(bench, stages, options.budget)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    here = document["machine"]
    console.print(Text(", ".join(f"{key} {value}" for key, value in here.items()), "bold"))
    console.print(*shown_table("Plan, in seconds", document["plan"]), sep="\n")
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
