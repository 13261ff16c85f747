"""The grid of small programs that a profile is fitted to, each with the kernels that it makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from eqsat.cost.device import Device, Mode
from eqsat.cost.kernel import Kernel, Product
from eqsat.cost.tune.timer import Kind

CHAIN = (1, 2, 4, 8, 16)
"""Pairs of tiny kernels in the programs that launches are measured with."""
TINY = 8
"""The sides of their matrices."""
POLYNOMIAL = 16
"""The degree of a polynomial that waits for arithmetic, not for memory."""
# Elements; beyond 32 MiB the allocator of a CPU asks for fresh pages at every call.
SIZES = (4096, 16384, 65536, 100_000, 250_000, 400_000, 700_000, 1_000_000, 2_000_000, 4_000_000)
MOST_EXPS = 2_100_000
"""Elements of the largest of the slow ones."""
MATRICES = ((16, 64), (64, 256), (256, 256), (256, 1024), (1024, 1024), (4096, 512), (2048, 4096))
TRANSPOSED = (
    (64, 64), (256, 256), (400, 300), (512, 512), (1000, 600), (1024, 1024), (1500, 1700),
    (2048, 2048),
)  # fmt: skip
GEMMS = (
    (1, 256, 256), (1, 1024, 1024), (8, 64, 64), (16, 1024, 256), (32, 32, 32), (64, 64, 64),
    (64, 256, 64), (128, 128, 128), (128, 768, 768), (256, 256, 256), (256, 1024, 256),
    (256, 256, 1024), (512, 512, 512), (512, 64, 512), (512, 8, 512), (512, 1, 512),
    (1024, 1024, 128), (1024, 1024, 1024), (2048, 16, 64),
)  # fmt: skip
BMMS = ((8, 64, 64, 32), (8, 128, 128, 64), (16, 128, 64, 128), (64, 32, 32, 32), (4, 256, 256, 64))
CONVS = (
    (1, 16, 16, 32, 3), (1, 64, 64, 28, 3), (1, 64, 128, 28, 1), (2, 128, 128, 14, 3),
    (1, 3, 32, 64, 7), (1, 32, 32, 28, 3), (4, 32, 64, 28, 3),
)  # fmt: skip
ATTENTIONS = ((1, 4, 64, 32), (2, 4, 128, 64), (1, 8, 256, 64), (1, 4, 512, 64), (4, 8, 128, 32))
GPU_SCALE = 8
"""How many times the elements a GPU is given, which is idle at what fills a core."""


@dataclass(frozen=True)
class Benchmark:
    """A program to time: its class and name, the kernels it makes, and its operands."""

    group: str
    name: str
    kernels: tuple[Kernel, ...]
    program: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float32
    mode: Mode = "stream"
    compiled: bool = False
    """Whether Inductor compiles it; a call of a library is as fast without."""

    @property
    def base(self) -> bool:
        """Whether its time holds the base cost of a compiled call, which a CUDA graph has not."""
        return self.compiled and self.mode == "stream"

    def operands(self, place: Kind) -> tuple[Tensor, ...]:
        """Its operands, always the same; those of a convolution in channels-last."""
        generator = torch.Generator().manual_seed(0)
        tensors = [torch.randn(shape, generator=generator) for shape in self.shapes]
        layout = torch.channels_last if self.group == "conv" else torch.contiguous_format
        return tuple(t.to(place, self.dtype, memory_format=layout) for t in tensors)

    def call(self, place: Kind) -> Callable[[], Tensor]:
        """The call that is timed."""
        operands, program = self.operands(place), self.program
        if self.compiled:
            torch._dynamo.reset()
            program = torch.compile(program, dynamic=False, fullgraph=True)
        return lambda: program(*operands)


def grid(device: Device, place: Kind) -> tuple[Benchmark, ...]:
    """Every benchmark for a device.

    On a GPU all but the chains are replayed by CUDA graphs: what they take is the device's.
    """
    gpu = place == "cuda"
    mode: Mode = "graph" if gpu else "stream"
    scale = GPU_SCALE if gpu else 1
    found: list[Benchmark] = []
    for launch in ("stream", "graph") if gpu else ("stream",):
        found += [_chain(pairs, launch) for pairs in CHAIN]
    for n in SIZES:
        found += _pointwise(n * scale, mode, n <= MOST_EXPS)
    for rows, columns in MATRICES:
        found += _reductions(rows * scale, columns, mode, gpu, rows * columns <= MOST_EXPS)
    for rows, columns in TRANSPOSED:
        found.append(_transposed(rows * scale, columns, mode))
    dtypes = [torch.float32]
    if gpu:
        dtypes.append(torch.bfloat16 if "bf16" in device.flops else torch.float16)
    for dtype in dtypes:
        found += [_gemm(1, *_scaled(s, scale), dtype, mode) for s in GEMMS]
        found += [_gemm(s[0], *_scaled(s[1:], scale // 2), dtype, mode) for s in BMMS]
        found += [_convolution(s[0] * scale, *s[1:], dtype, mode) for s in CONVS]
        found += [_attention(s[0] * scale, *s[1:], dtype, mode) for s in ATTENTIONS]
    return tuple(found)


def _scaled(shape: tuple[int, ...], scale: int) -> tuple[int, int, int]:
    """The shape with its sides longer, but for sides of 1."""
    m, n, k = (size if size == 1 else size * max(1, scale) for size in shape)
    return m, n, k


def _add(a: Tensor, b: Tensor) -> Tensor:
    return a + b


def _horner(a: Tensor) -> Tensor:
    result = a
    for _ in range(POLYNOMIAL):
        result = result * a + 0.5
    return result


def _sum(a: Tensor) -> Tensor:
    return a.sum(-1)


def _column_sum(a: Tensor) -> Tensor:
    return a.sum(0)


def _variance(a: Tensor) -> Tensor:
    return a.var(-1, correction=0)


def _softmax(a: Tensor) -> Tensor:
    return torch.softmax(a, -1)


def _transpose(a: Tensor) -> Tensor:
    return a.t().contiguous()


def _same_size(x: Tensor, w: Tensor) -> Tensor:
    return functional.conv2d(x, w, padding=w.shape[-1] // 2)


def _pairs(pairs: int) -> Callable[[Tensor, Tensor], Tensor]:
    def program(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(pairs):
            x = torch.relu(x @ w)
        return x

    return program


def _chain(pairs: int, mode: Mode) -> Benchmark:
    """A program of tiny kernels, of which each adds its launch to the base cost of the call."""
    n = TINY * TINY
    product = Product(1, TINY, TINY, TINY)
    mm = Kernel("extern", ("mm",), (), 8 * n, 4 * n, product.flops(), n, 1, torch.float32, product)
    relu = Kernel("pointwise", ("relu",), (), 4 * n, 4 * n, 0, n, 1, torch.float32, work=n)
    return Benchmark(
        "launch", f"{pairs} pairs, {mode}", (mm, relu) * pairs, _pairs(pairs),
        ((TINY, TINY),) * 2, mode=mode, compiled=True,
    )  # fmt: skip


def _pointwise(n: int, mode: Mode, slow: bool) -> Iterator[Benchmark]:
    for group, program, inputs, operators, exps in (
        ("pointwise", _add, 2, ("add",), 0),
        ("arithmetic", _horner, 1, ("mul", "add") * POLYNOMIAL, 0),
        ("exp", torch.exp, 1, ("exp",), 1),
    ):
        if group != "pointwise" and not slow:
            continue
        kernel = Kernel(
            "pointwise", operators, (), 4 * n * inputs, 4 * n, 0, n, 1, torch.float32,
            work=n * len(operators), transcendental=n * exps,
        )  # fmt: skip
        yield Benchmark(
            group, f"{n} float32", (kernel,), program, ((n,),) * inputs, mode=mode, compiled=True
        )


def _reductions(rows: int, columns: int, mode: Mode, gpu: bool, slow: bool) -> Iterator[Benchmark]:
    """Reductions of the rows of a matrix, of its columns, and some with a second pass.

    Down a column a CPU walks through the rows; a GPU reads them side by side.
    """
    n = rows * columns
    for group, program, operators, exps, written in (
        ("reduction", _sum, ("sum",), 0, rows),
        ("columns", _column_sum, ("sum",), 0, columns),
        ("variance", _variance, ("var_mean",), 0, rows),
        ("softmax", _softmax, ("amax", "sub", "exp", "sum", "div"), 1.2, n),
    ):
        if group == "softmax" and not slow:
            continue
        numel = columns if group == "columns" else rows
        passes = 2 if group == "variance" and not gpu else len(operators)  # the mean comes first
        kernel = Kernel(
            "reduction", operators, (), 4 * n, 4 * written, 0, numel, n // numel, torch.float32,
            work=n * passes, transcendental=n * exps,
            strided=4 * n if group == "columns" and not gpu else 0,
        )  # fmt: skip
        name = f"{rows}x{columns} float32"
        shapes = ((rows, columns),)
        yield Benchmark(group, name, (kernel,), program, shapes, mode=mode, compiled=True)


def _transposed(rows: int, columns: int, mode: Mode) -> Benchmark:
    n = rows * columns
    kernel = Kernel(
        "pointwise", ("clone",), (), 4 * n, 4 * n, 0, n, 1, torch.float32, work=n, strided=4 * n
    )
    name = f"{rows}x{columns} float32"
    shapes = ((rows, columns),)
    return Benchmark("strided copy", name, (kernel,), _transpose, shapes, mode=mode, compiled=True)


def _library(
    group: str,
    operator: str,
    program: Callable[..., Tensor],
    product: Product,
    shapes: tuple[tuple[int, ...], ...],
    written: int,
    dtype: torch.dtype,
    mode: Mode,
) -> Benchmark:
    """One call of a library that reads its operands and writes so many elements."""
    read = sum(map(math.prod, shapes))
    kernel = Kernel(
        "extern", (operator,), (), read * dtype.itemsize, written * dtype.itemsize,
        product.flops(), written, 1, dtype, product,
    )  # fmt: skip
    sizes = " by ".join("x".join(map(str, shape)) for shape in dict.fromkeys(shapes))
    name = f"{sizes} {str(dtype).removeprefix('torch.')}"
    return Benchmark(group, name, (kernel,), program, shapes, dtype, mode)


def _gemm(b: int, m: int, n: int, k: int, dtype: torch.dtype, mode: Mode) -> Benchmark:
    batch = () if b == 1 else (b,)
    group, operator, program = ("gemm", "mm", torch.mm) if b == 1 else ("bmm", "bmm", torch.bmm)
    shapes = ((*batch, m, k), (*batch, k, n))
    return _library(group, operator, program, Product(b, m, n, k), shapes, b * m * n, dtype, mode)


def _convolution(
    n: int, c: int, o: int, side: int, taps: int, dtype: torch.dtype, mode: Mode
) -> Benchmark:
    """A convolution that keeps the size, in channels-last, as Inductor lays it out."""
    product = Product(1, n * side * side, o, c * taps * taps)
    shapes = ((n, c, side, side), (o, c, taps, taps))
    written = n * o * side * side
    return _library("conv", "convolution", _same_size, product, shapes, written, dtype, mode)


def _attention(
    b: int, heads: int, length: int, width: int, dtype: torch.dtype, mode: Mode
) -> Benchmark:
    """Scores and weighted sum: two products of a kind, taken as one of the depth of both."""
    shape = (b, heads, length, width)
    program, operator = functional.scaled_dot_product_attention, "scaled_dot_product_attention"
    product = Product(b * heads, length, length, 2 * width)
    written = math.prod(shape)
    return _library("sdpa", operator, program, product, (shape,) * 3, written, dtype, mode)
