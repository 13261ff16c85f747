"""Inductor's scheduler: which loops become one kernel (torch/_inductor/scheduler.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eqsat.cost.partition.loops import part_of
from eqsat.cost.partition.sharing import (
    Accesses,
    after_reordering,
    reads_match,
    reindexed,
    same_space,
    shared_bytes,
    tilings_match,
)
from eqsat.cost.partition.steps import Library, Loop, Step

MOST_PARTS = 64  # config.max_fusion_size
WINDOW = 64  # config.max_fusion_buffer_group_pairwise_attempts
LEAST_SHARED = 10  # config.score_fusion_memory_threshold
FARTHEST = 64  # Scheduler.are_long_distant_nodes
ROUNDS = 10
VISITS = 2000
"""Groups that a search for a cycle looks at; beyond them it says there is one."""


class Group:
    """Steps that are one kernel: loops that were fused, or one call of a library."""

    __slots__ = ("accesses", "after", "before", "changed", "first", "last", "merged_into", "step")

    def __init__(self, step: Step, order: int) -> None:
        self.step = step
        self.accesses = Accesses((part_of(step),)) if isinstance(step, Loop) else None
        self.first = self.last = order
        self.before: dict[Group, None] = {}
        self.after: dict[Group, None] = {}
        self.merged_into: Group | None = None
        self.changed = True


class Proposal(NamedTuple):
    """Two groups that may be fused, perhaps with loops in another order."""

    score: tuple[int, int, int]
    one: Accesses
    other: Accesses


def fuse(steps: Sequence[Step], gpu: bool) -> list[Group]:
    """The kernels that the steps become, in an order in which they can run (`fuse_nodes`)."""
    groups = _groups(steps)
    for _ in range(ROUNDS):
        before = len(groups)
        groups = _fuse_once(groups, False)
        if len(groups) == before:
            break
    if gpu:
        for group in groups:
            group.changed = True
        groups = _fuse_once(groups, True)
    return groups


def _groups(steps: Sequence[Step]) -> list[Group]:
    groups: list[Group] = []
    writers: dict[int, Group] = {}
    for order, step in enumerate(steps):
        group = Group(step, order)
        groups.append(group)
        for number in _read_numbers(step):
            writer = writers.get(number)
            if writer is not None and writer is not group:
                writer.after[group] = None
                group.before[writer] = None
        for number in _written_numbers(step):
            writers[number] = group
    return groups


def _read_numbers(step: Step) -> Iterable[int]:
    if isinstance(step, Loop):
        return [buffer.number for buffer, _ in step.reads]
    if isinstance(step, Library):
        return [buffer.number for buffer in step.reads]
    return [buffer.number for buffer in step.parts]


def _written_numbers(step: Step) -> Iterable[int]:
    if isinstance(step, Library):
        return [buffer.number for buffer in step.buffers]
    return [step.buffer.number]


def _fuse_once(groups: list[Group], reorder: bool) -> list[Group]:
    """One round: all pairs that may be fused, the most profitable first (`fuse_nodes_once`)."""
    pairs = _possible(groups, reorder)
    for group in groups:
        group.changed = False
    for first, second in pairs:
        if (now := _current(first)) is not (then := _current(second)):
            one, other, vertical = _ordered(now, then)
            proposal = _can_fuse(one, other, vertical, reorder)
            if proposal is not None:
                _merge(one, other, proposal)
    left = [group for group in groups if group.merged_into is None]
    return sorted(left, key=lambda group: group.first)


def _current(group: Group) -> Group:
    while group.merged_into is not None:
        group = group.merged_into
    return group


def _ordered(one: Group, other: Group) -> tuple[Group, Group, bool]:
    """The two in the order in which they run, and whether the second reads the first's results."""
    if one.first > other.first:
        one, other = other, one
    if one in other.after:
        return other, one, True
    return one, other, other in one.after


def _possible(groups: list[Group], reorder: bool) -> list[tuple[Group, Group]]:
    users: defaultdict[int, list[tuple[Group, bool]]] = defaultdict(list)
    for group in groups:
        if group.accesses is not None:
            for number in dict.fromkeys([key[0] for key in group.accesses.all]):
                users[number].append((group, number in group.accesses.written))
    seen: set[tuple[int, int]] = set()
    found: list[tuple[tuple[int, int, int], Group, Group]] = []
    for sharing in users.values():
        for i, (first, writes) in enumerate(sharing):
            for second, _ in sharing[i + 1 : i + 1 + WINDOW]:
                if not writes and second.first - first.first > FARTHEST:
                    break  # they read the same; what is further on is further away
                pair = (first.first, second.first)
                if pair in seen or not (first.changed or second.changed):
                    continue
                seen.add(pair)
                one, other, vertical = _ordered(first, second)
                if reorder and _shares_enough(one, other):
                    continue  # the rounds before have tried
                proposal = _can_fuse(one, other, vertical, reorder)
                if proposal is not None:
                    found.append((proposal.score, one, other))
    found.sort(key=lambda item: item[0], reverse=True)
    return [(one, other) for _, one, other in found]


def _shares_enough(one: Group, other: Group) -> bool:
    if one.accesses is None or other.accesses is None:
        return False
    return shared_bytes(one.accesses, other.accesses) >= LEAST_SHARED


def _can_fuse(one: Group, other: Group, vertical: bool, reorder: bool) -> Proposal | None:
    """The fusion of two groups, `one` running first; None where it is not allowed (`_can_fuse`)."""
    first, second = one.accesses, other.accesses
    assert first is not None and second is not None
    if len(first.parts) + len(second.parts) > MOST_PARTS:
        return None
    if not vertical and _distance(one, other) > FARTHEST:
        return None
    if not same_space(first, second):
        return None
    score = shared = shared_bytes(first, second)
    if reorder and shared < LEAST_SHARED:
        first, second, score = after_reordering(first, second, shared)
    if score == 0 or (not vertical and score < LEAST_SHARED):
        return None
    if vertical and not reads_match(first, second):
        first, second = reindexed(first, second)
        if not reads_match(first, second):
            return None
    if not tilings_match(first, second):
        return None
    if _is_between(one, other) or _is_between(other, one):
        return None
    alike = int(first.reduces == second.reduces and shared > 0)
    return Proposal((alike, shared, -_distance(one, other)), first, second)


def _distance(one: Group, other: Group) -> int:
    """How far apart two groups are in the order of the program (`are_long_distant_nodes`)."""
    return max(abs(one.first - other.last), abs(other.first - one.last))


def _is_between(one: Group, other: Group) -> bool:
    """Whether something has to run after `one` and before `other` (`will_fusion_create_cycle`)."""
    after, start = one.after, one.first
    if not after:
        return False
    pending = [other]
    seen = {one, other}
    while pending:
        for earlier in pending.pop().before:
            if earlier.last < start or earlier in seen:
                continue
            if earlier in after:
                return True
            seen.add(earlier)
            pending.append(earlier)
        if len(seen) > VISITS:
            return True
    return False


def _merge(one: Group, other: Group, proposal: Proposal) -> None:
    """Make one group of two (`fuse_two_nodes`)."""
    one.accesses = Accesses((*proposal.one.parts, *proposal.other.parts))
    one.first, one.last = min(one.first, other.first), max(one.last, other.last)
    for earlier in other.before:
        del earlier.after[other]
        if earlier is not one:
            earlier.after[one] = None
            one.before[earlier] = None
    for later in other.after:
        del later.before[other]
        if later is not one:
            later.before[one] = None
            one.after[later] = None
    other.before.clear()
    other.after.clear()
    other.merged_into = one
    one.changed = True
