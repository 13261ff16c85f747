"""The fewest rules with which the search still comes to the chosen graph, and the proof of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eqsat.encode import Encoding
from eqsat.limits import Limits
from eqsat.reason.goal import Goal, index
from eqsat.reason.instance import instances
from eqsat.reason.proof import Proof, prove
from eqsat.reason.replay import Replay
from eqsat.rewrite import Rewrite
from eqsat.saturate import saturate
from eqsat.snapshot import Snapshot

PATIENCE = 4.0
"""How much longer than the search a second run may take, which keeps a record."""


@dataclass(frozen=True)
class Needed:
    """The rules that are needed, none of which can be left out, and what they do step by step.

    `snapshot` is the e-graph of these rules alone. `minimal` is false where there was no time to
    try the search without each.
    """

    rules: tuple[Rewrite, ...]
    proof: Proof
    snapshot: Snapshot
    minimal: bool


def needed(
    encoding: Encoding,
    goal: Goal,
    rules: Sequence[Rewrite],
    limits: Limits,
    memory: int | None = None,
    spent: Callable[[], bool] = lambda: False,
) -> Needed | None:
    """The rules that a search needs to come to a goal; None where it does not with all of them.

    Each search keeps to `memory` bytes, as the first did. `spent` says when there is no more time
    to look for fewer.
    """
    limits = replace(limits, seconds=PATIENCE * limits.seconds)

    def tried(chosen: Sequence[Rewrite]) -> Needed | None:
        snapshot, _ = saturate(encoding, chosen, limits, memory=memory, record=True)
        proof = _proof(encoding, goal, tuple(chosen), snapshot, spent)
        if proof is None:
            return None
        used = tuple(rule for rule in chosen if rule.name in proof.rules)
        return Needed(used, proof, snapshot, minimal=False)

    def held(chosen: Sequence[Rewrite]) -> bool:
        return goal.held(
            saturate(encoding, chosen, limits, memory=memory)[0]
        )  # no record: most are not

    found = tried(tuple(rules))
    if found is None:
        return None
    best = _settled(found, tried) or _narrowed(found, tuple(rules), tried, spent)
    for rule in reversed(best.rules):
        if spent():
            return best
        fewer = [r for r in best.rules if r is not rule]
        if len(fewer) == len(best.rules) or not held(fewer):
            continue
        if (without := tried(fewer)) is not None:
            best = _settled(without, tried) or replace(without, rules=tuple(fewer))
    return replace(best, minimal=True)


def _settled(found: Needed, tried: Callable[[Sequence[Rewrite]], Needed | None]) -> Needed | None:
    """What the rules of a proof do alone; None where they need others, of facts about values."""
    while (again := tried(found.rules)) is not None and len(again.rules) < len(found.rules):
        found = again
    return again


def _narrowed(
    found: Needed,
    rules: tuple[Rewrite, ...],
    tried: Callable[[Sequence[Rewrite]], Needed | None],
    spent: Callable[[], bool],
) -> Needed:
    """The fewest of all rules, each group of them tried without."""
    best, size = replace(found, rules=rules), max(1, len(rules) // 2)
    while size and not spent():
        for low in range((len(best.rules) - 1) // size * size, -1, -size):
            fewer = best.rules[:low] + best.rules[low + size :]
            if not spent() and (without := tried(fewer)) is not None:
                best = replace(without, rules=fewer)
        size //= 2
    return best


def _proof(
    encoding: Encoding,
    goal: Goal,
    rules: tuple[Rewrite, ...],
    snapshot: Snapshot,
    spent: Callable[[], bool],
) -> Proof | None:
    """The steps to the goal by what a search recorded."""
    if not goal.held(snapshot):
        return None
    known = index(snapshot)
    found = list(instances(rules, snapshot, encoding, known))
    return prove(Replay(encoding, known, snapshot), found, goal, spent)
