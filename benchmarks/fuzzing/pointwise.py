"""Steps that act on each element."""

from __future__ import annotations

import torch

from .pool import Pool


def unary(g: Pool) -> str:
    name = g.rng.choice(
        ("relu", "sigmoid", "tanh", "exp", "abs", "neg", "square", "sin", "cos", "erf", "sign")
        + ("floor", "round", "ceil", "trunc", "log1p", "sqrt", "rsqrt", "reciprocal", "expm1")
        + ("isnan", "logical_not", "atan", "positive", "clone", "zeros_like", "ones_like")
    )
    return f"torch.{name}({g.pick()})"


def activation(g: Pool) -> str:
    x = g.real()
    texts = (
        *(f"F.{n}({x})" for n in ("gelu", "silu", "hardtanh", "softplus", "leaky_relu", "elu")),
        f"F.gelu({x}, approximate='tanh')",
        f"torch.clamp({x}, -1, 0.5)",
        f"torch.clamp({x}, min=0.0)",
        f"{x} * torch.sigmoid({x})",
        f"{x} / (1 + torch.exp(-{x}))",
        f"1 / (1 + torch.exp(-{x}))",
        f"0.5 * {x} * (1 + torch.erf({x} / 2 ** 0.5))",
        f"F.hardswish({x})",
        f"F.dropout({x}, 0.3, False)",
    )
    return g.rng.choice(texts)


def binary(g: Pool) -> str:
    x = g.pick()
    y = g.beside(x) if g.rng.random() < 0.6 else g.pick()
    if g.rng.random() < 0.3:
        x, y = y, x
    names = ("add", "sub", "mul", "div", "maximum", "minimum", "mul", "add", "sub", "atan2")
    if g.rng.random() < 0.1:
        return f"torch.{g.rng.choice(('add', 'sub'))}({x}, {y}, alpha={g.rng.choice((2, 3))})"
    return f"torch.{g.rng.choice(names)}({x}, {y})"


def scalar(g: Pool) -> str:
    x, n = g.pick(), g.number()
    op = g.rng.choice(("+", "-", "*", "/", "*", "+", "**", "//", "%"))
    if op in "+-*/" and g.rng.random() < 0.3:
        return f"{n} {op} {x}"
    if g.rng.random() < 0.3:
        return f"({x} {op} {n}) {g.rng.choice('+-*/')} {g.number()}"
    return f"{x} {op} {n}"


def filled(g: Pool) -> str:
    x = g.pick()
    v = g.of(x)
    n = g.number()
    op = g.rng.choice(("+", "*", "/", "-", "**", "<"))
    dtype = v.dtype
    made = g.rng.choice(
        (
            f"torch.full({tuple(v.shape)}, {n}, dtype={dtype})",
            f"torch.full_like({x}, {n})",
            f"torch.ones({tuple(v.shape)}, dtype={dtype})",
            f"torch.tensor({n}, dtype={dtype})",
            f"{x}.new_zeros(({v.shape[-1] if v.ndim else 1},))",
            f"torch.arange({v.shape[-1] if v.ndim else 2})",
        )
    )
    return f"{x} {op} {made}"


def compare(g: Pool) -> str:
    x = g.pick()
    y = g.beside(x) if g.rng.random() < 0.5 else g.number()
    return f"{x} {g.rng.choice(('<', '<=', '>', '>=', '==', '!='))} {y}"


def logical(g: Pool) -> str:
    x = g.pick(lambda v: v.dtype in (torch.bool, torch.int64))
    y = g.beside(x)
    return g.rng.choice(
        (f"{x} & {y}", f"{x} | {y}", f"{x} ^ {y}", f"~{x}", f"torch.logical_and({x}, {y})")
    )


def choose(g: Pool) -> str:
    x = g.pick()
    shape = [1 if g.rng.random() < 0.2 else n for n in g.of(x).shape]
    c = g.tensor(shape, torch.bool)
    y = g.beside(x)
    return g.choice(
        f"torch.where({c}, {x}, {y})",
        f"torch.where(~{c}, {x}, {y})",
        f"torch.where({c}, {x}, {g.number()})",
        f"{x}.masked_fill({c}, {g.number()})",
        f"torch.where({c}, {x}, {x})",
    )


def cast(g: Pool) -> str:
    x = g.pick()
    dtype = g.rng.choice(
        ("float64", "float32", "int64", "int32", "bool", "float64", "int8", "uint8")
    )
    text = f"{x}.to(torch.{dtype})"
    return f"{text}.to({g.dtype})" if g.rng.random() < 0.4 else text


POINTWISE = (
    (unary, 3),
    (activation, 3),
    (binary, 6),
    (scalar, 6),
    (filled, 2),
    (compare, 1),
    (logical, 1),
    (choose, 2),
    (cast, 2),
)
