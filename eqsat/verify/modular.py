"""The sides of a rule run over a prime field: agreement there is a proof but for a tiny chance.

Sums, products and quotients are exact there, so two rational functions that differ do so at random
arguments, but for a chance of at most degree / prime (Schwartz 1980, Zippel 1979). Functions that
are not rational stand for any function: of them only the name counts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eqsat.expression import Expr
from eqsat.infer import Oracle
from eqsat.meta import Meta, Scalar, Texts
from eqsat.rewrite import Rewrite
from eqsat.verify.counterexample import Counterexample, count, shown
from eqsat.verify.field import PRIME, Residues, Undecided
from eqsat.verify.meaning import Meaning
from eqsat.verify.samples import Sample, run

FILLINGS = 2  # of a sample: a chance of degree / prime each


@dataclass(frozen=True)
class Agreement:
    """How the sides of a rule agreed on a sample over the field.

    `chance` bounds the probability that they do though they differ; `free` says whether a function
    that is not rational took part.
    """

    chance: float
    free: bool


def modular(rule: Rewrite, sample: Sample, seed: int) -> Agreement | Counterexample | None:
    """How the sides agree over the field at random values, or where they do not.

    None where that says nothing: an operator has no meaning there, or the sides differ only if a
    function that is not rational has no property of its own.
    """
    chance, free = 1.0, False
    for filling in range(FILLINGS):
        try:
            found = _agreement(rule, sample, seed * FILLINGS + filling)
        except (Undecided, RuntimeError, IndexError):  # torch refuses: sides on tensors show that
            return None
        if not isinstance(found, Agreement):
            return found
        chance, free = chance * found.chance, free or found.free
    return Agreement(chance, free)


def _agreement(rule: Rewrite, sample: Sample, seed: int) -> Agreement | Counterexample | None:
    values = residues(sample, random.Random(seed).getrandbits(48))
    of_complex = any(isinstance(m, Meta) and m.dtype.is_complex for m in sample.values.values())
    meaning, oracle = Meaning(of_complex), Oracle(Texts())

    def side(expr: Expr) -> Any:
        return run(expr, sample.values, values, meaning.operate, oracle)

    degree = 0
    for index in sample.pairs:
        left, right = side(rule.left[index]), side(rule.right[index])
        if isinstance(left, Residues) and isinstance(right, Residues):
            a, b, degree = left.data, right.data, max(degree, left.differing(right))
        elif isinstance(left, Tensor) and isinstance(right, Tensor):
            a, b = left, right
        else:
            raise Undecided("values of different kinds")
        if not torch.equal(a, b):
            return None if meaning.free else _differing(index, sample, seed, values, a, b)
    return Agreement(min(1.0, degree / PRIME), meaning.free)


def residues(sample: Sample, seed: int) -> dict[str, Any]:
    """The variables' values: random residues, indices and booleans; numbers and attributes."""
    generator = torch.Generator().manual_seed(seed)

    def value(name: str, given: Any) -> Any:
        if isinstance(given, Scalar):
            return given.value
        if not isinstance(given, Meta):
            return given
        shape = tuple(int(n) for n in given.shape)
        if given.dtype == torch.bool:
            return torch.randint(2, shape, generator=generator).bool()
        if (role := sample.roles.get(name, 0)) > 0:
            return torch.randint(role, shape, generator=generator)
        return Residues(torch.randint(PRIME, shape, generator=generator))

    return {name: value(name, given) for name, given in sample.values.items()}


def _differing(
    index: int, sample: Sample, seed: int, values: dict[str, Any], left: Tensor, right: Tensor
) -> Counterexample:
    plain = {n: v.data if isinstance(v, Residues) else v for n, v in values.items()}
    wrong = (left != right).nonzero()[0].tolist()
    reason = f"output {index}: the sides differ modulo {PRIME} at {wrong}"
    texts = tuple((name, shown(value)) for name, value in plain.items())
    about = (str(sample), "modular", seed, texts, shown(left), shown(right), count(plain))
    return Counterexample(reason, *about)
