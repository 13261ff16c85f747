"""How two runs differ: first in everything but tensor contents, then in those, up to rounding."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from eqsat.observe import Run, same_bits
from eqsat.storage import PLAIN, storage_of

_TOLERANCE = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 1e-5,
    torch.complex64: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
_NOISE = 16.0  # how many times the program's own sensitivity to one rounding is still rounding


def structure(given: Run, result: Run) -> str:
    """Returns the first difference that is not one of tensor contents, or nothing."""
    if given.spec != result.spec:
        return f"output structure {given.spec} became {result.spec}"
    for i, (a, b) in enumerate(zip(given.outputs, result.outputs, strict=True)):
        if difference := _kind(a, b, bool(given.owners[i])):
            return f"output {i}: {difference}"
        if given.identity[i] != result.identity[i]:
            return f"output {i}: was the object {given.identity[i]}, is {result.identity[i]}"
        if difference := _alias(given, result, i):
            return f"output {i}: {difference}"
    for i, (a, b) in enumerate(zip(given.inputs, result.inputs, strict=True)):
        if difference := _kind(a, b, True) if isinstance(a, Tensor) else "":
            return f"input {i} after the call: {difference}"
    for name in result.written:
        if name not in given.written:
            return f"state {name!r} is written by the result only"
    for name, a in given.written.items():
        if name not in result.written:
            return f"state {name!r} is written by the given program only"
        if difference := _kind(a, result.written[name], False):
            return f"state {name!r} after the call: {difference}"
    if not all(torch.equal(a, b) for a, b in zip(given.generators, result.generators, strict=True)):
        return "the random generator is left in another state"
    return ""


def _kind(a: object, b: object, place: bool) -> str:
    """Returns how two leaves differ apart from tensor contents; `place` compares offsets too."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        same = type(a) is type(b) and (a == b or (a != a and b != b))
        return "" if same else f"{a!r} became {b!r}"
    kinds = [Tensor if type(t) in PLAIN else type(t) for t in (a, b)]
    if kinds[0] is not kinds[1]:
        return f"type {kinds[0].__name__} became {kinds[1].__name__}"
    for what in ("dtype", "shape", "device", "layout"):
        if getattr(a, what) != getattr(b, what):
            return f"{what} {getattr(a, what)} became {getattr(b, what)}"
    if a.is_conj() != b.is_conj() or a.is_neg() != b.is_neg():
        return "the conj or neg bit changed"
    if storage_of(a) is None:
        return ""
    if any(s > 1 and m != n for s, m, n in zip(a.shape, a.stride(), b.stride(), strict=True)):
        return f"strides {a.stride()} became {b.stride()}"
    if place and a.storage_offset() != b.storage_offset():
        return f"storage offset {a.storage_offset()} became {b.storage_offset()}"
    return ""


def _alias(given: Run, result: Run, i: int) -> str:
    """Returns how the sharing of memory by output i changed; weights may have been replaced."""
    before, after = given.owners[i], result.owners[i]
    replaced = given.state ^ result.state
    shared = before - replaced
    if shared == after - replaced and bool(shared) == bool(before) == bool(after):
        return ""

    def said(names: frozenset[str]) -> str:
        return " and ".join(sorted(names)) or "nothing"

    return f"shared memory with {said(before)}, shares with {said(after)}"


def contents(given: Run, result: Run) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yields names and pairs of all tensors, made dense, whose contents must agree."""
    todo = [
        (f"{kind} {i}", a, b)
        for kind, before, now in (
            ("output", given.values, result.values),
            ("after the call, input", given.inputs, result.inputs),
        )
        for i, (a, b) in enumerate(zip(before, now, strict=True))
    ]
    todo += [
        (f"after the call, state {name!r}", a, result.written[name])
        for name, a in given.written.items()
    ]
    while todo:
        name, a, b = todo.pop(0)
        if not isinstance(a, Tensor) or a is b:
            continue
        if is_traceable_wrapper_subclass(a):
            inner: Sequence[str] = a.__tensor_flatten__()[0]
            todo[:0] = [(f"{name}.{key}", getattr(a, key), getattr(b, key)) for key in inner]
            continue
        yield name, _dense(a), _dense(b)


def _dense(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return tensor.resolve_conj().resolve_neg()


def exact_difference(a: Tensor, b: Tensor) -> str:
    """Returns where two tensors of one shape and dtype do not have the same bits, or nothing."""
    if same_bits(a, b):
        return ""
    a, b = a.flatten(), b.flatten()
    wrong = (a != b) & ~((a != a) & (b != b))
    if not bool(wrong.any()):
        return "the sign of a zero changed"
    i = int(wrong.nonzero()[0])
    first = f"first {a[i].item()} became {b[i].item()}"
    return f"{int(wrong.sum())} of {a.numel()} elements differ, {first}"


def rounding_difference(
    a: Tensor, b: Tensor, *, finite_only: bool, noise: Callable[[], float]
) -> tuple[float, str]:
    """Returns the largest error of two float tensors, and where it is more than rounding, if it is.

    The error is relative where the largest |a| is above one. `noise` is asked only where the
    tolerance of the dtype does not do: how much `a` moves when the inputs move by one rounding.
    """
    if torch.equal(a, b):
        return 0.0, ""
    x, y = _real(a), _real(b)
    finite = (x.isfinite() & y.isfinite()).all(dim=1)
    if not finite_only:
        agree = ((x.isnan() & y.isnan()) | (x == y)).all(dim=1)
        if a.is_complex():  # kernels disagree on the other part of a number that has a NaN or Inf
            agree = ~x.isfinite().all(dim=1) & ~y.isfinite().all(dim=1)
        wrong = ~finite & ~agree
        if bool(wrong.any()):
            i = int(wrong.nonzero()[0])
            parts = f"{a.flatten()[i].item()} became {b.flatten()[i].item()}"
            return 0.0, f"{int(wrong.sum())} NaN or Inf differ, first {parts}"
    x, y = x[finite].flatten(), y[finite].flatten()
    if not x.numel():
        return 0.0, ""
    tolerance = _TOLERANCE.get(a.dtype, 0.125)  # 8-bit floats: one step of three mantissa bits
    scale = max(1.0, float(x.abs().max()))
    error = (x - y).abs()
    excess = error - tolerance * (x.abs() + scale)
    i = int(excess.argmax())
    largest = float(error.max()) / scale
    if float(excess[i]) <= 0 or float(excess[i]) <= _NOISE * noise():
        return largest, ""
    off = f"off by {error[i].item():.3g} at {x[i].item():.6g} (tolerance {tolerance:g})"
    return largest, off


def mean_movement(a: Tensor, b: Tensor) -> float:
    """Returns the mean |a - b| over the places where both are finite."""
    x, y = _real(a), _real(b)
    moves = (x - y).abs()[x.isfinite() & y.isfinite()]
    return float(moves.mean()) if moves.numel() else 0.0


def _real(tensor: Tensor) -> Tensor:
    """Returns the elements as rows of their real and imaginary part, in double precision."""
    if tensor.is_complex():
        return torch.view_as_real(tensor).reshape(-1, 2).double()
    return tensor.reshape(-1, 1).double()
