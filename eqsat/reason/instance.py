"""One match of a rule: what its variables stand for, and the e-nodes of its two sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.encode import Encoding
from eqsat.expression import Attr, Expr, Var
from eqsat.raw import EgglogRule
from eqsat.reason.goal import Term
from eqsat.rewrite import Rewrite
from eqsat.snapshot import Snapshot
from eqsat.translate import Environment, evaluate, symbol_of

KeyOf = dict[int, Term]  # by id of the expression


@dataclass(frozen=True)
class Instance:
    """A rule with what its variables stand for, in the classes of a saturated e-graph.

    `keys` are the e-nodes of both sides by the id of their expressions, `pairs` the sides whose
    two values were united, each as its place.
    """

    rule: Rewrite
    bound: Mapping[str, int | str]
    keys: KeyOf
    pairs: tuple[int, ...]


def environment(
    rule: Rewrite, bound: Mapping[str, int | str], snapshot: Snapshot, encoding: Encoding
) -> Environment:
    """What conditions and attributes of a rule read: metas of tensors, values of attributes."""
    texts, found = encoding.texts, Environment()
    for name, value in bound.items():
        text = snapshot.metas[value] if isinstance(value, int) else value
        found[name] = texts.value(text) if rule.kinds[name] != "tensor" else texts.meta(text)
    return found


def instances(
    rules: tuple[Rewrite, ...], snapshot: Snapshot, encoding: Encoding, known: Mapping[Term, int]
) -> Iterator[Instance]:
    """The matches that a search recorded, those whose e-nodes are all in the e-graph."""
    for index, values in snapshot.matches:
        rule = rules[index]
        if isinstance(rule, EgglogRule):
            continue
        bound = dict(zip(rule.variables, values, strict=True))
        found = keyed((*rule.left, *rule.right), rule, bound, snapshot, encoding, known)
        if found is not None:
            keys, classes = found
            sides = enumerate(zip(rule.left, rule.right, strict=True))
            united = (i for i, (a, b) in sides if classes[id(a)] == classes[id(b)])
            yield Instance(rule, bound, keys, tuple(united))


def keyed(
    sides: Sequence[Expr],
    rule: Rewrite,
    bound: Mapping[str, int | str],
    snapshot: Snapshot,
    encoding: Encoding,
    known: Mapping[Term, int],
) -> tuple[KeyOf, dict[int, int]] | None:
    """The e-node and the class of each expression of sides; None where one is not there."""
    keys: KeyOf = {}
    classes: dict[int, int] = {}
    try:
        values = environment(rule, bound, snapshot, encoding)
    except KeyError:  # a variable stands for what has no meta
        return None
    for side in sides:
        for expr in side.walk():
            if isinstance(expr, Var):
                cls = bound[expr.name]
                assert isinstance(cls, int)
                classes[id(expr)] = cls
                continue
            try:
                texts = tuple(_text(a, bound, values, encoding) for a in expr.attributes)
            except Exception:  # noqa: BLE001 - what a right side cannot compute was never admitted
                return None
            key = symbol_of(expr), tuple(classes[id(c)] for c in expr.children), texts
            if key not in known:
                return None
            keys[id(expr)], classes[id(expr)] = key, known[key]
    return keys, classes


def _text(
    attr: Any, bound: Mapping[str, int | str], values: Environment, encoding: Encoding
) -> str:
    """The text of an attribute, computed where it is."""
    if isinstance(attr, Var):
        return str(bound[attr.name])
    value = evaluate(attr, values, encoding.oracle) if isinstance(attr, Attr) else attr
    return encoding.texts.text(value)
