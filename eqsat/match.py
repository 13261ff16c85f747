"""Inductor's own `Match` of a function on given values, for the checks written against it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from eqsat.meta import shape_env
from eqsat.pair import Check
from eqsat.traced import Terms, argument


def inductor_check(
    search: Callable[..., Any],
    extra_check: Callable[[Any], bool],
    trace_fn: Callable[..., Any],
    *,
    scalars: Mapping[str, Any],
    distinct: Sequence[str] = (),
    constants: Collection[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Check:
    """The check that `extra_check` makes of Inductor's match of `search`, as at its own rules.

    `trace_fn` is Inductor's, so the match has the nodes that Inductor sees. Parameters named in
    `constants` are shown as frozen weights; `options` are the `torch._inductor.config` it runs in.
    """

    def check(names: Sequence[str], values: Sequence[Any], _right: Terms) -> bool:
        from torch._inductor import config, pattern_matcher

        fake = FakeTensorMode() if shape_env(values) is None else contextlib.nullcontext()
        with fake, config.patch(dict(options or {})):
            arguments = [argument(value) for value in values]
            try:
                graph = trace_fn(search, arguments)
            except RuntimeError:
                return False
            inputs = graph.graph.find_nodes(op="placeholder")
            for node, value in zip(inputs, arguments, strict=True):
                if isinstance(value, Tensor):
                    node.meta.setdefault("val", value)
            bound = {n: v for n, v in zip(names, arguments, strict=True) if n in scalars}
            pattern = pattern_matcher.fx_to_pattern(
                graph,
                argnames=list(names),
                scalar_workaround=_unambiguous(bound),
                exclusive_arg_names=distinct,
            )
            for name, node in zip(names, inputs, strict=True):
                if name in constants:
                    node.op = "get_attr"
            (output,) = graph.graph.find_nodes(op="output")
            first = output.args[0]
            match = pattern.match(first[0] if isinstance(first, (list, tuple)) else first)
            if not pattern_matcher.is_match(match):
                return False
            # Inductor's own names for what the traced graph holds as a literal.
            for name, value in zip(names, arguments, strict=True):
                match.kwargs.setdefault(name, value)
            return bool(extra_check(match))

    return check


def _unambiguous(bound: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers among the arguments that Inductor can tell apart by their value."""
    numbers = {n: v for n, v in bound.items() if isinstance(v, (int, float))}
    counts = list(numbers.values())
    return {n: v for n, v in numbers.items() if counts.count(v) == 1}
