"""Random programs, grown step by step, each step tried on real tensors."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import torch
from torch import Tensor

from .calls import makers
from .laws import LAWS
from .layers import LAYERS
from .pointwise import POINTWISE
from .pool import Pool
from .products import PRODUCTS
from .source import Source, Step, run
from .structures import SPELLED
from .views import VIEWS

LARGEST = 1e3  # values beyond it make every comparison one of rounding
KINDS = {
    "pointwise": POINTWISE,
    "views": VIEWS,
    "products": PRODUCTS,
    "layers": LAYERS,
    "catalogue": makers("catalogue"),
    "structures": (*makers("structures"), *SPELLED),
    "laws": LAWS,
}
ALL = tuple(KINDS)
TRIES = 40  # for each step


@dataclass(frozen=True)
class Plan:
    """A program to be: its number, how many steps of which kinds, and if it writes in place.

    A `wild` program may make NaN, infinity and large numbers.
    """

    seed: int
    steps: int = 12
    kinds: tuple[str, ...] = ALL
    writes: bool = True
    wild: bool = False


def plan_of(seed: int) -> Plan:
    """The plan of program number `seed`, of 5 to 25 steps."""
    rng = random.Random(seed)
    return Plan(seed, rng.randint(5, 25), ALL, True, rng.random() < 0.1)


def small_plan(seed: int) -> Plan:
    """The plan of program number `seed`, of 4 to 12 steps of a few kinds, without writes."""
    rng = random.Random(seed)
    kinds = ALL if rng.random() < 0.4 else tuple(rng.sample(ALL, rng.randint(1, 3)))
    return Plan(seed, rng.randint(4, 12), kinds, False, rng.random() < 0.1)


def generate(plan: Plan) -> Source:
    """The program of a plan, the same every time."""
    torch.manual_seed(plan.seed)
    pool = Pool(plan.seed)
    for _ in range(pool.rng.randint(2, 4)):
        pool.tensor(pool.shape(), fresh="input")
    table = [entry for kind in plan.kinds for entry in KINDS[kind]]
    choices, weights = [maker for maker, _ in table], [weight for _, weight in table]
    steps: list[Step] = []
    for _ in range(plan.steps * TRIES):
        if len(steps) == plan.steps:
            break
        make = pool.rng.choices(choices, weights)[0]
        try:
            step = _tried(pool, f"v{len(steps)}", make(pool), plan)
        except (IndexError, ValueError, RuntimeError, TypeError, AttributeError, AssertionError):
            continue
        steps += [] if step is None else [step]
    return _finished(pool, steps, plan)


def _tried(pool: Pool, name: str, text: str, plan: Plan) -> Step | None:
    """The step, its value now in the pool; None where the value is not tame."""
    statement = text.replace("$", name) if "$" in text else f"{name} = {text}"
    writes = Step(name, statement, ()).writes
    if not plan.writes and (writes or "torch.tensor(" in text):
        return None
    names = run([statement], {k: v.clone() if writes else v for k, v in pool.values.items()})
    value = names[name]
    if not isinstance(value, Tensor) or value.numel() > 4_000 or value.is_complex():
        return None
    dense = value.double() if value.numel() else torch.zeros(1)
    if not plan.wild and not bool((dense.abs() < LARGEST).all()):
        return None
    if value.dtype.is_floating_point and value.dtype not in (torch.float64, torch.float32):
        return None
    words = set(re.findall(r"\w+", statement))
    reads = tuple(n for n in pool.values if n in words)
    pool.values[name] = value.clone() if writes else value
    if writes:  # what a step wrote is another value now
        pool.values |= {n: names[n].detach() for n in reads}
    return Step(name, statement, reads)


def _finished(pool: Pool, steps: list[Step], plan: Plan) -> Source:
    """The program with an output for each value that no step reads, or for a few values."""
    names = [step.name for step in steps] or [leaf.name for leaf in pool.leaves]
    read = {name for step in steps for name in step.reads}
    ends = [name for name in names if name not in read][-6:]
    some = pool.rng.choices(names, k=pool.rng.randint(1, 3))
    outputs = list(dict.fromkeys([*ends, *some] if pool.rng.random() < 0.7 else some))
    if pool.rng.random() < 0.1:
        outputs += [pool.rng.choice([*outputs, *(leaf.name for leaf in pool.leaves)])]
    dynamic = plan.writes and pool.rng.random() < 0.15
    return Source(tuple(pool.leaves), tuple(steps), tuple(outputs), dynamic).trimmed()
