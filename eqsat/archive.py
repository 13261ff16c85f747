"""A saved program, from anyone: looked through before torch loads it, so that it runs no code."""

from __future__ import annotations

import ast
import json
import logging
import os
import pickle
import re
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

LARGEST = 256 << 20
"""Bytes of one JSON text of an archive: the graph of a program of a million calls."""
SHRUNK = 20
"""How many times its size in the archive a compressed text may have; tensors are not compressed."""
DEEPEST = 200
"""Brackets inside one another in a JSON text."""
_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_IMPORTS = ("__enum__", "default_factory_module")
"""Keys of a description of inputs that make torch import a module by name."""
_FILES = re.compile(r"aten\.from_file|torch\.ops\.(aten\.from_file|inductor\b)")


class UntrustedError(ValueError):
    """An archive holds what would run, or what no program needs."""


def load(path: Path, *, quiet: bool = True, trusted: bool = False) -> ExportedProgram:
    """The program that `torch.export.save` wrote to `path`; a `trusted` one may hold code.

    Raises ValueError, in one line, for a file that is none, is damaged, or holds code: pickled
    objects, compiled kernels, expressions that are more than arithmetic.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: not a .pt2 archive (as torch.export.save makes), or cut short")
    try:
        if trusted:
            with _silent(quiet):
                return torch.export.load(path)
        _look_through(path)
        with _without_pickles(), _silent(quiet):
            return torch.export.load(path)
    except UntrustedError as error:
        said = "".join(c if c.isprintable() else " " for c in str(error))
        raise ValueError(f"{path}: {said}") from error
    except MemoryError as error:
        raise ValueError(f"{path}: larger than the memory of this machine") from error
    except Exception as error:
        hint = f"damaged, or saved by a torch that {torch.__version__} cannot read"
        if _weights_only(error):
            hint = "holds a pickled object that is no tensor, and to unpickle it may run code"
        raise ValueError(f"{path}: {hint}") from error


def _weights_only(error: BaseException | None) -> bool:
    """Whether torch refused to unpickle something."""
    while error is not None:
        if isinstance(error, (UntrustedError, pickle.UnpicklingError)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _look_through(path: Path) -> None:
    """Raises UntrustedError for what a program that is only data does not hold."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        size = path.stat().st_size
        for member in members:
            _require_plain(member, size)
        for member in members:
            if member.filename.endswith(".json"):
                _require_data(member.filename, archive.read(member))


def _require_plain(member: zipfile.ZipInfo, size: int) -> None:
    """A member is no library, no pickled object and no bomb."""
    name = member.filename
    parts = name.replace("\\", "/").split("/")
    if "aotinductor" in parts:
        raise UntrustedError("holds compiled kernels, which are code: not a program to optimize")
    if any(part.startswith(("custom_obj_", "opaque_obj_")) for part in parts):
        raise UntrustedError(f"holds a pickled object ({name}), which is code")
    if ".." in parts or name.startswith("/"):
        raise UntrustedError(f"holds a file that lies outside it ({name})")
    if member.file_size > max(SHRUNK * member.compress_size, 1 << 20) or member.file_size < 0:
        raise UntrustedError(f"would be far larger than it is ({name})")
    if member.compress_size > size:
        raise UntrustedError(f"is cut short ({name})")
    if name.endswith(".json") and member.file_size > LARGEST:
        raise UntrustedError(f"holds a text of {member.file_size:,} bytes ({name})")


def _require_data(name: str, text: bytes) -> None:
    """A JSON text holds no pickled object, no name of a module, and only arithmetic."""
    if _depth(text) > DEEPEST:
        raise UntrustedError(f"is nested too deeply ({name})")
    try:
        data = json.loads(text)
    except (ValueError, UnicodeDecodeError) as error:
        raise UntrustedError(f"is damaged ({name}: {error})") from error
    for key, value in _pairs(data):
        spec = value if key in ("in_spec", "out_spec") and isinstance(value, str) else ""
        if key in _IMPORTS or any(word in spec for word in _IMPORTS):
            raise UntrustedError("names a module that torch would import to describe its inputs")
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, str) and key in _CHECKS:
                _CHECKS[key](part)


def _depth(text: bytes) -> int:
    """How many brackets are open at once, those in strings left out."""
    depth = most = 0
    for mark in re.findall(rb'[\[{\]}]|"(?:[^"\\]|\\.)*"', text):
        if mark in (b"[", b"{"):
            depth += 1
            most = max(most, depth)
        elif mark in (b"]", b"}"):
            depth -= 1
    return most


def _pairs(data: Any) -> Iterator[tuple[str, Any]]:
    """Every key of every object, with its value; symbols and bounds are keys of `name: value`."""
    stack: list[tuple[str, Any]] = [("", data)]
    while stack:
        key, value = stack.pop()
        yield key, value
        if isinstance(value, dict):
            stack += [(str(k), v) for k, v in value.items()]
        elif isinstance(value, list):
            stack += [("", v) for v in value]


def _parsed(text: str) -> Iterator[ast.AST]:
    """The parts of an expression."""
    try:
        return ast.walk(ast.parse(text.strip(), mode="eval"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UntrustedError(f"holds a size that is no expression: {text[:60]!r}") from None


def _require_arithmetic(text: str) -> None:
    """An expression, which sympy evaluates as Python, is made of symbols, numbers and functions."""
    for node in _parsed(text[:LONGEST]):
        fine = isinstance(node, _ARITHMETIC)
        if isinstance(node, ast.Call):
            fine = isinstance(node.func, ast.Name) and node.func.id in _functions()
            if fine and node.func.id == "Pow":  # pyright: ignore - it is a name
                fine = len(node.args) == 2 and _small(node.args[1])
        elif isinstance(node, ast.Name):
            fine = not node.id.startswith("_")
        elif isinstance(node, ast.Constant):
            fine = isinstance(node.value, (int, float)) or bool(_SYMBOL.fullmatch(str(node.value)))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
            fine = _small(node.right)
        if not fine:
            raise UntrustedError(f"holds a size that is more than arithmetic: {text[:60]!r}")


def _require_guard(text: str) -> None:
    """A guard, which torch compiles as Python, compares sizes of inputs."""
    for node in _parsed(text):
        fine = isinstance(node, (*_ARITHMETIC, ast.Subscript))
        if isinstance(node, ast.Attribute):
            fine = node.attr in _SIZES
        elif isinstance(node, ast.Call):
            fine = isinstance(node.func, ast.Attribute) or (
                isinstance(node.func, ast.Name) and node.func.id in _functions()
            )
        elif isinstance(node, ast.Name):
            fine = node.id in ("L", "math") or node.id in _functions()
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
            fine = _small(node.right)
        if not fine:
            raise UntrustedError(f"holds a guard that is more than a comparison: {text[:60]!r}")


LONGEST = 10_000
_ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name,
               ast.Constant, ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
               ast.keyword, ast.Tuple)  # fmt: skip
_KNOWN = frozenset({"Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min",
                    "Mod", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Abs",
                    "Equality", "Unequality", "StrictLessThan", "LessThan", "GreaterThan",
                    "StrictGreaterThan", "Piecewise", "ExprCondPair", "floor",
                    "ceiling"})  # fmt: skip
_SIZES = ("size", "stride", "storage_offset", "shape", "ndim", "isnan", "inf", "floor", "ceil",
          "trunc", "sqrt", "dim", "numel")  # fmt: skip
_SYMBOL = re.compile(r"[A-Za-z]\w*")
_PLAIN = re.compile(r"[\w.\-:$@<>\[\]/ ]*")


def _functions() -> frozenset[str]:
    """The functions of symbolic sizes."""
    from torch.utils._sympy import functions

    return _KNOWN | frozenset(functions.__all__)


def _small(node: ast.expr) -> bool:
    """Whether an exponent is one that a size may have."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and node.value in range(65)


def _require_operator(target: str) -> None:
    """What a call names is an operator, or arithmetic; it does not read or write files."""
    if _FILES.search(target):
        raise UntrustedError(f"calls {target}, which reads and writes files")
    dotted = target.split(".")
    whole = target.startswith("torch.ops.") and "__" not in dotted[-1]
    single = dotted[0] in ("_operator", "math") and len(dotted) == 2
    symbolic = dotted[0] == "torch" and len(dotted) == 2 and dotted[1].startswith("sym_")
    if dotted[0] in ("_operator", "math", "torch") and not (whole or single or symbolic):
        raise UntrustedError(f"calls {target}, which is no operator")


def _require_name(name: str) -> None:
    """The name of a value, which is written into the code of a module, is one."""
    if name and not name.isidentifier():
        raise UntrustedError(f"names a value {name[:60]!r}")


def _require_path(name: str) -> None:
    """The name of a weight, which is written into the code of a module, ends no text there."""
    if not _PLAIN.fullmatch(name):
        raise UntrustedError(f"names a weight {name[:60]!r}")


def _require_keywords(spec: str) -> None:
    """The keywords of a call, which are written into the code of a module, are names."""
    try:
        keywords = json.loads(spec)[1]["children_spec"][1]
        names = json.loads(keywords["context"]) if keywords["type"] == "builtins.dict" else []
    except (ValueError, LookupError, TypeError):
        return  # the description of one value, or one that torch refuses
    for name in names if isinstance(names, list) else []:
        _require_name(str(name))


_CHECKS: dict[str, Callable[[str], None]] = {
    "expr_str": _require_arithmetic,
    "guards_code": _require_guard,
    "target": _require_operator,
    "name": _require_name,
    "forward_arg_names": _require_name,
    "in_spec": _require_keywords,
    "parameter_name": _require_path,
    "buffer_name": _require_path,
    "tensor_constant_name": _require_path,
    "custom_obj_name": _require_path,
    "fqn": _require_path,
}
"""What must hold of a text, by the key that it stands under."""


class _Refusing:
    """Stands where torch would unpickle what is not a tensor."""

    def loads(self, *_: Any, **__: Any) -> Any:
        raise UntrustedError("holds a pickled object, which is code")

    def __getattr__(self, name: str) -> Any:
        return getattr(pickle, name)


@contextmanager
def _without_pickles() -> Generator[None]:
    """In it, torch unpickles tensors only, as `torch.load(weights_only=True)` does."""
    from torch.export.pt2_archive import _package

    before, unpickling = os.environ.get(_FORCE), _package.pickle
    os.environ[_FORCE] = "1"
    _package.pickle = _Refusing()  # pyright: ignore[reportAttributeAccessIssue] - for a while
    try:
        yield
    finally:
        _package.pickle = unpickling
        if before is None:
            del os.environ[_FORCE]
        else:
            os.environ[_FORCE] = before


@contextmanager
def _silent(quiet: bool) -> Generator[None]:
    """Without the tracebacks that torch logs of its own."""
    if not quiet:
        yield
        return
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
