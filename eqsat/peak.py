"""The memory that a graph takes while it runs, beside that of what it is given."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, Node

from eqsat.hint import hint


@dataclass(frozen=True)
class Memory:
    """Bytes: of `intermediates` at their peak, results among them; of the `constants` it reads."""

    intermediates: int
    constants: int

    @property
    def total(self) -> int:
        """Bytes that a call needs beside those of its inputs."""
        return self.intermediates + self.constants


NOTHING = Memory(0, 0)


def memory(graph: Graph, constants: Mapping[str, Tensor], folded: int = 0) -> Memory:
    """The memory of a graph that runs call by call, in its order, each value freed once read.

    `constants` are weights by the names of placeholders, storages counted once; `folded` are bytes
    of those that are not among them. What a compiler fuses away is counted, as eager mode has it.
    """
    read = [n for n in graph.find_nodes(op="placeholder") if n.name in constants and n.users]
    sizes: dict[int, int] = {}
    for node in read:
        tensor = constants[node.name]
        if tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            sizes[storage._cdata] = storage.nbytes()
    return Memory(peak(graph), sum(sizes.values()) + folded)


def exceeds(new: Memory, given: Memory, growth: float) -> bool:
    """Whether a program takes more than `growth` times the memory of the given one."""
    return new.total > growth * given.total


def peak(graph: Graph) -> int:
    """Bytes of intermediates at their most: results stay to the end, views are their base."""
    owners, sizes = _owners(graph)
    last: dict[int, Node] = {}
    for node in graph.nodes:
        for read in node.all_input_nodes:
            for owner in owners[read]:
                last[owner] = node
    frees: dict[Node, list[int]] = {}
    for owner, node in last.items():
        frees.setdefault(node, []).append(owner)
    held, most, alive = 0, 0, set[int]()
    for node in graph.nodes:
        for owner in owners[node]:
            if owner in sizes and owner not in alive:
                alive.add(owner)
                held += sizes[owner]
        most = max(most, held)
        unread = [owner for owner in owners[node] if owner not in last]
        for owner in (*frees.get(node, ()), *unread):
            if owner in alive and node.op != "output":
                held -= sizes[owner]
                alive.discard(owner)
    return most


def _owners(graph: Graph) -> tuple[dict[Node, list[int]], dict[int, int]]:
    """The storages that each node's value lies in, and the bytes of those that the graph makes."""
    owners: dict[Node, list[int]] = {}
    numbers: dict[int, int] = {}  # what identifies a storage -> its number
    sizes: dict[int, int] = {}
    for node in graph.nodes:
        borrowed = _borrowed(node)
        found: dict[int, None] = {}
        for key, count in _storages(node):
            if borrowed is not None and key not in numbers and owners[borrowed]:
                found[owners[borrowed][0]] = None  # a view, of fakes that do not share
                continue
            new = key not in numbers
            number = numbers.setdefault(key, len(numbers))
            if new and node.op == "call_function":
                sizes[number] = count
            found[number] = None
        owners[node] = list(found)
    return owners, sizes


def _storages(node: Node) -> Iterator[tuple[int, int]]:
    """What identifies the storages of a node's value, and their bytes."""
    value: Any = node.meta.get("val")
    for part in value if isinstance(value, (list, tuple)) else (value,):
        if not isinstance(part, Tensor):
            continue
        if part.layout != torch.strided:
            yield id(part), int(hint(part.numel())) * part.element_size()
            continue
        storage = part.untyped_storage()
        yield storage._cdata, int(hint(storage.nbytes()))


def _borrowed(node: Node) -> Node | None:
    """The operand in whose memory the result lies, by the schema; None where it has its own."""
    if node.target is operator.getitem:
        parts = node.args[0]
        return parts if isinstance(parts, Node) else None
    if not isinstance(node.target, OpOverload):
        return None
    schema = node.target._schema
    lent = {name for r in schema.returns if r.alias_info for name in r.alias_info.before_set}
    for argument, given in zip(schema.arguments, node.args, strict=False):
        borrowed = argument.alias_info.before_set if argument.alias_info is not None else ()
        if isinstance(given, Node) and lent.intersection(borrowed):
            return given
    return None
