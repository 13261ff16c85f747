"""Claims about device profiles and the price of one call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._dynamo.source import ConstantSource
from torch._inductor import config
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.flop_counter import conv_flop_count

from eqsat.cost import Device, known, load
from eqsat.cost.additive import Call, Estimate, price, total
from eqsat.cost.figure import DTYPES, FIGURES
from eqsat.cost.profile import ClassFit, Fit, find, parse, render
from eqsat.kind import Kind

NAMES = ("a100", "cpu", "h100", "h200", "l4", "l40s", "mi300x", "rtx4090", "t4")
DEVICES = tuple(load(name) for name in NAMES)
H200, CPU = load("h200"), load("cpu")
F32, BF16 = torch.float32, torch.bfloat16
FREE = (Kind.SCALAR, Kind.LEAF, Kind.VIEW)
PROFILE = """
schema = 1
name = "mine"
match = ["My Card"]
[compute]
fp32 = 10.0
bf16 = 40.0
efficiency = 0.5
sms = 20
[memory]
dram_gbs = 500.0
dram_efficiency = 0.8
l2_mb = 4.0
[launch]
stream = 4.0
graph = 1.0
base = 10.0
[source]
memory.dram_gbs = "a stopwatch"
"""

device = st.sampled_from(DEVICES)
dtype = st.sampled_from((torch.float64, F32, BF16, torch.float16))
size = st.integers(1, 5000)


@dataclass(frozen=True)
class Meta:
    shape: tuple[Any, ...]
    dtype: torch.dtype = F32


def matmul(a: tuple[int, ...], b: tuple[int, ...], dtype: torch.dtype = F32) -> Call:
    out = torch.empty(a, device="meta") @ torch.empty(b, device="meta")
    metas = (Meta(a, dtype), Meta(b, dtype))
    return Call("matmul", Kind.MATMUL, metas, Meta(tuple(out.shape), dtype))


def affine(m: int, k: int, n: int, dtype: torch.dtype = F32) -> Call:
    metas = (Meta((m, k), dtype), Meta((k, n), dtype), Meta((n,), dtype))
    return Call("affine", Kind.MATMUL, metas, Meta((m, n), dtype))


def simple(kind: Kind, *shape: int, inputs: int = 1) -> Call:
    return Call("op", kind, tuple(Meta(shape) for _ in range(inputs)), Meta(shape))


def convolution(
    x: tuple[int, ...], w: tuple[int, ...], groups: int = 1, *, transposed: bool = False
) -> Call:
    spatial = len(x) - 2
    ones, zeros = [1] * spatial, [0] * spatial
    out = torch.ops.aten.convolution(
        torch.empty(x, device="meta"), torch.empty(w, device="meta"), None,
        ones, zeros, ones, transposed, zeros, groups,
    )  # fmt: skip
    attributes = (tuple(ones), tuple(zeros), tuple(ones), transposed, tuple(zeros), groups)
    metas = (Meta(x), Meta(w))
    return Call("convolution", Kind.CONVOLUTION, metas, Meta(tuple(out.shape)), attributes)


def attention(heads: int, length: int, keys: int, width: int, *, mask: bool = False) -> Call:
    q, k = Meta((2, heads, length, width), BF16), Meta((2, heads, keys, width), BF16)
    extra = (Meta((length, keys), BF16),) if mask else ()
    return Call("attention", Kind.ATTENTION, (q, k, k, *extra), q)


def seconds(*calls: Call, on: Device = H200) -> float:
    return total(price(call, on) for call in calls).seconds


def check(shapes: Any, make: Any, on: Device) -> None:
    """Time and bytes of `make(*sizes)` rise when any one of the sizes grows by one."""
    for position in range(len(shapes)):
        grown = tuple(s + (i == position) for i, s in enumerate(shapes))
        before, after = price(make(*shapes), on), price(make(*grown), on)
        assert before.seconds < after.seconds
        assert before.bytes < after.bytes


# devices


def test_every_promised_profile_is_shipped() -> None:
    assert known() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_sane_and_have_a_source(name: str) -> None:
    one = load(name)
    assert one.name == name
    assert 1e10 <= one.bandwidth <= 1e13
    assert 0.5 < one.bandwidth_share <= 1
    assert 0.5 < one.flops_share <= 1
    assert 1e6 <= one.l2 <= 1e9
    assert 1 <= one.sms <= 1000
    assert 0 < one.graph_launch <= one.stream_launch <= one.base < 1e-3
    assert set(one.flops) <= set(DTYPES)
    assert all(1e10 <= peak <= 1e16 for peak in one.flops.values())
    order = [one.flops[key] for key in ("fp32", "tf32", "bf16", "fp8") if key in one.flops]
    assert order == sorted(order)
    figures = set(find(name).figures)
    assert set(one.sources) == figures
    assert all(one.sources.values())
    assert set(one.unconfirmed) <= figures
    needed = {"memory.l2_gbs", "memory.strided_efficiency", "compute.pointwise", "compute.exp"}
    assert needed <= figures <= set(FIGURES)
    assert find(name).description
    assert one.l2_bandwidth is not None
    assert one.l2_bandwidth > one.bandwidth * one.bandwidth_share


@pytest.mark.parametrize("name", NAMES)
def test_a_rendered_profile_reads_the_same(name: str) -> None:
    profile = find(name)
    fit = Fit("2026-11-30", "2.13.0", 70, 1.1, 1.2, {"strided copy": ClassFit(4, 1.3, 1.4)})
    for one in (profile, replace(profile, fit=fit), replace(profile, description='a "b" \\ c')):
        assert parse(render(one), "again") == one


def test_figures_that_torch_has_wrong_are_the_datasheets() -> None:
    assert load("h200").peak(BF16) == 989e12
    assert load("l4").bandwidth == 300e9
    assert load("h100").peak(F32) == 67e12


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla T4", "t4"),
        ("AMD Instinct MI300X", "mi300x"),
        ("H200", "h200"),
    ],
)
def test_the_name_that_torch_reports_finds_the_profile(reported: str, name: str) -> None:
    assert load(reported).name == name


@pytest.mark.parametrize("name", ["v100", "NVIDIA H100 PCIe", "NVIDIA L40", "NVIDIA", ""])
def test_a_card_with_other_figures_is_refused_with_the_known_names(name: str) -> None:
    with pytest.raises(ValueError, match=r"no device profile.*a100, cpu, h100"):
        load(name)


def test_a_cpu_freezes_weights_where_inductor_does() -> None:
    with config.patch(freezing=True):
        assert load("cpu") == replace(CPU, freezing=True)
        assert load("h200") == H200
    assert not load("cpu").freezing


def test_a_profile_is_read_from_a_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE)
    mine = load(path)
    assert mine == load(str(path))
    assert (mine.name, mine.match, mine.sms) == ("mine", ("My Card",), 20)
    assert (mine.bandwidth, mine.l2) == (500e9, 4 * 2**20)
    assert (mine.launch(), mine.launch("graph"), mine.base) == pytest.approx((4e-6, 1e-6, 1e-5))
    assert mine.sources == {"memory.dram_gbs": "a stopwatch"}
    assert mine.sustained_flops(BF16) == 20e12
    hash(mine)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("dram_gbs = 500.0\n", "", "memory.dram_gbs"),
        ("fp32 = 10.0\n", "", "compute.fp32"),
        ("fp32 = 10.0", "fp32 = -1.0", "compute.fp32"),
        ("fp32 = 10.0", "fp23 = 10.0", "compute.fp23"),
        ("fp32 = 10.0", 'fp32 = "fast"', "compute.fp32"),
        ("stream = 4.0", "stream = nan", "launch.stream"),
        ("stream = 4.0", "stream = true", "launch.stream"),
        ("dram_efficiency = 0.8", "dram_efficiency = 80", "memory.dram_efficiency"),
        ("sms = 20", "sms = 20.5", "compute.sms"),
        ("[launch]", "[lunch]", "lunch"),
        ("schema = 1", "schema = 2", "schema"),
        ('name = "mine"', "", "name"),
        ('match = ["My Card"]', 'match = "My Card"', "match"),
        ("schema = 1", "schema =", "not TOML"),
        ("l2_mb = 4.0", "l2_mb = 4.0\nl2_gbs = -1", "memory.l2_gbs"),
        ("l2_mb = 4.0", "l2_mb = 4.0\nstrided_efficiency = 2", "memory.strided_efficiency"),
        ("[launch]", "[gemm]\nhalf_q = 1\n[launch]", "gemm.half_q"),
        ("schema = 1", 'schema = 1\nunconfirmed = ["memory.size"]', "memory.size"),
        ('memory.dram_gbs = "a', 'memory.size = "a', "memory.size"),
        ("[launch]", "[fit]\ndate = '2026-11-30'\n[launch]", "fit"),
    ],
)
def test_a_malformed_file_is_refused_by_file_and_key(
    tmp_path: Path, old: str, new: str, key: str
) -> None:
    assert old in PROFILE
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE.replace(old, new, 1))
    with pytest.raises(ValueError, match=key) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused_by_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.toml"):
        load(tmp_path / "nowhere.toml")


def test_figures_that_a_profile_leaves_out_have_a_default(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE)
    mine = load(path)
    assert mine.sustained_bandwidth(1) == mine.sustained_bandwidth() == 400e9
    assert mine.strided_share == 0.5
    assert mine.arithmetic(5e12, 0) == 1
    assert mine.arithmetic(0, 5e12) == 8


def test_what_fits_the_last_cache_moves_faster() -> None:
    assert H200.sustained_bandwidth() == pytest.approx(4.32e12)
    assert H200.sustained_bandwidth(1e6) == pytest.approx(8e12, rel=1e-3)
    rates = [H200.sustained_bandwidth(mb * 1e6) for mb in (1, 10, 50, 100, 1000)]
    assert rates == sorted(rates, reverse=True)


def test_a_dtype_without_units_computes_in_a_wider_one() -> None:
    t4, a100 = load("t4"), load("a100")
    assert t4.peak(BF16) == t4.peak(F32) == 8.1e12
    assert a100.peak(torch.float8_e4m3fn) == a100.peak(torch.float16)
    assert a100.peak(torch.int64) == a100.peak(F32)
    assert H200.peak(torch.float8_e5m2) == 1979e12


def test_float32_products_do_not_run_at_the_tf32_peak() -> None:
    assert H200.peak(F32) == H200.flops["fp32"] < H200.flops["tf32"]


# kinds


@pytest.mark.parametrize("kind", FREE)
def test_leaves_numbers_and_views_are_free(kind: Kind) -> None:
    assert price(simple(kind, 1000, 1000), H200) == Estimate()


def test_a_call_that_makes_a_number_is_free() -> None:
    assert price(Call("op", Kind.OPAQUE, (Meta((10,)),), 3), H200) == Estimate()


@pytest.mark.parametrize("on", DEVICES, ids=NAMES)
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in FREE])
def test_everything_else_is_one_kernel_and_costs_time(kind: Kind, on: Device) -> None:
    special = {
        Kind.MATMUL: matmul((1, 1), (1, 1)),
        Kind.CONVOLUTION: convolution((1, 1, 1), (1, 1, 1)),
        Kind.ATTENTION: attention(1, 1, 1, 1),
    }
    estimate = price(special.get(kind, simple(kind, 1)), on)
    assert estimate.seconds > 0
    assert estimate.kernels == 1
    assert estimate.bytes > 0


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in FREE])
def test_an_empty_result_costs_a_launch_at_most(kind: Kind) -> None:
    estimate = price(Call("op", kind, (Meta((0, 5)), Meta((5, 3))), Meta((0, 3))), H200)
    assert 0 < estimate.seconds <= H200.stream_launch
    assert (estimate.kernels, estimate.bytes, estimate.flops) == (1, 0, 0)


def test_an_empty_contraction_only_writes() -> None:
    estimate = price(matmul((3, 0), (0, 5)), H200)
    assert (estimate.bytes, estimate.flops) == (60, 0)


def test_a_graph_launch_is_cheaper_than_a_stream_launch() -> None:
    call = simple(Kind.REDUCTION, 10)
    saved = price(call, H200).seconds - price(call, H200, "graph").seconds
    assert saved == pytest.approx(3.5e-6)


def test_fusible_operators_are_charged_half() -> None:
    fused, alone = simple(Kind.POINTWISE, 1 << 24), simple(Kind.OPAQUE, 1 << 24)
    assert seconds(fused) == pytest.approx(seconds(alone) / 2)


def test_bytes_are_inputs_and_output() -> None:
    assert price(simple(Kind.POINTWISE, 10, inputs=2), H200).bytes == 120
    assert price(simple(Kind.CREATION, 10, inputs=2), H200).bytes == 40
    assert price(simple(Kind.CAT, 10), H200).bytes == 80
    scalar = Call("op", Kind.POINTWISE, (Meta((10,)), 2.0), Meta((10,)))
    assert price(scalar, H200).bytes == 80
    pair = Call("op", Kind.OPAQUE, (Meta((10,)),), (Meta((4,)), Meta((2,), BF16)))
    assert price(pair, H200).bytes == 40 + 16 + 4


def test_an_input_that_is_passed_twice_is_read_once() -> None:
    twice = simple(Kind.POINTWISE, 10, inputs=2)
    once = Call(twice.operator, twice.kind, twice.inputs, twice.output, distinct=(0,))
    assert price(once, H200).bytes == 80


def test_a_gather_reads_of_its_source_what_it_writes() -> None:
    indices = Meta((7,), torch.int64)
    call = Call("embedding", Kind.GATHER, (Meta((50000, 16)), indices), Meta((7, 16)))
    assert price(call, H200).bytes == 2 * 7 * 16 * 4 + 7 * 8


def test_total_adds_every_figure() -> None:
    parts = [price(simple(Kind.CAT, n), H200) for n in (1, 10, 100)]
    whole = total(parts)
    assert whole.seconds == pytest.approx(sum(part.seconds for part in parts))
    assert (whole.kernels, whole.bytes) == (3, 888)
    assert total(()) == Estimate()


def test_symbolic_sizes_are_priced_at_their_hint() -> None:
    env = ShapeEnv()
    symbol = env.create_symbol(6, ConstantSource("n"))
    hinted = env.create_symintnode(symbol, hint=6)
    unknown = env.create_unbacked_symint()
    call = Call("op", Kind.POINTWISE, (Meta((hinted, 5)),), Meta((hinted, 5)))
    assert price(call, H200) == price(simple(Kind.POINTWISE, 6, 5), H200)
    assert price(Call("op", Kind.POINTWISE, (), Meta((unknown,))), H200).bytes == 4 * 8192
    assert not env.guards


# products


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 5), (5, 7)),
        ((2, 3, 5), (5, 7)),
        ((2, 3, 5), (2, 5, 7)),
        ((3, 5), (2, 5, 7)),
        ((4, 1, 3, 5), (2, 5, 7)),
        ((5,), (5, 7)),
        ((5,), (2, 5, 7)),
        ((3, 5), (5,)),
        ((5,), (5,)),
    ],
)
def test_matmul_flops_are_those_torch_counts(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left = torch.empty(a, device="meta").expand(a)
    out = left @ torch.empty(b, device="meta")
    assert price(matmul(a, b), H200).flops == 2 * out.numel() * a[-1]


def test_convolution_flops_are_those_torch_counts() -> None:
    for x, w, groups, transposed in [
        ((2, 6, 9, 10), (8, 6, 3, 2), 1, False),
        ((2, 6, 9, 10), (8, 3, 3, 2), 2, False),
        ((2, 6, 9), (6, 1, 3), 6, False),
        ((2, 6, 9, 10), (6, 4, 3, 2), 1, True),
    ]:
        call = convolution(x, w, groups, transposed=transposed)
        dense = conv_flop_count(list(x), list(w), list(call.output.shape), transposed=transposed)
        assert price(call, H200).flops == dense


def test_grouped_transposed_convolution_multiplies_every_input_by_its_group() -> None:
    call = convolution((2, 6, 9), (6, 4, 3), 2, transposed=True)
    assert price(call, H200).flops == 2 * (2 * 6 * 9) * 4 * 3


def test_attention_keeps_its_scores_out_of_memory() -> None:
    plain, masked = attention(4, 100, 50, 16), attention(4, 100, 50, 16, mask=True)
    estimate = price(plain, H200)
    assert estimate.flops == 4 * 2 * 4 * 100 * 50 * 16
    assert estimate.bytes == 2 * (2 * 2 * 4 * 100 * 16 + 2 * 2 * 4 * 50 * 16)
    assert price(masked, H200).bytes == estimate.bytes + 2 * 100 * 50


def test_operands_that_a_kind_cannot_have_are_refused() -> None:
    out = Meta((3, 3))
    with pytest.raises(ValueError, match="needs 2 tensors"):
        price(Call("matmul", Kind.MATMUL, (Meta((3, 3)), 2.0), out), H200)
    with pytest.raises(ValueError, match="vectors or matrices"):
        price(Call("matmul", Kind.MATMUL, (Meta(()), Meta((3,))), out), H200)
    with pytest.raises(ValueError, match="attributes"):
        price(Call("convolution", Kind.CONVOLUTION, (out, Meta((3, 3, 3))), out), H200)


@pytest.mark.parametrize("on", DEVICES, ids=NAMES)
def test_a_large_product_runs_near_the_sustained_peak(on: Device) -> None:
    estimate = price(matmul((8192, 8192), (8192, 8192)), on)
    rate = estimate.flops / (estimate.seconds - on.stream_launch)
    assert 0.9 < rate / on.sustained_flops(F32) <= 1


@given(device, dtype, st.integers(2, 50), size, size, size)
def test_rows_that_share_a_matrix_are_one_product(
    on: Device, dtype: torch.dtype, b: int, m: int, k: int, n: int
) -> None:
    shared = price(matmul((b, m, k), (k, n), dtype), on)
    assert shared == price(matmul((b * m, k), (k, n), dtype), on)
    assert shared.seconds < price(matmul((b, m, k), (b, k, n), dtype), on).seconds


def test_many_small_products_waste_more_than_a_large_one() -> None:
    small, large = matmul((1024, 64, 1024), (1024, 1024, 64)), matmul((2048, 1024), (1024, 2048))
    assert price(small, H200).flops == price(large, H200).flops
    t4 = load("t4")
    assert seconds(small, on=t4) > 1.1 * seconds(large, on=t4)


@given(device, st.sampled_from((F32, BF16)), size, size)
def test_matrix_times_vector_waits_for_memory(
    on: Device, dtype: torch.dtype, m: int, k: int
) -> None:
    for call in (matmul((m, k), (k, 1), dtype), matmul((1, m), (m, k), dtype)):
        estimate = price(call, on)
        memory = estimate.bytes / on.sustained_bandwidth()
        assert estimate.seconds == pytest.approx(on.stream_launch + memory)


@given(device, size, size, size)
def test_pointwise_time_grows_with_shape(on: Device, a: int, b: int, c: int) -> None:
    check((a, b, c), lambda *shape: simple(Kind.POINTWISE, *shape, inputs=2), on)


@given(device, dtype, size, size, size)
def test_product_time_grows_with_shape(
    on: Device, dtype: torch.dtype, m: int, k: int, n: int
) -> None:
    check((m, k, n), lambda m, k, n: matmul((m, k), (k, n), dtype), on)
    check((m, k, n), lambda m, k, n: affine(m, k, n, dtype), on)


@given(device, st.integers(1, 64), size, size, st.integers(1, 256))
def test_attention_time_grows_with_shape(on: Device, h: int, n: int, s: int, e: int) -> None:
    check((h, n, s, e), attention, on)


@given(device, st.integers(1, 64), st.integers(1, 300), st.integers(1, 300), st.integers(5, 100))
def test_convolution_time_grows_with_shape(on: Device, b: int, c: int, o: int, n: int) -> None:
    check((b, c, o, n), lambda b, c, o, n: convolution((b, c, n, n), (o, c, 3, 3)), on)


@given(device, dtype, size, size, st.lists(size, min_size=2, max_size=4))
def test_a_merged_product_never_costs_more(
    on: Device, dtype: torch.dtype, m: int, k: int, widths: list[int]
) -> None:
    n = sum(widths)
    assert seconds(matmul((m, k), (k, n), dtype), on=on) <= seconds(
        *(matmul((m, k), (k, w), dtype) for w in widths), on=on
    )
    assert seconds(affine(m, k, n, dtype), on=on) <= seconds(
        *(affine(m, k, w, dtype) for w in widths), on=on
    )
    assert seconds(matmul((n, k), (k, m), dtype), on=on) <= seconds(
        *(matmul((w, k), (k, m), dtype) for w in widths), on=on
    )
    assert seconds(matmul((m, n), (n, k), dtype), on=on) <= seconds(
        *(matmul((m, w), (w, k), dtype) for w in widths), on=on
    )


@given(device, dtype, st.integers(1, 64), st.lists(st.integers(1, 64), min_size=2, max_size=3))
def test_a_batched_product_never_costs_more_than_its_parts(
    on: Device, dtype: torch.dtype, m: int, batches: list[int]
) -> None:
    b = sum(batches)
    assert seconds(matmul((b, m, 40), (b, 40, 30), dtype), on=on) <= seconds(
        *(matmul((part, m, 40), (part, 40, 30), dtype) for part in batches), on=on
    )


@given(device, st.integers(1, 64), st.lists(st.integers(1, 300), min_size=2, max_size=3))
def test_a_merged_convolution_never_costs_more(on: Device, b: int, widths: list[int]) -> None:
    merged = convolution((b, 16, 20, 20), (sum(widths), 16, 3, 3))
    parts = [convolution((b, 16, 20, 20), (w, 16, 3, 3)) for w in widths]
    assert seconds(merged, on=on) <= seconds(*parts, on=on)


# rewrites that the price must rank


@given(device, dtype, *[st.integers(64, 5000)] * 3, st.integers(1, 4))
def test_vector_last_is_multiplied_first(
    on: Device, dtype: torch.dtype, m: int, k: int, n: int, columns: int
) -> None:
    products_first = (matmul((m, k), (k, n), dtype), matmul((m, n), (n, columns), dtype))
    vectors_first = (matmul((k, n), (n, columns), dtype), matmul((m, k), (k, columns), dtype))
    if columns * k < m * n:
        assert seconds(*vectors_first, on=on) < seconds(*products_first, on=on)


@given(device, dtype, size, size, size, st.integers(1, 64))
def test_a_folded_adapter_is_cheaper(
    on: Device, dtype: torch.dtype, m: int, k: int, n: int, rank: int
) -> None:
    folded = matmul((m, k), (k, n), dtype)
    out = Meta((m, n), dtype)
    low_rank = (matmul((m, k), (k, rank), dtype), matmul((m, rank), (rank, n), dtype))
    add = Call("add", Kind.POINTWISE, (out, out), out)
    assert seconds(folded, on=on) < seconds(folded, *low_rank, add, on=on)


@given(device, dtype, st.integers(2, 5000), size, size, st.data())
def test_rows_are_cut_before_a_product(
    on: Device, dtype: torch.dtype, m: int, k: int, n: int, data: st.DataObject
) -> None:
    kept = data.draw(st.integers(1, m - 1))
    cut = Call("slice", Kind.VIEW, (Meta((m, k), dtype),), Meta((kept, k), dtype))
    before = seconds(cut, matmul((kept, k), (k, n), dtype), on=on)
    assert before < seconds(matmul((m, k), (k, n), dtype), cut, on=on)


@given(device, size, size)
def test_fewer_operators_are_cheaper(on: Device, m: int, n: int) -> None:
    one = simple(Kind.POINTWISE, m, n)
    assert seconds(one, on=on) < seconds(one, one, on=on)


@given(device, size, size, size)
def test_adding_weights_beats_adding_products(on: Device, m: int, k: int, n: int) -> None:
    product = matmul((m, k), (k, n))
    add_weights = simple(Kind.POINTWISE, k, n, inputs=2)
    add_products = simple(Kind.POINTWISE, m, n, inputs=2)
    factored = seconds(add_weights, product, on=on)
    if k <= m:
        assert factored < seconds(product, product, add_products, on=on)


def test_prices_do_not_depend_on_the_metas_identity() -> None:
    shared = Meta((64, 64))
    alike = (Meta((64, 64)), Meta((64, 64)))
    calls = [Call("op", Kind.POINTWISE, metas, shared) for metas in ((shared, shared), alike)]
    assert price(calls[0], H200) == price(calls[1], H200)
