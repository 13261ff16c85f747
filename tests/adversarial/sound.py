"""Graph passes without a mistake, at which the oracle must stay silent."""

import torch
from adversarial.graph_pass import (
    ADD,
    MUL,
    PRODUCTS,
    Pass,
    aten,
    call,
    calls,
    draws,
    is_call,
    mutates,
    operands,
    replacing,
    shared,
)
from torch import fx


def _commute(graph: fx.Graph) -> None:
    for node in calls(graph, ADD, MUL):
        if len(node.args) == 2 and isinstance(node.args[1], fx.Node) and not node.kwargs:
            node.args = (node.args[1], node.args[0])


def _share_pure(graph: fx.Graph) -> None:
    every = list(calls(graph))
    if any(map(mutates, every)):
        return
    kept = set(graph.output_node().all_input_nodes)
    norm = aten.batch_norm.default
    kept |= {node for node in every if draws(node) or node.target is norm}
    kept |= {node for node in every if not isinstance(node.target, torch._ops.OpOverload)}
    shared(graph, kept.__contains__)


def _associate(node: fx.Node) -> fx.Node | None:
    a, c = operands(node)[:2]
    if not is_call(a, *PRODUCTS):
        return None
    return call(node, node.target, a.args[0], call(node, node.target, a.args[1], c))


SOUND = (
    Pass("commute", _commute),
    Pass("share-pure", _share_pure),
    Pass("associate", replacing(*PRODUCTS, value=_associate)),
)
