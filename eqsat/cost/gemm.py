"""The seconds of the multiplications of matrix products on a GPU or a CPU."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch

from eqsat.cost.device import Device
from eqsat.cost.kernel import Product


class Tile(NamedTuple):
    """A block of the product that one multiprocessor computes, and its share of the plateau."""

    m: int
    n: int
    efficiency: float


# Priors, to be fitted on a card. With them an H200 runs 8192^3 in bf16 at 780 TFLOP/s (measured:
# 769-798) and does not run a matrix by a vector in tiles of 128 rows.
TILES = (
    Tile(256, 128, 1.0),
    Tile(128, 128, 0.95),
    Tile(128, 64, 0.85),
    Tile(64, 64, 0.7),
    Tile(64, 32, 0.5),
    Tile(32, 32, 0.35),
    Tile(64, 16, 0.3),
    Tile(16, 64, 0.3),
    Tile(16, 16, 0.15),
)
SPLITS = (1, 2, 4, 8, 16)
"""Into how many parts a deep product may be split over k."""
SPLIT_DEPTH = 128
"""The least k of such a part."""
PROLOGUE = 64
"""The k that filling and draining the pipeline of a tile is worth."""
EDGE = 4
"""Rows or columns of a border tile outside the product: half of 8, the least of a tensor core."""
IDLE_TILE = 64 * 64
"""Elements of the tile whose half-empty last wave every product pays for."""


def product_seconds(
    product: Product,
    dtype: torch.dtype,
    device: Device,
    times: float = 1.0,
    convolution: bool = False,
) -> float:
    """The seconds of `product`, done so many `times`: no launch, and operands at hand.

    With `convolution` it is the implicit product of one.

    They grow with every dimension, and one product takes at most `device.graph_launch` more than
    its parts, however it is cut.
    """
    if min(product) <= 0 or times <= 0:
        return 0.0
    rate = device.sustained_flops(dtype, convolution) / times
    if device.backend == "cpp":
        return _saturating(product, device) / rate
    least = _smooth(product, device.sms) / rate
    # Whole waves of whole tiles are what a library runs, and are not what is best for every shape:
    # where the last wave is almost empty, two launches would be faster than one. Taken as they
    # are, waves would promise that gain to a program that cuts its products to fit.
    return max(least, min(_waves(product, device.sms) / rate, least + device.graph_launch))


def least_seconds(
    product: Product, dtype: torch.dtype, device: Device, convolution: bool = False
) -> float:
    """The seconds of `product` that no choice of tiles can beat; those of its parts are no less."""
    return _smooth(product, device.sms) / device.sustained_flops(dtype, convolution)


def _saturating(product: Product, device: Device) -> float:
    """FLOPs that a CPU core could do in the time: a smooth rise in m, n and k."""
    half_m, half_n, half_k = device.gemm_half
    batch, m, n, k = product
    return 2 * batch * (m + half_m) * (n + half_n) * (k + half_k)


@lru_cache(maxsize=4096)  # networks repeat their layers
def _waves(product: Product, sms: int) -> float:
    """FLOPs that all multiprocessors could do in the whole waves of the best tile and split."""
    batch, m, n, k = product
    best = math.inf
    for tile in TILES:
        tiles = batch * math.ceil(m / tile.m) * math.ceil(n / tile.n)
        area = 2 * tile.m * tile.n * sms / tile.efficiency
        for split in SPLITS:
            # A part is never deeper for a longer k alone: the time does not fall at a threshold.
            depth = max(min(k, SPLIT_DEPTH), k / split)
            best = min(best, math.ceil(tiles * split / sms) * area * (depth + PROLOGUE))
    return best


def _smooth(product: Product, sms: int) -> float:
    """FLOPs that the device could do in the time that no tiling can beat.

    What is lost is a border of half-empty tiles and, once, half of the last wave of small tiles.
    The form is concave in each of batch, m and n and not negative at 0: the parts of a product are
    never cheaper than the whole.
    """
    batch, m, n, k = product
    area = batch * (m * n + EDGE * (m + n))
    depth = max(min(k, SPLIT_DEPTH), k / SPLITS[-1])
    idle = (sms - 1) / 2 * IDLE_TILE * depth
    return 2 * (area * k + min(area * k, idle))
