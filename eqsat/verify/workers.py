"""Verdicts on many rules, from several processes."""

from __future__ import annotations

import difflib
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

import rewrites
from eqsat.rewrite import Rewrite
from eqsat.rulefile import rules_of_file
from eqsat.verify.verdict import SAMPLES, SECONDS, Verdict, judge, parts

_rules: dict[str, Rewrite] = {}  # of a worker process, filled once


def chosen_rules(files: Sequence[Path], names: Sequence[str]) -> tuple[Rewrite, ...]:
    """The rules of the files, or without any the default ones; only those of `names`, if any.

    "matmul-merge" also names every "matmul-merge-...". Raises ValueError for a name of no rule.
    """
    known = [rule for path in files for rule in rules_of_file(path)] or list(rewrites.DEFAULT)
    if not names:
        return tuple(known)
    found: dict[str, Rewrite] = {}
    for name in names:
        of_name = [rule for rule in known if rule.name == name]
        of_name = of_name or [rule for rule in known if rule.name.startswith(f"{name}-")]
        if not of_name:
            near = difflib.get_close_matches(name, [rule.name for rule in known], 3, 0.0)
            raise ValueError(f"no rule is named {name!r}; near it: {', '.join(near)}")
        found |= {rule.name: rule for rule in of_name}
    return tuple(found.values())


def to_verify(files: Sequence[Path], names: Sequence[str]) -> dict[str, Rewrite]:
    """The rules chosen and the exact parts of them, by name."""
    return {rule.name: rule for rule in parts(chosen_rules(files, names))}


def verdicts(
    files: Sequence[Path] = (),
    names: Sequence[str] = (),
    samples: int = SAMPLES,
    seed: int = 0,
    seconds: float = SECONDS,
    workers: int | None = None,
) -> Iterator[Verdict]:
    """The verdicts on the rules of `files` or the default ones, in their order, as they are found.

    `workers` is the number of processes, by default one a core; each runs the files.
    """
    rules = to_verify(files, names)
    workers = min(workers or os.cpu_count() or 1, len(rules))
    if workers == 1:
        yield from (judge(rule, samples, seed, seconds) for rule in rules.values())
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _prepare, (tuple(files),)) as pool:
        try:
            waiting = [pool.submit(_judge, name, samples, seed, seconds) for name in rules]
            for future in waiting:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _prepare(files: tuple[Path, ...]) -> None:
    """Makes the rules anew in a worker process: they hold functions, which cannot be sent."""
    torch.set_num_threads(1)
    _rules.update(to_verify(files, ()))


def _judge(name: str, samples: int, seed: int, seconds: float) -> Verdict:
    return judge(_rules[name], samples, seed, seconds)
