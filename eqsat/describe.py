"""The e-graph as text: one line a class, with its meta and its e-nodes."""

from __future__ import annotations

from eqsat.encode import Encoding
from eqsat.meta import EFFECT, INVALID
from eqsat.snapshot import Snapshot


def describe(snapshot: Snapshot, encoding: Encoding, limit: int = 200) -> str:
    """Every e-class as `e3 float32[2, 4]@cpu = matmul(e1, e2) | ...`, at most `limit` of them.

    Classes stand in the order of the given program, then those that rules added; those that torch
    refused to give a meta are left out.
    """
    members: dict[int, list[str]] = {}
    leaves = {str(handle): node.name for handle, node in encoding.leaves.items()}
    numbers = _numbered(snapshot)
    for k, symbol in enumerate(snapshot.symbols):
        cls = snapshot.classes[k]
        if snapshot.metas.get(cls, INVALID) == INVALID:
            continue
        if symbol.operator == "leaf":
            text = leaves[snapshot.attributes[k][0]]
        elif symbol.operator == "number":
            text = snapshot.attributes[k][0]
        else:
            operands = [f"e{numbers[c]}" for c in snapshot.children[k]]
            text = f"{symbol.operator}({', '.join([*operands, *snapshot.attributes[k]])})"
        members.setdefault(cls, []).append(text)
    lines = [
        f"e{numbers[cls]} {_meta(snapshot.metas[cls])}= {' | '.join(members[cls])}"
        for cls in sorted(members, key=numbers.__getitem__)
    ]
    more = [f"... and {len(lines) - limit} more classes"] if len(lines) > limit else []
    return "\n".join(lines[:limit] + more)


def _numbered(snapshot: Snapshot) -> dict[int, int]:
    """Small numbers for the classes: first those of the given program, in its order."""
    order = dict.fromkeys([*snapshot.handles.values(), *snapshot.classes, *snapshot.metas])
    return {cls: number for number, cls in enumerate(order)}


def _meta(text: str) -> str:
    return "" if text == EFFECT or text.startswith("number") else f"{text} "
