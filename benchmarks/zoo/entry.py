"""An entry of the zoo: a program at two sizes, and what a search should find in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch.export import ExportedProgram
from torch.fx import Graph

import eqsat
from benchmarks.models import Program

os.environ.setdefault("HF_HUB_OFFLINE", "1")

Sizes = Mapping[str, int]
SIZES = ("full", "small")
"""What a prediction is made for, and what runs on a CPU in a second or two, in float32."""


@dataclass(frozen=True)
class Expected:
    """A claim about an optimized program, and whether it holds of a result."""

    text: str
    found: Callable[[eqsat.Result], bool]


@dataclass(frozen=True)
class Entry:
    """A program by name: of set A (as deployed), B (as published) or C (where order matters).

    `build` takes "full" or "small" and always gives the same weights and inputs. What is `expected`
    holds of neither size as it was given.
    """

    name: str
    set: Literal["A", "B", "C"]
    build: Callable[[str], Program]
    expected: tuple[Expected, ...]
    about: str


Make = Callable[[Sizes], Program]
Check = Callable[[Graph, Sizes], bool]


def entry(
    name: str,
    group: Literal["A", "B", "C"],
    about: str,
    make: Make,
    *,
    full: Sizes,
    small: Sizes,
    shape: Callable[[Sizes], tuple[int, ...]] = lambda _: (),
    expected: Mapping[str, Check] = MappingProxyType({}),
    dtype: torch.dtype = torch.float32,
) -> Entry:
    """An entry whose program `make` builds of sizes; at full size in `dtype`.

    A check of what is `expected` reads the graph and the sizes, which are told apart by the `shape`
    of the first input.
    """
    sizes = MappingProxyType({"full": full, "small": small})

    def build(size: str) -> Program:
        if size not in sizes:
            raise ValueError(f"size {size!r}: one of {', '.join(sizes)}")
        torch.manual_seed(0)
        program = make(sizes[size])
        return program if size == "small" else _cast(program, dtype)

    def claim(text: str, check: Check) -> Expected:
        def found(result: eqsat.Result) -> bool:
            given = _input_shape(result.program)
            of = next((s for s in sizes.values() if shape(s) == given), None)
            if of is None:
                raise ValueError(f"{name} takes no input of shape {given}: not one of its results")
            return check(result.program.graph, of)

        return Expected(text, found)

    claims = tuple(claim(text, check) for text, check in expected.items())
    return Entry(name, group, build, claims, about)


def _cast(program: Program, dtype: torch.dtype) -> Program:
    """The program with its weights and its inputs that are no whole numbers in `dtype`."""
    args = (x.to(dtype) if x.is_floating_point() else x for x in program.args)
    return Program(program.module.to(dtype), tuple(args), program.kwargs)


def _input_shape(program: ExportedProgram) -> tuple[int, ...]:
    """The shape of the first input."""
    (name, *_) = program.graph_signature.user_inputs
    node = next(n for n in program.graph.nodes if n.op == "placeholder" and n.name == name)
    return tuple(node.meta["val"].shape)
