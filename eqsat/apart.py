"""Work done in a process of its own: whatever becomes of that, this one goes on."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch._subclasses import fake_tensor

from eqsat.resident import mapped, resident
from extract.interrupts import on_interrupt

LOOK = 0.02
"""Seconds between two looks at a process: what it takes within them goes unseen."""
LONG = 1e9
"""Seconds that no system needs to count."""
SPARE = 256 << 20
"""Bytes of address space beyond twice the limit of memory: threads and allocators reserve some."""
TOLD, ANSWERED, FAILED, INTERRUPTED = "told", "answered", "failed", "interrupted"


class LostError(RuntimeError):
    """The process came to no answer: it was killed, it crashed, or it took too much."""


class FailedError(LostError):
    """The work raised an error, which the process told before it ended."""


def apart(
    work: Callable[[Callable[[Any], None]], Any],
    seconds: float,
    memory: int | None,
    told: Callable[[Any], None],
) -> Any:
    """What `work(tell)` returns, in a fork of this process; what it tells on the way, `told` sees.

    Both travel as JSON. The process is killed after `seconds`, and where it holds `memory` bytes
    more than this one did. Ctrl-C (in the main thread) is passed on to it; a second one kills it.
    Raises LostError where no answer comes, KeyboardInterrupt where `work` did, ValueError on
    systems that cannot fork.
    """
    if not hasattr(os, "fork"):
        raise ValueError(f"a process of its own needs os.fork, which {sys.platform} does not have")
    deadline, before = time.monotonic() + seconds, resident() or 0
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or both processes would write what is left in them
    with tempfile.TemporaryDirectory(prefix="eqsat-") as folder:
        ours, theirs = os.pipe()
        with (
            open(ours, "rb", buffering=0),
            open(theirs, "wb", buffering=0) as end,
            _interrupts_held() as let_through,  # what comes until both are ready waits
        ):
            pid = _fork()
            if pid == 0:
                _child(work, (ours, theirs), seconds, memory, folder, let_through)
            child = _Child(pid, ours, deadline, memory, before)
            try:
                end.close()
                with on_interrupt(_passing_on(pid)):
                    let_through()
                    return _answer(child, told)
            finally:
                child.end()


@contextmanager
def _interrupts_held() -> Generator[Callable[[], None]]:
    """Holds Ctrl-C back from this thread, until what it gives is called, or to the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def let_through() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield let_through
    finally:
        let_through()


def _fork() -> int:
    if sys.version_info < (3, 12):
        return os.fork()
    with warnings.catch_warnings():  # the child runs one thread, and is killed if it hangs
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _answer(child: _Child, told: Callable[[Any], None]) -> Any:
    for kind, value in child.messages():
        if kind == TOLD:
            told(value)
        elif kind == ANSWERED:
            return value
        elif kind == INTERRUPTED:
            raise KeyboardInterrupt
        else:
            raise FailedError(f"the search failed: {value}")
    raise LostError(child.fate())


class _Child:
    """A process at work, seen from outside."""

    def __init__(
        self, pid: int, pipe: int, deadline: float, memory: int | None, before: int
    ) -> None:
        self.pid, self.pipe, self.deadline = pid, pipe, deadline
        self.memory, self.before = memory, before
        self.status: int | None = None  # as waitpid tells it
        self.lost = ""

    def messages(self) -> Generator[tuple[str, Any]]:
        """What it writes, message by message, until it is done, dead, or over a limit."""
        text = b""
        poll = select.poll()
        poll.register(self.pipe, select.POLLIN)
        while not self.over():
            if not poll.poll(LOOK * 1000):
                if self.dead() and not poll.poll(0):
                    return  # others may hold the end that it wrote to
                continue
            more = os.read(self.pipe, 1 << 16)
            if not more:
                return
            *lines, text = (text + more).split(b"\n")
            for line in lines:
                yield tuple(json.loads(line))

    def over(self) -> bool:
        """Whether it is over a limit."""
        if time.monotonic() > self.deadline:
            self.lost = "the search was killed: it took longer than its limits allow"
        held = resident(self.pid) if self.memory is not None else None
        if held is not None and self.memory is not None and held - self.before > self.memory:
            self.lost = f"the search was killed: it took more than {self.memory:,} bytes of memory"
        return bool(self.lost)

    def dead(self) -> bool:
        """Whether it has ended."""
        if self.status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else waits for all children
                pid, status = self.pid, 0
            self.status = status if pid else None
        return self.status is not None

    def end(self) -> None:
        """Kills it, unless it has ended, and waits for that."""
        if self.dead():
            return
        os.kill(self.pid, signal.SIGKILL)
        try:
            _, self.status = os.waitpid(self.pid, 0)
        except ChildProcessError:
            self.status = 0

    def fate(self) -> str:
        """Why there is no answer."""
        if self.lost:
            return self.lost
        self.end()
        code = os.waitstatus_to_exitcode(self.status or 0)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the search was lost: its process {how}"


def _passing_on(pid: int) -> Callable[[], None]:
    """Passes the first Ctrl-C on; the second one is ours."""
    seen: list[bool] = []

    def interrupt() -> None:
        seen.append(True)
        if len(seen) > 1:
            raise KeyboardInterrupt
        os.kill(pid, signal.SIGINT)

    return interrupt


def _child(
    work: Callable[[Callable[[Any], None]], Any],
    pipe: tuple[int, int],
    seconds: float,
    memory: int | None,
    folder: str,
    let_through: Callable[[], None],
) -> NoReturn:
    """Works, tells, and ends without running anything that this process meant to do at its end."""

    def tell(kind: str, value: Any) -> None:
        line = json.dumps([kind, value]).encode() + b"\n"
        while line:
            line = line[os.write(pipe[1], line) :]

    try:
        os.close(pipe[0])
        tempfile.tempdir = folder  # what a killed process leaves goes with it
        _settle(seconds, memory)
        let_through()
        tell(ANSWERED, work(lambda value: tell(TOLD, value)))
    except KeyboardInterrupt:
        tell(INTERRUPTED, None)
    except BaseException as error:  # noqa: BLE001 - nothing of the parent's may run here
        tell(FAILED, f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _settle(seconds: float, memory: int | None) -> None:
    """Makes a fork a process that computes by itself, dies with its parent and keeps to limits."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setpgid(0, 0)  # Ctrl-C on a terminal goes to the parent, which passes it on
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    gc.freeze()  # collecting what was there before would copy it
    torch.set_num_threads(1)  # those of the parent are not here
    fake_tensor.init_gpu_context = lambda _device: None  # no fork can use the parent's GPU
    _lower(resource.RLIMIT_CORE, 0)
    if seconds < LONG:
        _lower(resource.RLIMIT_CPU, int(seconds) + 2)
    held = mapped()
    if memory is not None and held is not None:
        _lower(resource.RLIMIT_AS, held + 2 * memory + SPARE)


def _lower(which: int, limit: int) -> None:
    """Sets a limit of this process, unless it has a lower one."""
    _, most = resource.getrlimit(which)
    limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
    resource.setrlimit(which, (limit, most))
