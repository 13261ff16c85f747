"""What torch is given in place of its own while it is told of a card that is not there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any  # what is replaced is whatever torch keeps there

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch.utils._python_dispatch import TorchDispatchMode

from eqsat.cost.inductor.card import Card

StandIn = Callable[[Card, Any], object]
"""Makes the replacement from the card and from the original."""


def answer(value: object) -> StandIn:
    """A stand-in that returns `value`, whatever it is called with."""
    return ask(lambda _: value)


def ask(question: Callable[[Card], object]) -> StandIn:
    """A stand-in that returns what `question` finds in the card, whatever it is called with."""

    def make(card: Card, _: Any) -> object:
        found = question(card)
        return lambda *_args, **_kwargs: found

    return make


def static(make: StandIn) -> StandIn:
    """The same stand-in as a static method."""
    return lambda card, original: staticmethod(make(card, original))  # pyright: ignore[reportArgumentType] - it is callable


class OnCpu(TorchDispatchMode):
    """Makes on the CPU whatever is asked for on another device."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        moved = {key: _cpu(value) for key, value in (kwargs or {}).items()}
        return func(*map(_cpu, args), **moved)


def _cpu(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value


def on_cpu(_: Card, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, run on the CPU."""

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with OnCpu():
            return method(*args, **kwargs)

    return run


def as_cudnn(_: Card, original: Callable[..., Any]) -> Callable[..., Any]:
    """The memory format of a convolution's result: cuDNN's, which is that of either operand.

    After `cudnn_conv_suggest_memory_format` in ATen/native/ConvUtils.h of torch.
    """

    def chosen(image: Tensor, weight: Tensor, backend: Any) -> torch.memory_format:
        if image.device.type != "cuda":
            return original(image, weight, backend)
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(weight.ndim)
        formats = {suggest_memory_format(operand) for operand in (image, weight)}
        wide = torch.float64 in (image.dtype, weight.dtype)
        return last if last in formats and not wide else torch.contiguous_format

    return chosen


def by_operator(name: str) -> StandIn:
    """A method of fake tensors as the operator of its name, which asks no device."""
    operator = getattr(torch.ops.aten, name).default

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return operator(self, *args, **kwargs)

    return lambda _card, _original: method


def by_operators(_: Card, __: Any) -> Callable[[Tensor, Any], Any]:
    """`Tensor.__getitem__` for fake tensors, as the operators that torch makes of it."""
    aten = torch.ops.aten

    def getitem(self: Tensor, index: Any) -> Any:
        items: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
        if self.device.type != "cuda" or not all(map(_indexes, items)):
            return Tensor.__getitem__(self, index)
        result, dim, tensors = self, 0, list[Tensor | None]()
        taken = sum(item is not None and item is not Ellipsis for item in items)
        for item in items:
            if item is Ellipsis:
                dim += self.ndim - taken
                continue
            if isinstance(item, int):
                result = aten.select.int(result, dim, item)
                continue
            if item is None:
                result = aten.unsqueeze.default(result, dim)
            elif isinstance(item, Tensor):
                tensors += [None] * (dim - len(tensors)) + [item]
            elif item != slice(None):
                step = 1 if item.step is None else item.step
                result = aten.slice.Tensor(result, dim, item.start, item.stop, step)
            dim += 1
        return aten.index.Tensor(result, tensors) if tensors else result

    return getitem


def _indexes(item: object) -> bool:
    """Whether it is an index of one dimension, of none (None) or of all that are left (...)."""
    if isinstance(item, Tensor):
        return item.dtype not in (torch.bool, torch.uint8)  # a mask stands for several dimensions
    return item is None or item is Ellipsis or type(item) in (int, slice)
