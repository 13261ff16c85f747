"""The figures that a device profile may hold: what each is, and in which unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
"""The dtypes that a profile has a peak for; fp32 it must have."""


@dataclass(frozen=True)
class Figure:
    """One figure of a profile, called by its table and key there: "memory.dram_gbs"."""

    key: str
    unit: str
    what: str
    required: bool = True
    share: bool = False
    """At most 1: a part of something."""
    whole: bool = False
    """A whole number."""


FIGURES: Mapping[str, Figure] = {
    figure.key: figure
    for figure in (
        Figure("compute.fp64", "TFLOP/s", "dense peak", required=False),
        Figure("compute.fp32", "TFLOP/s", "dense peak"),
        Figure("compute.tf32", "TFLOP/s", "dense peak", required=False),
        Figure("compute.bf16", "TFLOP/s", "dense peak", required=False),
        Figure("compute.fp16", "TFLOP/s", "dense peak", required=False),
        Figure("compute.fp8", "TFLOP/s", "dense peak", required=False),
        Figure("compute.int8", "TOP/s", "dense peak", required=False),
        Figure("compute.efficiency", "of the peak", "in a large matrix product", share=True),
        Figure("compute.pointwise", "TOP/s", "operations of generated kernels", required=False),
        Figure("compute.exp", "TOP/s", "exponentials of generated kernels", required=False),
        Figure("compute.sms", "", "multiprocessors, compute units or cores", whole=True),
        Figure("compute.threads_per_sm", "", "resident at once", required=False, whole=True),
        Figure("compute.capability", "", "CUDA compute capability", required=False),
        Figure("memory.dram_gbs", "GB/s", "peak of the memory"),
        Figure("memory.dram_efficiency", "of the peak", "in a long copy", share=True),
        Figure("memory.l2_mb", "MiB", "the last cache that all share"),
        Figure("memory.l2_gbs", "GB/s", "what that cache sustains", required=False),
        Figure(
            "memory.strided_efficiency",
            "of the bandwidth",
            "where accesses are not contiguous",
            required=False,
            share=True,
        ),
        Figure("launch.stream", "us", "a kernel adds on a stream"),
        Figure("launch.graph", "us", "a kernel adds in a CUDA graph"),
        Figure("launch.base", "us", "a compiled call with no kernels"),
        Figure("gemm.half_m", "rows", "at which a product runs at half speed", required=False),
        Figure("gemm.half_n", "columns", "at which a product runs at half speed", required=False),
        Figure("gemm.half_k", "deep", "at which a product runs at half speed", required=False),
    )
}
TABLES = tuple(dict.fromkeys(key.partition(".")[0] for key in FIGURES))
