"""A size or a guard of a saved program: arithmetic on sizes, and no other Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

LONGEST = 10_000
"""Characters of an expression."""
PLAIN = re.compile(r"[\w.\-:$@<>\[\]/ ]*")
"""A text that ends no quotation when it is written into the code of a module."""
_ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name,
               ast.Constant, ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
               ast.keyword, ast.Tuple)  # fmt: skip
_KNOWN = frozenset({"Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min",
                    "Mod", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Abs",
                    "Equality", "Unequality", "StrictLessThan", "LessThan", "GreaterThan",
                    "StrictGreaterThan", "Piecewise", "ExprCondPair", "floor",
                    "ceiling"})  # fmt: skip
_SIZES = ("size", "stride", "storage_offset", "shape", "ndim", "isnan", "inf", "floor", "ceil",
          "trunc", "sqrt", "dim", "numel", "sym_float", "sym_int", "sym_max", "sym_min", "sym_not",
          "sym_ite")  # fmt: skip
_NAMES = ("L", "math", "torch", "max", "min", "abs", "round")
"""The names that torch prints into guards, beside its functions; of the modules, only _SIZES."""
_SYMBOL = re.compile(r"[A-Za-z]\w*|-?\d+(\.\d*)?([eE][+-]?\d{1,3})?")
_POWERS = (ast.Pow, ast.LShift, ast.BitXor)
"""Operators that make large numbers of small ones; sympy reads ^ as **."""


class UntrustedError(ValueError):
    """An archive holds what would run, or what no program needs."""


def require_arithmetic(text: str) -> None:
    """An expression, which sympy evaluates as Python, is made of symbols, numbers and functions."""
    for node in _parsed(text):
        fine = isinstance(node, _ARITHMETIC)
        if isinstance(node, ast.Call):
            fine = isinstance(node.func, ast.Name) and node.func.id in _functions()
            if fine and node.func.id == "Pow":  # pyright: ignore - it is a name
                fine = len(node.args) == 2 and _small(node.args[1])
        elif isinstance(node, ast.Name):
            fine = not node.id.startswith("_")
        elif isinstance(node, ast.Constant):
            fine = _written(node.value, _SYMBOL)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, _POWERS):
            fine = _small(node.right)
        if not fine:
            raise UntrustedError(f"holds a size that is more than arithmetic: {text[:60]!r}")


def require_guard(text: str) -> None:
    """A guard, which torch compiles as Python and quotes, compares sizes of inputs."""
    for node in _parsed(text):
        fine = isinstance(node, (*_ARITHMETIC, ast.Subscript, ast.IfExp))
        if isinstance(node, ast.Attribute):
            fine = node.attr in _SIZES
        elif isinstance(node, ast.Call):
            fine = isinstance(node.func, (ast.Attribute, ast.Name))  # whose name is looked at
        elif isinstance(node, ast.Name):
            fine = node.id in _NAMES or node.id in _functions()
        elif isinstance(node, ast.Constant):
            fine = _written(node.value, PLAIN)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, _POWERS):
            fine = _small(node.right)
        if not fine:
            raise UntrustedError(f"holds a guard that is more than a comparison: {text[:60]!r}")


def _parsed(text: str) -> Iterator[ast.AST]:
    """The parts of an expression, of which every reader of Python sees the same ones.

    sympy deletes line breaks first and reads tokens on its own, so none may escape or end a line.
    """
    if len(text) > LONGEST:
        raise UntrustedError(f"holds a size of {len(text):,} characters: {text[:60]!r}")
    if not text.isprintable() or any(mark in text for mark in "\\#`"):
        raise UntrustedError(f"holds a size that is no expression: {text[:60]!r}")
    try:
        return ast.walk(ast.parse(text.strip(), mode="eval"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UntrustedError(f"holds a size that is no expression: {text[:60]!r}") from None


def _written(value: object, pattern: re.Pattern[str]) -> bool:
    """Whether a constant is a number, or a text of this pattern."""
    if isinstance(value, str):
        return bool(pattern.fullmatch(value))
    return value is None or isinstance(value, (int, float))


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
