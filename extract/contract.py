"""Reductions that decide or join classes, and note in `Core.steps` how to undo it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from extract.core import Core, Merged, Settled
from extract.loops import strongly_connected

WIDEST = 2
"""Most children of a free class that the e-nodes which need the class take over."""
ROUNDED = 1e-13
"""Share of a cost below which a difference to it is taken for a rounding error."""


def with_forced_roots(core: Core) -> Core:
    """With every class that is in every selection as a root, and without the edges to it that say
    nothing.

    A class of this kind with one e-node is settled, if no cycle can pass it.
    """
    forced = [cls for cls in core.members if cls in core.forced]
    settled = {
        cls: core.members[cls][0]
        for cls in forced
        if len(core.members[cls]) == 1 and len(core.loops[core.loop_of[cls]]) == 1
    }
    members = {cls: enodes for cls, enodes in core.members.items() if cls not in settled}
    kids = {
        enode: tuple(child for child in core.kids[enode] if not core.is_paid(cls, child))
        for cls, enodes in members.items()
        for enode in enodes
    }
    return replace(
        core,
        members=members,
        kids=kids,
        roots=tuple(sorted(cls for cls in forced if cls not in settled)),
        base=core.base + sum(core.cost[enode] for enode in settled.values()),
        steps=(*core.steps, *(Settled(cls, enode) for cls, enode in settled.items())),
    )


def with_free_groups_merged(core: Core) -> Core:
    """With one class for all that free e-nodes of one child derive from each other, such as views
    of a tensor.

    Of such a group a selection needs one e-node that is not a link: that of the lowest class, which
    needs no other of the group; links derive the others. So links go, and so do e-nodes that need
    their own group.
    """
    links: dict[int, list[int]] = {cls: [] for cls in core.members}
    for cls, enodes in core.members.items():
        links[cls] += [core.kids[enode][0] for enode in enodes if _is_view(core, enode)]
    groups = [sorted(group) for group in strongly_connected(links) if len(group) > 1]
    if not groups:
        return core
    members, steps = dict(core.members), list(core.steps)
    for group in groups:
        inside = set(group)
        home = {enode: cls for cls in group for enode in members.pop(cls)}
        views = [
            (cls, enode, core.kids[enode][0])
            for enode, cls in home.items()
            if _is_view(core, enode)
        ]
        steps.append(Merged(group[0], home, tuple(view for view in views if view[2] in inside)))
        members[group[0]] = tuple(enode for enode in home if inside.isdisjoint(core.kids[enode]))
    into = {cls: (group[0],) for group in groups for cls in group}
    return _renamed(core, dict(sorted(members.items())), into, tuple(steps))


def with_free_classes_inlined(core: Core) -> Core:
    """Without the classes whose one e-node is free and has at most `WIDEST` children, which take
    the place of the class.
    """
    meaning: dict[int, tuple[int, ...]] = {}
    for cls in core.order:  # children first, as a class here has one e-node
        enode = core.members[cls][0]
        if len(core.members[cls]) > 1 or core.cost[enode] != 0:
            continue
        below = chain.from_iterable(meaning.get(child, (child,)) for child in core.kids[enode])
        classes = tuple(dict.fromkeys(below))
        if len(classes) <= WIDEST:
            meaning[cls] = classes
    if not meaning:
        return core
    members = {cls: enodes for cls, enodes in core.members.items() if cls not in meaning}
    steps = (*core.steps, *(Settled(cls, core.members[cls][0]) for cls in meaning))
    return _renamed(core, members, meaning, steps)


def with_costs_raised(core: Core) -> Core:
    """With what a class costs at least moved to the e-nodes that need it, where these are all of
    one class.

    Only one of them is chosen, so it is paid once as before; but there it counts in comparisons.
    """
    users: dict[int, set[int]] = {cls: set() for cls in core.members}
    for cls, children in core.successors.items():
        for child in children:
            users[child].add(cls)
    cost, roots = list(core.cost), set(core.roots)
    for cls in core.order:  # children first, so that costs rise all the way
        if cls in roots or len(users[cls]) != 1 or cls in users[cls]:
            continue
        enodes = core.members[cls]
        least = min(cost[enode] for enode in enodes)
        if least <= 0:
            continue
        for enode in enodes:
            rest = cost[enode] - least
            cost[enode] = rest if rest > ROUNDED * cost[enode] else 0.0
        (user,) = users[cls]
        for enode in core.members[user]:
            if cls in core.kids[enode]:
                cost[enode] += least
    return replace(core, cost=cost)


def with_single_uses_merged(core: Core) -> Core:
    """Without the classes that have one e-node and are needed by one e-node: the two become one."""
    users: dict[int, set[int]] = {cls: set() for cls in core.members}
    home = {enode: cls for cls, enodes in core.members.items() for enode in enodes}
    for enode, children in core.kids.items():
        for child in children:
            users[child].add(enode)
    cost, kids, members, roots = list(core.cost), dict(core.kids), dict(core.members), {*core.roots}
    steps = list(core.steps)
    for cls in core.order:
        if len(members[cls]) > 1 or len(users[cls]) != 1 or cls in roots:
            continue
        (only,), (user,) = members[cls], users[cls]
        if home[user] == cls:
            continue
        cost[user] += cost[only]
        kids[user] = tuple(sorted({*kids[user], *kids.pop(only)} - {cls}))
        for child in kids[user]:
            users[child].discard(only)
            users[child].add(user)
        del members[cls]
        steps.append(Settled(cls, only))
    if len(steps) == len(core.steps):
        return core
    return replace(core, members=members, kids=kids, cost=cost, steps=tuple(steps))


def _is_view(core: Core, enode: int) -> bool:
    return core.cost[enode] == 0 and len(core.kids[enode]) == 1


def _renamed(
    core: Core,
    members: dict[int, tuple[int, ...]],
    meaning: Mapping[int, tuple[int, ...]],
    steps: tuple[Settled | Merged, ...],
) -> Core:
    """The core with `members`, in which a class stands for others, or for none if it costs
    nothing.
    """

    def rename(classes: tuple[int, ...]) -> tuple[int, ...]:
        if meaning.keys().isdisjoint(classes):
            return classes
        return tuple(sorted({new for cls in classes for new in meaning.get(cls, (cls,))}))

    kids = {enode: rename(core.kids[enode]) for enodes in members.values() for enode in enodes}
    return replace(core, members=members, kids=kids, roots=rename(core.roots), steps=steps)
