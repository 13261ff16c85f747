"""Each ATen operator survives the way into the e-graph and back, and each spelling gives a term."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import operator
import warnings
from dataclasses import dataclass
from typing import Any

import oracle
import pytest
import roundtrip
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from eqsat.functions import overload
from eqsat.meta import meta_of
from eqsat.operators import OPERATORS
from eqsat.snapshot import NUMBER
from eqsat.spelling import SPELLINGS, SPLITS

PARTS, STEP = 4, 7  # every seventh operator; benchmarks/aten_sweep.py runs them all
UNLIKE = {  # data-dependent values or views behind an effect: `optimize` keeps the given program
    "histogramdd",
    "istft",
    "tensor_split",
}
F32, F64, I64, BOOL = torch.float32, torch.float64, torch.int64, torch.bool


@dataclass(frozen=True)
class In:
    """An input of one call: its shape and dtype, and what fills it."""

    shape: tuple[int, ...] = (4, 6)
    dtype: torch.dtype = F32
    seed: int = 0

    def tensor(self) -> Tensor:
        """Positive and negative numbers, NaN and -0.0 among the floats; small integers."""
        generator = torch.Generator().manual_seed(self.seed)
        if not self.dtype.is_floating_point:
            drawn = torch.randint(0, 4, self.shape, generator=generator)
            return drawn.clamp(0, 1).bool() if self.dtype == BOOL else drawn.to(self.dtype)
        values = torch.randn(self.shape, generator=generator, dtype=self.dtype)
        flat = values.view(-1)
        flat[: min(3, len(flat))] = torch.tensor([-0.0, 0.0, 1.5], dtype=self.dtype)[: len(flat)]
        return values


X, Y, INTS, MORE = In(), In(seed=1), In(dtype=I64), In(dtype=I64, seed=1)
B, C = In(dtype=BOOL), In(dtype=BOOL, seed=1)
IMAGE, LINE, VOLUME = In((2, 4, 8, 8)), In((2, 4, 8)), In((1, 2, 4, 4, 4))
HEADS = In((2, 4, 5, 8))
COLUMN = In((4, 1))


def calls() -> dict[str, list[tuple[Any, ...]]]:
    """Arguments of every operator that has a spelling; a trailing dict is the keywords."""
    table: dict[str, list[tuple[Any, ...]]] = {
        "view.default": [(X, [3, 8]), (X, [-1])],
        "_unsafe_view.default": [(X, [24])],
        "reshape.default": [(X, [2, 2, 6]), (X, [4, 6])],
        "flatten.using_ints": [(IMAGE, 1, 2), (X,)],
        "squeeze.default": [(COLUMN,)],
        "squeeze.dim": [(COLUMN, -1), (X, 0)],
        "squeeze.dims": [(COLUMN, [0, 1])],
        "unsqueeze.default": [(X, -1), (X, 0)],
        "unflatten.int": [(X, 1, [2, 3])],
        "view_as.default": [(X, In((8, 3)))],
        "reshape_as.default": [(X, In((3, 8)))],
        "t.default": [(X,), (In((5,)),)],
        "transpose.int": [(IMAGE, 1, -1), (X, 0, 0)],
        "swapaxes.default": [(IMAGE, 0, 2)],
        "swapdims.default": [(IMAGE, 0, 3)],
        "mT.default": [(IMAGE,)],
        "permute.default": [(IMAGE, [0, 2, 3, 1]), (IMAGE, [-1, -2, 0, 1])],
        "numpy_T.default": [(LINE,)],
        "expand.default": [(COLUMN, [4, 6]), (COLUMN, [3, -1, 2])],
        "expand_as.default": [(COLUMN, X)],
        "broadcast_to.default": [(COLUMN, [2, 4, 3])],
        "slice.Tensor": [(X,), (X, 1, 1, 5, 2), (X, -1, -3), (X, 0, 3, 100), (X, 0, 3, 1)],
        "narrow.default": [(X, 1, 2, 3)],
        "select.int": [(X, 0, -1), (X, 1, 2)],
        "clone.default": [(X,)],
        "contiguous.default": [(X,)],
        "alias.default": [(X,)],
        "lift_fresh_copy.default": [(X,)],
        "dropout.default": [(X, 0.5, False), (X, 0.0, True)],
        "to.dtype": [(X, F64), (X, I64), (INTS, F32), (B, F32), (X, BOOL), (X, F32)],
        "to.device": [(X, torch.device("cpu"), F64)],
        "to.dtype_layout": [(X, {"dtype": F64})],
        "to.other": [(X, INTS)],
        "_to_copy.default": [(X, {"dtype": torch.bfloat16})],
        "type_as.default": [(INTS, X)],
        "full.default": [([2, 3], 1.5), ([2], 3), ([], True), ([2], 3.0, {"dtype": I64})],
        "full_like.default": [(X, 2), (INTS, 2)],
        "new_full.default": [(INTS, [3], 7)],
        "zeros.default": [([2],), ([2], {"dtype": I64})],
        "zeros_like.default": [(X,), (B,)],
        "new_zeros.default": [(X, [2, 2])],
        "ones.default": [([2], {"dtype": BOOL})],
        "ones_like.default": [(INTS,)],
        "new_ones.default": [(X, [3])],
        "scalar_tensor.default": [(2.5,), (2, {"dtype": I64})],
        "arange.default": [(5,), (2.5,)],
        "arange.start": [(1, 5)],
        "arange.start_step": [(0, 1, 0.25), (5, 0, -2)],
        "rsub.Tensor": [(X, Y)],
        "rsub.Scalar": [(X, 2), (INTS, 2.5)],
        "div.Tensor": [(X, Y), (INTS, MORE), (X, INTS)],
        "div.Scalar": [(X, 3), (INTS, 2)],
        "div.Tensor_mode": [(X, Y, {"rounding_mode": mode}) for mode in ("floor", "trunc", None)],
        "floor_divide.default": [(X, Y), (INTS, 3)],
        "floor_divide.Scalar": [(X, 0.3), (INTS, -2)],
        "div.Scalar_mode": [(X, 0.3, {"rounding_mode": mode}) for mode in ("floor", "trunc")],
        "pow.Tensor_Tensor": [(X, Y), (X, INTS)],
        "pow.Tensor_Scalar": [(X, 2), (X, 0.5), (INTS, 3)],
        "where.self": [(B, X, Y), (B, X, COLUMN), (B, INTS, X)],
        "where.ScalarOther": [(B, X, 0.0), (B, INTS, 1)],
        "masked_fill.Scalar": [(X, B, 0.5), (INTS, B, 1)],
        "where.ScalarSelf": [(B, 1, X)],
        "where.Scalar": [(B, 1.0, 0.0)],
        "logical_and.default": [(B, C), (X, INTS)],
        "logical_or.default": [(B, C)],
        "maximum.default": [(X, Y), (INTS, MORE)],
        "minimum.default": [(X, COLUMN)],
        "gelu.default": [(X,), (X, {"approximate": "tanh"})],
        "hardtanh.default": [(X,), (X, -0.5, 0.5)],
        "leaky_relu.default": [(X,), (X, 0.2)],
        "softplus.default": [(X,), (X, 2.0, 3.0)],
        "clamp.default": [(X, -0.5, 0.5), (X, None, 0.5), (X, 0.25), (INTS, 1, 2)],
        "bitwise_not.default": [(INTS,), (B,)],
        "logical_not.default": [(B,), (X,)],
        "mm.default": [(X, In((6, 3)))],
        "bmm.default": [(LINE, In((2, 8, 3)))],
        "matmul.default": [(IMAGE, In((8, 3))), (In((6,)), In((6, 2))), (X, In((6,)))],
        "mv.default": [(X, In((6,)))],
        "dot.default": [(In((6,)), In((6,), seed=1))],
        "linear.default": [(X, In((3, 6))), (LINE, In((3, 8)), In((3,)))],
        "addmm.default": [(In((3,)), X, In((6, 3))), (In((4, 1)), X, In((6, 3)))],
        "baddbmm.default": [(In((2, 4, 3)), LINE, In((2, 8, 3)))],
        "conv1d.default": [
            (LINE, In((6, 4, 3))),
            (LINE, In((4, 1, 3)), In((4,)), [2], [1], [1], 4),
        ],
        "conv2d.default": [
            (IMAGE, In((6, 4, 3, 3))),
            (IMAGE, In((6, 2, 3, 3)), In((6,)), [2, 1], [1, 0], [1, 2], 2),
        ],
        "conv3d.default": [(VOLUME, In((3, 2, 2, 2, 2)))],
        "convolution.default": [
            (IMAGE, In((4, 5, 3, 3)), In((5,)), [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
            (IMAGE, In((5, 4, 3, 3)), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        ],
        "scaled_dot_product_attention.default": [
            (HEADS, HEADS, In((2, 4, 5, 8), seed=1)),
            (HEADS, HEADS, HEADS, In((5, 5)), 0.0, False, {"scale": 0.5}),
            (HEADS, HEADS, HEADS, None, 0.0, True),
            (HEADS, In((2, 2, 5, 8)), In((2, 2, 5, 8)), {"enable_gqa": True}),
        ],
        "softmax.int": [(X, -1), (X, 0), (In(dtype=torch.float16), 0, F32)],
        "_softmax.default": [(X, 1, False)],
        "log_softmax.int": [(X, -1), (X, 0, F64)],
        "_log_softmax.default": [(X, 0, False)],
        "sum.default": [(X,), (INTS,), (B,)],
        "sum.dim_IntList": [(X, [0], True), (X, [-1, 0]), (INTS, [1], {"dtype": F32}), (X, None)],
        "mean.default": [(X,)],
        "mean.dim": [(X, [1]), (INTS, [0], True, {"dtype": F64})],
        "amax.default": [(X, [0]), (X,)],
        "amin.default": [(X, [-1], True)],
        "layer_norm.default": [(X, [6], In((6,)), In((6,), seed=1)), (X, [6]), (X, [4, 6], Y)],
        "rms_norm.default": [(X, [6], In((6,)), 1e-6), (X, [6])],
        "group_norm.default": [(IMAGE, 2, In((4,)), In((4,), seed=1)), (IMAGE, 4)],
        "batch_norm.default": [
            (IMAGE, *(In((4,), seed=n) for n in (0, 1, 2)), In((4,), seed=3), False, 0.1, 9.0, True)
        ],
        "embedding.default": [(X, In((2, 3), I64)), (X, In((3,), I64), 1)],
        "cat.default": [([X, Y], -1), ([X], 0), ([X, COLUMN, Y], 1)],
        "concat.default": [([X, Y],)],
        "stack.default": [([X, Y], 1), ([X, Y, X], -1), ([X],)],
        "avg_pool1d.default": [(LINE, [2])],
        "adaptive_avg_pool1d.default": [(LINE, [2])],
        "max_pool2d.default": [(IMAGE, [2, 2]), (IMAGE, [3], [2], [1], [1], True)],
        "constant_pad_nd.default": [(IMAGE, [1, 2]), (X, [0, 1, 2, 0], 1.5)],
        "pad.default": [(X, [1, 1]), (X, [0, 2], "constant", 2.0)],
        "conv1d.padding": [(LINE, In((3, 4, 3)), None, [1], "same")],
        "conv2d.padding": [(IMAGE, In((3, 4, 3, 3)), In((3,)), [1, 1], "same")],
        "conv3d.padding": [(VOLUME, In((3, 2, 2, 2, 2)), None, [1, 1, 1], "valid")],
        "cumsum.default": [(X, 0), (INTS, -1)],
        "einsum.default": [("ij,kj->ik", [X, Y])],
        "index.Tensor": [(X, [In((2,), I64)]), (X, [None, In((3,), I64)])],
        "index_select.default": [(X, 1, In((3,), I64))],
        "linalg_vector_norm.default": [(X, 2, [-1], True)],
        "logsumexp.default": [(X, [1])],
        "max.other": [(X, Y)],
        "min.other": [(X, Y)],
        "repeat.default": [(X, [2, 1]), (X, [2, 1, 3])],
        "repeat_interleave.self_int": [(X, 2, 1)],
        "tile.default": [(X, [2, 2])],
        "roll.default": [(X, [1], [0]), (X, [2, 1], [0, 1])],
        "scatter.value": [(X, 1, In((4, 1), I64), 2.0)],
        "slice_scatter.default": [(X, Y, 0, 0, 4)],
        "square.default": [(X,)],
        "std.default": [(X,)],
        "std.dim": [(X, [1])],
        "std.correction": [(X, [1], {"correction": 0})],
        "var.default": [(X,)],
        "var.dim": [(X, [1])],
        "var.correction": [(X, [1], {"correction": 0, "keepdim": True})],
        "view.dtype": [(X, F32)],
        "avg_pool2d.default": [(IMAGE, [2, 2]), (IMAGE, [3], [2], [1], True, False, 5)],
        "adaptive_avg_pool2d.default": [(IMAGE, [1, 1]), (IMAGE, [3, 5])],
        "upsample_nearest2d.vec": [(IMAGE, None, [2.0, 2.0]), (IMAGE, [5, 7], None)],
        "upsample_bilinear2d.vec": [(IMAGE, [5, 7], True, None), (IMAGE, None, False, [2.0, 1.5])],
        "split.Tensor": [(X, 4, 1)],
        "split.sizes": [(X, [1, 2, 3], -1)],
        "split_with_sizes.default": [(X, [2, 2])],
        "chunk.default": [(X, 4, 1)],
        "unbind.int": [(X,), (X, -1)],
        "tensor_split.sections": [(X, 4, 1)],
        "tensor_split.indices": [(X, [1, 3], 1)],
        "native_layer_norm.default": [(X, [6], In((6,)), None, 1e-5)],
        "_native_batch_norm_legit_no_training.default": [
            (IMAGE, *(In((4,), seed=n) for n in (0, 1, 2)), In((4,), seed=3), 0.1, 9.0)
        ],
    }
    for name in ("add", "sub", "mul"):
        table[f"{name}.Tensor"] = [(X, Y), (X, COLUMN), (X, 2.5), (INTS, 2), (X, In((), F64))]
        table[f"{name}.Scalar"] = [(X, 2)]
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod"):
        table[f"{name}.Tensor"] = [(X, Y), (X, INTS)]
        table[f"{name}.Scalar"] = [(X, 1.5)]
    for name in ("and", "or", "xor"):
        for spelling in (f"bitwise_{name}", f"__{name}__"):
            table[f"{spelling}.Tensor"] = [(INTS, MORE), (B, C)]
            table[f"{spelling}.Scalar"] = [(INTS, 3)]
    unary = "abs neg relu silu sigmoid tanh exp expm1 log log1p sqrt rsqrt erf sin cos reciprocal"
    unary += " floor ceil round trunc sign isnan isinf hardswish hardsigmoid"
    table.update({f"{name}.default": [(X,)] for name in unary.split()})
    return {f"aten.{name}": samples for name, samples in table.items()}


CALLS = calls()


@dataclass(frozen=True)
class Batch:
    """All calls in one graph, and where each call's results stand among its outputs."""

    trip: roundtrip.Trip
    places: dict[str, list[list[int]]]
    nodes: dict[str, list[list[Node]]]
    inputs: list[Tensor]

    @functools.cached_property
    def given(self) -> oracle.Observation:
        """What the graph returns."""
        return observed(self.trip.given, self.inputs)

    @functools.cached_property
    def back(self) -> oracle.Observation:
        """What it returns after the way into the e-graph and back."""
        return observed(self.trip.result(), self.inputs)

    @functools.cached_property
    def respelled(self) -> oracle.Observation:
        """The same, with every call of the language written anew."""
        return observed(self.trip.result(respelled=True), self.inputs)


def observed(module: GraphModule, inputs: list[Tensor]) -> oracle.Observation:
    return oracle.observe(module, tuple(inputs), {}, module=module)


@functools.cache
def batch() -> Batch:
    """Every call of `CALLS` in one graph, there and back."""
    mode = roundtrip.fresh_mode()
    graph = Graph()
    inputs: dict[In, Node] = {}
    parts = [p for samples in CALLS.values() for sample in samples for p in sample]
    flat = [i for p in parts for i in (p if isinstance(p, list) else [p]) if isinstance(i, In)]
    for what in dict.fromkeys(flat):
        inputs[what] = graph.placeholder(f"x{len(inputs)}")
        inputs[what].meta["val"] = mode.from_tensor(what.tensor(), static_shapes=True)

    def call(target: Any, args: Any, kwargs: Any) -> Node:
        node = graph.call_function(target, args, kwargs)
        with mode, torch.no_grad():
            fakes = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
            node.meta["val"] = target(*fakes[0], **fakes[1])
        return node

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return [one(v) for v in value]
        return inputs[value] if isinstance(value, In) else value

    nodes: dict[str, list[list[Node]]] = {}
    for name, samples in CALLS.items():
        for sample in samples:
            kwargs = sample[-1] if isinstance(sample[-1], dict) else {}
            args = tuple(one(a) for a in (sample[:-1] if kwargs else sample))
            results = [call(overload(name), args, kwargs)]
            if isinstance(results[0].meta["val"], (list, tuple)):
                count = len(results[0].meta["val"]) if name in SPLITS else 1
                results = [call(operator.getitem, (results[0], i), {}) for i in range(count)]
            nodes.setdefault(name, []).append(results)
    # Outputs are fresh values: clones, so that the calls themselves are free to be shared.
    copies: list[Node] = []
    places: dict[str, list[list[int]]] = {}
    for name, results in nodes.items():
        for items in results:
            places.setdefault(name, []).append([len(copies) + i for i in range(len(items))])
            copies += [call(torch.ops.aten.clone.default, (item,), {}) for item in items]
    graph.output(tuple(copies))
    module = GraphModule(torch.nn.Module(), graph)
    tensors = [what.tensor() for what in inputs]
    return Batch(roundtrip.travel(module, mode), places, nodes, tensors)


def test_table_covers_every_spelling() -> None:
    assert set(SPELLINGS) <= set(CALLS)
    assert set(SPLITS) <= set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_spelled_operator_has_a_term_of_the_same_meta(name: str) -> None:
    made = batch()
    encoding = made.trip.encoding
    rows = {row.handle: row for row in encoding.rows}
    assert name not in encoding.opaque
    for node in itertools.chain(*made.nodes[name]):
        handle = encoding.handles[node]
        symbol = rows[handle].symbol
        assert symbol.operator in OPERATORS or symbol.operator == "leaf" or symbol == NUMBER
        assert encoding.metas[handle] == encoding.texts.text(meta_of(node.meta["val"]))


@pytest.mark.parametrize("name", CALLS)
def test_spelled_operator_comes_back_bit_for_bit(name: str) -> None:
    made = batch()
    assert made.given.error is None
    for place in itertools.chain(*made.places[name]):
        given = made.given.outputs[place]
        for back in (made.back.outputs[place], made.respelled.outputs[place]):
            check(given, back)


@pytest.mark.skipif(importlib.util.find_spec("expecttest") is None, reason="torch's table needs it")
@pytest.mark.parametrize("part", range(PARTS))
def test_samples_of_torchs_own_table_come_back_as_they_went(part: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

        for op in op_db[STEP * part :: STEP * PARTS]:
            dtype = next(d for d in (F32, I64, BOOL, *sorted(op.dtypes, key=str)) if d in op.dtypes)
            with torch.no_grad():
                for function, tensors in roundtrip.op_samples(op, dtype, 1):
                    kind, why = roundtrip.outcome(function, tensors)
                    assert kind != "failed" or op.name in UNLIKE, f"{op.name}: {why}"


def check(given: object, back: object) -> None:
    """The two are tensors of the same dtype, shape, strides and bits."""
    assert isinstance(given, oracle.Snapshot)
    assert isinstance(back, oracle.Snapshot)
    assert (back.dtype, back.shape, back.stride) == (given.dtype, given.shape, given.stride)
    assert oracle.same_bits(given.value, back.value)
