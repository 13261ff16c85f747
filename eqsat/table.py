"""Text for people: tables whose numbers line up, times and sizes in the unit that suits them."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

WIDTH = 100


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> list[RenderableType]:
    """A titled table whose numbers line up on the right; nothing when it has no rows."""
    rows = tuple(rows)
    if not rows:
        return []
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name, cell in zip(columns, rows[0], strict=True):
        numeric = cell[:1].isdigit() or cell == "-"
        grid.add_column(name, justify="right" if numeric else "left", no_wrap=numeric)
    for row in rows:
        grid.add_row(*map(Text, row))
    return [Text(f"\n{title}", "bold cyan"), grid]


def plain(renderable: RenderableType) -> str:
    """What rich makes of `renderable`, as text without colour, 100 columns wide."""
    sink = io.StringIO()
    console = Console(file=sink, width=WIDTH, color_system=None, force_terminal=False)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines())


def duration(seconds: float) -> str:
    """A time in the unit that suits it, to three digits: `41 us`, `1.25 ms`, `2.5 s`."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{_three(seconds / scale)} {unit}"
    return f"{seconds * 1e6:.2g} us"


def size(count: int) -> str:
    """An amount of memory in the unit that suits it: `512 B`, `1.5 MB` (powers of 1,000)."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{_three(count / scale)} {unit}"
    return f"{count} B"


def _three(value: float) -> str:
    """Three digits, and no exponent for a thousand or more."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}" if math.isfinite(value) else "inf"
