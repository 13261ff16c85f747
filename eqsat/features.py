"""What torch's versions from 2.11 to 2.14 name or keep differently, asked of torch by feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # what is asked for is whatever torch keeps there


def stored_inputs() -> dict[int, Sequence[Any]]:
    """The example inputs that torch keeps of its serialised patterns, by the pattern's id."""
    from torch._inductor import pattern_matcher

    known: Sequence[Any] = getattr(pattern_matcher, "_known_precompiled_patterns", ())
    fields = (
        (row[4], row[1]) if isinstance(row, tuple) else (row.search_fn_pattern, row.example_inputs)
        for row in known  # tuples until 2.13
    )
    return {id(pattern): inputs for pattern, inputs in fields}
