"""What a caller can see of one call, and how two calls differ: the judge of whole-program tests.

It shares no code with `eqsat.check`, so that neither can hide the other's mistakes.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

TOLERANCE: Mapping[torch.dtype, float] = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 1e-5,
    torch.complex64: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}

Function = Callable[..., object]


@dataclass(frozen=True)
class Snapshot:
    """A tensor as its owner sees it; strides only of dimensions longer than one."""

    kind: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conjugated: bool
    negated: bool
    requires_grad: bool
    value: Tensor


@dataclass(frozen=True)
class Observation:
    """Everything a caller can see of one call; `error` is the exception's class, if it raised."""

    error: str | None = None
    tree: str = ""
    outputs: tuple[object, ...] = ()
    identity: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    inputs: tuple[Snapshot, ...] = ()
    state: Mapping[str, Snapshot] = field(default_factory=dict[str, Snapshot])
    gradients: Mapping[str, Tensor | None] = field(default_factory=dict[str, Tensor | None])
    generator: Tensor | None = None
    effects: tuple[object, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """How far two calls may differ: what may round, by how much, and whether weights may freeze."""

    rounded: frozenset[int] = frozenset()
    state_rounded: bool = False
    tolerance: float | None = None
    frozen: bool = False


@dataclass(frozen=True)
class Difference:
    """One thing that a caller would see change: its kind, where, and what."""

    kind: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.where}: {self.what}"


def observe(
    function: Function,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    module: nn.Module,
    log: list[object] | None = None,
    seed: int = 0,
    gradients: bool = False,
) -> Observation:
    """What one call shows of itself and of `module`, whose state `function` may hold or not."""
    given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    entries = [] if log is None else log
    entries.clear()
    mode: AbstractContextManager[object] = torch.enable_grad() if gradients else torch.no_grad()
    with torch.random.fork_rng(devices=[]), mode:
        torch.manual_seed(seed)
        try:
            result = function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  (whatever it raises is what the caller sees)
            return Observation(error=type(error).__name__)
        generator = torch.random.get_rng_state()
    leaves, tree = pytree.tree_flatten(result)
    state = _state(module, function)
    held = state_of(function) if isinstance(function, nn.Module) else {}
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    return Observation(
        tree=str(tree),
        outputs=tuple(snapshot(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves),
        identity=_identity(given, tensors),
        aliases=_aliases(given, {**state, **held}, tensors),
        inputs=tuple(snapshot(tensor) for tensor in given),
        state={name: snapshot(tensor) for name, tensor in state.items()},
        gradients=_gradients(given, state, tensors) if gradients else {},
        generator=generator,
        effects=tuple(entries),
    )


def snapshot(tensor: Tensor) -> Snapshot:
    """The facts and a copy of the values of a plain tensor."""
    plain = type(tensor) in (Tensor, nn.Parameter, nn.Buffer)
    strides = zip(tensor.stride(), tensor.shape, strict=True)
    return Snapshot(
        kind="Tensor" if plain else type(tensor).__name__,
        dtype=tensor.dtype,
        shape=tuple(tensor.shape),
        stride=tuple(stride for stride, size in strides if size > 1),
        offset=int(tensor.storage_offset()),
        conjugated=tensor.is_conj(),
        negated=tensor.is_neg(),
        requires_grad=tensor.requires_grad,
        value=tensor.detach().resolve_conj().resolve_neg().clone(),
    )


def differences(
    expected: Observation, got: Observation, judgement: Judgement | None = None
) -> tuple[Difference, ...]:
    """Everything in which the second call differs from the first, in a fixed order."""
    judgement = judgement or Judgement()
    if expected.error or got.error:
        return _unequal("exception", "call", expected.error, got.error)
    shape = _unequal("tree", "outputs", expected.tree, got.tree)
    if shape or len(expected.outputs) != len(got.outputs):
        return shape or (Difference("tree", "outputs", "their number changed"),)
    return (
        *_outputs(expected, got, judgement),
        *_unequal("identity", "outputs", expected.identity, got.identity),
        *_unequal("alias", "outputs", expected.aliases, got.aliases),
        *_mutations(expected, got, judgement),
        *_gradient_differences(expected, got, judgement),
        *_generator(expected, got),
        *_unequal("effect", "log", expected.effects, got.effects),
    )


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one dtype and shape hold the same values, NaN and -0.0 told apart."""
    a, b = _real(a), _real(b)
    if not a.is_floating_point():
        return torch.equal(a, b)
    if not torch.equal(a.isnan(), b.isnan()):
        return False
    a, b = a[~a.isnan()], b[~b.isnan()]
    return torch.equal(a, b) and torch.equal(a.signbit(), b.signbit())


def close(a: Tensor, b: Tensor, tolerance: float | None = None) -> bool:
    """Whether two tensors agree within their dtype's tolerance; integers bit for bit."""
    bound = TOLERANCE.get(a.dtype) if tolerance is None else tolerance
    if bound is None or a.dtype not in TOLERANCE:
        return same_bits(a, b)
    x, y = _real(a).double(), _real(b).double()
    return torch.allclose(x, y, rtol=bound, atol=bound, equal_nan=True)


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, tied ones under each, wrappers as what they wrap."""
    flat: dict[str, Tensor] = {}
    parameters = module.named_parameters(remove_duplicate=False)
    for name, tensor in (*parameters, *module.named_buffers(remove_duplicate=False)):
        if is_traceable_wrapper_subclass(tensor):
            inner, _ = tensor.__tensor_flatten__()
            flat |= {f"{name}.{part}": getattr(tensor, part) for part in inner}
        else:
            flat[name] = tensor
    return flat


def _state(module: nn.Module, function: Function) -> dict[str, Tensor]:
    """The module's parameters and buffers, as `function` holds them where it does."""
    held = state_of(function) if isinstance(function, nn.Module) else {}
    return {name: held.get(name, tensor) for name, tensor in state_of(module).items()}


def _identity(given: list[Tensor], outputs: list[Tensor]) -> tuple[str, ...]:
    """For each output, the first input or output that is the very same object."""
    first: dict[int, str] = {}
    for position, tensor in enumerate(given):
        first.setdefault(id(tensor), f"input {position}")
    return tuple(first.setdefault(id(out), f"output {n}") for n, out in enumerate(outputs))


def _aliases(
    given: list[Tensor], state: Mapping[str, Tensor], outputs: list[Tensor]
) -> tuple[str, ...]:
    """For each output, the first input, state or output whose storage it shares."""
    first: dict[int, str] = {}
    named = [(f"input {position}", tensor) for position, tensor in enumerate(given)]
    for name, tensor in (*named, *state.items()):
        first.setdefault(_address(tensor), name)
    first.pop(0, None)
    labels: list[str] = []
    for position, tensor in enumerate(outputs):
        address = _address(tensor)
        labels.append(first.setdefault(address, f"output {position}") if address else "empty")
    return tuple(labels)


def _address(tensor: Tensor) -> int:
    """Where the tensor's storage starts; 0 for one without storage of its own."""
    if not tensor.numel() or is_traceable_wrapper_subclass(tensor):
        return 0
    return tensor.untyped_storage().data_ptr()


def _gradients(
    given: list[Tensor], state: Mapping[str, Tensor], outputs: list[Tensor]
) -> dict[str, Tensor | None]:
    """The gradients of the outputs' sum of squares, by input and by parameter."""
    terms = [out.abs().double().square().sum() for out in outputs if out.requires_grad]
    if terms:
        torch.stack(terms).sum().backward()
    named = [(f"input {position}", tensor) for position, tensor in enumerate(given)]
    leaves = [(name, tensor) for name, tensor in (*named, *state.items()) if tensor.is_leaf]
    return {name: None if leaf.grad is None else leaf.grad.clone() for name, leaf in leaves}


def _outputs(expected: Observation, got: Observation, judgement: Judgement) -> list[Difference]:
    found: list[Difference] = []
    for position, (a, b) in enumerate(zip(expected.outputs, got.outputs, strict=True)):
        where = f"output {position}"
        if isinstance(a, Snapshot) and isinstance(b, Snapshot):
            found += _snapshots(where, a, b, judgement, rounded=position in judgement.rounded)
        elif type(a) is not type(b) or a != b:
            found.append(Difference("value", where, f"{a!r} became {b!r}"))
    return found


def _mutations(expected: Observation, got: Observation, judgement: Judgement) -> list[Difference]:
    """Inputs and state as the call left them."""
    rounded = judgement.state_rounded
    found: list[Difference] = []
    for position, (a, b) in enumerate(zip(expected.inputs, got.inputs, strict=True)):
        found += _snapshots(f"input {position} after", a, b, judgement, rounded=rounded)
    for name, a in expected.state.items():
        b = got.state[name]
        b = replace(b, requires_grad=a.requires_grad) if judgement.frozen else b
        found += _snapshots(f"{name} after", a, b, judgement, rounded=rounded)
    return found


def _gradient_differences(
    expected: Observation, got: Observation, judgement: Judgement
) -> list[Difference]:
    found: list[Difference] = []
    for name, a in expected.gradients.items():
        b = got.gradients.get(name)
        if (a is None) != (b is None):
            what = "appeared" if a is None else "is gone"
            found.append(Difference("gradient", name, what))
        elif a is not None and b is not None and not close(a, b, judgement.tolerance):
            found.append(Difference("gradient", name, _distance(a, b)))
    return found


def _generator(expected: Observation, got: Observation) -> tuple[Difference, ...]:
    a, b = expected.generator, got.generator
    if a is None or b is None or torch.equal(a, b):
        return ()
    return (Difference("generator", "random numbers", "the stream stands elsewhere"),)


def _snapshots(
    where: str, a: Snapshot, b: Snapshot, judgement: Judgement, *, rounded: bool
) -> Iterable[Difference]:
    facts = ("kind", "dtype", "shape", "stride", "offset", "conjugated", "negated", "requires_grad")
    for fact in facts:
        yield from _unequal(fact, where, getattr(a, fact), getattr(b, fact))
    if (a.kind, a.dtype, a.shape) != (b.kind, b.dtype, b.shape):
        return
    same = close(a.value, b.value, judgement.tolerance) if rounded else same_bits(a.value, b.value)
    if not same:
        yield Difference("value", where, _distance(a.value, b.value))


def _unequal(kind: str, where: str, a: object, b: object) -> tuple[Difference, ...]:
    return () if a == b else (Difference(kind, where, f"{a} became {b}"),)


def _distance(a: Tensor, b: Tensor) -> str:
    gap = (_real(a).double() - _real(b).double()).abs()
    largest = max(gap[gap.isfinite()].tolist(), default=0.0)
    return f"differs by {largest:.3g}" if largest else "NaN, infinities or signs of zero differ"


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.contiguous()) if tensor.is_complex() else tensor
