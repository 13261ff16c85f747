"""What loops read and write together, and whether that lets them be one kernel (scheduler.py)."""

from __future__ import annotations

from eqsat.cost.partition.loops import Dependency, Part, merged, order_to_match, sorted_walk
from eqsat.cost.partition.tiling import is_compatible, select_tiling

Parts = tuple[Part, ...]


class Accesses:
    """What some loops read and write together (`ReadWrites.merge_list`)."""

    __slots__ = (
        "all", "numel", "parts", "reads", "reduces", "rnumel", "tiling", "writes", "written",
    )  # fmt: skip

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        lead = next((part for part in parts if part.is_reduction), parts[0])
        self.reduces = lead.is_reduction
        self.numel, self.rnumel = lead.numel, lead.rnumel
        self.writes = {part.write.key: part.write for part in parts}
        self.reads = {
            read.key: read for part in parts for read in part.reads if read.key not in self.writes
        }
        self.all = {**self.reads, **self.writes}
        self.written = {part.write.buffer.number for part in parts}
        self.tiling = () if self.reduces else select_tiling(parts)


def same_space(one: Accesses, other: Accesses) -> bool:
    """Whether the iteration spaces are those of one kernel (`SIMDScheduling.can_fuse`)."""
    if one.reduces and other.reduces:
        return one.numel == other.numel and one.rnumel == other.rnumel
    if not one.reduces and not other.reduces:
        return one.numel == other.numel
    reduction, pointwise = (one, other) if one.reduces else (other, one)
    return pointwise.numel in (reduction.numel * reduction.rnumel, reduction.numel)


def shared_bytes(one: Accesses, other: Accesses) -> int:
    """Bytes of the accesses that both make (`score_fusion_memory`)."""
    if len(one.all) > len(other.all):
        one, other = other, one
    theirs = other.all
    return sum([access.bytes for key, access in one.all.items() if key in theirs])


def after_reordering(one: Accesses, other: Accesses, shared: int) -> tuple[Accesses, Accesses, int]:
    """The two with loops in an order that lets them share more, and the bytes they share then.

    `shared_data_after_reordering_loop`: pointwise loops take the order of the other's accesses of
    a buffer that both touch; or they are counted as the other's reduction counts.
    """
    pair = _pair_to_match(one, other)
    if pair is not None:
        mine, theirs = pair
        if len(mine.loops) != len(theirs.loops):
            if merged(mine.loops) == merged(theirs.loops):
                return one, other, mine.bytes
        elif not one.reduces:
            changed = _reordered(one, order_to_match(mine.loops, theirs.loops), len(mine.loops))
            if changed is not None:
                return changed, other, shared_bytes(changed, other)
        elif not other.reduces:
            changed = _reordered(other, order_to_match(theirs.loops, mine.loops), len(mine.loops))
            if changed is not None:
                return one, changed, shared_bytes(one, changed)
    changed_one, changed_other = reindexed(one, other)
    if changed_one is not one or changed_other is not other:
        return changed_one, changed_other, shared_bytes(changed_one, changed_other)
    return one, other, shared


def _pair_to_match(one: Accesses, other: Accesses) -> tuple[Dependency, Dependency] | None:
    """The accesses of one buffer that differ by the order of loops only; the most important."""
    mine = {d.buffer.number: d for d in (*one.reads.values(), *one.writes.values())}
    theirs = {d.buffer.number: d for d in (*other.reads.values(), *other.writes.values())}
    best: tuple[tuple[bool, int], Dependency, Dependency] | None = None
    for number, access in mine.items():
        match = theirs.get(number)
        if match is None:
            continue
        flows = (number in one.written) != (number in other.written)
        same = access.key[1:3] == match.key[1:3]
        if same and sorted_walk(access.loops) == sorted_walk(match.loops):
            rank = (flows, access.bytes)
            if best is None or rank > best[0]:
                best = (rank, access, match)
        elif flows:
            write, read = (access, match) if number in one.written else (match, access)
            sizes = {size for size, _ in merged(read.loops)}
            if not all(size in sizes for size, _ in merged(write.loops)):
                return None
    return None if best is None else best[1:]


def _reordered(accesses: Accesses, order: tuple[int, ...] | None, loops: int) -> Accesses | None:
    sizes = accesses.parts[0].sizes
    if order is None or len(sizes) != loops:
        return None
    if any(part.sizes != sizes for part in accesses.parts):
        return None
    return Accesses(tuple([part.reordered(order) for part in accesses.parts]))


def reindexed(one: Accesses, other: Accesses) -> tuple[Accesses, Accesses]:
    """The two with the pointwise loops counted as the other's reduction counts, if that helps.

    `_try_reindex_pointwise_for_reduction`.
    """
    if one.reduces == other.reduces:
        return one, other
    reduction, pointwise = (one, other) if one.reduces else (other, one)
    target = (reduction.numel, reduction.rnumel)
    if any(part.numel != target[0] * target[1] for part in pointwise.parts):
        return one, other
    if all(part.sizes == target for part in pointwise.parts):
        return one, other
    parts = [part.over(target) for part in pointwise.parts]
    if not all(is_compatible(target, part.sizes) for part in pointwise.parts) or None in parts:
        return one, other
    changed = Accesses(tuple([part for part in parts if part is not None]))
    theirs = {(d.key[:3], merged(d.loops)) for d in reduction.all.values()}
    if not any((d.key[:3], merged(d.loops)) in theirs for d in changed.all.values()):
        return one, other
    return (one, changed) if one.reduces else (changed, other)


def reads_match(producer: Accesses, consumer: Accesses) -> bool:
    """Whether every read of what the producer writes is where it writes (`can_fuse_vertical`)."""
    for read in consumer.reads.values():
        if read.buffer.number in producer.written and read.key not in producer.writes:
            writes = [w for w in producer.writes.values() if w.buffer is read.buffer]
            if not any(_is_same_place(read, write) for write in writes):
                return False
    return True


def _is_same_place(read: Dependency, write: Dependency) -> bool:
    """Whether a read is of the element that was just written (`fusable_read_and_write`)."""
    if read.key[1:3] != write.key[1:3]:
        return False
    mine, theirs = read.loops, write.loops
    if mine[: len(theirs)] == theirs:
        return True
    if len(mine) == len(theirs):
        return False
    mine, theirs = merged(mine), merged(theirs)
    return mine[: len(theirs)] == theirs


def tilings_match(one: Accesses, other: Accesses) -> bool:
    if one.reduces and other.reduces:
        return True
    if not one.reduces and not other.reduces:
        return not _mixes_tilings(one, other)
    reduction, pointwise = (one, other) if one.reduces else (other, one)
    if pointwise.numel != reduction.numel * reduction.rnumel:
        return True
    target = (reduction.numel, reduction.rnumel)
    if not all(is_compatible(target, part.sizes) for part in pointwise.parts):
        return False
    return pointwise.tiling in ((pointwise.numel,), target)


def _mixes_tilings(one: Accesses, other: Accesses) -> bool:
    """Whether both in one kernel would be tiled in another way (`SIMDScheduling.can_fuse`)."""
    first, second = one.tiling, other.tiling
    if len(first) <= 1 and len(second) <= 1:
        return False
    both = select_tiling((*one.parts, *other.parts))
    if len(first) > 1:
        return not (first == second == both) if len(second) > 1 else first != both
    return second != both
