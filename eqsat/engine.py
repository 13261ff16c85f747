"""The e-graph itself: the only file that speaks to egglog."""

from __future__ import annotations

import base64
import itertools
import os
import pickle
import tempfile
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from eqsat.meta import INVALID
from eqsat.operators import OPERATORS
from eqsat.schema import FACTS, FAMILY, PROGRAM
from eqsat.snapshot import NUMBER, Row, Snapshot, Symbol

_engines: weakref.WeakValueDictionary[str, Engine] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_makers: set[int] = set()
"""The processes that have made an e-graph: this one, and those that it is a fork of."""
_undying: list[Any] = []
"""E-graphs of such a fork, never freed: egglog would wait for a thread that only the parent has."""
SEPARATOR = "\N{BROKEN BAR}"  # between the parts of a question; in no text
MERGE_EVERY = 4  # iterations
CLIMBS = 8  # operators that a slice climbs in an iteration: it has the whole program before it


class EngineError(RuntimeError):
    """The e-graph broke (a Rust panic or a refused command) and cannot be used any more."""


@dataclass(frozen=True)
class RunStats:
    """What a run reports of its rules: matches and seconds by rule name."""

    matches: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def _dispatch(question: str) -> Any:
    return _engines[question[: question.index(SEPARATOR)]].answer(question)


def _watch(engine: str, size: int) -> bool:
    return bool(_engines[engine].watch(int(size)))


def _stopped(engine: str) -> bool:
    return _engines[engine].stopped


def _reference(function: Callable[..., Any]) -> str:
    return f'(py-object "{base64.b64encode(pickle.dumps(function)).decode()}")'


_cloudpickle_dumps = cloudpickle.dumps


def _dumps(value: Any, *options: Any) -> bytes:
    """What cloudpickle gives; for texts and truth values without its Python code."""
    if type(value) in (str, bool):
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return _cloudpickle_dumps(value, *options)


@contextmanager
def _pickling_fast() -> Generator[None]:
    """In it, egglog pickles what crosses to Python and back, twice a callback, in C.

    An eighth of the time of whole networks. Threads may overlap: what each leaves is right.
    """
    cloudpickle.dumps = _dumps
    try:
        yield
    finally:
        cloudpickle.dumps = _cloudpickle_dumps


def quote(text: str) -> str:
    """A text as an egglog string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class Engine:
    """An e-graph of typed constructors, filled once, run once, read once; bound to its thread.

    `oracle(symbol, metas, attributes)` gives the text of an e-node's meta from its children's.
    """

    def __init__(self, oracle: Callable[[Symbol, tuple[str, ...], tuple[str, ...]], str]) -> None:
        self._oracle = oracle
        self._name = f"e{next(_numbers)}"
        _engines[self._name] = self
        self._folder = tempfile.TemporaryDirectory(prefix="eqsat-")
        from egglog.bindings import EGraph  # half of what `import eqsat` would take

        _makers.add(os.getpid())
        self._egraph = EGraph(fact_directory=self._folder.name)
        self._symbols: dict[str, Symbol] = {}
        self._callbacks: dict[str, tuple[Callable[..., Any], Any]] = {}
        self._answers: dict[str, Any] = {}
        self._recorded: dict[int, tuple[str, ...]] = {}
        self._on_iteration: Callable[[int], bool] = lambda _size: False
        self.stopped = False
        self.command(*PROGRAM)

    def close(self) -> None:
        """Free the e-graph now, in the thread it belongs to; it cannot be used any more."""
        self._callbacks.clear()
        self._on_iteration = lambda _size: True
        self._folder.cleanup()
        if _makers != {os.getpid()}:
            _undying.append(self._egraph)
        del self._egraph

    def command(self, *texts: str) -> None:
        """Run egglog commands, one a text (a text that holds many is slow to parse)."""
        for text in texts:
            self._run(text)

    def _run(self, text: str) -> Any:
        try:
            return self._egraph.run_program(*self._egraph.parse_program(text))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # also a Rust panic; afterwards the e-graph is dead
            raise EngineError(f"{type(error).__name__}: {error} in {text[:300]}") from error

    def declare(
        self, symbols: Iterable[Symbol], pure: Callable[[Symbol], bool], symbolic: bool
    ) -> None:
        """Declare constructors, with the rules that find meta and constness of their e-nodes.

        With `symbolic`, the callback "concrete" is asked if an e-node's attributes are constants.
        """
        for symbol in symbols:
            if symbol.name in self._symbols:
                if self._symbols[symbol.name] != symbol:
                    raise ValueError(f"two operators would share the name {symbol.name!r}")
                continue
            self._symbols[symbol.name] = symbol
            columns = ["T"] * symbol.children + ["String"] * symbol.attributes
            self.command(f"(constructor {symbol.name} ({' '.join(columns)}) T)")
            self.command(*self._analysis(symbol, pure(symbol), symbolic))

    def _analysis(self, symbol: Symbol, pure: bool, symbolic: bool) -> list[str]:
        name, head = symbol.name, symbol.query
        xs, attrs = symbol.operand_names, symbol.attribute_names
        ms = [f"m{i}" for i in range(symbol.children)]
        texts: list[str] = []
        if pure and (xs or symbol.operator in OPERATORS or symbol == NUMBER):
            known = " ".join(f"(constant {x})" for x in xs)
            if symbolic and attrs:
                known += f" (= true {self.call('concrete', attrs, 'bool')})"
            texts.append(f"(rule ({head} {known}) ((constant e)) :ruleset analysis)")
        texts += [f"(rule ({head} (varying {x})) ((varying e)) :ruleset analysis)" for x in xs]
        if symbol.operator == "full":
            texts.append(f"(rule ({head}) ((given e)) :ruleset analysis)")
        if symbol.operator == "binary":
            changed = f'(= e ({name} x0 x1 "add")) (given x0) (constant e)'
            texts.append(f"(rule ({changed}) ((given e)) :ruleset analysis)")
        if symbol.operator not in OPERATORS and symbol != NUMBER:
            return texts
        body = " ".join([head, *(f"(= {m} (meta {x}))" for m, x in zip(ms, xs, strict=True))])
        answer = self.call(f"meta {name}", [*ms, *attrs])
        self.callback(
            f"meta {name}",
            lambda *texts: self._oracle(symbol, texts[: symbol.children], texts[symbol.children :]),
            INVALID,
        )
        return [*texts, f"(rule ({body}) ((set (meta e) {answer})) :ruleset analysis)"]

    def call(self, key: str, variables: Sequence[str], kind: str = "string") -> str:
        """The egglog expression that calls the callback `key` on string variables.

        They travel as one text: each Python value that crosses is pickled.
        """
        question = quote(SEPARATOR.join([self._name, key]))
        if variables:
            parts = " ".join(f"{quote(SEPARATOR)} {v}" for v in variables)
            question = f"(+ {question} {parts})"
        return f"(py-to-{kind} (py-call {_reference(_dispatch)} (py-from-string {question})))"

    def callback(self, key: str, function: Callable[..., Any], failed: Any) -> None:
        """Let rules call `function` by the name `key`; answers are remembered.

        The answer is `failed` where it raises: that would end the run and leave the e-graph dead.
        """
        self._callbacks[key] = function, failed

    def answer(self, question: str) -> Any:
        """The (remembered) answer of a callback to `engine, key, argument, ...`."""
        if question not in self._answers:
            _, key, *texts = question.split(SEPARATOR)
            function, failed = self._callbacks[key]
            try:
                answer = function(*texts)
            except Exception:  # noqa: BLE001 - what a user's rule raises means: no match
                answer = failed
            self._answers[question] = answer
        return self._answers[question]

    def insert(
        self,
        rows: Sequence[Row],
        metas: Mapping[int, str],
        facts: Mapping[str, Iterable[int | str]],
    ) -> None:
        """Insert e-nodes by handle, with the known metas (of every handle).

        `facts` are the handles that are known to be "constant" or "varying", lines of handle and
        "interval", and pairs of handles: what follows for others the engine finds.
        """
        tables: dict[str, list[str]] = {}
        for row in rows:
            columns = [row.handle, *row.children, *row.attributes]
            tables.setdefault(row.symbol.name, []).append("\t".join(map(str, columns)))
        for name, lines in tables.items():
            symbol = self._symbols[name]
            xs, attrs = symbol.operand_names, symbol.attribute_names
            sorts = ["i64"] * (1 + len(xs)) + ["String"] * len(attrs)
            term = " ".join([name, *(f"(Node {x})" for x in xs), *attrs])
            self.command(
                f"(relation given_{name} ({' '.join(sorts)}))",
                f"(rule ((given_{name} {' '.join(['o', *xs, *attrs])}))"
                f" ((union (Node o) ({term}))) :ruleset insertion)",
            )
            self._load(f"given_{name}", lines)
        self._load("given_meta", [f"{handle}\t{meta}" for handle, meta in metas.items()])
        for fact, handles in facts.items():
            self._load(f"given_{fact}", [str(handle) for handle in handles])
        self.command("(run-schedule (saturate (run insertion)))")

    def _load(self, relation: str, lines: Sequence[str]) -> None:
        if not lines:
            return
        path = Path(self._folder.name, f"{relation}.tsv")
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.command(f'(input {relation} "{path.name}")')

    def record(self, rule: int, kinds: Sequence[str], variables: Sequence[str]) -> str:
        """The action that records what a rule's variables, of these kinds, stand for in a match."""
        self._recorded[rule] = tuple(kinds)
        sorts = ["T" if kind == "tensor" else "String" for kind in kinds]
        self.command(f"(relation match_{rule} ({' '.join(sorts)}))")
        return f"({' '.join([f'match_{rule}', *variables])})"

    def run(
        self, iterations: int, match_limit: int, on_iteration: Callable[[int], bool]
    ) -> RunStats:
        """Apply the rules until `on_iteration(rows so far)` says stop, at most `iterations` times.

        `match_limit` is what one rule may match in one iteration before it is banned for a while.
        """
        self._on_iteration, self.stopped = on_iteration, False
        name = f"(py-from-string {quote(self._name)})"
        watch = f"(py-call {_reference(_watch)} {name} (py-from-int (get-size!)))"
        stopped = f":until (guard (py-to-bool (py-call {_reference(_stopped)} {name})))"
        climb = f"(saturate (run analysis)) (run-with bo cuts {stopped})"
        step = f"(repeat {CLIMBS} {climb}) (run-with bo rules :until (guard (py-to-bool {watch})))"
        # Rules with several left sides join them all, so they run once in a while only. Those of
        # siblings go on from what they merged.
        families = " ".join(f"(run {step})" for step in FAMILY)
        siblings = f"(saturate (saturate (run analysis)) (run siblings {stopped}))"
        with _pickling_fast():
            outputs = self._run(
                "(run-schedule"
                f" (let-scheduler bo (back-off :match-limit {match_limit} :ban-length 2))"
                f" (repeat {-(-iterations // MERGE_EVERY)} {step}"
                f" (saturate (run analysis)) {families} {siblings}"
                f" (run-with bo merges {stopped})"
                f" (repeat {MERGE_EVERY - 1} {step})) (saturate (run analysis)))"
            )
        report = outputs[0].report
        return RunStats(
            dict(report.num_matches_per_rule),
            # egglog 13 stores milliseconds as microseconds, a factor of 1000
            {
                name: 1000 * spent.total_seconds()
                for name, spent in report.search_and_apply_time_per_rule.items()
            },
        )

    def watch(self, size: int) -> bool:
        """Called by egglog once an iteration; True stops the run."""
        self.stopped = self._on_iteration(size)
        return self.stopped

    def snapshot(self) -> Snapshot:
        """The whole e-graph, read back."""
        tables = self._egraph.freeze().functions
        ids: dict[int, int] = {}

        def class_of(value: Any) -> int:
            return ids.setdefault(hash(value), len(ids))

        string = self._egraph.value_to_string
        integer = self._egraph.value_to_i64
        strings: dict[int, str] = {}

        def text_of(value: Any) -> str:
            key = hash(value)
            if key not in strings:
                strings[key] = string(value)
            return strings[key]

        handles = {integer(r.inputs[0]): class_of(r.output) for r in tables["Node"].rows}
        handles = dict(sorted(handles.items()))
        nodes: list[tuple[Symbol, int, tuple[int, ...], tuple[str, ...]]] = []
        for name in sorted(self._symbols):
            symbol = self._symbols[name]
            for row in tables[name].rows:
                inputs = row.inputs
                children = tuple(class_of(v) for v in inputs[: symbol.children])
                attributes = tuple(text_of(v) for v in inputs[symbol.children :])
                nodes.append((symbol, class_of(row.output), children, attributes))
        return Snapshot(
            symbols=tuple(n[0] for n in nodes),
            classes=tuple(n[1] for n in nodes),
            children=tuple(n[2] for n in nodes),
            attributes=tuple(n[3] for n in nodes),
            metas={class_of(r.inputs[0]): text_of(r.output) for r in tables["meta"].rows},
            handles=handles,
            constant=frozenset(class_of(r.inputs[0]) for r in tables["constant"].rows),
            pending=tuple(
                (integer(r.inputs[0]), class_of(r.inputs[1]), class_of(r.inputs[2]))
                for r in tables["pending"].rows
            ),
            matches=tuple(
                (rule, tuple(class_of(v) if k == "tensor" else text_of(v) for k, v in pairs))
                for rule, kinds in self._recorded.items()
                for row in tables[f"match_{rule}"].rows
                for pairs in [list(zip(kinds, row.inputs, strict=True))]
            ),
            facts={
                name: frozenset(class_of(row.inputs[0]) for row in tables[name].rows)
                for name in FACTS
                if self._recorded
            },
            num_classes=len(ids),
        )
