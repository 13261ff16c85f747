"""The torch program that computes the left side of a rule, and what the rule alone does in its e-graph."""

from __future__ import annotations

from typing import Any

import torch
from samples import Sample, run
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node

from eqsat.emit import Emitter
from eqsat.encode import Encoding, encode
from eqsat.infer import Oracle
from eqsat.meta import Meta, Scalar, Texts
from eqsat.operators import OPERATORS
from eqsat.rewrite import Rewrite
from eqsat.saturate import Limits, RuleCount, saturate


def encoded(rule: Rewrite, sample: Sample) -> Encoding:
    """The left side of a rule as the torch program that computes it, encoded."""
    mode, oracle = FakeTensorMode(), Oracle(Texts())
    emitter = Emitter(mode, oracle)
    facts = {name: fact.name for fact in rule.facts for name in fact.variables}
    values: dict[str, Any] = {}
    constants: dict[str, Tensor] = {}
    for name in (*facts, *(name for name in sample.values if name not in facts)):
        value = sample.values[name]
        values[name] = value.value if isinstance(value, Scalar) else value
        if isinstance(value, Meta):
            node = values[name] = emitter.graph.placeholder(f"given_{name}")
            concrete = torch.zeros(value.shape, dtype=value.dtype)
            node.meta["val"] = mode.from_tensor(concrete)
            if facts.get(name) in ("constant", "finite"):
                constants[node.name] = concrete

    def emit(name: str, children: list[Any], attributes: list[Any]) -> Any:
        if name == "number":
            return attributes[0]
        if children and not any(isinstance(child, Node) for child in children):
            return OPERATORS[name].evaluate(*children, *attributes)
        return emitter.emit(name, children, attributes)

    outputs = [run(side, sample.values, values, emit, oracle) for side in rule.left]
    emitter.graph.output(tuple(outputs))
    return encode(emitter.graph, constants)


def count(rule: Rewrite, sample: Sample) -> RuleCount:
    """What the rule alone matched and united in the e-graph of its left side."""
    _, record = saturate(encoded(rule, sample), [rule], Limits(iterations=2))
    return record.rules[0]
