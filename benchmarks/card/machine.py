"""The machine that results are of: its versions and its card."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess

import torch

import eqsat

from .bench import Bench
from .stage import Json


def machine(bench: Bench) -> Json:
    """The versions and the card that the results are of."""
    found: Json = {
        "eqsat": eqsat.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "cpus": os.cpu_count(),
        "matmul": torch.get_float32_matmul_precision(),
        "cudnn tf32": torch.backends.cudnn.allow_tf32,
        "card": bench.name,
    }
    if bench.dry:
        return found
    card = torch.cuda.get_device_properties(0)
    return found | {
        "driver": ask_driver("driver_version"),
        "capability": f"{card.major}.{card.minor}",
        "multiprocessors": card.multi_processor_count,
        "memory": card.total_memory,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def ask_driver(what: str) -> str | None:
    """What nvidia-smi says of the first card; None where it is not to be had."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={what}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
