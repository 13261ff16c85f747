"""The verdict on a rule: how often, and how, its sides were compared, and where they differ."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from eqsat.meta import Meta
from eqsat.rewrite import EXACT, RELAXED, ROUNDING, Rewrite
from eqsat.verify.counterexample import Counterexample
from eqsat.verify.filling import STYLES
from eqsat.verify.modular import Agreement, modular
from eqsat.verify.samples import Sample, Sampler
from eqsat.verify.sides import counterexample
from eqsat.verify.witness import count

SAMPLES = 100
ATTEMPTS = 250  # for each sample that is wanted
HOPELESS = 6000  # attempts without a sample, after which none is expected
SECONDS = 300.0
SMALLER = 30  # samples more, after a counterexample, in search of a smaller one
WITNESSES = 12  # samples tried before a rule counts as one that does not fire
SURE = 1e-9


@dataclass(frozen=True)
class Verdict:
    """What running both sides of a rule showed.

    Every one of the `samples` was run on real tensors; on `proven` of them the sides also agreed
    over a prime field, on `free` with functions of which only the name counts; were they different,
    `chance` bounds the probability of that. `fires` says whether the rule united its sides in the
    e-graph of its left side, `differs` at which values that are not finite a relaxed rule changes
    them; `kinds` counts the samples that were, say, empty, or of a dtype.
    """

    name: str
    law: str
    numerics: str
    samples: int
    attempts: int
    proven: int
    free: int
    chance: float
    fires: bool
    seconds: float
    counterexample: Counterexample | None = None
    differs: Counterexample | None = None
    kinds: tuple[tuple[str, int], ...] = ()

    @property
    def outcome(self) -> str:
        """One of "sound", "wrong", "never matched" and "never fired"."""
        if self.counterexample is not None:
            return "wrong"
        if not self.samples:
            return "never matched"
        return "sound" if self.fires else "never fired"

    @property
    def sound(self) -> bool:
        """Whether the rule matched, fired, and nothing speaks against it."""
        return self.outcome == "sound"

    @property
    def method(self) -> str:
        """What most samples were decided by, besides running on tensors."""
        compared = {"EXACT": "bits", "ROUNDING": "rounding"}.get(self.numerics, "finite values")
        if 2 * (self.proven + self.free) < self.samples or self.chance > SURE:
            return compared
        return f"{compared}, mod p" if not self.free else f"{compared}, mod p for any f"


def parts(rules: Iterable[Rewrite]) -> Iterator[Rewrite]:
    """The rules, each followed by its part that changes no bit if it names one."""
    for rule in rules:
        yield rule
        if rule.exact is not None and (strict := rule.within(EXACT)) is not None:
            yield replace(strict, name=f"{rule.name}-exact")


def judge(
    rule: Rewrite, samples: int = SAMPLES, seed: int = 0, seconds: float = SECONDS
) -> Verdict:
    """The verdict on one rule from this many samples, fewer if they take more than `seconds`.

    A counterexample is the smallest of a few. The same seed gives the same verdict, but for times.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once what a cast of complex numbers leaves out
        return _Trial(rule, samples, seed, seconds).verdict()


class _Trial:
    """One rule on its samples."""

    def __init__(self, rule: Rewrite, samples: int, seed: int, seconds: float) -> None:
        self.rule, self.samples, self.seed = rule, samples, seed
        self.start = time.monotonic()
        self.end = self.start + seconds
        self.sampler = Sampler(rule, seed)
        self.proven = self.free = self.tried = 0
        self.chance = 0.0
        self.fires = False
        self.found: list[Counterexample] = []
        self.differs: Counterexample | None = None
        self.kinds: Counter[str] = Counter()

    def verdict(self) -> Verdict:
        """The verdict after all samples."""
        last = self.samples
        while self.tried < last and self.sampler.attempts < ATTEMPTS * self.samples:
            hopeless = not self.tried and self.sampler.attempts >= HOPELESS
            if hopeless or time.monotonic() > self.end:
                break
            taken = self.sampler.take(1, ATTEMPTS)
            if not taken:
                continue
            self._run(taken[0])
            self.tried += 1
            if len(self.found) == 1:
                last = min(last, self.tried + SMALLER)
        return Verdict(
            self.rule.name,
            str(self.rule).removeprefix(f"{self.rule.name}: "),
            self.rule.numerics.name,
            self.tried,
            self.sampler.attempts,
            self.proven,
            self.free,
            self.chance,
            self.fires,
            round(time.monotonic() - self.start, 2),
            min(self.found, key=lambda found: found.elements, default=None),
            self.differs,
            tuple(sorted(self.kinds.items())),
        )

    def _run(self, sample: Sample) -> None:
        """One sample: on tensors, each time in another style; over the field; in an e-graph."""
        rule, seed = self.rule, self.seed + self.tried
        self.kinds.update(kinds(sample))
        styles = STYLES[rule.numerics]
        found = counterexample(rule, sample, styles[self.tried % len(styles)], seed)
        if found is not None:
            self.found.append(found)
        agreed = modular(rule, sample, seed)
        if isinstance(agreed, Agreement):
            self.proven += not agreed.free
            self.free += agreed.free
            self.chance = max(self.chance, agreed.chance)
        elif agreed is not None:
            self.found.append(agreed)
        if rule.numerics is RELAXED and self.differs is None:
            self.differs = counterexample(rule, sample, "special", seed, ROUNDING)
        if not self.fires and self.tried < WITNESSES:
            self.fires = fires(rule, sample)


def fires(rule: Rewrite, sample: Sample) -> bool:
    """Whether the rule unites its sides in the e-graph that holds its left side."""
    try:
        return count(rule, sample).admitted > 0
    except (RuntimeError, ValueError, TypeError, AttributeError):
        return False


def kinds(sample: Sample) -> set[str]:
    """What kinds of shapes and dtypes the tensors of a sample are of."""
    metas = [value for value in sample.values.values() if isinstance(value, Meta)]
    shapes = [tuple(int(n) for n in meta.shape) for meta in metas]
    found = {str(meta.dtype).removeprefix("torch.") for meta in metas}
    found |= {f"rank {len(shape)}" for shape in shapes}
    if any(0 in shape for shape in shapes):
        found.add("size 0")
    if any(1 in shape for shape in shapes):
        found.add("size 1")
    if len({meta.dtype for meta in metas}) > 1:
        found.add("several dtypes")
    if shapes and all(len(set(s)) == len(s) and not {0, 1} & set(s) for s in shapes):
        found.add("distinct sizes")
    if len({len(shape) for shape in shapes}) > 1:
        found.add("several ranks")
    return found
