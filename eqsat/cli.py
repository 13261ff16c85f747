"""The command `eqsat`: optimize a saved program, list the rules, tune a device profile."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, cast

import typer
from rich.console import Console, RenderableType

import eqsat
import rewrites
from eqsat import Limits, Result, archive, themes
from eqsat.cost.device import MODES, Mode
from eqsat.cost.listing import listing
from eqsat.cost.profile import find
from eqsat.numerics import NAMES
from eqsat.replacing import replacing
from eqsat.rewrite import RuleSet
from eqsat.rulefile import rules_of_file
from eqsat.settings import MARGIN
from eqsat.table import plain
from eqsat.verify import command
from eqsat.verify.workers import chosen_rules

LIMITS = Limits()
_UNITS = {"K": 10, "M": 20, "G": 30}

app = typer.Typer(
    help="Equality saturation for PyTorch: an equal and faster program, and the reason why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def main() -> None:
    """The entry point."""
    app()


@contextmanager
def _one_line_errors(debug: bool) -> Generator[None]:
    """Turns an exception into one line on stderr and an exit code, unless `debug`."""
    try:
        yield
    except KeyboardInterrupt:
        print("eqsat: interrupted", file=sys.stderr)
        raise typer.Exit(130) from None
    except typer.Exit:
        raise
    except BrokenPipeError:  # the reader has seen enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(141) from None
    except Exception as error:  # the last border: from here on a person reads
        if debug:
            raise
        expected = isinstance(error, ValueError | TypeError | OSError)
        kind = "" if expected else f"{type(error).__name__} (--debug shows where): "
        print("eqsat:", kind + " ".join(str(error).split()), file=sys.stderr)
        raise typer.Exit(1) from None


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
    model: Annotated[Path, typer.Argument(help="A program saved with torch.export.save.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the result goes (.pt2).")],
    device: Annotated[str, typer.Option(help="The device profile to optimize for.")] = "h200",
    mode: Annotated[
        str, typer.Option(help=f"How kernels are launched: {', '.join(MODES)}.")
    ] = "stream",
    numerics: Annotated[str, typer.Option(help=f"{', '.join(NAMES)}.")] = "default",
    margin: Annotated[
        float, typer.Option(help="The least saving, as a share of the time.")
    ] = MARGIN,
    extractor: Annotated[str, typer.Option(help="How the e-graph is read.")] = "auto",
    time_limit: Annotated[float, typer.Option(help="Seconds of extraction.")] = 5.0,
    seconds: Annotated[float, typer.Option(help="Seconds of saturation.")] = LIMITS.seconds,
    enodes: Annotated[int, typer.Option(help="Rows of the e-graph.")] = LIMITS.enodes,
    iterations: Annotated[int, typer.Option(help="Rounds of rules.")] = LIMITS.iterations,
    hint: Annotated[
        list[str] | None,
        typer.Option(help="The size of a dynamic dimension to cost it at: name=size. Repeat."),
    ] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not run the result.")] = False,
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
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Load what MODEL pickles, too: that may run code."),
    ] = False,
    rule_files: Annotated[
        list[Path] | None,
        typer.Option("--rules", help="A Python file of rules to add: code, and it is run. Repeat."),
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="A rule to leave out; repeat.")] = None,
    package: Annotated[
        Path | None, typer.Option("--aot", help="Compile the result into this package (.pt2), too.")
    ] = None,
    report_file: Annotated[Path | None, typer.Option("--json", help="The report, as JSON.")] = None,
    dump: Annotated[
        Path | None, typer.Option(help="A folder for a small script that repeats a failure.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Optimize MODEL, save the equal and faster program, and print the report."""
    with _one_line_errors(debug):
        for path in (output, package, report_file):
            _writable(path)
        if package is not None and package.suffix != ".pt2":
            raise ValueError(f"{package}: a package is a .pt2 file")
        chosen = _chosen(rule_files or []).without(*(without or ()))
        hints = dict(_hint(text) for text in hint or ())
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
                memory_limit=None if memory_limit is None else _bytes(memory_limit),
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
def explain(
    model: Annotated[Path, typer.Argument(help="A program saved with torch.export.save.")],
    rule: Annotated[
        str | None, typer.Option(help="Say why this rule, or family of rules, did not fire.")
    ] = None,
    at: Annotated[str | None, typer.Option(help="With --rule: at this node of the graph.")] = None,
    device: Annotated[str, typer.Option(help="The device profile to optimize for.")] = "h200",
    numerics: Annotated[str, typer.Option(help=f"{', '.join(NAMES)}.")] = "default",
    margin: Annotated[float, typer.Option(help="The least saving.")] = MARGIN,
    seconds: Annotated[float, typer.Option(help="Seconds of saturation.")] = LIMITS.seconds,
    enodes: Annotated[int, typer.Option(help="Rows of the e-graph.")] = LIMITS.enodes,
    iterations: Annotated[int, typer.Option(help="Rounds of rules.")] = LIMITS.iterations,
    rule_files: Annotated[
        list[Path] | None,
        typer.Option("--rules", help="A Python file of rules to add: code, and it is run. Repeat."),
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="A rule to leave out; repeat.")] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not run the result.")] = False,
    report_file: Annotated[Path | None, typer.Option("--json", help="The same, as JSON.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Show the steps from MODEL to its result, or with --rule why a rule did not fire."""
    with _one_line_errors(debug):
        from eqsat.reason import command as explaining

        if at is not None and rule is None:
            raise ValueError("--at says where --rule is asked about: name a rule")
        if numerics not in NAMES:
            raise ValueError(f"numerics {numerics!r}: one of {', '.join(NAMES)}")
        _writable(report_file)
        settings = {
            "rules": _chosen(rule_files or []).without(*(without or ())),
            "numerics": numerics,
            "limits": Limits(iterations, enodes, seconds),
        }
        program = archive.load(model, quiet=not debug)
        with Console(stderr=True).status("searching"):
            right = True
            if rule is not None:
                shown = explaining.refusals(program, rule, at, report_file, settings)
            else:
                settings |= {"device": device, "margin": margin, "check": not no_check}
                shown, right = explaining.steps(program, report_file, settings)
        _print(shown)
        raise typer.Exit(0 if right else 1)


@app.command()
def bisect(
    model: Annotated[Path, typer.Argument(help="A program saved with torch.export.save.")],
    bad: Annotated[
        str,
        typer.Option(
            help="A command that fails on a bad program, whose path replaces {} or comes last."
        ),
    ],
    keep: Annotated[
        Path | None, typer.Option(help="A folder for the last good program and the first bad one.")
    ] = None,
    device: Annotated[str, typer.Option(help="The device profile to optimize for.")] = "h200",
    numerics: Annotated[str, typer.Option(help=f"{', '.join(NAMES)}.")] = "default",
    margin: Annotated[float, typer.Option(help="The least saving.")] = MARGIN,
    seconds: Annotated[float, typer.Option(help="Seconds of saturation.")] = LIMITS.seconds,
    enodes: Annotated[int, typer.Option(help="Rows of the e-graph.")] = LIMITS.enodes,
    iterations: Annotated[int, typer.Option(help="Rounds of rules.")] = LIMITS.iterations,
    rule_files: Annotated[
        list[Path] | None,
        typer.Option("--rules", help="A Python file of rules to add: code, and it is run. Repeat."),
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="A rule to leave out; repeat.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Find the rule, and its one application, that makes a check of yours fail on the result."""
    with _one_line_errors(debug):
        from eqsat.culprit import command as bisecting

        settings = {
            "rules": _chosen(rule_files or []).without(*(without or ())),
            "numerics": numerics,
            "limits": Limits(iterations, enodes, seconds),
            "device": device,
            "margin": margin,
        }
        _print(bisecting.bisect(archive.load(model, quiet=not debug), bad, keep, settings))


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
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """List rules: name, what each may change in the numbers, how it reads; or verify them."""
    with _one_line_errors(debug):
        if inductor:
            if verify:
                raise ValueError("--verify runs default rules, or those of --rules, not Inductor's")
            themes.print_inductor()
            return
        files, chosen = _announced(rule_files), [*(names or ())]
        if theme is not None:
            chosen += [rule.name for rule in themes.of(theme)]
        if verify:
            _writable(report_file)
            shown, sound = command.verify(
                files, chosen, samples, seed, seconds, workers, report_file
            )
            _print(shown)
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
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Fit a device profile to measurements, rank equal programs with it, or show one."""
    with _one_line_errors(debug):
        if show is not None:
            _print(listing(find(show)))
            return
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device {device!r}: cpu or cuda; a profile is named by --profile")
        for path in (out, measurements, plot):
            _writable(path)
        tuning = _tuning()
        if rank:
            _print(tuning.rank(device, profile, measurements, plot))
        else:
            _print(tuning.fit(device, profile, out, measurements, refit))


@app.command()
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
    numerics: Annotated[str, typer.Option(help=f"{', '.join(NAMES)}.")] = "default",
    margin: Annotated[float, typer.Option(help="The least saving.")] = MARGIN,
    extractor: Annotated[str, typer.Option(help="How the e-graph is read.")] = "auto",
    time_limit: Annotated[float, typer.Option(help="Seconds of extraction.")] = 5.0,
    seconds: Annotated[float, typer.Option(help="Seconds of each search.")] = LIMITS.seconds,
    enodes: Annotated[int, typer.Option(help="Rows of the e-graph.")] = LIMITS.enodes,
    iterations: Annotated[int, typer.Option(help="Rounds of rules.")] = LIMITS.iterations,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not run the results.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Find what each rule saves, too: some more seconds.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Compare saturation with greedy searches and Inductor, on programs or the zoo."""
    with _one_line_errors(debug):
        from eqsat.compare import command as comparing  # it brings what nothing else needs
        from eqsat.compare.task import ARMS, Options

        limits = Limits(iterations, enodes, seconds)
        options = Options(
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
            options=options,
        )
        run = comparing.Run(jobs or os.cpu_count() or 1, timeout, ray, measure, fresh)
        shown, whole = comparing.compare(choice, output, run)
        _print(shown)
        print(f"\n{output / comparing.FILE}")
        raise typer.Exit(0 if whole else 1)


def _tuning() -> ModuleType:
    """The module behind `eqsat tune`, which needs packages that nothing else does."""
    try:
        return importlib.import_module("eqsat.tuning")
    except ModuleNotFoundError as error:
        hint = "pip install 'eqsat[tune]' brings it"
        raise ValueError(f"tuning needs the package {error.name}: {hint}") from error


def _print(text: RenderableType) -> None:
    """Prints for the person, in colour on a terminal."""
    if sys.stdout.isatty():
        Console(highlight=False).print(text)
    else:
        print(plain(text))


def _hint(text: str) -> tuple[str, int]:
    """The name and the size in `name=size`."""
    name, _, size = text.partition("=")
    if not name or not size.isdecimal():
        raise ValueError(f"a hint is name=size, such as batch=8, not {text!r}")
    return name, int(size)


def _bytes(text: str) -> int:
    """The number in a size such as 4G, 800M or 1000000."""
    unit = _UNITS.get(text[-1:].upper(), 0)
    number = text[:-1] if unit else text
    if not number.isdecimal():
        raise ValueError(f"a size is a number of bytes, or one with K, M or G, not {text!r}")
    return int(number) << unit


def _chosen(files: list[Path]) -> RuleSet:
    """The default rules and those of the user's files, which are run."""
    known = frozenset(map(id, rewrites.DEFAULT))
    chosen = rewrites.DEFAULT
    for path in _announced(files):
        chosen += [rule for rule in rules_of_file(path) if id(rule) not in known]
    return chosen


def _announced(files: list[Path] | None) -> list[Path]:
    """The files, once the person has been told that they are run."""
    for path in files or ():
        print(f"eqsat: running {path}, which is code", file=sys.stderr)
    return files or []


def _writable(path: Path | None) -> None:
    """Refuses a path that no file can be written to, before any work is done."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}")


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
