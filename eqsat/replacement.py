"""Rules from a search and a replacement function, as torch's `register_replacement` takes them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from eqsat.match import inductor_check
from eqsat.pair import Check, Signature, Specialised, pair_of
from eqsat.rewrite import RELAXED, Condition, Fact, Numerics, Rewrite, ordered
from eqsat.trial import trial


def replacement(
    name: str,
    search: Callable[..., Any],
    replace: Callable[..., Any] | Specialised,
    examples: Sequence[Any],
    *,
    scalars: Mapping[str, Any] | None = None,
    distinct: Sequence[str] = (),
    facts: Sequence[Fact] = (),
    check: Check | None = None,
    numerics: Numerics = RELAXED,
    tried: bool = True,
    accepted: bool = False,
) -> Rewrite:
    """The rule that `search` is `replace`, two functions of the same tensors and numbers.

    `examples` are tensors (only their metas count), one a parameter, but for the parameters that
    `scalars` gives a value: a number or an attribute, found in the traced `search` by that value. A
    match is traced again with its own shapes, dtypes and numbers, and must come to the same
    operators; `check`, called with the values of the parameters, may refuse it. `distinct` names
    parameters that must be different values. With `tried`, both are run on random tensors first;
    with `accepted`, the check must accept the examples.

    Raises ValueError, naming the rule, for functions that cannot be traced or said in the language,
    that differ in the number, shapes, dtypes or values of their results, or for a wrong example.
    """
    try:
        signature = Signature.of(search, examples, scalars or {})
        unknown = [n for n in distinct if n not in signature.names]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no parameter of the search function")
        pair = pair_of(signature, search, replace, check)
        if accepted:
            pair.at(*pair.signature.values)
        if tried:
            trial(pair.search, pair.replace.at(signature.values), pair.signature.values)
    except ValueError as error:
        raise ValueError(f"rule {name!r}: {error}") from error
    if distinct:
        facts = (
            *facts,
            ordered() if len(pair.left.outputs) > 1 else Fact("distinct", tuple(distinct)),
        )
    return Rewrite(
        name,
        pair.sides,
        when=Condition(pair.names, pair.holds),
        numerics=numerics,
        facts=tuple(facts),
        variables=pair.names,
    )


class PatternMatcherPass(list[Rewrite]):
    """Where `register_replacement` puts its rules: a list, to be added to a rule set.

    Takes the arguments of torch's class of this name, which say nothing here.
    """

    def __init__(self, pass_name: str | None = None, subsystem: str | None = None) -> None:
        super().__init__()
        self.pass_name = pass_name
        self.subsystem = subsystem


def fwd_only(fn: Callable[..., Any], args: Sequence[Any], **options: Any) -> Any:
    """Inductor's trace of a function for inference, loaded when it is called."""
    from torch._inductor.pattern_matcher import fwd_only as inductors

    return inductors(fn, args, **options)


def register_replacement(
    search_fn: Callable[..., Any],
    replace_fn: Callable[..., Any],
    example_inputs: Sequence[Any],
    trace_fn: Callable[..., Any] = fwd_only,
    pass_dicts: list[Any] | None = None,
    extra_check: Callable[[Any], bool] | None = None,
    scalar_workaround: Mapping[str, float | int] | None = None,
    exclusive_arg_names: Sequence[str] = (),
    search_fn_pattern: Any = None,  # noqa: ARG001 - a trace kept on disk, which a rule does not need
    skip_duplicates: bool = False,
    pattern_name: str | None = None,
    get_decomp_fn: Callable[..., Any] | None = None,
    *,
    numerics: Numerics = RELAXED,
) -> Rewrite | None:
    """The rule that replaces `search_fn` by `replace_fn`, also put into the pass `pass_dicts`.

    The arguments are those of `torch._inductor.pattern_matcher.register_replacement`, so that a
    pattern is ported by importing this one, `fwd_only` and `PatternMatcherPass` from here.
    `extra_check` gets Inductor's own `Match`, of the traced search function alone: its nodes have
    no users outside. `numerics` is what the rule may change. Raises ValueError, naming the rule, as
    `replacement` does, and None where `skip_duplicates` finds the same rule in the pass.
    """
    passes = _passes(pass_dicts)
    title = str(pattern_name or getattr(search_fn, "__name__", type(search_fn).__name__))
    title = title.strip("_<>").replace("_", "-")
    if getattr(trace_fn, "__name__", "") == "joint_fwd_bwd":
        raise ValueError(
            f"rule {title!r}: a training pattern: rules are for inference, use fwd_only"
        )
    scalars = dict(scalar_workaround or {})
    check = None
    if extra_check is not None and getattr(extra_check, "__name__", "") != "_return_true":
        flat = Signature.of(search_fn, example_inputs, scalars).flat(search_fn)
        if get_decomp_fn is not None:
            trace_fn = functools.partial(trace_fn, get_decomp_fn=get_decomp_fn)
        check = inductor_check(
            flat, extra_check, trace_fn, scalars=scalars, distinct=exclusive_arg_names
        )
    rule = replacement(
        _unique(title, passes),
        search_fn,
        replace_fn,
        example_inputs,
        scalars=scalars,
        distinct=exclusive_arg_names,
        check=check,
        numerics=numerics,
    )
    law = str(rule).partition(": ")[2]
    if skip_duplicates and any(str(r).partition(": ")[2] == law for p in passes for r in p):
        return None
    for rules in passes:
        rules.append(rule)
    return rule


def _passes(given: object) -> list[list[Rewrite]]:
    """The lists that a rule goes into: one, several, or none."""
    if given is None:
        return []
    if not isinstance(given, (list, tuple)):
        raise TypeError(
            f"pass_dicts is a {type(given).__module__}.{type(given).__name__}: "
            "import PatternMatcherPass from eqsat.replacement, or give a list"
        )
    several = bool(given) and all(isinstance(part, list) for part in given)
    return list(given) if several else [cast("list[Rewrite]", given)]


def _unique(name: str, passes: Sequence[Sequence[Rewrite]]) -> str:
    taken = {rule.name for rules in passes for rule in rules}
    numbered = (f"{name}-{i}" for i in range(2, len(taken) + 3))
    return name if name not in taken else next(n for n in numbered if n not in taken)
