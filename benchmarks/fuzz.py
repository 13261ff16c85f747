"""Random programs, optimized without the product's own check and compared with what was given."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from itertools import product as product_of
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

import eqsat
import rewrites
from eqsat.capture import capture, constants_of
from eqsat.check import check
from eqsat.cost.device import load
from eqsat.decode import decode
from eqsat.encode import encode
from eqsat.fold import drop_unread, fold
from eqsat.problem import problem
from eqsat.rebuild import drop_in, rebuild
from eqsat.rewrite import NAMES, Rewrite
from eqsat.saturate import saturate
from extract import EGraph, Selection, judge
from extract.egraph import derivation
from extract.selection import select

LIMITS = eqsat.Limits(iterations=6, enodes=3_000, seconds=60.0)
SELECTIONS = 4  # of one e-graph
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
LARGEST = 1e3  # generated values beyond it make every comparison one of rounding
HEADER = "import torch\nimport torch.nn.functional as F\n\n\n"
CONTRACTIONS = ("@", "conv", "linear", "mm", "attention", "einsum", "mv(", "matmul", "batch_norm")
EXTRACTORS = ("random", "auto", "tree", "greedy-dag", "exact")


@dataclass(frozen=True)
class Leaf:
    """An input, parameter or buffer, and the expression that makes it."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True)
class Step:
    """A statement of `forward` that gives `name` a value made of `reads`."""

    name: str
    text: str
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A program: what it reads, its statements, and the names that it returns."""

    leaves: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    dynamic: bool = False

    def trimmed(self) -> Source:
        """This program without what its outputs do not need; steps that write stay."""
        needed = set(self.outputs)
        steps: list[Step] = []
        for step in reversed(self.steps):
            if step.name in needed or "_(" in step.text or "+=" in step.text:
                needed |= {step.name, *step.reads}
                steps.append(step)
        leaves = tuple(leaf for leaf in self.leaves if leaf.name in needed)
        return replace(self, leaves=leaves, steps=tuple(reversed(steps)))

    def __str__(self) -> str:
        inputs = [leaf for leaf in self.leaves if leaf.kind == "input"]
        state = [leaf for leaf in self.leaves if leaf.kind != "input"]
        lines = [
            "class M(torch.nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
        ]
        for leaf in state:
            if leaf.kind == "parameter":
                made = f"self.{leaf.name} = torch.nn.Parameter({leaf.text})"
            else:
                made = f"self.register_buffer({leaf.name!r}, {leaf.text})"
            lines.append(f"        {made}")
        lines += ["", f"    def forward({', '.join(['self', *(leaf.name for leaf in inputs)])}):"]
        lines += [f"        {leaf.name} = self.{leaf.name}" for leaf in state]
        lines += [f"        {step.text}" for step in self.steps]
        lines.append(f"        return ({', '.join(self.outputs)},)")
        made = "".join(f"\n    {leaf.text}," for leaf in inputs)
        return "\n".join(lines) + f"\n\n\nargs = ({made}\n)\n"

    def build(self) -> tuple[torch.nn.Module, tuple[Tensor, ...]]:
        """The module and its example inputs, the same every time."""
        names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        torch.manual_seed(0)
        exec(str(self), names)
        return names["M"]().eval(), names["args"]


class Generator:
    """Grows a program step by step, each tried on real tensors."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.dtype = "float32" if self.rng.random() < 0.15 else "float64"
        self.batch = self.rng.choice((2, 3, 5))
        self.values: dict[str, Tensor] = {}
        self.leaves: list[Leaf] = []
        self.steps: list[Step] = []

    def program(self) -> Source:
        """A program of 5 to 25 steps."""
        wild = self.rng.random() < 0.1
        for _ in range(self.rng.randint(2, 4)):
            self.tensor(self.shape(), fresh="input")
        wanted, tries = self.rng.randint(5, 25), 0
        while len(self.steps) < wanted and tries < 400:
            tries += 1
            make = self.rng.choices(MAKERS, WEIGHTS)[0]
            try:
                text = make(self)
            except (IndexError, ValueError):
                continue
            if text is not None:
                self._try(text, wild)
        return self._finished()

    def _try(self, text: str, wild: bool) -> None:
        """Adds a step where torch takes it and its values are tame."""
        name = f"v{len(self.steps)}"
        statement = text.replace("$", name) if "$" in text else f"{name} = {text}"
        names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        names |= {k: v.clone() if "_(" in text else v for k, v in self.values.items()}
        try:
            with torch.no_grad():
                exec(statement, names)
        except (RuntimeError, ValueError, TypeError, IndexError):
            return
        value = names[name]
        if not isinstance(value, Tensor) or value.numel() > 4_000 or value.is_complex():
            return
        dense = value.double() if value.numel() else torch.zeros(1)
        if not wild and not bool((dense.abs() < LARGEST).all()):
            return
        if value.dtype.is_floating_point and value.dtype not in TOLERANCE:
            return
        reads = tuple(n for n in self.values if n in _words(statement))
        self.values[name] = value.clone() if "_(" in text else value
        if "_(" in text:  # what a step wrote is another value now
            self.values |= {n: names[n].detach() for n in reads}
        self.steps.append(Step(name, statement, reads))

    def _finished(self) -> Source:
        """The program with an output for each value that no step reads, or for a few values."""
        names = [step.name for step in self.steps] or [leaf.name for leaf in self.leaves]
        read = {name for step in self.steps for name in step.reads}
        ends = [name for name in names if name not in read][-6:]
        some = self.rng.choices(names, k=self.rng.randint(1, 3))
        outputs = list(dict.fromkeys([*ends, *some] if self.rng.random() < 0.7 else some))
        if self.rng.random() < 0.1:
            outputs += [self.rng.choice([*outputs, *(leaf.name for leaf in self.leaves)])]
        dynamic = self.rng.random() < 0.15
        return Source(tuple(self.leaves), tuple(self.steps), tuple(outputs), dynamic).trimmed()

    # What makers ask for.

    def shape(self, ndim: int | None = None) -> tuple[int, ...]:
        """A small shape, now and then with sizes 1 or 0."""
        ndim = self.rng.choice((1, 2, 2, 3, 3, 4)) if ndim is None else ndim
        sizes = [self.rng.choice((2, 3, 4, 4, 6, 8)) for _ in range(ndim)]
        if sizes and self.rng.random() < 0.6:
            sizes[0] = self.batch
        if sizes and self.rng.random() < 0.15:
            sizes[self.rng.randrange(ndim)] = self.rng.choice((1, 1, 1, 0))
        return tuple(sizes)

    def tensor(self, shape: Sequence[int], dtype: str = "", fresh: str = "") -> str:
        """A value of this shape: one that is there, or a new leaf."""
        dtype = dtype or self.dtype
        wanted = getattr(torch, dtype)
        found = [n for n, v in self.values.items() if v.shape == tuple(shape) and v.dtype == wanted]
        if found and not fresh and self.rng.random() < 0.6:
            return self.rng.choice(found)
        kind = fresh or self.rng.choice(("input", "parameter", "parameter", "buffer"))
        size = ", ".join(map(str, shape))
        if dtype.startswith(("int", "uint")):
            kind = "buffer" if kind == "parameter" else kind
            text = f"torch.randint(0, 3, ({size}{',' if size else ''}), dtype=torch.{dtype})"
        elif dtype == "bool":
            kind = "buffer" if kind == "parameter" else kind
            text = f"torch.randint(0, 2, ({size}{',' if size else ''})) > 0"
        elif len(shape) == 2 and kind == "input" and self.rng.random() < 0.2:
            text = f"torch.randn({shape[1]}, {shape[0]}, dtype=torch.{dtype}).mT"
        else:
            size = size or "()"
            text = f"torch.randn({size}, dtype=torch.{dtype})"
        name = f"{kind[0]}{len(self.leaves)}"
        self.leaves.append(Leaf(name, kind, text))
        names: dict[str, Any] = {"torch": torch}
        exec(f"value = {text}", names)
        self.values[name] = names["value"]
        return name

    def pick(self, accept: Callable[[Tensor], bool] = lambda _: True) -> str:
        """A value, more often a late one. Raises IndexError where none is accepted."""
        names = [n for n, v in self.values.items() if accept(v)]
        late = names[-6:]
        return self.rng.choice(late if self.rng.random() < 0.6 else names)

    def real(self, least: int = 0) -> str:
        """A floating-point value of at least so many dims."""
        return self.pick(lambda v: v.is_floating_point() and v.ndim >= least)

    def full(self, least: int = 1) -> str:
        """A floating-point value of at least so many dims, none of them empty."""
        return self.pick(lambda v: v.is_floating_point() and v.ndim >= least and v.numel() > 0)

    def of(self, name: str) -> Tensor:
        """The value of a name."""
        return self.values[name]

    def dim(self, name: str) -> int:
        """A dim of a value, counted from either end."""
        ndim = self.of(name).ndim
        return self.rng.choice(range(-ndim, ndim))

    def number(self) -> str:
        """A Python number."""
        common = ("1", "1.0", "2", "0.5", "-1", "0", "0.0", "-0.0", "3", "0.25", "1.5", "-2.0")
        return self.rng.choice((*common, "0.1", "7", "1e-3"))

    def beside(self, name: str) -> str:
        """A value that broadcasts with that of `name`."""
        shape = list(self.of(name).shape)
        shape = shape[self.rng.randint(0, len(shape)) if self.rng.random() < 0.3 else 0 :]
        shape = [1 if self.rng.random() < 0.2 else n for n in shape]
        dtype = str(self.of(name).dtype).removeprefix("torch.")
        return self.tensor(shape, dtype)


Maker = Callable[[Generator], str | None]


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())


def unary(g: Generator) -> str:
    name = g.rng.choice(
        ("relu", "sigmoid", "tanh", "exp", "abs", "neg", "square", "sin", "cos", "erf", "sign")
        + ("floor", "round", "ceil", "trunc", "log1p", "sqrt", "rsqrt", "reciprocal", "expm1")
        + ("isnan", "logical_not", "atan", "positive", "clone", "zeros_like", "ones_like")
    )
    return f"torch.{name}({g.pick()})"


def activation(g: Generator) -> str:
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


def binary(g: Generator) -> str:
    x = g.pick()
    y = g.beside(x) if g.rng.random() < 0.6 else g.pick()
    if g.rng.random() < 0.3:
        x, y = y, x
    names = ("add", "sub", "mul", "div", "maximum", "minimum", "mul", "add", "sub", "atan2")
    if g.rng.random() < 0.1:
        return f"torch.{g.rng.choice(('add', 'sub'))}({x}, {y}, alpha={g.rng.choice((2, 3))})"
    return f"torch.{g.rng.choice(names)}({x}, {y})"


def scalar(g: Generator) -> str:
    x, n = g.pick(), g.number()
    op = g.rng.choice(("+", "-", "*", "/", "*", "+", "**", "//", "%"))
    if op in "+-*/" and g.rng.random() < 0.3:
        return f"{n} {op} {x}"
    if g.rng.random() < 0.3:
        return f"({x} {op} {n}) {g.rng.choice('+-*/')} {g.number()}"
    return f"{x} {op} {n}"


def filled(g: Generator) -> str:
    x = g.pick()
    v = g.of(x)
    n = g.number()
    op = g.rng.choice(("+", "*", "/", "-", "**", "<"))
    dtype = str(v.dtype)
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


def compare(g: Generator) -> str:
    x = g.pick()
    y = g.beside(x) if g.rng.random() < 0.5 else g.number()
    return f"{x} {g.rng.choice(('<', '<=', '>', '>=', '==', '!='))} {y}"


def logical(g: Generator) -> str:
    x = g.pick(lambda v: v.dtype in (torch.bool, torch.int64))
    y = g.beside(x)
    return g.rng.choice(
        (f"{x} & {y}", f"{x} | {y}", f"{x} ^ {y}", f"~{x}", f"torch.logical_and({x}, {y})")
    )


def choose(g: Generator) -> str:
    x = g.pick()
    shape = [1 if g.rng.random() < 0.2 else n for n in g.of(x).shape]
    c = g.tensor(shape, "bool")
    y = g.beside(x)
    return g.rng.choice(
        (
            f"torch.where({c}, {x}, {y})",
            f"torch.where(~{c}, {x}, {y})",
            f"torch.where({c}, {x}, {g.number()})",
            f"{x}.masked_fill({c}, {g.number()})",
            f"torch.where({c}, {x}, {x})",
        )
    )


def cast(g: Generator) -> str:
    x = g.pick()
    dtype = g.rng.choice(
        ("float64", "float32", "int64", "int32", "bool", "float64", "int8", "uint8")
    )
    text = f"{x}.to(torch.{dtype})"
    return f"{text}.to(torch.{g.dtype})" if g.rng.random() < 0.4 else text


def reshape(g: Generator) -> str:
    x = g.pick(lambda v: v.ndim > 0)
    v = g.of(x)
    shape = list(v.shape)
    kind = g.rng.choice(("merge", "split", "flat", "squeeze", "unsqueeze", "shuffle", "flatten"))
    if kind == "merge" and v.ndim > 1:
        d = g.rng.randrange(v.ndim - 1)
        return f"{x}.reshape({(*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :])})"
    if kind == "split":
        d = g.rng.randrange(v.ndim)
        factors = [k for k in (1, 2, 3, 4) if shape[d] % k == 0]
        k = g.rng.choice(factors)
        a, b = (k, shape[d] // k) if g.rng.random() < 0.5 else (shape[d] // k, k)
        return f"{x}.reshape({(*shape[:d], a, b, *shape[d + 1 :])})"
    if kind == "flatten" and v.ndim > 1:
        return f"{x}.flatten({g.rng.randrange(v.ndim - 1)})"
    if kind == "squeeze":
        return f"{x}.squeeze({g.dim(x)})" if g.rng.random() < 0.5 else f"{x}.squeeze()"
    if kind == "unsqueeze" and v.ndim < 5:
        return f"{x}.unsqueeze({g.dim(x)})"
    if kind == "shuffle":
        g.rng.shuffle(shape)
        return f"{x}.reshape({tuple(shape)})"
    return f"{x}.reshape(-1)"


def permute(g: Generator) -> str:
    x = g.pick(lambda v: v.ndim > 1)
    v = g.of(x)
    dims = list(range(v.ndim))
    g.rng.shuffle(dims)
    return g.rng.choice(
        (
            f"{x}.permute({tuple(dims)})",
            f"{x}.mT",
            f"{x}.transpose({g.dim(x)}, {g.dim(x)})",
            f"{x}.permute({tuple(dims)}).contiguous()",
            f"{x}.movedim({g.dim(x)}, {g.dim(x)})",
        )
    )


def expand(g: Generator) -> str:
    x = g.pick()
    shape = [g.rng.choice((2, 3)) if n == 1 else n for n in g.of(x).shape]
    if g.rng.random() < 0.4 and len(shape) < 4:
        shape = [g.rng.choice((1, 2, 3)), *shape]
    return g.rng.choice(
        (
            f"{x}.expand({tuple(shape)})",
            f"{x}.unsqueeze(-1).expand({(*shape[-g.of(x).ndim :], 3) if g.of(x).ndim else (3,)})",
        )
    )


def cut(g: Generator) -> str:
    x = g.pick(lambda v: v.ndim > 0 and 0 not in v.shape)
    d = g.dim(x)
    n = g.of(x).shape[d]
    lead = ":, " * (d % g.of(x).ndim)
    a = g.rng.randint(0, n)
    b = g.rng.randint(a, n)
    k = g.rng.randint(1, n)
    return g.rng.choice(
        (
            f"{x}[{lead}{a}:{b}]",
            f"{x}[{lead}{a}:]",
            f"{x}[{lead}:-1]",
            f"{x}[{lead}::{g.rng.choice((2, 3))}]",
            f"{x}[{lead}{a}:{b}:2]",
            f"{x}.select({d}, {g.rng.randrange(n)})",
            f"{x}[..., -1]",
            f"{x}.narrow({d}, {min(a, n - 1)}, 1)",
            f"{x}.chunk(2, {d})[{g.rng.randrange(1)}]",
            f"{x}.split({k}, {d})[-1]",
            f"{x}.unbind({d})[{g.rng.randrange(n)}]",
            f"torch.flip({x}, ({d},))",
            f"{x}.roll(1, {d})",
            f"{x}.tril()" if g.of(x).ndim > 1 else f"{x}[{lead}-2:]",
        )
    )


def parts(g: Generator) -> str:
    """A split whose parts are treated alike or not and put together."""
    x = g.full()
    d = g.dim(x)
    n = g.of(x).shape[d]
    a = g.rng.randint(1, max(n - 1, 1))
    split = f"{x}.split(({a}, {n - a}), {d})"
    return g.rng.choice(
        (
            f"(lambda p: torch.cat((p[1], p[0]), {d}))({split})",
            f"(lambda p: torch.cat((torch.relu(p[0]), torch.relu(p[1])), {d}))({split})",
            f"(lambda p: torch.cat((p[0], p[1]), {d}))({split})",
            f"(lambda p: torch.cat((-p[1], p[0]), {d}) * {g.number()})({split})",
            f"(lambda p: torch.cat((p[0] * 2, p[1] + 1), {d}))({split})",
            f"torch.stack({x}.unbind({d}), {d})",
            f"(lambda p: torch.stack(p[::-1], {d}))({x}.unbind({d}))",
            f"(lambda p: p[0].sum({d}, True) + p[1].sum({d}, True))({split})",
        )
    )


def join(g: Generator) -> str:
    x = g.pick(lambda v: v.ndim > 0)
    d = g.dim(x)
    dtype = str(g.of(x).dtype).removeprefix("torch.")
    shape = list(g.of(x).shape)
    others = []
    for _ in range(g.rng.randint(1, 3)):
        shape[d] = g.rng.choice((g.of(x).shape[d], 1, 2))
        others.append(g.tensor(shape, dtype))
    names = [x, *others]
    g.rng.shuffle(names)
    if g.rng.random() < 0.2:
        return f"torch.stack(({x}, {g.tensor(g.of(x).shape, dtype)}, {x}), {d})"
    text = f"torch.cat(({', '.join(names)}), {d})"
    if g.rng.random() < 0.4:
        total = sum(g.of(n).shape[d] for n in names)
        a = g.rng.randint(0, total)
        b = g.rng.randint(a, total)
        lead = ":, " * (d % len(shape))
        step = g.rng.choice(("", ":2", ":1"))
        return f"{text}[{lead}{a}:{b}{step}]"
    return text


def product(g: Generator) -> str:
    x = g.real(1)
    v = g.of(x)
    k, n = v.shape[-1], g.rng.choice((2, 3, 4, 6, 1))
    dtype = str(v.dtype).removeprefix("torch.")
    w = g.tensor((k, n), dtype)
    t = g.tensor((n, k), dtype)
    b = g.tensor((n,), dtype)
    u = g.tensor((k, g.rng.choice((n, 5))), dtype)
    texts = [
        f"{x} @ {w}",
        f"F.linear({x}, {t})",
        f"F.linear({x}, {t}, {b})",
        f"({x} @ {w} + {b})",
        f"{x} @ {g.tensor((k,), dtype)}",
        f"{x} * {g.number()} @ {w}",
        f"({x} @ {w}) * {g.number()} + {b}",
        f"({x} + {g.tensor((k,), dtype)}) @ {w}",
        f"({x} * {g.tensor((k,), dtype)}) @ {w} * {b}",
        f"({x} @ {w}) @ {g.tensor((n, 2), dtype)}",
        f"{x} @ {w} + {x} @ {g.tensor((k, n), dtype)}",
        f"torch.cat((F.linear({x}, {t}, {b}), {x} @ {u}), -1)",
        f"F.linear({x}, {t}, {b}) * torch.sigmoid({x} @ {g.tensor((k, n), dtype)})",
        f"F.linear({x}, {t}, {b}) * {b} + {b}",
    ]
    if v.ndim >= 2:
        texts += [
            f"{x}.mT @ {x}",
            f"{x} @ {x}.mT",
            f"{g.tensor((3, v.shape[-2]), dtype)} @ {x}",
            f"({x} @ {w}).mT",
            f"({x} @ {w}) * {g.tensor((v.shape[-2], 1), dtype)}",
            f"({x} @ {w}).mean(-2)",
            f"({x} @ {w}).sum(-1, True)",
            f"({x} @ {w})[..., {g.rng.choice(('0', ':1', '1:'))}]",
            f"({x} @ {w}).softmax(-1) @ {g.tensor((n, 3), dtype)}",
            f"{x} @ {g.tensor((*v.shape[:-2], k, n), dtype)}",
        ]
    if v.ndim == 2:
        texts += [
            f"torch.addmm({b}, {x}, {w})",
            f"torch.addmm({b}, {x}, {w}, beta=0.5, alpha=2.0)",
            f"torch.addmm({g.tensor((v.shape[0], n), dtype)}, {x}, {w})",
            f"torch.mm({x}, {w})",
            f"torch.mv({x}, {g.tensor((k,), dtype)})",
        ]
    if v.ndim == 3:
        y = g.tensor((v.shape[0], k, n), dtype)
        z = g.tensor((v.shape[0], v.shape[1], n), dtype)
        texts += [f"torch.bmm({x}, {y})", f"torch.baddbmm({z}, {x}, {y})"]
        texts += [
            f"torch.baddbmm({b}, {x}, {y}, beta=2)",
            f"torch.einsum('bij,bjk->bki', {x}, {y})",
        ]
    return g.rng.choice(texts)


def heads(g: Generator) -> str | None:
    """Attention, in one of its spellings."""
    ndim = g.rng.choice((3, 4, 2))
    batch = (g.batch, 2)[: ndim - 2]
    rows, keys = g.rng.choice((3, 4)), g.rng.choice((3, 4, 17))
    q, k, v = (g.tensor((*batch, n, 4)) for n in (rows, keys, keys))
    k = k if g.rng.random() < 0.5 else f"({g.tensor((*batch, keys, 4))} * 0.5)"
    shape = g.rng.choice(((rows, keys), (1, keys), (*batch, rows, keys), (keys,)))
    m = g.tensor(shape)
    c = g.tensor(shape, "bool")
    s = g.rng.choice(("* 0.5", "/ 2", "/ 3.0", "* 1.5", ""))
    scores = f"{q} @ {k}.mT"
    one = f"torch.tril(torch.ones({rows}, {keys}, dtype=torch.bool))"
    texts = (
        f"torch.softmax({scores} {s}, -1) @ {v}",
        f"torch.softmax(({scores}) {s} + {m}, -1) @ {v}",
        f"torch.softmax(({scores} + {m}) {s}, -1) @ {v}",
        f"torch.softmax(({q} {s}) @ {k}.mT, -1) @ {v}",
        f"torch.softmax((({scores}) {s}).masked_fill({c}, -1e30), -1) @ {v}",
        f"torch.softmax((({scores}) {s}).masked_fill(~{one}, -1e9), -1) @ {v}",
        f"torch.softmax(({scores}) {s} + {m} + {g.tensor((rows, keys))}, -1) @ {v}",
        f"torch.softmax(({scores}).float(), -1).to(torch.{g.dtype}) @ {v}",
        f"F.scaled_dot_product_attention({q}, {k}, {v})",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, scale=0.3)",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={m})",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={one})",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, is_causal=True)",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, is_causal=True)[..., -1:, :]",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={m})[..., 1:, :]",
        f"F.scaled_dot_product_attention({q} * 0.5, {k}, {v})",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={m}, scale=0.2)[0]",
    )
    return g.rng.choice(texts)


def layers(g: Generator) -> str:
    """Projections of one value, split into heads."""
    x = g.pick(lambda v: v.is_floating_point() and v.ndim == 3 and v.numel() > 0)
    b, n, k = g.of(x).shape
    dtype = str(g.of(x).dtype).removeprefix("torch.")
    w = [g.tensor((4, k), dtype, "parameter") for _ in range(3)]
    c = [g.tensor((4,), dtype, "parameter") for _ in range(3)]
    biased = g.rng.choice(((1, 1, 1), (0, 0, 0), (1, 0, 1), (0, 0, 1)))
    q, r, v = (
        f"F.linear({x}, {w[i]}{f', {c[i]}' * biased[i]}).view({b}, {n}, 2, 2).transpose(1, 2)"
        for i in range(3)
    )
    call = g.rng.choice(
        (
            f"F.scaled_dot_product_attention({q}, {r}, {v})",
            f"(torch.softmax({q} @ {r}.mT / 2 ** 0.5, -1) @ {v})",
            f"(torch.softmax({q} @ {r}.mT, -1) @ {v})",
        )
    )
    return f"{call}.transpose(1, 2).reshape({b}, {n}, 4)"


def norm(g: Generator) -> str:
    x = g.full()
    v = g.of(x)
    dtype = str(v.dtype).removeprefix("torch.")
    n = v.shape[-1]
    w, b = g.tensor((n,), dtype), g.tensor((n,), dtype)
    d = g.dim(x)
    c = f"({x} - {x}.mean(-1, keepdim=True))"
    return g.rng.choice(
        (
            f"F.layer_norm({x}, ({n},), {w}, {b}, 1e-5)",
            f"F.layer_norm({x}, ({n},), {w})",
            f"F.layer_norm({x}, ({n},)) * {w} + {b}",
            f"F.layer_norm({x}, {tuple(v.shape[-2:])})",
            f"F.rms_norm({x}, ({n},), {w}, 1e-6)",
            f"F.rms_norm({x}, ({n},))",
            f"{x} * torch.rsqrt({x}.pow(2).mean(-1, keepdim=True) + 1e-3) * {w}",
            f"{c} * torch.rsqrt(({c} * {c}).mean(-1, keepdim=True) + 1e-3)",
            f"{c} / torch.sqrt({x}.var(-1, keepdim=True, unbiased=False) + 1e-3) * {w} + {b}",
            f"torch.softmax({x}, {d})",
            f"torch.log_softmax({x}, {d})",
            f"torch.exp({x}) / torch.exp({x}).sum({d}, keepdim=True)",
            f"torch.softmax({x} - {x}.amax({d}, keepdim=True), {d})",
            f"F.softmax({x}, {d}, dtype=torch.float64).to({v.dtype})",
            f"F.normalize({x}, dim={d})",
        )
    )


def reduce(g: Generator) -> str:
    x = g.pick(lambda v: v.ndim > 0)
    d = g.dim(x)
    keep = g.rng.choice(("True", "False"))
    name = g.rng.choice(("sum", "mean", "amax", "amin", "sum", "mean", "logsumexp", "prod", "var"))
    if g.of(x).ndim > 1 and name not in ("prod",) and g.rng.random() < 0.4:
        e = g.rng.choice([i for i in range(g.of(x).ndim) if i != d % g.of(x).ndim])
        if g.rng.random() < 0.3:
            return f"{x}.{name}({d}, keepdim=True).{name}({e}, keepdim={keep})"
        return f"{x}.{name}(({d}, {e}), keepdim={keep})"
    factor = g.tensor([1 if i == d % g.of(x).ndim else n for i, n in enumerate(g.of(x).shape)])
    return g.rng.choice(
        (
            f"{x}.{name}({d}, keepdim={keep})",
            f"{x}.{name}({d}, keepdim={keep})",
            f"{x}.sum()",
            f"{x}.mean()",
            f"({x} * {factor}).sum({d}, keepdim=True)",
            f"({x} * {g.number()}).mean({d})",
            f"{x}.cumsum({d})",
            f"{x}.argmax({d})",
            f"{x}.any({d})",
            f"{x}.sum({d}) / {g.of(x).shape[d]}",
            f"{x}.max({d}).values",
            f"{x}.sort({d}).values",
            f"{x}.sum({d}, dtype=torch.float64)",
        )
    )


def image(g: Generator) -> str:
    found = [n for n, v in g.values.items() if v.ndim == 4 and v.is_floating_point() and v.numel()]
    x = g.rng.choice(found) if found and g.rng.random() < 0.8 else g.tensor((g.batch, 4, 6, 6))
    v = g.of(x)
    dtype = str(v.dtype).removeprefix("torch.")
    c = v.shape[1]
    groups = g.rng.choice([k for k in (1, 1, 1, 2, c) if c % k == 0])
    out = groups * g.rng.choice((1, 2, 3))
    k = g.rng.choice((1, 1, 2, 3))
    w, b = g.tensor((out, c // groups, k, k), dtype, "parameter"), g.tensor((out,), dtype)
    stride, padding, dilation = (g.rng.choice(c) for c in ((1, 1, 2), (0, 1, 0), (1, 1, 2)))
    geometry = f"stride={stride}, padding={padding}, dilation={dilation}, groups={groups}"
    fixed = "False, 0.1, 1e-3"
    conv = f"F.conv2d({x}, {w}, {g.rng.choice((b, 'None'))}, {geometry})"
    w2 = g.tensor((3, c, k, k), dtype, "parameter")
    s = g.tensor((out, 1, 1), dtype)
    means = ", ".join(g.tensor((out,), dtype) for _ in range(1))
    m = g.tensor((c,), dtype)
    pool = g.rng.choice(
        (
            "F.avg_pool2d({}, 2)",
            "F.avg_pool2d({}, 2, 1, 1)",
            "F.avg_pool2d({}, 3, 2, 1, count_include_pad=False)",
            "F.avg_pool2d({}, 2, ceil_mode=True)",
            "F.adaptive_avg_pool2d({}, 1)",
            "F.adaptive_avg_pool2d({}, (2, 3))",
            "F.max_pool2d({}, 2)",
            "{}.mean((2, 3), keepdim=True)",
            "{}.mean((-1, -2))",
            "F.interpolate({}, scale_factor=2)",
            "F.interpolate({}, size=(5, 4), mode='bilinear')",
            "F.pad({}, (1, 1, 0, 1))",
        )
    )
    return g.rng.choice(
        (
            conv,
            conv,
            pool.format(x),
            pool.format(conv),
            f"F.conv2d({pool.format(x)}, {w2})",
            f"F.batch_norm({conv}, {means}, {g.tensor((out,), dtype)} ** 2 + 1, {b}, {b}, {fixed})",
            f"F.batch_norm({x}, {m}, {g.tensor((c,), dtype)} ** 2 + 1, None, None, {fixed})",
            f"{conv} * {s} + {s}",
            f"{conv} * {g.number()}",
            f"F.conv2d({x} * 2, {w}, {b}, {geometry})",
            f"torch.cat((F.conv2d({x}, {w2}), F.conv2d({x}, {g.tensor((2, c, k, k), dtype)})), 1)",
            f"F.conv2d({x}, {w2}) + F.conv2d({x}, {g.tensor((3, c, k, k), dtype)})",
            f"F.conv_transpose2d({x}, {g.tensor((c, 2, k, k), dtype)}, stride=2) * 2",
            f"F.group_norm({x}, {groups})",
            f"F.conv2d({x}, {w}, {b}, {geometry})[0]",
            f"F.conv1d({x}[0], {g.tensor((3, v.shape[2], 2), dtype)}, padding=1)",
        )
    )


def gather(g: Generator) -> str:
    n = g.rng.choice((3, 5))
    w = g.tensor((n, 4), fresh="parameter")
    i = (
        g.tensor((g.batch, 3), "int64", "input")
        if g.rng.random() < 0.5
        else g.tensor((3,), "int64")
    )
    i = i if bool((g.of(i) >= 0).all() and (g.of(i) < n).all()) else f"{i}.clamp(0, 2)"
    return g.rng.choice(
        (
            f"F.embedding({i}, {w})",
            f"F.embedding({i}, {w})[0]",
            f"F.embedding({i}, {w})[..., 1:3]",
            f"{w}[{i}]",
            f"{w}.index_select(0, {i}.reshape(-1))",
            f"F.embedding({i}, {w}) @ {g.tensor((4, 2))}",
        )
    )


def write(g: Generator) -> str:
    """A step that changes a value in place."""
    x = g.real()
    y = g.beside(x)
    buffers = [
        leaf.name
        for leaf in g.leaves
        if leaf.kind == "buffer" and g.of(leaf.name).is_floating_point()
    ]
    target = g.rng.choice(buffers) if buffers and g.rng.random() < 0.6 else x
    ops = (
        f"$ = {x}.clone().add_({y})",
        f"$ = {x}.clone().mul_(2).relu_()",
        f"$ = {target}.add_(1)",
        f"$ = {target}.mul_(0.5)",
        f"{target}.add_(0.25); $ = {target} * 2",
        f"{target}.copy_({target} * 0.5 + 1); $ = {target} + {x}"
        if target != x
        else f"$ = {x}.clone().zero_()",
    )
    return g.rng.choice(ops)


TABLE: tuple[tuple[Maker, float], ...] = (
    (unary, 3),
    (activation, 3),
    (binary, 6),
    (scalar, 6),
    (filled, 2),
    (compare, 1),
    (logical, 1),
    (choose, 2),
    (cast, 2),
    (reshape, 5),
    (permute, 5),
    (expand, 3),
    (cut, 6),
    (parts, 3),
    (join, 5),
    (product, 8),
    (heads, 2),
    (layers, 2),
    (norm, 4),
    (reduce, 5),
    (image, 3),
    (gather, 1),
    (write, 0.5),
)
MAKERS = [maker for maker, _ in TABLE]
WEIGHTS = [weight for _, weight in TABLE]


def random_extractor(seed: int) -> Callable[..., Selection]:
    """An extractor that takes any e-node of every class, as long as nothing needs itself."""

    def extract(egraph: EGraph, **_: Any) -> Selection:
        started = time.perf_counter()
        rng = random.Random(seed)
        shuffled = list(range(egraph.num_nodes))
        rng.shuffle(shuffled)
        classes = egraph.node_class.tolist()
        order = derivation([classes[i] for i in shuffled], [egraph.kids[i] for i in shuffled])
        rank = {cls: place for place, cls in enumerate(order)}
        choice = np.full(egraph.num_classes, -1, np.int32)
        for enode in shuffled:
            cls = classes[enode]
            if cls in rank and all(rank.get(k, len(rank)) < rank[cls] for k in egraph.kids[enode]):
                choice[cls] = enode
        return select(egraph, choice, method="random", started=started)

    extract.__name__ = f"random-{seed}"
    return extract


@dataclass(frozen=True)
class Seen:
    """What one call returned, and what it left in its inputs and state."""

    outputs: tuple[Any, ...]
    after: dict[str, Tensor]
    shared: frozenset[tuple[str, str]]


def call(module: torch.nn.Module, args: Sequence[Tensor]) -> Seen:
    """One call on copies of `args`, after which the state is as it was."""
    inputs = {f"input {i}": _copy(a) for i, a in enumerate(args)}
    state = {**dict(module.named_buffers()), **dict(module.named_parameters())}
    kept = {name: value.detach().clone() for name, value in state.items()}
    try:
        with torch.no_grad():
            outputs = tuple(tree_leaves(module(*inputs.values())))
        after = {name: value.detach().clone() for name, value in {**inputs, **state}.items()}
        copies = tuple(_copy(o) if isinstance(o, Tensor) else o for o in outputs)
        shared = _shared(outputs, inputs, state)
    finally:
        with torch.no_grad():
            for name, value in kept.items():
                state[name].copy_(value)
    return Seen(copies, after, shared)


def _shared(
    outputs: Sequence[Any], inputs: dict[str, Tensor], state: dict[str, Tensor]
) -> frozenset[tuple[str, str]]:
    """Which outputs lie in the memory of others, of inputs, or of state (weights may be new)."""
    places = [(f"output {i}", o) for i, o in enumerate(outputs) if isinstance(o, Tensor)]
    lent = [*inputs.items(), *(("state", value) for value in state.values())]
    pairs = [*combinations(places, 2), *product_of(places, lent)]
    return frozenset((a, b) for (a, x), (b, y) in pairs if _overlap(x, y))


def _copy(value: Tensor) -> Tensor:
    """The value in storage of its own, as it lies."""
    storage = value.untyped_storage().clone()
    empty = torch.empty(0, dtype=value.dtype)
    return empty.set_(storage, value.storage_offset(), value.shape, value.stride())  # type: ignore[call-overload]


def _overlap(x: Tensor, y: Tensor) -> bool:
    return x.numel() > 0 and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def differences(given: Seen, result: Seen, strict: bool, noise: Seen | None) -> Iterator[str]:
    """How two calls differ."""
    if len(given.outputs) != len(result.outputs):
        yield f"{len(given.outputs)} outputs became {len(result.outputs)}"
        return
    moved = noise.outputs if noise is not None else given.outputs
    for i, (a, b, c) in enumerate(zip(given.outputs, result.outputs, moved, strict=True)):
        if not isinstance(a, Tensor):
            if a != b:
                yield f"output {i}: {a!r} became {b!r}"
            continue
        yield from (f"output {i}: {d}" for d in _differ(a, b, c, strict))
        if any(n > 1 and s != t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=False)):
            yield f"output {i}: strides {a.stride()} became {b.stride()}"
    if given.shared != result.shared:
        yield f"aliases {sorted(given.shared)} became {sorted(result.shared)}"
    for name, a in given.after.items():
        if name in result.after:
            yield from (f"{name} after: {d}" for d in _differ(a, result.after[name], a, strict))


def _differ(a: Tensor, b: Tensor, moved: Tensor, strict: bool) -> Iterator[str]:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        yield f"{a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}"
        return
    if not a.numel():
        return
    if strict or not a.is_floating_point():
        same = (a == b) | ((a != a) & (b != b))
        if not a.is_floating_point() and moved.shape == a.shape:
            same |= a != moved
        if a.is_floating_point():
            same &= (a == 0).logical_not() | (a.signbit() == b.signbit())
        if not bool(same.all()):
            at = int((~same).flatten().nonzero()[0])
            before, now = a.flatten()[at].item(), b.flatten()[at].item()
            yield f"{before!r} became {now!r} ({int((~same).sum())} elements)"
        return
    finite = a.isfinite() & b.isfinite()
    odd = ~finite & ~((a == b) | (a.isnan() & b.isnan()))
    if bool(odd.any()):
        at = int(odd.flatten().nonzero()[0])
        yield f"not finite: {a.flatten()[at].item()!r} became {b.flatten()[at].item()!r}"
    x, y, z = (t[finite].double() for t in (a, b, moved))
    if x.numel():
        scale = max(1.0, float(x.abs().max()))
        allowed = TOLERANCE[a.dtype] * scale + 1e3 * float((x - z).abs().nan_to_num(0).max())
        error = float((x - y).abs().max())
        if error > allowed:
            yield f"off by {error:.3g} (allowed {allowed:.3g})"


@dataclass(frozen=True)
class Way:
    """How a program is optimized; "random" tries a few selections of one e-graph."""

    extractor: str
    numerics: str
    seed: int
    rules: tuple[str, ...] | None = None

    def results(self, program: torch.export.ExportedProgram) -> Iterator[torch.nn.Module]:
        """The program optimized this way, without its check. Raises what the optimizer raises."""
        rules = rewrites.DEFAULT
        if self.rules is not None:
            rules = tuple(rule for rule in rules if rule.name in self.rules)
        if self.extractor == "random":
            yield from _selections(program, rules, self.numerics, self.seed)
            return
        result = eqsat.optimize(
            program,
            rules=rules,
            numerics=self.numerics,
            extractor=self.extractor,
            limits=LIMITS,
            time_limit=1.0,
            check=False,
        )
        if "failed" in (result.report.kept or ""):
            raise AssertionError(result.report.kept)
        yield result.module


def _selections(
    program: torch.export.ExportedProgram, rules: Sequence[Rewrite], numerics: str, seed: int
) -> Iterator[torch.nn.Module]:
    """Some of the programs in the e-graph, each e-node as likely to be taken as any other."""
    captured = capture(program, None, None, None)
    if captured.blocked is not None:
        return
    graph = captured.program.graph
    constants = constants_of(captured.program)
    encoding = encode(graph, constants)
    within = (rule.within(NAMES[numerics]) for rule in rules)
    snapshot, _ = saturate(encoding, [rule for rule in within if rule is not None], LIMITS)
    values = (node.meta.get("val") for node in graph.nodes)
    mode = detect_fake_mode([v for v in values if isinstance(v, Tensor)]) or FakeTensorMode()
    choices = problem(snapshot, encoding, load("h200"), False)
    for offset in range(SELECTIONS):
        selection = random_extractor(seed + offset)(choices.egraph)
        judge(choices.egraph, selection)
        new = decode(snapshot, encoding, choices, selection.choice, mode)
        folding = fold(new, constants, mode, 1 << 26) if offset % 2 else None
        drop_unread(new, constants)
        tensors = {} if folding is None else dict(folding.tensors)
        yield drop_in(rebuild(captured.program, new, tensors))


def exported(source: Source) -> tuple[torch.export.ExportedProgram, tuple[Tensor, ...]] | None:
    """The program as torch captures it; None where it does not."""
    module, args = source.build()
    shapes = None
    if source.dynamic:
        auto = torch.export.Dim.AUTO
        shapes = tuple({0: auto} if a.ndim and a.shape[0] > 1 else {} for a in args)
    try:
        return torch.export.export(module, args, dynamic_shapes=shapes, strict=False), args
    except Exception:  # noqa: BLE001 - what torch refuses is not our subject
        return None


def verdict(source: Source, way: Way) -> str | None:
    """What is wrong with the program optimized this way: nothing is "", not captured is None."""
    captured = exported(source)
    if captured is None:
        return None
    program, args = captured
    try:
        given = call(program.module(), args)
    except Exception:  # noqa: BLE001
        return None
    nudged = [
        a * (1 + (1e-12 if a.dtype == torch.float64 else 1e-7)) if a.is_floating_point() else a
        for a in args
    ]
    noise = None
    if any(a.is_floating_point() for a in args) and way.numerics != "strict":
        noise = call(program.module(), [_like(n, a) for n, a in zip(nudged, args, strict=True)])
    strict = way.numerics == "strict" and not any(word in str(source) for word in CONTRACTIONS)
    try:
        for module in way.results(program):
            for difference in differences(given, call(module, args), strict, noise):
                return difference
            probed = check(program.module(), module, args, numerics=way.numerics)
            rounding = way.numerics == "strict" and not strict
            if not (probed.passed or rounding or "off by" in str(probed)):
                return str(probed)
    except Exception as error:  # noqa: BLE001 - whatever it raises is a finding
        return f"{type(error).__name__}: {error}"
    return ""


def _like(new: Tensor, old: Tensor) -> Tensor:
    made = torch.empty_strided(old.shape, old.stride(), dtype=old.dtype)
    return made.copy_(new) if old.numel() else made


def shrink(source: Source, fails: Callable[[Source], bool], seconds: float = 60.0) -> Source:
    """The smallest program found that still fails."""
    deadline = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < deadline:
        changed = False
        for candidate in _smaller(source):
            if time.monotonic() > deadline:
                break
            if fails(candidate):
                source, changed = candidate, True
                break
    return source


def _smaller(source: Source) -> Iterator[Source]:
    """Programs a little smaller: fewer outputs, a step made an input, a step gone."""
    if source.dynamic:
        yield replace(source, dynamic=False)
    if len(source.outputs) > 1:
        for name in source.outputs:
            yield replace(source, outputs=(name,)).trimmed()
    for step in reversed(source.steps[:-1]):
        yield replace(source, outputs=(step.name,)).trimmed()
    values = _values(source)
    for step in source.steps:
        value = values.get(step.name)
        if value is None or "_(" in step.text:
            continue
        leaf = Leaf(f"i{step.name}", "input", _random_text(value))
        rest = tuple(_renamed(s, step.name, leaf.name) for s in source.steps if s is not step)
        outputs = tuple(leaf.name if o == step.name else o for o in source.outputs)
        yield replace(source, leaves=(*source.leaves, leaf), steps=rest, outputs=outputs).trimmed()
        for read in step.reads:
            same = values.get(read)
            if same is not None and (same.shape, same.dtype) == (value.shape, value.dtype):
                rest = tuple(_renamed(s, step.name, read) for s in source.steps if s is not step)
                outputs = tuple(read if o == step.name else o for o in source.outputs)
                yield replace(source, steps=rest, outputs=outputs).trimmed()


def _values(source: Source) -> dict[str, Tensor]:
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    torch.manual_seed(0)
    with torch.no_grad():
        for leaf in source.leaves:
            exec(f"{leaf.name} = {leaf.text}", names)
        for step in source.steps:
            exec(step.text, names)
    return {name: value for name, value in names.items() if isinstance(value, Tensor)}


def _random_text(value: Tensor) -> str:
    size = tuple(value.shape)
    if value.is_floating_point():
        return f"torch.randn({size}, dtype={value.dtype})"
    if value.dtype == torch.bool:
        return f"torch.randint(0, 2, {size}) > 0"
    return f"torch.randint(0, 3, {size}, dtype={value.dtype})"


def _renamed(step: Step, old: str, new: str) -> Step:
    text, word = "", ""
    for c in step.text + " ":
        if c.isalnum() or c == "_":
            word += c
            continue
        text += (new if word == old else word) + c
        word = ""
    return Step(step.name, text.rstrip(), tuple(new if r == old else r for r in step.reads))


def fewest_rules(way: Way, fails: Callable[[Way], bool], seconds: float = 60.0) -> Way:
    """The way with the fewest rules found with which it still fails."""
    deadline = time.monotonic() + seconds
    names = list(way.rules or (rule.name for rule in rewrites.DEFAULT))
    if fails(replace(way, rules=())):
        return replace(way, rules=())
    size = len(names) // 2
    while size:
        start = 0
        while start < len(names):
            left = names[:start] + names[start + size :]
            if time.monotonic() > deadline:
                return replace(way, rules=tuple(names))
            if left and fails(replace(way, rules=tuple(left))):
                names = left
            else:
                start += size
        size //= 2
    return replace(way, rules=tuple(names))


def ways(seed: int) -> tuple[Way, ...]:
    """How program number `seed` is optimized."""
    extractor = EXTRACTORS[1 + seed % (len(EXTRACTORS) - 1)]
    other = "random" if seed % 3 else extractor
    return Way("random", "default", seed), Way(other, "strict" if seed % 2 else "default", seed)


def explain(source: Source, way: Way, problem: str) -> str:
    """A small program that fails, with the rules that it needs."""

    def fails(s: Source, w: Way) -> bool:
        return bool(verdict(s, w))

    small = shrink(source, partial(fails, w=way))
    fewer = fewest_rules(way, lambda w: fails(small, w))
    small = shrink(small, partial(fails, w=fewer), 20.0)
    last = verdict(small, fewer) or problem
    rules = "all" if fewer.rules is None else ", ".join(fewer.rules) or "none"
    return f"{last}\n{way.extractor}, {way.numerics}, rules: {rules}\n\n{HEADER}{small}"


def main() -> None:
    """Try random programs for a while, and print those whose result is wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    tried = skipped = 0
    failures = 0
    seed = options.seed
    while time.monotonic() < deadline:
        source = Generator(seed).program()
        for way in ways(seed):
            problem = verdict(source, way)
            if problem is None:
                skipped += 1
                break
            if problem:
                failures += 1
                print(f"--- seed {seed}: {problem}", flush=True)
                print(explain(source, way, problem), flush=True)
                break
        else:
            tried += 1
        seed += 1
    print(f"{tried + failures} programs tried, {skipped} not captured by torch, {failures} failed")


if __name__ == "__main__":
    main()
