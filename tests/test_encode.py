"""A graph becomes e-nodes: terms where there are any, opaque operators and leaves elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import roundtrip
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, symbolic_trace

from eqsat.encode import Encoding, encode
from eqsat.functions import Function
from eqsat.interval import Interval, of_dtype
from eqsat.meta import Meta, meta_of
from eqsat.spelling import SPELLINGS
from eqsat.term import Term

aten = torch.ops.aten
X, Y = torch.arange(24.0).reshape(4, 6), torch.linspace(-1, 1, 24).reshape(4, 6)


@torch.library.custom_op("eqsat_encode::double", mutates_args=())
def double(x: Tensor) -> Tensor:
    return x * 2


@double.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("eqsat_encode::note", mutates_args=())
def note(x: Tensor) -> None:
    pass


@note.register_fake
def _(x: Tensor) -> None:
    pass


def check(function: Callable[..., Any], *tensors: Tensor, expect: dict[str, int]) -> Encoding:
    """The encoding of the function's graph; so many e-nodes it has by operator, leaves aside."""
    encoding = encode(graph(function, *tensors), {})
    found: dict[str, int] = {}
    for row in encoding.rows:
        name = row.symbol.operator
        if name in ("unary", "binary", "ternary", "reduction"):
            name = encoding.texts.value(row.attributes[0]).label
        found[name] = found.get(name, 0) + 1
    found.pop("leaf", None)
    assert found == expect
    return encoding


def graph(function: Callable[..., Any], *tensors: Tensor) -> Graph:
    """The ATen graph of a function as it is called, nothing decomposed."""
    mode = roundtrip.fresh_mode()
    call, flat = roundtrip.call_of(function, (tensors, {}))
    return roundtrip.trace(call, flat, mode).graph


def test_equal_calls_are_one_enode() -> None:
    check(lambda x: (torch.relu(x), torch.relu(x)), X, expect={"relu": 1})


def test_unknown_pure_operator_is_opaque_and_shared_when_equal() -> None:
    encoding = check(
        lambda x: (torch.cumprod(x, 0), torch.cumprod(x, 0), torch.cumprod(x, 1)),
        X,
        expect={"aten.cumprod.default": 2},
    )
    assert list(encoding.opaque) == ["aten.cumprod.default"]
    assert encoding.effects == ()


def test_opaque_operator_keeps_lists_and_keywords_apart() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            aten.flip.default(x, [0]),
            aten.flip.default(x, [1]),
            aten.flip.default(x, [0, 1]),
            aten.addcmul.default(x, x, y, value=2),
            aten.addcmul.default(x, x, y, value=3),
        )

    check(function, X, Y, expect={"aten.flip.default": 3, "aten.addcmul.default": 2})


def test_pure_custom_operator_is_shared_and_one_without_result_is_an_effect() -> None:
    encoding = check(
        lambda x: (double(x), note(x), double(x), note(x))[::2],
        X,
        expect={"eqsat_encode.double.default": 1},
    )
    assert [str(n.target) for n in encoding.effects] == ["eqsat_encode.note.default"] * 2
    assert encoding.opaque["eqsat_encode.note.default"] == "returns nothing: runs for its effect"


def test_random_calls_are_effects_in_order_and_never_merged() -> None:
    encoding = check(
        lambda x: (torch.rand_like(x), torch.bernoulli(x), torch.rand_like(x)), X, expect={}
    )
    names = [str(n.target) for n in encoding.effects]
    assert names == ["aten.rand_like.default", "aten.bernoulli.default", "aten.rand_like.default"]
    first, second, third = (encoding.handles[n] for n in encoding.effects)
    assert encoding.reads[second][-1] == first
    assert encoding.reads[third][-1] == second
    assert {first, second, third} <= set(encoding.roots)


def test_call_that_writes_is_an_effect() -> None:
    g = Graph()
    x = g.placeholder("x")
    x.meta["val"] = X
    written = g.call_function(aten.add_.Tensor, (x, 1))
    written.meta["val"] = X
    g.output((written,))
    encoding = encode(g, {})
    assert encoding.effects == (written,)
    assert encoding.opaque == {"aten.add_.Tensor": "mutates its operands"}


def test_size_that_depends_on_data_is_an_effect() -> None:
    encoding = check(torch.nonzero, X, expect={})
    assert encoding.opaque == {"aten.nonzero.default": "its result's size or value depends on data"}


@pytest.mark.parametrize("train", [False, True])
def test_dropout_is_an_effect_only_where_it_draws(train: bool) -> None:
    encoding = check(lambda x: torch.relu(torch.dropout(x, 0.5, train)), X, expect={"relu": 1})
    assert len(encoding.effects) == train


def test_results_of_a_multi_output_operator_are_items_of_one_enode() -> None:
    check(
        lambda x: (*torch.topk(x, 2), *torch.topk(x, 2)),
        X,
        expect={"aten.topk.default": 1, "getitem": 2},
    )


def test_split_is_slices_and_needs_no_enode_of_its_own() -> None:
    encoding = check(
        lambda x: [p + 1 for p in x.split(2, 1)], X, expect={"slice": 3, "add": 3, "number": 1}
    )
    assert encoding.opaque == {}


def test_spellings_of_one_value_are_one_enode() -> None:
    check(
        lambda x: (x.view(24), x.reshape(24), x.flatten(), x.t(), x.transpose(0, 1), x.mT),
        X,
        expect={"reshape": 1, "permute": 1},
    )
    check(
        lambda x: (x[0], x.select(0, 0), x[:1].view(6), x.narrow(0, 0, 1).squeeze(0)),
        X,
        expect={"slice": 1, "reshape": 1},
    )


def test_numbers_of_different_types_are_different() -> None:
    i = torch.arange(3)
    check(lambda i: (i + 1, i + 1.0, i + True), i, expect={"number": 3, "add": 3})


def test_number_and_tensor_of_the_same_value_are_different() -> None:
    check(lambda x: (x + 1.0, x + torch.ones(())), X, expect={"number": 1, "full": 1, "add": 2})


def test_every_handle_has_the_meta_of_its_node() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        values, where = torch.sort(x, 1)
        return values @ y.t(), where.to(torch.float64), x.sum(0, keepdim=True), x > y

    encoding = encode(graph(function, X, Y), {})
    for node, handle in encoding.handles.items():
        expected = meta_of(node.meta["val"])
        assert encoding.metas[handle] == encoding.texts.text(expected)
    found = encoding.texts.value(encoding.metas[encoding.roots[0]])
    assert isinstance(found, Meta)
    assert (found.shape, found.dtype, found.device) == ((4, 4), torch.float32, "cpu")


def test_rows_refer_to_earlier_rows_only() -> None:
    encoding = encode(graph(lambda x, y: torch.softmax(x @ y.t(), -1) @ y + x, X, Y), {})
    for row in encoding.rows:
        assert all(child < row.handle for child in row.children)


def test_symbolic_sizes_stay_symbolic() -> None:
    class Flat(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(x.shape[0] * 6, 1)[: x.shape[0]].expand(x.shape[0], 5)

    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(Flat(), (X,), dynamic_shapes=({0: batch},), strict=False)
    encoding = encode(program.graph, {})
    sizes = {
        str(encoding.texts.value(encoding.metas[h]).shape[0]) for h in encoding.handles.values()
    }
    assert "4" not in sizes
    assert [row.symbol.operator for row in encoding.rows].count("reshape") == 1
    assert encoding.opaque == {}


def test_constant_and_finite_leaves_are_known() -> None:
    program = torch.export.export(torch.nn.Linear(6, 3), (X,), strict=False)
    constants = {"p_weight": torch.ones(3, 6), "p_bias": torch.tensor([1.0, float("inf"), 0.0])}
    encoding = encode(program.graph, constants)
    leaves = {node.name: handle for handle, node in encoding.leaves.items()}
    assert encoding.constant == (leaves["p_weight"], leaves["p_bias"])
    assert encoding.intervals[leaves["p_weight"]] == Interval(1.0, 1.0)
    assert leaves["p_bias"] not in encoding.intervals


def test_integers_are_finite() -> None:
    encoding = encode(graph(lambda i: i + 1, torch.arange(3)), {})
    assert list(encoding.intervals.values())[::2] == [of_dtype(torch.int64)] * 2


def test_call_whose_term_has_another_meta_is_opaque(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Term("unary", ("x",), (Function("isnan"),))
    monkeypatch.setitem(SPELLINGS, "aten.relu.default", lambda c: replace(wrong, children=(c.x,)))
    encoding = check(torch.relu, X, expect={"isnan": 1, "aten.relu.default": 1})
    assert "aten.relu.default" in encoding.opaque


def test_softmax_with_a_dtype_casts_first() -> None:
    x = torch.ones(3, dtype=torch.float16)
    expect = {"to(torch.float32)": 1, "softmax": 1}
    check(lambda x: torch.softmax(x, 0, torch.float32), x, expect=expect)


def test_graph_that_is_not_aten_is_refused() -> None:
    class Root(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.relu()

    traced: GraphModule = symbolic_trace(Root())
    with pytest.raises(ValueError, match="call_method node 'relu' is not ATen"):
        encode(traced.graph, {})
