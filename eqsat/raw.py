"""A rule written as an egglog query: for what the functions of `Rewrite` cannot say."""

from __future__ import annotations

import ast
import contextlib
import difflib
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from eqsat.engine import Engine, EngineError, quote
from eqsat.functions import POINTWISE, REDUCTION, Function
from eqsat.meta import INVALID
from eqsat.operators import OPERATORS
from eqsat.rewrite import RELAXED, Numerics, Rewrite
from eqsat.snapshot import NUMBER, Symbol

STRING = r'"(?:[^"\\]|\\.)*"'
# What the engine declares beside the constructors.
RELATIONS = ("meta", "rank", "constant", "finite", "given", "varying")


class EgglogRule(Rewrite):
    """The rule that where the egglog facts `query` hold, `left` and `right` are the same value.

    Both are egglog expressions over the variables of the query. The constructors are the operators
    of `eqsat.operators`: operands first, then attributes as the texts that stand for them; where
    the number of operands varies it is part of the name, as in `cat_2`. The two values are united
    only where their metas are known and equal, as those of any rule.

    >>> query = '(= e (unary (unary x "neg") "neg"))'
    >>> print(EgglogRule("neg-neg", query=query, left="e", right="x"))
    neg-neg: (= e (unary (unary x "neg") "neg")) => (= e x)

    Raises ValueError, naming the rule, for what egglog refuses.
    """

    texts: tuple[str, str, str]

    def __init__(
        self, name: str, *, query: str, left: str, right: str, numerics: Numerics = RELAXED
    ) -> None:
        nothing: tuple[object, ...] = ()
        fields = {"name": name, "numerics": numerics, "texts": (query, left, right)}
        fields |= {"rule": _unspoken, "when": None, "exact": None, "kinds": {}}
        fields |= dict.fromkeys(("facts", "variables", "left", "right"), nothing)
        for key, value in fields.items():
            object.__setattr__(self, key, value)
        try:
            for text in self.texts:
                _require_balance(text)
            self._try()
        except ValueError as error:
            raise ValueError(f"rule {name!r}: {error}") from error

    def __str__(self) -> str:
        query, left, right = self.texts
        return f"{self.name}: {query} => (= {left} {right})"

    def text(self, index: int) -> str:
        """The egglog rule: a match is recorded under `index`, for the engine to unite."""
        query, left, right = self.texts
        options = f":ruleset rules :name {quote(self.name)}"
        return f"(rule ({query}\n) ((pending {index} {left} {right})) {options})"

    def symbols(self) -> Iterator[Symbol]:
        """The constructors that the texts mention."""
        for word in dict.fromkeys(self._words()):
            if (symbol := _symbol(word)) is not None:
                yield symbol

    def values(self) -> Iterator[Any]:
        """The attributes that the texts spell out: functions without parameters, and literals."""
        for literal in dict.fromkeys(re.findall(STRING, " ".join(self.texts))):
            text = literal[1:-1]
            if text in POINTWISE or text in REDUCTION:
                yield Function(text)
                continue
            with contextlib.suppress(ValueError, SyntaxError):
                yield ast.literal_eval(text)

    def _words(self) -> list[str]:
        texts = (re.sub(STRING, '""', text) for text in self.texts)
        return [word for text in texts for word in re.findall(r"\(\s*([A-Za-z_][\w.]*)", text)]

    def _try(self) -> None:
        """Raises ValueError if an engine that holds nothing refuses the rule."""
        with closing(Engine(lambda _symbol, _metas, _attributes: INVALID)) as engine:
            engine.declare(self.symbols(), lambda _symbol: False, symbolic=False)
            try:
                engine.command(self.text(0))
            except EngineError as error:
                raise ValueError(f"egglog refuses it: {self._hint()}{error}") from error

    def _hint(self) -> str:
        """The first word that is no constructor and no relation, and what it may be meant to be."""
        known = [*_constructors(), *RELATIONS]
        for word in self._words():
            if _symbol(word) is None and word not in RELATIONS:
                near = difflib.get_close_matches(word, known, 3, 0.0)
                return f"nothing is named {word!r}, near it: {', '.join(near)}; "
        return ""


def _unspoken(*_variables: object) -> None:
    """The sides of a rule that has none to call."""


def _symbol(word: str) -> Symbol | None:
    """The constructor of this name."""
    if word == NUMBER.name:
        return NUMBER
    base, _, count = word.rpartition("_")
    operator = OPERATORS.get(word)
    if operator is not None and not operator.variadic:
        return Symbol(word, operator.tensors[0], len(operator.attributes))
    operator = OPERATORS.get(base)
    if operator is not None and operator.variadic and count.isdigit():
        return Symbol(base, int(count), len(operator.attributes))
    return None


def _constructors() -> Iterator[str]:
    for name, operator in OPERATORS.items():
        low, high = operator.tensors
        counts = range(low, min(high, 4) + 1)
        yield from (f"{name}_{n}" for n in counts) if operator.variadic else (name,)
    yield NUMBER.name


def _require_balance(text: str) -> None:
    """Raises ValueError if parentheses do not match: the text would end the rule it stands in."""
    depth = 0
    for character in re.sub(STRING, "", text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
    if depth != 0 or '"' in re.sub(STRING, "", text):
        raise ValueError(f"parentheses or quotes do not match in {text!r}")
