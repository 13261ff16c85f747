"""The programs that are compared, and where they come from: a file, a function, the zoo."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any  # a person's file may hold anything

from torch import nn
from torch.export import ExportedProgram

import eqsat
import extract
import rewrites
from eqsat import archive
from eqsat.observe import first_line

FULL, SMALL = "full", "small"
SIZES = (FULL, SMALL)
SETS = ("A", "B", "C")
ZOO = "benchmarks.zoo"
APART = ("page", "verify")
"""Folders of eqsat that decide nothing of a result."""


@dataclass(frozen=True)
class Source:
    """Where a program stands: a `.pt2` file, or what a Python file or module calls `attribute`.

    With an `entry` that is a table of programs, and the one of this name is meant. A module is
    imported from the folder `root`.
    """

    place: str
    attribute: str = ""
    entry: str | None = None
    root: str | None = None

    def __str__(self) -> str:
        """How a person names it."""
        return ":".join(part for part in (self.place, self.attribute, self.entry) if part)


@dataclass(frozen=True)
class Program:
    """A program and example inputs: what is optimized, and the module that runs it eagerly."""

    given: nn.Module | ExportedProgram
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A named program of two sizes, and what a search should find in it."""

    name: str
    build: Callable[[str], Program]
    set: str | None = None
    about: str = ""
    expected: tuple[Any, ...] = field(default=(), compare=False)


def subjects(text: str) -> dict[str, Source]:
    """The programs that a person means by `text`, by name: `model.pt2`, or `file.py:name`.

    Raises ValueError where there is none.
    """
    if text.endswith(".pt2"):
        source = Source(str(_file(text).resolve()))
        return {subject(source).name: source}
    path, _, attribute = text.rpartition(":")
    if not path.endswith(".py") or not attribute:
        raise ValueError(f"a program is a .pt2 file or file.py:name, not {text!r}")
    source = Source(str(_file(path).resolve()), attribute)
    return dict(_named(source))


def zoo() -> dict[str, Source]:
    """The entries of the zoo of this checkout, by name.

    Raises ValueError where eqsat is installed without its benchmarks.
    """
    root = checkout()
    if not (root / "benchmarks" / "zoo").is_dir():
        raise ValueError(
            f"there is no zoo: {root} has no folder benchmarks/zoo; run it in a checkout of eqsat, "
            "installed with pip install -e"
        )
    return dict(_named(Source(ZOO, "ENTRIES", root=str(root))))


def checkout() -> Path:
    """The folder that the package lies in."""
    return Path(eqsat.__path__[0]).parent


def subject(source: Source) -> Subject:
    """The program at `source`. Raises ValueError, naming it, where there is none."""
    if source.place.endswith(".pt2"):
        path = Path(source.place)
        return Subject(path.stem, lambda _: _saved(path), about=f"saved in {path.name}")
    found = _attribute(source)
    if source.entry is not None:
        if not isinstance(found, Mapping) or source.entry not in found:
            raise ValueError(f"{source}: there is no such entry")
        entry = found[source.entry]
        return Subject(
            entry.name, lambda size: _program(entry.build(size), source), entry.set, entry.about,
            tuple(entry.expected),
        )  # fmt: skip
    if not callable(found):
        raise ValueError(f"{source}: is no function that returns (module, args)")
    about = (getattr(found, "__doc__", None) or "").strip().partition("\n")[0]
    return Subject(source.attribute, lambda _: _program(found(), source), about=about)


def code(source: Source) -> str:
    """A hash of the code that decides the results of a program: ours, and that of the program."""
    digest = hashlib.sha256(_ours())
    for path in _files(source):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _files(source: Source) -> Sequence[Path]:
    if source.root is None:
        return [Path(source.place)]
    folder = Path(source.root) / "benchmarks"
    return sorted([*(folder / "zoo").rglob("*.py"), *folder.glob("models.py")])


@cache
def _ours() -> bytes:
    digest = hashlib.sha256()
    for package in (eqsat, extract, rewrites):
        folder = Path(package.__path__[0])
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".toml")):
            place = path.relative_to(folder)
            if place.parts[0] not in APART:
                digest.update(str(place).encode())
                digest.update(path.read_bytes())
    return digest.digest()


def _named(source: Source) -> Iterator[tuple[str, Source]]:
    """The programs at a source: one function, or each of a table's entries."""
    found = _attribute(source)
    if not isinstance(found, Mapping):
        yield source.attribute, source
        return
    for name in found:
        yield name, Source(source.place, source.attribute, name, source.root)


def _attribute(source: Source) -> Any:
    module = _module(source.place, source.root)
    if not hasattr(module, source.attribute):
        raise ValueError(f"{source.place}: has nothing called {source.attribute!r}")
    return getattr(module, source.attribute)


@cache
def _module(place: str, root: str | None) -> ModuleType:
    """The module that runs a person's file, once, or that is imported from a folder."""
    try:
        if root is not None:
            if root not in sys.path:
                sys.path.insert(0, root)
            return importlib.import_module(place)
        name = f"eqsat_programs_{hashlib.sha256(place.encode()).hexdigest()[:12]}"
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None and spec.loader is not None, place
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickles of the file look for it there
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{place}: {first_line(error)}") from error
    return module


def _program(value: Any, source: Source) -> Program:
    """What a function returned as a program."""
    parts: tuple[Any, ...] = tuple(value) if isinstance(value, tuple) else ()
    if len(parts) not in (2, 3) or not isinstance(parts[0], nn.Module):
        raise ValueError(f"{source}: returns no (module, args) and no (module, args, kwargs)")
    return Program(parts[0], parts[0], tuple(parts[1]), dict(parts[2]) if len(parts) == 3 else {})


def _saved(path: Path) -> Program:
    """The program in a `.pt2` file, with its example inputs."""
    program = archive.load(path)
    if program.example_inputs is None:
        raise ValueError(f"{path}: has no example inputs; export it again with torch.export.export")
    args, kwargs = program.example_inputs
    return Program(program, program.module(), tuple(args), dict(kwargs))


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    return path
