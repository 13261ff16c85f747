"""The kernels that groups of fused steps are, with the bytes that Inductor's scheduler counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import torch

from eqsat.cost.kernel import Kernel
from eqsat.cost.partition.access import Chosen
from eqsat.cost.partition.fusion import Group
from eqsat.cost.partition.loops import Dependency, Part
from eqsat.cost.partition.operation import Operation
from eqsat.cost.partition.sharing import Accesses
from eqsat.cost.partition.steps import Buffer, Library, Loop
from eqsat.cost.partition.vocabulary import GATHER_ON_CPU, NEEDS_REALIZED, TRANSCENDENTAL


def kernels_of(groups: Sequence[Group], returned: set[int], gpu: bool) -> Iterable[Kernel]:
    """Returns the kernels of groups that run in this order; `returned` buffers are results."""
    readers: defaultdict[int, set[Group]] = defaultdict(set)
    for group in groups:
        for number in _read_numbers(group):
            readers[number].add(group)
    for group in groups:
        if isinstance(group.step, Library):
            yield _library_kernel(group.step)
        elif isinstance(group.step, Loop) and group.accesses is not None:
            kept = {
                number
                for number in group.accesses.written
                if number in returned or readers[number] - {group}
            }
            yield _loop_kernel(group.accesses, kept, gpu)


def _read_numbers(group: Group) -> list[int]:
    if group.accesses is not None:
        return [access.buffer.number for access in group.accesses.reads.values()]
    if isinstance(group.step, Library):
        return [buffer.number for buffer in group.step.reads]
    return [] if isinstance(group.step, Loop) else [part.number for part in group.step.parts]


def _library_kernel(step: Library) -> Kernel:
    op, product = step.operation, step.product
    return Kernel(
        kind="extern",
        operators=(op.name,),
        nodes=(op.node,),
        read=sum([buffer.bytes for buffer in step.reads]),
        written=sum([buffer.bytes for buffer in step.buffers]),
        flops=product.flops() if product else 0,
        numel=step.buffers[0].numel,
        rnumel=1,
        dtype=_widest([buffer.dtype for buffer in step.reads or step.buffers]),
        product=product,
    )


def _loop_kernel(accesses: Accesses, kept: set[int], gpu: bool) -> Kernel:
    """A generated kernel; what it writes and no other kernel reads stays in registers."""
    parts = accesses.parts
    if len(parts) == 1:
        kept = accesses.written
    inside = accesses.written - kept
    reads = [read for read in accesses.reads.values() if read.buffer.number not in inside]
    writes = [write for write in accesses.writes.values() if write.buffer.number in kept]
    limit = parts[0].numel * parts[0].rnumel if len(parts) == 1 else None
    work, transcendental = _arithmetic(parts, gpu)
    operations = _operations(parts)
    return Kernel(
        kind="reduction" if accesses.reduces else "pointwise",
        operators=tuple([_name(op) for op in operations]),
        nodes=tuple(dict.fromkeys([op.node for op in operations])),
        read=sum(_bytes(reads, limit).values()),
        written=sum(_bytes(writes, limit).values()),
        flops=0,
        numel=accesses.numel,
        rnumel=accesses.rnumel,
        dtype=_widest([access.buffer.dtype for access in accesses.all.values()]),
        work=work,
        transcendental=transcendental,
        strided=_strided(parts, _bytes(reads, limit) | _bytes(writes, limit)),
    )


def _bytes(accesses: Sequence[Dependency], limit: int | None) -> dict[int, int]:
    """The bytes of each buffer: all of it, but no more than `limit` elements for each access.

    `BaseSchedulerNode.get_read_write_buffer_accesses` (scheduler.py); fused loops have no limit.
    """
    buffers: dict[int, Buffer] = {}
    count: defaultdict[int, int] = defaultdict(int)
    for access in accesses:
        buffers[access.buffer.number] = access.buffer
        count[access.buffer.number] += 1
    return {
        number: buffer.bytes
        if limit is None
        else min(buffer.numel, limit * count[number]) * buffer.dtype.itemsize
        for number, buffer in buffers.items()
    }


def _strided(parts: Sequence[Part], counted: Mapping[int, int]) -> int:
    """Those bytes that some access does not walk through one by one in its innermost loop."""
    found: dict[int, int] = {}
    for part in parts:
        loops = len(part.sizes) + len(part.reduced)
        for access in (part.write, *part.reads):
            number, walk = access.buffer.number, access.loops
            if number in counted and walk and len(walk) == loops and abs(walk[-1][1][-1][1]) > 1:
                found[number] = counted[number]
    return sum(found.values())


def _operations(parts: Sequence[Part]) -> list[Operation]:
    found: dict[Operation, None] = {}
    for part in parts:
        found.update(dict.fromkeys([op for op in part.loop.work if isinstance(op, Operation)]))
    return list(found)


def _name(op: Operation) -> str:
    """What a kernel computes of an operation; of a call of a library it copies an operand."""
    return "clone" if op.kind in NEEDS_REALIZED and op.kind not in _GENERATED else op.name


_GENERATED = ("as_strided", "avg_pool", "max_pool", "nearest")


def _arithmetic(parts: Sequence[Part], gpu: bool) -> tuple[int, float]:
    """Arithmetic of all elements, and evaluations of exp and its like in units of one exp.

    Reads that a CPU makes element by element, since the loop cannot be vectorized, are among them.
    """
    work, transcendental = 0, 0.0
    for part in parts:
        elements = part.numel * part.rnumel
        for op, count in part.loop.work.items():
            if isinstance(op, Operation):
                work += elements * count
                transcendental += elements * TRANSCENDENTAL.get(op.name, 0.0)
        if not gpu:
            transcendental += elements * GATHER_ON_CPU * _gathers(part)
    return work, transcendental


def _gathers(part: Part) -> int:
    """The reads at a place that other values choose anew in each step of the innermost loop."""
    loops = len(part.sizes) + len(part.reduced)
    walked = {read.buffer.number for read in part.reads if len(read.loops) == loops}
    count = 0
    for read in part.reads:
        chosen = [tag for tag in read.tag if isinstance(tag, Chosen)]
        if len(read.loops) < loops and chosen:
            count += any(not c.indices or not walked.isdisjoint(c.indices) for c in chosen)
    return count


def _widest(dtypes: Sequence[torch.dtype]) -> torch.dtype:
    floats = [d for d in dtypes if d.is_floating_point or d.is_complex]
    return max(floats or dtypes or [torch.float32], key=lambda d: (d.itemsize, str(d)))
