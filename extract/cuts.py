"""The kernels that might compute a tensor, as cuts: what they read, and the e-nodes from there on.

Cuts are built from the cuts of the operands, as FPGA mappers build those of a gate (J. Cong, C. Wu,
Y. Ding, Cut ranking and pruning, 1999), but over the e-nodes of a class and until nothing changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from extract.egraph import derivation
from extract.fusible import FUSIBLE, VIEWS, Fusion
from extract.tensors import Tensors

Key = tuple[frozenset[int], int, int, frozenset[int]]
"""Leaves, domain, order, and the tensors in the body that are worth storing."""

NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to compute a tensor: `body` are the e-nodes, one for each of the tensors `inside`,
    and `leaves` the tensors that they read. `stores` are those inside that are worth writing too.

    `domain` is that of the reductions in it, or -1, and then `order` is the order of elements in
    which it comes; `seconds` is what it costs without launch and writes, and `rank` an estimate
    that also counts the making of the leaves.
    """

    leaves: frozenset[int]
    domain: int
    order: int
    body: frozenset[int]
    inside: frozenset[int]
    stores: frozenset[int]
    seconds: float
    rank: float


EMPTY = Cut(NONE, -1, 0, NONE, NONE, NONE, 0.0, 0.0)
"""What needs nothing."""


@dataclass(frozen=True)
class Cuts:
    """The cuts of every tensor; `complete` if no cap has cut any off."""

    of: Sequence[Sequence[Cut]]
    complete: bool


def cuts(
    tensors: Tensors,
    *,
    stored: Collection[int] = (),
    chosen: Collection[int] | None = None,
) -> Cuts:
    """The cuts of every tensor that no other one is better than.

    Of two cuts the one with fewer leaves is better, unless the other has more tensors of `stored`
    inside, which its kernel can write as well. That is of no use where a leaf has needed the tensor
    itself: the kernel that computed it then can write it. With `chosen`, only of these e-nodes.
    """
    return _Enumeration(tensors, frozenset(stored), chosen).run()


class _Enumeration:
    def __init__(
        self, tensors: Tensors, stored: frozenset[int], chosen: Collection[int] | None
    ) -> None:
        problem = tensors.problem
        self.tensors, self.stored, self.caps = tensors, stored, problem.caps
        self.kids = problem.egraph.kids
        self.cost = problem.egraph.node_cost.tolist()
        self.fusion = [Fusion(kind) for kind in problem.fusion.tolist()]
        self.domain = problem.domain.tolist()
        self.read = problem.read.tolist()
        self.complete = True
        self.before = tensors.before(stored, chosen) if stored else {}
        allowed = None if chosen is None else frozenset(chosen)
        self.members = [
            [e for e in enodes if allowed is None or e in allowed] for enodes in tensors.members
        ]
        self.users = [
            [e for e in users if allowed is None or e in allowed] for users in tensors.users
        ]
        self.leaf = self._leaves()
        self.given = [
            self.read[tensor] == 0
            and any(
                self.fusion[e] is Fusion.OPAQUE and self.cost[e] == 0 and not self.kids[e]
                for e in members
            )
            for tensor, members in enumerate(self.members)
        ]
        self.weight = self._weights()
        self.of: list[list[Cut]] = [[] for _ in self.members]

    def run(self) -> Cuts:
        order = self._order()
        dirty = set(order)
        for _ in range(self.caps.sweeps):
            again: set[int] = set()
            for tensor in order:
                if tensor not in dirty:
                    continue
                found = self._cuts_of(tensor)
                if [_key(c) for c in found] != [_key(c) for c in self.of[tensor]]:
                    self.of[tensor] = found
                    again.update(
                        self.tensors.of[self.tensors.home[e]]
                        for e in self.users[tensor]
                        if self.fusion[e] is not Fusion.OPAQUE
                    )
            if not again:
                break
            dirty = again
        else:
            self.complete = False
        return Cuts(self.of, self.complete)

    def _order(self) -> list[int]:
        """The tensors that can be derived, each after the operands of one of its e-nodes."""
        of, home = self.tensors.of, self.tensors.home
        enodes = [e for members in self.members for e in members]
        return derivation(
            [of[home[e]] for e in enodes],
            [tuple(dict.fromkeys(of[c] for c in self.kids[e])) for e in enodes],
        )

    def _leaves(self) -> list[bool]:
        """Which tensors are worth reading: not those that are made of smaller ones by views."""
        of = self.tensors.of
        return [
            any(
                self.fusion[e] not in VIEWS or self.read[of[self.kids[e][0]]] > self.read[tensor]
                for e in members
            )
            for tensor, members in enumerate(self.members)
        ]

    def _weights(self) -> list[float]:
        """What reading a tensor is taken to cost in a rank: with a share of its own kernel."""
        launch, write = self.tensors.problem.launch, self.tensors.problem.write.tolist()
        weight = list(self.read)
        for tensor, members in enumerate(self.members):
            if all(self.fusion[e] in FUSIBLE for e in members):
                weight[tensor] += (launch + write[tensor]) / max(2, len(self.users[tensor]))
        return weight

    def _cuts_of(self, tensor: int) -> list[Cut]:
        best: dict[Key, Cut] = {}
        for enode in self.members[tensor]:
            if self.fusion[enode] is not Fusion.OPAQUE:
                for cut in self._cuts_by(enode, tensor):
                    key = (cut.leaves, cut.domain, cut.order, cut.stores)
                    if key not in best or cut.rank < best[key].rank:
                        best[key] = cut
        kept: list[Cut] = []
        ranked = sorted(best.values(), key=_place)
        for position, cut in enumerate(ranked):
            if not any(_better(other, cut) for other in kept):
                kept.append(cut)
                if len(kept) == self.caps.kernels:
                    self.complete &= position + 1 == len(ranked)
                    break
        return kept

    def _cuts_by(self, enode: int, tensor: int) -> list[Cut]:
        """The cuts of a tensor that have a certain e-node on top."""
        partial = [EMPTY]
        for child in self.kids[enode]:
            options = self._options(enode, child, tensor)
            merged: dict[Key, Cut] = {}
            for left in partial:
                for right in options:
                    cut = self._merged(left, right)
                    if cut is not None:
                        key = (cut.leaves, cut.domain, 0, cut.stores)
                        if key not in merged or cut.rank < merged[key].rank:
                            merged[key] = cut
            partial = sorted(merged.values(), key=_place)
            if len(partial) > 4 * self.caps.kernels:
                self.complete = False
                partial = partial[: 4 * self.caps.kernels]
        return [top for cut in partial if (top := self._topped(cut, enode, tensor))]

    def _options(self, enode: int, child: int, tensor: int) -> list[Cut]:
        """The ways for an e-node to have a child: in memory, or computed in the same kernel."""
        of = self.tensors.of[child]
        options: list[Cut] = []
        if self.given[of]:
            return [EMPTY]
        if self.leaf[of]:
            options.append(
                Cut(frozenset((of,)), -1, 0, NONE, NONE, NONE, self.read[of], self.weight[of])
            )
        moves, order = self.fusion[enode] is Fusion.MOVE, self.tensors.order[child]
        for cut in self.of[of]:
            if tensor in cut.inside or tensor in cut.leaves:
                continue
            if cut.domain < 0 or (not moves and cut.order == order):
                options.append(cut)
        return options

    def _merged(self, left: Cut, right: Cut) -> Cut | None:
        if not left.leaves and not left.body:
            return right
        if left.domain != right.domain and left.domain >= 0 <= right.domain:
            return None
        leaves = left.leaves | right.leaves
        if len(leaves) > self.caps.reads:
            return None
        body, inside = left.body | right.body, left.inside | right.inside
        if len(body) != len(inside) or not leaves.isdisjoint(inside):
            return None  # a tensor in two ways, or computed and read: it can be had in one
        if len(body) >= self.caps.enodes:
            return None
        stores = left.stores | right.stores
        return self._priced(leaves, max(left.domain, right.domain), 0, body, inside, stores)

    def _topped(self, cut: Cut, enode: int, tensor: int) -> Cut | None:
        """A cut with one more e-node on top, if its domain allows that."""
        cls = self.tensors.home[enode]
        domain = cut.domain
        if self.fusion[enode] is Fusion.REDUCTION:
            if domain not in (-1, self.domain[enode]):
                return None
            domain = self.domain[enode]
        elif domain >= 0 and not self.tensors.problem.fits(domain, cls):
            return None
        order = self.tensors.order[cls] if domain >= 0 else 0
        body, inside = cut.body | {enode}, cut.inside | {tensor}
        stores = cut.stores | {tensor} if tensor in self.stored else cut.stores
        return self._priced(cut.leaves, domain, order, body, inside, stores)

    def _priced(
        self,
        leaves: frozenset[int],
        domain: int,
        order: int,
        body: frozenset[int],
        inside: frozenset[int],
        stores: frozenset[int],
    ) -> Cut:
        work = sum(map(self.cost.__getitem__, sorted(body)))
        seconds = work + sum(map(self.read.__getitem__, sorted(leaves)))
        rank = work + sum(map(self.weight.__getitem__, sorted(leaves)))
        useless = (self.before.get(leaf, NONE) for leaf in leaves)
        stores = stores.difference(*useless) if stores else stores
        return Cut(leaves, domain, order, body, inside, stores, seconds, rank)


def _key(cut: Cut) -> tuple[frozenset[int], int, int, frozenset[int]]:
    return cut.leaves, cut.domain, cut.order, cut.body


def _place(cut: Cut) -> tuple[float, int, list[int], int, int, list[int]]:
    """The place of a cut among others: by rank, and then by anything that is always the same."""
    return cut.rank, len(cut.leaves), sorted(cut.leaves), cut.domain, cut.order, sorted(cut.body)


def _better(one: Cut, other: Cut) -> bool:
    """Whether `one` can stand for `other`."""
    return (
        one.leaves <= other.leaves
        and (one.domain < 0 or (one.domain == other.domain and one.order == other.order))
        and one.seconds <= other.seconds
        and other.stores <= one.stores
    )
