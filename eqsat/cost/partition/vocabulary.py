"""Tables of ATen operators by short name: what the partition has to know of each."""

from __future__ import annotations

IGNORED = frozenset(
    {
        "_assert_async",
        "_assert_scalar",
        "_assert_tensor_metadata",
        "_functional_assert_async",
        "_functional_assert_scalar",
        "_print",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
        "sym_numel",
        "sym_size",
        "sym_storage_offset",
        "sym_stride",
    }
)
"""Checks and sizes: no kernel computes them."""

POINTWISE = frozenset(
    {
        "__and__",
        "__or__",
        "__xor__",
        "addcdiv",
        "addcmul",
        "bitwise_and",
        "clamp",
        "copy",
        "floor_divide",
        "fma",
        "log_sigmoid",
        "masked_fill",
        "rsub",
        "where",
    }
)
"""Element-by-element operators that torch does not tag so."""

TRANSCENDENTAL: dict[str, float] = {
    "acos": 2.0,
    "acosh": 2.0,
    "asin": 2.0,
    "asinh": 2.0,
    "atan": 2.0,
    "atan2": 2.0,
    "atanh": 2.0,
    "cos": 2.0,
    "cosh": 1.5,
    "digamma": 4.0,
    "div": 0.2,
    "elu": 1.0,
    "erf": 1.5,
    "erfc": 1.5,
    "erfinv": 2.0,
    "exp": 1.0,
    "exp2": 1.0,
    "expm1": 1.2,
    "gelu": 1.7,
    "lgamma": 4.0,
    "log": 1.0,
    "log10": 1.0,
    "log1p": 1.2,
    "log2": 1.0,
    "log_sigmoid": 2.2,
    "log_sigmoid_forward": 2.2,
    "mish": 3.7,
    "pow": 0.2,
    "reciprocal": 0.2,
    "rsqrt": 0.3,
    "sigmoid": 1.2,
    "silu": 1.3,
    "sin": 2.0,
    "sinh": 1.5,
    "softplus": 2.2,
    "sqrt": 0.3,
    "tan": 2.0,
    "tanh": 1.5,
}
"""What an operator costs in units of one exp."""

GATHER_ON_CPU = 2.5
"""What an element costs, in units of one exp, that a CPU's loop reads alone: where the place is
computed anew in each step, Inductor's C++ makes vectors of places, and reads one by one.

Measured on an x86 CPU (torch 2.13): `x[i]`, `x[:, :, i]`, nearest and bilinear up-sampling of
262,144 elements take 1.5 to 3 ns for each element and tap more than a copy; with channels last, and
along the rows of `x[i]`, nothing. An exp takes 0.76 ns in the profile "cpu".
"""

HEAVY_ON_CPU = frozenset({"exp", "log", "log10", "log1p", "log2", "sigmoid", "tanh"})
"""What the CPU backend does not compute twice (`StorageBox.should_realize_on_reuse`, ir.py)."""

WEIGHTS: dict[str, int] = {
    "clamp": 4,
    "elu": 7,
    "hardsigmoid": 6,
    "hardtanh": 4,
    "leaky_relu": 4,
    "mish": 6,
    "remainder": 5,
    "softplus": 6,
}
"""IR operations of an operator that is not one (`OpCounterCSE`, ops_handler.py)."""

REDUCTIONS = frozenset(
    {"all", "amax", "amin", "any", "argmax", "argmin", "mean", "nansum", "prod", "sum", "xor_sum"}
)
"""Reductions with the signature (input, dims, keepdim)."""

NEEDS_REALIZED = frozenset(
    {
        "as_strided",
        "avg_pool",
        "bmm",
        "convolution",
        "external",
        "max_pool",
        "mm",
        "attention",
        "nearest",
    }
)
"""Kinds of operations that read their operands from memory (`add_needs_realized_inputs`)."""
