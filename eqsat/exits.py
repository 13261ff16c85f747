"""The end of a decoded graph, where the layout and the aliasing of the given program come back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from eqsat.alias import Output
from eqsat.layout import restride

if TYPE_CHECKING:
    from eqsat.decode import Decoder

aten = torch.ops.aten


@dataclass
class Exit:
    """The end of the graph, where layout and aliasing come back."""

    decoder: Decoder

    def outputs(self, outputs: Sequence[Output]) -> list[Any]:
        """What the graph returns: no value shares storage but as given."""
        emitter = self.decoder.emitter
        owners: dict[int, Any] = {}  # storage -> who owns it
        for node in emitter.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                owners.setdefault(storage_of(node), node)
        bases: dict[Node, Any] = {}
        made: dict[tuple[Node, Node], Any] = {}  # (view, its base) -> node of the new graph
        results: list[Any] = []
        for output in outputs:
            if output.base is None:
                results.append(output.value)
                continue
            if output.base not in bases:
                bases[output.base] = self._base(output.base, owners)
            given, node = output.base, bases[output.base]
            for view in output.views:
                if (view, output.base) not in made:
                    made[view, output.base] = self._view(view, given, node)
                given, node = view, made[view, output.base]
            results.append(node)
        return results

    def _base(self, base: Node, owners: dict[int, Any]) -> Any:
        """The value of a base in storage of its own (or the input it is), strides as given."""
        d = self.decoder
        d.emitter.origin = base
        if base.op in ("placeholder", "get_attr"):
            return d.copies[base] if base.op == "placeholder" else d.attribute(base)
        if base not in d.encoding.handles:
            return d.emitter.argument(base.meta["val"])
        node = d.value(d.class_of(base))
        like = base.meta["val"]
        if not isinstance(node, Node) or not isinstance(like, torch.Tensor):
            return node
        if base in d.encoding.effects:
            return node
        node = restride(d.emitter, node, like)
        if storage_of(node) in owners and owners[storage_of(node)] is not base:
            node = d.emitter.call(aten.clone.default, node)
            node = restride(d.emitter, node, like)
        owners[storage_of(node)] = base
        return node

    def _view(self, view: Node, given: Node, node: Any) -> Any:
        """The view `view` of the given program, taken of `node` where it was taken of `given`."""
        d = self.decoder
        if view in d.copies:
            return d.copies[view]  # an effect, which has run
        d.emitter.origin = view

        def new(argument: Node) -> Any:
            if argument is given:
                return node
            if argument in d.encoding.handles:
                return d.value(d.class_of(argument))
            return d.emitter.argument(argument.meta["val"])

        args = torch.fx.map_arg(view.args, new)
        kwargs = torch.fx.map_arg(view.kwargs, new)
        return d.emitter.call(view.target, *args, **kwargs)


def storage_of(node: Node) -> int:
    """What identifies the memory of a node's fake value; the node's own where it has none."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return id(node)
    return value.untyped_storage()._cdata
