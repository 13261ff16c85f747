"""Wall seconds by step."""

import time
from collections.abc import Generator
from contextlib import contextmanager


class Clock:
    """Adds up the seconds of each step, in the order the steps began."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, step: str) -> Generator[None]:
        """Times what is inside as part of `step`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[step] = self.seconds.get(step, 0.0) + spent
