"""Whichever way a version of torch has a thing, what is asked of it comes out the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from eqsat.features import no_new_guards, passes_module, pattern_name, stored_inputs
from eqsat.inductor_registry import closure, entries


@pytest.mark.parametrize("own", [True, False])
def test_an_undecided_question_raises_and_adds_no_guard(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not own:  # as on torch 2.11
        monkeypatch.delattr(ShapeEnv, "error_on_new_guards", raising=False)
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env, static_shapes=False)
    rows, columns = mode.from_tensor(torch.empty(5, 7)).shape
    with no_new_guards(env):
        assert bool(rows >= 0)
        with no_new_guards(env), pytest.raises(RuntimeError):
            bool(rows == columns)
        with pytest.raises(RuntimeError):
            bool(rows < columns)
    assert not env.guards
    assert bool(rows < columns)
    assert len(env.guards) == 1


def test_stored_patterns_have_inputs_and_names() -> None:
    registered = entries()
    known, names = stored_inputs(), set[str]()
    for one in registered:
        if one.kind == "replacement" and id(one.entry.pattern) in known:
            search = closure(one.entry.extra_check)["search_fn"]
            name = pattern_name(one.entry, search)
            bare = SimpleNamespace(pattern=one.entry.pattern)  # as torch 2.11 has it
            assert name == pattern_name(bare, search)
            assert str(name).startswith(search.__name__)
            names.add(str(name))
    assert "_sfdp_pattern_1_inference" in names


def test_a_module_that_torch_lacks_is_none() -> None:
    assert passes_module("joint_graph") is not None
    assert passes_module("of_no_version") is None
