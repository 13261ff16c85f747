"""One kernel of a compiled program: what it computes, reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

KernelKind = Literal["pointwise", "reduction", "extern"]
"""Generated without a reduction, generated with one, or a call of a library (GEMM, SDPA, ...)."""


class Product(NamedTuple):
    """The matrix products that a kernel is made of: `batch` times (m, k) by (k, n)."""

    batch: int
    m: int
    n: int
    k: int

    def flops(self) -> int:
        """A multiplication and an addition for each of batch * m * n * k."""
        return 2 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True)
class Kernel:
    """One launch. Bytes are those of whole buffers, as Inductor counts them: each buffer once."""

    kind: KernelKind
    operators: tuple[str, ...]
    """What is computed, in order, as short ATen names ("mm", "add"), repeated where repeated."""
    nodes: tuple[str, ...]
    """The names of the FX nodes whose work is in it, in order."""
    read: int
    """Bytes read."""
    written: int
    """Bytes written."""
    flops: int
    """FLOPs of matrix products, convolutions and attentions; 0 for a generated kernel."""
    numel: int
    """Elements of the iteration outside the reduction."""
    rnumel: int
    """Elements reduced to one; 1 without a reduction."""
    dtype: torch.dtype
    """The dtype computed in: of the operands of a product, of the widest float of the others."""
    product: Product | None = None
    """The GEMM behind an extern kernel; a convolution's is its implicit one."""
    work: int = 0
    """Arithmetic of a generated kernel: one for each element of each pointwise operator."""
    transcendental: float = 0.0
    """Evaluations of exp and its like, in units of one exp."""
    strided: int = 0
    """Those bytes, of `read` and `written`, whose innermost access is not contiguous."""

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read + self.written
