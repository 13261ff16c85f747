"""The time of a whole graph, by the kernels that Inductor is predicted to make of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rich.console import Group, RenderableType
from rich.text import Text
from torch.fx import Graph, GraphModule

from eqsat.cost.device import Device, Mode, load
from eqsat.cost.kernel import Kernel
from eqsat.cost.partition import partition
from eqsat.cost.roofline import Times, time
from eqsat.table import duration, plain, size, table

EQUAL = 1e-9  # of a time: below it two are the same
ROWS = 20  # of a printed table


@dataclass(frozen=True)
class Work:
    """What a kernel does, apart from where: kernels of equal work cost the same."""

    kind: str
    counted: tuple[tuple[str, int], ...]
    """How often each operator is computed, in alphabetical order."""
    operators: tuple[str, ...] = field(compare=False)
    """The operators in the order of one such kernel; another may have them in another."""
    sizes: tuple[int, ...]
    """(batch, m, n, k) of a product; otherwise the elements, and how many are reduced to one."""
    dtype: str

    @staticmethod
    def of(kernel: Kernel) -> Work:
        """The work of `kernel`."""
        sizes = kernel.product or (kernel.numel, *([kernel.rnumel] if kernel.rnumel > 1 else []))
        dtype = str(kernel.dtype).removeprefix("torch.")
        counted = tuple(sorted(Counter(kernel.operators).items()))
        return Work(kernel.kind, counted, kernel.operators, tuple(sizes), dtype)

    def __str__(self) -> str:
        """`mm 128x768x3072 bfloat16`; what is repeated is counted, and a long list is cut."""
        counted = Counter(self.operators)
        names = [name if n == 1 else f"{name} x{n}" for name, n in counted.items()]
        shown = " ".join(names[:5]) + (f" +{len(names) - 5}" if len(names) > 5 else "")
        sizes = self.sizes[1:] if len(self.sizes) == 4 and self.sizes[0] == 1 else self.sizes
        return f"{shown}, {'x'.join(map(str, sizes))} {self.dtype}"


@dataclass(frozen=True)
class Row:
    """Kernels that do the same: how many, seconds and bytes of all of them, what bounds them."""

    work: Work
    count: int
    seconds: float
    bytes: int
    bound: str


@dataclass(frozen=True)
class Prediction:
    """What a program is predicted to cost on a device: not measured there.

    `times` has the seconds of the whole and of each of `kernels`.
    """

    device: str
    mode: Mode
    kernels: tuple[Kernel, ...]
    times: Times

    @property
    def seconds(self) -> float:
        """The time of one call, the base cost of a call included."""
        return self.times.seconds

    @cached_property
    def bytes(self) -> int:
        """Bytes that the kernels read and write."""
        return sum(kernel.bytes for kernel in self.kernels)

    @cached_property
    def flops(self) -> int:
        """FLOPs of matrix products, convolutions and attentions."""
        return sum(kernel.flops for kernel in self.kernels)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The kernels, those of equal work as one row, the longest time first."""
        members: dict[Work, list[int]] = {}
        for i, kernel in enumerate(self.kernels):
            members.setdefault(Work.of(kernel), []).append(i)
        rows = [
            Row(
                work,
                len(which),
                sum(self.times.kernels[i] for i in which),
                sum(self.kernels[i].bytes for i in which),
                self.times.bounds[which[0]],
            )
            for work, which in members.items()
        ]
        return tuple(sorted(rows, key=lambda row: -row.seconds))

    def improves(self, other: Prediction, margin: float) -> bool:
        """Whether it is better than `other` by a `margin`, a share of the time.

        What is faster by less than that, or as fast, is better where it has fewer kernels and
        launching those of `other` takes at least the margin of its time: the number of kernels is
        surer than what each takes, and says nothing where launches do not count, as on a CPU. With
        as many kernels less time on the device by that margin is better, where launches hide what
        the device does. A negative margin takes also what is that much slower: with minus infinity
        everything improves.
        """
        share = 1 - (max(margin, EQUAL) if margin >= 0 else margin)
        if self.seconds < other.seconds * share:
            return True
        if self.seconds > other.seconds * (1 + EQUAL):
            return False
        if len(self.kernels) != len(other.kernels):
            launches = max(other.times.host, other.times.gaps)
            fewer = len(self.kernels) < len(other.kernels)
            return fewer and launches >= other.seconds * max(margin, 0.0)
        return self.times.device < other.times.device * share

    def __str__(self) -> str:
        """The totals, and the table of kernels, as plain text."""
        return plain(self.__rich__())

    def __rich__(self) -> RenderableType:
        """The totals, and the table of kernels."""
        t = self.times
        head = Text(
            f"predicted {duration(self.seconds)} on {self.device} ({self.mode} launches): "
            f"{len(self.kernels)} kernels, {size(self.bytes)}, {self.flops / 1e9:.3g} GFLOP; "
            f"host {duration(t.host)}, device {duration(t.device)}",
            "bold",
        )
        rows = [
            (str(r.count), r.work.kind, str(r.work), size(r.bytes), duration(r.seconds), r.bound)
            for r in self.rows
        ]
        columns = ("n", "kind", "what", "bytes", "time", "bound by")
        return Group(head, *table("Kernels", columns, _cut(rows, 2)))


@dataclass(frozen=True)
class Change:
    """Kernels of one work in two programs: how many, and the seconds of all of them."""

    work: Work
    before: int
    after: int
    seconds_before: float
    seconds_after: float


@dataclass(frozen=True)
class Explanation:
    """Why one program is predicted to be cheaper than another: the kernels that differ."""

    before: Prediction
    after: Prediction

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The works that one program does more often, the largest difference in time first."""
        old = {row.work: row for row in self.before.rows}
        new = {row.work: row for row in self.after.rows}
        changes = [Change(work, *_counts(work, old, new)) for work in dict.fromkeys([*old, *new])]
        changed = (change for change in changes if change.before != change.after)
        return tuple(sorted(changed, key=lambda c: -abs(c.seconds_after - c.seconds_before)))

    def __str__(self) -> str:
        """The totals side by side, and the kernels that differ, as plain text."""
        return plain(self.__rich__())

    def __rich__(self) -> RenderableType:
        """The totals side by side, and the kernels that differ."""
        return Group(Text(self.headline(), "bold"), *self.table())

    def headline(self) -> str:
        """One sentence: the totals of both programs."""
        a, b = self.before, self.after
        return (
            f"predicted {duration(a.seconds)} -> {duration(b.seconds)} on {a.device}: "
            f"kernels {len(a.kernels)} -> {len(b.kernels)}, traffic {size(a.bytes)} -> "
            f"{size(b.bytes)}, GFLOP {a.flops / 1e9:.3g} -> {b.flops / 1e9:.3g}, "
            f"device {duration(a.times.device)} -> {duration(b.times.device)}"
        )

    def table(self) -> list[RenderableType]:
        """The kernels that one program has and the other has not, or has less often."""
        rows = [
            (
                str(c.before),
                str(c.after),
                _time(c.seconds_before),
                _time(c.seconds_after),
                c.work.kind,
                str(c.work),
            )
            for c in self.changes
        ]
        columns = ("before", "after", "time before", "time after", "kind", "what")
        return table("Kernels that differ", columns, _cut(rows, 5))


@dataclass(frozen=True)
class CostModel:
    """The predicted time of graphs on one device, kernels launched on a stream or in a CUDA graph.

    >>> CostModel.of("h200").mode
    'stream'
    """

    device: Device
    mode: Mode = "stream"

    @staticmethod
    def of(device: str | os.PathLike[str] | Device, mode: Mode = "stream") -> CostModel:
        """The model of a device by the name, CUDA name or file of its profile (`load`)."""
        return CostModel(device if isinstance(device, Device) else load(device), mode)

    def estimate(self, graph: Graph | GraphModule) -> Prediction:
        """The kernels that Inductor would make of an ATen graph, and what they cost.

        Every node carries `meta["val"]`, as torch.export leaves it.
        """
        kernels = partition(graph.graph if isinstance(graph, GraphModule) else graph, self.device)
        return Prediction(
            self.device.name, self.mode, kernels, time(kernels, self.device, self.mode)
        )

    def explain(self, a: Graph | GraphModule, b: Graph | GraphModule) -> Explanation:
        """Why `b` is cheaper than `a`, or dearer: the kernels that only one of them needs."""
        return Explanation(self.estimate(a), self.estimate(b))


def _counts(
    work: Work, old: Mapping[Work, Row], new: Mapping[Work, Row]
) -> tuple[int, int, float, float]:
    """How often and how long each of two programs does `work`."""
    a, b = old.get(work), new.get(work)
    return (a.count if a else 0, b.count if b else 0, a.seconds if a else 0, b.seconds if b else 0)


def _time(seconds: float) -> str:
    return duration(seconds) if seconds else "-"


def _cut(rows: Sequence[tuple[str, ...]], column: int) -> list[tuple[str, ...]]:
    """The first rows, and in a last one, in `column`, how many more there are."""
    if len(rows) <= ROWS:
        return list(rows)
    more = [""] * len(rows[0])
    more[column] = f"... and {len(rows) - ROWS + 1} more rows"
    return [*rows[: ROWS - 1], tuple(more)]
