"""Graph passes with one mistake each, all of them made before by somebody."""

import operator

import torch
from adversarial.graph_pass import (
    ADD,
    CASTS,
    DIV,
    MUL,
    PRODUCTS,
    SUB,
    Pass,
    Value,
    aten,
    call,
    calls,
    draws,
    held,
    holds_only,
    is_call,
    mutates,
    operands,
    replacing,
    shared,
)
from torch import fx

# One node for another.


def _add_zero(node: fx.Node) -> fx.Node | None:
    a, b = operands(node)[:2]
    zeros = is_call(b, aten.zeros.default, aten.zeros_like.default)
    return a if holds_only(b, 0) or zeros else None


def _keep_first_if(number: int) -> Value:
    return lambda node: operands(node)[0] if holds_only(operands(node)[1], number) else None


def _times_zero(node: fx.Node) -> fx.Node | None:
    zero = holds_only(operands(node)[1], 0)
    return call(node, aten.zeros_like.default, operands(node)[0]) if zero else None


def _with_itself(node: fx.Node) -> fx.Node | None:
    a, b = operands(node)[:2]
    fill = aten.zeros_like.default if node.target is SUB else aten.ones_like.default
    return call(node, fill, a) if a is b else None


def _inverse(inner: object) -> Value:
    def value(node: fx.Node) -> fx.Node | None:
        a = operands(node)[0]
        return a.args[0] if is_call(a, inner) else None

    return value


def _root_of_square(node: fx.Node) -> fx.Node | None:
    a = operands(node)[0]
    square = is_call(a, MUL) and a.args[0] is a.args[1]
    return call(node, aten.abs.default, a.args[0]) if square else None


def _product_of_exponentials(node: fx.Node) -> fx.Node | None:
    a, b = operands(node)[:2]
    if not (is_call(a, aten.exp.default) and is_call(b, aten.exp.default)):
        return None
    return call(node, aten.exp.default, call(node, ADD, a.args[0], b.args[0]))


def _one_scale(node: fx.Node) -> fx.Node | None:
    a, b = operands(node)[:2]
    if not (isinstance(b, float) and is_call(a, MUL, DIV) and isinstance(a.args[1], float)):
        return None
    inner = 1 / a.args[1] if a.target is DIV else a.args[1]
    return call(node, MUL, a.args[0], inner * (1 / b if node.target is DIV else b))


def _one_cast(node: fx.Node) -> fx.Node | None:
    a = operands(node)[0]
    if not is_call(a, *CASTS):
        return None
    source = a.args[0]
    same = source.meta["val"].dtype == node.meta["val"].dtype
    return source if same else call(node, aten.to.dtype, source, node.meta["val"].dtype)


def _cast_last(node: fx.Node) -> fx.Node | None:
    a, b = operands(node)[:2]
    if not (is_call(a, aten.to.dtype) and is_call(b, aten.to.dtype) and a.args[1] == b.args[1]):
        return None
    return call(node, aten.to.dtype, call(node, node.target, a.args[0], b.args[0]), a.args[1])


def _upcast(node: fx.Node) -> fx.Node | None:
    return operands(node)[0] if operands(node)[1] in (torch.float32, torch.float64) else None


def _undone_division(node: fx.Node) -> fx.Node | None:
    a, k = operands(node)[:2]
    other = aten.floor_divide.default if node.target is MUL else MUL
    return a.args[0] if isinstance(k, int) and is_call(a, other) and a.args[1] == k else None


def _rejoined(node: fx.Node) -> fx.Node | None:
    parts = operands(node)[0]
    taken = all(is_call(part, operator.getitem) for part in parts)
    if not taken or len({part.args[0] for part in parts}) > 1:
        return None
    split = parts[0].args[0]
    return split.args[0] if "split" in str(split.target) else None


def _doubled(node: fx.Node) -> fx.Node | None:
    a, b = operands(node)[:2]
    return call(node, MUL, a, 2) if a is b else None


def _last_two(node: fx.Node) -> fx.Node | None:
    a, order = operands(node)
    shape = a.meta["val"].shape
    likely = len(shape) > 2 and (*shape[:-2], shape[-1], shape[-2]) == node.meta["val"].shape
    return call(node, aten.transpose.int, a, -2, -1) if likely and order[0] != 0 else None


def _fused_bias(node: fx.Node) -> fx.Node | None:
    a, b = operands(node)[:2]
    fits = is_call(a, *PRODUCTS) and isinstance(b, fx.Node)
    return call(node, aten.addmm.default, b, *a.args) if fits else None


def _truncated(node: fx.Node) -> fx.Node | None:
    if node.target is aten.remainder.Tensor:
        return call(node, aten.fmod.Tensor, *node.args)
    quotient = call(node, aten.div.Tensor_mode, *node.args)
    quotient.kwargs = {"rounding_mode": "trunc"}
    return quotient


def _example_size(node: fx.Node) -> None:
    size = node.meta["val"]
    if isinstance(size, torch.SymInt) and size.node.has_hint():
        node.replace_all_uses_with(size.node.hint)  # pyright: ignore[reportArgumentType]  (an int)


def _last_softmax(node: fx.Node) -> fx.Node:
    return call(node, aten.softmax.int, operands(node)[0], 0)


def _kept_operand(node: fx.Node) -> fx.Node:
    return operands(node)[0]


# Whole graphs.


def _drop_unused(graph: fx.Graph) -> None:
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users:
            graph.erase_node(node)


def _drop_assertions(graph: fx.Graph) -> None:
    for node in calls(graph):
        if "assert" in str(node.target) or "constrain" in str(node.target):
            graph.erase_node(node)


def _scalars(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        tensor = held(node)
        if tensor is None or tensor.ndim:
            continue
        for user in list(node.users):
            if user.target in (ADD, SUB, MUL, DIV) and user.args[1] is node:
                user.update_arg(1, tensor.item())


def _drop_expansions(graph: fx.Graph) -> None:
    for node in calls(graph, aten.expand.default):
        for user in list(node.users):
            if user.target in (ADD, MUL):
                user.replace_input_with(node, operands(node)[0])


def _pack_rows(graph: fx.Graph) -> None:
    strided = (aten.t.default, aten.transpose.int, aten.permute.default, aten.relu.default)
    for node in calls(graph, *strided):
        with graph.inserting_after(node):
            packed = graph.call_function(aten.clone.default, (node,))
        packed.kwargs = {"memory_format": torch.contiguous_format}
        for user in [user for user in node.users if user is not packed]:
            user.replace_input_with(node, packed)


def _recompute(graph: fx.Graph) -> None:
    for node in calls(graph):
        if mutates(node) or not isinstance(node.target, torch._ops.OpOverload):
            continue
        for user in list(node.users)[1:]:
            with graph.inserting_before(user):
                user.replace_input_with(node, graph.node_copy(node))


def _write_last(graph: fx.Graph) -> None:
    end = graph.output_node()
    for node in filter(mutates, calls(graph)):
        node.replace_all_uses_with(operands(node)[0])
        end.prepend(node)


def _freeze_norms(graph: fx.Graph) -> None:
    for node in calls(graph, aten.batch_norm.default):
        node.update_arg(5, False)


def _keep_gradients(graph: fx.Graph) -> None:
    for node in calls(graph):
        if "set_grad_enabled" in str(node.target):
            node.update_arg(0, True)


def _swap_subtraction(graph: fx.Graph) -> None:
    for node in calls(graph, SUB):
        if isinstance(node.args[1], fx.Node):
            node.args = (node.args[1], node.args[0])


_DIVISIONS = (aten.div.Tensor_mode, aten.floor_divide.default, aten.remainder.Tensor)
_COPIES = (aten.clone.default, aten.contiguous.default, aten.detach.default, aten.alias.default)
_CONJUGATES = (aten.conj.default, aten._conj.default, aten.resolve_conj.default)

UNSOUND = (
    Pass("add-zero", replacing(ADD, SUB, value=_add_zero), "growing-broadcast"),
    Pass("multiply-one", replacing(MUL, DIV, value=_keep_first_if(1)), "aliased-outputs"),
    Pass("multiply-one-dtype", replacing(MUL, DIV, value=_keep_first_if(1)), "promotion"),
    Pass("add-zero-sign", replacing(ADD, value=_add_zero), "not-real"),
    Pass("multiply-zero", replacing(MUL, value=_times_zero), "not-real"),
    Pass("subtract-or-divide-self", replacing(SUB, DIV, value=_with_itself), "not-real"),
    Pass("log-exp", replacing(aten.log.default, value=_inverse(aten.exp.default)), "not-real"),
    Pass("sqrt-square", replacing(aten.sqrt.default, value=_root_of_square), "not-real"),
    Pass("exp-product", replacing(MUL, value=_product_of_exponentials), "not-real"),
    Pass("scale-scale", replacing(MUL, DIV, value=_one_scale), "half-range"),
    Pass("cast-cast", replacing(*CASTS, value=_one_cast), "half-range"),
    Pass("cast-widening", replacing(aten.to.dtype, value=_upcast), "half-range"),
    Pass("cast-last", replacing(ADD, SUB, value=_cast_last), "integer-division"),
    Pass("divide-multiply", replacing(MUL, value=_undone_division), "integer-division"),
    Pass(
        "multiply-divide",
        replacing(aten.floor_divide.default, value=_undone_division),
        "integer-division",
    ),
    Pass("floor-is-trunc", replacing(*_DIVISIONS, value=_truncated), "integer-division"),
    Pass("split-cat", replacing(aten.cat.default, value=_rejoined), "parts-in-order"),
    Pass("add-self", replacing(ADD, value=_doubled), "bool-logic"),
    Pass(
        "negate-negate",
        replacing(aten.neg.default, value=_inverse(aten.neg.default)),
        "aliased-outputs",
    ),
    Pass("copy", replacing(*_COPIES, value=_kept_operand), "visible-layouts"),
    Pass("copy-before-write", replacing(*_COPIES, value=_kept_operand), "written-views"),
    Pass("conjugate", replacing(*_CONJUGATES, value=_kept_operand), "complex-rotary"),
    Pass("dropout", replacing(aten.dropout.default, value=_kept_operand), "equal-draws"),
    Pass("permute-transposes", replacing(aten.permute.default, value=_last_two), "equal-draws"),
    Pass("softmax-first", replacing(aten.softmax.int, value=_last_softmax), "equal-draws"),
    Pass("bias-fused", replacing(ADD, value=_fused_bias), "scaled-autocast"),
    Pass("size-fixed", replacing(aten.sym_size.int, value=_example_size), "run-time-sizes"),
    Pass("assertions-dropped", _drop_assertions, "run-time-sizes"),
    Pass("draws-shared", lambda graph: shared(graph, mutates), "equal-draws"),
    Pass("effects-shared", lambda graph: shared(graph, draws), "counted-branches"),
    Pass("unused-writes", _drop_unused, "written-views"),
    Pass("unused-draws", _drop_unused, "equal-draws"),
    Pass("unused-effects", _drop_unused, "counted-branches"),
    Pass("scalar-tensors", _scalars, "promotion"),
    Pass("expand", _drop_expansions, "growing-broadcast"),
    Pass("rows-packed", _pack_rows, "visible-layouts"),
    Pass("shared-recomputed", _recompute, "aliased-outputs"),
    Pass("writes-last", _write_last, "written-views"),
    Pass("norms-frozen", _freeze_norms, "shared-convolution"),
    Pass("gradients-kept", _keep_gradients, "trained-table"),
    Pass("subtract-swapped", _swap_subtraction, "growing-broadcast"),
)
