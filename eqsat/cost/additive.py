"""The price of one operator call by itself: for extractors that weigh e-nodes one at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch

from eqsat.cost.attention import attention_kernel
from eqsat.cost.device import Device, Mode
from eqsat.cost.gemm import least_seconds
from eqsat.cost.kernel import Product
from eqsat.hint import hint
from eqsat.kind import Kind

FREE = frozenset({Kind.SCALAR, Kind.LEAF, Kind.VIEW})
FUSED = frozenset({Kind.POINTWISE, Kind.CREATION})
FUSED_SHARE = 0.5
"""The share of its launch and traffic that a fusible operator is charged.

Inductor computes it inside the kernel of a neighbour more often than not, so a full price would
make a chain of k operators k kernels. Over 54 variants in 26 groups of equal programs, compiled and
measured on a CPU, a half of both ranked 93 % of the pairs that differ by more than a quarter, with
6.5 % mean regret. It is not zero, so that fewer operators are always better.
"""


@dataclass(frozen=True)
class Call:
    """One operator applied to inputs of which only the metas are known.

    A meta is anything with a `shape` and a torch `dtype`; whatever has no torch dtype is a Python
    number and takes no memory. `output` is a tuple for an operator with several results. The
    operands come in the order of the operator's schema: (input, weight, ...) for a convolution,
    whose attributes are (stride, padding, dilation, transposed, output_padding, groups), (query,
    key, value, ...) for an attention, (source, indices, ...) for a gather.
    """

    operator: str
    kind: Kind
    inputs: tuple[Any, ...]  # metas: see above
    output: Any  # a meta, a tuple of them, or a number
    attributes: tuple[object, ...] = ()
    distinct: tuple[int, ...] | None = None
    """Positions of the inputs that are different tensors, where one is passed twice (`x * x`)."""


@dataclass(frozen=True)
class Estimate:
    """The predicted seconds of a call or program, its kernels before fusion, bytes and FLOPs."""

    seconds: float = 0.0
    kernels: int = 0
    bytes: int = 0
    flops: int = 0


def price(
    call: Call, device: Device, mode: Mode = "stream", fused_share: float = FUSED_SHARE
) -> Estimate:
    """The cost of `call` on `device`, as launch + max(bytes / bandwidth, flops / peak).

    A fusible operator is charged `fused_share` of that.

    Leaves, numbers and views are free. Time grows with every dimension, and one matrix product
    never costs more than two that split it (`least_seconds`).
    Raises ValueError if the operands are not those that the kind needs (`Call`).
    """
    if call.kind in FREE or not _tensors((call.output,)):
        return Estimate()
    share = fused_share if call.kind in FUSED else 1.0
    if _numel(call.output) == 0:
        return Estimate(share * device.launch(mode), kernels=1)
    flops, compute = _work(call, device)
    traffic = _traffic(call) + _scores(call, device)
    memory = traffic / device.sustained_bandwidth()
    return Estimate(share * (device.launch(mode) + max(memory, compute)), 1, traffic, flops)


def total(estimates: Iterable[Estimate]) -> Estimate:
    """The sum of `estimates`; `Device.base`, which a whole call costs once, is not in it."""
    parts = tuple(estimates)
    return Estimate(
        math.fsum(part.seconds for part in parts),
        sum(part.kernels for part in parts),
        sum(part.bytes for part in parts),
        sum(part.flops for part in parts),
    )


def _traffic(call: Call) -> int:
    """Bytes read and written: every different input once, and the output."""
    written = _bytes((call.output,))
    if call.kind is Kind.CREATION:
        return written
    positions = range(len(call.inputs)) if call.distinct is None else call.distinct
    if call.kind is Kind.GATHER:  # of its source it reads what it writes
        return 2 * written + _bytes(call.inputs[i] for i in positions if i > 0)
    return written + _bytes(call.inputs[i] for i in positions)


def _scores(call: Call, device: Device) -> int:
    """Bytes of the scores where a CPU has no kernel for such an attention.

    They are written, read by their softmax, and its result is written and read.
    """
    if call.kind is not Kind.ATTENTION or device.backend != "cpp":
        return 0
    q, k, v = (sizes(meta) for meta in _operands(call, 3))
    dtype, masked = call.inputs[0].dtype, len(call.inputs) > 3
    if attention_kernel(device, q, k, v, dtype, masked=masked, is_causal=False) != "math":
        return 0
    return 4 * math.prod(q[:-1]) * k[-2] * dtype.itemsize


def _work(call: Call, device: Device) -> tuple[int, float]:
    """The FLOPs of a call, and the seconds they take by themselves."""
    if call.kind in (Kind.GATHER, Kind.CAT, Kind.CREATION):
        return 0, 0.0
    if call.kind is Kind.ATTENTION:
        flops, dtype = _attention_flops(call), call.inputs[0].dtype
        return flops, flops / device.sustained_flops(dtype)
    if call.kind in (Kind.MATMUL, Kind.CONVOLUTION):
        product = _matmul(call) if call.kind is Kind.MATMUL else _convolution(call)
        convolution = call.kind is Kind.CONVOLUTION
        seconds = least_seconds(product, call.inputs[0].dtype, device, convolution)
        return product.flops(), seconds
    elements = [_numel(meta) for meta in (*call.inputs, call.output)]
    flops = max(elements)  # one for each element: such kernels wait for memory
    return flops, flops / device.sustained_flops(torch.float32)


def _matmul(call: Call) -> Product:
    """x @ w, + bias: rows of x that share a right matrix are one product."""
    if call.operator == "einsum":
        return _einsum(call)
    x, w, out = (sizes(meta) for meta in (*_operands(call, 2), call.output))
    if not x or not w:
        raise ValueError(f"{call.operator} multiplies vectors or matrices, not {x} by {w}")
    n = 1 if len(w) == 1 else out[-1]
    batch = math.prod(w[:-2])
    return Product(batch, max(1, math.prod(out) // (n * batch)), n, x[-1])


def _einsum(call: Call) -> Product:
    """A product for each element of the result, over what is summed: the least that is reused."""
    labels = str(call.attributes[0]).partition("->")[0].split(",")
    pairs = zip(labels, map(sizes, _operands(call, len(labels))), strict=True)
    size = {label: n for text, shape in pairs for label, n in zip(text, shape, strict=True)}
    elements = max(1, _numel(call.output))
    return Product(1, elements, 1, max(1, math.prod(size.values()) // elements))


def _convolution(call: Call) -> Product:
    """A convolution as a product of patches and filters, one for each group."""
    x, w = (sizes(meta) for meta in _operands(call, 2))
    if len(call.attributes) != 6 or len(w) < 3:
        raise ValueError(
            f"{call.operator} needs a weight and the attributes (stride, padding, dilation, "
            f"transposed, output_padding, groups), not {w} and {call.attributes}"
        )
    groups, transposed = call.attributes[5], bool(call.attributes[3])
    if not isinstance(groups, int) or groups < 1:
        raise ValueError(f"{call.operator} needs a positive number of groups, not {groups!r}")
    kernel = math.prod(w[2:])
    if transposed:  # weight: (in, out / groups, *kernel); every input element meets all of it
        return Product(groups, math.prod(x) // max(1, w[0]), w[1] * kernel, w[0] // groups)
    positions = _numel(call.output) // w[0]  # weight: (out, in / groups, *kernel)
    return Product(groups, positions, w[0] // groups, w[1] * kernel)


def _attention_flops(call: Call) -> int:
    """Scores and weighted sum; they never reach memory, as in flash attention."""
    q, k, v = (sizes(meta) for meta in _operands(call, 3))
    if min(len(q), len(k), len(v)) < 2:
        raise ValueError(f"{call.operator} needs matrices, not {q}, {k} and {v}")
    return 2 * math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


def _operands(call: Call, count: int) -> tuple[Any, ...]:
    operands = call.inputs[:count]
    if len(_tensors(operands)) < count:
        raise ValueError(f"{call.operator} needs {count} tensors, not {call.inputs}")
    return operands


def _tensors(values: Iterable[Any]) -> list[Any]:
    """The metas of tensors in `values`, those inside tuples and lists too; no numbers."""
    found: list[Any] = []
    for value in values:
        parts = cast("tuple[Any, ...]", value) if isinstance(value, (tuple, list)) else (value,)
        found += [p for p in parts if isinstance(getattr(p, "dtype", None), torch.dtype)]
    return found


def sizes(meta: Any) -> tuple[int, ...]:
    """The sizes of a meta, with the hint for a symbolic one."""
    return tuple([size if isinstance(size, int) else int(hint(size)) for size in meta.shape])


def _numel(value: Any) -> int:
    return sum(math.prod(sizes(meta)) for meta in _tensors((value,)))


def _bytes(values: Iterable[Any]) -> int:
    return sum(math.prod(sizes(meta)) * meta.dtype.itemsize for meta in _tensors(values))
