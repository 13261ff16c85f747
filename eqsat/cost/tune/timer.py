"""The seconds of a call: thread CPU time on a CPU, CUDA events on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch.utils.benchmark import Timer

from eqsat.cost.device import Mode

Kind = Literal["cpu", "cuda"]
BLOCK = 4e-3
"""Seconds of a block of calls that is timed as one."""
BLOCKS = 25
"""Blocks of a measurement: on a CPU the fastest counts, on a GPU the median."""
ROUNDS = 60
"""Rounds over calls that are compared, each timed once a round."""
REPLAYED = 20
"""The most calls in one CUDA graph."""


@contextmanager
def one_thread() -> Generator[None]:
    """Runs torch on one thread, whose CPU time is then all of it, and without gradients."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(threads)


def seconds(call: Callable[[], object], kind: Kind, mode: Mode = "stream") -> float:
    """The seconds of `call`, whose data are in the cache if they fit.

    On a CPU: the thread's CPU time, which other processes do not lengthen, of the fastest block of
    calls. On a GPU: the median block between two events; in mode "graph" the calls are replayed by
    a CUDA graph, so that launching them takes no time of the host.
    """
    if kind == "cuda":
        return _on_cuda(call, mode)
    timer = Timer("call()", globals={"call": call}, timer=time.thread_time)
    first = timer.timeit(1).mean
    number = _number(first)
    return min(timer.timeit(number).mean for _ in range(_blocks(first * number)))


def interleaved(
    calls: Sequence[Callable[[], object]], kind: Kind, rounds: int = ROUNDS
) -> list[float]:
    """The seconds of calls that are compared: in turns, so that all meet the same disturbances."""
    best = [float("inf")] * len(calls)
    numbers = [_number(seconds(call, kind)) for call in calls]
    for _ in range(rounds):
        for i, call in enumerate(calls):
            best[i] = min(best[i], _block(call, numbers[i], kind))
    return best


def _number(once: float) -> int:
    """How often a call of `once` seconds fits a block."""
    return max(1, min(2000, int(BLOCK / max(once, 1e-7))))


def _blocks(block: float) -> int:
    """How many blocks of so many seconds are timed."""
    return BLOCKS if block < 10 * BLOCK else 5


def _block(call: Callable[[], object], number: int, kind: Kind) -> float:
    if kind == "cuda":
        return _between_events(call, number)
    start = time.thread_time()
    for _ in range(number):
        call()
    return (time.thread_time() - start) / number


def _on_cuda(call: Callable[[], object], mode: Mode) -> float:
    for _ in range(3):
        call()
    once = _between_events(call, 1)
    if mode == "stream":
        return _median(call, once)
    copies = min(REPLAYED, _number(once))
    return _median(_captured(call, copies).replay, copies * once) / copies


def _captured(call: Callable[[], object], copies: int) -> torch.cuda.CUDAGraph:
    """A CUDA graph of some calls, warmed up on a side stream as torch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(copies):
            call()
    return graph


def _median(call: Callable[[], object], once: float) -> float:
    """The seconds of a call of about `once`, by the median of some blocks."""
    number = _number(once)
    count = _blocks(once * number)
    blocks = sorted(_between_events(call, number) for _ in range(count))
    return blocks[count // 2]


def _between_events(call: Callable[[], object], number: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(number):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3 / number
