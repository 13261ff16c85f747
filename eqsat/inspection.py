"""What a saved program holds, read as torch will read it, and that all of it is data."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from eqsat.arithmetic import PLAIN, UntrustedError, require_arithmetic, require_guard

LARGEST = 256 << 20
"""Bytes of one JSON text of an archive: the graph of a program of a million calls."""
SHRUNK = 20
"""How many times its size in the archive a compressed text may have; tensors are not compressed."""
DEEPEST = 200
"""Brackets inside one another in a JSON text."""
_IMPORTS = ("__enum__", "default_factory_module")
"""Keys of a description of inputs that make torch import a module by name."""
_FILES = re.compile(r"aten\.from_file|torch\.ops\.(aten\.from_file|inductor\b)")
_MARKS = re.compile(rb'(?s)[\[{\]}]|"[^"\\]*(?:\\.[^"\\]*)*"?')
"""Brackets and texts of JSON; one that does not end is read once, to the end."""


def look_through(path: Path) -> None:
    """Raises UntrustedError for what a program that is only data does not hold."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        size = path.stat().st_size
        for member in members:
            _require_plain(member, size)
        if len({member.filename.lower() for member in members}) < len(members):
            raise UntrustedError("holds two files of one name")
        for name, text in _texts(path, archive, members):
            _require_data(name, text)


def _require_plain(member: zipfile.ZipInfo, size: int) -> None:
    """A member is no library, no pickled object and no bomb; torch finds names in any case."""
    name = member.filename
    parts = name.lower().replace("\\", "/").split("/")
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
    if _is_json(name) and member.file_size > LARGEST:
        raise UntrustedError(f"holds a text of {member.file_size:,} bytes ({name})")


def _texts(
    path: Path, archive: zipfile.ZipFile, members: list[zipfile.ZipInfo]
) -> Iterator[tuple[str, bytes]]:
    """The JSON texts that torch reads, with their names; files of the user's own are left out.

    torch has a reader of archives of its own, which may see other bytes than Python's does. Where
    that one refuses, torch takes the archive for one of before 2.8, and reads it with Python's.
    """
    try:
        reader: Any = torch._C.PyTorchFileReader(str(path))  # no stub tells what it returns
        records: list[str] = reader.get_all_records()
    except RuntimeError:
        for member in members:
            if _is_json(member.filename) and not member.filename.startswith("extra_files/"):
                yield member.filename, archive.read(member)
        return
    named = _by_record(members)
    if sorted(records) != sorted(named):
        raise UntrustedError("lists its files in two ways that differ")
    for name, member in named.items():
        if name.startswith("models/") and not name.endswith(".json"):
            raise UntrustedError(f"holds a program that is no JSON text ({name})")
        if _is_json(name) and not name.startswith("extra/"):
            text = archive.read(member)
            if reader.get_record(name) != text:
                raise UntrustedError(f"holds two texts of one name ({name})")
            yield name, text


def _is_json(name: str) -> bool:
    return name.lower().endswith(".json")


def _by_record(members: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """The members by their names for torch, which are inside the folder of the first of them."""
    top = members[0].filename.partition("/")[0] + "/"
    named: dict[str, zipfile.ZipInfo] = {}
    for member in members:
        if not member.filename.startswith(top):
            raise UntrustedError(f"holds a file that lies outside its folder ({member.filename})")
        unicode = member.flag_bits & 0x800  # without the flag, Python takes UTF-8 for a code page
        name = member.filename if unicode else member.filename.encode("cp437").decode()
        named[name.removeprefix(top)] = member
    return named


def _require_data(name: str, text: bytes) -> None:
    """A JSON text holds no pickled object, no name of a module, and only arithmetic."""
    for key, value in _pairs(_decoded(name, text)):
        _require_no_import(key)
        if key in ("in_spec", "out_spec") and isinstance(value, str):
            _require_description(value)
        if isinstance(value, str) and key in _CHECKS:
            _CHECKS[key](value)


def _decoded(name: str, text: bytes) -> Any:
    """What a JSON text says, read as UTF-8 as torch does."""
    if _depth(text) > DEEPEST:
        raise UntrustedError(f"is nested too deeply ({name})")
    try:
        return json.loads(text.decode())
    except ValueError as error:
        raise UntrustedError(f"is damaged ({name}: {error})") from error


def _depth(text: bytes) -> int:
    """How many brackets are open at once, those in strings left out."""
    depth = most = 0
    for found in _MARKS.finditer(text):
        mark = found[0]
        if mark in (b"[", b"{"):
            depth += 1
            most = max(most, depth)
        elif mark in (b"]", b"}"):
            depth -= 1
    return most


def _pairs(data: Any) -> Iterator[tuple[str, Any]]:
    """Every key of every object, with its value; the items of a list stand under the list's key."""
    stack: list[tuple[str, Any]] = [("", data)]
    while stack:
        key, value = stack.pop()
        yield key, value
        if isinstance(value, dict):
            stack += [(str(k), v) for k, v in value.items()]
        elif isinstance(value, list):
            stack += [(key, v) for v in value]


def _require_no_import(key: str) -> None:
    if key in _IMPORTS:
        raise UntrustedError("names a module that torch would import to describe its inputs")


def _require_description(spec: str) -> None:
    """A description of inputs or results imports nothing, and its names end no quotation.

    Each context in it is a JSON text again. What is inside that one is not: it could hold no key.
    """
    for key, value in _pairs(_decoded("a description of inputs", _bytes(spec))):
        _require_no_import(key)
        if key == "context" and isinstance(value, str):
            for inner, part in _pairs(_context(value)):
                _require_no_import(inner)
                _require_path(inner)
                _require_path(part if isinstance(part, str) else "")
        elif isinstance(value, str):
            _require_path(value)


def _context(text: Any) -> Any:
    """What a context says: JSON in a text, or what a type of its own reads otherwise."""
    try:
        return _decoded("a description of inputs", _bytes(text)) if isinstance(text, str) else text
    except UntrustedError as error:
        if isinstance(error.__cause__, json.JSONDecodeError):
            return text
        raise


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def _require_keywords(spec: str) -> None:
    """The keywords of a call, which are written into the code of a module, are names."""
    try:
        context = json.loads(spec)[1]["children_spec"][1]["context"]
    except (ValueError, LookupError, TypeError):
        return  # the description of one value, or one that torch refuses
    for key, value in _pairs(_context(context)):
        _require_name(key)
        _require_name(value if isinstance(value, str) else "")


def _require_operator(target: str) -> None:
    """What a call names is an operator, or arithmetic; it does not read or write files."""
    if _FILES.search(target):
        raise UntrustedError(f"calls {target}, which reads and writes files")
    dotted = target.split(".")
    whole = target.startswith("torch.ops.") and "__" not in dotted[-1]
    single = dotted[0] in ("_operator", "math") and len(dotted) == 2
    symbolic = dotted[0] == "torch" and len(dotted) == 2 and dotted[1].startswith("sym_")
    if target.startswith(("_operator", "math", "torch")) and not (whole or single or symbolic):
        raise UntrustedError(f"calls {target}, which is no operator")


def _require_name(name: str) -> None:
    """The name of a value, which is written into the code of a module, is one."""
    if name and not name.isidentifier():
        raise UntrustedError(f"names a value {name[:60]!r}")


def _require_path(name: str) -> None:
    """The name of a weight or of a part, which is written into code, ends no text there."""
    if not PLAIN.fullmatch(name):
        raise UntrustedError(f"names a weight or an input {name[:60]!r}")


_CHECKS: dict[str, Callable[[str], None]] = {
    "expr_str": require_arithmetic,
    "guards_code": require_guard,
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
