"""The summary that a person reads."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from eqsat.table import table

from .stage import Json


def shown(name: str, report: Json) -> list[RenderableType]:
    """A stage as a person reads it: what was done, its tables, what failed."""
    done = f"{name}: {report['steps']} steps in {report['seconds']} s"
    stopped = f"; stopped: {report['stopped']}" if report["stopped"] else ""
    lines: list[RenderableType] = [Text(f"\n{done}{stopped}", "bold")]
    for title, rows in report.get("tables", {}).items():
        lines += shown_table(title, rows)
    for one in report["failures"]:
        lines.append(Text(f"failed: {one['where']}: {one['type']}: {one['message'][:300]}", "red"))
        lines.append(Text("\n".join(f"    {frame}" for frame in one["traceback"][-3:])))
    return lines


def shown_table(title: str, rows: Sequence[Json]) -> list[RenderableType]:
    """Rows as a table, with a column for every key of any of them."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return table(title, columns, [[_cell(row.get(column)) for column in columns] for row in rows])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
