"""The figures of a device that a price is made of, read from a TOML profile."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

import torch

Backend = Literal["triton", "cpp"]
"""What Inductor generates for the device: Triton for a GPU, C++ for a CPU."""
Mode = Literal["stream", "graph"]
"""How kernels are launched: one by one on a stream, or by the replay of a CUDA graph."""

SCHEMA = 1
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
TABLES: Mapping[str, tuple[str, ...]] = {
    "compute": (*DTYPES, "efficiency", "sms", "threads_per_sm", "capability"),
    "memory": ("dram_gbs", "dram_efficiency", "l2_mb"),
    "launch": ("stream", "graph", "base"),
}
OPTIONAL = frozenset(DTYPES) - {"fp32"} | {"threads_per_sm", "capability"}
# `fit` and `source` say where figures come from, and no price reads them.
TOP_LEVEL = frozenset(
    {"schema", "name", "backend", "match", "unconfirmed", "fit", "source", *TABLES}
)
BACKENDS = ("triton", "cpp")
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
    match: tuple[str, ...] = ()
    """What `torch.cuda.get_device_name()` says of such a device."""
    sources: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """Where a figure comes from, by its key in the file ("memory.dram_gbs")."""
    unconfirmed: tuple[str, ...] = ()
    """Keys of the figures that no datasheet or measurement confirms."""

    def launch(self, mode: Mode = "stream") -> float:
        """Seconds that one kernel adds to a program in the given launch mode."""
        return self.graph_launch if mode == "graph" else self.stream_launch

    def sustained_bandwidth(self) -> float:
        """Bytes a second that a long copy reaches."""
        return self.bandwidth * self.bandwidth_share

    def sustained_flops(self, dtype: torch.dtype) -> float:
        """FLOP/s that a large matrix product of `dtype` reaches.

        float32 has the fp32 peak, not the tf32 one: torch multiplies float32 in full precision
        unless `torch.set_float32_matmul_precision` says otherwise.
        """
        return self.peak(dtype) * self.flops_share

    def peak(self, dtype: torch.dtype) -> float:
        """Dense peak FLOP/s of a matrix product of `dtype`; that of a wider type if it has none."""
        for name in PEAKS.get(dtype, ()):
            if name in self.flops:
                return self.flops[name]
        return self.flops["fp32"]


def known() -> tuple[str, ...]:
    """The names of the profiles that come with the package, in alphabetical order."""
    folder = files("eqsat.cost") / "devices"
    names = (item.name for item in folder.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def load(name: str | os.PathLike[str]) -> Device:
    """The profile with this name, of this `torch.cuda.get_device_name()`, or in this TOML file.

    >>> load("h200").sms
    132
    >>> load("NVIDIA H100 80GB HBM3").name
    'h100'

    Raises ValueError for a name that no profile has, and for a malformed file.
    """
    if not isinstance(name, str):
        return _read_file(Path(name))
    if name.endswith(".toml") or os.sep in name:
        return _read_file(Path(name))
    wanted = name.strip().lower()
    names = known()
    if wanted in names:
        return _shipped(wanted)
    for device in map(_shipped, names):
        if wanted in (text.lower() for text in device.match):
            return device
    raise ValueError(
        f"no device profile is called {name!r}: known are {', '.join(names)}; for another device "
        "give the path of a .toml file made after one of these"
    )


def _shipped(name: str) -> Device:
    text = (files("eqsat.cost") / "devices" / f"{name}.toml").read_text("utf-8")
    return _parse(text, f"{name}.toml")


def _read_file(path: Path) -> Device:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the device profile {str(path)!r}: {error}") from error
    return _parse(text, str(path))


def _parse(text: str, file: str) -> Device:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: not TOML: {error}") from error
    if data.get("schema") != SCHEMA:
        raise ValueError(f"{file}: `schema` must be {SCHEMA}, not {data.get('schema')!r}")
    for key in data:
        if key not in TOP_LEVEL:
            raise ValueError(
                f"{file}: unknown key `{key}`; known are {', '.join(sorted(TOP_LEVEL))}"
            )
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{file}: `name` must be a text, not {name!r}")
    figures = _figures(data, file)
    return Device(
        name=name,
        bandwidth=figures["memory.dram_gbs"] * 1e9,
        bandwidth_share=_share(figures, "memory.dram_efficiency", file),
        flops={n: figures[f"compute.{n}"] * 1e12 for n in DTYPES if f"compute.{n}" in figures},
        flops_share=_share(figures, "compute.efficiency", file),
        l2=int(figures["memory.l2_mb"] * 2**20),
        sms=_whole(figures, "compute.sms", file),
        stream_launch=figures["launch.stream"] * 1e-6,
        graph_launch=figures["launch.graph"] * 1e-6,
        base=figures["launch.base"] * 1e-6,
        backend=_backend(data, file),
        threads_per_sm=int(figures.get("compute.threads_per_sm", 2048)),
        capability=figures.get("compute.capability", 0.0),
        match=_texts(data, "match", file),
        sources=_sources(data, file),
        unconfirmed=_texts(data, "unconfirmed", file),
    )


def _backend(data: Mapping[str, Any], file: str) -> Backend:
    backend = data.get("backend", "triton")
    if backend not in BACKENDS:
        raise ValueError(f"{file}: `backend` must be one of {', '.join(BACKENDS)}, not {backend!r}")
    return cast("Backend", backend)


def _figures(data: Mapping[str, Any], file: str) -> dict[str, float]:
    """Every figure of the file by "table.key", each a positive finite number."""
    figures: dict[str, float] = {}
    for table, keys in TABLES.items():
        values = _table(data.get(table), table, file)
        for key, value in values.items():
            if key not in keys:
                raise ValueError(
                    f"{file}: unknown key `{table}.{key}`; known are {', '.join(keys)}"
                )
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"{file}: `{table}.{key}` must be a number, not {value!r}")
            if not (math.isfinite(value) and value > 0):
                raise ValueError(
                    f"{file}: `{table}.{key}` must be positive and finite, not {value}"
                )
            figures[f"{table}.{key}"] = float(value)
        for key in keys:
            if key not in values and key not in OPTIONAL:
                raise ValueError(f"{file}: `{table}.{key}` is missing")
    return figures


def _table(value: object, key: str, file: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{file}: `{key}` must be a table, not {value!r}")
    return cast("dict[str, Any]", value)


def _share(figures: Mapping[str, float], key: str, file: str) -> float:
    if figures[key] > 1:
        raise ValueError(f"{file}: `{key}` must be at most 1, not {figures[key]}")
    return figures[key]


def _whole(figures: Mapping[str, float], key: str, file: str) -> int:
    if not figures[key].is_integer():
        raise ValueError(f"{file}: `{key}` must be a whole number, not {figures[key]}")
    return int(figures[key])


def _texts(data: Mapping[str, Any], key: str, file: str) -> tuple[str, ...]:
    values = data.get(key, [])
    if not isinstance(values, list) or not all(
        isinstance(v, str) for v in cast("list[Any]", values)
    ):
        raise ValueError(f"{file}: `{key}` must be a list of texts, not {values!r}")
    return tuple(cast("list[str]", values))


def _sources(data: Mapping[str, Any], file: str) -> dict[str, str]:
    sources: dict[str, str] = {}
    for table, texts in _table(data.get("source", {}), "source", file).items():
        for key, text in _table(texts, f"source.{table}", file).items():
            sources[f"{table}.{key}"] = str(text)
    return sources
