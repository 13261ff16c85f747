"""How the result of an optimized program differs from what was given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from eqsat.check import check
from eqsat.layout import same_strides

from .selections import Way
from .source import Source

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
NUDGE = {
    torch.float64: 1e-12,
    torch.float32: 1e-7,
}  # of inputs: what a program makes of it is noise
CONTRACTIONS = ("@", "conv", "linear", "mm", "attention", "einsum", "mv(", "matmul", "batch_norm")


def verdict(source: Source, way: Way) -> str | None:
    """What is wrong with the program optimized this way: nothing is "", not captured is None."""
    captured = exported(source)
    if captured is None:
        return None
    program, args = captured
    try:
        given = call(program.module(), args)
    except Exception:  # noqa: BLE001 - what torch does not run is not our subject
        return None
    noise = given
    if way.numerics != "strict":
        noise = call(program.module(), [nudged(a) for a in args])
    strict = way.numerics == "strict" and not any(word in str(source) for word in CONTRACTIONS)
    try:
        for module in way.results(program):
            for difference in differences(given, call(module, args), strict, noise):
                return difference
            probed = check(program.module(), module, args, numerics=way.numerics)
            rounding = way.numerics == "strict" and not strict
            if not (probed.passed or rounding or "off by" in str(probed)):
                return str(probed)
    except Exception as error:  # noqa: BLE001 - whatever it raises is a finding
        return f"{type(error).__name__}: {error}"
    return ""


def exported(source: Source) -> tuple[torch.export.ExportedProgram, tuple[Tensor, ...]] | None:
    """The program as torch captures it; None where it does not."""
    module, args = source.build()
    shapes = None
    if source.dynamic:
        auto = torch.export.Dim.AUTO
        shapes = tuple({0: auto} if a.ndim and a.shape[0] > 1 else {} for a in args)
    try:
        return torch.export.export(module, args, dynamic_shapes=shapes, strict=False), args
    except Exception:  # noqa: BLE001 - what torch refuses is not our subject
        return None


@dataclass(frozen=True)
class Seen:
    """What one call returned, and what it left in its inputs and state."""

    outputs: tuple[Any, ...]
    after: dict[str, Tensor]
    shared: frozenset[tuple[str, ...]]


def call(module: torch.nn.Module, args: Sequence[Tensor]) -> Seen:
    """One call on copies of `args`, after which the state is as it was."""
    inputs = {f"input {i}": _copy(a) for i, a in enumerate(args)}
    state = {**dict(module.named_buffers()), **dict(module.named_parameters())}
    kept = {name: value.detach().clone() for name, value in state.items()}
    try:
        with torch.no_grad():
            outputs = tuple(tree_leaves(module(*inputs.values())))
        after = {name: value.detach().clone() for name, value in {**inputs, **state}.items()}
        copies = tuple(_copy(o) if isinstance(o, Tensor) else o for o in outputs)
        shared = _shared(outputs, inputs, state)
    finally:
        with torch.no_grad():
            for name, value in kept.items():
                if not torch.equal(state[name], value):  # some lie so that nothing can be written
                    state[name].copy_(value)
    return Seen(copies, after, shared)


def _shared(
    outputs: Sequence[Any], inputs: dict[str, Tensor], state: dict[str, Tensor]
) -> frozenset[tuple[str, ...]]:
    """Which outputs lie in the memory of others, of inputs, or of state (weights may be new)."""
    places = [(f"output {i}", o) for i, o in enumerate(outputs) if isinstance(o, Tensor)]
    lent = [*inputs.items(), *(("state", value) for value in state.values())]
    beside: dict[int, dict[str, None]] = {}
    for name, value in (*places, *lent):
        if value.numel():
            beside.setdefault(value.untyped_storage().data_ptr(), {})[name] = None
    groups = (tuple(names) for names in beside.values() if len(names) > 1)
    return frozenset(g for g in groups if any(name.startswith("output") for name in g))


def _copy(value: Tensor) -> Tensor:
    """The value in storage of its own, as it lies."""
    storage = value.untyped_storage().clone()
    empty = torch.empty(0, dtype=value.dtype)
    return empty.set_(storage, value.storage_offset(), value.shape, value.stride())


def differences(
    given: Seen, result: Seen, strict: bool, noise: Seen, told: Sequence[Any] = ()
) -> Iterator[str]:
    """How two calls differ; the strides of what is empty say nothing.

    Nor do strides of which the fake outputs that were `told` say otherwise: of a convolution of
    images one pixel wide, torch's are not always those that it then has.
    """
    if len(given.outputs) != len(result.outputs):
        yield f"{len(given.outputs)} outputs became {len(result.outputs)}"
        return
    for i, (a, b, c) in enumerate(zip(given.outputs, result.outputs, noise.outputs, strict=True)):
        if not isinstance(a, Tensor):
            if a != b:
                yield f"output {i}: {a!r} became {b!r}"
            continue
        yield from (f"output {i}: {difference}" for difference in _differ(a, b, c, strict))
        if told and not same_strides(told[i], a):
            continue
        if a.numel() and not same_strides(a, b):
            yield f"output {i}: strides {a.stride()} became {b.stride()}"
    if given.shared != result.shared:
        yield f"aliases {sorted(given.shared)} became {sorted(result.shared)}"
    for name, a in given.after.items():
        if name in result.after:
            found = _differ(a, result.after[name], a, strict)
            yield from (f"{name} after: {difference}" for difference in found)


def _differ(a: Tensor, b: Tensor, moved: Tensor, strict: bool) -> Iterator[str]:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        yield f"{a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}"
        return
    if not a.numel():
        return
    if strict or not a.is_floating_point():
        same = (a == b) | ((a != a) & (b != b))
        if not a.is_floating_point() and moved.shape == a.shape:
            same |= a != moved
        if a.is_floating_point():
            same &= (a == 0).logical_not() | (a.signbit() == b.signbit())
        if not bool(same.all()):
            at = int((~same).flatten().nonzero()[0])
            before, now = a.flatten()[at].item(), b.flatten()[at].item()
            yield f"{before!r} became {now!r} ({int((~same).sum())} elements)"
        return
    finite = a.isfinite() & b.isfinite()
    odd = ~finite & ~((a == b) | (a.isnan() & b.isnan()))
    if bool(odd.any()):
        at = int(odd.flatten().nonzero()[0])
        yield f"not finite: {a.flatten()[at].item()!r} became {b.flatten()[at].item()!r}"
    x, y, z = (t[finite].double() for t in (a, b, moved))
    if x.numel():
        scale = max(1.0, float(x.abs().max()))
        allowed = TOLERANCE[a.dtype] * scale + 1e3 * float((x - z).abs().nan_to_num(0).max())
        error = float((x - y).abs().max())
        if error > allowed:
            yield f"off by {error:.3g} (allowed {allowed:.3g})"


def nudged(value: Tensor) -> Tensor:
    """The value as it lies, a little larger."""
    return _copy(value).mul_(1 + NUDGE[value.dtype]) if value.is_floating_point() else value
