"""What the caller of `optimize` chose, checked before any work begins."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eqsat.cost.device import MODES, Device, Mode, load
from eqsat.limits import Limits
from eqsat.numerics import NAMES

if TYPE_CHECKING:  # else imported where they are needed: a compiler with a full cache needs none
    from eqsat.cost.model import CostModel
    from eqsat.rewrite import Rewrite
    from extract import Extract

AUTO, FUSED = "auto", "fused"
"""Extractors that read whole kernels beside single e-nodes: of small e-graphs, of all."""
SATURATION, GREEDY, FIXPOINT = "saturation", "greedy", "fixpoint"
BACKTRACKING = "backtracking"
SEARCHES = (SATURATION, GREEDY, FIXPOINT, BACKTRACKING)
"""How rules are applied: all at once; one at a time where the price drops, in one sweep or to a
fixpoint (`eqsat.greedy`); or over a queue of whole programs (`eqsat.backtrack`)."""
LIMITS = Limits()
TIME_LIMIT = 5.0
"""Seconds that the extraction may take."""
MARGIN = 0.05
"""A predicted saving below it is no reason to change a program: predictions are that far off."""
ALWAYS = -math.inf
"""The margin with which the result of the search comes back, whatever is predicted of it."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run; `given` rules are None for `rewrites.OWN`."""

    given: tuple[Rewrite, ...] | None
    device: Device
    mode: Mode
    numerics: str
    extractor: str
    function: Extract | None
    """What extracts, where that is not one of ours."""
    limits: Limits
    time_limit: float
    fold_budget: int | None
    margin: float
    search: str
    memory_limit: int | None = None
    max_memory_growth: float | None = None

    @staticmethod
    def of(
        *,
        rules: Sequence[Rewrite] | None = None,
        device: str | Device = "h200",
        mode: Mode = "stream",
        numerics: str = "default",
        extractor: str | Extract = AUTO,
        limits: Limits = LIMITS,
        time_limit: float = TIME_LIMIT,
        fold_budget: int | None = None,
        margin: float = MARGIN,
        search: str = SATURATION,
        memory_limit: int | None = None,
        max_memory_growth: float | None = None,
    ) -> Settings:
        """The settings with defaults filled in. Raises ValueError for one that does not exist."""
        if numerics not in NAMES:
            raise ValueError(f"numerics {numerics!r}: one of {', '.join(NAMES)}")
        if mode not in MODES:
            raise ValueError(f"mode {mode!r}: one of {', '.join(MODES)}")
        if search not in SEARCHES:
            raise ValueError(f"search {search!r}: one of {', '.join(SEARCHES)}")
        if not time_limit > 0:
            raise ValueError(f"time_limit must be positive, not {time_limit!r}")
        if memory_limit is not None and not memory_limit > 0:
            raise ValueError(
                f"memory_limit must be a positive number of bytes, not {memory_limit!r}"
            )
        if max_memory_growth is not None and not max_memory_growth > 0:
            raise ValueError(
                f"max_memory_growth must be a positive factor, not {max_memory_growth!r}"
            )
        if fold_budget is not None and fold_budget < 0:
            raise ValueError(f"fold_budget must be at least 0, not {fold_budget!r}")
        if math.isnan(margin) or margin >= 1:
            raise ValueError(f"margin must be a share of the time below 1, not {margin!r}")
        if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance] - callers
            raise TypeError(f"limits must be an eqsat.Limits, not {limits!r}")
        name, function = _extractor(extractor)
        return Settings(
            given=_given(rules),
            device=device if isinstance(device, Device) else load(device),
            mode=mode,
            numerics=numerics,
            extractor=name,
            function=function,
            limits=limits,
            time_limit=time_limit,
            fold_budget=fold_budget,
            margin=margin,
            search=search,
            memory_limit=memory_limit,
            max_memory_growth=max_memory_growth,
        )

    @cached_property
    def rules(self) -> tuple[Rewrite, ...]:
        """The rules that `numerics` allows, as it allows them."""
        import rewrites

        given = rewrites.OWN if self.given is None else self.given
        within = (rule.within(NAMES[self.numerics]) for rule in given)
        return tuple(rule for rule in within if rule is not None)

    @cached_property
    def cost(self) -> CostModel:
        """What prices a program."""
        from eqsat.cost.model import CostModel

        return CostModel(self.device, self.mode)

    @cached_property
    def extract(self) -> Extract:
        """What reads a program out of an e-graph."""
        from extract import EXTRACTORS

        return self.function or EXTRACTORS[_name(self.extractor)].extract


def _given(rules: Sequence[Rewrite] | None) -> tuple[Rewrite, ...] | None:
    """The rules as they are given; None for those that come with the package."""
    if rules is not None:
        return _required(tuple(rules))
    ours = sys.modules.get("rewrites")  # else nobody made others the default
    if ours is None or ours.DEFAULT is ours.OWN:
        return None
    return _required(tuple(ours.DEFAULT))


def _required(rules: tuple[Rewrite, ...]) -> tuple[Rewrite, ...]:
    """The rules. Raises TypeError for what is no rule, and ValueError where two have one name."""
    from eqsat.rewrite import Rewrite, require_unique

    for rule in rules:
        if not isinstance(rule, Rewrite):  # pyright: ignore[reportUnnecessaryIsInstance] - callers
            raise TypeError(f"a rule must be an eqsat.Rewrite, not {rule!r}")
    require_unique(rules)
    return rules


def _extractor(extractor: str | Extract) -> tuple[str, Extract | None]:
    """The name of an extractor, and the function where it is the caller's."""
    if not isinstance(extractor, str):
        if not callable(extractor):
            raise TypeError(f"extractor must be a name or a function, not {extractor!r}")
        return f"function {getattr(extractor, '__name__', 'without a name')}", extractor
    if extractor not in (AUTO, FUSED):
        from extract import EXTRACTORS

        if extractor not in EXTRACTORS:
            names = ", ".join((AUTO, FUSED, *EXTRACTORS))
            raise ValueError(f"extractor {extractor!r}: one of {names}")
    return extractor, None


def _name(extractor: str) -> str:
    """The name in `EXTRACTORS` of an extractor of ours."""
    return "portfolio" if extractor in (AUTO, FUSED) else extractor
