"""Expressions: what a rule's function returns when its variables are not tensors but symbols."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import torch

from eqsat.functions import ARITHMETIC, BITWISE, COMPARISONS, LOGICAL, POINTWISE, Function

P = ParamSpec("P")
T = TypeVar("T")
# Functions whose every argument is an operand, a number too.
SEVERAL = frozenset({*ARITHMETIC, *COMPARISONS, *BITWISE, *LOGICAL, "maximum", "minimum", "where"})
FAMILY = {1: "unary", 2: "binary", 3: "ternary"}


@dataclass(frozen=True, eq=False)
class Attr:
    """A computed attribute: a Python function of attribute variables and of metas of tensors."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]  # Attr and attribute Var: their values; Expr: its meta; else itself

    def __add__(self, other: Any) -> Attr:
        return Attr(operator.add, (self, other))

    def __radd__(self, other: Any) -> Attr:
        return Attr(operator.add, (other, self))

    def __sub__(self, other: Any) -> Attr:
        return Attr(operator.sub, (self, other))

    def __rsub__(self, other: Any) -> Attr:
        return Attr(operator.sub, (other, self))

    def __mul__(self, other: Any) -> Attr:
        return Attr(operator.mul, (self, other))

    def __rmul__(self, other: Any) -> Attr:
        return Attr(operator.mul, (other, self))

    def __truediv__(self, other: Any) -> Attr:
        return Attr(operator.truediv, (self, other))

    def __rtruediv__(self, other: Any) -> Attr:
        return Attr(operator.truediv, (other, self))

    def __neg__(self) -> Attr:
        return Attr(operator.neg, (self,))

    def __getitem__(self, index: Any) -> Attr:
        return Attr(operator.getitem, (self, index))

    def __call__(self, *operands: Any) -> Expr:
        """The application of a computed function."""
        return apply(self, *operands)

    def __str__(self) -> str:
        name = getattr(self.function, "__name__", "?")
        return f"{name}({', '.join(map(str, self.arguments))})"


class Expr:
    """An operator applied to expressions and attributes; written with torch's own syntax."""

    def __init__(
        self, operator: str, children: tuple[Expr, ...] = (), attributes: tuple[Any, ...] = ()
    ) -> None:
        self.operator = operator
        self.children = children
        self.attributes = attributes

    def __matmul__(self, other: Any) -> Expr:
        return Expr("matmul", (tensor(self), tensor(other)))

    def __add__(self, other: Any) -> Any:
        return apply(Function("add"), self, other)

    def __radd__(self, other: Any) -> Any:
        return apply(Function("add"), other, self)

    def __sub__(self, other: Any) -> Any:
        return apply(Function("sub"), self, other)

    def __rsub__(self, other: Any) -> Any:
        return apply(Function("sub"), other, self)

    def __mul__(self, other: Any) -> Any:
        return apply(Function("mul"), self, other)

    def __rmul__(self, other: Any) -> Any:
        return apply(Function("mul"), other, self)

    def __truediv__(self, other: Any) -> Any:
        return apply(Function("div"), self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return apply(Function("div"), other, self)

    def __pow__(self, other: Any) -> Any:
        return apply(Function("pow"), self, other)

    def __neg__(self) -> Any:
        return apply(Function("neg"), self)

    @property
    def shape(self) -> Attr:
        """The shape of the value, as a computed attribute."""
        return Attr(shape_of, (self,))

    @property
    def ndim(self) -> Attr:
        """The number of dimensions, as a computed attribute."""
        return Attr(ndim_of, (self,))

    @property
    def dtype(self) -> Attr:
        """The dtype, as a computed attribute."""
        return Attr(dtype_of, (self,))

    @property
    def device(self) -> Attr:
        """The device, as a computed attribute."""
        return Attr(device_of, (self,))

    @property
    def mT(self) -> Expr:  # noqa: N802 - torch's own name
        """The value with its last two dims exchanged."""
        return Expr("permute", (tensor(self),), (Attr(swap_last, (self,)),))

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Expr:
        """The expression of a torch function named like a pointwise function: `torch.relu`."""
        name = getattr(func, "__name__", str(func))
        if name not in POINTWISE or name == "to":
            raise ValueError(
                f"torch function {name!r} has no operator: use a function of eqsat.operators, "
                f"or one of {', '.join(sorted(POINTWISE))}"
            )
        options = dict(kwargs or {})
        if mode := options.pop("rounding_mode", None):
            name = f"{name}_{mode}"
        if options.pop("inplace", False):
            raise ValueError(f"torch function {name!r} writes in place: a rule has values only")
        parameters = tuple(options.values())
        operands = [a for a in args if isinstance(a, Expr)]
        rest = tuple(a for a in args[len(operands) :])
        if name in SEVERAL:
            return apply(Function(name), *args)
        return apply(Function(name, rest + parameters), *operands)

    def __str__(self) -> str:
        shown = [str(child) for child in self.children] + [show(a) for a in self.attributes]
        if self.operator in FAMILY.values():
            return f"{show(self.attributes[0])}({', '.join(shown[:-1])})"
        if self.operator == "number":
            return shown[0]
        return f"{self.operator}({', '.join(shown)})"

    def walk(self) -> Iterator[Expr]:
        """Every subexpression, children first."""
        for child in self.children:
            yield from child.walk()
        yield self


class Var(Expr):
    """A variable of a rule; where it stands shows if it is a tensor, an attribute or a function."""

    def __init__(self, name: str) -> None:
        super().__init__("variable")
        self.name = name
        self.kind: str | None = None

    def become(self, kind: str) -> Var:
        """This variable, now a "tensor" or an "attribute"; ValueError if it was the other."""
        if self.kind not in (None, kind):
            raise ValueError(f"variable {self.name!r} is used as {self.kind} and as {kind}")
        self.kind = kind
        return self

    def __call__(self, *operands: Any) -> Expr:
        """The application of a function variable to one, two or three tensors."""
        return apply(self.become("attribute"), *operands)

    def __getitem__(self, index: Any) -> Attr:
        return Attr(operator.getitem, (self.become("attribute"), index))

    @property
    def value(self) -> Attr:
        """The Python number that a number variable stands for, as a computed attribute."""
        return Attr(value_of, (self.become("tensor"),))

    def __str__(self) -> str:
        return self.name


def apply(function: Any, *operands: Any) -> Any:
    """A pointwise function applied to expressions, or arithmetic on attribute variables."""
    if all(
        not isinstance(o, Expr) or (isinstance(o, Var) and o.kind == "attribute") for o in operands
    ) and isinstance(function, Function):
        return Attr(POINTWISE[function.name], operands)
    if len(operands) not in FAMILY:
        raise ValueError(f"a pointwise function takes one to three tensors, not {len(operands)}")
    return Expr(FAMILY[len(operands)], tuple(tensor(o) for o in operands), (function,))


def tensor(operand: Any) -> Expr:
    """An operand as an expression: a variable, an expression, or a number (given or computed)."""
    if isinstance(operand, Var):
        if operand.kind == "attribute":
            return Expr("number", (), (operand,))
        return operand.become("tensor")
    if isinstance(operand, Expr):
        return operand
    if isinstance(operand, (bool, int, float, complex, Attr)):
        return Expr("number", (), (operand,))
    raise ValueError(f"{operand!r} cannot stand where an operator takes a tensor")


def attribute_of(argument: Any) -> Any:
    """An argument in attribute position: a variable becomes an attribute variable."""
    if isinstance(argument, Var):
        return argument.become("attribute")
    if isinstance(argument, Expr):
        raise ValueError(f"{argument} is a tensor where an attribute is expected")
    if isinstance(argument, list):
        return tuple(argument)
    if isinstance(argument, tuple) and any(isinstance(a, (Attr, Var)) for a in argument):
        return Attr(_tuple, argument)
    return argument


def attribute(function: Callable[P, T]) -> Callable[P, T]:
    """The function, for a rule to call on attributes: then it runs at each match."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        if any(isinstance(a, (Attr, Expr)) for a in (*args, *kwargs.values())):
            return Attr(functools.partial(function, **kwargs) if kwargs else function, args)
        return function(*args, **kwargs)

    return call


def _tuple(*parts: Any) -> tuple[Any, ...]:
    return parts


def shape_of(meta: Any) -> tuple[Any, ...]:
    """The shape of a meta or tensor."""
    return tuple(meta.shape)


def ndim_of(meta: Any) -> int:
    """The number of dims of a meta or tensor."""
    return len(meta.shape)


def dtype_of(meta: Any) -> torch.dtype:
    """The dtype of a meta or tensor."""
    return meta.dtype


def device_of(meta: Any) -> torch.device:
    """The device of a meta or tensor."""
    return torch.device(meta.device)


def value_of(meta: Any) -> Any:
    """The number of a Scalar meta."""
    return meta.value


def swap_last(meta: Any) -> tuple[int, ...]:
    """The permutation that exchanges the last two dims."""
    n = len(meta.shape)
    return (*range(n - 2), n - 1, n - 2)


def show(value: Any) -> str:
    """How an attribute prints inside a rule."""
    if isinstance(value, (Attr, Expr)):
        return str(value)
    return value.label if isinstance(value, Function) else repr(value)
