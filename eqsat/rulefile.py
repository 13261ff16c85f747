"""Rules from a Python file of the user's: it is code, and is run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eqsat.observe import first_line
from eqsat.rewrite import Rewrite, RuleSet


def rules_of_file(path: Path) -> RuleSet:
    """The rules that the Python file at `path` defines. Running it can do what any program can.

    They are those of its variable RULES or, without one, every Rewrite, and every list or tuple of
    them, in its variables in order. Raises ValueError, naming the file, where it has none, and for
    what running it raises.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    variables = _run(path)
    try:
        found = tuple(dict.fromkeys(_rules(variables)))
        if not found:
            raise ValueError("defines no Rewrite, and no list or tuple of them")
        return RuleSet(found)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _run(path: Path) -> dict[str, Any]:
    """The variables of the file after it has run as a module of its own."""
    name = f"eqsat_rules_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path}: not a Python file; it must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles of the file look for it there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        what = str(error) if isinstance(error, ValueError) else first_line(error)
        raise ValueError(f"{path}: {what}") from error
    return vars(module)


def _rules(variables: dict[str, Any]) -> Iterator[Rewrite]:
    if "RULES" in variables:
        for value in variables["RULES"]:
            if not isinstance(value, Rewrite):
                raise ValueError(f"RULES holds {value!r}, which is no Rewrite")
            yield value
        return
    for value in list(variables.values()):
        if isinstance(value, Rewrite):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (part for part in value if isinstance(part, Rewrite))
