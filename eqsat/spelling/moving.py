"""Picks, pads, shifts, repeats and running sums as terms."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from eqsat.spelling.view import MAX, reshape
from eqsat.term import Call, Term, listed, table, val

COPIES = 4  # up to so many, the copies of a tensor behind one another are a cat of it


def _index(c: Call) -> Any:
    """Integers in one dim, or in two that follow each other; a mask's result depends on data."""
    picks = list(c["indices"])
    first = next((i for i, pick in enumerate(picks) if pick is not None), len(picks))
    while picks and picks[-1] is None:
        picks.pop()
    picks = picks[first:]
    if not 1 <= len(picks) <= 2 or not all(isinstance(pick, Node) for pick in picks):
        return None
    if any(val(pick).dtype not in (torch.int64, torch.int32) for pick in picks):
        return None
    return Term("index", (c.x, *picks), (first - val(c.x).ndim,))


def _index_select(c: Call) -> Any:
    n = val(c.x).ndim
    if val(c["index"]).ndim != 1 or n == 0:
        return None
    return Term("index", (c.x, c["index"]), (c["dim"] % n - n,))


def _scatter(c: Call) -> Any:
    n = val(c.x).ndim
    if n == 0 or isinstance(c["value"], Node):
        return None
    return Term("scatter", (c.x, c["index"]), (c["dim"] % n - n, c["value"]))


def _pad(c: Call) -> Any:
    padding = tuple(c["pad"])
    if c.arguments.get("mode", "constant") != "constant":
        return None
    if not all(isinstance(n, int) and n >= 0 for n in padding) or val(c.x).is_complex():
        return None
    while padding and padding[-2:] == (0, 0):
        padding = padding[:-2]
    if not padding:
        return c.x
    value, dtype = 0 if c["value"] is None else c["value"], val(c.x).dtype
    if isinstance(value, Node):
        return None
    kind = bool if dtype == torch.bool else float if dtype.is_floating_point else int
    return Term("pad", (c.x,), (padding, kind(value)))


def _roll(c: Call) -> Any:
    shape, n = val(c.x).shape, val(c.x).ndim
    shifts, dims = tuple(c["shifts"]), tuple(d % n - n for d in c["dims"])
    if len(set(dims)) < len(shifts) or not all(isinstance(v, int) for v in (*shifts, *shape)):
        return None
    moved = sorted((d, s % shape[d]) for d, s in zip(dims, shifts, strict=True) if shape[d])
    moved = [(d, s) for d, s in moved if s]
    if not moved:
        return c.x
    return Term("roll", (c.x,), (tuple(s for _, s in moved), tuple(d for d, _ in moved)))


def _repeat(c: Call) -> Any:
    counts = list(c.arguments.values())[1]
    return repeated(c.x, tuple(counts), c.out.shape)


def repeated(x: Any, counts: tuple[Any, ...], out: Any) -> Any:
    """`x` repeated `counts` times along its last dims and new ones before them, in shape `out`."""
    shape = tuple(val(x).shape)
    counts = (1,) * (len(out) - len(counts)) + counts
    shape = (1,) * (len(out) - len(shape)) + shape
    if not all(isinstance(n, int) and n > 0 for n in counts):
        return None
    if all(n == 1 for n in counts):
        return reshape(x, out)
    if counts[0] <= COPIES and all(n == 1 for n in counts[1:]) and len(out) == val(x).ndim:
        return Term("cat", (x,) * counts[0], (-len(out),))
    split = tuple(v for size in shape for v in (1, size))
    grown = tuple(v for pair in zip(counts, shape, strict=True) for v in pair)
    return Term("reshape", (Term("expand", (reshape(x, split),), (grown,)),), (tuple(out),))


def _repeat_each(c: Call) -> Any:
    if c["dim"] is None or not isinstance(c["repeats"], int) or c["repeats"] < 1:
        return None
    shape = tuple(val(c.x).shape)
    at = c["dim"] % len(shape) + 1
    split, grown = ((*shape[:at], n, *shape[at:]) for n in (1, c["repeats"]))
    wide = Term("expand", (reshape(c.x, split),), (grown,))
    return c.x if c["repeats"] == 1 else Term("reshape", (wide,), (tuple(c.out.shape),))


def _cumsum(c: Call) -> Any:
    n = val(c.x).ndim
    if n == 0 or c["dtype"] is not None or val(c.x).is_complex():
        return None
    return Term("cumsum", (c.x,), (c["dim"] % n - n,))


def _slice_scatter(c: Call) -> Any:
    """The source where it takes the place of the whole."""
    whole, source = val(c.x), val(c["src"])
    start, end, size = val(c["start"]), val(c["end"]), whole.shape[c["dim"]]
    covers = start in (None, 0) and (end is None or (isinstance(end, int) and end >= MAX))
    covers |= start in (None, 0) and isinstance(size, int) and isinstance(end, int) and end >= size
    if not covers or c["step"] != 1 or whole.dtype != source.dtype:
        return None
    return c["src"]


def _max_pool(c: Call) -> Any:
    attributes = (
        listed(c["kernel_size"], 2),
        listed(c["stride"], 2) or listed(c["kernel_size"], 2),
        listed(c["padding"], 2),
        listed(c["dilation"], 2),
        c["ceil_mode"],
    )
    return Term("max_pool2d", (c.x,), attributes)


def _pool1d(c: Call) -> Any:
    """A pool of one dim as ATen computes it: of an image that is one place high."""
    x = reshape(c.x, (*val(c.x).shape[:-1], 1, val(c.x).shape[-1]))
    kernel = listed(c["kernel_size"], 1)
    stride = listed(c["stride"], 1) or kernel
    padding = listed(c["padding"], 1)
    rest = (c["ceil_mode"], c["count_include_pad"], None)
    pool = Term("avg_pool2d", (x,), ((1, *kernel), (1, *stride), (0, *padding), *rest))
    return Term("reshape", (pool,), (tuple(c.out.shape),))


def _adaptive_pool1d(c: Call) -> Any:
    x = reshape(c.x, (*val(c.x).shape[:-1], 1, val(c.x).shape[-1]))
    pool = Term("adaptive_avg_pool2d", (x,), ((1, *listed(c["output_size"], 1)),))
    return Term("reshape", (pool,), (tuple(c.out.shape),))


def _bits(c: Call) -> Any:
    """The operand where its bits are read as what they are."""
    return c.x if c["dtype"] == val(c.x).dtype else None


MOVES = table(
    (_index, "index.Tensor"),
    (_index_select, "index_select.default"),
    (_scatter, "scatter.value"),
    (_pad, "pad.default", "constant_pad_nd.default"),
    (_roll, "roll.default"),
    (_repeat, "repeat.default", "tile.default"),
    (_repeat_each, "repeat_interleave.self_int"),
    (_cumsum, "cumsum.default"),
    (_bits, "view.dtype"),
    (_slice_scatter, "slice_scatter.default"),
    (_max_pool, "max_pool2d.default"),
    (_pool1d, "avg_pool1d.default"),
    (_adaptive_pool1d, "adaptive_avg_pool1d.default"),
)
