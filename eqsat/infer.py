"""The meta of an operator's result, asked of torch on the meta device."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from eqsat.features import no_new_guards
from eqsat.functions import Function
from eqsat.kind import Kind
from eqsat.meta import EFFECT, INVALID, AnyMeta, Meta, Scalar, Texts, meta_of, shape_env
from eqsat.operators import OPERATORS, Operator
from eqsat.snapshot import NUMBER, Symbol

NORMS = ("softmax", "log_softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm")
PRODUCTS = ("matmul", "affine", "scaled_affine", "einsum", "convolution")
# The meta device takes integers that no kernel takes.
FLOATING = frozenset({*NORMS, "avg_pool2d", "adaptive_avg_pool2d", "upsample_bilinear2d"})


class Oracle:
    """Answers the shape, dtype and device of operators, and "invalid" where they cannot be applied.

    A symbolic dimension stays symbolic: what could only be decided by specialising one is invalid.
    """

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self._tensors: dict[str, torch.Tensor] = {}
        self._modes: dict[int, FakeTensorMode] = {}

    def __call__(self, symbol: Symbol, metas: Sequence[str], attributes: Sequence[str]) -> str:
        """The text of the result's meta, from those of the operands' metas and attributes."""
        if INVALID in metas or INVALID in attributes or EFFECT in metas:
            return INVALID
        values = [self.texts.value(a) for a in attributes]
        if symbol == NUMBER:
            return self.texts.text(Scalar(values[0]))
        meta = self.infer(symbol.operator, [self.texts.value(m) for m in metas], values)
        return INVALID if meta is None else self.texts.text(meta)

    def infer(
        self, name: str, metas: Sequence[AnyMeta], attributes: Sequence[Any]
    ) -> AnyMeta | None:
        """The meta of operator `name` on operands of these metas; None where it is invalid."""
        if name == "getitem":
            parts = metas[0]
            return parts[attributes[0]] if isinstance(parts, tuple) else None
        single = [m for m in metas if not isinstance(m, tuple)]
        if len(single) < len(metas) or not _canonical(name, metas, attributes):
            return None
        devices = {m.device: None for m in single if isinstance(m, Meta) and m.ndim > 0}
        devices = devices or {m.device: None for m in single if isinstance(m, Meta)}
        if len(devices) > 1:
            return None
        if OPERATORS[name].kind is Kind.CREATION:
            devices = {str(attributes[-1]): None}
        with self.decided([*metas, *attributes]):
            try:
                result = self._result(OPERATORS[name], single, attributes)
            except Exception:  # noqa: BLE001 - what torch refuses, however, is an "invalid" e-class
                return None
        if not isinstance(result, Meta) or OPERATORS[name].infer is not None:
            return result
        return Meta(result.shape, result.dtype, next(iter(devices), result.device))

    def _result(
        self, operator: Operator, metas: Sequence[Meta | Scalar], attributes: Sequence[Any]
    ) -> AnyMeta | None:
        """The meta of an operator's value on the meta device; raises what torch raises."""
        if operator.infer is not None:
            return operator.infer(*metas, *attributes)
        fake = shape_env([*metas, *attributes]) is not None
        operands = [m.value if isinstance(m, Scalar) else self._tensor(m, fake) for m in metas]
        if operator.kind is Kind.CREATION:
            attributes = [*attributes[:-1], torch.device("meta")]
        return meta_of(operator.evaluate(*operands, *attributes))

    @staticmethod
    def number(value: Any) -> Scalar:
        """The meta of a Python number."""
        return Scalar(value)

    @contextlib.contextmanager
    def decided(self, values: Sequence[Any], mode: FakeTensorMode | None = None) -> Generator[None]:
        """A context in which an undecided question about a symbolic dimension is an error.

        Runs in `mode`, or where a value is symbolic in a fake mode of its own.
        """
        env = shape_env(values)
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if env is not None:
                stack.enter_context(quiet("torch.fx.experimental.symbolic_shapes"))
                stack.enter_context(no_new_guards(env))
                fresh = FakeTensorMode(shape_env=env, static_shapes=False)
                mode = mode or self._modes.setdefault(id(env), fresh)
            if mode is not None:
                stack.enter_context(mode)
            yield

    def _tensor(self, meta: Meta, fake: bool) -> torch.Tensor:
        """A tensor of this meta on the meta device; in a fake mode, none may be used again."""
        if fake:
            return torch.empty(meta.shape, dtype=meta.dtype, device="meta")
        text = self.texts.text(meta)
        if text not in self._tensors:
            self._tensors[text] = torch.empty(meta.shape, dtype=meta.dtype, device="meta")
        return self._tensors[text]


@contextlib.contextmanager
def quiet(module: str) -> Generator[None]:
    """While it lasts, a module of torch does not log what it refuses: here that is an answer."""
    logger = logging.getLogger(module)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _canonical(name: str, metas: Sequence[Any], attributes: Sequence[Any]) -> bool:
    """Whether the attributes are in the one form the language allows (see `Operator`)."""
    if name == "slice":
        dim, start, end, step = attributes
        if not (-metas[0].ndim <= dim < 0):
            return False
        size = metas[0].shape[dim]
        if all(isinstance(v, int) for v in (start, end, size)):
            return 0 <= start <= end <= size and step > 0
        return True
    if name in FLOATING and not metas[0].dtype.is_floating_point:
        return False
    if name in ("cat", "softmax", "log_softmax"):
        if len({m.dtype for m in metas}) > 1:
            return False
        return isinstance(attributes[-1], int) and -metas[0].ndim <= attributes[-1] < 0
    if name == "binary" and attributes[0].name == "sub":
        return all(m.dtype not in (torch.bool, bool) for m in metas)
    if name == "reduction":
        dims = attributes[1]
        return (
            isinstance(attributes[0], Function)
            and all(-metas[0].ndim <= d < 0 for d in dims)
            and list(dims) == sorted(set(dims))
        )
    if name in PRODUCTS:  # the meta device multiplies what no other does
        return len({m.dtype for m in metas}) == 1
    if name == "attention":
        return {m.dtype for m in metas[3:]} <= {metas[0].dtype, torch.bool} and (
            len({m.dtype for m in metas[:3]}) == 1
        )
    if name == "permute":
        return sorted(attributes[0]) == list(range(metas[0].ndim))
    return True
