"""What befalls a search in the middle: panics, errors, kills, Ctrl-C, hunger for memory, sleep."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from eqsat import engine
from eqsat.meta import Meta
from eqsat.rewrite import Rewrite

INSIDE = ("panic", "error", "interrupt")
"""What a search in this process must survive."""
APART = (*INSIDE, "kill", "crash", "hunger", "hang", "exit")
"""What one in a process of its own must."""
PATIENCE = 120.0
_held: list[bytearray] = []


def rule(injury: str) -> Rewrite | None:
    """A rule in whose condition it happens; None where it happens elsewhere."""
    actions: dict[str, Callable[[], Any]] = {
        "error": _error,
        "crash": _crash,
        "hunger": _hunger,
        "hang": lambda: time.sleep(PATIENCE),
        "exit": lambda: os._exit(5),
    }
    if injury not in actions:
        return None

    def when(x: Meta) -> bool:
        actions[injury]()
        return x.ndim < 0

    return Rewrite("soak-injury", lambda x: (x + x, x * 2), when=when)


def _error() -> None:
    raise RuntimeError("a condition that fails")


def _crash() -> None:
    import faulthandler

    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGSEGV)


def _hunger() -> None:
    _held.extend(bytearray(b"x" * (1 << 20)) for _ in range(4_000))
    _held.clear()


@contextmanager
def inflicted(injury: str, delay: float) -> Generator[None]:
    """Lets it happen to what runs inside, `delay` seconds from now where a clock decides."""
    if injury == "panic":
        with _panicking():
            yield
    elif injury in ("interrupt", "kill"):
        with _later(_interrupt if injury == "interrupt" else _kill, delay):
            yield
    else:
        yield


@contextmanager
def _panicking() -> Generator[None]:
    """In it, every run of rules ends in a panic of egglog."""
    run = engine.Engine.run

    def panicking(self: engine.Engine, *args: Any) -> Any:
        run(self, *args)
        self.command("(run-schedule (saturate (run no-such-ruleset)))")

    engine.Engine.run = panicking  # pyright: ignore[reportAttributeAccessIssue] - on purpose
    try:
        yield
    finally:
        engine.Engine.run = run


@contextmanager
def _later(action: Callable[[], None], delay: float) -> Generator[None]:
    """Does something in a while, unless what is inside is over by then."""
    over = threading.Event()

    def wait() -> None:
        if not over.wait(delay):
            action()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        time.sleep(0)  # a signal that is on its way arrives here


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _kill() -> None:
    for child in children():
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def children() -> list[int]:
    """The processes that this one has started, and that live."""
    tasks = Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def drawn(rng: random.Random, isolated: bool) -> str:
    """What befalls a run: nothing, more often than not."""
    return rng.choice(APART if isolated else INSIDE) if rng.random() < 0.4 else ""
