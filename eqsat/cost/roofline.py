"""The seconds of kernels on a device: each waits for memory or for arithmetic, and is launched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eqsat.cost.device import Device, Mode
from eqsat.cost.gemm import product_seconds
from eqsat.cost.kernel import Kernel

Bound = Literal["memory", "compute", "launch"]
"""What takes most of a kernel's time."""
OVERLAP = 4
"""How well traffic and arithmetic hide each other: a kernel takes the norm of this order of both.

It is at most a fifth above the longer one, and unlike that it falls with either: among kernels that
wait for memory the one with less arithmetic is cheaper.
"""
WELFORD_WORK = 6
"""Operations for each element of a variance in one pass, beside the one that every sum takes."""
SOFTMAX_WORK = 4
"""Operations for each score of an attention, beside its exp: scale, maximum, difference, sum."""


@dataclass(frozen=True)
class Times:
    """The predicted seconds of a program, and of each of its kernels, in order."""

    seconds: float
    """Of one call: the base cost, and the slower of host and device."""
    host: float
    """To launch the kernels; 0 where a CUDA graph is replayed."""
    device: float
    """Of the kernels on the device, with the gaps between them."""
    gaps: float
    """Of all gaps between kernels on the device: a part of `device`."""
    kernels: tuple[float, ...]
    """Of each kernel, with the gap before it: their sum is `device`."""
    bounds: tuple[Bound, ...]
    """What takes most of each."""


def seconds(kernel: Kernel, device: Device, mode: Mode = "stream") -> float:
    """The seconds of a kernel that is all of a program, without the base cost of a call."""
    return time((kernel,), device, mode).seconds - device.base


def time(kernels: Sequence[Kernel], device: Device, mode: Mode = "stream") -> Times:
    """The seconds of the program that `kernels` make up.

    A kernel takes the longer of its traffic and its arithmetic (`OVERLAP`), and a gap. On a stream
    the host may be the slower one: the program then takes the time of the launches. The cache holds
    what the whole program reads and writes, if that fits, so that cutting a kernel in two makes
    neither part faster.
    """
    working_set = sum(kernel.bytes for kernel in kernels)
    gap = device.graph_launch
    memory = [_memory(kernel, device, working_set) for kernel in kernels]
    compute = [_compute(kernel, device) for kernel in kernels]
    each = tuple(gap + _overlapped(*pair) for pair in zip(memory, compute, strict=True))
    on_device = math.fsum(each)
    host = len(kernels) * device.stream_launch if mode == "stream" else 0.0
    bounds: list[Bound] = [_bound(gap, *pair) for pair in zip(memory, compute, strict=True)]
    gaps = gap * len(kernels)
    return Times(device.base + max(host, on_device), host, on_device, gaps, each, tuple(bounds))


def _memory(kernel: Kernel, device: Device, working_set: int) -> float:
    """The seconds of a kernel's traffic; strided accesses use a share of each line they move."""
    strided = min(kernel.strided, kernel.bytes)
    traffic = kernel.bytes + strided * (1 / device.strided_share - 1)
    return traffic / device.sustained_bandwidth(working_set)


def _compute(kernel: Kernel, device: Device) -> float:
    """The seconds of a kernel's arithmetic; 0 for a library call that we know nothing of.

    A convolution is priced as its implicit product and an attention as that of its scores, in
    proportion to the FLOPs; the softmax of an attention waits for the scores.
    """
    welford = WELFORD_WORK * kernel.operators.count("var_mean") * kernel.numel * kernel.rnumel
    arithmetic = device.arithmetic(kernel.work + welford, kernel.transcendental)
    if kernel.product is None or kernel.product.flops() <= 0:
        return max(arithmetic, kernel.flops / device.sustained_flops(kernel.dtype))
    times = kernel.flops / kernel.product.flops()
    convolution = "convolution" in kernel.operators
    seconds = product_seconds(kernel.product, kernel.dtype, device, times, convolution)
    if any("attention" in name for name in kernel.operators):
        scores = kernel.product.batch * kernel.product.m * kernel.product.n
        seconds += device.arithmetic(SOFTMAX_WORK * scores, scores)
    return max(arithmetic, seconds)


def _overlapped(memory: float, compute: float) -> float:
    longer, shorter = max(memory, compute), min(memory, compute)
    return longer * (1 + (shorter / longer) ** OVERLAP) ** (1 / OVERLAP) if longer else 0.0


def _bound(gap: float, memory: float, compute: float) -> Bound:
    if gap >= max(memory, compute):
        return "launch"
    return "memory" if memory >= compute else "compute"
