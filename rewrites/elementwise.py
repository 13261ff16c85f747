"""Arithmetic and other pointwise functions of tensors and numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.functional import gelu, silu

from eqsat.functions import Function
from eqsat.meta import Meta, Scalar
from eqsat.operators import full
from eqsat.rewrite import ROUNDING, Rewrite, attribute, constant
from rewrites.attributes import additive

IDEMPOTENT = frozenset(("abs", "relu", "floor", "ceil", "round", "trunc", "sign"))
NOTS = frozenset(("logical_not", "bitwise_not"))


def commutes(f: Function, y: Any) -> bool:
    """Whether to exchange the operands: a number always stands second."""
    return f.commutative and isinstance(y, Meta)


def orderless(f: Function, x: Any, y: Any) -> bool:
    """Whether exchanging the operands keeps every bit: the sign of a zero in a maximum, and complex NaN, it may not."""
    dtypes = [v.dtype for v in (x, y) if isinstance(v, Meta)]
    return not any(t.is_complex or (t.is_floating_point and f.name in ("maximum", "minimum")) for t in dtypes)


def number(a: Any) -> bool:
    """Whether the operand is a Python number (not a bool)."""
    return isinstance(a, Scalar) and type(a.value) in (int, float)


def is_value(a: Any, value: float) -> bool:
    """Whether the operand is this number, as int or float, the sign of a zero included."""
    return number(a) and a.value == value and math.copysign(1.0, a.value) == math.copysign(1.0, value)


def close(a: Any, value: float) -> bool:
    """Whether the operand is this number up to the last digits of single precision."""
    return number(a) and math.isclose(a.value, value, rel_tol=1e-6)


def holds(x: Any, *values: float) -> bool:
    """Whether the numbers are zero or normal in the floating-point dtype of `x`."""
    info = torch.finfo(x.dtype)
    return all(v == 0 or info.tiny <= abs(v) <= info.max for v in values)


def real(x: Any) -> bool:
    """Whether the operand is a tensor of floating-point numbers."""
    return isinstance(x, Meta) and x.dtype.is_floating_point


def is_complex(a: Any) -> bool:
    """Whether the operand is a complex number or a tensor of such."""
    return a.dtype.is_complex if isinstance(a, Meta) else isinstance(a.value, complex)


def of_one_dtype(x: Any, a: Any, b: Any) -> bool:
    """Whether the tensors have one dtype (a narrower sum would round more), and `a` and `b` have dims."""
    return a.ndim > 0 and b.ndim > 0 and x.dtype == a.dtype == b.dtype


def negates(x: Any, y: Any) -> bool:
    """Whether `-y` is exact in the dtype in which it meets `x`; the least integer, and unsigned ones, wrap around."""
    return isinstance(y, Meta) and not is_complex(x) and not is_complex(y) and (y.dtype.is_floating_point or y.dtype == x.dtype)


def power_of_two(a: Any) -> bool:
    """Whether a number and its reciprocal are powers of two, so that dividing by it never rounds anew."""
    return number(a) and a.value != 0 and abs(math.frexp(a.value)[0]) == 0.5


def scale(x: Any, a: Any) -> bool:
    """Whether `a` is a number other than one that scales floating-point `x`."""
    return real(x) and number(a) and a.value != 1 and holds(x, a.value)


def scales(x: Any, a: Any, b: Any) -> bool:
    """Whether floating-point `x` can be scaled by the two numbers and by their product; float16 overflows between."""
    return scale(x, a) and scale(x, b) and holds(x, a.value * b.value) and x.dtype != torch.float16


def same_sign(x: Any, a: Any, b: Any) -> bool:
    """Whether adding the numbers first loses no digits of `x` that adding one by one would keep."""
    return real(x) and number(a) and number(b) and a.value * b.value >= 0


def factors(f: Function, x: Any, y: Any, a: Any) -> bool:
    """Whether a number or tensor `a` can be taken out of a sum or difference of products in one dtype."""
    of_one = real(x) and real(y) and x.dtype == y.dtype and additive(f)
    return of_one and (scale(x, a) or (real(a) and a.dtype == x.dtype))


# Functions whose kernels take a number otherwise than a tensor that is full of it.
SPECIAL = ("pow", "div_floor", "div_trunc", "remainder", "fmod")


@attribute
def uniform(value: Any, dtype: torch.dtype) -> Any:
    """A number that a tensor holds, as its dtype rounds it."""
    return torch.tensor(value, dtype=dtype).item()


ELEMENTWISE = (
    Rewrite("binary-commute",      lambda f, x, y:          (f(x, y), f(y, x)),                                        when=commutes, numerics=ROUNDING, exact=orderless),
    Rewrite("binary-full",         lambda f, x, z, v, t, c: (f(x, full(z, v, t, c)), f(x, uniform(v, t))),             when=lambda f, x, z, t: f.name not in SPECIAL and isinstance(x, Meta) and x.dtype == t and (x.shape == z or len(z) == 0 < x.ndim)),
    # Identities. x + 0.0 is not x where x is -0.0.
    Rewrite("add-zero",            lambda x, a:             (x + a, x),                                                when=lambda x, a: isinstance(x, Meta) and not is_complex(x) and ((is_value(a, 0) and not x.dtype.is_floating_point) or is_value(a, -0.0))),
    Rewrite("sub-zero",            lambda x, a:             (x - a, x),                                                when=lambda x, a: is_value(a, 0) and not is_complex(x)),
    Rewrite("mul-one",             lambda x, a:             (x * a, x),                                                when=lambda x, a: is_value(a, 1) and not is_complex(x)),
    Rewrite("div-one",             lambda x, a:             (x / a, x),                                                when=lambda x, a: is_value(a, 1) and not is_complex(x)),
    Rewrite("pow-one",             lambda x, a:             (x ** a, x),                                               when=lambda a: is_value(a, 1)),
    Rewrite("neg-neg",             lambda x:                (torch.neg(-x), x),                                        when=lambda x: not is_complex(x)),
    Rewrite("not-not",             lambda f, x:             (f(f(x)), x),                                              when=lambda f: f.name in NOTS),
    Rewrite("idempotent",          lambda f, x:             (f(f(x)), f(x)),                                           when=lambda f: f.name in IDEMPOTENT),
    Rewrite("abs-neg",             lambda x:                (torch.abs(-x), torch.abs(x)),                             when=lambda x: x.dtype.is_signed and not is_complex(x)),
    Rewrite("where-same",          lambda c, x:             (torch.where(c, x, x), x)),
    Rewrite("where-not",           lambda f, c, x, y:       (torch.where(f(c), x, y), torch.where(c, y, x)),           when=lambda f, c: f.name in NOTS and c.dtype == torch.bool),
    # Signs.
    Rewrite("sub-add",             lambda x, y:             (x - y, x + (-y)),                                         when=negates),
    Rewrite("add-sub",             lambda x, y:             (x + (-y), x - y),                                         when=negates),
    Rewrite("sub-number",          lambda x, a:             (x - a, x + (-a.value)),                                   when=lambda x, a: real(x) and number(a) and a.value != 0),
    Rewrite("neg-mul",             lambda x, y:             ((-x) * y, -(x * y)),                                     when=lambda x, y: negates(y, x)),
    # Numbers and constants together.
    Rewrite("add-numbers",         lambda x, a, b:          ((x + a) + b, x + (a.value + b.value)),                    when=same_sign, numerics=ROUNDING),
    Rewrite("add-constants",       lambda x, a, b:          ((x + a) + b, x + (a + b)),                                when=of_one_dtype, facts=(constant("a", "b"),), numerics=ROUNDING),
    Rewrite("mul-numbers",         lambda x, a, b:          ((x * a) * b, x * (a.value * b.value)),                    when=scales, numerics=ROUNDING),
    Rewrite("mul-constants",       lambda x, a, b:          ((x * a) * b, x * (a * b)),                                when=of_one_dtype, facts=(constant("a", "b"),), numerics=ROUNDING),
    Rewrite("mul-number-out",      lambda x, y, a:          ((x * a) * y, (x * y) * a),                                when=lambda x, y, a: real(x) and real(y) and x.dtype == y.dtype and scale(x, a), numerics=ROUNDING),
    Rewrite("mul-distribute",      lambda f, x, y, a:       (f(x * a, y * a), f(x, y) * a),                            when=factors, numerics=ROUNDING),
    Rewrite("div-power-of-two",    lambda x, a:             (x / a, x * (1.0 / a.value)),                              when=lambda x, a: real(x) and power_of_two(a) and holds(x, a.value, 1.0 / a.value)),
    Rewrite("div-number",          lambda x, a:             (x / a, x * (1.0 / a.value)),                              when=lambda x, a: real(x) and number(a) and a.value != 0 and not power_of_two(a) and holds(x, a.value, 1.0 / a.value), numerics=ROUNDING),
    # Powers and roots.
    Rewrite("pow-square",          lambda x, a:             (x ** a, x * x),                                           when=lambda x, a: is_value(a, 2) and not is_complex(x)),
    Rewrite("pow-cube",            lambda x, a:             (x ** a, (x * x) * x),                                     when=lambda a: is_value(a, 3), numerics=ROUNDING),
    Rewrite("pow-root",            lambda x, a:             (x ** a, torch.sqrt(x)),                                   when=lambda x, a: is_value(a, 0.5) and x.dtype.itemsize >= 4, numerics=ROUNDING),
    Rewrite("pow-rsqrt",           lambda x, a:             (x ** a, torch.rsqrt(x)),                                  when=lambda x, a: is_value(a, -0.5) and x.dtype.itemsize >= 4, numerics=ROUNDING),
    Rewrite("pow-reciprocal",      lambda x, a:             (x ** a, torch.reciprocal(x)),                             when=lambda x, a: real(x) and is_value(a, -1)),
    Rewrite("mul-reciprocal",      lambda x, y:             (x * torch.reciprocal(y), x / y),                          numerics=ROUNDING),
    Rewrite("reciprocal-sqrt",     lambda x:                (torch.reciprocal(torch.sqrt(x)), torch.rsqrt(x)),         numerics=ROUNDING),
    Rewrite("div-sqrt",            lambda x, y:             (x / torch.sqrt(y), x * torch.rsqrt(y)),                   when=real, numerics=ROUNDING),
    # Activations in their parts.
    Rewrite("sigmoid-exp",         lambda x, a:             (torch.reciprocal(torch.exp(-x) + a), torch.sigmoid(x)),   when=lambda x, a: real(x) and is_value(a, 1), numerics=ROUNDING),
    Rewrite("silu-exp",            lambda x, a:             (x / (torch.exp(-x) + a), silu(x)),                        when=lambda x, a: real(x) and is_value(a, 1), numerics=ROUNDING),
    Rewrite("silu-sigmoid",        lambda x:                (x * torch.sigmoid(x), silu(x)),                           numerics=ROUNDING),
    Rewrite("gelu-erf",            lambda x, c, a, h:       ((x * (torch.erf(x * c) + a)) * h, gelu(x)),               when=lambda x, c, a, h: real(x) and close(c, math.sqrt(0.5)) and is_value(a, 1) and is_value(h, 0.5), numerics=ROUNDING),
    Rewrite("gelu-tanh",           lambda x, k, c, a, h:    ((x * (torch.tanh((x + ((x * x) * x) * k) * c) + a)) * h, gelu(x, approximate="tanh")), when=lambda x, k, c, a, h: real(x) and close(k, 0.044715) and close(c, math.sqrt(2 / math.pi)) and is_value(a, 1) and is_value(h, 0.5), numerics=ROUNDING),
    Rewrite("gelu-tanh-factored",  lambda x, k, c, a, b, h: ((x * (torch.tanh((x * ((x * x) * k + b)) * c) + a)) * h, gelu(x, approximate="tanh")), when=lambda x, k, c, a, b, h: real(x) and close(k, 0.044715) and close(c, math.sqrt(2 / math.pi)) and is_value(a, 1) and is_value(b, 1) and is_value(h, 0.5), numerics=ROUNDING),
)
