"""Every rule of the default set, run on many samples: what decided, and what was found."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from eqsat.verify import Verdict, verdicts
from eqsat.verify.command import COLUMNS, row, summary

RESULT = Path(__file__).parent / "results" / "verify.md"


def main() -> None:
    """Prints the table as markdown; with `--write`, into `benchmarks/results/verify.md` too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="rules; by default all")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="the most for one rule")
    parser.add_argument("--workers", type=int, help="processes; by default one a core")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    start, found = time.monotonic(), list[Verdict]()
    arguments = (options.samples, options.seed, options.seconds, options.workers)
    for verdict in verdicts((), options.names, *arguments):
        found.append(verdict)
        print(*row(verdict), flush=True)
    text = markdown(found, options.samples, options.seed, time.monotonic() - start)
    print(f"\n{text}")
    if options.write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(text + "\n")


def markdown(found: Sequence[Verdict], samples: int, seed: int, seconds: float) -> str:
    """The tables: of all rules, of what the samples were, and every counterexample."""
    head = (
        f"`python benchmarks/verify.py --samples {samples} --seed {seed}`, torch "
        f"{torch.__version__}: {seconds / 60:.0f} minutes."
    )
    parts = ["# Rules, verified", head, f"{summary(found)}.", methods(found), samples_of(found)]
    parts.append(grid(COLUMNS, [row(verdict) for verdict in found]))
    for verdict in found:
        if verdict.counterexample is not None:
            example = f"{verdict.law}\n\n{verdict.counterexample.text()}"
            parts.append(f"## {verdict.name}\n\n```\n{example}\n```")
    relaxed = [f"- `{v.name}`: {v.differs}" for v in found if v.differs is not None]
    if relaxed:
        parts.append("## Where relaxed rules change values\n\n" + "\n".join(relaxed))
    return "\n\n".join(parts)


def methods(found: Sequence[Verdict]) -> str:
    """How many rules were decided how."""
    counted = Counter(verdict.method for verdict in found)
    return grid(("decided by", "rules"), [(m, str(n)) for m, n in counted.most_common()])


def samples_of(found: Sequence[Verdict]) -> str:
    """In how many samples there was a tensor of each dtype, rank and size."""
    counted: Counter[str] = Counter()
    for verdict in found:
        counted.update(dict(verdict.kinds))
    return grid(("samples with", "number"), [(k, f"{n:,}") for k, n in sorted(counted.items())])


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in markdown."""
    lines = (columns, ["---"] * len(columns), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
