"""Local search: one class at a time takes its cheapest derivation over what is chosen anyway."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Sequence

from extract.draft import LEAST, Draft
from extract.egraph import EGraph
from extract.parts import improved_by_parts, proven
from extract.selection import Choice, Selection, Status, select

KICKS = 200
"""How often in a row a kick may fail before the search ends."""
KICK = 3
"""Most classes that a kick opens."""
USERS = 30
"""Most classes that are derived anew to do without one."""
CANDIDATES = 60
"""Most classes that are asked whether they want a class that has been opened."""


def local_search(
    egraph: EGraph, *, time_limit: float = 5.0, seeds: Sequence[Choice] = (), random_seed: int = 0
) -> Selection:
    """A selection that no single move betters, and none of a few random kicks.

    It starts at the best of the tree, the greedy DAG and the seeds. Three moves: a class takes its
    cheapest derivation, where all that is chosen and does not need the class is free; a class that
    is not chosen is opened, so that others may take it up, some at no gain, and stays if together
    they save what it costs; a class is closed, and those that need it do without.
    """

    def improve(part: EGraph, best: Selection, deadline: float) -> Selection:
        return descend(part, best, deadline, random.Random(random_seed))

    return improved_by_parts(egraph, improve, "local-search", time_limit, seeds)


def descend(egraph: EGraph, best: Selection, deadline: float, rng: random.Random) -> Selection:
    """The selection that local search finds from `best` before the deadline."""
    started = time.perf_counter()
    draft = Draft(egraph, best.choice)
    choice, cost, status = best.choice, draft.cost, Status.FEASIBLE
    try:
        everything = [cls for cls, enodes in enumerate(egraph.members) if enodes]
        rng.shuffle(everything)
        _settle(draft, everything, deadline)
        failed = 0
        while failed < KICKS and time.perf_counter() < deadline:
            if draft.cost < cost * (1 - LEAST):
                choice, cost, failed = draft.to_choice(), draft.cost, 0
            draft.log.clear()
            before = draft.cost
            _kick(draft, rng)
            _settle(draft, _near(draft, draft.log), deadline)
            failed += 1
            if draft.cost > before * (1 + LEAST):  # one that is as good is a step sideways
                draft.undo(0)
        if draft.cost < cost * (1 - LEAST):
            choice = draft.to_choice()
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    method = "local-search" if choice is not best.choice else best.method
    bound = best.lower_bound
    return proven(
        select(egraph, choice, method=method, started=started, lower_bound=bound, status=status)
    )


def _settle(draft: Draft, classes: Sequence[int], deadline: float) -> None:
    """Makes moves, first of `classes`, then of those near what has changed, until none helps."""
    queue, waiting = deque(classes), set(classes)
    while queue and time.perf_counter() < deadline:
        cls = queue.popleft()
        waiting.discard(cls)
        mark = len(draft.log)
        moves = (_rechoose, _close) if draft.choice[cls] >= 0 else (_open,)
        if any(move(draft, cls) for move in moves):
            fresh = [near for near in _near(draft, draft.log[mark:]) if near not in waiting]
            waiting.update(fresh)
            queue.extend(fresh)


def _near(draft: Draft, changes: Sequence[tuple[int, int]]) -> list[int]:
    """The classes that changed, and those that need or are needed by them or might be."""
    near: dict[int, None] = {}
    for cls, before in changes:
        now = draft.choice[cls]
        near[cls] = None
        for enode in (before, now):
            if enode >= 0:
                near |= dict.fromkeys(draft.kids[enode])
        near |= dict.fromkeys(draft.home[enode] for enode in draft.users[cls][:CANDIDATES])
    return list(near)


def _rechoose(draft: Draft, cls: int) -> bool:
    """Whether a class that has a choice got a better one."""
    mark, before = len(draft.log), draft.cost
    draft.release(cls)
    least = before - draft.cost - LEAST * before
    if least > 0:
        picks = draft.derivation(cls, draft.above([cls]), least)
        if picks is not None:
            draft.take(picks)
            return True
    draft.undo(mark)
    return False


def _shift(draft: Draft, cls: int) -> None:
    """Gives a class a derivation without its present children, if that costs nothing more."""
    mark, before = len(draft.log), draft.cost
    children = draft.kids[draft.choice[cls]]
    draft.release(cls)
    most = before - draft.cost + LEAST * before
    picks = draft.derivation(cls, draft.above([cls]).union(children), most)
    if picks is None:
        draft.undo(mark)
    else:
        draft.take(picks)


def _open(draft: Draft, cls: int) -> bool:
    """Whether it helped to choose a class that has no choice, for those that can use it."""
    picks = draft.derivation(cls, {cls})
    if picks is None:
        return False
    mark, before = len(draft.log), draft.cost
    draft.needed[cls] += 1
    draft.take(picks)
    for user in _candidates(draft, cls):
        if draft.choice[user] >= 0 and not _rechoose(draft, user):
            _shift(draft, user)
    draft.needed[cls] -= 1
    draft.collect([cls])
    if draft.cost < before * (1 - LEAST):
        return True
    draft.undo(mark)
    return False


def _close(draft: Draft, cls: int) -> bool:
    """Whether it helped to do without a class: those that need it are derived without it, or closed
    too.
    """
    if draft.needed[cls] or len(draft.parents[cls]) > USERS:
        return False
    mark, before = len(draft.log), draft.cost
    closed, queue = {cls}, [cls]
    for low in queue:  # grows as it is read
        for user in sorted(draft.parents[low]):
            if draft.choice[user] < 0 or user in closed:
                continue
            place = len(draft.log)
            draft.release(user)
            picks = draft.derivation(user, draft.above([user]) | closed)
            if picks is not None:
                draft.take(picks)
                continue
            draft.undo(place)
            if draft.needed[user] or len(queue) > USERS:
                draft.undo(mark)
                return False
            closed.add(user)
            queue.append(user)
    fresh = {cls for cls, enode in draft.log[mark:] if enode < 0 <= draft.choice[cls]}
    for low in sorted(fresh):
        for user in _candidates(draft, low):
            if draft.choice[user] >= 0:
                _rechoose(draft, user)
    if draft.cost < before * (1 - LEAST):
        return True
    draft.undo(mark)
    return False


def _candidates(draft: Draft, cls: int) -> list[int]:
    """The classes with a choice that may want the class, perhaps by others without one."""
    seen, queue, wanting = {cls}, [cls], list[int]()
    for low in queue:  # grows as it is read
        for enode in draft.users[low]:
            user = draft.home[enode]
            if user in seen or len(seen) > 4 * CANDIDATES:
                continue
            seen.add(user)
            if draft.choice[user] >= 0:
                wanting.append(user)
            else:
                queue.append(user)
    return wanting[:CANDIDATES]


def _kick(draft: Draft, rng: random.Random) -> None:
    """Changes the choice of a few classes at random, so that what they need has a choice too."""
    classes = [cls for cls, enodes in enumerate(draft.choice) if enodes >= 0]
    for cls in rng.sample(classes, min(len(classes), rng.randint(1, KICK))):
        if draft.choice[cls] < 0 or len(draft.members[cls]) < 2:
            continue
        mark, before = len(draft.log), draft.choice[cls]
        draft.release(cls)
        banned = draft.above([cls])
        others = [e for e in draft.members[cls] if e != before and banned.isdisjoint(draft.kids[e])]
        if not others or not _take_enode(draft, cls, rng.choice(others), banned):
            draft.undo(mark)


def _take_enode(draft: Draft, cls: int, enode: int, banned: set[int]) -> bool:
    """Whether a class could take an e-node, with a derivation for each of its children."""
    for child in draft.kids[enode]:
        if draft.choice[child] < 0:
            picks = draft.derivation(child, banned)
            if picks is None:
                return False
            draft.take(picks)
    draft.take([(cls, enode)])
    return True
