"""Whether a result does what the given program does, found by running both on probing inputs."""

# pyright: reportPrivateUsage=false
# torch has schemas, module tables and storage identity only behind a leading underscore.

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any  # programs take and return arbitrary pytrees

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

PROBES = ("example", "random", "nan", "inf", "zero", "magnitude", "integer")
# What integers become, tried in this order until the given program accepts it.
_INTEGER = ("extreme", "extreme but zero", "resampled")

_TOLERANCE = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 1e-5,
    torch.complex64: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
_PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)
_NOISE = 16.0  # how many times the program's own sensitivity to one rounding is still rounding

Program = Callable[..., Any]


@dataclass(frozen=True)
class Probe:
    """What one set of inputs showed.

    `difference` is empty when nothing differs. `skipped` says why a probe compared nothing; it
    then counts as passed. `max_error` is the largest finite |result - given|, divided by the
    largest finite |given| of that output where this is above one.
    """

    name: str
    passed: bool
    difference: str = ""
    max_error: float = 0.0
    skipped: str = ""


@dataclass(frozen=True)
class Check:
    """The verdict over all probes."""

    passed: bool
    max_error: float
    probes: tuple[Probe, ...]

    def __str__(self) -> str:
        ran = [probe for probe in self.probes if not probe.skipped]
        if self.passed:
            skipped = ", ".join(probe.name for probe in self.probes if probe.skipped)
            tail = f", skipped: {skipped}" if skipped else ""
            return f"passed {len(ran)} probes, largest error {self.max_error:.1e}{tail}"
        return "; ".join(f"FAILED {p.name}: {p.difference}" for p in self.probes if not p.passed)


def check(
    given: Program,
    result: Program,
    args: Sequence[Any] | None,
    kwargs: dict[str, Any] | None = None,
    *,
    numerics: str = "default",
    seed: int = 0,
    probes: Sequence[str] = PROBES,
) -> Check:
    """Returns whether `result` behaves as `given` on every probe.

    Both run under `no_grad`, on copies of the inputs that keep strides, overlap and aliasing. A
    module's buffers and constants (and the parameters, where it may write them) are put back
    after every run, so that the two may share weights. Global random state is left as it was.

    Probes: the `example` inputs as they are; `random` values with the mean and deviation of the
    example (bools too; integers, drawn from those of the example, when there is no float input);
    a few `nan`; a few +/-`inf`; half of the elements `zero` or -0.0; every element times a random
    power of two (`magnitude`); `integer` extremes of the dtype, without zero if the given program
    raises on them, drawn from the example's values if it still does or if extremes could end the
    process. Shapes stay those of the example.
    When the given program raises, the result must raise the same class of exception.

    Compared: pytree, types, values, dtype, shape, strides of dims longer than one, offset where
    an output is a view of an input or of state, conj and neg bits, object identity, aliasing among
    inputs, state and outputs, what was written to inputs and state, random generator state.

    `numerics="strict"` asks for equal bits (NaN positions, sign of Inf and of zero included).
    `"default"` asks |given - result| <= tol * (|given| + max(1, largest finite |given|)) with tol
    1e-9 (f64), 1e-5 (f32), 2e-3 (f16), 1.6e-2 (bf16): the noise of a reassociated sum is
    proportional to the largest values in it. A larger difference is still rounding if it is within
    16 times what the given program's output moves, on average, when each float input moves by one
    rounding. NaN and Inf must stand in the same places, except on the `inf` and `magnitude`
    probes, where places that are not finite in both are not compared; a complex number with a NaN
    or Inf need only be one in both. `"relaxed"` skips `nan` and
    `inf` and compares finite places only, but for the example. Integers and bools are bit-equal
    always.

    Raises ValueError without example inputs or for an unknown `numerics` or probe.
    """
    if numerics not in ("strict", "default", "relaxed"):
        raise ValueError(f'numerics is "strict", "default" or "relaxed", not {numerics!r}')
    if unknown := [name for name in probes if name not in PROBES]:
        raise ValueError(f"unknown probes {unknown}; the probes are {', '.join(PROBES)}")
    if args is None:
        raise ValueError("a check runs the programs: pass example inputs as args")
    with untouched_generators():
        pair = _Pair(given, result, (tuple(args), dict(kwargs or {})), numerics, seed)
        seen = tuple(_probe(pair, name) for name in probes)
    return Check(all(p.passed for p in seen), max((p.max_error for p in seen), default=0.0), seen)


@dataclass(frozen=True)
class _Pair:
    given: Program
    result: Program
    inputs: tuple[tuple[Any, ...], dict[str, Any]]
    numerics: str
    seed: int


def _probe(pair: _Pair, name: str) -> Probe:
    """Returns what the probe of that name shows."""
    if reason := _not_applicable(pair, name):
        return Probe(name, True, skipped=reason)
    tries = (name,)
    if name == "integer":
        tries = _INTEGER[2:] if _unsafe_extremes(pair) else _INTEGER
    shown = Probe(name, True)
    for values in tries:
        shown = _compare(pair, name, values)
        if not shown.skipped:
            break
    return shown


def _compare(pair: _Pair, name: str, values: str) -> Probe:
    """Returns what one run of each program shows."""
    given = _run(pair.given, _inputs(pair, values), pair.seed)
    result = _run(pair.result, _inputs(pair, values), pair.seed)
    if given.error is not None:
        raised = type(given.error).__name__
        if type(given.error) is not type(result.error):
            got = "nothing" if result.error is None else type(result.error).__name__
            return Probe(name, False, f"the given program raises {raised}, the result {got}")
        reason = f"the given program raises {raised} ({_line(given.error)})"
        if name == "example":
            return Probe(name, False, reason + " on its example inputs: nothing can be compared")
        return Probe(name, True, skipped=reason + "; so does the result")
    if result.error is not None:
        raised = type(result.error).__name__
        return Probe(name, False, f"the result raises {raised}: {_line(result.error)}")
    if difference := _structure(given, result):
        return Probe(name, False, difference)
    return _contents_compared(pair, name, given, result)


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:160]


# ---------------------------------------------------------------------------- inputs


def fresh_copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns copies with the strides, offsets, overlaps and mutual aliasing of the originals.

    Storages are copied whole, once each. Tensor subclasses, fake tensors and tensors without
    strides (sparse, quantized) do not have one plain storage: the first two are returned as they
    are, the last are cloned.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    copies: list[Tensor] = []
    for tensor in tensors:
        if type(tensor) not in _PLAIN:
            copies.append(tensor)
            continue
        key = storage_of(tensor)
        if key is None:
            copies.append(tensor.detach().clone())
            continue
        if key not in storages:
            storages[key] = tensor.untyped_storage().clone()
        copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            storages[key], tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        copy = torch._neg_view(copy) if tensor.is_neg() else copy
        copies.append(copy.conj() if tensor.is_conj() else copy)
    return copies


def storage_of(leaf: object) -> int | None:
    """Returns the identity of the memory that a plain strided tensor lives in, else None."""
    if type(leaf) not in _PLAIN or not isinstance(leaf, Tensor):
        return None
    if leaf.layout is not torch.strided or leaf.is_quantized or leaf.is_mkldnn:
        return None
    return leaf.untyped_storage()._cdata


def _inputs(pair: _Pair, name: str) -> tuple[Any, Any]:
    """Returns fresh (args, kwargs), changed as the probe says."""
    leaves, spec = pytree.tree_flatten(pair.inputs)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    copies = fresh_copies([leaves[i] for i in places])
    generator = torch.Generator().manual_seed(pair.seed + (*PROBES, *_INTEGER).index(name))
    resample = not any(_is_float(copy) for copy in copies)
    filled: set[int | None] = {None}
    for copy in copies:
        if storage_of(copy) not in filled and copy.numel():
            filled.add(storage_of(copy))
            _fill(copy, name, generator, resample)
    for place, copy in zip(places, copies, strict=True):
        leaves[place] = copy
    return pytree.tree_unflatten(leaves, spec)


def _is_float(tensor: Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and storage_of(tensor) is not None


def _is_int(tensor: Tensor) -> bool:
    inexact = tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool
    return not inexact and storage_of(tensor) is not None


def _fill(tensor: Tensor, name: str, generator: torch.Generator, resample: bool) -> None:
    """Writes the probe's values into the tensor's whole storage, of one dtype."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
        tensor.untyped_storage(), 0, (size,), (1,)
    )
    if tensor.dtype is torch.bool:
        if name == "random":
            flat.copy_(torch.randint(0, 2, (size,), generator=generator))
        return
    if not _is_float(tensor):
        if name.startswith("extreme"):
            info = torch.iinfo(tensor.dtype)
            values = [info.min, info.max, 1, max(info.min, -1), 0]
            choice = torch.tensor(values, dtype=tensor.dtype)
            count = len(choice) - (name == "extreme but zero")
            flat.copy_(choice[torch.randint(0, count, (size,), generator=generator)])
        elif name == "resampled" or (name == "random" and resample):
            known = tensor.flatten()
            places = torch.randint(0, len(known), (size,), generator=generator)
            flat.copy_(known[places.to(known.device)])
        return
    real = torch.view_as_real(flat).view(-1) if flat.is_complex() else flat
    if name == "random":
        known = torch.nan_to_num(real.double(), 0.0, 0.0, 0.0).cpu()
        spread = float(known.std()) if size > 1 else 0.0
        draws = torch.randn(real.shape, generator=generator, dtype=torch.float64)
        real.copy_(draws * (spread or 1.0) + (float(known.mean()) if spread else 0.0))
    elif name == "zero":
        draws = torch.randint(0, 4, real.shape, generator=generator).to(real.device)
        zero = torch.where(draws == 0, 0.0, -0.0).to(real.dtype)
        real.copy_(torch.where(draws < 2, zero, real))
    elif name == "magnitude":
        quarter = int(torch.log2(torch.tensor(torch.finfo(real.dtype).max).double())) // 4
        powers = torch.rand(real.shape, generator=generator, dtype=torch.float64) * 2 - 1
        real.copy_((real.double().cpu() * torch.exp2((powers * quarter).round())).to(real.dtype))
    elif name in ("nan", "inf"):
        _sprinkle(tensor, name, generator)


def _sprinkle(tensor: Tensor, name: str, generator: torch.Generator) -> None:
    """Writes few special values: one lone NaN already fills a row that is summed."""
    many = 1 if name == "nan" else 2
    count = min(tensor.numel(), many + tensor.numel() // 4096, 16)
    for k, place in enumerate(torch.randperm(tensor.numel(), generator=generator)[:count].tolist()):
        value = float("nan") if name == "nan" else (-1) ** k * float("inf")
        index = torch.unravel_index(torch.tensor(place), tensor.shape)
        tensor[tuple(int(i) for i in index)].fill_(value)


def _not_applicable(pair: _Pair, name: str) -> str:
    """Returns why a probe would be vacuous or dangerous, or nothing."""
    if name == "example":
        return ""
    tensors = [x for x in pytree.tree_leaves(pair.inputs) if isinstance(x, Tensor) and x.numel()]
    ints = [x for x in tensors if _is_int(x)]
    if name in ("nan", "inf") and pair.numerics == "relaxed":
        return 'numerics="relaxed" promises nothing for NaN and Inf'
    if name == "random":
        varied = any(_is_float(x) or x.dtype is torch.bool for x in tensors)
        if varied or any(bool((x != x.flatten()[0]).any()) for x in ints):
            return ""
        return "no floating-point or bool input, and no integer input with two values"
    if name != "integer":
        return "" if any(_is_float(x) for x in tensors) else "no floating-point input"
    if not ints:
        return "no integer input"
    if not _unsafe_extremes(pair) or any(bool((x != x.flatten()[0]).any()) for x in ints):
        return ""
    return f"no integer input with two values, and {_unsafe_extremes(pair)}"


def _unsafe_extremes(pair: _Pair) -> str:
    """Returns why extreme integers could end the process, or nothing.

    The smallest integer divided by -1, truncating, is a hardware trap; a size may be any integer;
    devices abort on an index out of range; who wrote a custom operator may not have checked it.
    """
    if any(
        x.device.type != "cpu" for x in pytree.tree_leaves(pair.inputs) if isinstance(x, Tensor)
    ):
        return "an index out of range would abort the device"
    nodes = list(_nodes(pair.given))
    if not nodes:
        return "the operators of the given program cannot be seen"
    for node in nodes:
        target = node.target
        if isinstance(target, OpOverload) and target.namespace not in ("aten", "prims", "prim"):
            return f"{target} may not check its indices"
        if "trunc" in (node.kwargs.get("rounding_mode"), *node.args[2:]):
            return "truncating division may trap"
        value = node.meta.get("val")
        if value is not None and free_unbacked_symbols(value):
            return "sizes depend on integer values"
    return ""


def _nodes(program: Program) -> Iterator[torch.fx.Node]:
    modules = program.modules() if isinstance(program, torch.nn.Module) else ()
    for module in modules:
        if isinstance(module, torch.fx.GraphModule):
            yield from module.graph.nodes


# ---------------------------------------------------------------------------- running


@dataclass(frozen=True)
class _Run:
    """All that a caller can see of one call."""

    error: Exception | None
    spec: str = ""
    inputs: tuple[Any, ...] = ()  # the leaves handed in, as they are after the call
    outputs: tuple[
        Any, ...
    ] = ()  # the leaves handed back; `values` holds them before state is restored
    values: tuple[Any, ...] = ()
    identity: tuple[str, ...] = ()  # for each output, the first input or output that is this object
    owners: tuple[frozenset[str], ...] = ()  # for each output, who else lives in its storage
    state: tuple[str, ...] = ()
    written: tuple[tuple[str, Tensor], ...] = ()  # state that the call changed, and its new value
    generators: tuple[Tensor, ...] = ()


def _run(program: Program, inputs: tuple[Any, Any], seed: int) -> _Run:
    state = _state(program)
    saved = _saved(program, state)
    before = [tensor.clone() for _, tensor in saved]
    handed = tuple(pytree.tree_leaves(inputs))
    devices = [t.device for t in [*handed, *state.values()] if isinstance(t, Tensor) and t.is_cuda]
    torch.manual_seed(seed)
    try:
        with torch.no_grad():
            output = program(*inputs[0], **inputs[1])
    except Exception as error:  # noqa: BLE001 - whatever a program raises is part of what it does
        _restore(saved, before)
        return _Run(error)
    generators = [torch.get_rng_state()]
    generators += [torch.cuda.get_rng_state(d) for d in dict.fromkeys(devices)]
    outputs, spec = pytree.tree_flatten(output)
    homes = {storage_of(tensor) for _, tensor in saved}
    changed = [
        (name, tensor.clone())
        for (name, tensor), old in zip(saved, before, strict=True)
        if not _same_bits(tensor, old)
    ]
    run = _Run(
        None,
        str(spec),
        handed,
        tuple(outputs),
        tuple(_kept(leaf, homes) for leaf in outputs),
        _identity(handed, outputs),
        _owners(handed, state, outputs),
        tuple(state),
        tuple(changed),
        tuple(generators),
    )
    _restore(saved, before)
    return run


def _kept(leaf: object, homes: set[int | None]) -> object:
    """Returns the leaf, copied where restoring the state would overwrite it."""
    if isinstance(leaf, Tensor) and storage_of(leaf) in homes:
        return leaf.detach().clone()
    return leaf


def _state(program: Program) -> dict[str, Tensor]:
    """Returns every plain tensor that a module holds, by name."""
    if not isinstance(program, torch.nn.Module):
        return {}
    held: dict[str, Tensor] = {}
    for prefix, module in program.named_modules(remove_duplicate=False):
        for table in (module._parameters, module._buffers, vars(module)):
            for name, value in table.items():
                if isinstance(value, Tensor) and storage_of(value) is not None:
                    held[f"{prefix}.{name}" if prefix else name] = value
    return held


def _saved(program: Program, state: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Returns the state a call may write: weights only where a writing operator may reach them.

    Batch norm writes its buffers although its schema does not say so: buffers are always saved.
    """
    written = _written_attributes(program)
    return [
        (name, tensor.detach())
        for name, tensor in state.items()
        if written is None or name in written or not isinstance(tensor, torch.nn.Parameter)
    ]


def _written_attributes(program: Program) -> set[str] | None:
    """Returns the attributes that operators of a graph write, None if that cannot be seen."""
    if not isinstance(program, torch.fx.GraphModule):
        return None
    written: set[str] = set()
    for node in _nodes(program):
        if not isinstance(node.target, OpOverload) or not node.target._schema.is_mutable:
            continue
        first = node.args[0] if node.args else None
        known = node.target is torch.ops.aten.copy_.default and node.graph is program.graph
        if not known or not isinstance(first, torch.fx.Node):
            return None
        if first.op == "get_attr":
            written.add(str(first.target))
        elif first.op != "placeholder":
            return None
    return written


def _restore(saved: Sequence[tuple[str, Tensor]], before: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for (_, tensor), old in zip(saved, before, strict=True):
            if not _same_bits(tensor, old):
                tensor.copy_(old)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Returns whether values are equal, NaN in the same places, Inf and zero of the same sign."""
    if a.is_floating_point() and a.element_size() == 1:
        return _same_bits(a.float(), b.float())
    if a.is_complex():
        return _same_bits(
            torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
        )
    if torch.equal(a, b):
        return not a.is_floating_point() or torch.equal(torch.signbit(a), torch.signbit(b))
    if not a.is_floating_point() or a.shape != b.shape:
        return False
    nan = a.isnan()
    if not torch.equal(nan, b.isnan()):
        return False
    a, b = a[~nan], b[~nan]
    return torch.equal(a, b) and torch.equal(torch.signbit(a), torch.signbit(b))


def _identity(inputs: Sequence[object], outputs: Sequence[object]) -> tuple[str, ...]:
    first: dict[int, str] = {}
    for i, leaf in enumerate(inputs):
        if isinstance(leaf, Tensor):
            first.setdefault(id(leaf), f"input {i}")
    return tuple(
        first.setdefault(id(leaf), f"output {i}") if isinstance(leaf, Tensor) else ""
        for i, leaf in enumerate(outputs)
    )


def _owners(
    inputs: Sequence[object], state: dict[str, Tensor], outputs: Sequence[object]
) -> tuple[frozenset[str], ...]:
    named = [(f"input {i}", leaf) for i, leaf in enumerate(inputs)]
    named += list(state.items())
    named += [(f"output {i}", leaf) for i, leaf in enumerate(outputs)]
    living: dict[int | None, set[str]] = {}
    for name, leaf in named:
        if isinstance(leaf, Tensor) and leaf.numel():
            living.setdefault(storage_of(leaf), set()).add(name)
    living.pop(None, None)
    return tuple(
        frozenset(living.get(storage_of(leaf), set[str]()) - {f"output {i}"})
        for i, leaf in enumerate(outputs)
    )


@contextmanager
def untouched_generators() -> Generator[None]:
    """Puts the random state of torch and of Python back."""
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    python = random.getstate()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else ()):
        try:
            yield
        finally:
            random.setstate(python)


# ---------------------------------------------------------------------------- comparing


def _structure(given: _Run, result: _Run) -> str:
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
    for name, _ in result.written:
        if name not in dict(given.written):
            return f"state {name!r} is written by the result only"
    for name, a in given.written:
        b = dict(result.written).get(name)
        if b is None:
            return f"state {name!r} is written by the given program only"
        if difference := _kind(a, b, False):
            return f"state {name!r} after the call: {difference}"
    if not all(torch.equal(a, b) for a, b in zip(given.generators, result.generators, strict=True)):
        return "the random generator is left in another state"
    return ""


def _kind(a: object, b: object, place: bool) -> str:
    """Returns how two leaves differ apart from tensor contents; `place` compares offsets too."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        same = type(a) is type(b) and (a == b or (a != a and b != b))
        return "" if same else f"{a!r} became {b!r}"
    kinds = [Tensor if type(t) in _PLAIN else type(t) for t in (a, b)]
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


def _alias(given: _Run, result: _Run, i: int) -> str:
    """Returns how the sharing of memory by output i changed; weights may have been replaced."""
    before, after = given.owners[i], result.owners[i]
    replaced = set(given.state) ^ set(result.state)
    shared = before - replaced
    if shared == after - replaced and bool(shared) == bool(before) == bool(after):
        return ""

    def said(names: frozenset[str]) -> str:
        return " and ".join(sorted(names)) or "nothing"

    return f"shared memory with {said(before)}, shares with {said(after)}"


def _contents_compared(pair: _Pair, name: str, given: _Run, result: _Run) -> Probe:
    """Returns the comparison of tensor contents."""
    names, pairs = _contents(given, result)
    strict = pair.numerics == "strict"
    loose = name in ("inf", "magnitude") or (pair.numerics == "relaxed" and name != "example")
    worst, first = 0.0, ""
    noise: list[float] | None = None
    for k, (a, b) in enumerate(pairs):
        if strict or not (a.is_floating_point() or a.is_complex()):
            if not _same_bits(a, b):
                first = first or f"{names[k]}: {_where(a, b)}"
            continue
        error, difference = _close(a, b, loose, 0.0)
        if difference.startswith("off by"):
            noise = _noise(pair, name, given) if noise is None else noise
            _, difference = _close(a, b, loose, noise[k] if k < len(noise) else 0.0)
        worst = max(worst, error)
        first = first or (f"{names[k]}: {difference}" if difference else "")
    return Probe(name, not first, first, worst)


def _contents(given: _Run, result: _Run) -> tuple[list[str], list[tuple[Tensor, Tensor]]]:
    """Returns names and pairs of all dense tensors whose contents must agree."""
    after = dict(result.written)
    todo = [
        (f"{kind} {i}", a, b)
        for kind, before, now in (
            ("output", given.values, result.values),
            ("after the call, input", given.inputs, result.inputs),
        )
        for i, (a, b) in enumerate(zip(before, now, strict=True))
    ]
    todo += [(f"after the call, state {name!r}", a, after[name]) for name, a in given.written]
    names: list[str] = []
    pairs: list[tuple[Tensor, Tensor]] = []
    while todo:
        name, a, b = todo.pop(0)
        if not isinstance(a, Tensor) or a is b:
            continue
        if is_traceable_wrapper_subclass(a):
            inner: Sequence[str] = a.__tensor_flatten__()[0]
            todo[:0] = [(f"{name}.{key}", getattr(a, key), getattr(b, key)) for key in inner]
            continue
        names.append(name)
        pairs.append((_dense(a), _dense(b)))
    return names, pairs


def _dense(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return tensor.resolve_conj().resolve_neg()


def _where(a: Tensor, b: Tensor) -> str:
    a, b = a.flatten(), b.flatten()
    both_nan = (a != a) & (b != b)
    wrong = ((a != b) & ~both_nan) if a.numel() else torch.zeros(0, dtype=torch.bool)
    if not bool(wrong.any()):
        return "the sign of a zero changed"
    i = int(wrong.nonzero()[0])
    first = f"first {a[i].item()} became {b[i].item()}"
    return f"{int(wrong.sum())} of {a.numel()} elements differ, {first}"


def _close(a: Tensor, b: Tensor, loose: bool, noise: float) -> tuple[float, str]:
    """Returns the largest error and the first reason why two float tensors are not close."""
    if torch.equal(a, b):
        return 0.0, ""
    tolerance = _TOLERANCE.get(a.dtype, 0.125)  # 8-bit floats: one step of three mantissa bits
    x, y = (_real(t) for t in (a, b))
    finite = (x.isfinite() & y.isfinite()).all(dim=1)
    if not loose:
        agree = ((x.isnan() & y.isnan()) | (x == y)).all(dim=1)
        if a.is_complex():  # kernels disagree on the other part of a number that has a NaN or Inf
            agree = ~x.isfinite().all(dim=1) & ~y.isfinite().all(dim=1)
        wrong = ~finite & ~agree
        if bool(wrong.any()):
            i = int(wrong.nonzero()[0])
            parts = f"{a.flatten()[i].item()} became {b.flatten()[i].item()}"
            return 0.0, f"{int(wrong.sum())} NaN or Inf differ, first {parts}"
    x, y = x[finite], y[finite]
    if not x.numel():
        return 0.0, ""
    x, y = x.flatten(), y.flatten()
    scale = max(1.0, float(x.abs().max()))
    error = (x - y).abs()
    excess = error - (tolerance * (x.abs() + scale) + _NOISE * noise)
    i = int(excess.argmax())
    reason = f"off by {error[i].item():.3g} at {x[i].item():.6g} (tolerance {tolerance:g})"
    return float(error.max()) / scale, reason if float(excess[i]) > 0 else ""


def _real(tensor: Tensor) -> Tensor:
    """Returns the elements as rows of their real and imaginary part, in double precision."""
    if tensor.is_complex():
        return torch.view_as_real(tensor).reshape(-1, 2).double()
    return tensor.reshape(-1, 1).double()


def _noise(pair: _Pair, name: str, given: _Run) -> list[float]:
    """Returns how much each output moves, on average, when float inputs move by one rounding."""
    inputs = _inputs(pair, name)
    generator = torch.Generator().manual_seed(pair.seed)
    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, Tensor) and _is_float(leaf):
            real = torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf
            sign = torch.randint(0, 2, real.shape, generator=generator).to(real.device) * 2 - 1
            moved = real.double() * (1 + sign * torch.finfo(real.dtype).eps / 2)
            if torch._debug_has_internal_overlap(real) == 0:
                real.copy_(moved)
    moved_run = _run(pair.given, inputs, pair.seed)
    if moved_run.error is not None or _structure(given, moved_run):
        return []
    sizes: list[float] = []
    for a, b in _contents(given, moved_run)[1]:
        if not (a.is_floating_point() or a.is_complex()):
            sizes.append(0.0)
            continue
        x, y = _real(a), _real(b)
        moves = (x - y).abs()[x.isfinite() & y.isfinite()]
        sizes.append(float(moves.mean()) if moves.numel() else 0.0)
    return sizes
