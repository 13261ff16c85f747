"""One primitive operation of a program that is partitioned, and the program as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # attributes are arbitrary arguments of operators

import torch

from eqsat.cost.partition.access import contiguous
from eqsat.cost.partition.shapes import broadcast, normal_axes, reduced_shape, reshaped_strides

HALF = (torch.bfloat16, torch.float16)


class Operation:
    """A value and the primitive operation that makes it, after composites are expanded."""

    __slots__ = (
        "attrs",
        "dtype",
        "inputs",
        "kind",
        "name",
        "node",
        "shape",
        "strides",
        "uniform",
        "users",
    )

    def __init__(
        self,
        kind: str,
        name: str,
        inputs: Sequence[Operation],
        shape: tuple[int, ...],
        dtype: torch.dtype,
        node: str,
        attrs: Any = (),
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.kind = kind
        """What lowering does with it: a key of `lowering.LOWERINGS`."""
        self.name = name
        """The short ATen name of what is computed."""
        self.inputs = tuple(inputs)
        self.shape = shape
        self.dtype = dtype
        self.node = node
        """The name of the FX node that it is a part of."""
        self.attrs = attrs
        self.strides = contiguous(shape) if strides is None else strides
        """The strides that eager PyTorch gives it."""
        self.users: list[Operation] = []
        self.uniform: float | None = None
        """The value of every element, where that is known."""

    @property
    def is_dense(self) -> bool:
        """Whether eager PyTorch has it row-major (`Tensor.is_contiguous`)."""
        row_major = contiguous(self.shape)
        return self.strides == row_major or all(
            n == 1 or a == b for n, a, b in zip(self.shape, self.strides, row_major, strict=True)
        )

    def __repr__(self) -> str:
        inputs = ", ".join(operand.node for operand in self.inputs)
        return f"{self.kind}:{self.name}({inputs}) -> {self.shape} in {self.node}"


class Program:
    """Operations in the order in which Inductor lowers them; every method adds one at the end."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.node = ""
        """The name of the FX node that is being expanded."""

    def add(
        self,
        kind: str,
        name: str,
        inputs: Sequence[Operation],
        shape: tuple[int, ...],
        dtype: torch.dtype,
        attrs: Any = (),
        strides: tuple[int, ...] | None = None,
    ) -> Operation:
        """The result of an operation of any kind."""
        operation = Operation(kind, name, inputs, shape, dtype, self.node, attrs, strides)
        self.operations.append(operation)
        return operation

    def pointwise(
        self,
        name: str,
        *operands: Any,  # operations and numbers
        dtype: torch.dtype | None = None,
        shape: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> Operation:
        """An element-by-element operation, broadcast; numbers become constants of the kernel."""
        tensors = [operand for operand in operands if isinstance(operand, Operation)]
        numbers = tuple([operand for operand in operands if not isinstance(operand, Operation)])
        if shape is None:
            shape = broadcast([tensor.shape for tensor in tensors])
        if dtype is None:
            dtype = widest(tensors)
        if name in ("mul", "add", "sub", "div") and len(operands) == 2:
            same = self._unchanged(name, operands, shape, dtype)
            if same is not None:
                return same
        if strides is None:
            strides = _like(tensors, shape)
        result = self.add("pointwise", name, tensors, shape, dtype, numbers, strides)
        if tensors and all(tensor.uniform is not None for tensor in tensors):
            result.kind, result.uniform, result.inputs = "create", float("nan"), ()
        return result

    def _unchanged(
        self, name: str, operands: Sequence[Any], shape: tuple[int, ...], dtype: torch.dtype
    ) -> Operation | None:
        """The operand that adding a tensor of zeros or multiplying by ones leaves as it is.

        `remove_no_ops` in torch/_inductor/fx_passes/joint_graph.py; numbers are not looked at.
        """
        neutral = 1 if name in ("mul", "div") else 0
        for this, other in ((0, 1), (1, 0)):
            if this == 1 and name in ("sub", "div"):
                break
            kept, gone = operands[this], operands[other]
            if not (isinstance(kept, Operation) and isinstance(gone, Operation)):
                continue
            if gone.uniform == neutral and kept.shape == shape:
                return kept if kept.dtype is dtype else self.convert(kept, dtype)
        return None

    def convert(self, x: Operation, dtype: torch.dtype) -> Operation:
        """`x` in another dtype; `x` itself in its own."""
        if x.dtype is dtype:
            return x
        result = self.add("pointwise", "convert_element_type", (x,), x.shape, dtype, (), x.strides)
        if x.uniform is not None:
            result.kind, result.uniform, result.inputs = "create", x.uniform, ()
        return result

    def upcast(self, x: Operation) -> Operation:
        """`x` in the dtype that half-precision decompositions compute in."""
        return self.convert(x, torch.float32) if x.dtype in HALF else x

    def reshape(self, x: Operation, shape: Sequence[int]) -> Operation:
        """A view, or a copy where eager PyTorch needs one; `x` itself in its own shape."""
        target = tuple(shape)
        if target == x.shape:
            return x
        strides = reshaped_strides(x.shape, x.strides, target)
        if strides is None:
            x = self.clone(x)
        return self.view("view", x, ("reshape", target), target, strides)

    def clone(self, x: Operation) -> Operation:
        """A row-major copy."""
        return self.add("pointwise", "clone", (x,), x.shape, x.dtype)

    def permute(self, x: Operation, order: Sequence[int]) -> Operation:
        """The dimensions in another order."""
        order = tuple(order)
        shape = tuple([x.shape[i] for i in order])
        strides = tuple([x.strides[i] for i in order])
        return self.view("permute", x, ("permute", order), shape, strides)

    def transpose(self, x: Operation, first: int, second: int) -> Operation:
        """Two dimensions exchanged."""
        order = list(range(len(x.shape)))
        order[first], order[second] = order[second], order[first]
        return self.permute(x, order)

    def expand(self, x: Operation, shape: Sequence[int]) -> Operation:
        """`x` broadcast to `shape`; `x` itself in its own."""
        target = tuple(shape)
        if target == x.shape:
            return x
        added = len(target) - len(x.shape)
        strides = (0,) * added + tuple(
            [
                stride if n == size else 0
                for n, size, stride in zip(target[added:], x.shape, x.strides, strict=True)
            ]
        )
        return self.view("expand", x, ("expand", target), target, strides)

    def view(
        self,
        name: str,
        x: Operation,
        attrs: tuple[Any, ...],
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
    ) -> Operation:
        """A view: `attrs` is a function of `access` and its arguments."""
        result = self.add("view", name, (x,), shape, x.dtype, attrs, strides)
        result.uniform = x.uniform
        return result

    def reduce(
        self, name: str, x: Operation, axes: Sequence[int], keep: bool, dtype: torch.dtype
    ) -> Operation:
        """A reduction over some dimensions."""
        dims = normal_axes(axes, len(x.shape))
        shape = reduced_shape(x.shape, dims, keep)
        return self.add("reduce", name, (x,), shape, dtype, (dims,))

    def moments(self, x: Operation, axes: Sequence[int]) -> tuple[Operation, Operation]:
        """The variance and the mean over some dimensions, which stay with size 1."""
        dims = normal_axes(axes, len(x.shape))
        shape = reduced_shape(x.shape, dims, True)
        both = self.add("moments", "var_mean", (x,), shape, x.dtype, (dims,))
        return self.item(both, 0, shape, x.dtype), self.item(both, 1, shape, x.dtype)

    def item(
        self,
        x: Operation,
        position: int,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        strides: tuple[int, ...] | None = None,
    ) -> Operation:
        """One of the results of an operation that has several."""
        return self.add("item", "getitem", (x,), shape, dtype, position, strides)

    def full(self, shape: tuple[int, ...], dtype: torch.dtype, value: float | None) -> Operation:
        """A tensor that no memory is read for; `value` where every element is the same."""
        result = self.add("create", "full", (), shape, dtype)
        result.uniform = value
        return result


def widest(tensors: Sequence[Operation]) -> torch.dtype:
    """The dtype that tensors are promoted to; those without dimensions count less."""
    if not tensors:
        return torch.float32
    result = tensors[0].dtype
    for tensor in tensors[1:]:
        if tensor.dtype is not result:
            result = torch.promote_types(result, tensor.dtype)
    return result


def _like(tensors: Sequence[Operation], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an elementwise result: those of the first dense operand of its shape."""
    row_major = contiguous(shape)
    for tensor in tensors:
        if tensor.shape == shape and (
            tensor.strides == row_major or sorted(tensor.strides) == sorted(row_major)
        ):
            return tensor.strides
    return row_major
