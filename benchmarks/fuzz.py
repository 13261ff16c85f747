"""Random programs, optimized with all rules and without the check, compared with what was given.

Most are saturated many at a time, and every e-node is computed, so that no selection goes unseen.
One in each batch goes the whole way, from export to what an extractor takes.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from fuzzing.batch import blame, examine, way_of
from fuzzing.programs import generate, plan_of, small_plan
from fuzzing.selections import ways
from fuzzing.shrink import Finding, explain
from fuzzing.verdict import verdict
from rich.console import Console
from rich.table import Table

import rewrites

BATCH = 100  # programs that are saturated together
SELECTED = 3  # one batch in so many is also decoded


@dataclass
class Tally:
    """What was tried and what was found; rules and operators with how often they did something."""

    programs: int = 0
    skipped: int = 0
    enodes: int = 0
    rules: Counter[str] = field(default_factory=Counter[str])
    operators: Counter[str] = field(default_factory=Counter[str])
    findings: list[Finding] = field(default_factory=list[Finding])

    def add(self, other: Tally) -> None:
        """Counts what was done elsewhere."""
        self.programs += other.programs
        self.skipped += other.skipped
        self.enodes += other.enodes
        self.rules += other.rules
        self.operators += other.operators
        self.findings += other.findings

    def __str__(self) -> str:
        return (
            f"{self.programs:,} programs of {len(self.operators)} kinds of calls, "
            f"{self.enodes:,} e-nodes computed, {len(self.rules)} of {len(rewrites.DEFAULT)} "
            f"rules fired, {self.skipped} not traced by torch, {len(self.findings)} failed"
        )


def batch(seed: int) -> Tally:
    """The programs from `seed` on, together, and number `seed` by itself the whole way."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch's own, of what the programs call
    sources = [generate(small_plan(number)) for number in range(seed, seed + BATCH)]
    way = way_of(seed // BATCH)
    seen = examine(sources, way, select=seed // BATCH % SELECTED == 0)
    findings = list(blame(seen, way))
    whole = generate(plan_of(seed))
    problems = [(way, verdict(whole, way)) for way in ways(seed)]
    captured = problems[0][1] is not None
    findings += [explain(whole, way, p, verdict) for way, p in problems if p]
    programs = len(seen.sources) + captured
    return Tally(
        programs, BATCH + 1 - programs, seen.computed, seen.rules, seen.operators, findings
    )


def batches(first: int, workers: int) -> Iterator[Tally]:
    """One batch after the other, without end, from several processes."""
    seeds = itertools.count(first, BATCH)
    if workers == 1:
        yield from map(batch, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        running = [pool.apply_async(batch, (next(seeds),)) for _ in range(workers)]
        while True:
            done = next((job for job in running if job.ready()), None)
            if done is None:
                time.sleep(0.05)
                continue
            running[running.index(done)] = pool.apply_async(batch, (next(seeds),))
            yield done.get()


def main() -> None:
    """Try random programs for a while, and print those whose result is wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="no batch starts later")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first program")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--rules", action="store_true", help="print how often each rule fired")
    options = parser.parse_args()
    console, total = Console(), Tally()
    started = time.monotonic()
    with console.status("the first programs") as status:
        for tally in batches(options.seed, options.workers):
            total.add(tally)
            for finding in tally.findings:
                console.rule("finding")
                print(finding, flush=True)
            status.update(str(total))
            if time.monotonic() - started > options.seconds:
                break
    if options.rules:
        console.print(rule_table(total))
    print(total)
    raise SystemExit(bool(total.findings))


def rule_table(tally: Tally) -> Table:
    """The rules, those that united least first, with the number of unions that each made."""
    table = Table("rule", "unions")
    for rule in sorted(rewrites.DEFAULT, key=lambda rule: (tally.rules[rule.name], rule.name)):
        table.add_row(rule.name, str(tally.rules[rule.name]))
    return table


if __name__ == "__main__":
    main()
