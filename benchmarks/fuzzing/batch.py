"""Many programs in one e-graph: every e-node computed, and a program taken from it compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

import rewrites
from eqsat.encode import Encoding, encode
from eqsat.numerics import NAMES
from eqsat.rewrite import Rewrite
from eqsat.saturate import Limits, saturate
from eqsat.snapshot import Snapshot

from .agreement import Agreement
from .members import Evaluation, changed_constant
from .selections import Way, taken
from .shrink import Finding, explain
from .source import Source, merged
from .traced import Traced, together
from .verdict import call, differences, nudged

LIMITS = Limits(iterations=6, enodes=200_000, seconds=60.0)
LARGEST = 50_000  # e-nodes of programs that have a few hundred
STYLES = ("other", "nan", "inf", "zero")
RELAXED_STYLES = ("other", "zero")


@dataclass(frozen=True)
class Examined:
    """What one batch showed: the programs traced, what is wrong, and what was done to find it.

    `rules` counts the unions that each rule made, `operators` the calls, `computed` the e-nodes.
    """

    sources: tuple[Source, ...]
    fault: str = ""
    rules: Counter[str] = field(default_factory=Counter[str])
    operators: Counter[str] = field(default_factory=Counter[str])
    computed: int = 0


def examine(sources: Sequence[Source], way: Way, select: bool = True) -> Examined:
    """The programs saturated together; all e-nodes, and with `select` one program, compared."""
    traced = together(sources)
    if traced is None:
        return Examined(())
    operators = Counter(str(n.target) for n in traced.graph.nodes if n.op == "call_function")
    seen = Examined(traced.sources, operators=operators)
    within = (rule.within(NAMES[way.numerics]) for rule in _rules(way))
    try:
        encoding = encode(traced.graph, traced.constants)
        snapshot, record = saturate(encoding, [r for r in within if r is not None], LIMITS)
    except Exception as error:  # noqa: BLE001 - whatever it raises is a finding
        return replace(seen, fault=f"{type(error).__name__}: {error}")
    if record.enodes > LARGEST:
        sizes = f"{len(encoding.rows)} e-nodes became {record.enodes}"
        return replace(seen, fault=f"{sizes} in {len(record.iterations)} iterations")
    fault, computed = _computed(traced, encoding, snapshot, way)
    if select and not fault:
        fault = _selected(traced, encoding, snapshot, way)
    admitted = Counter({count.name: count.admitted for count in record.rules if count.admitted})
    return replace(seen, fault=fault, rules=admitted, computed=computed)


def _computed(traced: Traced, encoding: Encoding, snapshot: Snapshot, way: Way) -> tuple[str, int]:
    """Where members of a class differ on inputs of three styles, and how many were computed."""
    others = RELAXED_STYLES if way.numerics == "relaxed" else STYLES
    styles = ("example", others[way.seed % len(others)], others[(way.seed + 1) % len(others)])
    known: Evaluation | None = None
    computed = 0
    for style in styles:
        seen = evaluation(traced, encoding, snapshot, way, style)
        computed += seen.computed
        conflict = seen.conflict or (None if known is None else changed_constant(known, seen))
        known = known or seen
        if conflict is not None:
            return f"{style} inputs, class {conflict.cls}: {conflict.text}", computed
    return "", computed


def problem_of(source: Source, way: Way) -> str | None:
    """What is wrong with one program, nothing is "", not traced is None."""
    seen = examine([source], way)
    return seen.fault if seen.sources else None


def way_of(number: int) -> Way:
    """How batch `number` is optimized: one in six strictly, one with relaxed numerics."""
    return Way("members", ("strict", "relaxed", *("default",) * 4)[number % 6], number)


def blame(seen: Examined, way: Way) -> Iterator[Finding]:
    """A program at fault, as small as can be; a few in one where none fails by itself."""
    if not seen.fault:
        return
    suspects = seen.sources
    while len(suspects) > 1:
        middle = len(suspects) // 2
        halves = (suspects[:middle], suspects[middle:])
        smaller = next((half for half in halves if examine(half, way).fault), None)
        if smaller is None:
            break
        suspects = smaller
    source = suspects[0] if len(suspects) == 1 else merged(suspects)
    yield explain(source, way, seen.fault, problem_of)


def evaluation(
    traced: Traced, encoding: Encoding, snapshot: Snapshot, way: Way, style: str
) -> Evaluation:
    """Every e-node computed on inputs of a style."""
    lax = style == "inf" or (way.numerics == "relaxed" and style != "example")
    agreement = Agreement(signs=way.numerics == "strict", finite=lax)
    leaves = styled(traced, style, way.seed)
    return Evaluation(snapshot, encoding, agreement).run(traced.module, leaves)


def styled(traced: Traced, style: str, seed: int) -> list[Tensor]:
    """The leaves, the inputs of floating-point numbers among them filled in a style."""
    generator = torch.Generator().manual_seed(seed)
    names = [node.name for node in traced.graph.find_nodes(op="placeholder")]
    return [
        value if name in traced.constants else _filled(value, style, generator)
        for name, value in zip(names, traced.leaves, strict=True)
    ]


def _filled(value: Tensor, style: str, generator: torch.Generator) -> Tensor:
    if style == "example" or not value.is_floating_point():
        return value
    chance = torch.rand(value.shape, generator=generator)
    other = torch.randn(value.shape, generator=generator, dtype=value.dtype)
    if style == "nan":
        other = torch.where(chance < 0.15, float("nan"), value)
    elif style == "inf":
        infinite = torch.where(chance < 0.1, float("inf"), -float("inf"))
        other = torch.where(chance < 0.2, infinite.to(value.dtype), value)
    elif style == "zero":
        zero = torch.where(chance < 0.3, 0.0, -0.0).to(value.dtype)
        other = torch.where(chance < 0.6, zero, other.round())
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(other)


def _rules(way: Way) -> Iterator[Rewrite]:
    for rule in rewrites.DEFAULT:
        if way.rules is None or rule.name in way.rules:
            yield rule


def _selected(traced: Traced, encoding: Encoding, snapshot: Snapshot, way: Way) -> str:
    """Where a program taken at random from the e-graph differs from the given one."""
    args = traced.leaves
    given = call(traced.module, args)
    noise = call(traced.module, [nudged(a) for a in args])
    try:
        graph = taken(snapshot, encoding, traced.mode, way.seed)
        result = call(GraphModule(traced.module, graph), args)
    except Exception as error:  # noqa: BLE001 - whatever it raises is a finding
        return f"taken at random: {type(error).__name__}: {error}"
    outputs: Any = traced.graph.output_node().args[0]
    told = [node.meta["val"] for node in outputs]
    found = differences(given, result, False, noise, told)
    return next((f"taken at random: {difference}" for difference in found), "")
