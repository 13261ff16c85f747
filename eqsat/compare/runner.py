"""Tasks in processes of their own: one that dies or hangs costs its task a try, and no other."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any  # a row

import torch

from eqsat.compare.task import Failure, Task

TRIES = 2
"""How often a task may lose its worker or hang before it fails."""
START = 300.0
"""Seconds in which a process is ready to work: it imports torch, perhaps beside others."""
READY = "ready"
PATIENCE = 5.0
"""Seconds in which an idle worker ends by itself."""
RECYCLE = 40
"""Tasks after which a worker makes room for a new one, whose caches are empty."""
Work = Callable[[Task], dict[str, Any]]
"""What finds the row of a task; it can be sent to another process."""
Found = tuple[Task, dict[str, Any] | Failure]


@dataclass
class _Worker:
    process: Any  # of the spawn context
    pipe: Connection
    task: Task | None = None
    last: tuple[str, str, int] | None = None
    ready: bool = False
    deadline: float = float("inf")
    done: int = 0


def processes(
    tasks: Sequence[Task],
    work: Work,
    jobs: int,
    timeout: float,
    recycle: int = RECYCLE,
    threads: int = 1,
) -> Generator[Found]:
    """Yields each task with its row, as they come, or with the reason why it has none.

    `jobs` processes work at once, each on `threads` threads of torch, on tasks of one program where
    they can. A task has `timeout` seconds; its process is then killed. A task whose process was
    killed or died is tried once more. Closing the iterator ends all processes.
    """
    waiting, tries = list(tasks), dict.fromkeys(tasks, 0)
    workers: list[_Worker] = []
    try:
        while waiting or any(worker.task for worker in workers):
            while len(workers) < min(jobs, len(waiting) + sum(w.task is not None for w in workers)):
                workers.append(_start(work, threads))
            for worker in workers:
                if worker.task is None and waiting:
                    _assign(worker, _next(waiting, worker, workers), timeout)
            for worker in _heard(workers):
                task, found = worker.task, _answer(worker)
                if found == READY:
                    worker.ready, worker.deadline = True, time.monotonic() + timeout
                    continue
                worker.task = None
                if isinstance(found, Failure):
                    _kill(worker)
                if isinstance(found, Failure) or worker.done >= recycle:
                    workers.remove(worker)
                    worker.pipe.close()  # which tells it to end
                if task is None:
                    continue
                tries[task] += isinstance(found, Failure)
                if isinstance(found, Failure) and tries[task] < TRIES:
                    waiting.insert(0, task)
                else:
                    yield task, found
    finally:
        _end(workers)


def _start(work: Work, threads: int) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work, threads), daemon=True)
    process.start()
    theirs.close()  # else its end would never be seen
    return _Worker(process, ours)


def _serve(pipe: Connection, work: Work, threads: int) -> None:
    """Answers tasks until there are no more; Ctrl-C is for the process that asks."""
    with suppress(AttributeError, OSError):
        os.setsid()
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    pipe.send(READY)
    while True:
        try:
            task: Task = pipe.recv()
        except EOFError:
            return
        with suppress(BrokenPipeError):  # whoever asked is gone
            pipe.send(work(task))


def _next(waiting: list[Task], worker: _Worker, workers: Sequence[_Worker]) -> Task:
    """The next task of a worker: of its last program, else of one that no other has, else any."""
    taken = {other.last for other in workers}
    same = (i for i, task in enumerate(waiting) if task.group == worker.last)
    free = (i for i, task in enumerate(waiting) if task.group not in taken)
    return waiting.pop(next(same, next(free, 0)))


def _assign(worker: _Worker, task: Task, timeout: float) -> None:
    worker.task, worker.last = task, task.group
    worker.deadline = time.monotonic() + (timeout if worker.ready else START)
    worker.done += 1
    with suppress(OSError):  # it died while idle: its end of the pipe says so next
        worker.pipe.send(task)


def _heard(workers: Sequence[_Worker]) -> list[_Worker]:
    """The workers that have answered, died or run out of time, once there are any."""
    while True:
        now = time.monotonic()
        late = [worker for worker in workers if worker.task and worker.deadline <= now]
        nearest = min((worker.deadline for worker in workers if worker.task), default=now)
        pipes = wait([worker.pipe for worker in workers], max(0.0, min(nearest - now, 1e6)))
        found = [worker for worker in workers if worker.pipe in pipes or worker in late]
        if found:
            return found


def _answer(worker: _Worker) -> Any:
    """What a worker has to say, a row or that it is ready; of one that has nothing, a Failure."""
    if worker.pipe.poll():
        try:
            return worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(10)
            code = worker.process.exitcode
            how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit {code}"
            return Failure(f"its process died ({how}), {TRIES} times")
    return Failure(f"it took longer than the time limit, {TRIES} times")


def _end(workers: Sequence[_Worker]) -> None:
    """Lets idle workers end, and kills all others."""
    for worker in workers:
        worker.pipe.close()
    for worker in workers:
        if worker.task is None:
            worker.process.join(PATIENCE)
        _kill(worker)


def _kill(worker: _Worker) -> None:
    """Kills a worker and whatever it started."""
    pid = worker.process.pid
    with suppress(AttributeError, OSError):
        if os.getpgid(pid) == pid:  # not before it has a group of its own
            os.killpg(pid, signal.SIGKILL)
    with suppress(OSError, ValueError):
        worker.process.kill()
        worker.process.join(10)
