"""The result file: JSON lines, one row each, which a stopped run leaves whole and continues."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from eqsat.compare.program import Source
from eqsat.compare.task import Key, Options, Task, header, key_of
from eqsat.replacing import replacing

Row = dict[str, Any]


def read(path: Path) -> dict[Key, Row]:
    """The rows of a result file by their key, the last of each; none where there is no file.

    What follows the last whole line is what a stopped run left: it is no row. Raises ValueError
    with the number of any other line that is no row.
    """
    if not path.exists():
        return {}
    found: dict[Key, Row] = {}
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            row = json.loads(line)
            found[key_of(row)] = row
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines) - 1:  # a line that lost its middle in a crash
                break
            raise ValueError(
                f"{path}, line {number}: no row of results: {error!r}; --fresh starts anew"
            ) from error
    return found


def headers(tasks: Sequence[Task], options: Options) -> dict[Source, Row]:
    """What the rows of each program say of how they are made."""
    first = {task.source: task for task in reversed(tasks)}
    return {s: json.loads(json.dumps(header(task, options))) for s, task in first.items()}


def require_same(
    rows: Mapping[Key, Row], tasks: Sequence[Task], made: Mapping[Source, Row], path: Path
) -> None:
    """Refuses a file whose rows were made otherwise than those of the tasks would be (`headers`).

    Raises ValueError that says in what they differ.
    """
    wanted = {task.key: task.source for task in tasks}
    for key, row in rows.items():
        expected = dict(made[wanted.get(key, tasks[0].source)])
        if key not in wanted:
            del expected["code"]  # of a program that this run does not ask for
        if (found := difference(row, expected)) is not None:
            raise ValueError(
                f"{path}: its rows were made with {found}: --fresh starts anew, another --output "
                "keeps them"
            )


def difference(row: Row, expected: Row) -> str | None:
    """In what a row was made otherwise, in words; None where it was not."""
    for name, new in expected.items():
        old = row.get(name)
        if json.loads(json.dumps(old)) == new:
            continue
        if name == "code":
            return "other code (of eqsat, or of the program)"
        if isinstance(old, dict) and isinstance(new, dict):
            changed = next(k for k in {**old, **new} if old.get(k) != new.get(k))
            return f"{changed} {old.get(changed)!r}, not {new.get(changed)!r}"
        return f"{name} {old!r}, not {new!r}"
    return None


@contextmanager
def appending(path: Path) -> Generator[TextIO]:
    """The file, open to write rows after those it has; what follows its last whole line goes.

    Raises ValueError where another process has it open so.
    """
    with path.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"{path}: another run writes to it") from error
        file.truncate(_whole(path.read_bytes()))
        yield file


def _whole(data: bytes) -> int:
    """The length of the whole rows at the start of a file."""
    end = data.rfind(b"\n") + 1
    last = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    try:
        json.loads(data[last:end] or b"{}")
    except ValueError:
        return last
    return end


def append(file: TextIO, row: Row) -> None:
    """Writes a row so that a crash after it does not lose it."""
    file.write(json.dumps(row, allow_nan=False) + "\n")
    file.flush()


def write(path: Path, rows: Iterable[Row]) -> None:
    """Writes the file anew with these rows, whole or not at all."""
    with replacing(path) as part:
        part.write_text("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows), "utf-8")
