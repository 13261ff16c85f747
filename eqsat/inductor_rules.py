"""Inductor's own pattern entries as rules, and what of them is left out, with the reason."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from eqsat.features import stored_inputs
from eqsat.inductor_examples import EXAMPLES, FOLDED, INPUTS, Example
from eqsat.inductor_handlers import Handler, operands
from eqsat.inductor_registry import Entry, closure, entries
from eqsat.infer import Oracle
from eqsat.match import inductor_check
from eqsat.meta import Meta, Texts, meta_of
from eqsat.observe import first_line
from eqsat.pair import Check
from eqsat.replacement import replacement
from eqsat.rewrite import RELAXED, ROUNDING, Rewrite, RuleSet, constant, given
from eqsat.traced import Row, Terms, metas

VECTOR = 16  # torch's CPU kernel without a mask loses NaN in rows shorter than a vector
OPTIONS = {"cpp.enable_concat_linear": True}  # says what pays, not what is right
VENDORS = {
    "mkldnn_fusion": "it makes fused operators of oneDNN, which the language has no term for",
    "quantization": "it makes quantised operators of oneDNN, which the language has no term for",
    "replace_random": "it draws random numbers: two draws are no equal values",
    "b2b_gemm": "it makes a template kernel of Inductor, not a graph",
    "split_cat": "its pattern is of torch functions, with a variable number of arguments",
    "efficient_conv_bn_eval": "its pattern is of modules, before ATen",
    "reduced_atomic_contention": "it changes how a kernel writes, not what is computed",
}
HANDLERS = {
    "pointless_view": "it holds by itself: a view to the same shape is no e-node",
    "unnecessary_dtype_convert": "it holds by itself: a cast to the same dtype is no e-node",
    "fix_iota_device": "it moves a tensor to another device, for what its users are",
    "unfuse_bias_add_to_pointwise": "it asks what uses the result (affine-split says the same)",
    "unfuse_bias_baddbmm_to_pointwise": "it asks what uses the result (affine-split says the same)",
    "_fuse_addcdiv_to_fma": "it is for what Inductor makes of addcdiv, which is a leaf here",
}
_HIDDEN = "unsound: a row that its mask hides whole becomes 0, where it was the mean of the values"
_MARKED = "unsound: it hides where a mask is not 1, where only what is 0 was hidden"
UNSOUND = {
    "_sfdp_pattern_15": _MARKED,
    "_sfdp_pattern_18": _HIDDEN,
    "_sfdp_pattern_19": _HIDDEN,
    "_sfdp_pattern_20": _MARKED,
}
PADDING = "it pads to an alignment where a benchmark on the GPU says so: Inductor does so later"
TRAINING = "for training: programs here have no backward pass"


@dataclass(frozen=True)
class LeftOut:
    """An entry of Inductor that is no rule here: its name, its kind, the module, and why."""

    name: str
    kind: str
    module: str
    why: str


@dataclass(frozen=True)
class Imported:
    """Inductor's entries as rules; `same` names entries that would be a rule a second time.

    `entries` are those that were registered then: torch adds others for each new kind of device.
    """

    entries: tuple[Entry, ...]
    rules: RuleSet
    same: Mapping[str, str]
    left_out: tuple[LeftOut, ...]


@functools.cache
def imported() -> Imported:
    """Every entry of Inductor's pattern passes as a rule, a second name for one, or left out.

    Takes some seconds, once a process: each is traced.
    """
    rules: dict[Any, Rewrite] = {}
    same: dict[str, str] = {}
    left_out: list[LeftOut] = []
    registered = entries()
    inputs = stored_inputs()
    for entry in registered:
        try:
            found = _rules(entry, inputs)
        except Exception as error:  # noqa: BLE001 - the entries are torch's, of whatever version
            why = str(error).removeprefix(f"rule {entry.name!r}: ")
            if not isinstance(error, ValueError):
                why = first_line(error)
            left_out.append(LeftOut(entry.name, entry.kind, entry.module, why))
            continue
        for rule, identity in found:
            if identity in rules:
                same[rule.name] = rules[identity].name
            else:
                rules[identity] = rule
    return Imported(registered, RuleSet(rules.values()), same, tuple(left_out))


def _rules(entry: Entry, inputs: Mapping[int, Sequence[Any]]) -> Sequence[tuple[Rewrite, Any]]:
    """The rules of an entry, and what tells them from others; ValueError says why there is none."""
    if entry.kind == "replacement":
        return [_replacement(entry, inputs)]
    if entry.module in VENDORS:
        raise ValueError(VENDORS[entry.module])
    if entry.kind == "lowering":
        raise ValueError("its right side is a lowering of Inductor, not a graph")
    return _handled(entry)


def _replacement(entry: Entry, inputs: Mapping[int, Sequence[Any]]) -> tuple[Rewrite, Any]:
    registered = closure(entry.entry.extra_check)
    search, replaced = registered["search_fn"], registered["replace_fn"]
    trace_fn, decompositions = registered["trace_fn"], registered.get("get_decomp_fn")
    if trace_fn.__name__ != "fwd_only":
        raise ValueError(TRAINING)
    if entry.module == "pad_mm":
        raise ValueError(PADDING)
    if search.__name__ in UNSOUND:
        raise ValueError(UNSOUND[search.__name__])
    scalars = dict(registered["scalar_workaround"] or {})
    distinct = tuple(registered["exclusive_arg_names"])
    examples = inputs.get(id(entry.entry.pattern), INPUTS.get(search.__name__))
    if examples is None:
        raise ValueError(f"no example inputs of {search.__name__} are known")
    if decompositions is not None:
        trace_fn = functools.partial(trace_fn, get_decomp_fn=decompositions)
    allowed = inductor_check(
        search,
        registered["extra_check"],
        trace_fn,
        scalars=scalars,
        distinct=distinct,
        constants=distinct,
        options=OPTIONS,
    )
    facts = (given(*distinct), constant(*distinct)) if distinct else ()
    attention = entry.module == "fuse_attention"
    rule = replacement(
        entry.name,
        search,
        replaced,
        [meta_of(e) if isinstance(e, torch.Tensor) else e for e in examples],
        scalars=scalars,
        distinct=distinct,
        facts=facts,
        check=_attention_check(allowed) if attention else allowed,
        numerics=ROUNDING,
        tried=False,
        accepted=not attention,
    )
    if attention:  # a row hidden whole is NaN in a softmax and 0 in attention
        rule = replace(rule, numerics=RELAXED if _masked(rule) else ROUNDING)
    pieces = (search, replaced, registered["extra_check"])
    return rule, (str(rule).partition(": ")[2], *map(_identity, pieces))


def _masked(rule: Rewrite) -> bool:
    """Whether the right side of a rule is attention with a mask."""
    calls = (e for side in rule.right for e in side.walk() if e.operator == "attention")
    return any(len(call.children) == 4 for call in calls)


def _attention_check(allowed: Check) -> Check:
    """Also: a scale and a mask that kernels take, and without a mask rows that keep NaN."""

    def check(names: Sequence[str], values: Sequence[Any], right: Terms) -> bool:
        calls = (row for row in right.rows if row.operator == "attention")
        if not all(_computes(call, right, names, values) for call in calls):
            return False
        return allowed(names, values, right)

    return check


def _computes(call: Row, terms: Terms, names: Sequence[str], values: Sequence[Any]) -> bool:
    _, scale, _ = call.attributes
    if scale is not None and not scale > 0:  # kernels find the largest score before they scale
        return False
    key, *mask = metas(Terms(terms.rows, call.operands[1::2]), names, values, Oracle(Texts()))
    if not isinstance(key, Meta):
        return False
    if mask:  # one of bool is added on the left, and hides on the right
        return all(isinstance(m, Meta) and m.dtype == key.dtype for m in mask)
    return key.device != "cpu" or key.shape[-2] >= VECTOR


def _handled(entry: Entry) -> list[tuple[Rewrite, Any]]:
    """The rules of a graph handler, one an example of its operands."""
    handler = inspect.unwrap(entry.entry.handler).__name__
    if handler in HANDLERS:
        raise ValueError(HANDLERS[handler])
    names = operands(entry.entry.pattern)
    title, examples = entry.name, EXAMPLES.get(handler, ())
    if handler == "folded_op":
        title, examples = _folded(entry.entry.pattern)
    if not examples:
        raise ValueError("no example of its operands is known")
    rules: list[tuple[Rewrite, Any]] = []
    for index, example in enumerate(examples):
        name = title if index == 0 else f"{title}-{index + 1}"
        rule = _of_handler(name, entry, names, example)
        if "-div-" in title:  # by 0 the quotient of a product is infinite, the product of one NaN
            rule = replace(rule, numerics=RELAXED)
        rules.append((rule, name))
    return rules


def _of_handler(name: str, entry: Entry, names: Sequence[str], example: Example) -> Rewrite:
    absent = tuple(n for n in names if example.values[n] is None)
    bound = tuple(n for n in names if n not in absent)
    handler = Handler(entry.entry, bound, absent, example.constants, example.options)
    constants = tuple(n for n in bound if n in example.constants)
    return replacement(
        name,
        handler,
        handler.replacement(),
        [example.values[n] for n in bound if isinstance(example.values[n], Meta)],
        scalars={n: v for n in bound if not isinstance(v := example.values[n], Meta)},
        facts=(given(*constants), constant(*constants)) if constants else (),
        numerics=example.numerics,
        tried=False,
    )


def _folded(pattern: Any) -> tuple[str, Sequence[Example]]:
    """The name and the examples of a binary function that is folded into a linear operator."""
    inner = pattern.args[0]
    reshaped = str(inner.fns[0]) == "aten.reshape.default"
    inner = inner.args[0] if reshaped else inner
    function, linear = (str(p.fns[0]).split(".")[1] for p in (pattern, inner))
    name = f"inductor-fold-{function}-{linear}{'-reshaped' if reshaped else ''}"
    return name, FOLDED.get((linear, reshaped), ())


def _identity(function: Any) -> Any:
    """What a function does, as far as can be compared: its code and what it closes over."""
    if isinstance(function, functools.partial):
        return (_identity(function.func), repr(function.args), repr(function.keywords))
    code = getattr(function, "__code__", None)
    if code is None:
        return repr(function)
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    return (code, *map(_identity, cells))
