"""The command `eqsat`: optimize a saved program, list the rules, tune a device profile."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, cast

import typer
from rich.console import Console

import eqsat
from eqsat import Limits, Result, archive, options, themes
from eqsat.comparison import compare
from eqsat.cost.device import MODES, Mode
from eqsat.cost.listing import listing
from eqsat.cost.profile import find
from eqsat.inquiry import bisect, explain
from eqsat.replacing import replacing
from eqsat.settings import LIMITS, MARGIN, TIME_LIMIT
from eqsat.terminal import (
    announced,
    bytes_of,
    named_size,
    one_line_errors,
    present,
    require_writable,
    rule_set,
)
from eqsat.verify import command
from eqsat.verify.workers import chosen_rules

app = typer.Typer(
    help="Equality saturation for PyTorch: an equal and faster program, and the reason why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def main() -> None:
    """The entry point."""
    app()


def _version(wanted: bool) -> None:
    if wanted:
        print(f"eqsat {eqsat.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


@app.command()
def optimize(
    model: options.Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the result goes (.pt2).")],
    device: options.Profile = "h200",
    mode: Annotated[
        str, typer.Option(help=f"How kernels are launched: {', '.join(MODES)}.")
    ] = "stream",
    numerics: options.Numerics = "default",
    margin: options.Margin = MARGIN,
    extractor: options.Extractor = "auto",
    time_limit: options.Extracting = TIME_LIMIT,
    seconds: options.Saturating = LIMITS.seconds,
    enodes: options.Enodes = LIMITS.enodes,
    iterations: options.Iterations = LIMITS.iterations,
    hint: Annotated[
        list[str] | None,
        typer.Option(help="The size of a dynamic dimension to cost it at: name=size. Repeat."),
    ] = None,
    no_check: options.Unchecked = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Search anew, and keep nothing of it.")
    ] = False,
    memory_growth: Annotated[
        float | None,
        typer.Option(
            "--max-memory-growth", help="Refuse results that take more than this times the memory."
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(help="Memory for the search, such as 800M or 4G: the e-graph grows no more."),
    ] = None,
    isolate: Annotated[
        bool,
        typer.Option("--isolate", help="Search in a process that is killed beyond its limits."),
    ] = False,
    trust: options.Trust = False,
    rule_files: options.RuleFiles = None,
    without: options.Without = None,
    package: Annotated[
        Path | None, typer.Option("--aot", help="Compile the result into this package (.pt2), too.")
    ] = None,
    report_file: Annotated[Path | None, typer.Option("--json", help="The report, as JSON.")] = None,
    dump: Annotated[
        Path | None, typer.Option(help="A folder for a small script that repeats a failure.")
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Optimize MODEL, save the equal and faster program, and print the report."""
    with one_line_errors(debug):
        for path in (output, package, report_file):
            require_writable(path)
        if package is not None and package.suffix != ".pt2":
            raise ValueError(f"{package}: a package is a .pt2 file")
        chosen = rule_set(rule_files, without)
        hints = dict(named_size(text) for text in hint or ())
        program = archive.load(model, quiet=not debug, trusted=trust)
        with Console(stderr=True).status("optimizing") as status:
            result = eqsat.optimize(
                program,
                device=device,
                mode=cast("Mode", mode),
                numerics=numerics,
                margin=margin,
                extractor=extractor,
                time_limit=time_limit,
                limits=Limits(iterations, enodes, seconds),
                rules=chosen,
                hints=hints,
                check=not no_check,
                cache=not no_cache,
                memory_limit=None if memory_limit is None else bytes_of(memory_limit),
                isolate=isolate,
                max_memory_growth=memory_growth,
                dump=dump,
                progress=lambda size: status.update(f"saturating: {size.enodes:,} rows"),
            )
        _write(result, output, report_file)
        if package is not None:
            with Console(stderr=True).status("compiling ahead"):
                result.package(package)


@app.command()
def rules(
    names: Annotated[list[str] | None, typer.Argument(help="Only these rules.")] = None,
    theme: Annotated[str | None, typer.Option(help="Only the rules of one theme.")] = None,
    rule_files: Annotated[
        list[Path] | None,
        typer.Option("--rules", help="Those of a Python file: code, and it is run. Repeat."),
    ] = None,
    inductor: Annotated[
        bool, typer.Option("--inductor", help="Inductor's own rules, and what is left out of them.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run both sides of each, and compare.")
    ] = False,
    samples: Annotated[int, typer.Option(help="Samples a rule, to verify it.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Of the samples.", min=0)] = 0,
    seconds: Annotated[float, typer.Option(help="The most for one rule.")] = 300.0,
    workers: Annotated[
        int | None, typer.Option(help="Processes; by default one a core.", min=1)
    ] = None,
    report_file: Annotated[
        Path | None, typer.Option("--json", help="The verdicts, as JSON.")
    ] = None,
    debug: options.Debug = False,
) -> None:
    """List rules: name, what each may change in the numbers, how it reads; or verify them."""
    with one_line_errors(debug):
        if inductor:
            if verify:
                raise ValueError("--verify runs default rules, or those of --rules, not Inductor's")
            themes.print_inductor()
            return
        files, chosen = announced(rule_files), [*(names or ())]
        if theme is not None:
            chosen += [rule.name for rule in themes.of(theme)]
        if verify:
            require_writable(report_file)
            shown, sound = command.verify(
                files, chosen, samples, seed, seconds, workers, report_file
            )
            present(shown)
            raise typer.Exit(0 if sound else 1)
        if files or names:
            themes.print_rules("rules", chosen_rules(files, chosen))
            return
        for name, found in themes.by_name().items():
            if theme in (None, name):
                themes.print_rules(name, found)


@app.command()
def tune(
    device: Annotated[str, typer.Option(help="What to measure: cpu or cuda.")] = "cpu",
    profile: Annotated[
        str | None, typer.Option(help="The profile to start from, or to rank with.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where the profile goes (.toml).")
    ] = None,
    measurements: Annotated[
        Path | None, typer.Option(help="Where measurements are kept (JSON lines).")
    ] = None,
    refit: Annotated[
        bool, typer.Option("--refit", help="Fit to the file; do not measure.")
    ] = False,
    rank: Annotated[bool, typer.Option("--rank", help="Time and rank equal programs.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="With --rank: a plot of it (.png, .svg, .pdf).")
    ] = None,
    show: Annotated[
        str | None, typer.Option(help="List the figures of a profile, CUDA name or file.")
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Fit a device profile to measurements, rank equal programs with it, or show one."""
    with one_line_errors(debug):
        if show is not None:
            present(listing(find(show)))
            return
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device {device!r}: cpu or cuda; a profile is named by --profile")
        for path in (out, measurements, plot):
            require_writable(path)
        tuning = _tuning()
        if rank:
            present(tuning.rank(device, profile, measurements, plot))
        else:
            present(tuning.fit(device, profile, out, measurements, refit))


for _command in (explain, bisect, compare):
    app.command()(_command)


def _tuning() -> ModuleType:
    """The module behind `eqsat tune`, which needs packages that nothing else does."""
    try:
        return importlib.import_module("eqsat.tuning")
    except ModuleNotFoundError as error:
        hint = "pip install 'eqsat[tune]' brings it"
        raise ValueError(f"tuning needs the package {error.name}: {hint}") from error


def _write(result: Result, output: Path, report_file: Path | None) -> None:
    """The program and its report, each whole or not at all; then the report for the person."""
    result.save(output)
    if report_file is not None:
        text = json.dumps(result.report.to_dict(), indent=2)
        with replacing(report_file) as part:
            part.write_text(text + "\n")
    if sys.stdout.isatty():
        Console(highlight=False).print(result.report)
    else:
        print(result.report)
