"""Kernels and predictions made by hand, for tests of what is done with them."""

from collections.abc import Sequence

import torch

from eqsat.cost.kernel import Kernel, Product
from eqsat.cost.model import Prediction
from eqsat.cost.roofline import Times


def pointwise(*operators: str, numel: int = 1024) -> Kernel:
    """A kernel that reads and writes `numel` float32 elements."""
    size = 4 * numel
    return Kernel("pointwise", operators, operators, size, size, 0, numel, 1, torch.float32)


def mm(m: int, n: int, k: int) -> Kernel:
    """A matrix product in float32."""
    product = Product(1, m, n, k)
    read, written = 4 * (m * k + k * n), 4 * m * n
    flops, dtype = product.flops(), torch.float32
    return Kernel("extern", ("mm",), ("mm",), read, written, flops, m * n, 1, dtype, product)


def prediction(kernels: Sequence[Kernel], each: Sequence[float], host: float = 0.0) -> Prediction:
    """The prediction of a program of which each kernel takes the given seconds."""
    device = sum(each)
    bounds = tuple("memory" for _ in kernels)
    gaps = 1e-6 * len(kernels)
    times = Times(max(device, host), host, device, gaps, tuple(each), bounds)
    return Prediction("h200", "stream", tuple(kernels), times)
