"""The kernels that Inductor will make of a graph, predicted without it: expand, lower, fuse, count.

Every rule is Inductor's and names the function of torch that it follows. Nothing of torch is asked
but the metas of the graph's nodes, so that a thousand nodes take a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any  # what a lowering returns depends on the operation

from torch.fx import Graph

from eqsat.cost.device import Device
from eqsat.cost.kernel import Kernel
from eqsat.cost.partition import calling, inlining, patterns, reducing
from eqsat.cost.partition.counting import kernels_of
from eqsat.cost.partition.expand import expand
from eqsat.cost.partition.fusion import fuse
from eqsat.cost.partition.lowering import Lowering
from eqsat.cost.partition.operation import Operation
from eqsat.cost.partition.steps import Library, Loop, Step, Value

LOWERINGS: dict[str, Callable[[Lowering, Operation], Any]] = {
    "input": inlining.inputs,
    "create": inlining.create,
    "pointwise": inlining.pointwise,
    "view": inlining.view,
    "item": inlining.item,
    "as_strided": inlining.as_strided,
    "gather": inlining.gather,
    "pad": inlining.pad,
    "cat": inlining.cat,
    "window": inlining.window,
    "avg_pool": inlining.pool,
    "max_pool": inlining.pool,
    "nearest": inlining.nearest,
    "bilinear": inlining.bilinear,
    "reduce": reducing.reduce,
    "moments": reducing.moments,
    "scan": reducing.scan,
    "mm": calling.mm,
    "bmm": calling.mm,
    "addmm": calling.addmm,
    "baddbmm": calling.addmm,
    "convolution": calling.convolution,
    "attention": calling.attention,
    "external": calling.external,
}
"""How each kind of operation is lowered."""


def partition(graph: Graph, device: Device) -> tuple[Kernel, ...]:
    """Returns the kernels that Inductor is predicted to launch for `graph` on `device`, in order.

    The nodes' `meta["val"]` are fake or meta tensors; placeholders and attributes are inputs.
    Captured graphs and graphs that were decomposed for Inductor have the same kernels. An operator
    that nothing is known of is a kernel of its own.
    """
    program, outputs = expand(graph, device)
    steps, returned = _lower(program.operations, outputs, device)
    gpu = device.backend == "triton"
    return tuple(kernels_of(fuse(steps, gpu), returned, gpu))


def _lower(
    operations: Sequence[Operation], outputs: list[Operation], device: Device
) -> tuple[list[Step], set[int]]:
    """The steps that compute `outputs`, and the numbers of the buffers that hold them."""
    kept = patterns.live(operations, outputs)
    lowering = Lowering(device, outputs)
    changed = patterns.drop_conversions(kept)
    if (lowering.gpu and patterns.join_softmax(kept)) or changed:
        kept = patterns.live(kept, outputs)
    kept = patterns.live(patterns.place_additions(kept, outputs, lowering.gpu), outputs)
    lowering.images = patterns.lays_out_images(kept, lowering.gpu)
    if lowering.images and not device.freezing:  # then convolutions are other calls by now
        lowering.prefer_channels_last = patterns.prefer_channels_last(kept)
    lowering.dislike_padding = patterns.dislike_padding(kept, outputs)
    for operation in kept:
        lowering.current = operation
        value = LOWERINGS[operation.kind](lowering, operation)
        if isinstance(value, Value):
            value = lowering.finish(operation, value)
        lowering.values[operation] = value
    lowering.current = None
    results = [(op, lowering.values[op]) for op in outputs]
    stored = [
        lowering.realized(value, op).cell.buffer
        for op, value in results
        if isinstance(value, Value)
    ]
    returned = {buffer.number for buffer in stored if buffer is not None}
    return _needed(lowering, returned), returned


def _needed(lowering: Lowering, returned: set[int]) -> list[Step]:
    """The steps that outputs need, with every layout decided (`dead_node_elimination`)."""
    for step in lowering.steps:
        if isinstance(step, Loop):
            lowering.decide_layout(step.buffer, step)
        elif isinstance(step, Library):
            for buffer in step.buffers:
                lowering.freeze(buffer)
    needed, kept = set(returned), list[Step]()
    for step in reversed(lowering.steps):
        if isinstance(step, Library):
            if needed.isdisjoint([buffer.number for buffer in step.buffers]):
                continue
            needed.update([buffer.number for buffer in step.reads])
        elif step.buffer.number not in needed or not step.buffer.numel:
            continue  # nothing launches for no elements
        elif isinstance(step, Loop):
            needed.update([buffer.number for buffer, _ in step.reads])
        else:
            needed.update([buffer.number for buffer in step.parts])
        kept.append(step)
    return kept[::-1]
