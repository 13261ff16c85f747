"""Changes to graphs, to show that the oracle tells an unsound one from a sound one."""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

aten = torch.ops.aten
ADD, SUB, MUL, DIV = aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor
CASTS = (aten.to.dtype, aten._to_copy.default)
PRODUCTS = (aten.matmul.default, aten.mm.default)

Change = Callable[[fx.Graph], None]
Value = Callable[[fx.Node], fx.Node | None]


@dataclass(frozen=True)
class Pass:
    """A change to every graph of a module; an unsound one names the program that shows it."""

    name: str
    change: Change
    shown_by: str = ""

    def __repr__(self) -> str:
        return self.name

    def apply(self, module: fx.GraphModule) -> bool:
        """Whether the module, changed in place, is another program now."""
        before = [part.code for part in _parts(module)]
        for part in _parts(module):
            self.change(part.graph)
            part.graph.lint()
            part.recompile()
        return before != [part.code for part in _parts(module)]


def _parts(module: fx.GraphModule) -> list[fx.GraphModule]:
    return [part for part in module.modules() if isinstance(part, fx.GraphModule)]


def calls(graph: fx.Graph, *targets: object) -> Iterator[fx.Node]:
    """The calls of these targets, or all, as they stood before the first is changed."""
    for node in list(graph.nodes):
        if node.op == "call_function" and (not targets or node.target in targets):
            yield node


def replacing(*targets: object, value: Value) -> Change:
    """The change that puts `value(node)`, where there is one, in the place of each such node."""

    def change(graph: fx.Graph) -> None:
        for node in calls(graph, *targets):
            with graph.inserting_before(node):
                new = value(node)
            if new is not None:
                node.replace_all_uses_with(new)
                graph.erase_node(node)

    return change


def operands(node: fx.Node) -> tuple[Any, ...]:
    """The arguments, which torch types as anything that an argument may be."""
    return node.args


def call(node: fx.Node, target: Any, *args: Any) -> fx.Node:  # as fx types them
    """A new call beside `node`."""
    return node.graph.call_function(target, args)


def is_call(value: object, *targets: object) -> bool:
    return isinstance(value, fx.Node) and value.target in targets


def held(value: object) -> Tensor | None:
    """The tensor that a node reads from its module."""
    if not isinstance(value, fx.Node) or value.op != "get_attr":
        return None
    owner = value.graph.owning_module
    tensor = operator.attrgetter(str(value.target))(owner)
    return tensor if isinstance(tensor, Tensor) else None


def holds_only(value: object, number: int) -> bool:
    tensor = held(value)
    if tensor is not None:
        return bool(tensor.numel()) and bool((tensor == number).all())
    return not isinstance(value, bool) and isinstance(value, int | float) and value == number


def mutates(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def draws(node: fx.Node) -> bool:
    tags = node.target.tags if isinstance(node.target, torch._ops.OpOverload) else []
    return torch.Tag.nondeterministic_seeded in tags


def shared(graph: fx.Graph, differs: Callable[[fx.Node], bool]) -> None:
    """Keeps one of equal calls, but those that may differ each time."""
    seen: dict[tuple[object, str, str], fx.Node] = {}
    for node in calls(graph):
        key = (node.target, str(node.args), str(node.kwargs))
        if differs(node):
            continue
        if key in seen:
            node.replace_all_uses_with(seen[key])
            graph.erase_node(node)
        else:
            seen[key] = node
