"""A program in a file that is written whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch.export import ExportedProgram

from eqsat.replacing import replacing


def save(program: ExportedProgram, path: Path) -> None:
    """Write a program as `torch.export.save` does; where that fails, what was there stays.

    Raises OSError where there is no room: torch by itself would end the process.
    """
    with replacing(path) as part, part.open("wb") as file:
        whole = _Whole(file)
        torch.export.save(program, whole)  # pyright: ignore[reportArgumentType] - a file
        whole.require()


class _Whole(io.RawIOBase):
    """A file that keeps its first error to itself until it is asked: torch's writer takes none."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def require(self) -> None:
        """Raises the error, if there was one."""
        if self.error is None:
            self.file.flush()
            return
        raise self.error

    def write(self, data: Any) -> int:
        """Writes, as long as nothing went wrong."""
        try:
            if self.error is None:
                self.file.write(data)
        except OSError as error:
            self.error = error
        return len(data)

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return offset + whence
