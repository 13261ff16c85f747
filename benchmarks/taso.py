"""Which rules derive each rule of TASO: found by leaving rules out, and written to docs/taso.md."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import rewrites
from eqsat.capture import capture, constants_of
from eqsat.encode import LEAF, Encoding, encode
from eqsat.rewrite import Rewrite, RuleSet
from eqsat.saturate import Limits, Saturation, saturate
from eqsat.snapshot import Row, Snapshot
from rewrites.taso import TASO
from tests.taso import LAWS, PARAMETERS, Law

PAGE = Path(__file__).resolve().parent.parent / "docs" / "taso.md"
RULES = RuleSet((*rewrites.DEFAULT, *TASO))
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
LIMITS = Limits(iterations=12, enodes=20_000)
"""What every derivation needs at most, and what keeps a search with the rules of `TASO` short."""
Derivations = Mapping[str, Sequence[str]]


class Side(nn.Module):
    """One side of a law as a program of its inputs, the weights its parameters."""

    def __init__(self, law: Law, which: int, shapes: str) -> None:
        super().__init__()
        self.law, self.which = law, which
        self.names = [name for name, _ in law.variables(shapes)]
        self.inputs: dict[str, Tensor] = {}
        for name, value in law.values(shapes).items():
            if name in PARAMETERS:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.inputs[name] = value

    def forward(self, **inputs: Tensor) -> Any:
        values = [getattr(self, n) if n in PARAMETERS else inputs[n] for n in self.names]
        return self.law.sides(*values)[self.which]


@dataclass(frozen=True)
class Sides:
    """Both sides of a law, each encoded as a program of its own."""

    left: Encoding
    right: Encoding

    def reached(self, found: Snapshot) -> bool:
        """Whether the e-graph grown from the left side alone has the right side as its values."""
        enodes = zip(found.symbols, found.children, found.attributes, strict=True)
        place: dict[Any, int] = dict(zip(enodes, found.classes, strict=True))
        leaves = {node.name: found.handles[h] for h, node in self.left.leaves.items()}
        classes: dict[int, int | None] = {}
        for row in self.right.rows:
            if row.symbol == LEAF:
                classes[row.handle] = leaves[self.right.leaves[row.handle].name]
            else:
                children = tuple(classes[c] for c in row.children)
                classes[row.handle] = place.get((row.symbol, children, row.attributes))
        pairs = zip(results(self.left), results(self.right), strict=True)
        return all(found.handles[a] == classes[b] for a, b in pairs)

    def derived(self, rules: Iterable[Rewrite]) -> bool:
        """Whether the rules lead from the left side to the right one."""
        return self.search(rules)[0]

    def search(self, rules: Iterable[Rewrite]) -> tuple[bool, Saturation]:
        """Whether the rules lead from the left side to the right one, with the record of it."""
        found, record = saturate(self.left, tuple(rules), LIMITS)
        return self.reached(found), record


@functools.cache
def sides_of(law: Law, shapes: str) -> Sides:
    """The sides of the law, where its variables have these shapes."""
    both: list[Encoding] = []
    for which in (0, 1):
        side = Side(law, which, shapes).eval()
        with torch.no_grad():
            program = capture(side, (), side.inputs).program
            program.graph.eliminate_dead_code()  # the other side was traced as well
            both.append(encode(program.graph, constants_of(program)))
    return Sides(*both)


def results(encoding: Encoding) -> list[int]:
    """The handles of what the program returns."""
    (outputs,) = encoding.graph.output_node().args
    return [encoding.handles[node] for node in outputs]  # pyright: ignore - its nodes


def derivation(law: Law, before: Sequence[str]) -> list[str] | None:
    """Names of rules that derive the law, of which none can be left out; None without any.

    Rules of `TASO` only where those of `DEFAULT` do not suffice. Starts from those of `before`,
    where they still derive it.
    """
    sides = sides_of(law, law.shapes)
    rules = [rule for rule in RULES if rule.name in before]
    if sides.derived(rules):
        return _least(sides, rules)
    for rules in ((), rewrites.DEFAULT, RULES):
        done, record = sides.search(rules)
        if done:
            return _least(
                sides, [r for r, c in zip(rules, record.rules, strict=True) if c.admitted]
            )
    return None


def _least(sides: Sides, rules: Sequence[Rewrite]) -> list[str]:
    """The names of those of the rules that are still there when none can be left out."""
    needed = sorted(rules, key=lambda rule: rule not in TASO)
    for size in (16, 4, 1):
        start = 0
        while start < len(needed):
            fewer = needed[:start] + needed[start + size :]
            if sides.derived(fewer):
                needed = fewer
            else:
                start += size
    return sorted(rule.name for rule in needed)


def written(encoding: Encoding) -> str:
    """What a side computes, as mathematics."""
    texts: dict[int, str] = {}
    for row in encoding.rows:
        if row.symbol == LEAF:
            texts[row.handle] = encoding.leaves[row.handle].name.removeprefix("p_")
        else:
            texts[row.handle] = _term(row, [texts[c] for c in row.children], encoding)
    shown = [_bare(texts[handle]) for handle in results(encoding)]
    return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def _term(row: Row, parts: Sequence[str], encoding: Encoding) -> str:
    values = [encoding.texts.value(text) for text in row.attributes]
    meta: Any = encoding.texts.value(encoding.metas[row.children[0]])
    match row.symbol.operator:
        case "convolution":
            return f"({parts[0]} ⋆ {parts[1]})"
        case "matmul":
            return f"({parts[0]} · {parts[1]})"
        case "cat":
            return f"[{', '.join(map(_bare, parts))}]{_subscript(values[0] + meta.ndim)}"
        case "slice":
            piece = "first" if values[1] == 0 else "rest"
            return f"{piece}{_subscript(values[0] + meta.ndim)}({_bare(parts[0])})"
        case "unary":
            return f"{values[0].name}({_bare(parts[0])})"
        case _:
            sign = "+" if values[0].name == "add" else "\N{MULTIPLICATION SIGN}"
            return f"({parts[0]} {sign} {parts[1]})"


def _subscript(number: int) -> str:
    return str(number).translate(SUBSCRIPTS)


def _bare(text: str) -> str:
    """A term without brackets around all of it."""
    depths, depth = list[int](), 0
    for character in text:
        depth += (character == "(") - (character == ")")
        depths.append(depth)
    return text[1:-1] if text.startswith("(") and 0 not in depths[:-1] else text


def line(law: Law, by: Sequence[str]) -> str:
    """The law's line in the table."""
    text = law.text
    if not text:
        sides = sides_of(law, law.shapes)
        text = f"{written(sides.left)} = {written(sides.right)}"
    special = {rule.name for rule in TASO}
    rules = ", ".join(f"`{name}`{'†' * (name in special)}" for name in by) or "the same term"
    where = law.condition and f"holds {law.condition}"
    if law.counter:
        shapes = ", ".join(f"{name} {list(size)}" for name, size in law.variables(law.counter))
        where = f"**unsound**: {shapes}; {where}"
    return f"| {law.number} | {law.family} | {text} | {where} | {rules} |"


def known(page: str) -> dict[str, list[str]]:
    """What derives each law, as the page says."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    names = {cells[0]: re.findall(r"`([^`]+)`", cells[-1]) for cells in rows if len(cells) > 1}
    return {law.number: names.get(law.number, []) for law in LAWS}


def filled(page: str, derivations: Derivations) -> str:
    """The page with its table made anew; what stands before and after it is kept."""
    head = "| number | family | law | where | derived by |\n|---|---|---|---|---|\n"
    before, _, rest = page.partition(head)
    after = rest.partition("\n\n")[2]
    table = "".join(f"{line(law, derivations[law.number])}\n" for law in LAWS)
    return f"{before}{head}{table}\n{after}"


def main() -> None:
    """Find the derivations and write them to the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, derivations = known(page), dict[str, Sequence[str]]()
    for law in LAWS:
        found = derivation(law, before[law.number])
        if found is None:
            raise SystemExit(f"no rules derive {law.number}")
        derivations[law.number] = found
        print(law.number, *found, flush=True)
    PAGE.write_text(filled(page, derivations), encoding="utf-8")


if __name__ == "__main__":
    main()
