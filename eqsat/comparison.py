"""The command that compares searches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from eqsat import options
from eqsat.cost.device import MODES
from eqsat.limits import Limits
from eqsat.settings import LIMITS, MARGIN, TIME_LIMIT
from eqsat.terminal import one_line_errors, present


def compare(
    programs: Annotated[
        list[str] | None,
        typer.Argument(help="Saved programs (.pt2), and functions in a Python file: file.py:name."),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder of results.jsonl and page.html.")
    ] = Path("comparison"),
    zoo: Annotated[bool, typer.Option("--zoo", help="The zoo of this checkout.")] = False,
    full: Annotated[
        bool, typer.Option("--full/--small", help="The size of the zoo's entries.")
    ] = False,
    sets: Annotated[str, typer.Option("--set", help="Only these sets of it.")] = "A,B,C",
    entry: Annotated[list[str] | None, typer.Option(help="Only this entry; repeat.")] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm; repeat.")] = None,
    profile: Annotated[list[str] | None, typer.Option(help="A device profile; repeat.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Of the programs; repeat.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes; by default one a core.", min=1)
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help='A Ray cluster; "local" for one of this machine.')
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Compile each arm for this CPU and time it: minutes.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the rows of before.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds of one row.", min=1)] = 1800.0,
    mode: Annotated[str, typer.Option(help=f"{', '.join(MODES)}.")] = "stream",
    numerics: options.Numerics = "default",
    margin: options.Margin = MARGIN,
    extractor: options.Extractor = "auto",
    time_limit: options.Extracting = TIME_LIMIT,
    seconds: Annotated[float, typer.Option(help="Seconds of each search.")] = LIMITS.seconds,
    enodes: options.Enodes = LIMITS.enodes,
    iterations: options.Iterations = LIMITS.iterations,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not run the results.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Find what each rule saves, too: some more seconds.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Compare saturation with greedy searches and Inductor, on programs or the zoo."""
    with one_line_errors(debug):
        from eqsat.compare import command as comparing  # it brings what nothing else needs
        from eqsat.compare.task import ARMS, Options

        limits = Limits(iterations, enodes, seconds)
        shared = Options(
            mode, numerics, margin, extractor, time_limit, limits, not no_check, explain
        )
        choice = comparing.Choice(
            programs=programs or (),
            zoo=zoo,
            sizes=("full",) if full else ("small",),
            sets=sets.split(","),
            entries=entry or (),
            arms=arm or ARMS,
            profiles=profile or ("h200",),
            seeds=seed or (0,),
            options=shared,
        )
        run = comparing.Run(jobs or os.cpu_count() or 1, timeout, ray, measure, fresh)
        shown, whole = comparing.compare(choice, output, run)
        present(shown)
        print(f"\n{output / comparing.FILE}")
        raise typer.Exit(0 if whole else 1)
