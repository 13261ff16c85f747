"""What every command shares: errors in one line, what a person reads, files and sizes they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console, RenderableType

import rewrites
from eqsat.rewrite import RuleSet
from eqsat.rulefile import rules_of_file
from eqsat.table import plain

_UNITS = {"K": 10, "M": 20, "G": 30}


@contextmanager
def one_line_errors(debug: bool) -> Generator[None]:
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


def present(text: RenderableType) -> None:
    """Prints for the person, in colour on a terminal."""
    if sys.stdout.isatty():
        Console(highlight=False).print(text)
    else:
        print(plain(text))


def require_writable(path: Path | None) -> None:
    """Refuses a path that no file can be written to, before any work is done."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}")


def named_size(text: str) -> tuple[str, int]:
    """The name and the size in `name=size`."""
    name, _, size = text.partition("=")
    if not name or not size.isdecimal():
        raise ValueError(f"a hint is name=size, such as batch=8, not {text!r}")
    return name, int(size)


def bytes_of(text: str) -> int:
    """The number in a size such as 4G, 800M or 1000000."""
    unit = _UNITS.get(text[-1:].upper(), 0)
    number = text[:-1] if unit else text
    if not number.isdecimal():
        raise ValueError(f"a size is a number of bytes, or one with K, M or G, not {text!r}")
    return int(number) << unit


def rule_set(files: list[Path] | None, without: list[str] | None) -> RuleSet:
    """The default rules and those of the user's files, which are run; `without` some."""
    known = frozenset(map(id, rewrites.DEFAULT))
    chosen = rewrites.DEFAULT
    for path in announced(files):
        chosen += [rule for rule in rules_of_file(path) if id(rule) not in known]
    return chosen.without(*(without or ()))


def announced(files: list[Path] | None) -> list[Path]:
    """The files, once the person has been told that they are run."""
    for path in files or ():
        print(f"eqsat: running {path}, which is code", file=sys.stderr)
    return files or []
