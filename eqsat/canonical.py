"""A graph as text that no name of a node or symbol decides: equal texts mean equal programs."""

from __future__ import annotations

import builtins
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from eqsat.hint import hint
from eqsat.known import Known
from eqsat.meta import Symbolic, settled
from eqsat.storage import PLAIN

BUILT_IN = ("aten", "prims")  # the namespaces of operators that the version of torch tells
FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{module.__name__}.{name}": function
    for module, names in (
        (operator, dir(operator)),
        (math, dir(math)),
        (torch, [name for name in dir(torch) if name.startswith("sym_")]),
        (builtins, ["abs", "float", "int", "max", "min", "pow", "round"]),
    )
    for name in names
    if not name.startswith("_") and callable(function := getattr(module, name))
}
"""What computes with symbolic numbers, by name."""
FUNCTION_NAMES = {id(function): name for name, function in reversed(FUNCTIONS.items())}
_FORMS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


class UnsayableError(ValueError):
    """A graph holds what no text tells: it is not kept in the cache."""


class Canonical:
    """Texts of what a graph holds: nodes, symbols and storages are numbered as they appear.

    With `here`, texts are of use in this process and its forks only, and there they tell all.
    """

    def __init__(self, graph: Graph, *, here: bool = False) -> None:
        self.graph = graph
        self.here = here
        self.symbols: dict[str, str] = {}  # name of a symbol -> its name in the text
        self.numbers: dict[str, Any] = {}  # text of a symbolic number -> the number
        self.envs: dict[int, ShapeEnv] = {}
        self.told = False  # whether all numbers of the graph are known

    def text(self, facts: Mapping[Node, Known], constants: Mapping[str, Tensor]) -> str:
        """The graph, what is known of its constants and symbols, and how constants lie in memory.

        Raises UnsayableError for what a text cannot tell.
        """
        lines = [*self.lines(self.graph), *self._symbols()]
        lines += [f"{i} {facts.get(node)!r}" for i, node in enumerate(self.graph.nodes)]
        objects: dict[int, int] = {}
        storages: dict[int, int] = {}
        for i, node in enumerate(self.graph.find_nodes(op="placeholder")):
            if node.name not in constants:
                continue
            tensor = constants[node.name]
            which = objects.setdefault(id(tensor), len(objects))
            size = tensor.untyped_storage().nbytes() if tensor.layout == torch.strided else 0
            lines.append(f"constant {i} #{which} of {size}: {self.value(tensor, storages)}")
        self.told = True
        return "\n".join(lines)

    def lines(self, graph: Graph) -> Iterator[str]:
        """A line for each node of this graph or of one over the same symbols."""
        places = {node: i for i, node in enumerate(graph.nodes)}
        storages: dict[int, int] = {}
        for node in graph.nodes:
            what = "" if node.op in ("placeholder", "output") else self._target(node)
            args = self._argument((node.args, dict(node.kwargs)), places)
            args = "" if node.op == "placeholder" else args
            yield f"{node.op} {what} {args}: {self.value(node.meta.get('val'), storages)}"

    def value(self, value: Any, storages: dict[int, int]) -> str:
        """The text of a (fake) tensor, a number, or a sequence of them."""
        if value is None or type(value) in (bool, int, float, complex, str):
            return f"{value!r}"
        if isinstance(value, Symbolic):
            return self.number(value)
        if isinstance(value, (list, tuple)):
            return f"({', '.join(self.value(part, storages) for part in value)})"
        if type(value) not in (*PLAIN, FakeTensor) or not is_plain(value):
            return self._unplain(value)
        sizes, strides = (f"({', '.join(map(self.number, v))})" for v in _geometry(value))
        offset, bits = self.number(value.storage_offset()), (value.is_conj(), value.is_neg())
        where = storages.setdefault(value.untyped_storage()._cdata, len(storages))
        return f"{value.dtype}{sizes}{strides}+{offset} of {where} {bits}@{value.device}"

    def _unplain(self, value: Any) -> str:
        """The text of what has no strides: as much as the nodes that make it tell of it."""
        if not (self.here and isinstance(value, Tensor)):
            return self._itself(value, f"a {type(value).__name__} in a graph")
        sizes = ", ".join(map(self.number, value.shape))
        return f"{type(value).__name__} {value.layout} {value.dtype}({sizes})@{value.device}"

    def number(self, value: Any) -> str:
        """The text of a number: a symbolic one's expression, and what is taken for it."""
        value = settled(value)
        if not isinstance(value, Symbolic):
            return f"{value!r}"
        env: Any = value.node.shape_env
        self.envs.setdefault(id(env), env)
        text = f"<{self.expression(value.node.expr)} = {hint(value)!r}>"
        if not self.told:
            self.numbers.setdefault(text, value)
        return text

    def size(self, value: Any) -> int | str | None:
        """A number that stands for itself, or the text of a symbolic one that the graph holds."""
        value = settled(value)
        if not isinstance(value, Symbolic):
            return value
        text = self.number(value)
        return text if text in self.numbers else None

    def sized(self, size: int | str) -> Any:
        """The number that `size` gave for it."""
        return self.numbers[size] if isinstance(size, str) else size

    def expression(self, expr: Any) -> str:
        """The text of an expression over symbols, which are numbered as they appear."""
        for name in sorted(symbol.name for symbol in getattr(expr, "free_symbols", ())):
            self.symbols.setdefault(name, f"n{len(self.symbols)}")
        return _SYMBOL.sub(lambda m: self.symbols.get(m[0], m[0]), str(expr))

    def _argument(self, value: Any, places: Mapping[Node, int]) -> str:
        if isinstance(value, Node):
            return f"%{places[value]}"
        if isinstance(value, (list, tuple)):
            parts = ", ".join(self._argument(part, places) for part in value)
            return f"[{parts}]" if isinstance(value, list) else f"({parts})"
        if isinstance(value, dict):
            pairs = sorted(value.items())
            return f"{{{', '.join(f'{k}={self._argument(v, places)}' for k, v in pairs)}}}"
        if isinstance(value, slice):
            return f"slice{self._argument((value.start, value.stop, value.step), places)}"
        if value is None or type(value) in (bool, int, float, complex, str):
            return f"{value!r}"
        if isinstance(value, _FORMS):
            return f"{type(value).__name__} {value}"
        return self._itself(value, f"a {type(value).__name__} among the arguments of a call")

    def _target(self, node: Node) -> str:
        if self.here and not isinstance(node.target, (str, OpOverload)):
            return self._itself(node.target, "")
        return target_text(node)

    def _itself(self, value: object, what: str) -> str:
        """The identity of what no text tells."""
        if not self.here:
            raise UnsayableError(what)
        return f"{type(value).__name__} {id(value)}"

    def _symbols(self) -> Iterator[str]:
        """What is known of the symbols: all that may decide whether a rule fires."""
        for env in self.envs.values():
            lines = [f"guard {self.expression(guard.expr)}" for guard in env.guards]
            lines += [f"axiom {self.expression(a)} {self.expression(v)}" for a, v in _pairs(env)]
            asserts = [a for given in env.deferred_runtime_asserts.values() for a in given]
            lines += [f"assert {self.expression(a.expr)}" for a in asserts]
            lines += [f"divisible {self.expression(a)}" for a in sorted(env.divisible, key=str)]
            yield from sorted(lines)
            names = {symbol.name: symbol for symbol in env.var_to_range}
            for name, canonical in list(self.symbols.items()):
                if (symbol := names.get(name)) is not None:
                    kinds = sorted(map(str, symbol.assumptions0.items()))
                    like = symbol in env.size_like
                    yield f"symbol {canonical} {env.var_to_range[symbol]} {like} {kinds}"


def _pairs(env: ShapeEnv) -> Iterator[tuple[Any, Any]]:
    yield from env.axioms.items()
    yield from env.replacements.items()


def _geometry(value: Tensor) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(value.shape), tuple(value.stride())


def is_plain(value: Tensor) -> bool:
    """Whether a tensor is one in strided memory, of which shape and strides tell all."""
    return value.layout == torch.strided and not value.is_quantized and not value.is_nested


def target_text(node: Node) -> str:
    """The text of what a node calls or reads."""
    target = node.target
    if isinstance(target, str):
        return repr(target)
    if isinstance(target, OpOverload):
        if target.namespace in BUILT_IN:
            return str(target)
        return f"{target} {target._schema} {sorted(map(str, target.tags))}"
    if id(target) in FUNCTION_NAMES:
        return FUNCTION_NAMES[id(target)]
    raise UnsayableError(f"a call of {target}")
