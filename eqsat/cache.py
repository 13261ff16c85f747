"""A folder of texts by key, shared by all processes: what searches found, for the next time."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

from eqsat.replacing import replacing

log = logging.getLogger(__name__)
LIMIT = 256 << 20
"""Bytes of all entries; beyond them the ones that were not used for the longest time go."""
SUFFIX = ".entry"


def folder() -> Path | None:
    """Where entries are kept: beside those of Inductor; None where caches are turned off.

    `TORCHINDUCTOR_CACHE_DIR` moves it, and `TORCHINDUCTOR_FORCE_DISABLE_CACHES` turns it off.
    """
    from torch._inductor import config
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    if config.force_disable_caches:
        return None
    try:
        return Path(cache_dir()) / "eqsat"
    except OSError as error:
        log.info("nothing is cached: %s", error)
        return None


def load(place: Path, key: str) -> str | None:
    """The text kept under `key`; None where there is none, or it is damaged."""
    path = place / f"{key}{SUFFIX}"
    try:
        head, _, text = path.read_text(encoding="utf-8").partition("\n")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        log.warning("%s cannot be read and is computed anew: %s", path, error)
        return None
    if head != _digest(text):
        log.warning("%s is damaged and is computed anew", path)
        return None
    _touch(path)
    return text


def store(place: Path, key: str, text: str) -> None:
    """Keep `text` under `key`: whole, or not at all where nothing can be written."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        with replacing(place / f"{key}{SUFFIX}") as part:
            part.write_text(f"{_digest(text)}\n{text}", encoding="utf-8")
        _evict(place)
    except OSError as error:
        log.info("not cached: %s", error)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _touch(path: Path) -> None:
    """Notes that an entry was used."""
    try:
        os.utime(path)
    except OSError:
        return  # another's, or read-only: then it is as old as it is


def _evict(place: Path) -> None:
    """Removes the oldest entries where all together exceed the limit."""
    found: list[tuple[float, int, Path]] = []
    for path in sorted(place.glob(f"*{SUFFIX}")):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # another process removed it
        found.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= LIMIT:
            return
        path.unlink(missing_ok=True)
        total -= size
