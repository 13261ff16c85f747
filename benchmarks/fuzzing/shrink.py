"""The smallest program, with the fewest rules, whose result is still wrong."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import rewrites

from .selections import Way
from .source import HEADER, Leaf, Source, Step, random_text

Judge = Callable[[Source, Way], str | None]
"""What is wrong with a program optimized in a way: nothing is "", not captured is None."""
SECONDS = 60.0


@dataclass(frozen=True)
class Finding:
    """A program whose result is wrong, as small as it was made, with the rules that it needs."""

    source: Source
    way: Way
    problem: str

    def __str__(self) -> str:
        rules = "all" if self.way.rules is None else ", ".join(self.way.rules) or "none"
        way = f"{self.way.extractor}, {self.way.numerics}, seed {self.way.seed}, rules: {rules}"
        return f"{self.problem}\n{way}\n\n{HEADER}\n\n{self.source}"


def explain(
    source: Source, way: Way, problem: str, judge: Judge, seconds: float = SECONDS
) -> Finding:
    """The smallest failure found in about so many seconds, the fewest rules first."""
    started = time.monotonic()
    way = fewest_rules(source, way, judge, started + 0.4 * seconds)
    source = shrink(source, lambda s: bool(judge(s, way)), started + 0.8 * seconds)
    way = fewest_rules(source, way, judge, started + seconds)
    return Finding(source, way, judge(source, way) or problem)


def shrink(source: Source, fails: Callable[[Source], bool], deadline: float) -> Source:
    """The smallest program found until `deadline` that still fails."""
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
        for name in source.outputs:
            yield replace(source, outputs=_less(source.outputs, name)).trimmed()
    for step in reversed(source.steps[:-1]):
        yield replace(source, outputs=(step.name,)).trimmed()
    values = source.values()
    for step in source.steps:
        value = values.get(step.name)
        if value is None or step.writes:
            continue
        leaf = Leaf(f"i{step.name}", "input", random_text(value.shape, value.dtype))
        yield _without(replace(source, leaves=(*source.leaves, leaf)), step, leaf.name)
        for read in step.reads:
            same = values.get(read)
            if same is not None and (same.shape, same.dtype) == (value.shape, value.dtype):
                yield _without(source, step, read)


def _less(names: Sequence[str], gone: str) -> tuple[str, ...]:
    return tuple(name for name in names if name != gone)


def _without(source: Source, gone: Step, name: str) -> Source:
    """The program without a step, `name` in its place."""

    def renamed(step: Step) -> Step:
        text = re.sub(rf"\b{gone.name}\b", name, step.text)
        return Step(step.name, text, tuple(name if r == gone.name else r for r in step.reads))

    steps = tuple(renamed(step) for step in source.steps if step is not gone)
    outputs = tuple(name if o == gone.name else o for o in source.outputs)
    return replace(source, steps=steps, outputs=tuple(dict.fromkeys(outputs))).trimmed()


def fewest_rules(source: Source, way: Way, judge: Judge, deadline: float) -> Way:
    """The way with the fewest rules found until `deadline` with which the program still fails."""
    names = tuple(rule.name for rule in rewrites.DEFAULT) if way.rules is None else way.rules
    if judge(source, replace(way, rules=())):
        return replace(way, rules=())
    size = len(names) // 2
    while size:
        start = 0
        while start < len(names):
            if time.monotonic() > deadline:
                return replace(way, rules=names)
            left = names[:start] + names[start + size :]
            if left and judge(source, replace(way, rules=left)):
                names = left
            else:
                start += size
        size //= 2
    return replace(way, rules=names)
