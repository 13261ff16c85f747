"""The options that several commands have, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eqsat.numerics import NAMES

Model = Annotated[Path, typer.Argument(help="A program saved with torch.export.save.")]
Profile = Annotated[str, typer.Option(help="The device profile to optimize for.")]
Numerics = Annotated[str, typer.Option(help=f"{', '.join(NAMES)}.")]
Margin = Annotated[float, typer.Option(help="The least saving, as a share of the time.")]
Extractor = Annotated[str, typer.Option(help="How the e-graph is read.")]
Extracting = Annotated[float, typer.Option(help="Seconds of extraction.")]
Saturating = Annotated[float, typer.Option(help="Seconds of saturation.")]
Enodes = Annotated[int, typer.Option(help="Rows of the e-graph.")]
Iterations = Annotated[int, typer.Option(help="Rounds of rules.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Load what MODEL pickles, too: that may run code.")
]
RuleFiles = Annotated[
    list[Path] | None,
    typer.Option("--rules", help="A Python file of rules to add: code, and it is run. Repeat."),
]
Without = Annotated[list[str] | None, typer.Option(help="A rule to leave out; repeat.")]
Unchecked = Annotated[bool, typer.Option("--no-check", help="Do not run the result.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
