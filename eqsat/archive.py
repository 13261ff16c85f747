"""A saved program, from anyone: looked through before torch loads it, so that it runs no code."""

from __future__ import annotations

import logging
import os
import pickle
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from eqsat.arithmetic import UntrustedError
from eqsat.inspection import look_through
from eqsat.turn import in_turn

_FORCE, _FREE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


@in_turn
def load(path: Path, *, quiet: bool = True, trusted: bool = False) -> ExportedProgram:
    """The program that `torch.export.save` wrote to `path`; a `trusted` one may hold code.

    Raises ValueError, in one line, for a file that is none, is damaged, or holds code: pickled
    objects, compiled kernels, expressions that are more than arithmetic. Threads load in turn, for
    what forbids to unpickle belongs to the process.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: not a .pt2 archive (as torch.export.save makes), or cut short")
    try:
        if trusted:
            with _silent(quiet):
                return torch.export.load(path)
        look_through(path)
        with _without_pickles(), _silent(quiet):
            return torch.export.load(path)
    except UntrustedError as error:
        said = "".join(c if c.isprintable() else " " for c in str(error))
        raise ValueError(f"{path}: {said}") from error
    except MemoryError as error:
        raise ValueError(f"{path}: larger than the memory of this machine") from error
    except Exception as error:
        hint = f"damaged, or saved by a torch that {torch.__version__} cannot read"
        if _weights_only(error):
            hint = "holds a pickled object that is no tensor, and to unpickle it may run code"
        raise ValueError(f"{path}: {hint}") from error


def _weights_only(error: BaseException | None) -> bool:
    """Whether torch refused to unpickle something."""
    while error is not None:
        if isinstance(error, (UntrustedError, pickle.UnpicklingError)):
            return True
        error = error.__cause__ or error.__context__
    return False


class _Refusing:
    """Stands where torch would unpickle what is not a tensor."""

    def loads(self, *_: Any, **__: Any) -> Any:
        raise UntrustedError("holds a pickled object, which is code")

    def __getattr__(self, name: str) -> Any:
        return getattr(pickle, name)


@contextmanager
def _without_pickles() -> Generator[None]:
    """In it, torch unpickles tensors only, as `torch.load(weights_only=True)` does."""
    from torch.export.pt2_archive import _package

    before = {name: os.environ.pop(name, None) for name in (_FORCE, _FREE)}
    unpickling = _package.pickle
    os.environ[_FORCE] = "1"
    _package.pickle = _Refusing()  # pyright: ignore[reportAttributeAccessIssue] - for a while
    try:
        yield
    finally:
        _package.pickle = unpickling
        del os.environ[_FORCE]
        os.environ.update({name: value for name, value in before.items() if value is not None})


@contextmanager
def _silent(quiet: bool) -> Generator[None]:
    """Without the tracebacks that torch logs of its own."""
    if not quiet:
        yield
        return
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)
