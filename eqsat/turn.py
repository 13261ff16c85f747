"""One thread at a time: tracing, fake tensors and random state of torch are those of a process."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_held = {"lock": threading.RLock()}


def in_turn(function: Callable[P, R]) -> Callable[P, R]:
    """The function, of which threads wait for each other; processes do not."""

    @functools.wraps(function)
    def waiting(*args: P.args, **kwargs: P.kwargs) -> R:
        from torch._dynamo.convert_frame import compile_lock  # slow to import, and needed anyway

        with compile_lock, _held["lock"]:  # in this order: a compiler that calls us has its own
            return function(*args, **kwargs)

    return waiting


def _unlock() -> None:
    """Gives a fork locks that no thread of its parent holds: ours, and the compiler's."""
    _held["lock"] = threading.RLock()
    if (frames := sys.modules.get("torch._dynamo.convert_frame")) is not None:
        vars(frames)["compile_lock"] = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)
