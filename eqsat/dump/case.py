"""A program as a graph of calls with values for what it reads, which can be cut down."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any  # programs take arbitrary inputs

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, GraphModule, Interpreter, Node

from eqsat.observe import untouched_generators


@dataclass(frozen=True)
class Case:
    """A graph and the values of its placeholders by name; `weights` are no inputs."""

    graph: Graph
    values: Mapping[str, Any]
    weights: frozenset[str]

    @staticmethod
    def of(program: ExportedProgram, args: Any, kwargs: Any) -> Case | None:
        """The case of a program; None where it cannot be told in calls: it holds other graphs."""
        flat = program._graph_module_flat_inputs(tuple(args), dict(kwargs or {}))
        placeholders = program.graph.find_nodes(op="placeholder")
        for node in program.graph.nodes:
            told = isinstance(node.target, OpOverload) or node.target is operator.getitem
            if node.op == "get_attr" or (node.op == "call_function" and not told):
                return None
        specs = program.graph_signature.input_specs
        weights = {s.arg.name for s in specs if s.kind is not InputKind.USER_INPUT}
        values = {
            n.name: v.detach() if isinstance(v, Tensor) else v
            for n, v in zip(placeholders, flat, strict=True)
        }
        return Case(program.graph, values, frozenset(weights))

    @property
    def calls(self) -> list[Node]:
        """The calls, in order."""
        return [node for node in self.graph.nodes if node.op == "call_function"]

    @property
    def returned(self) -> list[Node]:
        """The nodes that are returned."""
        return list(self.graph.output_node().all_input_nodes)

    def module(self) -> tuple[GraphModule, tuple[Any, ...]]:
        """The program as a module, whose buffers are the weights, with its inputs."""
        holder, graph, env = nn.Module(), Graph(), dict[Node, Node]()
        inputs: list[Any] = []
        for node in self.graph.nodes:
            value = self.values.get(node.name)
            if node.op == "placeholder" and node.name in self.weights:
                holder.register_buffer(node.name, value)
                env[node] = graph.get_attr(node.name)
            elif node.op == "placeholder":
                env[node] = graph.placeholder(node.name)
                inputs.append(value)
            elif node.op == "call_function":
                env[node] = graph.node_copy(node, env.__getitem__)
        graph.output(tuple(env[node] for node in self.returned))
        return GraphModule(holder, graph).eval(), tuple(inputs)

    def cut(self, returned: Sequence[Node], known: Iterable[Node], values: Any) -> Case:
        """The case that returns these nodes, and is given the values of `known` calls as inputs."""
        known = set(known)
        needed: set[Node] = set(returned)
        for node in reversed(self.graph.nodes):
            if node in needed and node not in known:
                needed.update(node.all_input_nodes)
        graph, env = Graph(), dict[Node, Node]()
        names: dict[str, Any] = {}
        for node in self.graph.nodes:  # weights and inputs come first
            if node in needed and (node.op == "placeholder" or node in known):
                env[node] = graph.placeholder(node.name)
                env[node].name = node.name
                names[node.name] = self.values[node.name] if node not in known else values[node]
                env[node].meta = dict(node.meta)
        for node in self.graph.nodes:
            if node in needed and node not in env and node.op == "call_function":
                env[node] = graph.node_copy(node, env.__getitem__)
                env[node].name = node.name
        graph.output(tuple(env[node] for node in returned))
        weights = self.weights & names.keys() - {node.name for node in known}
        return Case(graph, names, frozenset(weights))

    def bypassed(self, node: Node, by: Node) -> Case:
        """The case in which everything reads one node in place of another."""
        graph = Graph()
        env: dict[Node, Node] = {}
        for old in self.graph.nodes:
            if old.op != "output":
                env[old] = env[by] if old is node else graph.node_copy(old, env.__getitem__)
                env[old].name = env[old].name if old is node else old.name
        graph.output(tuple(env[n] for n in self.returned))
        whole = Case(graph, self.values, self.weights)
        return whole.cut(whole.returned, (), {})

    def run(self) -> dict[Node, Any]:
        """The value of every node."""
        found: dict[Node, Any] = {}

        class Keeping(Interpreter):
            def run_node(self, n: Node) -> Any:
                found[n] = super().run_node(n)
                return found[n]

        placeholders = self.graph.find_nodes(op="placeholder")
        copies = [_copy(self.values[node.name]) for node in placeholders]
        with untouched_generators(), torch.no_grad():
            Keeping(GraphModule(nn.Module(), self.graph)).run(*copies)
        return found

    def with_values(self, values: Mapping[str, Any]) -> Case:
        """The same graph with other values."""
        return Case(self.graph, values, self.weights)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
