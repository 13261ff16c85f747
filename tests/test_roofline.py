"""Claims about the seconds of kernels and of the programs that they make up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from eqsat.cost.device import MODES, Device, Mode, known, load
from eqsat.cost.gemm import product_seconds
from eqsat.cost.kernel import Kernel, Product
from eqsat.cost.roofline import seconds, time

F32, BF16 = torch.float32, torch.bfloat16
DEVICES = tuple(load(name) for name in known())
GPUS = tuple(one for one in DEVICES if one.backend == "triton")
H200, CPU = load("h200"), load("cpu")
SLACK = 1 + 1e-9  # for sums of floats in another order

device = st.sampled_from(DEVICES)
dtype = st.sampled_from((torch.float64, F32, BF16, torch.float16, torch.int8))
mode = st.sampled_from(MODES)
size = st.one_of(st.integers(1, 300), st.integers(1, 20_000))
small = st.integers(1, 64)


def gemm(b: int, m: int, n: int, k: int, dtype: torch.dtype = BF16, factor: int = 1) -> Kernel:
    """An extern kernel of batched products; of an attention, with two products of a size, for 2."""
    product = Product(b, m, n, k)
    read, written = b * (m * k + k * n) * dtype.itemsize, b * m * n * dtype.itemsize
    return Kernel(
        "extern", ("bmm",), ("bmm",), read, written, factor * product.flops(), b * m * n, 1, dtype,
        product,
    )  # fmt: skip


def generated(
    numel: int, rnumel: int = 1, inputs: int = 1, work: int = 1, exp: int = 0, strided: bool = False
) -> Kernel:
    """A pointwise kernel, or a reduction of rows of `rnumel`, in float32."""
    read, written = 4 * inputs * numel * rnumel, 4 * numel
    return Kernel(
        "pointwise" if rnumel == 1 else "reduction", ("exp",), ("exp",), read, written, 0, numel,
        rnumel, F32, work=work * numel * rnumel, transcendental=exp * numel * rnumel,
        strided=read if strided else 0,
    )  # fmt: skip


OTHERS = (generated(10**6), gemm(1, 512, 512, 512))


def check_grows(make: Callable[..., Kernel], sizes: tuple[int, ...], on: Device) -> None:
    """A program with the kernel never gets faster when one size grows, by one or by much."""
    for position in range(len(sizes)):
        for step in (1, sizes[position], 1000):
            grown = tuple(s + step * (i == position) for i, s in enumerate(sizes))
            for how in MODES:
                before = time((*OTHERS, make(*sizes)), on, how).seconds
                assert before <= time((*OTHERS, make(*grown)), on, how).seconds * SLACK


def check_whole(whole: Kernel, *parts: Kernel, on: Device) -> None:
    """A program with the kernel is never slower than one with its parts instead."""
    assert sum(part.bytes for part in parts) >= whole.bytes
    for others in ((), OTHERS):
        for how in MODES:
            merged = time((*others, whole), on, how).seconds
            assert merged <= time((*others, *parts), on, how).seconds * SLACK


@given(device, dtype, small, size, size, size, st.integers(1, 2))
def test_time_of_products_grows_with_shape(
    on: Device, dtype: torch.dtype, b: int, m: int, n: int, k: int, factor: int
) -> None:
    check_grows(lambda b, m, n, k: gemm(b, m, n, k, dtype, factor), (b, m, n, k), on)


@given(device, size, size, small, small, small, st.booleans())
def test_time_of_generated_kernels_grows_with_shape(
    on: Device, n: int, r: int, inputs: int, work: int, exp: int, strided: bool
) -> None:
    check_grows(lambda *sizes: generated(*sizes, strided=strided), (n, r, inputs, work, exp), on)


@given(device, dtype, st.tuples(small, size, size, size), st.integers(0, 3), st.data())
def test_a_product_never_costs_more_than_its_parts(
    on: Device, dtype: torch.dtype, shape: tuple[int, ...], axis: int, data: st.DataObject
) -> None:
    sizes, factor = list(shape), data.draw(st.integers(1, 2))
    sizes[axis] += 1
    cut = data.draw(st.integers(1, sizes[axis] - 1))
    first, second = list(sizes), list(sizes)
    first[axis], second[axis] = cut, sizes[axis] - cut
    whole, *parts = (gemm(*shape, dtype, factor) for shape in (sizes, first, second))
    check_whole(whole, *parts, on=on)


@given(st.sampled_from(GPUS), st.integers(1, 40), st.integers(1, 40), st.integers(1, 64))
def test_a_product_cut_where_its_last_wave_begins_gains_nothing(
    on: Device, waves: int, columns: int, k: int
) -> None:
    rows, n, depth = 256 * waves * on.sms, 128 * columns, 256 * k
    whole = gemm(1, rows + 1, n, depth)
    check_whole(whole, gemm(1, rows, n, depth), gemm(1, 1, n, depth), on=on)


@given(device, st.integers(2, 10**8), small, small, small, st.data())
def test_a_pointwise_kernel_never_costs_more_than_its_parts(
    on: Device, n: int, inputs: int, work: int, exp: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, n - 1))
    whole = generated(n, 1, inputs, work, exp)
    halves = (generated(cut, 1, inputs, work, exp), generated(n - cut, 1, inputs, work, exp))
    check_whole(whole, *halves, on=on)
    early = data.draw(st.integers(0, work))
    through_memory = (generated(n, 1, inputs, early, exp), generated(n, 1, 1, work - early, 0))
    check_whole(whole, *through_memory, on=on)


@given(device, st.integers(2, 5000), st.integers(2, 5000), small, st.data())
def test_a_reduction_never_costs_more_than_its_parts(
    on: Device, n: int, r: int, work: int, data: st.DataObject
) -> None:
    rows, columns = data.draw(st.integers(1, n - 1)), data.draw(st.integers(1, r - 1))
    whole = generated(n, r, 1, work)
    check_whole(whole, generated(rows, r, 1, work), generated(n - rows, r, 1, work), on=on)
    check_whole(whole, generated(n, columns, 1, work), generated(n, r - columns, 1, work), on=on)


@given(device, dtype, mode, small, size, size, size)
def test_seconds_are_finite_and_at_least_a_launch(
    on: Device, dtype: torch.dtype, how: Mode, b: int, m: int, n: int, k: int
) -> None:
    for kernel in (gemm(b, m, n, k, dtype), generated(m, n), gemm(b, 0, n, k, dtype)):
        one = seconds(kernel, on, how)
        assert math.isfinite(one)
        assert one >= on.launch(how)


@given(device, mode, st.permutations(range(4)))
def test_order_does_not_matter(on: Device, how: Mode, order: list[int]) -> None:
    kernels = (*OTHERS, generated(1000, 50), gemm(3, 100, 70, 50))
    one, other = time(kernels, on, how), time([kernels[i] for i in order], on, how)
    assert other.seconds == one.seconds
    assert other.kernels == tuple(one.kernels[i] for i in order)
    assert other.bounds == tuple(one.bounds[i] for i in order)


def test_a_program_on_a_stream_takes_what_its_slower_side_takes() -> None:
    tiny = [generated(10)] * 100
    one = time(tiny, H200, "stream")
    assert one.host == pytest.approx(100 * H200.stream_launch)
    assert one.seconds == pytest.approx(H200.base + one.host)
    assert one.device < one.host
    large = time([generated(10**9)] * 100, H200, "stream")
    assert large.seconds == pytest.approx(H200.base + large.device)
    assert large.device == pytest.approx(sum(large.kernels))
    assert large.device > large.host


def test_a_cuda_graph_pays_the_gaps_alone() -> None:
    one = time([generated(10)] * 100, H200, "graph")
    assert one.host == 0
    assert one.seconds == pytest.approx(H200.base + 100 * H200.graph_launch, rel=1e-3)
    assert set(one.bounds) == {"launch"}


def test_an_empty_program_costs_the_base_of_a_call() -> None:
    assert time((), H200).seconds == H200.base


def test_bounds_say_what_takes_the_time() -> None:
    kernels = (
        gemm(1, 8192, 8192, 8192),
        generated(10**8),
        generated(10**8, exp=200),
        gemm(1, 1, 1, 1),
    )
    assert time(kernels, H200).bounds == ("compute", "memory", "compute", "launch")


@pytest.mark.parametrize("on", DEVICES, ids=lambda one: one.name)
def test_an_unknown_library_call_waits_for_memory(on: Device) -> None:
    call = Kernel("extern", ("sort",), ("sort",), 10**9, 10**9, 0, 10**9, 1, F32)
    one = time((call,), on)
    assert one.bounds == ("memory",)
    assert one.kernels[0] == pytest.approx(2e9 / on.sustained_bandwidth(), rel=0.01)


def test_strided_bytes_move_slower() -> None:
    even, strided = generated(10**8), generated(10**8, strided=True)
    extra = seconds(strided, H200, "graph") / seconds(even, H200, "graph")
    assert extra == pytest.approx(1.5, rel=0.01)  # half of the bytes at half of the bandwidth


def test_what_a_program_reads_again_comes_from_the_cache_if_it_all_fits() -> None:
    kernel = generated(2**20)
    alone, among = time([kernel], H200).kernels[0], time([kernel] * 100, H200).kernels[0]
    gap = H200.graph_launch
    assert (among - gap) / (alone - gap) == pytest.approx(8 / 4.32, rel=0.05)


# products on a GPU


def rate(product: Product, on: Device = H200) -> float:
    """TFLOP/s of a bf16 product without its launch."""
    return product.flops() / product_seconds(product, BF16, on) / 1e12


def test_large_products_run_as_measured_on_an_h200() -> None:
    assert 769 <= rate(Product(1, 8192, 8192, 8192)) <= 798


def test_small_products_do_not_fill_an_h200() -> None:
    assert rate(Product(1, 512, 512, 512)) == pytest.approx(440, rel=0.05)
    assert rate(Product(1, 64, 64, 64)) < 10


def test_one_tile_more_than_a_wave_costs_a_jump() -> None:
    full, more, again = (
        product_seconds(Product(1, 256 * tiles, 128, 1024), BF16, H200) for tiles in (132, 133, 134)
    )
    assert more > 1.08 * full
    assert again < 1.01 * more
    assert rate(Product(1, 256 * 132, 128, 1024)) > 1.08 * rate(Product(1, 256 * 133, 128, 1024))


def test_a_deep_product_is_split_over_k() -> None:
    deep = rate(Product(1, 128, 128, 65536))
    assert deep > 3 * H200.sustained_flops(BF16) / H200.sms / 1e12


@pytest.mark.parametrize("on", GPUS, ids=lambda one: one.name)
def test_vector_last_is_multiplied_first(on: Device) -> None:
    left = [gemm(1, 512, 512, 512), gemm(1, 512, 1, 512)]
    right = [gemm(1, 512, 1, 512), gemm(1, 512, 1, 512)]
    assert time(right, on, "graph").seconds < time(left, on, "graph").seconds


def test_float32_products_run_without_tf32() -> None:
    product = Product(1, 4096, 4096, 4096)
    assert product_seconds(product, F32, H200) > 6 * product_seconds(product, BF16, H200)


def test_attention_does_twice_the_work_of_its_scores() -> None:
    once = replace(gemm(64, 2048, 2048, 128), written=0)
    gap = H200.graph_launch
    pair = [seconds(replace(once, flops=n * once.flops), H200, "graph") - gap for n in (1, 2)]
    assert pair[1] == pytest.approx(2 * pair[0], rel=0.02)


# products on a CPU


def test_a_cpu_reaches_half_of_its_speed_at_the_half_sizes() -> None:
    on = replace(CPU, gemm_half=(4.0, 8.0, 16.0))
    best = 2 * 2.0**60 / on.sustained_flops(F32)
    large = 2**20
    assert product_seconds(Product(1, large, large, large), F32, on) == pytest.approx(
        best, rel=1e-4
    )
    for axis, half in enumerate((4, 8, 16)):
        sizes = [large] * 3
        sizes[axis] = half
        product = Product(1, *sizes)
        ideal = product.flops() / on.sustained_flops(F32)
        assert product_seconds(product, F32, on) == pytest.approx(2 * ideal, rel=1e-3)


def test_a_convolution_in_float32_runs_in_tf32_where_there_is_one() -> None:
    product = Product(1, 4096, 512, 4608)
    full = product_seconds(product, F32, H200)
    assert product_seconds(product, F32, H200, convolution=True) < full / 4
    assert product_seconds(product, F32, load("t4"), convolution=True) == product_seconds(
        product, F32, load("t4")
    )
