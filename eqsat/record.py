"""Dataclasses as JSON, and back: numbers, texts, and sequences of them by their annotations."""

from __future__ import annotations

import enum
import types
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch


def plain(value: Any) -> Any:
    """The value as JSON takes it: a dataclass is the list of its fields."""
    if is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return value


def read(kind: Any, data: Any) -> Any:
    """The value of type `kind` that `plain` made `data` of. Raises ValueError for other data."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if data is None else read(next(p for p in parts if p is not type(None)), data)
    if origin is Literal and data in parts:
        return data
    if origin is dict and isinstance(data, dict):
        return {key: read(parts[1], item) for key, item in data.items()}
    if origin is tuple and isinstance(data, list):
        if parts[1:] == (...,):
            return tuple([read(parts[0], item) for item in data])
        return tuple(read(part, item) for part, item in zip(parts, data, strict=True))
    if kind is Any:
        return data
    if kind is torch.dtype and isinstance(found := getattr(torch, str(data), None), torch.dtype):
        return found
    if kind in (bool, int, str, float) and type(data) in (
        (int, float) if kind is float else (kind,)
    ):
        return kind(data)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    if isinstance(kind, type) and isinstance(data, list):
        hints = _hints(kind)
        return kind(*[read(hint, item) for hint, item in zip(hints, data, strict=True)])
    raise ValueError(f"{data!r:.100} is no {kind}")


@cache
def _hints(kind: type) -> tuple[Any, ...]:
    """The types of the fields of a dataclass or named tuple, in order."""
    hints = get_type_hints(kind)
    names = [f.name for f in fields(kind)] if is_dataclass(kind) else list(kind._fields)  # pyright: ignore
    return tuple(hints[name] for name in names)
