"""Set C: programs of a few lines in which the order of rewrites decides what greedy search finds.

The first nineteen are where the rules of Inductor, in their order, leave work; some are several
variants side by side. In the last eight the same rules are lost greedily that saturation keeps.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph

from benchmarks.zoo.entry import Check, Sizes
from benchmarks.zoo.expect import attentions, flops, named, products, shape
from benchmarks.zoo.formula import formula

DEPTH = 64


def _products(most: int) -> Check:
    return lambda graph, _: len(products(graph)) <= most


def _cheap(graph: Graph, s: Sizes) -> bool:
    """Not even one product of square matrices."""
    return flops(graph) < 2 * s["n"] ** 3


def _without(*names: str) -> Check:
    return lambda graph, _: not named(graph, *names)


def _one_of(part: int) -> Check:
    """One product reads n / `part` columns."""
    return lambda graph, s: len([p for p in products(graph) if p.inner == s["n"] // part]) == 1


def _at_most(count: int, part: int) -> Check:
    """No product that reads n / `part` columns has more rows."""
    return lambda graph, s: all(
        p.rows <= count or p.rows * p.width <= count
        for p in products(graph)
        if p.inner == s["n"] // part
    )


def frozen(x: Tensor, y: Tensor, z: Tensor, **w: Tensor) -> tuple[Tensor, ...]:
    """ReLUs of four maps of x, five of y, three of z of which one has no bias."""
    four = (x @ w[f"x{i}"] for i in range(4))
    five = (y @ w[f"y{i}"] for i in range(5))
    mixed = (z @ w["z0"] + w["b0"], z @ w["z1"] + w["b1"], z @ w["z2"])
    return tuple(t.relu() for t in (*four, *five, *mixed))


def _frozen_weights(n: int) -> dict[str, tuple[int, ...]]:
    four = {f"x{i}": (n // 2, n // 4) for i in range(4)}
    five = {f"y{i}": (n // 4, n // 4) for i in range(5)}
    mixed = {f"z{i}": (n // 8, n // 4) for i in range(3)}
    return four | five | mixed | {"b0": (n // 4,), "b1": (n // 4,)}


def twice_read(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Attention whose weights two products read."""
    weights = torch.softmax((q @ k.transpose(-1, -2)) / 8.0, -1)
    return weights @ v, weights @ w


def _mask(m: Tensor) -> Tensor:
    """Finite, as models make their masks: else a row that is all masked is not a number."""
    return torch.where(m > 0, 0.0, -10000.0).to(m.dtype)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2)


def _after(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = _scores(q, k) / 8.0
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (weights @ v) / weights.sum(-1, keepdim=True)


def _einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(torch.einsum("bhsd,bhtd->bhst", q, k) / 8.0, -1)
    return torch.einsum("bhst,bhtd->bhsd", weights, v)


SPELLINGS = {
    "(q s) k'": lambda q, k, v, _: torch.softmax(_scores(q * 0.125, k), -1) @ v,
    "(q / 8) k'": lambda q, k, v, _: torch.softmax(_scores(q / 8.0, k), -1) @ v,
    "q (k s)'": lambda q, k, v, _: torch.softmax(_scores(q, k * 0.125), -1) @ v,
    "(q r) (k r)'": lambda q, k, v, _: (
        torch.softmax(_scores(q * 0.125**0.5, k * 0.125**0.5), -1) @ v
    ),
    "q k' without a scale": lambda q, k, v, _: torch.softmax(_scores(q, k), -1) @ v,
    "(q k') s + mask": lambda q, k, v, m: torch.softmax(_scores(q, k) * 0.125 + _mask(m), -1) @ v,
    "mask + (q k') / 8": lambda q, k, v, m: torch.softmax(_mask(m) + _scores(q, k) / 8.0, -1) @ v,
    "(q s) k' + mask": lambda q, k, v, m: torch.softmax(_scores(q * 0.125, k) + _mask(m), -1) @ v,
    "einsum": lambda q, k, v, _: _einsum(q, k, v),
    "divided after v": lambda q, k, v, _: _after(q, k, v),
    "keys transposed before": lambda q, k, v, _: torch.softmax((q @ k) / 8.0, -1) @ v,
}
"""Attentions that Inductor does not see as one operator, each on a number of tokens of its own."""


def _count(n: int, i: int) -> int:
    return n // 8 + n // 16 * i


def _attention_inputs(n: int) -> list[tuple[int, ...]]:
    """Queries, keys, values and mask of each spelling."""
    found: list[tuple[int, ...]] = []
    for i, text in enumerate(SPELLINGS):
        tokens = _count(n, i)
        plain, turned = (1, 4, tokens, DEPTH), (1, 4, DEPTH, tokens)
        found += [plain, turned if "transposed" in text else plain, plain]
        found.append((1, 1, tokens, tokens))
    return found


def spelled(*inputs: Tensor) -> tuple[Tensor, ...]:
    """All spellings side by side."""
    groups = [inputs[i : i + 4] for i in range(0, len(inputs), 4)]
    pairs = zip(SPELLINGS.values(), groups, strict=True)
    return tuple(spelling(*group) for spelling, group in pairs)


def _spelling(i: int) -> Check:
    def check(graph: Graph, s: Sizes) -> bool:
        return any(shape(n.args[0])[-2] == _count(s["n"], i) for n in attentions(graph))

    return check


def recut(x: Tensor, y: Tensor, z: Tensor, *, w: Tensor) -> tuple[Tensor, ...]:
    """A cat of slices, of chunks, and one within another: all are what was cut."""
    half = x.shape[1] // 2
    slices = torch.cat([x[:, :half], x[:, half:]], 1)
    chunks = torch.cat([*y.chunk(4, 1)[:2], *y.chunk(4, 1)[2:]], 1)
    first = torch.cat([z[:, : half // 2], z[:, half // 2 : half]], 1)
    return slices @ w, chunks @ w, torch.cat([first, z[:, half:]], 1) @ w


def turned(x: Tensor, y: Tensor, z: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Permutations that cancel: nested, three times round, with another reader, in attention."""
    nested = x.permute(1, 2, 0).permute(0, 2, 1).permute(0, 2, 1).permute(2, 0, 1) + 1
    round_ = y.permute(1, 2, 0).permute(1, 2, 0).permute(1, 2, 0) + 1
    other = z.permute(1, 0)
    scores = (q @ k.transpose(-2, -1)) / 8.0
    scores = scores.permute(0, 2, 1, 3).permute(0, 1, 3, 2).permute(0, 1, 3, 2).permute(0, 2, 1, 3)
    return nested, round_, other.sin(), other.permute(1, 0) + 1, scores.softmax(-1) @ v


def _turned_inputs(n: int) -> list[tuple[int, ...]]:
    heads = (2, 4, n // 2, DEPTH)
    return [(n // 16, n // 8, n // 4), (n // 8, n // 8, n // 8), (n, n // 2), heads, heads, heads]


def _straight(dims: Any) -> Check:
    """No permutation of so many elements is left."""

    def check(graph: Graph, s: Sizes) -> bool:
        turns = named(graph, "permute", "transpose", "t")
        return all(math.prod(shape(n)) != math.prod(dims(s["n"])) for n in turns)

    return check


def reduced(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor, f: Tensor) -> tuple[Tensor, ...]:
    """A sum over rows, a trace and a few rows of products."""
    return (a @ b).sum(0), torch.diagonal(c @ d).sum(), (e @ f)[:8]


def scaled(x: Tensor, y: Tensor, z: Tensor, *w: Tensor) -> tuple[Tensor, ...]:
    """Two biases, scales that cancel, and a scale before a bias."""
    w0, w1, w2, b0, b1, b2 = w
    return (x @ w0 + b0) + b1, (y * 2.0) @ (w1 * 0.5), (z @ w2) * 0.5 + b2


def _scaled_inputs(n: int) -> list[tuple[int, ...]]:
    inputs: list[tuple[int, ...]] = [(n, n // 2), (n, n // 4), (n, n // 8)]
    weights: list[tuple[int, ...]] = [(n // 2, n), (n // 4, n // 2), (n // 8, n // 16)]
    return [*inputs, *weights, (n,), (n,), (n // 16,)]


def _biases_first(graph: Graph, s: Sizes) -> bool:
    return any(shape(n)[-1:] == (s["n"],) == shape(n) for n in named(graph, "add"))


def pointwise_readers(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Products with a bias whose results a ReLU reads, another product too, and a sum."""
    z = torch.addmm(b, x, w)
    return z.relu(), z @ y, torch.addmm(b, y, w) + x


def _square(count: int) -> Any:
    return lambda n: [(n, n)] * count


_ATTENTION = {"attention is one operator": lambda graph, _: bool(attentions(graph))}
_ONE = {"there is one product": _products(1)}
_CHAIN = {"no product is of two matrices": _cheap}

ENTRIES = (
    formula(
        "d1",
        "(A B) v",
        lambda a, b, v: (a @ b) @ v,
        lambda n: [(n, n), (n, n), (n, 1)],
        expected=_CHAIN,
    ),
    formula(
        "d2",
        "three products of one input with weights of their own, each read by a ReLU",
        lambda x, u, v, w: ((x @ u).relu(), (x @ v).relu(), (x @ w).relu()),
        lambda n: [(64, n)],
        lambda n: dict.fromkeys("uvw", (n, n)),
        _ONE,
    ),
    formula(
        "d2f",
        "four, five, and two products with a bias and one without, each of one input",
        frozen,
        lambda n: [(64, n // 2), (64, n // 4), (64, n // 8)],
        _frozen_weights,
        {
            "four products are one": _one_of(2),
            "five products are one": _one_of(4),
            "two products with a bias and one without are one": _one_of(8),
        },
    ),
    formula("d3a", "x W + x U", lambda x, w, u: x @ w + x @ u, _square(3), expected=_ONE),
    formula("d3b", "x W + y W", lambda x, y, w: x @ w + y @ w, _square(3), expected=_ONE),
    formula(
        "d3c",
        "x W + (x A) B with weights: an adapter that was not merged",
        lambda x, w, a, b: x @ w + (x @ a) @ b,
        lambda n: [(n // 2, n)],
        lambda n: {"w": (n, n), "a": (n, 16), "b": (16, n)},
        _ONE,
    ),
    formula(
        "d4",
        "attention whose weights two products read",
        twice_read,
        lambda n: [(2, 4, n // 2, DEPTH)] * 4,
        expected=_ATTENTION,
    ),
    formula(
        "d5",
        "eleven spellings of attention",
        spelled,
        _attention_inputs,
        expected={f"{text} is one operator": _spelling(i) for i, text in enumerate(SPELLINGS)},
    ),
    formula(
        "d6",
        "cats of slices, of chunks, and of a cat, each the whole again",
        recut,
        lambda n: [(n, n)] * 3,
        lambda n: {"w": (n, n // 2)},
        {"nothing is set beside another": _without("cat")},
    ),
    formula(
        "d6b",
        "cat(x, y)[:, n:] w",
        lambda x, y, w: torch.cat([x, y], 1)[:, x.shape[1] :] @ w,
        _square(2),
        lambda n: {"w": (n, n // 2)},
        {"y is read where it is": _without("cat")},
    ),
    formula(
        "d6c",
        "cat(x, y) w",
        lambda x, y, w: torch.cat([x, y], 1) @ w,
        _square(2),
        lambda n: {"w": (2 * n, n // 2)},
        {"nothing is copied": _without("cat")},
    ),
    formula(
        "d7",
        "x w and (w' x')' 2",
        lambda x, w: (x @ w, (w.t() @ x.t()).t() * 2),
        _square(2),
        expected=_ONE,
    ),
    formula(
        "d7b",
        "x w + b, b + x w and x w - (-b)",
        lambda x, w, b: (x @ w + b, b + x @ w, x @ w - (-b)),
        lambda n: [(n, n), (n, n), (n,)],
        expected=_ONE,
    ),
    formula(
        "d7c",
        "relu(x w) + x w, written twice",
        lambda x, w: (x @ w).relu() + (x @ w),
        _square(2),
        expected=_ONE,
    ),
    formula(
        "d8",
        "permutations that cancel, also around the scores of attention",
        turned,
        _turned_inputs,
        expected={
            "nested permutations cancel": _straight(lambda n: (n // 16, n // 8, n // 4)),
            "a permutation three times round is none": _straight(lambda n: (n // 8,) * 3),
            **_ATTENTION,
        },
    ),
    formula(
        "d9",
        "(A B) summed over rows, the trace of C D, and eight rows of E F",
        reduced,
        lambda n: [(n, n // 2), (n // 2, n), (n, n // 4), (n // 4, n), (n, n // 8), (n // 8, n)],
        expected={
            "rows are summed before the product": _at_most(1, 2),
            "the trace is no product of two matrices": _at_most(1, 4),
            "only eight rows are computed": _at_most(8, 8),
        },
    ),
    formula(
        "d10",
        "(x w + b) + c, (2 x) (w / 2), and (x w) / 2 + b",
        scaled,
        _scaled_inputs,
        expected={
            "the biases are added first": _biases_first,
            "the scales cancel": lambda graph, s: (
                not any(
                    shape(n) in ((s["n"], s["n"] // 4), (s["n"] // 4, s["n"] // 2))
                    for n in named(graph, "mul")
                )
            ),
        },
    ),
    formula(
        "d11",
        "attention of one sequence as products of batches",
        lambda q, k, v: torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1), v),
        lambda n: [(1, n, DEPTH)] * 3,
        expected=_ATTENTION,
    ),
    formula(
        "d12",
        "products with a bias, and what reads them",
        pointwise_readers,
        lambda n: [(n, n)] * 3 + [(n,)],
    ),
    formula(
        "same-1",
        "A B v",
        lambda a, b, v: a @ b @ v,
        lambda n: [(n, n), (n, n), (n, 1)],
        expected=_CHAIN,
    ),
    formula("same-2", "x W + x U", lambda x, w, u: x @ w + x @ u, _square(3), expected=_ONE),
    formula(
        "same-3",
        "x W + (x A) B, all inputs",
        lambda x, w, a, b: x @ w + (x @ a) @ b,
        lambda n: [(n, n), (n, n), (n, 16), (16, n)],
        expected={"A B is added to W": _products(2)},
    ),
    formula(
        "same-4",
        "x W + b + x U",
        lambda x, w, u, b: x @ w + b + x @ u,
        _square(4),
        expected=_ONE,
    ),
    formula(
        "same-5",
        "(A B) summed over rows",
        lambda a, b: (a @ b).sum(0),
        _square(2),
        expected=_CHAIN,
    ),
    formula(
        "same-6",
        "x W, and x W + y W",
        lambda x, y, w: (x @ w, x @ w + y @ w),
        _square(3),
        expected={"there are two products": _products(2)},
    ),
    formula(
        "same-7",
        "x w, and (w' x')' + b",
        lambda x, w, b: (x @ w, (w.t() @ x.t()).t() + b),
        _square(3),
        expected=_ONE,
    ),
    formula(
        "same-8",
        "((A B) C) v + b",
        lambda a, b, c, v, d: ((a @ b) @ c) @ v + d,
        lambda n: [(n, n)] * 3 + [(n, 1), (n, 1)],
        expected=_CHAIN,
    ),
)
