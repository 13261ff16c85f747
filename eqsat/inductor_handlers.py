"""Inductor's graph handlers as rules: each is run on a graph of its own pattern alone."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Node

from eqsat.meta import Meta, shape_env
from eqsat.pair import Specialised
from eqsat.traced import argument

prims = torch.ops.prims


def _cast(x: Any, dtype: torch.dtype) -> Any:
    return x.to(dtype)


def _sum(x: Any, y: Any, **options: Any) -> Any:
    """The sum; without the 0 that stands for the bias of what had none."""
    return y if isinstance(x, int) and x == 0 else torch.ops.aten.add.Tensor(x, y, **options)


# What the language spells otherwise.
CALLS = {
    prims.convert_element_type: _cast,
    prims.convert_element_type.default: _cast,
    torch.ops.aten.add.Tensor: _sum,
    torch.ops.aten.view.default: torch.ops.aten.reshape.default,
}
OVERLOADS = ("Tensor", "default")


@dataclass(frozen=True, eq=False)
class Handler:
    """A GraphPatternEntry of Inductor with the names of the operands of its pattern, in order.

    `absent` are operands that are None; `constants` those that it is shown as frozen weights.
    """

    entry: Any
    names: tuple[str, ...]
    absent: tuple[str, ...] = ()
    constants: Collection[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.names])

    def __call__(self, *values: Any) -> Any:
        """The pattern, as a function of its operands."""
        bound = dict(zip(self.names, values, strict=True))
        return _Pattern({**dict.fromkeys(self.absent), **bound}).results(self.entry.pattern)

    def replacement(self) -> Specialised:
        """What the handler makes of the pattern, which is another function at other values."""
        return Specialised(self._at)

    def _at(self, values: Sequence[Any]) -> Any:
        """The pattern's graph at these values, after the handler. ValueError where it declines."""
        from torch._inductor import config
        from torch._inductor.pattern_matcher import PatternMatcherPass
        from torch._inductor.virtualized import V

        if shape_env(values) is not None:
            raise ValueError("it is run at static shapes only")
        mode = FakeTensorMode()
        graph, inputs = self._graph(values, mode)
        module = GraphModule(torch.nn.Module(), graph)
        for node in inputs:
            if node.name in self.constants:
                node.op = "get_attr"
        before = str(graph)
        own = PatternMatcherPass()
        self.entry.register(own)
        try:
            with V.set_fake_mode(mode), config.patch(dict(self.options)):
                own.apply(module)
        except Exception as error:
            raise ValueError(f"it raises {type(error).__name__}: {error}") from error
        for node in inputs:
            node.op = "placeholder"
        module.graph.eliminate_dead_code()
        if str(module.graph) == before:
            raise ValueError("its handler or its check declines")
        order = [n for n, value in zip(self.names, values, strict=True) if isinstance(value, Meta)]
        places = [self.names.index(name) for name in order]
        runner = _Runner(module)
        return lambda *given: runner.run(*(given[i] for i in places))

    def _graph(self, values: Sequence[Any], mode: FakeTensorMode) -> tuple[Graph, list[Node]]:
        graph = Graph()
        inputs: list[Node] = []
        environment: dict[str, Any] = dict.fromkeys(self.absent)
        for name, value in zip(self.names, values, strict=True):
            with mode:
                environment[name] = fake = argument(value)
            if isinstance(value, Meta):
                node = environment[name] = graph.placeholder(name)
                node.meta["val"] = fake
                inputs.append(node)
        pattern = _Pattern(environment, graph, mode)
        results = pattern.results(self.entry.pattern)
        graph.output(results if isinstance(results, tuple) else (results,))
        return graph, inputs


class _Runner(Interpreter):
    """Runs a graph with the operators that the language knows."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        function: Any = CALLS.get(target, target)
        return function(*args, **kwargs)


@dataclass(eq=False)
class _Pattern:
    """Evaluates a PatternExpr on values, or builds it as a graph."""

    environment: Mapping[str, Any]
    graph: Graph | None = None
    mode: Any = None

    def __post_init__(self) -> None:
        self.known: dict[int, Any] = {}
        positional = [n for n in self.environment if n.startswith("arg_")]
        self.positional = iter(sorted(positional, key=lambda n: int(n.removeprefix("arg_"))))

    def results(self, pattern: Any) -> Any:
        outputs = getattr(pattern, "outputs", None)
        if outputs is None:
            return self._value(pattern)
        return tuple(self._value(output) for output in outputs)

    def _value(self, pattern: Any) -> Any:
        """The value of a pattern (few levels deep)."""
        from torch._inductor import pattern_matcher as pm

        if not isinstance(pattern, pm.PatternExpr):
            return pattern
        if id(pattern) not in self.known:
            if isinstance(pattern, pm.KeywordArg):
                value = self.environment[pattern.name]
            elif isinstance(pattern, pm.Arg):
                value = self.environment[next(self.positional)]
            else:
                assert isinstance(pattern, pm.CallFunction)
                value = self._call(pattern)
            self.known[id(pattern)] = value
        return self.known[id(pattern)]

    def _call(self, pattern: Any) -> Any:
        from torch._inductor.pattern_matcher import Ignored

        args = [self._value(a) for a in pattern.args]
        named = {k: v for k, v in pattern.kwargs.items() if not isinstance(v, Ignored)}
        kwargs = {k: self._value(v) for k, v in named.items()}
        target = _overload(pattern.fns)
        if self.graph is None:
            return CALLS.get(target, target)(*args, **kwargs)
        node = self.graph.call_function(target, tuple(args), kwargs)
        with self.mode:
            fake_args = torch.fx.map_arg(tuple(args), lambda n: n.meta["val"])
            fake_kwargs = torch.fx.map_arg(kwargs, lambda n: n.meta["val"])
            node.meta["val"] = target(*fake_args, **fake_kwargs)
        return node


def _overload(functions: Sequence[Any]) -> OpOverload:
    """The overload that a pattern of several functions is run with: the first, or the usual one."""
    if isinstance(functions[0], OpOverload):
        return functions[0]
    named = {f._overloadname: f for f in functions if isinstance(f, OpOverload)}
    for name in OVERLOADS:
        if name in named:
            return named[name]
    raise ValueError(f"no overload of {functions[0]} is known to run")


def operands(pattern: Any) -> tuple[str, ...]:
    """The operands of a pattern in order: keyword names, and arg_0, arg_1 for those without.

    Raises ValueError for a pattern that is no expression of operators.
    """
    from torch._inductor import pattern_matcher as pm

    names: dict[str, None] = {}
    seen: set[int] = set()
    stack = list(reversed(getattr(pattern, "outputs", [pattern])))
    count = 0
    while stack:
        part = stack.pop()
        if not isinstance(part, pm.PatternExpr) or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, pm.KeywordArg):
            names[part.name] = None
        elif isinstance(part, pm.Arg):
            names[f"arg_{count}"] = None
            count += 1
        elif type(part) is pm.CallFunction:
            stack += reversed([*part.args, *part.kwargs.values()])
        elif not isinstance(part, pm.Ignored):
            raise ValueError(f"its pattern has a {type(part).__name__}: no fixed expression")
    return tuple(names)
