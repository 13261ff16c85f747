"""The smallest program, with the fewest rules, whose result is still wrong."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import rewrites

from .selections import Way
from .source import Leaf, Source, Step, random_text
from .verdict import verdict

HEADER = "import torch\nimport torch.nn.functional as F\n\n\n"


def explain(source: Source, way: Way, problem: str) -> str:
    """A small program that fails, with the rules that it needs."""

    def fails(s: Source, w: Way) -> bool:
        return bool(verdict(s, w))

    small = shrink(source, partial(fails, w=way))
    fewer = fewest_rules(way, partial(fails, small))
    small = shrink(small, partial(fails, w=fewer), 20.0)
    last = verdict(small, fewer) or problem
    rules = "all" if fewer.rules is None else ", ".join(fewer.rules) or "none"
    return f"{last}\n{way.extractor}, {way.numerics}, rules: {rules}\n\n{HEADER}{small}"


def shrink(source: Source, fails: Callable[[Source], bool], seconds: float = 60.0) -> Source:
    """The smallest program found that still fails."""
    deadline = time.monotonic() + seconds
    changed = True
    while changed:
        changed = False
        for candidate in _smaller(source):
            if time.monotonic() > deadline:
                return source
            if fails(candidate):
                source, changed = candidate, True
                break
    return source


def _smaller(source: Source) -> Iterator[Source]:
    """Programs a little smaller: fewer outputs, a step made an input, a step gone."""
    if source.dynamic:
        yield replace(source, dynamic=False)
    if len(source.outputs) > 1:
        for name in source.outputs:
            yield replace(source, outputs=(name,)).trimmed()
    for step in reversed(source.steps[:-1]):
        yield replace(source, outputs=(step.name,)).trimmed()
    values = source.values()
    for step in source.steps:
        value = values.get(step.name)
        if value is None or "_(" in step.text:
            continue
        leaf = Leaf(f"i{step.name}", "input", random_text(value.shape, value.dtype))
        yield _without(replace(source, leaves=(*source.leaves, leaf)), step, leaf.name)
        for read in step.reads:
            same = values.get(read)
            if same is not None and (same.shape, same.dtype) == (value.shape, value.dtype):
                yield _without(source, step, read)


def _without(source: Source, gone: Step, name: str) -> Source:
    """The program without a step, `name` in its place."""

    def renamed(step: Step) -> Step:
        text = re.sub(rf"\b{gone.name}\b", name, step.text)
        return Step(step.name, text, tuple(name if r == gone.name else r for r in step.reads))

    steps = tuple(renamed(step) for step in source.steps if step is not gone)
    outputs = tuple(name if o == gone.name else o for o in source.outputs)
    return replace(source, steps=steps, outputs=outputs).trimmed()


def fewest_rules(way: Way, fails: Callable[[Way], bool], seconds: float = 60.0) -> Way:
    """The way with the fewest rules found with which it still fails."""
    deadline = time.monotonic() + seconds
    names = way.rules or tuple(rule.name for rule in rewrites.DEFAULT)
    if fails(replace(way, rules=())):
        return replace(way, rules=())
    size = len(names) // 2
    while size:
        start = 0
        while start < len(names) and time.monotonic() <= deadline:
            left = names[:start] + names[start + size :]
            if left and fails(replace(way, rules=left)):
                names = left
            else:
                start += size
        size //= 2
    return replace(way, rules=names)
