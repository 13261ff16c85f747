"""What a lowering makes: buffers, the values in them or to be, and the steps that compute them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any  # arguments of views, and what does some work, are arbitrary

import torch

from eqsat.cost.kernel import Product
from eqsat.cost.partition.access import Index
from eqsat.cost.partition.operation import Operation

View = tuple[Any, ...]
"""The name of a function of `access` and its arguments."""
Work = dict[Any, int]
"""IR operations by what does them: an operation, or a constant."""


class Buffer:
    """A tensor in memory."""

    __slots__ = ("dtype", "kind", "number", "numel", "shape", "start", "strides")

    def __init__(self, number: int, kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.number = number
        self.kind = kind
        """input, loop, library, fallback or concat."""
        self.shape = shape
        self.numel = math.prod(shape)
        self.dtype = dtype
        self.strides: tuple[int, ...] | None = None
        """None while the layout is flexible."""
        self.start = 0
        """Elements before the first, for a part of a concatenation."""

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return self.numel * self.dtype.itemsize


Read = tuple[Buffer, Index]


class Cell:
    """The storage of a value: an expression over `reads` until `buffer` holds it (`StorageBox`)."""

    __slots__ = ("buffer", "dtype", "reads", "shape", "work")

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, reads: Iterable[Read], work: Work
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.reads = tuple(reads)
        self.work = work
        self.buffer: Buffer | None = None

    @property
    def inlined(self) -> bool:
        """Whether loads compute it: it is no memory yet, or reads none (`make_loader`, ir.py)."""
        return self.buffer is None or (not self.reads and bool(self.work))

    def operations(self) -> int:
        """The IR operations of the expression, loads and constants too (`OpCounterCSE`).

        A clone is none: it loads what it copies.
        """
        clones = [one for one in self.work if getattr(one, "name", None) == "clone"]
        return sum(self.work.values()) - len(clones) + len(self.reads)


class Value:
    """A tensor: a storage and the views through which it is seen."""

    __slots__ = ("cell", "shape", "strided", "views")

    def __init__(
        self, cell: Cell, views: tuple[View, ...] = (), shape: Any = None, strided: bool = False
    ) -> None:
        self.cell = cell
        self.views = views
        self.shape: tuple[int, ...] = cell.shape if shape is None else shape
        self.strided = strided
        """Whether its views were taken of memory (`ReinterpretView`), not of an expression."""

    @property
    def is_stored(self) -> bool:
        """Whether it is memory already (`is_storage_and_layout`)."""
        return self.cell.buffer is not None and (self.strided or not self.views)


class Loop:
    """A buffer that is computed by loops: `reads` index over `shape` and then over `reduced`."""

    __slots__ = ("buffer", "reads", "reduced", "shape", "work", "write")

    def __init__(
        self,
        buffer: Buffer,
        shape: tuple[int, ...],
        reduced: tuple[int, ...],
        reads: tuple[Read, ...],
        write: Index,
        work: Work,
    ) -> None:
        self.buffer = buffer
        self.shape = shape
        self.reduced = reduced
        self.reads = reads
        self.write = write
        self.work = work


class Library:
    """A call of a library: a product, a convolution, an attention, or what nothing is known of."""

    __slots__ = ("buffers", "operation", "product", "reads")

    def __init__(
        self,
        operation: Operation,
        reads: Sequence[Buffer],
        buffers: Sequence[Buffer],
        product: Product | None,
    ) -> None:
        self.operation = operation
        self.reads = tuple(dict.fromkeys(reads))
        self.buffers = tuple(buffers)
        self.product = product


class Concat:
    """A buffer that other buffers are the parts of; no kernel (`ConcatKernel`, ir.py)."""

    __slots__ = ("buffer", "parts")

    def __init__(self, buffer: Buffer, parts: Sequence[Buffer]) -> None:
        self.buffer = buffer
        self.parts = tuple(parts)


Step = Loop | Library | Concat
"""What is launched, or takes the place of a launch, in order."""
