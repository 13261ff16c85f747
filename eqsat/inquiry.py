"""The commands that look into a result: which rules made it, and which of them breaks a check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from eqsat import archive, options
from eqsat.limits import Limits
from eqsat.numerics import NAMES
from eqsat.settings import LIMITS, MARGIN
from eqsat.terminal import one_line_errors, present, require_writable, rule_set


def explain(
    model: options.Model,
    rule: Annotated[
        str | None, typer.Option(help="Say why this rule, or family of rules, did not fire.")
    ] = None,
    at: Annotated[str | None, typer.Option(help="With --rule: at this node of the graph.")] = None,
    device: options.Profile = "h200",
    numerics: options.Numerics = "default",
    margin: options.Margin = MARGIN,
    seconds: options.Saturating = LIMITS.seconds,
    enodes: options.Enodes = LIMITS.enodes,
    iterations: options.Iterations = LIMITS.iterations,
    trust: options.Trust = False,
    rule_files: options.RuleFiles = None,
    without: options.Without = None,
    no_check: options.Unchecked = False,
    report_file: Annotated[Path | None, typer.Option("--json", help="The same, as JSON.")] = None,
    debug: options.Debug = False,
) -> None:
    """Show the steps from MODEL to its result, or with --rule why a rule did not fire."""
    with one_line_errors(debug):
        from eqsat.reason import command as explaining

        if at is not None and rule is None:
            raise ValueError("--at says where --rule is asked about: name a rule")
        if numerics not in NAMES:
            raise ValueError(f"numerics {numerics!r}: one of {', '.join(NAMES)}")
        require_writable(report_file)
        settings = {
            "rules": rule_set(rule_files, without),
            "numerics": numerics,
            "limits": Limits(iterations, enodes, seconds),
        }
        program = archive.load(model, quiet=not debug, trusted=trust)
        with Console(stderr=True).status("searching"):
            right = True
            if rule is not None:
                shown = explaining.refusals(program, rule, at, report_file, settings)
            else:
                settings |= {"device": device, "margin": margin, "check": not no_check}
                shown, right = explaining.steps(program, report_file, settings)
        present(shown)
        raise typer.Exit(0 if right else 1)


def bisect(
    model: options.Model,
    bad: Annotated[
        str,
        typer.Option(
            help="A command that fails on a bad program, whose path replaces {} or comes last."
        ),
    ],
    keep: Annotated[
        Path | None, typer.Option(help="A folder for the last good program and the first bad one.")
    ] = None,
    device: options.Profile = "h200",
    numerics: options.Numerics = "default",
    margin: options.Margin = MARGIN,
    seconds: options.Saturating = LIMITS.seconds,
    enodes: options.Enodes = LIMITS.enodes,
    iterations: options.Iterations = LIMITS.iterations,
    trust: options.Trust = False,
    rule_files: options.RuleFiles = None,
    without: options.Without = None,
    debug: options.Debug = False,
) -> None:
    """Find the rule, and its one application, that makes a check of yours fail on the result."""
    with one_line_errors(debug):
        from eqsat.culprit import command as bisecting

        settings = {
            "rules": rule_set(rule_files, without),
            "numerics": numerics,
            "limits": Limits(iterations, enodes, seconds),
            "device": device,
            "margin": margin,
        }
        program = archive.load(model, quiet=not debug, trusted=trust)
        present(bisecting.bisect(program, bad, keep, settings))
