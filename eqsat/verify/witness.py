"""What a rule does in the e-graph that holds its left side and nothing else."""

from __future__ import annotations

from typing import Any

from torch.fx import Graph

from eqsat.encode import LEAF, Encoding
from eqsat.infer import Oracle
from eqsat.interval import Interval
from eqsat.limits import Limits
from eqsat.meta import Meta, Scalar, Texts
from eqsat.rewrite import Rewrite
from eqsat.saturate import RuleCount, saturate
from eqsat.snapshot import NUMBER, Row, Symbol
from eqsat.verify.samples import Sample, run

SOME = Interval(-8.0, 8.0)  # of the values that are finite


def encoded(rule: Rewrite, sample: Sample) -> Encoding:
    """The left side of a rule, its tensor variables leaves, those in a fact first."""
    texts = Texts()
    oracle = Oracle(texts)
    rows: list[Row] = []
    metas: dict[int, str] = {}
    known: dict[tuple[Any, ...], int] = {}

    def insert(
        symbol: Symbol, children: tuple[int, ...], attributes: tuple[str, ...], meta: str
    ) -> int:
        handle = known.setdefault((symbol, children, attributes), len(rows))
        if handle == len(rows):
            rows.append(Row(handle, symbol, children, attributes))
            metas[handle] = meta
        return handle

    def apply(name: str, children: list[int], values: list[Any]) -> int:
        attributes = tuple(texts.text(value) for value in values)
        symbol = NUMBER if name == "number" else Symbol(name, len(children), len(attributes))
        meta = oracle(symbol, [metas[child] for child in children], attributes)
        return insert(symbol, tuple(children), attributes, meta)

    facts = [(fact.name, name) for fact in rule.facts for name in fact.variables]
    first = dict.fromkeys(name for _, name in facts)
    handles: dict[str, int] = {}
    for name in (*first, *(name for name in sample.values if name not in first)):
        value = sample.values[name]
        if isinstance(value, Scalar):
            handles[name] = apply("number", [], [value.value])
        elif isinstance(value, Meta):
            handles[name] = insert(LEAF, (), (name,), texts.text(value))
    leaves = {name: handle for name, handle in handles.items() if rows[handle].symbol == LEAF}
    roots = [run(side, sample.values, handles, apply, oracle) for side in rule.left]
    return Encoding(
        Graph(),
        texts,
        oracle,
        tuple(rows),
        metas,
        handles={},
        leaves={},
        effects=(),
        outputs=(),
        roots=tuple(roots),
        reads={},
        origins={},
        constant=tuple(h for n, h in leaves.items() if ("constant", n) in facts),
        intervals={h: SOME for n, h in leaves.items() if ("finite", n) in facts},
        numbers={},
    )


def count(rule: Rewrite, sample: Sample) -> RuleCount:
    """What the rule alone matched and united in the e-graph of its left side."""
    _, record = saturate(encoded(rule, sample), [rule], Limits(iterations=2))
    return record.rules[0]
