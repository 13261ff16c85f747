"""The table of Inductor's rewrites is true: its rules unite what Inductor rewrites, row by row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name it has everywhere
from torch import Tensor, nn
from united import Case, listed, united

import rewrites
from eqsat.rewrite import Rewrite

PAGE = Path(__file__).parents[1] / "docs" / "inductor.md"
HOW = ("language", "rules", "left out")


@dataclass(frozen=True)
class Row:
    """A row of the table; `rules` are the names, or beginnings of names, in its last column."""

    inductor: str
    how: str
    rules: tuple[str, ...]


def rows() -> Iterator[Row]:
    """The rows of the tables of the page."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `"):
            assert len(cells) == 4, line
            yield Row(cells[0], cells[2], tuple(re.findall(r"`([^`]+)`", cells[3])))


ROWS = {row.inductor: row for row in rows()}


def named(names: Sequence[str]) -> list[Rewrite]:
    """The rules of these names, a star standing for the rest of one; each must name some."""
    found: dict[str, Rewrite] = {}
    for name in names:
        start = name.removesuffix("*")
        some = [
            r
            for r in rewrites.DEFAULT
            if r.name == name or (start != name and r.name.startswith(start))
        ]
        assert some, f"no rule is named {name}"
        found.update((rule.name, rule) for rule in some)
    return list(found.values())


def noise(*shape: int) -> Tensor:
    """A tensor of random numbers."""
    return torch.randn(
        shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64
    )


X, Y = noise(4, 6), noise(4, 6) + 1
W, V, BIAS = noise(6, 5), noise(6, 5) * 2, noise(5)
WHOLE = torch.arange(24).reshape(4, 6)
IMAGE, KERNEL, CHANNELS = noise(2, 3, 8, 8), noise(4, 3, 3, 3), noise(4)
SCALE = noise(1, 4, 1, 1)
PICKS = torch.tensor([[2], [0], [5], [1]])


def one_hot_by_scatter(i: Tensor) -> Tensor:
    return torch.full((4, 6), 0.0).scatter(1, i, 1.0)


def one_hot_by_comparison(i: Tensor) -> Tensor:
    return torch.where(i == torch.arange(6), 1.0, torch.full((4, 6), 0.0))


def normed(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return F.batch_norm(F.conv2d(x, w), mean, var, b.abs(), b)


def folded(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    scale = b.abs() * torch.rsqrt(var + 1e-5)
    return F.conv2d(x, w * scale.reshape(-1, 1, 1, 1), b - mean * scale)


CASES: dict[str, tuple[Case, ...]] = {
    "`post_grad:remove_noop_ops`, views and copies": (
        Case(lambda x: torch.sin(x[:, :]), torch.sin, [X]),
        Case(lambda x: torch.sin(torch.slice_scatter(x * 2, x, 0, 0, 4)), torch.sin, [X]),
        Case(lambda x: torch.sin(x.repeat(1, 1)), torch.sin, [X]),
        Case(lambda x: torch.sin(F.pad(x, (0, 0, 0, 0))), torch.sin, [X]),
        Case(lambda x: torch.sin(x.to(torch.float64).to("cpu")), torch.sin, [X]),
        Case(lambda x: torch.sin(torch.cat([x])), torch.sin, [X]),
        Case(lambda x: torch.sin(x.view(4, 6).view(torch.float64)), torch.sin, [X]),
        Case(lambda x: torch.sin(x.clone().contiguous()), torch.sin, [X]),
    ),
    "`post_grad:remove_noop_ops`, arithmetic": (
        Case(lambda i: torch.ceil(i.floor()) * 2, lambda i: i * 2, [WHOLE]),
        Case(lambda i: torch.trunc(i.round()) * 2, lambda i: i * 2, [WHOLE]),
        Case(lambda x: torch.sin(x.pow(1)), torch.sin, [X]),
    ),
    "`joint_graph:constant_fold_uniform_value`": (
        Case(lambda x: torch.sin(x * torch.ones(4, 6, dtype=x.dtype)), torch.sin, [X]),
        Case(lambda x: torch.sin(x / torch.ones((), dtype=x.dtype)), torch.sin, [X]),
        Case(
            lambda x: torch.sin(x - (1.0 - torch.ones(1, 1, dtype=x.dtype)).expand(4, 6)),
            torch.sin,
            [X],
        ),
        Case(lambda i: (i * 0) + i, lambda i: torch.zeros_like(i) + i, [WHOLE]),
    ),
    "`joint_graph:remove_redundant_views`": (
        Case(
            lambda x: x.view(torch.int64) + x.view(torch.int64),
            lambda x: (v := x.view(torch.int64)) + v,
            [X],
        ),
    ),
    "`joint_graph:pointless_view`, `pointless_view_pair`": (
        Case(lambda x: torch.sin(x.view(24).view(4, 6)), torch.sin, [X]),
    ),
    "`joint_graph:pointless_permute_pair`": (
        Case(lambda x: torch.sin(x.permute(1, 2, 0).permute(2, 0, 1)), torch.sin, [noise(2, 3, 4)]),
    ),
    "`joint_graph:pointless_convert`": (
        Case(lambda x: x.double().half() * 2, lambda x: x.half() * 2, [X.float()]),
        Case(lambda x: x.float().bfloat16() * 2, lambda x: x * 2, [X.bfloat16()]),
    ),
    "`joint_graph:bmm_to_mm`": (
        Case(
            lambda a, b: torch.sin(torch.bmm(a, b)),
            lambda a, b: torch.sin(torch.mm(a[0], b[0])[None]),
            [noise(1, 4, 6), noise(1, 6, 5)],
        ),
    ),
    "`joint_graph:scatter_upon_const_tensor`": (
        Case(one_hot_by_scatter, one_hot_by_comparison, [PICKS]),
    ),
    "`fuse_attention`": tuple(
        Case(
            left,
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.25),
            [noise(2, 3, 16, 8), noise(2, 3, 24, 8), noise(2, 3, 24, 8) + 1],
        )
        for left in (
            lambda q, k, v: torch.softmax(q @ k.mT / 4, -1) @ v,
            lambda q, k, v: torch.softmax(q @ k.mT * 0.25, -1) @ v,
            lambda q, k, v: torch.softmax((q * 0.25) @ k.mT, -1) @ v,
        )
    ),
    "`partitioners:fx_graph_cse`": (
        Case(
            lambda x, w: torch.relu(x @ w) + x @ w, lambda x, w: torch.relu(y := x @ w) + y, [X, W]
        ),
    ),
    "`post_grad:addmm`": (
        Case(lambda c, a, b: a @ b + c, torch.addmm, [BIAS, X, W]),
        Case(lambda c, a, b: c + a @ b, torch.addmm, [BIAS, X, W]),
    ),
    "`post_grad:unfuse_bias_add_to_pointwise`": (
        Case(torch.addmm, lambda c, a, b: torch.mm(a, b) + c, [BIAS, X, W]),
    ),
    "`post_grad:unfuse_bias_baddbmm_to_pointwise`": (
        Case(
            torch.baddbmm,
            lambda c, a, b: c + torch.bmm(a, b),
            [BIAS, noise(2, 4, 6), noise(2, 6, 5)],
        ),
    ),
    "`post_grad:reciprocal_sqrt_to_rsqrt`": (
        Case(lambda x: torch.reciprocal(torch.sqrt(x)), torch.rsqrt, [X.square() + 1]),
    ),
    "`post_grad:pointless_cumsum_replacement`": (
        Case(
            lambda x: x + torch.full((4, 6), 3).cumsum(1),
            lambda x: x + (torch.arange(1, 7) * 3).expand(4, 6),
            [WHOLE],
        ),
    ),
    "`post_grad:reuse_partial`": (
        Case(
            lambda x: (x.amax((0, 1)), x.amax(1)),
            lambda x: (x.amax(1, keepdim=True).amax((0, 1)), x.amax(1)),
            [X],
        ),
    ),
    "`post_grad:cat_slice_cat`": (
        Case(
            lambda x, y: torch.cat([c := torch.cat([x, y], 1), c[:, :3]], 1),
            lambda x, y: torch.cat([x, y, x[:, :3]], 1),
            [X, Y],
        ),
    ),
    "`post_grad:splitwithsizes_cat_replace`": (
        Case(lambda x: torch.sin(torch.cat(x.split([1, 2, 3], 1), 1)), torch.sin, [X]),
    ),
    "`post_grad:cat_splitwithsizes_replace`": (
        Case(
            lambda *x: [torch.sin(part) for part in torch.cat(x, 0).split([4, 4, 4], 0)],
            lambda *x: [torch.sin(part) for part in x],
            [X, Y, X + 1],
        ),
    ),
    "`decompose_mem_bound_mm:decompose_bmm`": (
        Case(torch.bmm, torch.mul, [noise(2, 4, 1), noise(2, 1, 5)]),
    ),
    "`decompose_mem_bound_mm:decompose_mm`, `decompose_addmm`": (
        Case(torch.mm, lambda a, w: (a * w.mT).sum(-1, keepdim=True), [X, noise(6, 1)]),
        Case(
            torch.addmm,
            lambda c, a, w: (a * w.mT).sum(-1, keepdim=True) + c,
            [noise(1), X, noise(6, 1)],
        ),
    ),
    "`split_cat`, splits in sequence": (
        Case(
            lambda x: torch.sin(x.split([4, 2], 1)[0].split([1, 3], 1)[1]),
            lambda x: torch.sin(x[:, 1:4]),
            [X],
        ),
    ),
    "`split_cat:select_cat_aten`": (
        Case(
            lambda x: torch.sin(torch.cat([x[:, 0], x[:, 1], x[:, 2]], 1)),
            lambda x: torch.sin(x.flatten(1)),
            [noise(4, 3, 5)],
        ),
    ),
    "`split_cat:unbind_stack_aten`": (
        Case(lambda x: torch.sin(torch.stack(x.unbind(1), 1)), torch.sin, [noise(4, 3, 5)]),
    ),
    "`split_cat:move_view_after_cat`": (
        Case(
            lambda x, y: torch.cat([x.reshape(4, 2, 3), y.reshape(4, 2, 3)], 0),
            lambda x, y: torch.cat([x, y], 0).reshape(8, 2, 3),
            [X, Y],
        ),
    ),
    "`group_batch_fusion:batch_linear_post_grad`": (
        Case(
            lambda x, y, v, w: torch.stack([x @ v, y @ w]),
            lambda x, y, v, w: torch.bmm(torch.stack([x, y]), torch.stack([v, w])),
            [X, Y, V, W],
        ),
    ),
    "`group_batch_fusion:batch_aten_*`": (
        Case(
            lambda x, y: torch.stack([torch.tanh(x), torch.tanh(y)]),
            lambda x, y: torch.tanh(torch.stack([x, y])),
            [X, Y],
        ),
        Case(
            lambda x, y, v, w: torch.stack([x * v, y * w]),
            lambda x, y, v, w: torch.stack([x, y]) * torch.stack([v, w]),
            [X, Y, X + 1, Y + 1],
        ),
    ),
    "`binary_folding`, convolutions": (
        Case(
            lambda x, w, s: F.conv2d(x, w) * s,
            lambda x, w, s: F.conv2d(x, w * s.reshape(4, 1, 1, 1)),
            [IMAGE],
            [KERNEL, SCALE],
        ),
        Case(
            lambda x, w, b, s: F.conv2d(x, w, b) + s,
            lambda x, w, b, s: F.conv2d(x, w, b + s.reshape(4)),
            [IMAGE],
            [KERNEL, CHANNELS, SCALE],
        ),
    ),
    "`binary_folding`, linear": (
        Case(
            lambda x, w, b, s: torch.addmm(b, x, w) * s,
            lambda x, w, b, s: torch.addmm(b * s, x, w * s),
            [X],
            [W, BIAS, BIAS + 1],
        ),
        Case(
            lambda x, w, b, s: torch.addmm(b, x, w) + s,
            lambda x, w, b, s: torch.addmm(b + s, x, w),
            [X],
            [W, BIAS, BIAS + 1],
        ),
        Case(lambda x, w, s: (x @ w) * s, lambda x, w, s: x @ (w * s), [X], [W, BIAS]),
    ),
    "`freezing_patterns:matmul_fuse`, `addmm_fuse`": (
        Case(
            lambda x, v, w: (x @ v, x @ w),
            lambda x, v, w: (x @ torch.cat([v, w], 1)).split([5, 5], 1),
            [X],
            [V, W],
        ),
        Case(
            lambda x, v, w, b, c: (torch.addmm(b, x, v), torch.addmm(c, x, w)),
            lambda x, v, w, b, c: torch.addmm(torch.cat([b, c]), x, torch.cat([v, w], 1)).chunk(
                2, 1
            ),
            [X],
            [V, W, BIAS, BIAS + 1],
        ),
    ),
    "`freezing:unnecessary_dtype_convert`": (
        Case(lambda x: torch.sin(x.to(torch.float64)), torch.sin, [X]),
    ),
    "`fuse_fx:sink_cat_after_pointwise`": (
        Case(
            lambda x, y: torch.relu(torch.cat([x, y], 1)),
            lambda x, y: torch.cat([torch.relu(x), torch.relu(y)], 1),
            [X, Y],
        ),
    ),
    "`fuse_fx:linear_permute_fusion`, `permute_linear_fusion`, `permute_matmul_fusion`": (
        Case(lambda x, w: (x @ w).mT, lambda x, w: w.mT @ x.mT, [X, W]),
        Case(
            lambda a, b: a.permute(0, 2, 1) @ b.permute(0, 2, 1),
            lambda a, b: (b @ a).permute(0, 2, 1),
            [noise(2, 6, 4), noise(2, 5, 6)],
        ),
    ),
    "`fuse_fx:remove_identity`, `numpy_compat_normalization`": (
        Case(
            lambda x: torch.sum(nn.Identity()(x), axis=1),  # type: ignore[call-overload] - numpy's
            lambda x: torch.sum(x, dim=1),
            [X],
        ),
    ),
    "`fuse_fx:fuse_conv_bn`, `efficient_conv_bn_eval`": (
        Case(normed, folded, [IMAGE], [KERNEL, CHANNELS, CHANNELS + 1, CHANNELS.abs() + 1]),
    ),
    "`split_cat`, before the gradient": (
        Case(
            lambda x: [torch.sin(p) for p in torch.cat(x.split([1, 2, 3], 1)[1:], 1).chunk(5, 1)],
            lambda x: [torch.sin(x[:, i : i + 1]) for i in range(1, 6)],
            [X],
        ),
    ),
    "`group_batch_fusion:batch_linear_lhs`": (
        Case(
            lambda x, v, w, b, c: (F.linear(x, v, b), F.linear(x, w, c)),
            lambda x, v, w, b, c: torch.addmm(
                torch.cat([b, c]), x, torch.cat([v.t(), w.t()], 1)
            ).split(5, 1),
            [X],
            [V.t(), W.t(), BIAS, BIAS + 1],
        ),
    ),
    "`group_batch_fusion:batch_linear`": (
        Case(
            lambda x, y, v, w, b, c: torch.stack([F.linear(x, v, b), F.linear(y, w, c)]),
            lambda x, y, v, w, b, c: (
                torch.stack([x, y]) @ torch.stack([v.t(), w.t()]) + torch.stack([b[None], c[None]])
            ),
            [X, Y, V.t(), W.t(), BIAS, BIAS + 1],
        ),
    ),
    "`group_batch_fusion:batch_tanh`, `batch_sigmoid`, `batch_relu`, `batch_detach`, "
    "`batch_nan_to_num`, `batch_clamp`": (
        Case(
            lambda x, y: torch.stack([torch.sigmoid(x), torch.sigmoid(y)]),
            lambda x, y: torch.sigmoid(torch.stack([x, y])),
            [X, Y],
        ),
    ),
}
UNSAID = {"`dedupe_symint_uses`", "`freezing:constant_fold`"}  # no equality of two programs
FLAT = [
    pytest.param(name, case, id=f"{name.split('`')[1]} {i}")
    for name, cases in CASES.items()
    for i, case in enumerate(cases)
]


def test_every_row_says_how_it_is_covered_or_why_not() -> None:
    assert len(ROWS) > 60
    assert {row.how for row in ROWS.values()} == set(HOW)
    assert all(row.rules for row in ROWS.values() if row.how == "rules")


def test_every_covered_row_is_tried() -> None:
    covered = {name for name, row in ROWS.items() if row.how != "left out"}
    assert covered - UNSAID == set(CASES)


@pytest.mark.parametrize(("name", "case"), FLAT)
def test_the_named_rules_unite_both_sides(name: str, case: Case) -> None:
    row = ROWS[name]
    assert united(case, named(row.rules) if row.how == "rules" else [])
    if row.how == "rules":
        assert not united(case, [])


@pytest.mark.parametrize(("name", "case"), FLAT)
def test_both_sides_give_the_same(name: str, case: Case) -> None:
    values = (*case.inputs, *case.constants)
    left, right = listed(case.left(*values)), listed(case.right(*values))
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
