"""Capture keeps what a program does, or says why it cannot; rebuilt programs run and save."""

import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Graph, GraphModule, symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from eqsat.capture import Captured, capture
from eqsat.check import check
from eqsat.rebuild import drop_in, rebuild

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(3, 4, generator=GENERATOR)


def again(captured: Captured) -> ExportedProgram:
    """The captured program, rebuilt from a copy of its own graph, saved and loaded."""
    return reload(rebuild(captured.program, copied(captured.program), {}))


def copied(program: ExportedProgram) -> Graph:
    graph = Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    return graph


def reload(program: ExportedProgram) -> ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def kept(
    program: Any, *args: Any, kwargs: dict[str, Any] | None = None, **options: Any
) -> Captured:
    """Captured, rebuilt, saved and loaded, the program still does what it did."""
    captured = capture(program, args or None, kwargs, **options)
    assert captured.blocked is None, captured.blocked
    assert captured.args is not None
    given = program.module() if isinstance(program, ExportedProgram) else program
    for result in (captured.original, captured.program, again(captured)):
        verdict = check(given, drop_in(result), captured.args, captured.kwargs)
        assert verdict.passed, str(verdict)
    return captured


def operators(program: ExportedProgram) -> list[str]:
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


class Function(nn.Module):
    """A function as a module in eval mode."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 4)
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.norm(self.second(self.first(x).relu())))


# --------------------------------------------------------------------------- what goes in


def test_a_functional_module_is_used_as_it_is() -> None:
    captured = kept(Mlp().eval(), X)
    assert captured.program is captured.original
    assert "aten.linear.default" in operators(captured.program)


def test_a_symbolically_traced_module_is_captured() -> None:
    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return (self.lin(x) * self.scale).view(-1).relu()

    traced = symbolic_trace(Calls().eval())
    kept(traced, X)
    with pytest.raises(ValueError, match="pass example inputs"):
        capture(traced)


def test_a_traced_aten_graph_needs_no_example_inputs() -> None:
    graph = make_fx(lambda x, i: (x[i].t(), x.bfloat16()), tracing_mode="fake")(
        X, torch.tensor([1, 2])
    )
    captured = kept(graph)
    assert captured.args is not None
    assert [tuple(a.shape) for a in captured.args] == [(3, 4), (2,)]


def test_symbolic_dimensions_of_a_traced_graph_stay_dynamic() -> None:
    graph = make_fx(lambda x: x.reshape(x.shape[0] * 2, 2) + 1, tracing_mode="symbolic")(X)
    captured = kept(graph)
    wide = torch.randn(7, 4)
    assert torch.equal(drop_in(again(captured))(wide), graph(wide))


def test_a_module_made_from_an_exported_program_can_be_captured() -> None:
    program = torch.export.export(Mlp().eval(), (X,))
    with pytest.raises(ValueError, match="no_grad"):  # torch says that it is in training mode
        capture(program.module())
    with torch.no_grad():
        kept(program.module())


def test_an_exported_program_brings_its_inputs() -> None:
    program = torch.export.export(Mlp().eval(), (X,))
    assert kept(program).program is program
    kept(program.run_decompositions())
    program.example_inputs = None
    captured = capture(program)
    assert captured.args is None
    assert captured.kwargs is None


@pytest.mark.parametrize("program", [torch.relu, "model.pt2", None])
def test_other_programs_are_refused(program: object) -> None:
    with pytest.raises(TypeError, match=r"nn\.Module, a GraphModule or an ExportedProgram"):
        capture(program, (X,))


def test_a_tensor_in_place_of_the_arguments_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pass \(x,\)"):
        capture(Mlp().eval(), X)  # pyright: ignore[reportArgumentType] - the mistake


def test_a_module_without_inputs_is_refused() -> None:
    with pytest.raises(ValueError, match="pass example inputs: Mlp"):
        capture(Mlp().eval())


def test_a_program_that_must_carry_gradients_is_refused() -> None:
    with pytest.raises(ValueError, match=r"training mode.*lose gradients.*\.eval\(\).*no_grad"):
        capture(Mlp(), (X,))
    with pytest.raises(ValueError, match="lose gradients"):
        capture(Function(torch.sin).train(), (X.clone().requires_grad_(),))
    assert capture(Function(torch.sin).train(), (X,)).blocked is None
    with torch.no_grad():
        assert capture(Mlp(), (X,)).blocked is None


def test_what_torch_export_refuses_is_one_clear_line() -> None:
    def branches(x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(ValueError, match=r"^torch.export cannot capture Function: \w+") as caught:
        capture(Function(branches), (X,))
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_dynamic_shapes_of_an_exported_program_cannot_be_given_again() -> None:
    with pytest.raises(ValueError, match="dynamic_shapes=None"):
        capture(torch.export.export(Mlp().eval(), (X,)), dynamic_shapes=({0: Dim.AUTO},))


def test_the_module_its_inputs_and_the_random_state_are_left_alone() -> None:
    with torch.no_grad():
        module = Mlp()
        module.norm.eval()
        weights = {k: v.clone() for k, v in module.state_dict().items()}
        x, state, python = X.clone(), torch.get_rng_state(), random.getstate()
        captured = capture(module, (x,))
        drop_in(captured.program)(x)
        torch.set_rng_state(state)
        capture(module, (x,))
    assert module.training
    assert not module.norm.training
    assert all(p.requires_grad for p in module.parameters())
    assert all(torch.equal(v, weights[k]) for k, v in module.state_dict().items())
    assert torch.equal(x, X)
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python


# --------------------------------------------------------------------------- functional form


def test_in_place_operators_become_outputs() -> None:
    def writes(x: Tensor) -> Tensor:
        y = x * 2
        y.add_(1)
        x[0].mul_(3.0)
        return y + x

    captured = kept(Function(writes), X.clone())
    kinds = [spec.kind.name for spec in captured.program.graph_signature.output_specs]
    assert kinds == ["USER_INPUT_MUTATION", "USER_OUTPUT"]
    assert not any(name.split(".")[1].endswith("_") for name in operators(captured.program))


def test_training_batch_norm_is_a_write() -> None:
    with torch.no_grad():
        captured = kept(nn.BatchNorm1d(4), X)
    targets = [s.target for s in captured.program.graph_signature.output_specs if s.target]
    assert targets == ["running_mean", "running_var", "num_batches_tracked"]


def test_writes_inside_a_branch_make_the_program_decompose() -> None:
    def branches(p: Tensor, x: Tensor) -> Tensor:
        return torch.cond(p, lambda t: (t * 2).add_(1), lambda t: t - 1, (x,))

    captured = kept(Function(branches), torch.tensor(True), X)
    bodies = [m for m in captured.program.graph_module.modules() if isinstance(m, GraphModule)]
    assert len(bodies) == 3
    assert not any(n.target is aten.add_.Tensor for m in bodies for n in m.graph.nodes)


def test_autocast_and_no_grad_regions_are_dissolved() -> None:
    def regions(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x.t()
        return y.float() * 2

    captured = kept(Function(regions), X)
    assert "wrap_with_autocast" in operators(captured.original)
    assert "wrap_with_autocast" not in operators(captured.program)

    class NoGrad(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                y = x * 2
            return y + x

    program = torch.export.export(NoGrad(), (X,))
    assert "wrap_with_set_grad_enabled" in operators(program)
    assert operators(kept(program).program) == ["aten.mul.Tensor", "aten.add.Tensor"]


def test_a_lost_output_alias_blocks_and_says_which() -> None:
    def view_of_written(x: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(1)
        return x * 2, x.t()

    captured = capture(Function(view_of_written), (X.clone(),))
    assert captured.blocked is not None
    assert "output 1: shared memory with input 0" in captured.blocked
    assert captured.program is captured.original
    assert check(Function(view_of_written), drop_in(captured.program), (X.clone(),)).passed


def test_a_lost_random_draw_blocks() -> None:
    def draws(x: Tensor) -> Tensor:
        torch.rand_like(x)
        y = x + torch.rand_like(x)
        y.mul_(2)
        return y

    captured = capture(Function(draws), (X,))
    assert captured.blocked is not None
    assert "random generator" in captured.blocked
    kept(Function(lambda x: (x + torch.rand_like(x)).mul_(2)), X)


def test_a_program_without_inputs_is_compared_on_made_up_ones() -> None:
    def writes(x: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(1)
        return x * 2, x.t()

    program = torch.export.export(Function(writes), (X.clone(),))
    program.example_inputs = None
    blocked = capture(program).blocked
    assert blocked is not None
    assert "output 1" in blocked


@torch.library.custom_op("eqsat_test_capture::tick", mutates_args={"counter"})
def tick(counter: Tensor, x: Tensor) -> None:
    counter.add_(x.shape[0])


tick.register_fake(lambda counter, x: None)  # noqa: ARG005


def test_effects_of_custom_operators_are_kept() -> None:
    class Ticks(nn.Module):
        count: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: Tensor) -> Tensor:
            torch.ops.eqsat_test_capture.tick(self.count, x)
            torch.ops.eqsat_test_capture.tick(self.count, x)
            return x * 2

    captured = kept(Ticks().eval(), X)
    module = drop_in(again(captured))
    module(X)
    assert int(module.get_buffer("count")) == 6


# --------------------------------------------------------------------------- rebuilding


@dataclass
class Outputs:
    total: Tensor
    rest: dict[str, Any]


pytree.register_dataclass(Outputs, serialized_type_name="eqsat_test_capture.Outputs")


def test_nested_outputs_constants_and_kwargs_survive() -> None:
    def nested(x: Tensor, *, pair: tuple[Tensor, Tensor], on: bool) -> Outputs:
        y = x + pair[0] if on else x
        return Outputs(y, {"a": [y.t(), None], "n": 3, "flag": True, "b": (pair[1], x)})

    kwargs = {"pair": (X * 2, X * 3), "on": True}
    captured = kept(Function(nested), X, kwargs=kwargs)
    swapped = dict(reversed(kwargs.items()))
    assert torch.equal(drop_in(captured.program)(X, **swapped).total, X * 3)


def test_dynamic_shapes_survive() -> None:
    batch = Dim("batch", min=2, max=64)
    captured = kept(Mlp().eval(), X, dynamic_shapes={"x": {0: batch}})
    result = again(captured)
    assert len(result.range_constraints) == 1
    assert drop_in(result)(torch.randn(9, 4)).shape == (9, 4)


def test_unbacked_sizes_survive() -> None:
    kept(Function(lambda x: (x.nonzero().shape[0], x.nonzero() + 1)), X)


def test_views_aliases_and_identity_of_outputs_survive() -> None:
    kept(Function(lambda x: (x, x.t(), x[1:], x.detach(), x * 1.0)), X)


def test_tied_weights_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    module = Tied().eval()
    captured = kept(module, X)
    result = rebuild(captured.program, copied(captured.program), {})
    assert result.state_dict["a.weight"] is result.state_dict["b.weight"]
    assert result.state_dict["a.weight"].data_ptr() == module.a.weight.data_ptr()
    assert not any(p.requires_grad for p in result.parameters())
    assert all(p.requires_grad for p in module.parameters())


def test_folded_constants_replace_weights() -> None:
    module = Mlp().eval()
    captured = capture(module, (X,))
    program = captured.program
    weights = [module.first.weight, module.first.bias, module.second.weight, module.second.bias]
    graph, x = Graph(), next(n for n in program.graph.nodes if n.name == "x")
    placeholders = [graph.placeholder(f"folded_{k}") for k in range(4)]
    new_x = graph.node_copy(x)
    value = x.meta["val"]
    hidden = call(graph, aten.linear.default, new_x, *placeholders[:2], value=value.new_empty(3, 5))
    relu = call(graph, aten.relu.default, hidden, value=value.new_empty(3, 5))
    out = call(graph, aten.linear.default, relu, *placeholders[2:], value=value.new_empty(3, 4))
    graph.output((out,))
    folded = {f"folded_{k}": w.detach().clone() for k, w in enumerate(weights)}
    result = rebuild(program, graph, folded)
    assert set(result.state_dict) == set(folded)
    plain = nn.Sequential(module.first, nn.ReLU(), module.second)
    for one in (result, reload(result)):
        assert check(plain, drop_in(one), (X,)).passed


def call(graph: Graph, target: Any, *args: Any, value: Tensor) -> Any:
    node = graph.call_function(target, args)
    node.meta["val"] = value
    return node


def test_a_folded_name_that_is_taken_gets_another() -> None:
    class Taken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.folded = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.folded(x)

    module = Taken().eval()
    program = capture(module, (X,)).program
    graph, x = Graph(), next(n for n in program.graph.nodes if n.name == "x")
    placeholders = graph.placeholder("folded"), graph.placeholder("p_folded_bias")
    placeholders[1].meta = next(n for n in program.graph.nodes if n.name == "p_folded_bias").meta
    new_x = graph.node_copy(x)
    value = x.meta["val"].new_empty(3, 4)
    graph.output((call(graph, aten.linear.default, new_x, *placeholders, value=value),))
    result = rebuild(program, graph, {"folded": module.folded.weight})
    assert set(result.state_dict) == {"folded_1", "folded.bias"}
    assert check(module, drop_in(reload(result)), (X,)).passed


def test_a_buffer_that_is_only_written_keeps_its_placeholder() -> None:
    class Last(nn.Module):
        last: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", torch.zeros(3, 4))

        def forward(self, x: Tensor) -> Tensor:
            self.last.copy_(x)
            return x + 1

    captured = kept(Last().eval(), X)
    graph = copied(captured.program)
    buffer = next(iter(graph.nodes))
    if buffer.users:
        copy = next(iter(buffer.users))
        copy.replace_all_uses_with(next(n for n in graph.nodes if n.name == "x"))
        graph.erase_node(copy)
    graph.erase_node(buffer)
    assert check(Last(), drop_in(reload(rebuild(captured.program, graph, {}))), (X,)).passed


def test_branches_are_carried_over() -> None:
    def branches(p: Tensor, x: Tensor) -> Tensor:
        return torch.cond(p, lambda t: t * 2, lambda t: t - 1, (x,))

    captured = kept(Function(branches), torch.tensor(True), X)
    module = drop_in(again(captured))
    assert torch.equal(module(torch.tensor(False), X), X - 1)


def test_lifted_constants_and_transient_buffers_survive() -> None:
    class Constants(nn.Module):
        scale: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)
            self.plain = torch.ones(4)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale + self.plain + torch.tensor([1.0, 2.0, 3.0, 4.0])

    kept(Constants().eval(), X)


def test_missing_user_inputs_are_refused() -> None:
    program = capture(Mlp().eval(), (X,)).program
    graph = Graph()
    graph.output((graph.placeholder("p_first_weight"),))
    with pytest.raises(ValueError, match=r"user inputs \['x'\]"):
        rebuild(program, graph, {})


def test_custom_objects_are_carried_over() -> None:
    from torch._library import opaque_object as opaque

    base = getattr(opaque, "OpaqueBase", None) or opaque.CustomClassBase  # its name since 2.14

    class Factor(base):
        __qualname__ = "Factor"  # the name of its type in a schema

        def __init__(self, value: float) -> None:
            self.value = value

    opaque.register_opaque_type(Factor, typ="reference")
    name = "eqsat_test_capture::scaled"
    torch.library.define(name, f"({opaque.get_opaque_type_name(Factor)} f, Tensor x) -> Tensor")
    torch.library.impl(name, "CompositeExplicitAutograd", lambda f, x: x * f.value)
    torch.library.register_fake(name, lambda f, x: torch.empty_like(x))  # noqa: ARG005

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = Factor(3.0)

        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.eqsat_test_capture.scaled(self.factor, x) + 1

    try:
        program = capture(Scaled().eval(), (X,)).program
    except ValueError as error:
        if "or FakeScriptObject key" not in str(error):
            raise
        pytest.skip("this torch cannot export an object of a registered type")
    assert program.graph_signature.input_specs[0].kind.name == "CUSTOM_OBJ"
    result = rebuild(program, copied(program), {})
    assert check(Scaled(), drop_in(result), (X,)).passed


def test_unknown_placeholders_are_refused() -> None:
    program = capture(Mlp().eval(), (X,)).program
    graph = copied(program)
    with graph.inserting_before(next(iter(graph.nodes))):
        graph.placeholder("stranger")
    with pytest.raises(ValueError, match="stranger"):
        rebuild(program, graph, {})


# --------------------------------------------------------------------------- a module to call


def test_a_drop_in_shares_weights_but_owns_what_it_writes() -> None:
    class Writes(nn.Module):
        count: Tensor
        fixed: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.register_buffer("count", torch.zeros(()))
            self.register_buffer("fixed", torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return self.lin(x) * self.fixed

    given = Writes().eval()
    captured = capture(given, (X,))
    for program in (captured.original, captured.program):
        module = drop_in(program)
        module(X)
        assert float(module.get_buffer("count")) == 1.0
        assert float(given.count) == 0.0
        assert module.get_parameter("lin.weight").data_ptr() == given.lin.weight.data_ptr()
        assert module.get_buffer("fixed").data_ptr() == given.fixed.data_ptr()


def test_a_write_through_a_view_of_a_buffer_is_owned() -> None:
    class Writes(nn.Module):
        table: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.zeros(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            self.table.split(2)[1][0].add_(x[0])
            return x + self.table[2]

    given = Writes().eval()
    module = drop_in(capture(given, (X,)).original)
    module(X)
    assert torch.equal(module.get_buffer("table")[2], X[0])
    assert not given.table.any()


def test_a_drop_in_keeps_the_mode() -> None:
    module = drop_in(capture(Mlp().eval(), (X,)).program)
    assert not module.training
    assert module.eval() is module
    with pytest.raises(NotImplementedError, match="eval mode"):
        module.train()
    with torch.no_grad():
        captured = capture(Mlp(), (X,))
        assert captured.program is not captured.original
        assert drop_in(captured.program).training


def test_a_drop_in_compiles() -> None:
    module = drop_in(again(capture(Mlp().eval(), (X,))))
    with torch.no_grad():
        assert torch.allclose(torch.compile(module, backend="aot_eager")(X), module(X))


def test_dropout_in_eval_mode_stays_off() -> None:
    captured = kept(Function(lambda x: nn.functional.dropout(x, training=False) + 1), X)
    assert torch.equal(drop_in(captured.program)(X), X + 1)
