"""The entries of Inductor's pattern passes, as torch registers them on this machine."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.features import passes_module, pattern_name

INITIALISED = ("joint_graph", "post_grad", "freezing_patterns")  # they register when asked to
MODULES = (
    *INITIALISED,
    "pre_grad",
    "split_cat",
    "replace_random",
    "b2b_gemm",
    "reduced_atomic_contention",
    "decompose_mem_bound_mm",
    "efficient_conv_bn_eval",
)


@dataclass(frozen=True)
class Entry:
    """One registered pattern: `kind` is replacement, graph or lowering, `module` registered it."""

    name: str
    kind: str
    module: str
    entry: Any  # a PatternEntry of torch._inductor.pattern_matcher


def entries() -> tuple[Entry, ...]:
    """Every entry, in the order in which Inductor's passes run; one of two of a name has a number.

    Loads Inductor's pattern modules, which takes a second or two.
    """
    found: list[Entry] = []
    taken: dict[str, int] = {}
    seen: set[int] = set()
    for module, pattern_pass in _passes():
        for listed in pattern_pass.patterns.values():
            for entry in listed:
                if id(entry) in seen:
                    continue
                seen.add(id(entry))
                kind, function = _kind(entry)
                name = _name(entry, kind, function)
                taken[name] = taken.get(name, 0) + 1
                name = f"{name}-{taken[name]}" if taken[name] > 1 else name
                origin = getattr(function, "__module__", module).rsplit(".", 1)[-1]
                found.append(Entry(name, kind, origin, entry))
    return tuple(found)


def _passes() -> Iterator[tuple[str, Any]]:
    """The PatternMatcherPass objects that the modules hold, each once."""
    from torch._inductor.pattern_matcher import PatternMatcherPass

    seen: set[int] = set()
    modules = [(name, module) for name in MODULES if (module := passes_module(name))]
    for name, module in modules:
        if name in INITIALISED:
            module.lazy_init()
    for name, module in modules:
        for value in list(vars(module).values()):
            for part in _parts(value):
                if isinstance(part, PatternMatcherPass) and id(part) not in seen:
                    seen.add(id(part))
                    yield name, part


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else [value]


def closure(function: Any) -> dict[str, Any]:
    """The variables that a function closes over: at a replacement, what was registered."""
    return dict(inspect.getclosurevars(function).nonlocals)


def _kind(entry: Any) -> tuple[str, Any]:
    """The kind of an entry, and the function that it is named after."""
    from torch._inductor.pattern_matcher import LoweringPatternEntry, ReplacementPatternEntry

    if isinstance(entry, ReplacementPatternEntry):
        return "replacement", closure(entry.extra_check).get("search_fn")
    lowering = isinstance(entry, LoweringPatternEntry)
    return ("lowering" if lowering else "graph"), inspect.unwrap(entry.handler)


def _name(entry: Any, kind: str, function: Any) -> str:
    given = pattern_name(entry, function) if kind == "replacement" else None
    given = given or getattr(function, "__name__", None) or type(function).__name__
    return "inductor-" + str(given).strip("_").replace("_", "-").replace("<", "").replace(">", "")
