"""Random programs under random rules, limits and injuries, for an hour: what does not survive?

A worker does run after run and prints a line for each; this process starts another where one
dies, kills one that hangs, and writes `benchmarks/results/soak.md`.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import functools
import gc
import json
import linecache
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzzing import laws
from fuzzing.survival import POOL, run, trial
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import graph_module

from eqsat.cache import SUFFIX, load
from eqsat.resident import resident

RESULTS = Path(__file__).parent / "results" / "soak.md"
HANG = 180.0
"""Seconds after which a run hangs."""
WARM = POOL
"""Runs of a worker before its memory is looked at: by then torch has seen every program."""
SLOPE = 1.0
"""Megabytes that a hundred runs may leave behind."""


def work(first: int) -> None:
    """Run after run, without end, each a line of JSON."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    faulthandler.dump_traceback_later(HANG * 0.9, repeat=True)
    seed = first
    while True:
        now = trial(seed)
        started = time.monotonic()
        try:
            outcome = run(now)
            line = {"end": outcome.end, "faults": outcome.faults, "share": outcome.share}
        except KeyboardInterrupt:  # that came late
            line = {"end": "interrupted", "faults": (), "share": 0.0}
        except Exception as error:  # noqa: BLE001 - a fault of the run, or of this script
            line = {"end": "raised", "faults": [f"{type(error).__name__}: {error}"], "share": 0.0}
        line |= {"seed": seed, "trial": str(now), "injury": now.injury}
        line |= {"isolated": now.options["isolate"], "seconds": time.monotonic() - started}
        faulthandler.dump_traceback_later(HANG * 0.9, repeat=True)
        print(json.dumps(line | {"resident": settled()}), flush=True)
        seed += 1


def settled() -> int:
    """Bytes that this process holds without what torch, Python and the makers of programs keep."""
    graph_module._loader.eval_cache.clear()
    FakeTensorMode.cache_clear()
    linecache.clearcache()
    laws.samples.cache_clear()
    for value in gc.get_objects():  # what is bounded fills for long, and is no leak
        if isinstance(value, functools._lru_cache_wrapper) and value.cache_parameters()["maxsize"]:
            value.cache_clear()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    return resident() or 0


@dataclass
class Log:
    """What all runs showed."""

    runs: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    injuries: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    shares: list[float] = field(default_factory=list[float])
    sizes: list[list[int]] = field(default_factory=list[list[int]])
    crashes: int = 0

    def add(self, line: dict[str, Any]) -> None:
        """Counts a run."""
        self.runs += 1
        self.ends[line["end"]] += 1
        where = "apart" if line["isolated"] else "here"
        self.injuries[f"{line['injury'] or 'none'}, {where}"] += 1
        self.faults += [f"{line['trial']}: {fault}" for fault in line["faults"]]
        if line["share"]:
            self.shares.append(line["share"])
        self.sizes[-1].append(line["resident"])

    def slope(self) -> float:
        """Megabytes that a hundred runs leave behind, in the worker that did most runs."""
        longest = max((sizes[WARM:] for sizes in self.sizes), key=len, default=[])
        if len(longest) < 2:
            return 0.0
        return float(np.polyfit(np.arange(len(longest)) / 100, np.array(longest) / 1e6, 1)[0])

    def text(self, seconds: float, damaged: int) -> str:
        """The log as a page."""
        leak = self.slope()
        late = sum(share > 1.5 for share in self.shares)
        wrong = sum("wrong" in fault or "raises" in fault for fault in self.faults)
        rows = [
            ("runs", f"{self.runs:,} in {seconds / 60:.0f} minutes"),
            ("wrong results", str(wrong)),
            ("crashes and hangs of the parent process", str(self.crashes)),
            ("searches beyond 1.5 times their limits", f"{late} of {len(self.shares):,}"),
            ("the longest search, as a share of its limits", f"{max(self.shares, default=0):.2f}"),
            ("memory left behind by a hundred runs", f"{leak:.2f} MB"),
            ("damaged entries of the cache", str(damaged)),
            ("other faults", str(len(self.faults) - wrong - late)),
        ]
        ends = [f"| {end} | {count:,} |" for end, count in self.ends.most_common()]
        hurt = [f"| {what} | {count:,} |" for what, count in sorted(self.injuries.items())]
        return (
            "\n".join(
                [
                    "# Soak",
                    "",
                    "Random programs, rules, limits and injuries (`benchmarks/soak.py`).",
                    "",
                    "| what | found |",
                    "| --- | --- |",
                    *(f"| {name} | {value} |" for name, value in rows),
                    "",
                    "| how runs ended | runs |",
                    "| --- | --- |",
                    *ends,
                    "",
                    "| injury, and where the search ran | runs |",
                    "| --- | --- |",
                    *hurt,
                    "",
                    *(f"- {fault}" for fault in self.faults[:50]),
                ]
            ).rstrip()
            + "\n"
        )


def soak(first: int, seconds: float, folder: Path) -> Log:
    """The log of workers that run one after the other for a while."""
    log, ends = Log(), time.monotonic() + seconds
    while time.monotonic() < ends:
        log.sizes.append([])
        first = _watch(log, first, ends, folder)
    return log


def _watch(log: Log, first: int, ends: float, folder: Path) -> int:
    """Reads what one worker prints, until it dies, hangs, or time is up; the number to go on."""
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--work", str(first)]
    with (folder / "stderr.txt").open("ab") as stderr:
        worker = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=env
        )
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(worker, lines), daemon=True).start()
        try:
            while (left := ends - time.monotonic()) > 0:
                try:
                    line = lines.get(timeout=min(HANG, left))
                except queue.Empty:
                    if left <= HANG:
                        break
                    log.crashes += 1
                    log.faults.append(f"run {first} hung")
                    return first + 1
                if line is None:
                    log.crashes += 1
                    log.faults.append(f"run {first} ended its process: code {worker.wait()}")
                    return first + 1
                read = json.loads(line)
                log.add(read)
                first = read["seed"] + 1
                print(
                    f"{first} {read['end']} {read['seconds']:.1f} s {read['resident'] >> 20} MiB",
                    *read["faults"],
                    flush=True,
                )
            return first
        finally:
            worker.kill()
            worker.wait()


def _read(worker: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith("{"):
            lines.put(line)
    lines.put(None)


def main() -> None:
    """Soak for a while, and write what was found."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first run")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the log goes")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as name:
        log = soak(options.seed, options.seconds, Path(name))
        place = Path(name, "eqsat")
        damaged = sum(load(place, p.name[: -len(SUFFIX)]) is None for p in place.glob(f"*{SUFFIX}"))
        text = log.text(time.monotonic() - started, damaged)
    options.out.write_text(text)
    print(text)
    raise SystemExit(bool(log.faults or log.crashes or damaged or log.slope() > SLOPE))


if __name__ == "__main__":
    main()
