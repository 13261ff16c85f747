"""Views, copies, slices and joins as terms: what moves values and computes none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.expression import swap_last
from eqsat.meta import Symbolic
from eqsat.term import Call, Term, table, val

MAX = 2**62  # the end of a slice that has none


def reshape(x: Any, shape: Sequence[Any]) -> Any:
    """`x` reshaped; itself where nothing changes (sizes are compared as they print: no guards)."""
    if list(map(str, val(x).shape)) == list(map(str, shape)):
        return x
    return Term("reshape", (x,), (tuple(shape),))


def permute(x: Any, dims: Sequence[int]) -> Any:
    """`x` with its dims in this order; itself where it is the order they have."""
    n = val(x).ndim
    dims = tuple(d % n for d in dims) if n else ()
    return x if dims == tuple(range(n)) else Term("permute", (x,), (dims,))


def swap(weight: Any) -> Any:
    """A matrix transposed."""
    return permute(weight, (1, 0))


def _transpose(c: Call) -> Any:
    n = val(c.x).ndim
    if n == 0:
        return c.x
    dims = list(range(n))
    a, b = (d % n for d in list(c.arguments.values())[1:])
    dims[a], dims[b] = dims[b], dims[a]
    return permute(c.x, dims)


def _expand(c: Call) -> Any:
    shape = tuple(c.out.shape)
    if list(map(str, val(c.x).shape)) == list(map(str, shape)):
        return c.x
    return Term("expand", (c.x,), (shape,))


def cut(x: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    """A slice of `x` along `dim` (counted from the front); `x` where it is all of it."""
    value = val(x)
    size = value.shape[dim]
    if str(size) == str(end) and start == 0 and step == 1:
        return x
    return Term("slice", (x,), (dim - value.ndim, start, end, step))


def _slice(c: Call) -> Any:
    value = val(c.x)
    dim = c["dim"] % value.ndim
    size, start, end, step = value.shape[dim], val(c["start"]), val(c["end"]), c["step"]
    start = 0 if start is None else start
    end = MAX if end is None else end
    if any(isinstance(v, Symbolic) for v in (size, start, end)):
        if isinstance(start, int) and start >= 0 and step == 1:
            return cut(c.x, dim, start, start + c.out.shape[dim], 1)
        return None
    start, end = (min(max(v + size if v < 0 else v, 0), size) for v in (start, end))
    return cut(c.x, dim, start, max(start, end), step)


def select(x: Any, dim: int, index: Any, shape: Sequence[Any]) -> Any:
    """The `index`-th part of `x` along `dim`, in `shape`; None where the index is symbolic."""
    size = val(x).shape[dim]
    if not isinstance(index, int) or (index < 0 and not isinstance(size, int)):
        return None
    index = index + size if index < 0 else index
    part = cut(x, dim, index, index + 1, 1)
    return Term("reshape", (part,), (tuple(shape),))


def _select(c: Call) -> Any:
    return select(c.x, c["dim"] % val(c.x).ndim, val(c["index"]), c.out.shape)


def _narrow(c: Call) -> Any:
    start, length = val(c["start"]), val(c["length"])
    if not isinstance(start, int) or start < 0:
        return None
    return cut(c.x, c["dim"] % val(c.x).ndim, start, start + length, 1)


def _cat(c: Call) -> Any:
    tensors = c["tensors"]
    ndims = {val(t).ndim for t in tensors}
    if len(ndims) != 1 or 0 in ndims or len({val(t).dtype for t in tensors}) != 1:
        return None
    n = ndims.pop()
    return tensors[0] if len(tensors) == 1 else Term("cat", tuple(tensors), (c["dim"] % n - n,))


def _stack(c: Call) -> Any:
    out = c.out
    dim = c["dim"] % out.ndim
    shape = list(out.shape)
    shape[dim] = 1
    if len({val(t).dtype for t in c["tensors"]}) != 1:
        return None
    parts = tuple(Term("reshape", (t,), (tuple(shape),)) for t in c["tensors"])
    return parts[0] if len(parts) == 1 else Term("cat", parts, (dim - out.ndim,))


def _identity(c: Call) -> Any:
    return c.x


def _dropout(c: Call) -> Any:
    return c.x if not c["train"] or c["p"] == 0.0 else None


def _same_shape(c: Call) -> Any:
    return reshape(c.x, c.out.shape)


VIEWS = table(
    (_same_shape, "view.default", "_unsafe_view.default", "reshape.default", "flatten.using_ints"),
    (_same_shape, "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default"),
    (_same_shape, "unflatten.int", "view_as.default", "reshape_as.default"),
    (lambda c: swap(c.x) if val(c.x).ndim == 2 else c.x, "t.default"),
    (_transpose, "transpose.int", "swapaxes.default", "swapdims.default"),
    (lambda c: permute(c.x, swap_last(val(c.x))), "mT.default"),
    (lambda c: permute(c.x, c["dims"]), "permute.default"),
    (lambda c: permute(c.x, range(val(c.x).ndim)[::-1]), "numpy_T.default"),
    (_expand, "expand.default", "expand_as.default", "broadcast_to.default"),
    (_slice, "slice.Tensor"),
    (_narrow, "narrow.default"),
    (_select, "select.int"),
    (_identity, "clone.default", "contiguous.default", "alias.default", "lift_fresh_copy.default"),
    (_dropout, "dropout.default"),
    (_cat, "cat.default", "concat.default"),
    (_stack, "stack.default"),
)
