"""One step of an explanation: a match of a rule with names, places in the source, and its check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch.fx import Node

from eqsat.encode import LEAF, Encoding
from eqsat.functions import Function
from eqsat.hint import own_hint
from eqsat.reason.instance import Instance
from eqsat.reason.proof import Proof
from eqsat.reason.replay import Match, Replay
from eqsat.reason.values import Trial, Values, compared
from eqsat.snapshot import NUMBER, Row, Snapshot

FRAME = re.compile(r'File "([^"]*)", line (\d+), in (.*)\n\s*(.*)')

TORCH = "/site-packages/torch/"


@dataclass(frozen=True)
class Step:
    """A match of `rule`: what stood there, and what it `becomes`, a line for each value.

    `nodes` are those of the given graph that it touches, at `source` lines. `trials` are the two
    sides run on their own.
    """

    rule: str
    was: tuple[str, ...]
    becomes: tuple[str, ...]
    nodes: tuple[str, ...]
    source: tuple[str, ...]
    trials: tuple[Trial, ...]

    @property
    def equal(self) -> bool:
        """Whether the two sides were equal wherever they ran."""
        return not any(trial.difference for trial in self.trials)


def steps(
    proof: Proof, snapshot: Snapshot, encoding: Encoding, values: Values | None
) -> Iterator[Step]:
    """The steps of a proof; without `values` they are not run."""
    names = _Names(proof.start.copy(), snapshot, encoding)
    if values is not None:
        end = proof.after(len(proof.steps)).terms
        bound = (t for s in proof.steps for m in s.matches for t in m.bound.values())
        values.run(end, bound)
    for number, applied in enumerate(proof.steps):
        for match in applied.matches:
            was = [names.statement(term) for term in reversed(match.terms)]
            nodes = names.touched(match)
            names.apply(match, applied.instance, number)
            yield Step(
                applied.instance.rule.name,
                tuple(dict.fromkeys(was)),
                tuple(names.made(match, applied.instance)),
                tuple(node.name for node in nodes),
                tuple(dict.fromkeys(filter(None, map(source, nodes)))),
                tuple(_tried(names.replay, applied.instance, match, encoding, values)),
            )


def _tried(
    replay: Replay, instance: Instance, match: Match, encoding: Encoding, values: Values | None
) -> list[Trial]:
    if values is None:
        return []
    rule, bound = instance.rule, dict[str, object]()
    for name, value in instance.bound.items():
        if rule.kinds[name] == "tensor":
            bound[name] = values.of(replay.terms, match.bound[name])
        else:
            bound[name] = own_hint(encoding.texts.value(str(value)))
    return compared(rule, bound, instance.pairs, encoding)


def source(node: Node) -> str:
    """The line of the program that a node stems from, as far as is known; none of torch's own."""
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if TORCH not in frame[0]] or frames
    if not own:
        return ""
    path, line, _, text = own[-1]
    return f"{path.rsplit('/', 1)[-1]}:{line}  {text.strip()}"


class _Names:
    """What values are called: as their first node in the given graph, or by a number."""

    def __init__(self, replay: Replay, snapshot: Snapshot, encoding: Encoding) -> None:
        self.replay = replay
        self.snapshot = snapshot
        self.encoding = encoding
        self.numbers: dict[int, str] = {}  # by term
        self.stems: dict[int, tuple[Node, ...]] = {}  # of terms that are not given
        self.groups: dict[int, list[int]] = {}  # the terms of each class, in their order

    def _origin(self, term: int) -> Node | None:
        return self.encoding.origins.get(term) if term < len(self.encoding.rows) else None

    def name(self, term: int) -> str:
        """The name of a term's value."""
        row = self.replay.terms[term]
        if row.symbol == NUMBER:
            return self._plain(row.attributes[0])
        members = self._members(term)
        for member in members:
            if (node := self._origin(member)) is not None:
                return node.name
        for member in members:
            if member in self.numbers:
                return self.numbers[member]
        if (inner := self._inner(members[0])) is not None:
            return inner
        self.numbers[members[0]] = f"%{len(self.numbers) + 1}"
        return self.numbers[members[0]]

    def _inner(self, term: int) -> str | None:
        """A given value that is only part of a node, such as a transposed weight, as a call."""
        row = self.replay.terms[term]
        nodes = [self._origin(child) for child in row.children]
        if term >= self.replay.given or not nodes or None in nodes:
            return None
        operands = [node.name for node in nodes if node is not None]
        return f"{row.symbol.operator}({', '.join([*operands, *map(self._plain, row.attributes)])})"

    def _members(self, term: int) -> list[int]:
        """The terms of a class, in the order in which they were made."""
        if not self.groups:
            for t in range(len(self.replay.terms)):
                self.groups.setdefault(self.replay.find(t), []).append(t)
        return self.groups[self.replay.find(term)]

    def apply(self, match: Match, instance: Instance, number: int) -> None:
        """Take a step; what is new stems from the nodes it touches."""
        before, nodes = len(self.replay.terms), self.touched(match)
        self.replay.apply(match, instance, number)
        self.groups.clear()
        for term in range(before, len(self.replay.terms)):
            self.stems[term] = nodes

    def statement(self, term: int) -> str:
        """A term as a line: what it is called, what it computes, its shape and dtype."""
        row = self.replay.terms[term]
        return f"{self.name(term)} = {self.call(row)}  {self._meta(term)}".rstrip()

    def call(self, row: Row) -> str:
        """The operator of a term on the names of its operands."""
        operands = [self.name(child) for child in row.children]
        if row.symbol == LEAF:
            return "input"
        if row.symbol == NUMBER:
            return self._plain(row.attributes[0])
        attributes = list(row.attributes)
        operator = row.symbol.operator
        if attributes and isinstance(self.encoding.texts.value(attributes[0]), Function):
            operator = attributes.pop(0)
        return f"{operator}({', '.join([*operands, *map(self._plain, attributes)])})"

    @staticmethod
    def _plain(text: str) -> str:
        return text.strip("<>")

    def _meta(self, term: int) -> str:
        cls = self.replay.classes[term]
        return self.snapshot.metas.get(cls, "").split("@")[0]

    def made(self, match: Match, instance: Instance) -> Iterator[str]:
        """The lines of the right sides; they are there by now."""
        shown: dict[str, None] = {}
        made: dict[int, int] = {}
        for root, side in zip(match.roots, instance.rule.right, strict=True):
            for expr in side.walk():
                key = instance.keys.get(id(expr))
                if key is None:
                    made[id(expr)] = match.bound[getattr(expr, "name")]  # noqa: B009 - a variable
                    continue
                row = Row(-1, key[0], tuple(made[id(c)] for c in expr.children), key[2])
                term = self.replay.lookup(row)
                assert term is not None
                made[id(expr)] = term
                if row.symbol != NUMBER:
                    name = self.name(term)
                    shown.setdefault(f"{name} = {self.call(row)}  {self._meta(term)}".rstrip())
            if id(side) not in instance.keys:
                shown.setdefault(f"{self.name(root)}, the same value")
        yield from shown

    def touched(self, match: Match) -> tuple[Node, ...]:
        """The given nodes that a match stands on; of what is not given, those it stems from."""
        found: dict[Node, None] = {}
        for term in match.terms:
            members = [term, *self._members(term)]
            nodes = [n for m in members if (n := self._origin(m)) is not None][:1]
            if not nodes:
                nodes = [n for m in members for n in self.stems.get(m, ())]
            found.update(dict.fromkeys(n for n in nodes if n.op == "call_function"))
        order = {node: place for place, node in enumerate(self.encoding.graph.nodes)}
        return tuple(sorted(found, key=order.__getitem__))
