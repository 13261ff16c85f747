"""Which part of a condition refuses: the predicate runs once more, and its returns are watched."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any  # conditions take whatever a rule binds, and trace functions anything

import torch

from eqsat.meta import Texts, meta_of

WRAPPERS = ("eqsat.rewrite", "eqsat.pair")
"""Modules whose functions only call those that rules are written with."""


@dataclass(frozen=True)
class _Return:
    """What a function returned, where, and the variables it had."""

    depth: int
    code: CodeType
    line: int
    names: dict[str, Any]
    module: dict[str, Any]
    value: Any


def refusal(predicate: Callable[..., Any], values: Sequence[Any]) -> str:
    """Why a predicate is false, from the outermost part to the innermost that has a source.

    Empty where it holds. Nothing is changed but that the predicate runs.
    """
    returns: list[_Return] = []
    previous = sys.gettrace()
    sys.settrace(_watching(returns))
    try:
        holds = bool(predicate(*values))
    except Exception as error:  # noqa: BLE001 - what a condition raises means: no match
        return f"the condition raises {type(error).__name__}: {error}"
    finally:
        sys.settrace(previous)
    if holds:
        return ""
    return ", for ".join(dict.fromkeys(_chain(returns))) or f"{_named(predicate)} is false"


def _watching(returns: list[_Return]) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that notes what the functions of rules return."""
    skipped = torch.__path__[0]

    def trace(frame: FrameType, event: str, value: Any) -> Any:
        if event == "call":
            return None if frame.f_code.co_filename.startswith((skipped, "<frozen")) else trace
        own = frame.f_globals.get("__name__") not in WRAPPERS
        if event == "return" and own and not frame.f_code.co_name.endswith(("expr>", "comp>")):
            code, names = frame.f_code, dict(frame.f_locals)
            depth = sum(1 for _ in _callers(frame))
            returns.append(_Return(depth, code, frame.f_lineno, names, frame.f_globals, value))
        return trace

    return trace


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _chain(returns: Sequence[_Return]) -> Iterator[str]:
    """The false parts, each inside the one before: functions return from the inside out."""
    inner: list[_Return] = []
    for found in reversed(returns):
        if inner and found.depth <= inner[-1].depth:
            break  # of a call before this one
        if found.value is False:
            inner.append(found)
    for found in inner:
        if text := _part(found, last=found is inner[-1]):
            yield text


def _part(found: _Return, last: bool) -> str:
    """What makes a function return False, as it is written; of the last, with its values."""
    expression, source, wanted = _expression(found)
    if expression is None:
        return f"{found.code.co_name} is false"
    kind = ast.And if wanted else ast.Or
    part = next((p for p in _parts(expression, kind) if _is(p, found) is not wanted), expression)
    names = {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
    values = [f"{n} = {_value(v)}" for n, v in found.names.items() if n in names]
    told = f" ({', '.join(values)})" if last and values else ""
    return f"`{ast.get_source_segment(source, part)}` {'is false' if wanted else 'holds'}{told}"


def _parts(expression: ast.expr, kind: type[ast.boolop]) -> list[ast.expr]:
    """The parts of a conjunction or disjunction, in order."""
    if isinstance(expression, ast.BoolOp) and isinstance(expression.op, kind):
        return [part for value in expression.values for part in _parts(value, kind)]
    return [expression]


def _is(part: ast.expr, found: _Return) -> bool | None:
    """Whether a part holds; None where it cannot see all that stood around it."""
    code = compile(ast.Expression(part), "<condition>", "eval")
    try:
        return bool(eval(code, {**found.module, **found.names}))
    except Exception:  # noqa: BLE001 - it is only shown
        return None


def _value(value: Any) -> str:
    return Texts().text(value) if meta_of(value) is None else str(value)


def _expression(found: _Return) -> tuple[ast.expr | None, str, bool]:
    """What decides what a function returned, its source, and whether that must hold.

    It is what is returned or, where that is `False` itself, what the guard of it asks.
    """
    source = "".join(linecache.getlines(found.code.co_filename))
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None, source, True
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Lambda) and _is_code_of(node, found.code):
            return node.body, source, True
        if isinstance(node, ast.Return) and node.lineno <= found.line <= (node.end_lineno or 0):
            if not isinstance(node.value, ast.Constant):
                return node.value, source, True
            guards = (n.test for n in nodes if isinstance(n, ast.If) and node in n.body)
            return next(guards, None), source, False
    return None, source, True


def _is_code_of(node: ast.Lambda, code: CodeType) -> bool:
    """Whether the body of a lambda is where the code lies."""
    if code.co_name != "<lambda>":
        return False
    body = node.body
    places = [p for p in code.co_positions() if p[2] is not None and p[0] == body.lineno]
    return any(
        body.col_offset == start and body.end_col_offset == end for _, _, start, end in places
    )


def _named(predicate: Callable[..., Any]) -> str:
    name = getattr(predicate, "__name__", type(predicate).__name__)
    return inspect.getdoc(predicate) or name
