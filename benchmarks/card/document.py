"""The file of results: of one machine, whole after every step."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

from eqsat.replacing import replacing

from .bench import Bench
from .machine import machine
from .stage import Json

SCHEMA = 1
TAIL = 8
"""The innermost frames that are kept of a traceback."""


def begun(bench: Bench) -> Json:
    """The document of an earlier run of this machine into the same folder, or a new one.

    Raises ValueError where the folder has results of another machine.
    """
    here = machine(bench)
    new: Json = {"schema": SCHEMA, "dry": bench.dry, "profile": bench.profile.name}
    new |= {"machine": here, "stages": {}}
    file = bench.out / "gpu.json"
    if not file.exists():
        return new
    old = json.loads(file.read_text("utf-8"))
    if old.get("machine") != here:
        raise ValueError(f"{file} has results of another machine or torch: name another folder")
    return old


def failure(where: str, error: Exception) -> Json:
    """What went wrong and where: type, message and the innermost frames."""
    frames = traceback.extract_tb(error.__traceback__)[-TAIL:]
    return {
        "where": where,
        "type": type(error).__name__,
        "message": str(error)[:2000],
        "traceback": [f"{Path(f.filename).name}:{f.lineno} {f.name}: {f.line}" for f in frames],
    }


def write(document: Json, out: Path) -> None:
    """Writes DIR/gpu.json, whole or not at all."""
    with replacing(out / "gpu.json") as part:
        part.write_text(json.dumps(document), "utf-8")
