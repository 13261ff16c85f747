"""What torch's versions from 2.11 to 2.14 name or keep differently, asked of torch by feature."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Generator, Sequence
from types import ModuleType
from typing import Any  # what is asked for is whatever torch keeps there

from torch.fx.experimental.symbolic_shapes import ShapeEnv

PASSES = "torch._inductor.fx_passes"


def passes_module(name: str) -> ModuleType | None:
    """The module of that name among Inductor's passes; None where this torch has none."""
    try:
        return importlib.import_module(f"{PASSES}.{name}")
    except ModuleNotFoundError:
        return None


def pattern_name(entry: Any, search: Any) -> str | None:
    """The name by which Inductor registered a replacement of `search`, where it has one."""
    if hasattr(entry, "pattern_name"):
        return entry.pattern_name
    of = getattr(search, "__name__", None)
    stored = sys.modules.get(f"{PASSES}.serialized_patterns.{of}")  # where torch 2.11 has the name
    named = vars(stored).items() if stored else ()
    return next((name for name, pattern in named if pattern is entry.pattern), None)


def stored_inputs() -> dict[int, Sequence[Any]]:
    """The example inputs that torch keeps of its serialised patterns, by the pattern's id."""
    from torch._inductor import pattern_matcher

    known: Sequence[Any] = getattr(pattern_matcher, "_known_precompiled_patterns", ())
    fields = (
        (row[4], row[1]) if isinstance(row, tuple) else (row.search_fn_pattern, row.example_inputs)
        for row in known  # tuples until 2.13
    )
    return {id(pattern): inputs for pattern, inputs in fields}


@contextlib.contextmanager
def no_new_guards(env: ShapeEnv) -> Generator[None]:
    """While it lasts, an undecided question about a symbolic dimension raises RuntimeError."""
    if hasattr(env, "error_on_new_guards"):
        with env.error_on_new_guards():
            yield
        return
    name = "_check_frozen"  # what torch 2.11 calls before it assumes an answer
    before = vars(env).get(name)
    setattr(env, name, _refuse)
    try:
        yield
    finally:
        if before is None:
            delattr(env, name)
        else:
            setattr(env, name, before)


def _refuse(question: Any, answer: Any) -> None:
    raise RuntimeError(f"undecided: {question} == {answer}")
