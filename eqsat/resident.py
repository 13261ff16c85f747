"""Memory that processes hold, as the system counts it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

PAGE = resource.getpagesize()
UNIT = 1 if sys.platform == "darwin" else 1024  # of what getrusage says


def resident(pid: int | None = None) -> int | None:
    """Bytes of memory that a process (by default this one) holds; None where nothing tells.

    Linux tells of every process. Elsewhere it is the most that this process ever held.
    """
    if (pages := _statm(pid)) is not None:
        return pages[1] * PAGE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT if pid is None else None


def mapped() -> int | None:
    """Bytes of address space that this process holds; None where nothing tells."""
    pages = _statm(None)
    return None if pages is None else pages[0] * PAGE


def _statm(pid: int | None) -> list[int] | None:
    """Pages of address space, pages in memory, and more; None where there is no such file."""
    try:
        text = Path("/proc", "self" if pid is None else str(pid), "statm").read_text()
    except OSError:
        return None
    return [int(word) for word in text.split()] or None
