"""From ATen to the language: one entry an ATen operator that has a term; see `eqsat/emit.py` for the way back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.fx import Node

from eqsat.expression import swap_last
from eqsat.functions import POINTWISE, Function, Hole
from eqsat.meta import Symbolic

aten = torch.ops.aten
MAX = 2**62


@dataclass(frozen=True)
class Term:
    """An operator applied to terms, FX nodes and Python numbers, with its attributes."""

    operator: str
    children: tuple[Any, ...] = ()
    attributes: tuple[Any, ...] = ()
    layout: str = ""


@dataclass(frozen=True)
class Call:
    """An FX call with its arguments bound to the schema; `c["dim"]` is an argument, defaults filled in."""

    node: Node

    @cached_property
    def _bound(self) -> dict[str, Any]:
        bound: dict[str, Any] = {}
        for index, argument in enumerate(self.node.target._schema.arguments):  # type: ignore[union-attr]
            if index < len(self.node.args):
                bound[argument.name] = self.node.args[index]
            elif argument.name in self.node.kwargs:
                bound[argument.name] = self.node.kwargs[argument.name]
            else:
                bound[argument.name] = argument.default_value
        return bound

    def __getitem__(self, name: str) -> Any:
        return self._bound[name]

    @property
    def arguments(self) -> dict[str, Any]:
        """Every argument by name, in schema order."""
        return self._bound

    @property
    def x(self) -> Any:
        """The first argument."""
        return next(iter(self._bound.values()))

    @property
    def out(self) -> Any:
        """The (fake) value of the result."""
        return self.node.meta["val"]


def val(argument: Any) -> Any:
    """The (fake) value of an argument: that of its node, or itself."""
    return argument.meta["val"] if isinstance(argument, Node) else argument


def spell(node: Node) -> Any:
    """The term of an ATen call, an FX node where the call returns its operand, or None if it has no term."""
    entry = SPELLINGS.get(str(node.target))
    if entry is None and torch.Tag.pointwise in node.target.tags:  # type: ignore[union-attr]
        entry = _pointwise
    return entry(Call(node)) if entry is not None else None


def spell_item(node: Node) -> Any:
    """The term of `getitem(parent, index)` where the parent is a split or a norm; None for others."""
    parent, index = node.args
    if not isinstance(parent, Node) or not isinstance(index, int):
        return None
    name = str(parent.target)
    if name in _SPLITS:
        call = Call(parent)
        parts = parent.meta["val"]
        dim = call["dim"] % val(call.x).ndim
        if name == "aten.unbind.int":
            return _select(call.x, dim, index, parts[index].shape)
        sizes = [part.shape[dim] for part in parts]
        start = sum(sizes[:index])
        return _slice(call.x, dim, start, start + sizes[index], 1)
    users_take_first = index == 0 and all(u.args[1] == 0 for u in parent.users if len(u.args) > 1)
    if name == "aten.native_layer_norm.default" and users_take_first:
        c = Call(parent)
        return _layer_norm_term(c.x, c["normalized_shape"], c["weight"], c["bias"], c["eps"])
    if name == "aten._native_batch_norm_legit_no_training.default" and users_take_first:
        return _batch_norm_term(Call(parent))
    return None


_SPLITS = frozenset(
    f"aten.{name}"
    for name in (
        "split.Tensor",
        "split.sizes",
        "split_with_sizes.default",
        "chunk.default",
        "unbind.int",
        "tensor_split.sections",
        "tensor_split.indices",
    )
)


def _reshape(x: Any, shape: Sequence[Any]) -> Any:
    """`x` reshaped; itself where nothing changes (sizes are compared as they print: no guards)."""
    if list(map(str, val(x).shape)) == list(map(str, shape)):
        return x
    return Term("reshape", (x,), (tuple(shape),))


def _permute(x: Any, dims: Sequence[int]) -> Any:
    n = val(x).ndim
    dims = tuple(d % n for d in dims) if n else ()
    return x if dims == tuple(range(n)) else Term("permute", (x,), (dims,))


def _transpose(c: Call) -> Any:
    n = val(c.x).ndim
    if n == 0:
        return c.x
    dims = list(range(n))
    a, b = (d % n for d in list(c.arguments.values())[1:])
    dims[a], dims[b] = dims[b], dims[a]
    return _permute(c.x, dims)


def _expand(x: Any, shape: Sequence[Any]) -> Any:
    if list(map(str, val(x).shape)) == list(map(str, shape)):
        return x
    return Term("expand", (x,), (tuple(shape),))


def _slice(x: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    value = val(x)
    size = value.shape[dim]
    if str(size) == str(end) and start == 0 and step == 1:
        return x
    return Term("slice", (x,), (dim - value.ndim, start, end, step))


def _slice_call(c: Call) -> Any:
    value = val(c.x)
    dim = c["dim"] % value.ndim
    size, start, end, step = value.shape[dim], val(c["start"]), val(c["end"]), c["step"]
    start = 0 if start is None else start
    end = MAX if end is None else end
    if any(isinstance(v, Symbolic) for v in (size, start, end)):
        if isinstance(start, int) and start >= 0 and step == 1:
            return _slice(c.x, dim, start, start + c.out.shape[dim], 1)
        return None
    start, end = (min(max(v + size if v < 0 else v, 0), size) for v in (start, end))
    return _slice(c.x, dim, start, max(start, end), step)


def _select(x: Any, dim: int, index: Any, shape: Sequence[Any]) -> Any:
    size = val(x).shape[dim]
    if not isinstance(index, int) or (index < 0 and not isinstance(size, int)):
        return None
    index = index + size if index < 0 else index
    part = _slice(x, dim, index, index + 1, 1)
    return Term("reshape", (part,), (tuple(shape),))


def _narrow(c: Call) -> Any:
    start, length = val(c["start"]), val(c["length"])
    if not isinstance(start, int) or start < 0:
        return None
    return _slice(c.x, c["dim"] % val(c.x).ndim, start, start + length, 1)


def _cast(c: Call) -> Any:
    before, after = val(c.x), c.out
    if before.device != after.device or before.layout != after.layout:
        return None
    if before.dtype == after.dtype:
        return c.x
    if before.is_complex() or after.is_complex() or before.is_quantized:
        return None
    return Term("unary", (c.x,), (Function("to", (after.dtype,)),))


def _full(c: Call, value: Any) -> Any:
    out = c.out
    value = val(value)
    if out.layout != torch.strided or out.is_complex() or isinstance(value, Node):
        return None
    if not isinstance(value, Symbolic):
        kind = bool if out.dtype == torch.bool else float if out.is_floating_point() else int
        value = kind(value)
    return Term("full", (), (tuple(out.shape), value, out.dtype, out.device))


def _arange(c: Call) -> Any:
    start = val(c.arguments.get("start", 0))
    step = val(c.arguments.get("step", 1))
    end = val(c["end"])
    if any(isinstance(v, Node) for v in (start, step, end)):
        return None
    return Term("arange", (), (start, end, step, c.out.dtype, c.out.device))


def _numeric(c: Call) -> bool:
    """Whether the tensors of a pointwise call are of the kind the language computes with."""
    return all(
        not (isinstance(v, torch.Tensor) and (v.is_quantized or v.layout != torch.strided))
        for v in (val(a) for a in c.arguments.values())
    )


def _named(name: str) -> Callable[[Call], Any]:
    """A function whose operands are its leading tensor arguments, the rest parameters."""

    def entry(c: Call) -> Any:
        if not _numeric(c):
            return None
        arguments = list(c.arguments.items())
        schema = c.node.target._schema.arguments  # type: ignore[union-attr]
        operands = [v for (_, v), a in zip(arguments, schema, strict=True) if _is_tensor(a)]
        rest = [
            (v, a.default_value)
            for (_, v), a in zip(arguments, schema, strict=True)
            if not _is_tensor(a)
        ]
        if any(o is None for o in operands) or any(isinstance(v, Node) for v, _ in rest):
            return None
        while rest and rest[-1][0] == rest[-1][1]:
            rest.pop()
        function = Function(name, tuple(v for v, _ in rest))
        return Term(_FAMILY[len(operands)], tuple(operands), (function,))

    return entry


_FAMILY = {1: "unary", 2: "binary", 3: "ternary"}


def _is_tensor(argument: Any) -> bool:
    return "Tensor" in str(argument.type)


def _binary(name: str) -> Callable[[Call], Any]:
    """A binary function of tensors or numbers, without other parameters than alpha = 1."""

    def entry(c: Call) -> Any:
        a, b = list(c.arguments.values())[:2]
        if not _numeric(c) or c.arguments.get("alpha", 1) != 1:
            return None
        return Term("binary", (a, b), (Function(name),))

    return entry


def _rsub(c: Call) -> Any:
    if c["alpha"] != 1:
        return None
    return Term("binary", (c["other"], c.x), (Function("sub"),))


def _divide(c: Call) -> Any:
    mode = c.arguments.get("rounding_mode")
    name = "div" if mode is None else f"div_{mode}"
    return Term("binary", (c.x, c["other"]), (Function(name),))


def _pow(c: Call) -> Any:
    return Term("binary", (c.x, c["exponent"]), (Function("pow"),))


def _where(c: Call) -> Any:
    if "self" not in c.arguments:
        return None
    return Term("ternary", (c["condition"], c["self"], c["other"]), (Function("where"),))


def _masked_fill(c: Call) -> Any:
    if isinstance(c["value"], Node) or val(c["mask"]).dtype != torch.bool:
        return None
    return Term("ternary", (c["mask"], c["value"], c.x), (Function("where"),))


def _pointwise(c: Call) -> Any:
    """Any functional overload that torch tags pointwise: its tensors are the operands, in order."""
    target = c.node.target
    if target._schema.is_mutable or not isinstance(c.out, torch.Tensor) or not _numeric(c):  # type: ignore[union-attr]
        return None
    operands: list[Any] = []
    template: list[Any] = []
    for value, argument in zip(c.arguments.values(), target._schema.arguments, strict=True):  # type: ignore[union-attr]
        if argument.kwarg_only:
            if value != argument.default_value:
                return None
        elif isinstance(value, Node):
            template.append(Hole(len(operands)))
            operands.append(value)
        elif isinstance(value, (list, tuple)):
            return None
        else:
            template.append(value)
    if len(operands) not in _FAMILY or c.out.is_complex():
        return None
    return Term(_FAMILY[len(operands)], tuple(operands), (Function(str(target), tuple(template)),))


def _matmul(c: Call) -> Any:
    a, b = list(c.arguments.values())[:2]
    return Term("matmul", (a, b))


def _swap(weight: Any) -> Any:
    return _permute(weight, (1, 0))


def _linear(c: Call) -> Any:
    if val(c["weight"]).ndim != 2:
        return None
    if c["bias"] is None:
        return Term("matmul", (c.x, _swap(c["weight"])))
    return Term("affine", (c.x, _swap(c["weight"]), c["bias"]))


def _addmm(c: Call) -> Any:
    bias, a, b = list(c.arguments.values())[:3]
    if c["beta"] != 1 or c["alpha"] != 1:
        return None
    return Term("affine", (a, b, bias))


def _listed(value: Any, n: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return values * n if len(values) == 1 else values


def _conv(c: Call) -> Any:
    n = val(c["weight"]).ndim - 2
    stride, padding, dilation = (_listed(c[k], n) for k in ("stride", "padding", "dilation"))
    transposed = c.arguments.get("transposed", False)
    output_padding = _listed(c.arguments.get("output_padding", 0), n)
    children = (c.x, c["weight"]) if c["bias"] is None else (c.x, c["weight"], c["bias"])
    if val(c.x).ndim != n + 2:
        return None
    geometry = (stride, padding, dilation, transposed, output_padding, c["groups"])
    return Term("convolution", children, geometry)


def _attention(c: Call) -> Any:
    if c["dropout_p"] != 0.0:
        return None
    size = val(c["query"]).shape[-1]
    scale = c["scale"]
    if scale is None and isinstance(size, int):
        scale = 1.0 / math.sqrt(size)
    children = tuple(a for a in (c["query"], c["key"], c["value"], c["attn_mask"]) if a is not None)
    return Term("attention", children, (c["is_causal"], scale, c["enable_gqa"]))


def _softmax(name: str) -> Callable[[Call], Any]:
    def entry(c: Call) -> Any:
        x, value = c.x, val(c.x)
        if value.ndim == 0 or c.arguments.get("half_to_float", False):
            return None
        if c.out.dtype != value.dtype:
            x = Term("unary", (x,), (Function("to", (c.out.dtype,)),))
        return Term(name, (x,), (c["dim"] % value.ndim - value.ndim,))

    return entry


def _reduction(name: str) -> Callable[[Call], Any]:
    def entry(c: Call) -> Any:
        value = val(c.x)
        dims = c.arguments.get("dim")
        dims = [dims] if isinstance(dims, int) else dims
        dims = range(value.ndim) if not dims else dims
        dims = tuple(sorted(d % value.ndim - value.ndim for d in dims)) if value.ndim else ()
        if not dims or value.is_complex():
            return None
        dtype = c.arguments.get("dtype")
        function = Function(name, () if dtype is None else (dtype,))
        return Term("reduction", (c.x,), (function, dims, c.arguments.get("keepdim", False)))

    return entry


def _layer_norm_term(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    if weight is None and bias is not None:
        return None
    parameters = tuple(p for p in (weight, bias) if p is not None)
    return Term("layer_norm", (x, *parameters), (tuple(shape), eps))


def _rms_norm(c: Call) -> Any:
    parameters = () if c["weight"] is None else (c["weight"],)
    return Term("rms_norm", (c.x, *parameters), (tuple(c["normalized_shape"]), c["eps"]))


def _group_norm(c: Call) -> Any:
    if c["weight"] is None and c["bias"] is not None:
        return None
    parameters = tuple(p for p in (c["weight"], c["bias"]) if p is not None)
    return Term("group_norm", (c.x, *parameters), (c["num_groups"], c["eps"]))


def _batch_norm_term(c: Call) -> Any:
    training = c.arguments.get("training", False)
    parameters = tuple(c[k] for k in ("weight", "bias", "running_mean", "running_var"))
    if training or any(p is None for p in parameters):
        return None
    return Term("batch_norm", (c.x, *parameters), (c["eps"],))


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


def _pool(c: Call) -> Any:
    attributes = (
        _listed(c["kernel_size"], 2),
        _listed(c["stride"], 2) or _listed(c["kernel_size"], 2),
        _listed(c["padding"], 2),
        c["ceil_mode"],
        c["count_include_pad"],
        c["divisor_override"],
    )
    return Term("avg_pool2d", (c.x,), attributes)


def _resample(name: str, *keys: str) -> Callable[[Call], Any]:
    def entry(c: Call) -> Any:
        attributes = [tuple(v) if isinstance(v, list) else v for v in (c[k] for k in keys)]
        if any(isinstance(v, Node) for a in attributes if isinstance(a, tuple) for v in a):
            return None
        return Term(name, (c.x,), tuple(attributes))

    return entry


def _identity(c: Call) -> Any:
    return c.x


def _dropout(c: Call) -> Any:
    return c.x if not c["train"] or c["p"] == 0.0 else None


def _same_shape(c: Call) -> Any:
    return _reshape(c.x, c.out.shape)


def _table() -> dict[str, Callable[[Call], Any]]:
    table: dict[str, Callable[[Call], Any]] = {}

    def put(entry: Callable[[Call], Any], *names: str) -> None:
        table.update((f"aten.{name}", entry) for name in names)

    put(
        _same_shape, "view.default", "_unsafe_view.default", "reshape.default", "flatten.using_ints"
    )
    put(_same_shape, "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default")
    put(_same_shape, "unflatten.int", "view_as.default", "reshape_as.default")
    put(lambda c: _swap(c.x) if val(c.x).ndim == 2 else c.x, "t.default")
    put(_transpose, "transpose.int", "swapaxes.default", "swapdims.default")
    put(lambda c: _permute(c.x, swap_last(val(c.x))), "mT.default")
    put(lambda c: _permute(c.x, c["dims"]), "permute.default")
    put(lambda c: _permute(c.x, range(val(c.x).ndim)[::-1]), "numpy_T.default")
    put(lambda c: _expand(c.x, c.out.shape), "expand.default", "expand_as.default")
    put(lambda c: _expand(c.x, c.out.shape), "broadcast_to.default")
    put(_slice_call, "slice.Tensor")
    put(_narrow, "narrow.default")
    put(
        lambda c: _select(c.x, c["dim"] % val(c.x).ndim, val(c["index"]), c.out.shape),
        "select.int",
    )
    put(
        _identity, "clone.default", "contiguous.default", "alias.default", "lift_fresh_copy.default"
    )
    put(_dropout, "dropout.default")
    put(_cast, "to.dtype", "to.device", "to.dtype_layout", "to.other", "_to_copy.default")
    put(_cast, "type_as.default")
    put(
        lambda c: _full(c, c["fill_value"]), "full.default", "full_like.default", "new_full.default"
    )
    put(lambda c: _full(c, 0), "zeros.default", "zeros_like.default", "new_zeros.default")
    put(lambda c: _full(c, 1), "ones.default", "ones_like.default", "new_ones.default")
    put(lambda c: _full(c, c["s"]), "scalar_tensor.default")
    put(_arange, "arange.default", "arange.start", "arange.start_step")
    for name in ("add", "sub", "mul"):
        put(_binary(name), f"{name}.Tensor", f"{name}.Scalar")
    put(_rsub, "rsub.Tensor", "rsub.Scalar")
    put(_divide, "div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode")
    put(_pow, "pow.Tensor_Tensor", "pow.Tensor_Scalar")
    put(_masked_fill, "masked_fill.Scalar")
    put(_where, "where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod"):
        put(_binary(name), f"{name}.Tensor", f"{name}.Scalar")
    for name in ("and", "or", "xor"):
        spelled = (f"bitwise_{name}.Tensor", f"bitwise_{name}.Scalar")
        put(_binary(f"bitwise_{name}"), *spelled, f"__{name}__.Tensor", f"__{name}__.Scalar")
    put(_binary("logical_and"), "logical_and.default")
    put(_binary("logical_or"), "logical_or.default")
    put(_binary("maximum"), "maximum.default")
    put(_binary("minimum"), "minimum.default")
    taken = set(["add", "sub", "mul", "div", "pow", "where", "to", "maximum", "minimum", "round", "remainder", "fmod"])
    taken |= {"eq", "ne", "lt", "le", "gt", "ge"}
    for name in POINTWISE:
        if name not in taken and not name.startswith(
            ("div", "bitwise_a", "bitwise_o", "bitwise_x")
        ):
            table.setdefault(f"aten.{name}.default", _named(name))
    put(_matmul, "mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default")
    put(_linear, "linear.default")
    put(_addmm, "addmm.default", "baddbmm.default")
    put(_conv, "conv1d.default", "conv2d.default", "conv3d.default", "convolution.default")
    put(_attention, "scaled_dot_product_attention.default")
    put(_softmax("softmax"), "softmax.int", "_softmax.default")
    put(_softmax("log_softmax"), "log_softmax.int", "_log_softmax.default")
    put(_reduction("sum"), "sum.default", "sum.dim_IntList")
    put(_reduction("mean"), "mean.default", "mean.dim")
    put(_reduction("amax"), "amax.default")
    put(_reduction("amin"), "amin.default")
    put(
        lambda c: _layer_norm_term(c.x, c["normalized_shape"], c["weight"], c["bias"], c["eps"]),
        "layer_norm.default",
    )
    put(_rms_norm, "rms_norm.default")
    put(_group_norm, "group_norm.default")
    put(_batch_norm_term, "batch_norm.default")
    put(lambda c: Term("embedding", (c["weight"], c["indices"])), "embedding.default")
    put(_cat, "cat.default", "concat.default")
    put(_stack, "stack.default")
    put(_pool, "avg_pool2d.default")
    put(
        lambda c: Term("adaptive_avg_pool2d", (c.x,), (_listed(c["output_size"], 2),)),
        "adaptive_avg_pool2d.default",
    )
    put(_resample("upsample_nearest2d", "output_size", "scale_factors"), "upsample_nearest2d.vec")
    put(
        _resample("upsample_bilinear2d", "output_size", "align_corners", "scale_factors"),
        "upsample_bilinear2d.vec",
    )
    return table


SPELLINGS = _table()
