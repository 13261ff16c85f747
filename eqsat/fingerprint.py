"""A hash of the code and settings that decide what a search finds."""

from __future__ import annotations

import enum
import functools
import hashlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import Field, fields, is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._ordered_set import OrderedSet

from eqsat import IMPORTED
from eqsat.settings import Settings

if TYPE_CHECKING:
    from eqsat.rewrite import Rewrite

OURS = ("eqsat", "extract", "rewrites")
_COMPILED = (".pyc", ".so", ".pyd")
PACKAGES = ("torch", "egglog", "numpy", "sympy", "highspy", "ortools")
_NUMBERS = (bool, int, float, complex, str, bytes, types.EllipsisType)
_PLAIN = (*_NUMBERS, torch.dtype, torch.device, torch.layout)
_NAMED = (torch.memory_format, OpOverload, OpOverloadPacket)


def fingerprint(settings: Settings) -> str | None:
    """The hash of all that decides what a search finds, but for the graph.

    That is the code of these packages, of the rules and of the extractor, and what their functions
    have bound and call by name; the versions of torch and egglog; the device profile, limits,
    numerics and margin. None where some of it cannot be told, as of a function that stands in no
    file, or of packages without sources, or with sources that changed since they were imported.
    """
    whole = [f.name for f in fields(settings) if f.name not in ("given", "function")]
    plain = [(name, getattr(settings, name)) for name in whole]
    ambient = (
        [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")],
        torch.get_default_dtype(),
    )
    versions = (sys.version_info[:3], _versions())
    try:
        digest = hashlib.sha256(_sources())
        digest.update(repr((versions, plain, ambient)).encode())
        told = _Told(digest)
        if settings.function is not None:
            told.add(settings.function)
        if settings.given is not None:
            _add_rules(settings.rules, told)
    except _UntoldError:
        return None
    return digest.hexdigest()


def _add_rules(rules: Sequence[Rewrite], told: _Told) -> None:
    """Add rules in their order: those of ours by name, for their code is in the hash."""
    import rewrites

    own = {id(rule) for rule in rewrites.OWN}
    told.digest.update(b"given")
    for rule in rules:
        told.digest.update(f"\0{rule.name}".encode())
        if id(rule) not in own:
            _add(rule, told)


def _add(rule: Rewrite, told: _Told) -> None:
    told.digest.update(f"{rule}\0{rule.numerics!r}{rule.facts}{rule.variables}".encode())
    for part in (type(rule), rule.rule, rule.when, rule.exact):
        told.add(part)


@cache
def _versions() -> tuple[str | None, ...]:
    found: list[str | None] = [torch.version.git_version]
    for name in PACKAGES:
        try:
            found.append(version(name))
        except PackageNotFoundError:
            found.append(None)
    return tuple(found)


@cache
def _folders() -> tuple[Path, ...]:
    """Where our packages are, of which none is imported for it."""
    specs = [importlib.util.find_spec(name) for name in OURS]
    return tuple(Path(p) for spec in specs if spec for p in spec.submodule_search_locations or ())


@cache
def _sources() -> bytes:
    """A hash of the code of these packages."""
    return code(_folders())


def code(folders: Sequence[Path]) -> bytes:
    """A hash of the code of our packages; raises where it is not what this process runs."""
    digest = hashlib.sha256()
    if len(folders) != len(OURS):
        raise _UntoldError(f"{folders}")
    for folder in folders:
        files = sorted(folder.rglob("*"))
        compiled = (p for p in files if p.suffix in _COMPILED and p.parent.name != "__pycache__")
        if not (folder / "__init__.py").is_file() or any(compiled):
            raise _UntoldError(f"{folder}")
        for path in files:
            if path.suffix not in (".py", ".toml"):
                continue
            if path.stat().st_mtime_ns > IMPORTED:
                raise _UntoldError(f"{path}")  # what was imported may be what was there before
            digest.update(str(path.relative_to(folder)).encode())
            digest.update(path.read_bytes())
    return digest.digest()


@cache
def _content(path: Path) -> bytes:
    """A hash of a file, as it was when it was first asked for."""
    return hashlib.sha256(path.read_bytes()).digest()


class _UntoldError(Exception):
    """A value does not show what decides what it does."""


class _Told:
    """Adds Python values to a digest: functions by their files, and by what they have bound."""

    def __init__(self, digest: Any) -> None:
        self.digest = digest
        self.seen: dict[int, int] = {}  # the place of a value, by its identity
        self.held: list[Any] = []  # the values, so that no other takes the identity of one

    def add(self, value: Any) -> None:
        """Add a value and all that it holds, without recursion; raises where that is unknown."""
        stack = [value]
        while stack:
            top = stack.pop()
            if id(top) in self.seen:
                self.digest.update(b"again %d;" % self.seen[id(top)])
                continue
            if top is None or (isinstance(top, _PLAIN) and not isinstance(top, enum.Enum)):
                self.digest.update(f"{type(top).__name__} {top!r};".encode())
                continue
            self.seen[id(top)] = len(self.held)
            self.held.append(top)
            stack.extend(reversed(list(self._parts(top))))

    def _parts(self, value: Any) -> Iterator[Any]:
        """What a value holds, its kind added."""
        self.digest.update(f"{type(value).__qualname__}(".encode())
        if isinstance(value, (list, tuple)) and type(value).__module__ == "builtins":
            yield from (len(value), *value)
        elif isinstance(value, dict):
            yield from (len(value), *value, *value.values())
        elif isinstance(value, (set, frozenset)) and all(isinstance(v, _PLAIN) for v in value):
            yield from sorted(map(repr, value))
        elif isinstance(value, OrderedSet):
            yield from value
        elif isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__ if _is_bound(value) else value.__module__
            yield from (owner, value.__qualname__)
        elif isinstance(value, _NAMED):
            yield from (str(getattr(value, "__module__", "")), str(value))
        elif isinstance(value, enum.Enum):
            yield from (type(value), value.name)
        elif isinstance(value, functools.partial):
            yield from (value.func, value.args, value.keywords)
        elif isinstance(value, types.MethodType):
            yield from (value.__func__, value.__self__)
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, types.CodeType):
            yield from (value.co_code, value.co_names, value.co_varnames, value.co_consts)
        elif isinstance(value, (type, types.ModuleType)):
            path = self._file(value)
            yield value.__name__
            if isinstance(value, type) and path is not None and not _is_library(path):
                yield from (v for v in vars(value).values() if isinstance(v, types.FunctionType))
        elif is_dataclass(value):
            yield type(value)
            yield from (
                getattr(value, f.name, None) for f in fields(value) if not _is_memo(value, f)
            )
        elif hasattr(value, "__dict__"):
            yield from (*type(value).__mro__[:-1], vars(value))
        else:
            raise _UntoldError(f"{value!r}")

    def _function(self, value: types.FunctionType) -> Iterator[Any]:
        path = self._file(value)
        yield from (value.__qualname__, value.__code__)
        yield from (value.__defaults__, value.__kwdefaults__)
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # it is bound later, or never
                raise _UntoldError(f"{value!r}") from None
        if path is None or not _is_library(path):
            names = dict.fromkeys(_names(value.__code__))
            yield from (value.__globals__[name] for name in names if name in value.__globals__)

    def _file(self, value: Any) -> Path | None:
        """The file of a function, class or module, its content added; None where it is built in."""
        if isinstance(value, types.ModuleType) and getattr(value, "__file__", None) is None:
            return None
        if isinstance(value, type) and value.__module__ == "builtins":
            return None
        try:
            source = inspect.getsourcefile(value)
        except TypeError:
            source = None
        if source is None or not Path(source).is_file():
            raise _UntoldError(f"{value!r}")
        path = Path(source)
        self.digest.update(_content(path))
        return path


def _is_memo(value: Any, field: Field[Any]) -> bool:
    """Whether a field of a class of ours holds what was computed of the others."""
    return not field.compare and type(value).__module__.split(".")[0] == __package__


def _is_bound(function: types.BuiltinFunctionType) -> bool:
    """Whether a function of an extension is the method of an object."""
    owner: object = function.__self__
    return owner is not None and not isinstance(owner, types.ModuleType)


def _is_library(path: Path) -> bool:
    """Whether a file is one of an installed package, of Python's own or of ours."""
    roots = (*_folders(), Path(torch.__path__[0]).parent, Path(inspect.__file__).parent)
    return any(path.is_relative_to(root) for root in roots)


def _names(code: types.CodeType) -> Iterator[str]:
    """The global names that a function and those inside it may read."""
    stack = [code]
    while stack:
        top = stack.pop()
        yield from top.co_names
        stack.extend(c for c in top.co_consts if isinstance(c, types.CodeType))
