"""Two functions that should be one: both sides of a rule, traced again wherever it matches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from eqsat.expression import Attr, Expr
from eqsat.infer import Oracle
from eqsat.meta import AnyMeta, Meta, Scalar, Texts, meta_of, shape_env
from eqsat.operators import OPERATORS
from eqsat.traced import (
    Number,
    Operand,
    Slot,
    Terms,
    cast_dtype,
    generalise,
    is_literal,
    metas,
    mismatch,
    select,
    trace,
    variables,
)

Check = Callable[[Sequence[str], Sequence[Any], Terms], bool]
"""Whether a rule applies: the names and values of its parameters, and what it would put there."""
MAGIC = 0.7548776662  # and its powers: numbers that no program holds, for arguments that are one


@dataclass(frozen=True)
class Specialised:
    """A replacement that is another function at other values: `at` gives it."""

    at: Callable[[Sequence[Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Signature:
    """The parameters of a search function, sequences taken apart, with an example of each."""

    names: tuple[str, ...]
    values: tuple[Any, ...]  # a meta for a tensor, a Scalar or attribute for the others
    scalars: Mapping[str, Any]
    spec: Any  # the pytree of the arguments

    @staticmethod
    def of(
        search: Callable[..., Any], examples: Sequence[Any], scalars: Mapping[str, Any]
    ) -> Signature:
        parameters = list(inspect.signature(search).parameters)
        if unknown := [name for name in scalars if name not in parameters]:
            raise ValueError(f"{unknown[0]!r} is no parameter of the search function")
        wanted = [name for name in parameters if name not in scalars]
        if len(examples) != len(wanted):
            raise ValueError(f"{len(examples)} examples for the parameters {', '.join(wanted)}")
        given = iter(examples)
        arguments = [scalars[n] if n in scalars else next(given) for n in parameters]
        names: list[str] = []
        values: list[Any] = []
        for name, value in zip(parameters, arguments, strict=True):
            if name in scalars:
                names.append(name)
                values.append(_scalar(value))
                continue
            leaves = pytree.tree_leaves(value)
            names += [name] if len(leaves) == 1 else [f"{name}_{i}" for i in range(len(leaves))]
            values += [_meta(name, leaf) for leaf in leaves]
        structure = [0 if n in scalars else v for n, v in zip(parameters, arguments, strict=True)]
        return Signature(
            tuple(names), tuple(values), dict(scalars), pytree.tree_structure(structure)
        )

    def flat(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of the flat arguments."""
        return lambda *flat: function(*pytree.tree_unflatten(list(flat), self.spec))

    def numbers(self) -> Signature | None:
        """With numbers for the examples that are tensors of one element, if there are any."""
        found = {
            name: MAGIC ** (i + 1)
            for i, (name, value) in enumerate(zip(self.names, self.values, strict=True))
            if isinstance(value, Meta) and value.shape == () and value.dtype.is_floating_point
        }
        pairs = zip(self.names, self.values, strict=True)
        values = tuple(Scalar(found[n]) if n in found else v for n, v in pairs)
        scalars = {**self.scalars, **found}
        return Signature(self.names, values, scalars, self.spec) if found else None


def _scalar(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        return Scalar(value)
    return tuple(value) if isinstance(value, list) else value


def _meta(name: str, example: Any) -> AnyMeta:
    if isinstance(example, Meta):
        return example
    if not isinstance(example, Tensor):
        raise ValueError(
            f"the example of {name!r} is {example!r}: give a tensor, or name it among the scalars"
        )
    meta = meta_of(example)
    assert meta is not None
    return meta


def pair_of(
    signature: Signature,
    search: Callable[..., Any],
    replace: Callable[..., Any] | Specialised,
    check: Check | None,
) -> Pair:
    """The pair traced at its examples, numbers for tensors of one element if it must be."""
    try:
        return _pair(signature, search, replace, check)
    except ValueError:
        numbers = signature.numbers()
        if numbers is None:
            raise
        return _pair(numbers, search, replace, check)


def _pair(
    signature: Signature,
    search: Callable[..., Any],
    replace: Callable[..., Any] | Specialised,
    check: Check | None,
) -> Pair:
    names, values = signature.names, signature.values
    found = signature.flat(search)
    put = replace if isinstance(replace, Specialised) else _always(signature.flat(replace))
    left = _named("search", lambda: trace(found, names, values))
    right = _named("replacement", lambda: trace(put.at(values), names, values))
    _same_metas(*(metas(side, names, values, Oracle(Texts())) for side in (left, right)))
    left = generalise(left, signature.scalars)
    kept = _kept(left, right, names)
    left, right = select(left, kept), select(right, kept)
    return Pair(signature, found, put, kept, left, right, check)


def _always(function: Callable[..., Any]) -> Specialised:
    return Specialised(lambda _values: function)


def _named(what: str, made: Callable[[], Terms]) -> Terms:
    try:
        return made()
    except ValueError as error:
        raise ValueError(f"the {what} function: {error}") from error


def _kept(left: Terms, right: Terms, names: Sequence[str]) -> tuple[int, ...]:
    """The results that differ, and those without which the left side would not bind a variable.

    Raises ValueError where none differ.
    """
    every = range(len(left.outputs))
    kept = [i for i in every if select(left, (i,)) != select(right, (i,))]
    if not kept:
        raise ValueError("the two functions are the same in the language: nothing to replace")
    for index in every:
        missing = set(names) - variables(select(left, kept))
        if missing & variables(select(left, (index,))):
            kept.append(index)
    return tuple(sorted(kept))


def _same_metas(left: Sequence[AnyMeta], right: Sequence[AnyMeta]) -> None:
    """Raises ValueError where two lists of results differ in number, shape, dtype or device."""
    if len(left) != len(right):
        raise ValueError(f"{len(left)} results are replaced by {len(right)}")
    for index, pair in enumerate(zip(left, right, strict=True)):
        a, b = map(Texts().text, pair)
        if a != b:
            raise ValueError(f"result {index}: {a} is replaced by {b}")


@dataclass(frozen=True, eq=False)
class Computed(Attr):
    """An attribute that is traced at each match; printed as at the example."""

    shown: str

    def __str__(self) -> str:
        return self.shown


@dataclass(frozen=True, eq=False, repr=False)
class Pair:
    """Two traced functions of flat arguments; of their results, those `kept` differ."""

    signature: Signature
    search: Callable[..., Any]
    replace: Specialised
    kept: tuple[int, ...]
    left: Terms
    right: Terms
    check: Check | None
    texts: Texts = field(default_factory=Texts, compare=False)
    known: dict[Any, Any] = field(default_factory=dict, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The variables of the rule."""
        return self.signature.names

    def at(self, *values: Any) -> tuple[Terms, Terms]:
        """Both sides where the variables have these values; ValueError where they do not fit."""
        env = shape_env(values)
        key = (id(env), *map(self.texts.text, values))
        if key not in self.known:
            try:
                self.known[key] = self._traced(values), env
            except ValueError as error:
                self.known[key] = error, env
        found, _ = self.known[key]
        if isinstance(found, ValueError):
            raise found
        return found

    def _traced(self, values: tuple[Any, ...]) -> tuple[Terms, Terms]:
        values = tuple(map(plain, values))
        bound = {n: v for n, v in zip(self.names, values, strict=True) if not isinstance(v, Meta)}

        def side(function: Callable[..., Any], pattern: Terms) -> Terms:
            terms = trace(function, self.names, values)
            if len(terms.outputs) <= max(self.kept):
                raise ValueError(f"here it has {len(terms.outputs)} results")
            terms = select(terms, self.kept)
            if (difference := mismatch(pattern, terms, bound)) is not None:
                raise ValueError(f"here it is {difference}")
            return terms

        left, right = side(self.search, self.left), side(self.replace.at(values), self.right)
        if self.check is not None and not self.check(self.names, values, right):
            raise ValueError("its check refuses")
        return left, right

    def holds(self, *values: Any) -> bool:
        """Whether the rule applies where the variables have these values."""
        try:
            self.at(*values)
        except ValueError:
            return False
        return True

    def sides(self, *variables: Any) -> tuple[Any, Any]:
        """Left and right of the rule, applied to symbols or to real tensors."""
        return self._side(0, variables), self._side(1, variables)

    def _side(self, side: int, variables: tuple[Any, ...]) -> Any:
        terms = (self.left, self.right)[side]
        environment = dict(zip(self.names, variables, strict=True))
        results: list[Any] = []

        def operand(given: Operand, row: int, place: int) -> Any:
            if isinstance(given, str):
                return environment[given]
            if isinstance(given, int):
                return results[given]
            return self._computed(
                given.value, variables, lambda *v: self._number(side, row, place, v)
            )

        def attribute(given: Any, row: int, place: int) -> Any:
            if isinstance(given, Slot):
                return environment[given.variable]
            if is_literal(given):
                return given
            return self._computed(
                given, variables, lambda *v: self.at(*v)[side].rows[row].attributes[place]
            )

        for i, row in enumerate(terms.rows):
            operands = [operand(o, i, k) for k, o in enumerate(row.operands)]
            attributes = [attribute(a, i, k) for k, a in enumerate(row.attributes)]
            results.append(OPERATORS[row.operator](*operands, *attributes))
        outputs = tuple(operand(o, -1, k) for k, o in enumerate(terms.outputs))
        return outputs if len(self.kept) > 1 else next(iter(outputs))

    def _number(self, side: int, row: int, place: int, values: tuple[Any, ...]) -> Any:
        terms = self.at(*values)[side]
        given = terms.outputs[place] if row < 0 else terms.rows[row].operands[place]
        assert isinstance(given, Number)
        return given.value

    def _computed(self, shown: Any, variables: tuple[Any, ...], value: Callable[..., Any]) -> Any:
        """What `value` is at the variables; a number made of given ones has none to print."""
        if any(isinstance(v, Expr) for v in variables):
            varies = isinstance(shown, float) and self.signature.scalars
            return Computed(
                value, variables, "_" if varies else getattr(shown, "label", repr(shown))
            )
        return value(*(meta_of(v) if isinstance(v, Tensor) else v for v in variables))


def plain(value: Any) -> Any:
    """A value as the functions take it: the number of a Scalar, the dtype of a cast."""
    if isinstance(value, Scalar):
        return value.value
    return cast_dtype(value) or value
