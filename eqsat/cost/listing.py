"""The figures of a profile as a table that says where each comes from."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from eqsat.cost.figure import FIGURES
from eqsat.cost.profile import Fit, Profile
from eqsat.table import table

MARK = "?"
"""Before the source of a figure that nothing confirms."""


def listing(profile: Profile) -> RenderableType:
    """Every figure with its unit and source, a mark if unconfirmed, and the errors of a fit."""
    head = f"{profile.name}: {profile.description}" if profile.description else profile.name
    lines: list[RenderableType] = [Text(head, "bold")]
    if profile.match:
        lines.append(Text(f"torch.cuda.get_device_name(): {', '.join(profile.match)}"))
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    grid.add_column("\nfigure", no_wrap=True)
    grid.add_column("\nvalue", justify="right", no_wrap=True)
    grid.add_column("\nunit", no_wrap=True)
    grid.add_column("", no_wrap=True)
    grid.add_column("\nsource")
    for key in (key for key in FIGURES if key in profile.figures):
        value = f"{profile.figures[key]:,.6g}"
        mark = MARK if key in profile.unconfirmed else ""
        source = profile.sources.get(key, "no source given")
        grid.add_row(*map(Text, (key, value, FIGURES[key].unit, mark, source)))
    lines.append(grid)
    marked, all_ = len(profile.unconfirmed), len(profile.figures)
    lines.append(Text(f"\n{MARK} unconfirmed: {marked} of {all_} figures"))
    return Group(*lines, *([] if profile.fit is None else errors(profile.fit)))


def errors(fit: Fit) -> list[RenderableType]:
    """The errors of a fit by class, in the fit and held out of it."""
    rows = [
        (name, str(one.n), f"x{one.error:.2f}", f"x{one.heldout:.2f}")
        for name, one in fit.classes.items()
    ]
    rows.append(("all", str(fit.measurements), f"x{fit.error:.2f}", f"x{fit.heldout:.2f}"))
    title = f"Fitted on {fit.date}, torch {fit.torch}"
    return table(title, ("class", "n", "error", "held out"), rows)
