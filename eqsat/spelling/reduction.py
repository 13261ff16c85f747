"""Reductions, norms, pooling and resampling as terms."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from eqsat.functions import Function
from eqsat.term import Call, Spelling, Term, listed, table, val


def _softmax(name: str) -> Spelling:
    def entry(c: Call) -> Any:
        x, value = c.x, val(c.x)
        if value.ndim == 0 or c.arguments.get("half_to_float", False):
            return None
        if c.out.dtype != value.dtype:
            x = Term("unary", (x,), (Function("to", (c.out.dtype,)),))
        return Term(name, (x,), (c["dim"] % value.ndim - value.ndim,))

    return entry


def _reduction(name: str) -> Spelling:
    def entry(c: Call) -> Any:
        value = val(c.x)
        dims = c.arguments.get("dim")
        dims = [dims] if isinstance(dims, int) else dims
        dims = dims if dims else range(value.ndim)
        dims = tuple(sorted(d % value.ndim - value.ndim for d in dims)) if value.ndim else ()
        if not dims or value.is_complex():
            return None
        dtype = c.arguments.get("dtype")
        function = Function(name, () if dtype is None else (dtype,))
        return Term("reduction", (c.x,), (function, dims, c.arguments.get("keepdim", False)))

    return entry


def _spread(name: str) -> Spelling:
    """A variance or standard deviation: divided by the count less its correction, which is 1."""

    def entry(c: Call) -> Any:
        return spread(c, name)

    return entry


def spread(c: Call, name: str) -> Any:
    """The term of a variance, or what is computed with one, over some dims."""
    value, correction = val(c.x), c.arguments.get("correction")
    if "unbiased" in c.arguments:
        correction = int(c["unbiased"])
    dims = c.arguments.get("dim") or range(value.ndim)
    dims = tuple(sorted(d % value.ndim - value.ndim for d in dims)) if value.ndim else ()
    if not dims or not value.is_floating_point():
        return None
    function = Function(name, (1 if correction is None else correction,))
    return Term("reduction", (c.x,), (function, dims, c.arguments.get("keepdim", False)))


def _vector_norm(c: Call) -> Any:
    return _reduction("vector_norm")(c) if c["ord"] == 2 and c["dtype"] is None else None


def extreme(c: Call, name: str) -> Any:
    """The term of the largest or least elements along one dim, without their places."""
    n = val(c.x).ndim
    if n == 0 or "dim" not in c.arguments:
        return None
    return Term("reduction", (c.x,), (Function(name), (c["dim"] % n - n,), c["keepdim"]))


def layer_norm(c: Call) -> Any:
    """The term of a layer norm, also of the first result of `native_layer_norm`."""
    if c["weight"] is None and c["bias"] is not None:
        return None
    parameters = tuple(p for p in (c["weight"], c["bias"]) if p is not None)
    return Term("layer_norm", (c.x, *parameters), (tuple(c["normalized_shape"]), c["eps"]))


def _rms_norm(c: Call) -> Any:
    parameters = () if c["weight"] is None else (c["weight"],)
    return Term("rms_norm", (c.x, *parameters), (tuple(c["normalized_shape"]), c["eps"]))


def _group_norm(c: Call) -> Any:
    if c["weight"] is None and c["bias"] is not None:
        return None
    parameters = tuple(p for p in (c["weight"], c["bias"]) if p is not None)
    return Term("group_norm", (c.x, *parameters), (c["num_groups"], c["eps"]))


def batch_norm(c: Call) -> Any:
    """The term of a batch norm that only reads its statistics; None for one that trains."""
    training = c.arguments.get("training", False)
    parameters = tuple(c[k] for k in ("weight", "bias", "running_mean", "running_var"))
    if training or any(p is None for p in parameters):
        return None
    return Term("batch_norm", (c.x, *parameters), (c["eps"],))


def _pool(c: Call) -> Any:
    attributes = (
        listed(c["kernel_size"], 2),
        listed(c["stride"], 2) or listed(c["kernel_size"], 2),
        listed(c["padding"], 2),
        c["ceil_mode"],
        c["count_include_pad"],
        c["divisor_override"],
    )
    return Term("avg_pool2d", (c.x,), attributes)


def _adaptive_pool(c: Call) -> Any:
    return Term("adaptive_avg_pool2d", (c.x,), (listed(c["output_size"], 2),))


def _resample(name: str, *keys: str) -> Spelling:
    def entry(c: Call) -> Any:
        attributes = [tuple(v) if isinstance(v, list) else v for v in (c[k] for k in keys)]
        if any(isinstance(v, Node) for a in attributes if isinstance(a, tuple) for v in a):
            return None
        return Term(name, (c.x,), tuple(attributes))

    return entry


REDUCTIONS = table(
    (_softmax("softmax"), "softmax.int", "_softmax.default"),
    (_softmax("log_softmax"), "log_softmax.int", "_log_softmax.default"),
    (_reduction("sum"), "sum.default", "sum.dim_IntList"),
    (_reduction("mean"), "mean.default", "mean.dim"),
    (_reduction("amax"), "amax.default"),
    (_reduction("amin"), "amin.default"),
    (_reduction("logsumexp"), "logsumexp.default"),
    (_vector_norm, "linalg_vector_norm.default"),
    (_spread("var"), "var.correction", "var.dim", "var.default"),
    (_spread("std"), "std.correction", "std.dim", "std.default"),
    (layer_norm, "layer_norm.default"),
    (_rms_norm, "rms_norm.default"),
    (_group_norm, "group_norm.default"),
    (batch_norm, "batch_norm.default"),
    (_pool, "avg_pool2d.default"),
    (_adaptive_pool, "adaptive_avg_pool2d.default"),
    (_resample("upsample_nearest2d", "output_size", "scale_factors"), "upsample_nearest2d.vec"),
    (
        _resample("upsample_bilinear2d", "output_size", "align_corners", "scale_factors"),
        "upsample_bilinear2d.vec",
    ),
)
