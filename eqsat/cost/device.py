"""The figures of a device that a price is made of."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import torch

from eqsat.cost.figure import DTYPES
from eqsat.cost.profile import Profile, find, known

__all__ = ["DTYPES", "MODES", "Backend", "Device", "Mode", "known", "load"]

Backend = Literal["triton", "cpp"]
"""What Inductor generates for the device: Triton for a GPU, C++ for a CPU."""
Mode = Literal["stream", "graph"]
"""How kernels are launched: one by one on a stream, or by the replay of a CUDA graph."""
MODES: tuple[Mode, ...] = ("stream", "graph")

EXP_SHARE = 1 / 8
"""Special function units of a multiprocessor for each fp32 lane, where a profile has no figure."""
STRIDED_SHARE = 0.5
"""Of the bandwidth, for accesses that are not contiguous, where a profile has no figure."""
# Where a profile has no figure for a dtype, the next one is tried: a device without fp8 or bf16
# units computes in a wider type. A dtype that is not here computes as fp32.
PEAKS: Mapping[torch.dtype, tuple[str, ...]] = {
    torch.float64: ("fp64",),
    torch.complex128: ("fp64",),
    torch.bfloat16: ("bf16",),
    torch.float16: ("fp16",),
    torch.int8: ("int8",),
    torch.uint8: ("int8",),
    torch.float8_e4m3fn: ("fp8", "fp16"),
    torch.float8_e4m3fnuz: ("fp8", "fp16"),
    torch.float8_e5m2: ("fp8", "fp16"),
    torch.float8_e5m2fnuz: ("fp8", "fp16"),
}


@dataclass(frozen=True)
class Device:
    """The figures of one device: bytes and seconds, dense peaks in FLOP/s."""

    name: str
    bandwidth: float
    """Peak bytes a second of device memory."""
    bandwidth_share: float
    """The share of `bandwidth` that a long copy sustains."""
    flops: Mapping[str, float] = field(hash=False)
    """Dense peak FLOP/s by dtype name (`DTYPES`); "fp32" is always there."""
    flops_share: float
    """The share of the peak that a large matrix product sustains."""
    l2: int
    """Bytes of the last cache that all multiprocessors share."""
    sms: int
    """Multiprocessors (NVIDIA), compute units (AMD) or cores."""
    stream_launch: float
    """Seconds a kernel adds when it is launched on a stream."""
    graph_launch: float
    """Seconds a kernel adds when a CUDA graph is replayed."""
    base: float
    """Seconds of a compiled call apart from its kernels."""
    backend: Backend = "triton"
    """What Inductor generates for it."""
    threads_per_sm: int = 2048
    """Threads that are resident on a multiprocessor at once; Inductor splits reductions by it."""
    capability: float = 0.0
    """CUDA compute capability, 9.0 for Hopper; 0 where there is none."""
    l2_bandwidth: float | None = None
    """Bytes a second that the last cache sustains; None where it is as the memory's."""
    strided_share: float = STRIDED_SHARE
    """The share of either bandwidth where the innermost access is not contiguous."""
    pointwise_rate: float | None = None
    """Operations a second of generated kernels; None for one a cycle and fp32 lane."""
    exp_rate: float | None = None
    """Exponentials a second of generated kernels; None for an eighth of that."""
    gemm_half: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """On a CPU, the m, n and k at which a matrix product runs at half its speed."""
    freezing: bool = False
    """On a CPU, whether Inductor knows the weights and lays them out ahead (its `freezing`)."""
    match: tuple[str, ...] = ()
    """What `torch.cuda.get_device_name()` says of such a device."""
    sources: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """Where a figure comes from, by its key in the file ("memory.dram_gbs")."""
    unconfirmed: tuple[str, ...] = ()
    """Keys of the figures that no datasheet or measurement confirms."""

    @staticmethod
    def of(profile: Profile) -> Device:
        """The device that a profile describes."""
        figures = profile.figures
        teras = {key: figures.get(f"compute.{key}", 0.0) * 1e12 for key in ("pointwise", "exp")}
        halves = [figures.get(f"gemm.half_{axis}", 0.0) for axis in "mnk"]
        return Device(
            name=profile.name,
            bandwidth=figures["memory.dram_gbs"] * 1e9,
            bandwidth_share=figures["memory.dram_efficiency"],
            flops={n: figures[f"compute.{n}"] * 1e12 for n in DTYPES if f"compute.{n}" in figures},
            flops_share=figures["compute.efficiency"],
            l2=int(figures["memory.l2_mb"] * 2**20),
            sms=int(figures["compute.sms"]),
            stream_launch=figures["launch.stream"] * 1e-6,
            graph_launch=figures["launch.graph"] * 1e-6,
            base=figures["launch.base"] * 1e-6,
            backend=cast("Backend", profile.backend),
            threads_per_sm=int(figures.get("compute.threads_per_sm", 2048)),
            capability=figures.get("compute.capability", 0.0),
            l2_bandwidth=figures.get("memory.l2_gbs", 0.0) * 1e9 or None,
            strided_share=figures.get("memory.strided_efficiency", STRIDED_SHARE),
            pointwise_rate=teras["pointwise"] or None,
            exp_rate=teras["exp"] or None,
            gemm_half=(halves[0], halves[1], halves[2]),
            match=profile.match,
            sources=profile.sources,
            unconfirmed=profile.unconfirmed,
        )

    def launch(self, mode: Mode = "stream") -> float:
        """Seconds that one kernel adds to a program in the given launch mode."""
        return self.graph_launch if mode == "graph" else self.stream_launch

    def sustained_bandwidth(self, working_set: float = float("inf")) -> float:
        """Bytes a second of long accesses, where `working_set` bytes are used over and over.

        What fits the last cache is read from there, what is much larger from memory: a harmonic
        mix with a smooth step at the size of the cache.
        """
        memory = self.bandwidth * self.bandwidth_share
        if self.l2_bandwidth is None or self.l2_bandwidth <= memory:
            return memory
        cached = 1 / (1 + (working_set / self.l2) ** 2)
        return 1 / (cached / self.l2_bandwidth + (1 - cached) / memory)

    def sustained_flops(self, dtype: torch.dtype, convolution: bool = False) -> float:
        """FLOP/s that a large matrix product of `dtype` reaches, or a convolution by products.

        A float32 product has the fp32 peak, for torch multiplies in full precision unless
        `torch.set_float32_matmul_precision` says otherwise; a float32 convolution has that of tf32
        where there is one, for `torch.backends.cudnn.allow_tf32` is True by default.
        """
        if convolution and dtype == torch.float32 and "tf32" in self.flops:
            return self.flops["tf32"] * self.flops_share
        return self.peak(dtype) * self.flops_share

    def peak(self, dtype: torch.dtype) -> float:
        """Dense peak FLOP/s of a matrix product of `dtype`; that of a wider type if it has none."""
        for name in PEAKS.get(dtype, ()):
            if name in self.flops:
                return self.flops[name]
        return self.flops["fp32"]

    def arithmetic(self, operations: float, exponentials: float) -> float:
        """Seconds of the arithmetic of a generated kernel by itself."""
        rate = self.pointwise_rate or self.flops["fp32"] / 2
        return operations / rate + exponentials / (self.exp_rate or rate * EXP_SHARE)


def load(name: str | os.PathLike[str]) -> Device:
    """The device with this name, of this `torch.cuda.get_device_name()`, or in this TOML file.

    >>> load("h200").sms
    132
    >>> load("NVIDIA H100 80GB HBM3").name
    'h100'

    A CPU is one that freezes weights where `torch._inductor.config.freezing` is set.

    Raises ValueError for a name that no profile has, and for a malformed file.
    """
    device = Device.of(find(name))
    return replace(device, freezing=device.backend == "cpp" and _freezes())


def _freezes() -> bool:
    config = sys.modules.get("torch._inductor.config")  # its import takes seconds
    if config is None:
        return os.environ.get("TORCHINDUCTOR_FREEZING") == "1"
    return config.freezing
