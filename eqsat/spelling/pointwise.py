"""Pointwise functions, casts and fills as terms."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from eqsat.expression import FAMILY
from eqsat.functions import ARITHMETIC, BITWISE, COMPARISONS, POINTWISE, Function, Hole
from eqsat.meta import Symbolic
from eqsat.term import Call, Spelling, Term, table, val


def _cast(c: Call) -> Any:
    before, after = val(c.x), c.out
    if before.device != after.device or before.layout != after.layout:
        return None
    if before.dtype == after.dtype:
        return c.x
    if before.is_complex() or after.is_complex() or before.is_quantized:
        return None
    return Term("unary", (c.x,), (Function("to", (after.dtype,)),))


def _full(c: Call, value: Any) -> Any:
    out = c.out
    value = val(value)
    if out.layout != torch.strided or out.is_complex() or isinstance(value, Node):
        return None
    if not isinstance(value, Symbolic):
        kind = bool if out.dtype == torch.bool else float if out.is_floating_point() else int
        value = kind(value)
    return Term("full", (), (tuple(out.shape), value, out.dtype, out.device))


def _arange(c: Call) -> Any:
    start = val(c.arguments.get("start", 0))
    step = val(c.arguments.get("step", 1))
    end = val(c["end"])
    if any(isinstance(v, Node) for v in (start, step, end)):
        return None
    return Term("arange", (), (start, end, step, c.out.dtype, c.out.device))


def _numeric(c: Call) -> bool:
    """Whether the tensors of a pointwise call are of the kind the language computes with."""
    return all(
        not (isinstance(v, torch.Tensor) and (v.is_quantized or v.layout != torch.strided))
        for v in (val(a) for a in c.arguments.values())
    )


def _named(name: str) -> Spelling:
    """A function whose operands are its leading tensor arguments, the rest parameters."""

    def entry(c: Call) -> Any:
        if not _numeric(c):
            return None
        arguments = list(c.arguments.items())
        schema = c.target._schema.arguments
        operands = [v for (_, v), a in zip(arguments, schema, strict=True) if _is_tensor(a)]
        rest = [
            (v, a.default_value)
            for (_, v), a in zip(arguments, schema, strict=True)
            if not _is_tensor(a)
        ]
        if any(o is None for o in operands) or any(isinstance(v, Node) for v, _ in rest):
            return None
        while rest and rest[-1][0] == rest[-1][1]:
            rest.pop()
        function = Function(name, tuple(v for v, _ in rest))
        return Term(FAMILY[len(operands)], tuple(operands), (function,))

    return entry


def _is_tensor(argument: Any) -> bool:
    return "Tensor" in str(argument.type)


def _binary(name: str) -> Spelling:
    """A binary function of tensors or numbers, without other parameters than alpha = 1."""

    def entry(c: Call) -> Any:
        a, b = list(c.arguments.values())[:2]
        if not _numeric(c) or c.arguments.get("alpha", 1) != 1:
            return None
        return Term("binary", (a, b), (Function(name),))

    return entry


def _rsub(c: Call) -> Any:
    if c["alpha"] != 1:
        return None
    return Term("binary", (c["other"], c.x), (Function("sub"),))


def _divide(c: Call) -> Any:
    mode = c.arguments.get("rounding_mode")
    name = "div" if mode is None else f"div_{mode}"
    return Term("binary", (c.x, c["other"]), (Function(name),))


def _pow(c: Call) -> Any:
    return Term("binary", (c.x, c["exponent"]), (Function("pow"),))


def _square(c: Call) -> Any:
    return Term("binary", (c.x, 2), (Function("pow"),))


def _where(c: Call) -> Any:
    if "self" not in c.arguments:
        return None
    return Term("ternary", (c["condition"], c["self"], c["other"]), (Function("where"),))


def _masked_fill(c: Call) -> Any:
    if isinstance(c["value"], Node) or val(c["mask"]).dtype != torch.bool:
        return None
    return Term("ternary", (c["mask"], c["value"], c.x), (Function("where"),))


def pointwise(c: Call) -> Any:
    """Any functional overload that torch tags pointwise: its tensors are the operands, in order."""
    schema = c.target._schema
    if schema.is_mutable or not isinstance(c.out, torch.Tensor) or not _numeric(c):
        return None
    operands: list[Any] = []
    template: list[Any] = []
    for value, argument in zip(c.arguments.values(), schema.arguments, strict=True):
        if argument.kwarg_only:
            if value != argument.default_value:
                return None
        elif isinstance(value, Node):
            template.append(Hole(len(operands)))
            operands.append(value)
        elif isinstance(value, (list, tuple)):
            return None
        else:
            template.append(value)
    if len(operands) not in FAMILY or c.out.is_complex():
        return None
    function = Function(str(c.target), tuple(template))
    return Term(FAMILY[len(operands)], tuple(operands), (function,))


_OTHERWISE = {*ARITHMETIC, *COMPARISONS, *BITWISE, "maximum", "minimum", "where", "to"}
_BINARY = ("add", "sub", "mul", *COMPARISONS, "remainder", "fmod", *BITWISE)

FUNCTIONS = {
    **{f"aten.{name}.default": _named(name) for name in POINTWISE if name not in _OTHERWISE},
    **table(
        *((_binary(name), f"{name}.Tensor", f"{name}.Scalar") for name in _BINARY),
        *(
            (_binary(f"bitwise_{name}"), f"__{name}__.Tensor", f"__{name}__.Scalar")
            for name in ("and", "or", "xor")
        ),
        *(
            (_binary(name), f"{name}.default")
            for name in ("logical_and", "logical_or", "maximum", "minimum")
        ),
        (_binary("maximum"), "max.other"),
        (_binary("minimum"), "min.other"),
        (_square, "square.default"),
        (_rsub, "rsub.Tensor", "rsub.Scalar"),
        (_divide, "div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode"),
        (_binary("div_floor"), "floor_divide.default", "floor_divide.Scalar"),
        (_pow, "pow.Tensor_Tensor", "pow.Tensor_Scalar"),
        (_masked_fill, "masked_fill.Scalar"),
        (_where, "where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar"),
        (_cast, "to.dtype", "to.device", "to.dtype_layout", "to.other", "_to_copy.default"),
        (_cast, "type_as.default"),
    ),
}
FILLS = table(
    (lambda c: _full(c, c["fill_value"]), "full.default", "full_like.default", "new_full.default"),
    (lambda c: _full(c, 0), "zeros.default", "zeros_like.default", "new_zeros.default"),
    (lambda c: _full(c, 1), "ones.default", "ones_like.default", "new_ones.default"),
    (lambda c: _full(c, c["s"]), "scalar_tensor.default"),
    (_arange, "arange.default", "arange.start", "arange.start_step"),
)
