"""What a rule's condition reads, and the numbers that it was seen to compare its variables with."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from eqsat.expression import Var
from eqsat.meta import Meta, Scalar
from eqsat.operators import OPERATORS
from eqsat.rewrite import Rewrite
from eqsat.verify.palette import Palette

WATCHED = 500  # how often the condition is watched: it takes time


class Hints:
    """The condition of a rule, and the numbers that it was seen to compare its variables with."""

    def __init__(self, rule: Rewrite) -> None:
        self.when = rule.when
        self.names = rule.predicate_variables()
        self.asked = 0
        self.numbers: dict[str, list[Any]] = {}
        self.places: dict[str, tuple[str, str]] = {}  # of attribute variables: operator, attribute
        for side in rule.left:
            for expr in side.walk():
                for k, attr in enumerate(expr.attributes):
                    if isinstance(attr, Var) and expr.operator in OPERATORS:
                        key = OPERATORS[expr.operator].attributes[k]
                        self.places.setdefault(attr.name, (expr.operator, key))

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the condition holds; notes the numbers that its helpers see with a variable."""
        if self.when is None:
            return True
        self.asked += 1
        if self.asked > WATCHED:
            return self._asked(values)
        names = {id(values[name]): name for name in self.names}

        def watch(frame: Any, event: str, _argument: Any) -> None:
            met = list(frame.f_locals.values()) if event == "call" else []
            compared = [v for v in met if type(v) in (int, float)]
            tested = [names[id(v)] for v in met if isinstance(v, Scalar | Meta) and id(v) in names]
            if len(met) == 2 and len(tested) == 1:  # a helper of one variable and one constant
                known = self.numbers.setdefault(tested[0], [])
                known += [v for v in compared if v not in known]

        sys.setprofile(watch)
        try:
            return self._asked(values)
        finally:
            sys.setprofile(None)

    def _asked(self, values: Mapping[str, Any]) -> bool:
        assert self.when is not None
        try:
            return bool(self.when(*(values[name] for name in self.names)))
        except Exception:  # noqa: BLE001 - as in the engine: what cannot be decided does not hold
            return False

    def number(self, name: str, palette: Palette) -> Scalar | None:
        """Often a number that the condition was seen to compare this variable with."""
        known = self.numbers.get(name)
        return Scalar(palette.rng.choice(known)) if known and palette.chance(0.7) else None
