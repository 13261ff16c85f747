"""Random programs, grown step by step, each step tried on real tensors."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from .layers import LAYERS
from .pointwise import POINTWISE
from .pool import Pool
from .products import PRODUCTS
from .source import Source, Step, run
from .views import VIEWS

LARGEST = 1e3  # values beyond it make every comparison one of rounding
TABLE = (*POINTWISE, *VIEWS, *PRODUCTS, *LAYERS)
MAKERS = [maker for maker, _ in TABLE]
WEIGHTS = [weight for _, weight in TABLE]


def generate(seed: int) -> Source:
    """Program number `seed`, of 5 to 25 steps."""
    torch.manual_seed(seed)
    pool = Pool(seed)
    wild = pool.rng.random() < 0.1
    for _ in range(pool.rng.randint(2, 4)):
        pool.tensor(pool.shape(), fresh="input")
    steps: list[Step] = []
    wanted, tries = pool.rng.randint(5, 25), 0
    while len(steps) < wanted and tries < 400:
        tries += 1
        make = pool.rng.choices(MAKERS, WEIGHTS)[0]
        try:
            step = _tried(pool, f"v{len(steps)}", make(pool), wild)
        except (IndexError, ValueError, RuntimeError, TypeError):
            continue
        steps += [] if step is None else [step]
    return _finished(pool, steps)


def _tried(pool: Pool, name: str, text: str, wild: bool) -> Step | None:
    """The step, its value now in the pool; None where the value is not tame."""
    statement = text.replace("$", name) if "$" in text else f"{name} = {text}"
    writes = "_(" in text
    names = run([statement], {k: v.clone() if writes else v for k, v in pool.values.items()})
    value = names[name]
    if not isinstance(value, Tensor) or value.numel() > 4_000 or value.is_complex():
        return None
    dense = value.double() if value.numel() else torch.zeros(1)
    if not wild and not bool((dense.abs() < LARGEST).all()):
        return None
    if value.dtype.is_floating_point and value.dtype not in (torch.float64, torch.float32):
        return None
    words = set(re.findall(r"\w+", statement))
    reads = tuple(n for n in pool.values if n in words)
    pool.values[name] = value.clone() if writes else value
    if writes:  # what a step wrote is another value now
        pool.values |= {n: names[n].detach() for n in reads}
    return Step(name, statement, reads)


def _finished(pool: Pool, steps: list[Step]) -> Source:
    """The program with an output for each value that no step reads, or for a few values."""
    names = [step.name for step in steps] or [leaf.name for leaf in pool.leaves]
    read = {name for step in steps for name in step.reads}
    ends = [name for name in names if name not in read][-6:]
    some = pool.rng.choices(names, k=pool.rng.randint(1, 3))
    outputs = list(dict.fromkeys([*ends, *some] if pool.rng.random() < 0.7 else some))
    if pool.rng.random() < 0.1:
        outputs += [pool.rng.choice([*outputs, *(leaf.name for leaf in pool.leaves)])]
    dynamic = pool.rng.random() < 0.15
    return Source(tuple(pool.leaves), tuple(steps), tuple(outputs), dynamic).trimmed()
