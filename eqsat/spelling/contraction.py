"""Contractions as terms: products, convolutions, attention and look-ups."""

from __future__ import annotations

import math
from typing import Any

from eqsat.spelling.view import swap
from eqsat.term import Call, Term, listed, table, val


def _matmul(c: Call) -> Any:
    a, b = list(c.arguments.values())[:2]
    return Term("matmul", (a, b))


def _linear(c: Call) -> Any:
    if val(c["weight"]).ndim != 2:
        return None
    if c["bias"] is None:
        return Term("matmul", (c.x, swap(c["weight"])))
    return Term("affine", (c.x, swap(c["weight"]), c["bias"]))


def _addmm(c: Call) -> Any:
    bias, a, b = list(c.arguments.values())[:3]
    if c["beta"] != 1 or c["alpha"] != 1:
        return None
    return Term("affine", (a, b, bias))


def _conv(c: Call) -> Any:
    n = val(c["weight"]).ndim - 2
    stride, padding, dilation = (listed(c[k], n) for k in ("stride", "padding", "dilation"))
    transposed = c.arguments.get("transposed", False)
    output_padding = listed(c.arguments.get("output_padding", 0), n)
    children = (c.x, c["weight"]) if c["bias"] is None else (c.x, c["weight"], c["bias"])
    if val(c.x).ndim != n + 2:
        return None
    geometry = (stride, padding, dilation, transposed, output_padding, c["groups"])
    return Term("convolution", children, geometry)


def _attention(c: Call) -> Any:
    if c["dropout_p"] != 0.0:
        return None
    size = val(c["query"]).shape[-1]
    scale = c["scale"]
    if scale is None and isinstance(size, int):
        scale = 1.0 / math.sqrt(size)
    children = tuple(a for a in (c["query"], c["key"], c["value"], c["attn_mask"]) if a is not None)
    return Term("attention", children, (c["is_causal"], scale, c["enable_gqa"]))


CONTRACTIONS = table(
    (_matmul, "mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default"),
    (_linear, "linear.default"),
    (_addmm, "addmm.default", "baddbmm.default"),
    (_conv, "conv1d.default", "conv2d.default", "conv3d.default", "convolution.default"),
    (_attention, "scaled_dot_product_attention.default"),
    (lambda c: Term("embedding", (c["weight"], c["indices"])), "embedding.default"),
)
