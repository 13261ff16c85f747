"""Verification of rules: both sides run on generated samples, on tensors and over a prime field."""

from eqsat.verify.counterexample import Counterexample
from eqsat.verify.verdict import Verdict, judge, parts
from eqsat.verify.workers import verdicts

__all__ = ["Counterexample", "Verdict", "judge", "parts", "verdicts"]
