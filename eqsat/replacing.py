"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A file beside `path` that takes its place if all goes well, and is removed if not."""
    target = path.resolve()
    handle, name = tempfile.mkstemp(target.suffix, f".{target.stem}.", target.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    """The permissions that new files do without."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
