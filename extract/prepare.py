"""A smaller problem with the same optimum: reductions of a core, and the order they are done in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from extract.core import Core, Merged, Settled
from extract.egraph import EGraph
from extract.loops import strongly_connected

SETS_LIMIT = 40_000
"""Most classes for which required sets are made: their bits take the square of it, 100 MB here."""
COMPARED = 32
"""Most e-nodes of a class that another e-node of it is compared with."""
ROUNDS = 8


def prepare(egraph: EGraph) -> tuple[list[Core], Core]:
    """Problems that share nothing, and the whole that they are parts of.

    The optima of the parts and the `base` of the whole add up to the optimum of the e-graph;
    choices for the parts go back by `restore(whole.steps, ...)`.
    """
    whole = _reduced(Core.of(egraph))
    steps, base = list(whole.steps), whole.base
    waiting, done = whole.parts(), list[Core]()
    for _ in range(ROUNDS):
        fresh: list[Core] = []
        for part in waiting:
            smaller = _reduced(part)
            if smaller.size == part.size:
                done.append(part)
                continue
            steps += smaller.steps
            base += smaller.base
            fresh += smaller.parts()
        waiting = fresh
    return done + waiting, replace(whole, steps=tuple(steps), base=base)


def derivable(core: Core) -> Core:
    """Without the e-nodes that no finite derivation can use. The other reductions rely on this
    one.
    """
    known = set(core.order)
    return core.keep(lambda _, enode: known.issuperset(core.kids[enode]))


def reachable(core: Core) -> Core:
    """Without the classes that the roots cannot come to."""
    seen = dict.fromkeys(core.roots)
    queue = list(core.roots)
    for cls in queue:  # grows as it is read
        for child in core.successors[cls]:
            if child not in seen:
                seen[child] = None
                queue.append(child)
    return core.keep(lambda cls, _: cls in seen)


def without_returns(core: Core) -> Core:
    """Without the e-nodes that lead back to their class: on every way up, or on every way down.

    The way up: a child that every path from the roots to the class passes (that dominates it) is
    above the class wherever the class is needed. The way down: a child all of whose derivations
    contain the class.
    """

    def keep(cls: int, enode: int) -> bool:
        return not any(
            child == cls
            or (cls, child) in core.dominating
            or core.required[child] >> core.place[cls] & 1
            for child in core.kids[enode]
            if core.loop_of[child] == core.loop_of[cls]
        )

    return core.keep(keep)


def without_dominated(core: Core) -> Core:
    """Without the e-nodes that another of their class can always replace.

    The other costs no more, and needs only classes that are there anyway: in every derivation of
    what this one needs, or in every selection. Those below this one do not need the class, so
    nothing becomes a cycle.
    """
    dropped: set[int] = set()
    for cls, enodes in core.members.items():
        if len(enodes) == 1:
            continue
        given = {enode: core.needs(core.kids[enode]) for enode in enodes}
        kept: list[int] = []
        for enode in sorted(enodes, key=lambda e: (core.cost[e], given[e].bit_count(), e)):
            if any(not needs & ~given[enode] for needs in kept[:COMPARED]):
                dropped.add(enode)
                continue
            unpaid = (child for child in core.kids[enode] if not core.is_paid(cls, child))
            kept.append(sum(1 << core.place[child] for child in unpaid))
    return core.keep(lambda _, enode: enode not in dropped)


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
    into = {cls: group[0] for group in groups for cls in group}
    return _renamed(core, dict(sorted(members.items())), into, tuple(steps))


def with_views_inlined(core: Core) -> Core:
    """Without the classes whose one e-node is free, and is a leaf or a view of another class."""
    aliases = {
        cls: core.kids[enodes[0]]
        for cls, enodes in core.members.items()
        if len(enodes) == 1
        and (_is_view(core, enodes[0]) or core.cost[enodes[0]] == len(core.kids[enodes[0]]) == 0)
    }
    if not aliases:
        return core
    meaning: dict[int, int] = {}
    for cls in aliases:
        path = [cls]
        while path[-1] not in meaning and aliases.get(path[-1]):
            path.append(aliases[path[-1]][0])
        meaning.update(dict.fromkeys(path, meaning.get(path[-1], path[-1])))
    members = {cls: enodes for cls, enodes in core.members.items() if cls not in aliases}
    steps = (*core.steps, *(Settled(cls, core.members[cls][0]) for cls in aliases))
    return _renamed(core, members, meaning, steps)


def _is_view(core: Core, enode: int) -> bool:
    return core.cost[enode] == 0 and len(core.kids[enode]) == 1


def _reduced(core: Core) -> Core:
    """The core after one round of every reduction."""
    core = reachable(derivable(with_free_groups_merged(reachable(derivable(core)))))
    core = with_views_inlined(core)
    if len(core.members) > SETS_LIMIT:
        return core
    core = reachable(derivable(without_returns(core)))
    return with_forced_roots(reachable(without_dominated(core)))


def _renamed(
    core: Core,
    members: dict[int, tuple[int, ...]],
    name: Mapping[int, int],
    steps: tuple[Settled | Merged, ...],
) -> Core:
    """The core with `members`, in which a class goes by its new name, or is not needed if that has
    no e-nodes.
    """

    def rename(classes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({name.get(cls, cls) for cls in classes} & members.keys()))

    kids = {enode: rename(core.kids[enode]) for enodes in members.values() for enode in enodes}
    return replace(core, members=members, kids=kids, roots=rename(core.roots), steps=steps)
