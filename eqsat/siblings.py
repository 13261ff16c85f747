"""Which products of the given program read the same input, and in what order they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from eqsat.engine import Engine
from eqsat.meta import Meta
from eqsat.snapshot import Row, Symbol

FAMILIES = ("matmul", "affine", "convolution")
"""The operators that have siblings: their operands are an input and parameters."""
PRODUCTS = ("matmul", "affine")
LONGEST = 16
"""Siblings that become one: eight gates, or as many experts with two weights each."""


def unbiased(rows: Sequence[Row], constant: Iterable[int]) -> list[int]:
    """The handles of the products that stay without bias: the program adds no constant to them."""
    known, product_of, biased = set(constant), dict[int, int](), set[int]()
    for row in rows:
        if row.symbol.operator == "matmul":
            product_of[row.handle] = row.handle
        elif row.symbol.operator == "reshape" and row.children[0] in product_of:
            product_of[row.handle] = product_of[row.children[0]]
        elif row.symbol.operator == "binary" and row.attributes[0] == "add":
            for x, y in (row.children, row.children[::-1]):
                if x in product_of and y in known:
                    biased.add(product_of[x])
        if row.children and known.issuperset(row.children):
            known.add(row.handle)
    return sorted({*product_of.values()} - biased)


def sibling_rules(
    symbols: Iterable[Symbol], engine: Engine, value: Callable[[str], Any]
) -> Iterator[str]:
    """The rules that find siblings, and what merges of them can be merged with the next one.

    Siblings are products of one input with constant parameters that stand in the given program.
    They differ in their parameters' values and in the number of their columns or channels; of
    matrix products some may have a bias and some not. `follower` is the next one. What is merged
    are neighbours, and stretches from the first sibling on of up to `LONGEST`: k siblings make
    some 2k merges, the whole family among them, where any choice of them would make 2^k.
    """

    def ends(meta: str, dim: str, end: str) -> bool:
        merged = value(meta)
        return isinstance(merged, Meta) and merged.shape[value(dim)] == value(end)

    engine.callback("ends", ends, False)
    whole = f"(= true {engine.call('ends', ['m', 'd', 'l'], 'bool')})"
    for symbol in symbols:
        if symbol.operator not in FAMILIES:
            continue
        key = f"siblings {symbol.name}"
        engine.callback(key, _kind(symbol, value), "")
        parameters = symbol.operand_names[1:]
        body = [symbol.query, "(varying e)", *(f"(constant {x})" for x in parameters)]
        if symbol.operator in PRODUCTS:  # a convolution's may be scaled by the norm after it
            body += [f"(given {x})" for x in parameters]
        if symbol.operator == "matmul":
            body.append("(unbiased e)")
        body += ["(= i (rank e))", "(= m (meta x1))"]
        body += [f"(= kind {engine.call(key, ['m', *symbol.attribute_names])})", '(!= kind "")']
        yield f"(rule ({' '.join(body)}) ((sibling x0 kind i)) :ruleset analysis)"
        merged = '(= e0 (slice e d "0" k "1")) (= e1 (slice e d k l "1")) (= m (meta e))'
        yield (
            f"(rule ((stretch x0 kind i e0 n) (< n {LONGEST}) (= j (follower x0 kind i))"
            f" (= e1 (Node j)) {symbol.query} {merged} {whole})"
            " ((stretch x0 kind j e (+ n 1)) (mergeable x0 kind j e)) :ruleset analysis)"
        )
    yield from (
        f"(rule ({body}) ({action}) :ruleset analysis)"
        for body, action in (
            ("(sibling x k i) (sibling x k j) (< i j)", "(set (follower x k i) j)"),
            ("(sibling x k i)", "(set (eldest x k) i) (mergeable x k i (Node i))"),
            ("(= i (eldest x k))", "(stretch x k i (Node i) 1)"),
            (
                f"(stretch x k i e {LONGEST}) (= j (follower x k i))",
                "(stretch x k j (Node j) 1)",
            ),
        )
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
