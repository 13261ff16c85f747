"""Which operators stand in a program's graphs, and what memory they write."""

import operator
from collections.abc import Iterator
from typing import Any  # arguments of operators are arbitrary

from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node
from torch.nn import Module
from torch.utils import _pytree as pytree


def nodes(program: object) -> Iterator[Node]:
    """Yields the nodes of a program's graph and of its subgraphs; none where it is no graph."""
    for module in program.modules() if isinstance(program, Module) else ():
        if isinstance(module, GraphModule):
            yield from module.graph.nodes


def is_custom(target: OpOverload) -> bool:
    """Returns whether an operator is not torch's own: its schema may not tell all it does."""
    return target.namespace not in ("aten", "prims", "prim")


def writes(node: Node) -> list[Node]:
    """Returns the nodes whose memory this node writes.

    Batch and instance norm write their running statistics in training mode, which their schema
    does not say.
    """
    if not isinstance(node.target, OpOverload):
        return []
    arguments = _arguments(node, node.target)
    written: list[Any] = []
    for argument in node.target._schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += pytree.tree_leaves(arguments.get(argument.name))
    flags = ("training", "train", "use_input_stats")
    name = node.target._schema.name
    if any(arguments.get(flag) for flag in flags) and not name.endswith(("functional", "backward")):
        written += [arguments.get("running_mean"), arguments.get("running_var")]
    return [value for value in written if isinstance(value, Node)]


def owners_written(module: GraphModule) -> set[str]:
    """Returns the names of the nodes that own the memory which the graph writes."""
    base: dict[Node, Node] = {}  # a view → the node that owns its memory
    written: list[Node] = []
    for node in module.graph.nodes:
        target = node.target
        if isinstance(target, OpOverload):
            arguments = _arguments(node, target)
            viewed = [a.name for a in target._schema.arguments if a.alias_info is not None]
            source = arguments.get(viewed[0]) if viewed else None
            if isinstance(source, Node):
                base[node] = base.get(source, source)
            written += writes(node)
        elif isinstance(target, HigherOrderOperator):
            written += _written_by_subgraph(module, node)
        elif target is operator.getitem and isinstance(several := node.args[0], Node):
            base[node] = base.get(several, several)
    return {base.get(node, node).name for node in written}


def _written_by_subgraph(module: GraphModule, node: Node) -> list[Node]:
    """Returns the operands of a higher-order operator if one of its subgraphs writes anything."""
    operands = [value for value in pytree.tree_leaves(node.args) if isinstance(value, Node)]
    bodies = dict(module.named_modules(remove_duplicate=False))
    for operand in operands:
        body = bodies.get(str(operand.target)) if operand.op == "get_attr" else None
        if isinstance(body, GraphModule) and any(writes(inner) for inner in body.graph.nodes):
            return operands
    return []


def _arguments(node: Node, target: OpOverload) -> dict[str, Any]:
    names = [argument.name for argument in target._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}
