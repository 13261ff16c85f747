"""Steps by the hundred: calls of torch with places for a program's values, read from `calls/`.

A file holds sections, `[name weight] what it is`, of one call a line. Places are in braces: `{a}`
any value of floating-point numbers, `{b}` one that broadcasts with it, `{x}` one that is not empty,
`{d}` a dim of it, `{t:3,4}` a value of this shape, `{w:3,4}` a weight, and others below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Formatter

import torch

from .pool import Pool

Maker = Callable[[Pool], str]
CALLS = Path(__file__).parent / "calls"
HEAD = re.compile(r"\[(\w+) ([\d.]+)\] \w")


def makers(name: str) -> tuple[tuple[Maker, float], ...]:
    """The steps of the sections of the file of this name, with their weights.

    Raises ValueError for a call that stands twice, or has a place that is none.
    """
    sections: list[tuple[float, list[str]]] = []
    known: set[str] = set()
    for line in filter(None, (CALLS / f"{name}.txt").read_text("utf-8").splitlines()):
        if head := HEAD.match(line):
            sections.append((float(head[2]), []))
            continue
        if wrong := set(_places(line)) - PLACES.keys():
            raise ValueError(f"{name}.txt: no place is named {sorted(wrong)} in {line!r}")
        if line in known:
            raise ValueError(f"{name}.txt: {line!r} stands there twice")
        known.add(line)
        sections[-1][1].append(line)
    return tuple((_maker(calls), weight) for weight, calls in sections)


def _places(call: str) -> Iterator[str]:
    return (place for _, place, _, _ in Formatter().parse(call) if place)


def _maker(calls: list[str]) -> Maker:
    """The step that is one of these calls, its places filled."""
    return lambda g: g.rng.choice(calls).format_map(_Places(g))


class _Shaped:
    """A place for a tensor of a shape that the call gives: `{t:B,3}`."""

    def __init__(self, pool: Pool, dtype: torch.dtype, kind: str = "") -> None:
        self.pool = pool
        self.dtype = dtype
        self.kind = kind

    def __format__(self, sizes: str) -> str:
        shape = [self.pool.batch if n == "B" else int(n) for n in sizes.split(",") if n]
        if self.kind:
            return self.pool.tensor(shape, self.dtype, self.kind)
        return f"({self.pool.value(shape, self.dtype)})"


class _Places(dict[str, object]):
    """What stands in the places of one call, each found when it is asked for."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool

    def __missing__(self, name: str) -> object:
        self[name] = value = PLACES[name](self, self.pool)
        return value


def _index(s: _Places, g: Pool, like: bool) -> str:
    """Numbers that index dim `d` of `x`: a few, or as many as `x` has elements."""
    shape = g.of(str(s["x"])).shape
    indices = g.tensor(shape if like else (g.rng.randint(1, 3),), torch.int64)
    return f"({indices} % {shape[int(str(s['d']))]})"


def _other(s: _Places, g: Pool) -> int:
    """A dim of `x` other than `d`."""
    ndim, d = g.of(str(s["x"])).ndim, int(str(s["d"]))
    return g.rng.choice([e for e in range(-ndim, ndim) if e % ndim != d % ndim])


PLACES: dict[str, Callable[[_Places, Pool], object]] = {
    "a": lambda _, g: g.real(),  # any value of floating-point numbers
    "b": lambda s, g: g.beside(str(s["a"])),
    "b2": lambda s, g: g.beside(str(s["a"])),
    "p": lambda s, g: f"({g.beside(str(s['a']))}.abs() + 0.5)",  # positive
    "u": lambda s, _: f"torch.sigmoid({s['a']})",  # between 0 and 1
    "c": lambda s, g: g.tensor(g.of(str(s.get("x") or s["a"])).shape, torch.bool),
    "x": lambda _, g: g.full(),  # one with dims, none of them empty
    "y": lambda s, g: g.beside(str(s["x"])),
    "d": lambda s, g: g.dim(str(s["x"])),
    "e": _other,
    "k": lambda s, g: g.rng.randint(1, g.of(str(s["x"])).shape[int(str(s["d"]))]),
    "q": lambda s, g: _index(s, g, True),
    "r": lambda s, g: _index(s, g, False),
    "r1": lambda _, g: g.tensor((1,), torch.int64) + " % 1",
    "k0": lambda _, g: g.rng.randint(0, 3),
    "k1": lambda s, g: g.rng.randint(int(str(s["k0"])) + 1, 6),
    "n": lambda _, g: g.number(),
    "t": lambda _, g: _Shaped(g, g.dtype),
    "w": lambda _, g: _Shaped(g, g.dtype, "parameter"),
    "i": lambda _, g: _Shaped(g, torch.int64),
    "o": lambda _, g: _Shaped(g, torch.bool),
    "B": lambda _, g: g.batch,
    "N": lambda s, g: g.of(str(s["x"])).numel() if "x" in s else 3,
    "L": lambda s, g: g.of(str(s["x"])).shape[-1],
    "dtype": lambda _, g: g.dtype,
}
