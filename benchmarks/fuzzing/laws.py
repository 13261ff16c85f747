"""Left sides of rules as steps, each found by itself: so that every rule has something to do."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import torch

import rewrites
from eqsat.functions import Function, Hole
from eqsat.infer import Oracle
from eqsat.meta import Meta, Scalar, Texts
from eqsat.rewrite import Rewrite
from eqsat.verify.samples import Sample, Sampler, run

from .pool import Pool

SAMPLES = 2  # of each rule, drawn once
ATTEMPTS = 80  # for them,
MOST = 150  # or for the first
WIDE = 200  # elements of an operand, at most
DTYPES = frozenset((torch.float64, torch.float32, torch.int64, torch.int32, torch.bool))
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
}
HELD = frozenset(("constant", "neighbours", "given", "ordered"))  # facts that parameters have


def law(g: Pool) -> str:
    """The left side of a rule, on values that the program has where these fit."""
    rule = g.rng.choice(rewrites.DEFAULT)
    sample = g.rng.choice(samples(rule, g.epoch))
    held = {name for fact in rule.facts if fact.name in HELD for name in fact.variables}
    if any(fact.name == "neighbours" for fact in rule.facts):
        held |= sample.values.keys() - {"x"}
    others = bool(held) and g.rng.random() < 0.5
    texts = {
        name: _operand(g, value, sample.roles.get(name), name in held, others)
        for name, value in sample.values.items()
    }
    oracle = Oracle(Texts())
    sides = [run(side, sample.values, texts, _call, oracle) for side in rule.left]
    if len(sides) == 1:
        return sides[0]
    return f"torch.cat(({', '.join(f'{side}.reshape(-1)' for side in sides)}))"


@functools.cache
def samples(rule: Rewrite, epoch: int) -> tuple[Sample, ...]:
    """A few samples of a rule, small and in the dtypes of these programs, at most one empty."""
    sampler = Sampler(rule, epoch)
    found: list[Sample] = []
    for attempt in range(MOST):
        if len(found) == SAMPLES or (found and attempt > ATTEMPTS):
            break
        sample = sampler.attempt()
        sample = None if sample is None else _widened(sample)
        if sample is not None and all(map(_fits, sample.values.values())):
            empty = any(isinstance(v, Meta) and not v.numel() for v in sample.values.values())
            found += [sample] if found or not empty else []
    return tuple(found)


def _widened(sample: Sample) -> Sample:
    """The sample without numbers of half precision: with the next wider dtypes throughout."""
    if not any(map(_half, sample.values.values())):
        return sample

    def wider(value: Any) -> Any:
        if isinstance(value, Meta):
            return replace(value, dtype=wider(value.dtype))
        if isinstance(value, Function):
            return replace(value, parameters=tuple(map(wider, value.parameters)))
        return WIDER.get(value, value) if isinstance(value, torch.dtype) else value

    return replace(sample, values={name: wider(v) for name, v in sample.values.items()})


def _half(value: Any) -> bool:
    """Whether a value is, or speaks of, a dtype of half precision."""
    if isinstance(value, Function):
        return any(map(_half, value.parameters))
    dtype = value.dtype if isinstance(value, Meta) else value
    return dtype in (torch.float16, torch.bfloat16)


def _fits(value: Any) -> bool:
    """Whether a value is no tensor that is too large, or of a dtype that no program has."""
    return not isinstance(value, Meta) or (value.dtype in DTYPES and value.numel() <= WIDE)


def _operand(g: Pool, value: Any, role: int | None, held: bool, others: bool) -> str:
    """The text of a variable: a number, or a tensor of this meta, which is `held` as a weight.

    It is an input where there are `others` that are weights.
    """
    if isinstance(value, Scalar):
        return _text(value.value)
    if not isinstance(value, Meta):
        return ""
    shape, dtype = tuple(int(n) for n in value.shape), value.dtype
    index = role is not None and role > 0
    if index and not shape:
        raise ValueError("torch's fake tensors give an index without dims a wrong shape")
    if index:
        return f"({g.value(shape, torch.int64)} % {role})"
    if (held or (role is not None and role < 0)) and dtype.is_floating_point:
        name = g.tensor(shape, dtype, "parameter")
    elif others:
        name = g.tensor(shape, dtype, "input")
    else:
        name = g.value(shape, dtype)
    positive = role == 0 or (dtype.is_floating_point and not held and g.rng.random() < 0.1)
    return f"({name}.abs() + 0.1)" if positive else name


def _call(name: str, children: list[Any], attributes: list[Any]) -> str:
    """The text of an operator applied to texts."""
    if name == "number":
        return _text(attributes[0])
    if name in ("unary", "binary", "ternary"):
        return f"{_text(attributes[0])}({', '.join(children)})"
    if name == "reduction":
        function, dims, keepdim = attributes
        return f"{_text(function)}({children[0]}, {tuple(dims)}, {keepdim})"
    return f"op[{name!r}]({', '.join([*children, *map(_text, attributes)])})"


def _text(value: Any) -> str:
    """An expression for a number or an attribute."""
    if isinstance(value, Function):
        if any(isinstance(p, (Hole, tuple, list)) for p in value.parameters):
            raise ValueError(f"{value.label} has no short text")
        parameters = "".join(f"{_text(p)}, " for p in value.parameters)
        return f"Function({value.name!r}, ({parameters}))" if parameters else f"fn({value.name!r})"
    if isinstance(value, float) and not abs(value) < float("inf"):
        return f"float('{value}')"
    if isinstance(value, torch.device):
        return repr(str(value))
    if isinstance(value, (tuple, list)):
        return f"({''.join(f'{_text(part)}, ' for part in value)})"
    return str(value) if isinstance(value, torch.dtype) else repr(value)


LAWS = ((law, 30),)
