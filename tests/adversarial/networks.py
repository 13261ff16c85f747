"""Programs made of layers: rotary complex attention, shared convolutions, training, autocast."""

from collections.abc import Sequence
from typing import Any

import torch
from adversarial.program import ALL, Inputs, Program
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing


class ComplexRotary(nn.Module):
    """Complex rotation, lazy conjugates and their products, sums over named axes."""

    turns: Tensor

    def __init__(self) -> None:
        super().__init__()
        angle = torch.outer(torch.arange(6.0), 10.0 ** -torch.arange(4.0))
        self.register_buffer("turns", torch.polar(torch.ones_like(angle), angle))

    def forward(self, q: Tensor, k: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        pairs = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
        rotated = torch.view_as_real(pairs * self.turns).flatten(3)
        mirrored = c.conj()
        return (
            rotated,
            mirrored,
            c + mirrored,
            (c * c.conj()).real,
            c + torch.ones(2, 1, dtype=torch.complex64),
            torch.einsum("bhqd,bhkd->bhqk", rotated, k),
            torch.einsum("ij,kj->ik", c, mirrored),
            torch.einsum("bhqd->bdh", k),
            c @ c.mT @ c,
        )


class SharedConvolution(nn.Module):
    """One convolution under two names, with and without a norm, one norm learning, one frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 4, 3, padding=1)
        self.other = self.one
        self.norm = nn.BatchNorm2d(4)
        self.frozen = nn.BatchNorm2d(4)
        self.frozen.running_mean = torch.randn(4)
        self.frozen.running_var = torch.rand(4) + 0.5

    def train(self, mode: bool = True) -> "SharedConvolution":
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        p, q = self.norm(self.one(x)), self.other(y)
        large = functional.interpolate(q, scale_factor=2, mode="bilinear", align_corners=False)
        return p + self.frozen(self.one(y)), q, large, functional.interpolate(p, size=(5, 7))


class TrainedTable(nn.Module):
    """A table with a padding row, writes to equal places, and gradients stopped in two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 6, padding_idx=2)
        self.linear = nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.full((6,), 2.0), requires_grad=False)

    def forward(self, ids: Tensor, place: Tensor) -> tuple[Tensor, ...]:
        e = self.table(ids) * self.scale
        with torch.no_grad():
            gate = torch.sigmoid(self.linear(e))
        rows = ((self.linear(e) + e) * gate).reshape(-1, 6)
        wide = place[:, None].expand(-1, 6)
        put = torch.zeros(5, 6).index_put((place,), rows, accumulate=True)
        added = torch.zeros(5, 6).scatter_add(0, wide, rows)
        most = torch.ones(5, 6).scatter_reduce(0, wide, rows, "amax", include_self=False)
        y = (put * added).sin()
        return put, most, y, y.detach(), (y**2).mean()


class Scaled(Tensor):
    """Small integers times a scale per row, seen as one float tensor."""

    codes: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls: type["Scaled"], codes: Tensor, scale: Tensor) -> "Scaled":
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype)

    def __init__(self, codes: Tensor, scale: Tensor) -> None:
        self.codes, self.scale = codes, scale

    def dense(self) -> Tensor:
        return self.codes.to(self.scale.dtype) * self.scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes", "scale"], None

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor], context: None, size: Sequence[int], stride: Sequence[int]
    ) -> "Scaled":
        del context, size, stride
        return Scaled(inner["codes"], inner["scale"])

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Any,
        types: Any,
        args: Any,
        kwargs: Any = None,  # as torch calls it
    ) -> Any:
        aten = torch.ops.aten
        if func in (aten.detach.default, aten.alias.default, aten.clone.default):
            kept = Scaled(func(args[0].codes), func(args[0].scale))
            return return_and_correct_aliasing(func, args, {}, kept)
        args, kwargs = pytree.tree_map_only(Scaled, Scaled.dense, (args, kwargs or {}))
        return func(*args, **kwargs)


class ScaledAutocast(nn.Module):
    """A weight of the caller's own tensor type, and products of two precisions."""

    def __init__(self) -> None:
        super().__init__()
        codes = torch.randint(-8, 8, (4, 6), dtype=torch.int8)
        self.weight = nn.Parameter(Scaled(codes, torch.rand(4, 1)), requires_grad=False)
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = functional.linear(x, self.weight)
        with torch.autocast("cpu", torch.bfloat16):
            low = x @ x.t()
            mixed = torch.mm(x, x.t()) + self.bias
        return y, low, mixed, (y + 0.0) * 1.0


def _rotary() -> Inputs:
    q, k = torch.randn(2, 3, 6, 8), torch.randn(2, 3, 5, 8)
    return (q, k, torch.randn(2, 4, dtype=torch.complex64)), {}


def _ids() -> Inputs:
    ids = torch.tensor([[1, 2, 3, 2], [4, 9, 2, 1]])
    return (ids, torch.tensor([0, 1, 1, 3, 3, 3, 0, 2])), {}


NETWORKS = (
    Program(
        name="complex-rotary",
        module=ComplexRotary,
        inputs=(_rotary,),
        rounded=ALL,
        products=frozenset({5, 6, 8}),
    ),
    Program(
        name="shared-convolution",
        module=SharedConvolution,
        inputs=(lambda: ((torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)), {}),),
        products=ALL,
        state_rounded=True,
        train=True,
    ),
    Program(
        name="trained-table",
        module=TrainedTable,
        inputs=(_ids,),
        products=ALL,
        train=True,
        gradients=True,
    ),
    Program(
        name="scaled-autocast",
        module=ScaledAutocast,
        inputs=(lambda: ((torch.randn(4, 6),), {}),),
        products=ALL,
    ),
)
