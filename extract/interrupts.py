"""Ctrl-C heard where raising it would come between two lines that belong together."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def on_interrupt(act: Callable[[], None]) -> Generator[None]:
    """In it, Ctrl-C calls `act` and raises nothing of its own.

    That is so in the main thread; others never hear of it. Where Ctrl-C is ignored, as in a job of
    a shell in the background, it stays so.
    """
    ignored = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signum: int, _frame: Any) -> None:
        act()

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
