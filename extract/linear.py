"""Linear and integer programs over 0 and 1, solved by HiGHS and not taken at its word."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import highspy
import numpy as np
from numpy.typing import NDArray

from extract.interrupts import on_interrupt

LISTEN = 0.2
"""Seconds between one look for Ctrl-C and the next."""

Row = tuple[float, float, list[int], list[float]]
"""Lower and upper limit, columns and their coefficients."""


@dataclass(frozen=True, eq=False)
class Program:
    """Minimise `cost @ values` where `lower <= values <= 1`, the first `integers` are whole, and
    `rows` hold.
    """

    cost: NDArray[np.float64]
    lower: NDArray[np.float64]
    integers: int
    rows: tuple[Row, ...]

    def with_rows(self, rows: Iterable[Row]) -> Program:
        """The program with more rows."""
        return replace(self, rows=(*self.rows, *rows))


@dataclass(frozen=True, eq=False)
class Solution:
    """The best values found, if any, a bound that no values go below, and whether they are proven
    to meet it.
    """

    values: NDArray[np.float64] | None
    bound: float
    optimal: bool


def solve(program: Program, start: NDArray[np.float64], seconds: float) -> Solution:
    """What HiGHS finds in `seconds`, beginning with the feasible values `start`.

    HiGHS 1.16 sometimes reports an optimum but returns the start in its place. Hence the cost of
    the values is computed again; where it is not the cost reported, the program is solved again
    without a start. Ctrl-C stops HiGHS, and is raised when it has stopped.
    """
    started = time.perf_counter()
    solution = _run(program, start, seconds)
    if solution is None:
        solution = _run(program, None, max(0.0, seconds - (time.perf_counter() - started)))
    return solution or Solution(None, 0.0, False)


class Relaxation:
    """The program without whole numbers, to which rows can be added between one solve and the
    next.
    """

    def __init__(self, program: Program) -> None:
        self._scale = _scale(program)
        self._highs = _quiet({"presolve": "off"})
        self._highs.passModel(_model(replace(program, integers=0), self._scale))

    def solve(self, seconds: float) -> tuple[NDArray[np.float64], float] | None:
        """The optimal values and their cost; None if `seconds` did not do."""
        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + seconds)
        _wait(self._highs)
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values = np.array(self._highs.getSolution().col_value)
        return values, self._highs.getInfo().objective_function_value / self._scale

    def slack(self) -> NDArray[np.float64]:
        """How far the value of every row is below its upper limit."""
        limits = np.array(self._highs.getLp().row_upper_)
        return limits - np.array(self._highs.getSolution().row_value)

    def add(self, rows: Sequence[Row]) -> None:
        """Adds rows at the end."""
        sizes = [len(row[2]) for row in rows]
        self._highs.addRows(
            len(rows),
            np.array([row[0] for row in rows]),
            np.array([row[1] for row in rows]),
            sum(sizes),
            np.cumsum([0, *sizes])[:-1].astype(np.int32),
            np.array([column for row in rows for column in row[2]], np.int32),
            np.array([value for row in rows for value in row[3]]),
        )

    def remove(self, rows: Sequence[int]) -> None:
        """Removes rows by number; those behind move up."""
        self._highs.deleteRows(len(rows), np.array(rows, np.int32))


class _Quiet(highspy.Highs):
    """HiGHS without its banner, which it prints as callbacks are enabled, before it can be told."""

    def enableCallbacks(self) -> None:  # noqa: N802 - HiGHS named it
        self.silent()
        super().enableCallbacks()


def _quiet(options: dict[str, str | float]) -> _Quiet:
    highs = _Quiet()
    for name, value in {"threads": 1, "parallel": "off", **options}.items():
        highs.setOptionValue(name, value)
    return highs


def _wait(highs: _Quiet) -> None:
    """Runs HiGHS in a thread, as it would not hear of Ctrl-C in this one.

    Its locks are those of all models, and Ctrl-C between two of its lines would leave one held.
    """
    heard: list[bool] = []
    with on_interrupt(lambda: heard.append(True)):
        thread = highs.startSolve()
        while not highs.wait(LISTEN)[0]:
            if heard:
                highs.cancelSolve()
        thread.join()
    if heard:
        raise KeyboardInterrupt


def _scale(program: Program) -> float:
    """What brings costs to the order of a thousand, unrounded: HiGHS's tolerances are absolute."""
    largest = float(program.cost.max(initial=0.0)) or 1.0
    return math.ldexp(1.0, min(1000, 10 - math.frexp(largest)[1]))


def _run(program: Program, start: NDArray[np.float64] | None, seconds: float) -> Solution | None:
    """The solution, or None if its values do not cost what HiGHS says."""
    scale = _scale(program)
    highs = _quiet({"mip_rel_gap": 1e-9, "mip_abs_gap": 1e-9, "time_limit": float(seconds)})
    highs.HandleUserInterrupt = True
    highs.passModel(_model(program, scale))
    if start is not None:
        given = highspy.HighsSolution()
        given.col_value = start.tolist()
        highs.setSolution(given)
    _wait(highs)
    info = highs.getInfo()
    bound = info.mip_dual_bound / scale if math.isfinite(info.mip_dual_bound) else 0.0
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Solution(None, bound, False)
    values = np.array(highs.getSolution().col_value)
    claimed, true = info.objective_function_value, float(program.cost @ values) * scale
    if abs(claimed - true) > 1e-6 * max(1.0, abs(true)):
        return None
    return Solution(values, bound, highs.getModelStatus() == highspy.HighsModelStatus.kOptimal)


def _model(program: Program, scale: float) -> highspy.HighsLp:
    model = highspy.HighsLp()
    columns = len(program.cost)
    model.num_col_, model.num_row_ = columns, len(program.rows)
    model.col_cost_ = program.cost * scale
    model.col_lower_, model.col_upper_ = program.lower, np.ones(columns)
    model.row_lower_ = np.array([row[0] for row in program.rows])
    model.row_upper_ = np.array([row[1] for row in program.rows])
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.cumsum([0] + [len(row[2]) for row in program.rows]).astype(np.int32)
    model.a_matrix_.index_ = np.array(
        [column for row in program.rows for column in row[2]], np.int32
    )
    model.a_matrix_.value_ = np.array(
        [value for row in program.rows for value in row[3]], np.float64
    )
    if program.integers:
        kinds = [highspy.HighsVarType.kInteger] * program.integers
        kinds += [highspy.HighsVarType.kContinuous] * (columns - program.integers)
        model.integrality_ = kinds
    return model
