"""Contractions as terms: products, convolutions, attention and look-ups."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
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
    scales = val(c["beta"]), val(c["alpha"])
    if scales == (1, 1):
        return Term("affine", (a, b, bias))
    return Term("scaled_affine", (a, b, bias), scales)


def _einsum(c: Call) -> Any:
    equation = labelled(c["equation"], [val(x).shape for x in c["tensors"]])
    if equation is None or c["path"] is not None:
        return None
    return Term("einsum", tuple(c["tensors"]), (equation,))


def labelled(equation: str, shapes: Sequence[Sequence[Any]]) -> str | None:
    """An einsum's equation without ellipsis, its result written out, its labels named in order.

    None where a label occurs twice in an operand (a diagonal) or has two sizes (it broadcasts).
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    operands = [
        _labels(text, len(shape)) for text, shape in zip(inputs.split(","), shapes, strict=True)
    ]
    sizes: dict[str, str] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        if len(set(labels)) < len(labels):
            return None
        for label, size in zip(labels, shape, strict=True):
            if sizes.setdefault(label, str(size)) != str(size):
                return None
    hidden = sorted((label for label in sizes if label[1:]), key=lambda label: -int(label[1:]))
    if arrow:
        before, dots, after = output.partition("...")
        results = [*before, *(hidden if dots else ()), *after]
    else:
        met = [label for labels in operands for label in labels]
        results = [*hidden, *sorted(n for n in sizes if n not in hidden and met.count(n) == 1)]
    if len(sizes) > len(string.ascii_letters):
        return None
    name = dict(zip(sizes, string.ascii_letters, strict=False))
    texts = ["".join(name[label] for label in labels) for labels in (*operands, results)]
    return f"{','.join(texts[:-1])}->{texts[-1]}"


def _labels(text: str, rank: int) -> list[str]:
    """The labels of an operand, one a dim; those of an ellipsis are numbered from the last."""
    before, dots, after = text.partition("...")
    hidden = rank - len(before) - len(after) if dots else 0
    return [*before, *(f".{i}" for i in range(hidden, 0, -1)), *after]


def _conv(c: Call) -> Any:
    n = val(c["weight"]).ndim - 2
    stride, dilation = listed(c["stride"], n), listed(c["dilation"], n)
    padding = _padding(c["padding"], val(c["weight"]).shape[2:], dilation)
    transposed = c.arguments.get("transposed", False)
    output_padding = listed(c.arguments.get("output_padding", 0), n)
    children = (c.x, c["weight"]) if c["bias"] is None else (c.x, c["weight"], c["bias"])
    if val(c.x).ndim != n + 2 or padding is None:
        return None
    geometry = (stride, padding, dilation, transposed, output_padding, c["groups"])
    return Term("convolution", children, geometry)


def _padding(given: Any, kernel: Sequence[Any], dilation: Sequence[Any]) -> tuple[Any, ...] | None:
    """The padding in numbers; None for a "same" that pads one side more than the other."""
    if given == "valid":
        return (0,) * len(kernel)
    if given != "same":
        return listed(given, len(kernel))
    both = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    return tuple(b // 2 for b in both) if all(b % 2 == 0 for b in both) else None


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
    (_einsum, "einsum.default"),
    (_conv, "conv1d.default", "conv2d.default", "conv3d.default", "convolution.default"),
    (_conv, "conv1d.padding", "conv2d.padding", "conv3d.padding"),
    (_attention, "scaled_dot_product_attention.default"),
    (lambda c: Term("embedding", (c["weight"], c["indices"])), "embedding.default"),
)
