"""Classes that are views of each other as one tensor: what lies in memory once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from extract.blocks import colours
from extract.core import Core
from extract.egraph import EGraph
from extract.fusible import FUSIBLE, VIEWS, Fusion, FusionProblem
from extract.loops import strongly_connected
from extract.prepare import derivable, reachable

ROUNDS = 3
"""How many e-nodes far two tensors must look alike to be taken for the same one of two blocks."""


@dataclass(frozen=True, eq=False)
class Tensors:
    """The tensors of a fusion problem, numbered by their lowest class.

    Classes of one tensor have the same elements, and each can be made of each other by views, or
    can only be made of others by views. `of[c]` is the tensor of class c, `order[c]` says which
    classes of it also have their elements in the same order. `members[t]` are the e-nodes that make
    a tensor of others, and `needs[i]` the classes that e-node i needs, a class once. `reads`
    tensors are those that a kernel can read with no other one being better.
    """

    problem: FusionProblem
    of: list[int]
    order: list[int]
    members: list[list[int]]

    @staticmethod
    def of_problem(problem: FusionProblem) -> Tensors:
        """The tensors of a problem."""
        of = _groups(problem, VIEWS)
        order = _groups(problem, frozenset({Fusion.VIEW}))
        members: list[list[int]] = [[] for _ in range(problem.egraph.num_classes)]
        classes = problem.egraph.node_class.tolist()
        for enode, needs in enumerate(problem.egraph.kids):
            tensor = of[classes[enode]]
            if all(of[child] != tensor for child in needs):  # else a link, or it needs itself
                members[tensor].append(enode)
        return Tensors(problem, of, order, members)

    @cached_property
    def home(self) -> list[int]:
        """The class of every e-node."""
        return self.problem.egraph.node_class.tolist()

    @cached_property
    def users(self) -> list[list[int]]:
        """The e-nodes that need a tensor."""
        users: list[list[int]] = [[] for _ in self.of]
        for enodes in self.members:
            for enode in enodes:
                for tensor in dict.fromkeys(self.of[c] for c in self.problem.egraph.kids[enode]):
                    users[tensor].append(enode)
        return users

    def core(self, chosen: Collection[int] | None = None) -> Core:
        """The tensors as classes of an e-graph, with e-nodes `chosen` (all, if None), as far as the
        roots can be derived by them.
        """
        egraph = self.problem.egraph
        nodes = [
            (tensor, 1.0, [self.of[child] for child in egraph.kids[enode]])
            for tensor, enodes in enumerate(self.members)
            for enode in enodes
            if chosen is None or enode in chosen
        ]
        roots = [self.of[root] for root in egraph.roots]
        return reachable(derivable(Core.of(EGraph.build(nodes, roots, egraph.num_classes))))

    def before(
        self, some: Collection[int], chosen: Collection[int] | None = None
    ) -> dict[int, frozenset[int]]:
        """Which of `some` tensors have been computed, somehow, when a tensor is in memory: those in
        all its derivations.
        """
        core = self.core(chosen)
        bit = {core.place[tensor]: tensor for tensor in some if tensor in core.place}
        mask = sum(1 << place for place in bit)
        names: dict[int, frozenset[int]] = {}
        for bits in {bits & mask for bits in core.required.values()}:
            left, found = bits, list[int]()
            while left:
                found.append(bit[left.bit_length() - 1])
                left ^= 1 << (left.bit_length() - 1)
            names[bits] = frozenset(found)
        return {tensor: names[bits & mask] for tensor, bits in core.required.items()}

    @cached_property
    def shared(self) -> frozenset[int]:
        """The required tensors that several others may be made of, or that are roots too."""
        fusion = self.problem.fusion.tolist()
        roots = {self.of[root] for root in self.problem.egraph.roots}
        return frozenset(
            tensor
            for tensor in self.core().forced
            if any(fusion[e] in FUSIBLE for e in self.members[tensor])
            and len({self.of[self.home[e]] for e in self.users[tensor]}) + (tensor in roots) > 1
        )

    def shared_by(self, chosen: Collection[int]) -> frozenset[int]:
        """The tensors that several of the e-nodes `chosen` need, or one of them and the caller."""
        roots = {self.of[root] for root in self.problem.egraph.roots}
        return frozenset(
            tensor
            for tensor, users in enumerate(self.users)
            if len({self.of[self.home[e]] for e in users if e in chosen}) + (tensor in roots) > 1
        )

    @cached_property
    def colour(self) -> list[int]:
        """A number for every tensor, the same for those of equal blocks, far from both ends."""
        problem = self.problem
        sizes = zip(problem.numel.tolist(), problem.read.tolist(), strict=True)
        return colours(problem.egraph, ROUNDS, list(sizes))

    @cached_property
    def links(self) -> list[list[int]]:
        """The views inside a tensor."""
        links: list[list[int]] = [[] for _ in self.of]
        fusion = self.problem.fusion.tolist()
        for enode, needs in enumerate(self.problem.egraph.kids):
            tensor = self.of[self.home[enode]]
            if fusion[enode] in VIEWS and self.of[needs[0]] == tensor:
                links[tensor].append(enode)
        return links


def _groups(problem: FusionProblem, kinds: frozenset[Fusion]) -> list[int]:
    """The lowest class of the group of every class.

    Classes that derive from each other by views of `kinds` are one group, and so is a class with
    what it is made of where all its e-nodes are such views of one group.
    """
    egraph, fusion, numel = problem.egraph, problem.fusion.tolist(), problem.numel.tolist()
    links: dict[int, list[int]] = {cls: [] for cls in range(egraph.num_classes)}
    only = [bool(enodes) for enodes in egraph.members]
    for enode, (cls, needs) in enumerate(zip(egraph.node_class.tolist(), egraph.kids, strict=True)):
        if fusion[enode] in kinds and numel[needs[0]] == numel[cls]:
            links[cls].append(needs[0])
        else:
            only[cls] = False
    lowest = np.arange(egraph.num_classes).tolist()
    for group in strongly_connected(links):  # each after those it leads to
        inside = set(group)
        outside = {lowest[c] for cls in group for c in links[cls] if c not in inside}
        if len(outside) == 1 and all(only[cls] for cls in group):
            name = outside.pop()
        else:
            name = min(group)
        for cls in group:
            lowest[cls] = name
    return lowest
