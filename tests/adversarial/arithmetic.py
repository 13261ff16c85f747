"""Programs about numbers that are not reals: wrapping, rounding, promotion, NaN, bool."""

import dataclasses

import torch
from adversarial.program import Inputs, Program
from torch import Tensor, nn


@dataclasses.dataclass
class Logic:
    """An output tree of a caller's own type."""

    either: Tensor
    rest: dict[str, object]


torch.export.register_dataclass(Logic, serialized_type_name="eqsat.tests.Logic")


class IntegerDivision(nn.Module):
    """Four roundings of a quotient, and sums that wrap before they are widened."""

    def forward(self, a: Tensor, b: Tensor, byte: Tensor, small: Tensor) -> tuple[Tensor, ...]:
        most = torch.full((3,), 2**31 - 1, dtype=torch.int32)
        spread = (small * small + small * 7).to(torch.int64)
        return (
            torch.div(a, b, rounding_mode="floor"),
            torch.div(a, b, rounding_mode="trunc"),
            a / b,
            a % b,
            torch.fmod(a, b),
            (a // 4) * 4,
            (a * 5) // 5,
            a >> 1,
            (most + most).to(torch.int64),
            (byte + byte).to(torch.int16),
            byte.to(torch.int16) + byte.to(torch.int16),
            a.to(torch.int64) + b.to(torch.int64),
            (small * (small + 7)).to(torch.int64) + spread,
            torch.arange(5) * torch.tensor([1_700_000_000]),
            a.to(torch.int8) * 100,
        )


class BoolLogic(nn.Module):
    """Sums, products and complements of bools, which are neither ints nor floats."""

    def forward(self, p: Tensor, q: Tensor, n: Tensor) -> Logic:
        counts = {"of": p.sum(), "or": (p + p).sum(), "twice": (p.int() + p.int()).sum()}
        sign = p.to(torch.float32) * 2.0 - 1.0
        negations = (~n, torch.logical_not(n), n.bool() & p)
        rest: dict[str, object] = {
            "z": [p * q, ~p, None],
            "a": negations,
            "k": {"counts": counts, "sign": sign, "three": 3},
            "x": (p == True, p ^ p, p & ~p, ~~p ^ q),  # noqa: E712  (the comparison is the point)
        }
        return Logic(either=p + q, rest=rest)


class NotReal(nn.Module):
    """Identities of the reals that NaN, Inf, overflow and -0.0 break."""

    def forward(self, x: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        zero = torch.zeros_like(z)
        return (
            x * 0.0,
            x - x,
            x / x,
            x * 0,
            torch.maximum(x, torch.zeros_like(x)),
            torch.clamp(x, -2.0, 2.0),
            torch.where(x == x, x, torch.zeros_like(x)),
            z + 0.0,
            z * -1.0,
            -(0.0 - z),
            torch.reciprocal(z + zero),
            torch.minimum(z, zero),
            torch.softmax(x, -1),
            torch.log(torch.exp(x)),
            torch.sqrt(x * x),
            torch.exp(x) * torch.exp(-x),
        )


class HalfRange(nn.Module):
    """Half-precision chains whose overflow and rounding are part of the answer."""

    def forward(self, h: Tensor, b: Tensor, f: Tensor) -> tuple[Tensor, ...]:
        code = torch.clamp(torch.round(f / 0.05) + 3, -128, 127).to(torch.int8)
        return (
            h * 1000.0 * 1000.0 / 1e6,
            (h * h) / h,
            f.to(torch.bfloat16).to(torch.float32),
            code,
            ((b + 256.0) + 0.5) + 0.5,
            (code.to(torch.float32) - 3) * 0.05,
        )


class Promotion(nn.Module):
    """Dtypes decided by Python numbers, tensors without dimensions, and mixed integers."""

    point: Tensor
    line: Tensor
    whole: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("point", torch.tensor(2.0, dtype=torch.float64))
        self.register_buffer("line", torch.tensor([2.0], dtype=torch.float64))
        self.register_buffer("whole", torch.tensor(3))

    def forward(self, f: Tensor, h: Tensor, i: Tensor, u: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        point, line, whole = self.point, self.line, self.whole
        steps = torch.ones(3, dtype=torch.bool).cumsum(0, dtype=torch.float16)
        numbers = (f + point, f + line, h * point, i * point, i + whole, point + 1, whole * 2.5)
        numbers_too = (i * 1.0, i * 1, i / 2, i / 1, h + 1, h**2, i**2, c + 1)
        choices = (torch.where(c, f, 0.0), torch.where(c, i, 1.5), i.clamp(-0.5, 0.5))
        others = (u + i.to(torch.int8), i.sum(), torch.full_like(i, 1.9) + f, steps)
        return *numbers, *numbers_too, *choices, *others, f.to(torch.float64) * point


def _integers() -> Inputs:
    a = torch.tensor([-7, 7, -8, 8, -1, 1, 2**31 - 1, -(2**31)], dtype=torch.int32)
    b = torch.tensor([2, -2, 3, -3, 5, 5, 2, 7], dtype=torch.int32)
    byte = torch.tensor([128, 201, 255], dtype=torch.uint8)
    return (a, b, byte, torch.tensor([-128, -49, 18, 127], dtype=torch.int8)), {}


def _bools() -> Inputs:
    n = torch.tensor([[0, 1, 2, -1, 5]]).repeat(3, 1)
    return (torch.rand(3, 5) > 0.5, torch.rand(3, 5) > 0.5, n), {}


def _extremes() -> Inputs:
    inf = float("inf")
    rows = [[0.0, -0.0, 2.5, -3.0], [inf, 1.0, 2.0, 3.0], [float("nan"), 1.0, -inf, 3.0]]
    x = torch.tensor([*rows, [100.0, -100.0, 1e30, -1e-30]])
    return (x, torch.tensor([-0.0, 0.0, -0.0, 1.0])), {}


def _halves() -> Inputs:
    h = torch.tensor([0.5, 60.0, 65.0, 70.0, 301.0, -400.0, 0.001], dtype=torch.float16)
    return (h, torch.randn(8).to(torch.bfloat16), torch.randn(5, 4) * 4.0), {}


def _mixed() -> Inputs:
    h, i = torch.randn(3).to(torch.bfloat16), torch.tensor([-3, 0, 4], dtype=torch.int32)
    u = torch.tensor([250, 4, 7], dtype=torch.uint8)
    return (torch.randn(3), h, i, u, torch.tensor([True, False, True])), {}


ARITHMETIC = (
    Program(name="integer-division", module=IntegerDivision, inputs=(_integers,)),
    Program(name="bool-logic", module=BoolLogic, inputs=(_bools,)),
    Program(
        name="not-real", module=NotReal, inputs=(_extremes,), rounded=frozenset({12, 13, 14, 15})
    ),
    Program(name="half-range", module=HalfRange, inputs=(_halves,), rounded=frozenset({4, 5})),
    Program(name="promotion", module=Promotion, inputs=(_mixed,)),
)
