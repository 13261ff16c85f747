"""Measured times of known kernels, kept as JSON lines so that none is ever taken twice."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from eqsat.cost.device import MODES, Device, Mode
from eqsat.cost.kernel import Kernel, Product
from eqsat.cost.roofline import time

T = TypeVar("T")

KINDS = ("pointwise", "reduction", "extern")
REQUIRED = ("kind", "operators", "read", "written", "dtype")
KEYS = ("class", "seconds", "kernels", "name", "mode", "base", "device", "torch")


@dataclass(frozen=True)
class Measurement:
    """The seconds that kernels took on a device, and whether a compiled call made them."""

    group: str
    """The class of what was measured ("gemm"), whose error the fit reports by itself."""
    seconds: float
    kernels: tuple[Kernel, ...]
    name: str = ""
    """What was measured, with its sizes."""
    mode: Mode = "stream"
    base: bool = False
    """Whether the seconds hold the base cost of a compiled call."""
    device: str = ""
    """What the device calls itself."""
    torch: str = ""
    """The version of torch."""

    def predicted(self, device: Device) -> float:
        """The seconds that `device` is priced at for these kernels."""
        seconds = time(self.kernels, device, self.mode).seconds
        return seconds if self.base else seconds - device.base

    def key(self) -> tuple[str, str, str, str]:
        """What makes it the same measurement as an earlier one."""
        return (self.group, self.name, self.device, self.torch)


def read(path: Path) -> tuple[Measurement, ...]:
    """The measurements in a file of JSON lines; none where there is no file yet.

    Raises ValueError with the number of a line that is not a measurement, and what is wrong.
    """
    found: list[Measurement] = []
    if not path.exists():
        return ()
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(_measurement(json.loads(line)))
        except ValueError as error:  # json's own are ValueErrors too
            raise ValueError(f"{path}, line {number}: {error}") from error
    return tuple(found)


def append(path: Path, measurement: Measurement) -> None:
    """Adds a line to the file, which is whole after every call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(_line(measurement)) + "\n")


def _line(measurement: Measurement) -> dict[str, object]:
    return {
        "class": measurement.group,
        "name": measurement.name,
        "seconds": measurement.seconds,
        "mode": measurement.mode,
        "base": measurement.base,
        "device": measurement.device,
        "torch": measurement.torch,
        "kernels": [_kernel_line(kernel) for kernel in measurement.kernels],
    }


def _kernel_line(kernel: Kernel) -> dict[str, object]:
    """The fields of a kernel that are not their default and that a price or a reader needs."""
    line: dict[str, object] = {
        "kind": kernel.kind,
        "operators": list(kernel.operators),
        "read": kernel.read,
        "written": kernel.written,
        "dtype": str(kernel.dtype).removeprefix("torch."),
        "numel": kernel.numel,
        "rnumel": kernel.rnumel,
        "flops": kernel.flops,
        "work": kernel.work,
        "transcendental": kernel.transcendental,
        "strided": kernel.strided,
    }
    if kernel.product is not None:
        line["product"] = list(kernel.product)
    return {key: value for key, value in line.items() if value or key in REQUIRED}


def _measurement(line: object) -> Measurement:
    values = _object(line, "a measurement", KEYS, ("class", "seconds", "kernels"))
    seconds = values["seconds"]
    if not _is_number(seconds) or not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"`seconds` must be positive and finite, not {seconds!r}")
    if values.get("mode", "stream") not in MODES:
        raise ValueError(f"`mode` must be one of {', '.join(MODES)}, not {values['mode']!r}")
    if not isinstance(values.get("base", False), bool):
        raise ValueError(f"`base` must be true or false, not {values['base']!r}")
    kernels = values["kernels"]
    if not isinstance(kernels, list) or not kernels:
        raise ValueError(f"`kernels` must be a list of at least one kernel, not {kernels!r}")
    return Measurement(
        group=_text(values, "class"),
        seconds=float(seconds),
        kernels=tuple(_kernel(kernel) for kernel in cast("list[object]", kernels)),
        name=_text(values, "name"),
        mode=values.get("mode", "stream"),
        base=values.get("base", False),
        device=_text(values, "device"),
        torch=_text(values, "torch"),
    )


def _kernel(line: object) -> Kernel:
    known = [f.name for f in fields(Kernel) if f.name != "nodes"]
    values = _object(line, "a kernel", known, REQUIRED)
    if values["kind"] not in KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(KINDS)}, not {values['kind']!r}")
    operators = _list(values["operators"], "operators", str)
    dtype = getattr(torch, str(values["dtype"]), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"`dtype` must be the name of a torch dtype, not {values['dtype']!r}")
    product = None
    if values.get("product") is not None:
        sizes = _list(values["product"], "product", int)
        if len(sizes) != 4 or min(sizes) < 0:
            raise ValueError(f"`product` must be [batch, m, n, k], not {values['product']!r}")
        product = Product(*sizes)
    return Kernel(
        kind=values["kind"],
        operators=tuple(operators),
        nodes=(),
        read=_count(values, "read"),
        written=_count(values, "written"),
        flops=_count(values, "flops", product.flops() if product else 0),
        numel=_count(values, "numel"),
        rnumel=_count(values, "rnumel", 1),
        dtype=dtype,
        product=product,
        work=_count(values, "work"),
        transcendental=_amount(values, "transcendental"),
        strided=_count(values, "strided"),
    )


def _object(
    value: object, what: str, known: Sequence[str], required: Sequence[str]
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is an object, not {value!r}")
    values = cast("dict[str, Any]", value)
    for key in values:
        if key not in known:
            raise ValueError(f"{what} has no `{key}`; it has {', '.join(known)}")
    for key in required:
        if key not in values:
            raise ValueError(f"{what} needs `{key}`")
    return values


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"`{key}` must be a text, not {value!r}")
    return value


def _list(value: object, key: str, kind: type[T]) -> list[T]:
    if not isinstance(value, list) or not all(
        isinstance(item, kind) and not isinstance(item, bool)
        for item in cast("list[object]", value)
    ):
        raise ValueError(f"`{key}` must be a list of {kind.__name__}, not {value!r}")
    return cast("list[T]", value)


def _count(values: Mapping[str, Any], key: str, default: int = 0) -> int:
    return int(_amount(values, key, default))


def _amount(values: Mapping[str, Any], key: str, default: float = 0.0) -> float:
    value = values.get(key, default)
    if not _is_number(value) or not (math.isfinite(value) and value >= 0):
        raise ValueError(f"`{key}` must be a number that is not negative, not {value!r}")
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
