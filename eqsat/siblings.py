"""Which products read the same input, whichever rule made them, and in what order they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx.experimental.symbolic_shapes import statically_known_true

from eqsat.engine import Engine
from eqsat.meta import Meta
from eqsat.snapshot import Row, Symbol

FAMILIES = ("matmul", "affine", "convolution")
"""The operators that have siblings: their operands are an input and parameters."""
PRODUCTS = ("matmul", "affine")
NUMBERS = ("number", "full")
PARAMETERS = ("weight", "bias")
EPILOGUES = ("reshape", "binary", "batch_norm")
"""The operators that leave a product what it is where their other operands are constants."""
LONGEST = 16
"""Siblings that become one: eight gates, or as many experts with two weights each."""
NEAREST = 8
"""The products before a row that it is compared with."""
OUTER = '(+ k " outer")'
_FAMILY = (
    # What the last round found stays merged; who follows whom is asked anew. A rule matches what is
    # new: the number of the round makes it match all.
    ("forget", "(= n (now))", "(set (now) (+ n 1))"),
    ("forget", "(= j (follower x k i))", "(delete (follower x k i))"),
    ("forget", "(= i (eldest x k))", "(delete (eldest x k))"),
    ("forget", "(member x k i)", "(delete (member x k i))"),
    ("forget", "(stretch x k i e n)", "(delete (stretch x k i e n))"),
    ("forget", "(mergeable x k i e)", "(delete (mergeable x k i e))"),
    ("enter", "(= n (now)) (sibling x k i) (= i (rank (Node i)))", "(member x k i)"),
    (
        "enter",
        "(= n (now)) (sibling x k i) (= i (rank (Node i))) (inside x k p q)",
        f"(member x {OUTER} i)",
    ),
    (
        "analysis",
        "(holds a b) (= i (rank a)) (= j (rank b)) (< i j) (sibling x k i) (sibling x k j)",
        "(inside x k i j)",
    ),
    (
        "leave",
        (
            "(= n (now)) (yields a b) (= i (rank a)) (= j (rank b)) (!= i j)"
            " (sibling x k i) (sibling x k j)"
        ),
        f"(delete (member x k i)) (delete (member x {OUTER} i))",
    ),
    (
        "part",
        "(inside x k i j) (member x k i) (member x k j)",
        "(delete (member x k j))",
    ),
    (
        "part",
        f"(inside x k i j) (= o {OUTER}) (member x o i) (member x o j)",
        "(delete (member x o i))",
    ),
    ("line", "(member x k i) (member x k j) (< i j)", "(set (follower x k i) j)"),
    ("line", "(member x k i)", "(set (eldest x k) i) (mergeable x k i (Node i))"),
    ("analysis", "(= i (eldest x k))", "(stretch x k i (Node i) 1)"),
    (
        "analysis",
        f"(stretch x k i e {LONGEST}) (= j (follower x k i))",
        "(stretch x k j (Node j) 1)",
    ),
)


@dataclass(frozen=True)
class Nested:
    """Pairs of handles: what `yields` to what, and what `holds` (is inside of) what."""

    yields: list[tuple[int, int]]
    holds: list[tuple[int, int]]


def nested(rows: Sequence[Row], constant: Iterable[int], roots: Iterable[int]) -> Nested:
    """Which rows of the program another one may be computed in place of, were it a product itself.

    Both are what is linear in an input: products with constants, sums, scales and views of these.
    """
    readers = Counter(child for row in rows for child in {*row.children}) + Counter({*roots})
    known, sources, found = set(constant), dict[int, dict[int, bool]](), Nested([], [])
    for row in rows:
        if known.issuperset(row.children) and (row.children or row.symbol.operator in NUMBERS):
            known.add(row.handle)
            continue
        varying = [child for child in row.children if child not in known]
        operator = row.symbol.operator
        if not _linear(row, len(varying)) or not varying:
            continue
        whole = operator in EPILOGUES and len(varying) == 1 and readers[varying[0]] == 1
        below: dict[int, bool] = {}  # whether it is the same but for scales and shifts
        for child in varying:
            below |= {source: whole and same for source, same in sources.get(child, {}).items()}
        for source, same in below.items():
            if operator == "slice":
                found.yields.append((row.handle, source))
            else:
                (found.yields if same else found.holds).append((source, row.handle))
        if operator in FAMILIES or below:
            nearest = [*below.items()][-NEAREST:]
            sources[row.handle] = dict([*nearest, (row.handle, True)])
    return found


def _linear(row: Row, varying: int) -> bool:
    """Whether a row is linear in its operands, of which so many vary."""
    operator = row.symbol.operator
    if operator == "binary":
        return row.attributes[0] in ("add", "sub") or (
            row.attributes[0] in ("mul", "div") and varying == 1
        )
    return operator in (*EPILOGUES, "slice") or (operator in FAMILIES and varying == 1)


def sibling_rules(
    symbols: Iterable[Symbol], engine: Engine, value: Callable[[str], Any]
) -> Iterator[str]:
    """The rules that find siblings, and what merges of them can be merged with the next one.

    Siblings are products of one input with constant parameters that stand in the given program,
    whether as products or as what rules show to be one. They differ in their parameters' values and
    in the number of their columns or channels; of matrix products some may have a bias and some
    not. `follower` is the next one. What is merged are neighbours, and stretches from the first
    sibling on of up to `LONGEST`: k siblings make some 2k merges, the whole family among them,
    where any choice of them would make 2^k. Of a value that is several products of its input, one
    of a kind counts: `weight` is its weight.

    A product is no sibling where one that `yields` to it is; and where siblings `holds` others, the
    outer ones are a family, and the inner ones another.
    """

    def ends(meta: str, dim: str, end: str) -> bool:
        merged = value(meta)
        return isinstance(merged, Meta) and statically_known_true(
            merged.shape[value(dim)] == value(end)
        )

    engine.callback("ends", ends, False)
    whole = f"(= true {engine.call('ends', ['m', 'd', 'l'], 'bool')})"
    for symbol in symbols:
        if symbol.operator not in FAMILIES:
            continue
        key = f"siblings {symbol.name}"
        engine.callback(key, _kind(symbol, value), "")
        parameters = symbol.operand_names[1:]
        body = [symbol.query, "(varying e)", *(f"(constant {x})" for x in parameters)]
        body += ["(= i (rank e))", "(= m (meta x1))"]
        body += [f"(= kind {engine.call(key, ['m', *symbol.attribute_names])})", '(!= kind "")']
        fixed = " ".join(
            f"(set ({name} e x0 {family}) {x})"
            for name, x in zip(PARAMETERS, parameters, strict=False)
            for family in ("kind", OUTER.replace("k", "kind", 1))
        )
        yield f"(rule ({' '.join(body)}) ((sibling x0 kind i) {fixed}) :ruleset analysis)"
        merged = '(= e0 (slice e d "0" k "1")) (= e1 (slice e d k l "1")) (= m (meta e))'
        yield (
            f"(rule ((stretch x0 kind i e0 n) (< n {LONGEST}) (= j (follower x0 kind i))"
            f" (= e1 (Node j)) {symbol.query} {merged} {whole})"
            f" ((stretch x0 kind j e (+ n 1)) (mergeable x0 kind j e) {fixed}) :ruleset analysis)"
        )
    yield from (
        f"(rule ({body}) ({action}) :ruleset {ruleset})" for ruleset, body, action in _FAMILY
    )


def _kind(symbol: Symbol, value: Callable[[str], Any]) -> Callable[..., str]:
    """What a product's siblings have in common with it, from its weight's meta; "" without any."""

    def kind(weight: str, *attributes: str) -> str:
        meta = value(weight)
        if not isinstance(meta, Meta):
            return ""
        if symbol.operator in PRODUCTS:
            return f"product {meta.dtype}" if meta.ndim == 2 else ""
        form = (symbol.children, meta.dtype, *meta.shape[1:], *attributes)
        return " ".join(map(str, ("convolution", *form)))

    return kind
