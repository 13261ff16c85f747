"""Apply rules to an e-graph until nothing is left to do or a limit is reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum

from eqsat.encode import LEAF, Encoding
from eqsat.engine import Engine, RunStats, quote
from eqsat.interval import Interval, bounded, interval_of, read
from eqsat.limits import Limits
from eqsat.meta import INVALID, Texts
from eqsat.reach import reachable
from eqsat.resident import resident
from eqsat.rewrite import Rewrite, require_unique
from eqsat.siblings import nested, sibling_rules
from eqsat.snapshot import NUMBER, Row, Snapshot, Symbol
from eqsat.translate import symbols_of, translate
from extract.interrupts import on_interrupt

UNBOUNDED = "unbounded"
FULL = Symbol("full", 0, 4)
QUIET = 5  # iterations without growth that show saturation: more than MERGE_EVERY


class StopReason(StrEnum):
    """Why the search stopped."""

    SATURATED = "saturated"
    ITERATIONS = "iteration limit"
    ENODES = "e-node limit"
    SECONDS = "time limit"
    MEMORY = "memory limit"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class IterationSize:
    """The size of the e-graph after an iteration (rows of all its tables), seconds until then."""

    enodes: int
    seconds: float


@dataclass(frozen=True)
class RuleCount:
    """What one rule did: matches, unions admitted and refused (one reason why), seconds."""

    name: str
    matches: int
    admitted: int
    refused: int
    reason: str
    seconds: float


@dataclass(frozen=True)
class Saturation:
    """The record of one search."""

    stop: StopReason
    iterations: tuple[IterationSize, ...]
    rules: tuple[RuleCount, ...]
    enodes: int
    classes: int


def saturate(
    encoding: Encoding,
    rules: Sequence[Rewrite],
    limits: Limits,
    progress: Callable[[IterationSize], None] | None = None,
    memory: int | None = None,
    *,
    record: bool = False,
) -> tuple[Snapshot, Saturation]:
    """The e-graph of `encoding` after `rules`, read back, with the record of the search.

    It grows until it takes half of `memory` bytes: to read it takes as much again.
    With `record` the snapshot holds every match, which takes time and memory. Ctrl-C (in the main
    thread) stops the search after the iteration that runs, and what was found is kept. Raises
    EngineError when the e-graph breaks.
    """
    require_unique(rules)
    with closing(Engine(encoding.oracle)) as engine:
        _fill(engine, encoding, rules, record)
        watch = _Watch(limits, progress, memory)
        if rules:
            with on_interrupt(watch.interrupt):  # egglog would answer it after the whole run
                stats = engine.run(limits.iterations, limits.matches, watch)
        else:
            engine.command("(run-schedule (saturate (run analysis)))")
            stats = RunStats()
        snapshot = engine.snapshot()
    counts = _counts(rules, snapshot, stats)
    return snapshot, Saturation(
        watch.reason(), tuple(watch.sizes), counts, len(snapshot.symbols), len(snapshot.metas)
    )


def _fill(engine: Engine, encoding: Encoding, rules: Sequence[Rewrite], record: bool) -> None:
    texts = encoding.texts
    fills = [Row(handle, FULL, (), number) for handle, number in encoding.numbers.items()]
    useful = reachable(rules, (*encoding.rows, *fills), texts.text)
    made = (symbol for rule in useful for symbol in symbols_of(rule))
    needed = dict.fromkeys((*encoding.symbols, NUMBER, FULL, *made))
    symbolic = any("<" in text for text in encoding.metas.values())
    engine.callback("concrete", lambda *attributes: not any("<" in a for a in attributes), False)
    engine.declare(needed, lambda symbol: symbol.operator != "leaf", symbolic)
    engine.command(*_interval_rules(list(needed), engine, texts))
    constant = set(encoding.constant)
    leaves = (row.handle for row in encoding.rows if row.symbol == LEAF)
    facts = {
        "constant": encoding.constant,
        "interval": [f"{handle}\t{texts.text(b)}" for handle, b in encoding.intervals.items()],
        "varying": [handle for handle in leaves if handle not in constant],
    }
    if any(rule.joins_neighbours for rule in useful):
        engine.command(*sibling_rules(needed, engine, texts.value))
        pairs = nested(encoding.rows, constant, encoding.roots)
        facts["yields"] = [f"{a}\t{b}" for a, b in pairs.yields]
        facts["holds"] = [f"{a}\t{b}" for a, b in pairs.holds]
    engine.insert(encoding.rows, encoding.metas, facts)
    for row in fills:
        fill = f"({FULL.name} {' '.join(map(quote, row.attributes))})"
        engine.command(f"(union (Node {row.handle}) {fill})")
    places = {rule.name: index for index, rule in enumerate(rules)}
    for rule in useful:
        place = places[rule.name]
        engine.command(translate(rule, place, engine, encoding.oracle, record=record))


def _interval_rules(symbols: Sequence[Symbol], engine: Engine, texts: Texts) -> Iterator[str]:
    """The rules that find the intervals of the e-nodes that other rules make."""
    for symbol in symbols:
        if not bounded(symbol.operator):
            continue
        reads = read(symbol.operator, symbol.children)
        attrs = [f"a{i}" for i in range(symbol.attributes)]
        key = f"interval {symbol.name}"
        engine.callback(key, _asked(symbol, reads, texts), UNBOUNDED)
        call = engine.call(key, ["m", *(f"b{i}" for i in reads), *attrs])
        known = " ".join(f"(= b{i} (interval x{i}))" for i in reads)
        yield (
            f"(rule ({symbol.query} {known} (= m (meta e)) (= b {call}) (!= b {quote(UNBOUNDED)}))"
            " ((set (interval e) b)) :ruleset analysis)"
        )


def _asked(symbol: Symbol, reads: tuple[int, ...], texts: Texts) -> Callable[..., str]:
    def answer(meta: str, *rest: str) -> str:
        if meta == INVALID:
            return UNBOUNDED
        operands: list[Interval | None] = [None] * symbol.children
        for i, text in zip(reads, rest, strict=False):
            operands[i] = texts.value(text)
        attributes = [texts.value(text) for text in rest[len(reads) :]]
        found = interval_of(symbol.operator, operands, attributes, texts.meta(meta))
        return UNBOUNDED if found is None else texts.text(found)

    return answer


def _counts(rules: Sequence[Rewrite], snapshot: Snapshot, stats: RunStats) -> tuple[RuleCount, ...]:
    admitted = [0] * len(rules)
    refused = [0] * len(rules)
    reasons = [""] * len(rules)
    for rule, left, right in snapshot.pending:
        if left == right:
            admitted[rule] += 1
            continue
        refused[rule] += 1
        if not reasons[rule]:
            metas = snapshot.metas
            reasons[rule] = f"{metas.get(left)} is not {metas.get(right, 'a value')}"
    return tuple(
        RuleCount(
            rule.name,
            stats.matches.get(rule.name, 0),
            admitted[index],
            refused[index],
            reasons[index],
            stats.seconds.get(rule.name, 0.0),
        )
        for index, rule in enumerate(rules)
    )


class _Watch:
    """Sees the size once an iteration and decides whether to stop."""

    def __init__(
        self,
        limits: Limits,
        progress: Callable[[IterationSize], None] | None,
        memory: int | None,
    ) -> None:
        self.limits = limits
        self.most = None if memory is None else (resident() or 0) + memory // 2
        self.progress = progress
        self.sizes: list[IterationSize] = []
        self.interrupted = False
        self.start = time.perf_counter()
        self.stop: StopReason | None = None

    def __call__(self, size: int) -> bool:
        if self.stop is None and len(self.sizes) >= self.limits.iterations:
            self.stop = StopReason.ITERATIONS
        if self.stop is not None:
            return True
        spent = time.perf_counter() - self.start
        self.sizes.append(IterationSize(size, spent))
        if self.progress is not None:
            self.progress(self.sizes[-1])
        if self.interrupted:
            self.stop = StopReason.INTERRUPTED
        elif spent > self.limits.seconds:
            self.stop = StopReason.SECONDS
        elif self.most is not None and (resident() or 0) > self.most:
            self.stop = StopReason.MEMORY
        elif size > self.limits.enodes:
            self.stop = StopReason.ENODES
        elif len(self.sizes) > QUIET and self.sizes[-1 - QUIET].enodes == size:
            self.stop = StopReason.SATURATED
        return self.stop is not None

    def interrupt(self) -> None:
        self.interrupted = True

    def reason(self) -> StopReason:
        if self.stop is not None:
            return self.stop
        return StopReason.ITERATIONS if self.sizes else StopReason.SATURATED
