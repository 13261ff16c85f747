"""Matrix products and convolutions of ATen as primitive operations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any  # arguments of operators are arbitrary Python values

from eqsat.cost.partition.arguments import Call, Expansion, pair
from eqsat.cost.partition.operation import Operation, Program
from eqsat.cost.partition.shapes import broadcast


def _mm(call: Call) -> Operation:
    """mm, and bmm of one product (`bmm_to_mm` in torch/_inductor/fx_passes/joint_graph.py)."""
    p, x, w = call.program, call.tensor(0, "self"), call.tensor(1, "mat2")
    if call.name == "bmm" and x.shape[0] == 1 == w.shape[0] and call.device.backend == "triton":
        product = mm(p, p.reshape(x, x.shape[1:]), p.reshape(w, w.shape[1:]))
        return p.reshape(product, (1, *product.shape))
    return mm(p, x, w)


def mm(program: Program, x: Operation, w: Operation) -> Operation:
    """The product of two matrices, or of two batches of them."""
    name = "mm" if len(x.shape) == 2 else "bmm"
    shape = (*x.shape[:-1], w.shape[-1])
    return program.add(name, name, (x, w), shape, x.dtype)


def _addmm(call: Call) -> Operation:
    p, bias = call.program, call.tensor(0, "self")
    x, w = call.tensor(1, "mat1"), call.tensor(2, "mat2")
    return p.add(call.name, call.name, (bias, x, w), call.shape, call.dtype, _scales(call))


def _scales(call: Call) -> tuple[Any, Any]:
    return call(3, "beta", 1), call(4, "alpha", 1)


def _linear(call: Call) -> Operation:
    """Rows of a matrix times the transposed weight; the bias inside the product (`addmm`).

    A tensor of rank 3 that is not dense is multiplied as torch.matmul does, and the bias added.
    """
    p, x, weight = call.program, call.tensor(0, "input"), call.tensor(1, "weight")
    bias = call.maybe(2, "bias")
    if len(weight.shape) != 2 or len(x.shape) < 1:
        return p.add("external", "linear", call.operands(), call.shape, call.dtype)
    w = p.permute(weight, (1, 0))
    if len(x.shape) > 2 and not x.is_dense:
        product = matmul(p, x, w, call.shape)
        return product if bias is None else p.pointwise("add", product, bias, dtype=call.dtype)
    rows = p.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    if bias is None:
        product = mm(p, rows, w)
    else:
        shape = (rows.shape[0], weight.shape[0])
        product = p.add("addmm", "addmm", (bias, rows, w), shape, x.dtype, (1, 1))
    return p.reshape(product, call.shape)


def _matmul(call: Call) -> Operation:
    return matmul(call.program, call.tensor(0, "self"), call.tensor(1, "other"), call.shape)


def matmul(p: Program, x: Operation, w: Operation, shape: tuple[int, ...]) -> Operation:
    """The cases of torch.matmul (`matmul` in torch/_decomp/decompositions.py)."""
    if len(x.shape) == 1 or len(w.shape) == 1:
        return _matvec(p, x, w, shape)
    if len(x.shape) == len(w.shape) == 2:
        return mm(p, x, w)
    if len(w.shape) == 2 and _folds(x):
        rows = p.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
        return p.reshape(mm(p, rows, w), shape)
    batch = broadcast([x.shape[:-2], w.shape[:-2]])
    left, right = (
        p.reshape(p.expand(v, (*batch, *v.shape[-2:])), (math.prod(batch), *v.shape[-2:]))
        for v in (x, w)
    )
    return p.reshape(mm(p, left, right), shape)


def _folds(x: Operation) -> bool:
    """Whether the leading dimensions are one without a copy (`should_fold`)."""
    return all(x.strides[i] == x.strides[i + 1] * x.shape[i + 1] for i in range(len(x.shape) - 2))


def _matvec(p: Program, x: Operation, w: Operation, shape: tuple[int, ...]) -> Operation:
    """A product with a vector is a multiplication and a sum (`mv` in torch/_decomp)."""
    if len(x.shape) == 1 and len(w.shape) > 1:
        w = p.transpose(w, len(w.shape) - 2, len(w.shape) - 1)
        x, w = w, x
    total = p.reduce("sum", p.pointwise("mul", x, w), (-1,), False, x.dtype)
    return p.reshape(total, shape)


def _mv(call: Call) -> Operation:
    return _matvec(call.program, call.tensor(0, "self"), call.tensor(1, "vec"), call.shape)


def _convolution(call: Call) -> Operation:
    """A convolution; the bias of a GPU's is added after it (`convolution`, kernel/conv.py)."""
    p, x, weight = call.program, call.tensor(0, "input"), call.tensor(1, "weight")
    bias = call.maybe(2, "bias")
    rank = len(weight.shape) - 2
    transposed, groups = _geometry(call)
    if len(x.shape) == rank + 1:
        x = p.reshape(x, (1, *x.shape))
    x = _padded_same(call, x, weight)
    batched = call.shape if len(call.shape) == rank + 2 else (1, *call.shape)
    strides = call.strides if batched == call.shape else None
    inside = bias is not None and call.device.backend == "cpp"
    operands = (x, weight, bias) if inside and bias is not None else (x, weight)
    result = p.add(
        "convolution", "convolution", operands, batched, call.dtype, (transposed, groups), strides
    )
    if bias is not None and not inside:
        column = p.view(
            "view", bias, ("reshape", (bias.shape[0], *(1,) * rank)), (bias.shape[0], *(1,) * rank)
        )
        result = p.pointwise("add", result, column, dtype=call.dtype, strides=strides)
    return result if batched == call.shape else p.reshape(result, call.shape)


def _geometry(call: Call) -> tuple[bool, int]:
    """Whether a convolution is transposed, and its groups."""
    if call.name in ("convolution", "_convolution"):
        return bool(call(6, "transposed", False)), int(call(8, "groups", 1))
    if call.name.startswith("conv_transpose"):
        return True, int(call(6, "groups", 1))
    return False, int(call(6, "groups", 1))


def _padded_same(call: Call, x: Operation, weight: Operation) -> Operation:
    """`x` padded where "same" padding differs at the two ends."""
    padding = call(4, "padding", 0)
    if padding != "same":
        return x
    dilation = pair(call(5, "dilation", 1), len(weight.shape) - 2)
    uneven = [d * (k - 1) % 2 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if not any(uneven):
        return x
    shape = (*x.shape[:2], *[n + more for n, more in zip(x.shape[2:], uneven, strict=True)])
    return call.program.add("pad", "constant_pad_nd", (x,), shape, x.dtype, (0,) * len(shape))


TABLE: Mapping[str, Expansion] = {
    **dict.fromkeys(("mm", "bmm", "_int_mm"), _mm),
    **dict.fromkeys(("addmm", "baddbmm"), _addmm),
    "linear": _linear,
    "matmul": _matmul,
    **dict.fromkeys(("mv", "dot", "vdot"), _mv),
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "convolution", "_convolution", "conv_transpose1d"),
        _convolution,
    ),
    **dict.fromkeys(("conv_transpose2d", "conv_transpose3d"), _convolution),
}
"""How each of them is made of primitive operations."""
