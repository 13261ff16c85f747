"""Steps that multiply matrices."""

from __future__ import annotations

import torch

from .pool import Pool


def product(g: Pool) -> str:
    x = g.real(1)
    v = g.of(x)
    k, n = v.shape[-1], g.rng.choice((2, 3, 4, 6, 1))
    dtype = v.dtype
    w = g.tensor((k, n), dtype)
    t = g.tensor((n, k), dtype)
    b = g.tensor((n,), dtype)
    u = g.tensor((k, g.rng.choice((n, 5))), dtype)
    texts = [
        f"{x} @ {w}",
        f"F.linear({x}, {t})",
        f"F.linear({x}, {t}, {b})",
        f"({x} @ {w} + {b})",
        f"{x} @ {g.tensor((k,), dtype)}",
        f"{x} * {g.number()} @ {w}",
        f"({x} @ {w}) * {g.number()} + {b}",
        f"({x} + {g.tensor((k,), dtype)}) @ {w}",
        f"({x} * {g.tensor((k,), dtype)}) @ {w} * {b}",
        f"({x} @ {w}) @ {g.tensor((n, 2), dtype)}",
        f"{x} @ {w} + {x} @ {g.tensor((k, n), dtype)}",
        f"torch.cat((F.linear({x}, {t}, {b}), {x} @ {u}), -1)",
        f"F.linear({x}, {t}, {b}) * torch.sigmoid({x} @ {g.tensor((k, n), dtype)})",
        f"F.linear({x}, {t}, {b}) * {b} + {b}",
    ]
    if v.ndim >= 2:
        texts += [
            f"{x}.mT @ {x}",
            f"{x} @ {x}.mT",
            f"{g.tensor((3, v.shape[-2]), dtype)} @ {x}",
            f"({x} @ {w}).mT",
            f"({x} @ {w}) * {g.tensor((v.shape[-2], 1), dtype)}",
            f"({x} @ {w}).mean(-2)",
            f"({x} @ {w}).sum(-1, True)",
            f"({x} @ {w})[..., {g.rng.choice(('0', ':1', '1:'))}]",
            f"({x} @ {w}).softmax(-1) @ {g.tensor((n, 3), dtype)}",
            f"{x} @ {g.tensor((*v.shape[:-2], k, n), dtype)}",
        ]
    if v.ndim == 2:
        texts += [
            f"torch.addmm({b}, {x}, {w})",
            f"torch.addmm({b}, {x}, {w}, beta=0.5, alpha=2.0)",
            f"torch.addmm({g.tensor((v.shape[0], n), dtype)}, {x}, {w})",
            f"torch.mm({x}, {w})",
            f"torch.mv({x}, {g.tensor((k,), dtype)})",
        ]
    if v.ndim == 3:
        y = g.tensor((v.shape[0], k, n), dtype)
        z = g.tensor((v.shape[0], v.shape[1], n), dtype)
        texts += [f"torch.bmm({x}, {y})", f"torch.baddbmm({z}, {x}, {y})"]
        texts += [
            f"torch.baddbmm({b}, {x}, {y}, beta=2)",
            f"torch.einsum('bij,bjk->bki', {x}, {y})",
        ]
    return g.rng.choice(texts)


def heads(g: Pool) -> str:
    """Attention, in one of its spellings."""
    ndim = g.rng.choice((3, 4, 2))
    batch = (g.batch, 2)[: ndim - 2]
    rows, keys = g.rng.choice((3, 4)), g.rng.choice((3, 4, 17))
    q, k, v = (g.tensor((*batch, n, 4)) for n in (rows, keys, keys))
    k = k if g.rng.random() < 0.5 else f"({g.tensor((*batch, keys, 4))} * 0.5)"
    shape = g.rng.choice(((rows, keys), (1, keys), (*batch, rows, keys), (keys,)))
    m = g.tensor(shape)
    c = g.tensor(shape, torch.bool)
    s = g.rng.choice(("* 0.5", "/ 2", "/ 3.0", "* 1.5", ""))
    scores = f"{q} @ {k}.mT"
    one = f"torch.tril(torch.ones({rows}, {keys}, dtype=torch.bool))"
    texts = (
        f"torch.softmax({scores} {s}, -1) @ {v}",
        f"torch.softmax(({scores}) {s} + {m}, -1) @ {v}",
        f"torch.softmax(({scores} + {m}) {s}, -1) @ {v}",
        f"torch.softmax(({q} {s}) @ {k}.mT, -1) @ {v}",
        f"torch.softmax((({scores}) {s}).masked_fill({c}, -1e30), -1) @ {v}",
        f"torch.softmax((({scores}) {s}).masked_fill(~{one}, -1e9), -1) @ {v}",
        f"torch.softmax(({scores}) {s} + {m} + {g.tensor((rows, keys))}, -1) @ {v}",
        f"torch.softmax(({scores}).float(), -1).to({g.dtype}) @ {v}",
        f"F.scaled_dot_product_attention({q}, {k}, {v})",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, scale=0.3)",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={m})",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={one})",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, is_causal=True)",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, is_causal=True)[..., -1:, :]",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={m})[..., 1:, :]",
        f"F.scaled_dot_product_attention({q} * 0.5, {k}, {v})",
        f"F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={m}, scale=0.2)[0]",
    )
    return g.rng.choice(texts)


def layers(g: Pool) -> str:
    """Projections of one value, split into heads."""
    x = g.pick(lambda v: v.is_floating_point() and v.ndim == 3 and v.numel() > 0)
    b, n, k = g.of(x).shape
    dtype = g.of(x).dtype
    w = [g.tensor((4, k), dtype, "parameter") for _ in range(3)]
    c = [g.tensor((4,), dtype, "parameter") for _ in range(3)]
    biased = g.rng.choice(((1, 1, 1), (0, 0, 0), (1, 0, 1), (0, 0, 1)))
    q, r, v = (
        f"F.linear({x}, {w[i]}{f', {c[i]}' * biased[i]}).view({b}, {n}, 2, 2).transpose(1, 2)"
        for i in range(3)
    )
    call = g.rng.choice(
        (
            f"F.scaled_dot_product_attention({q}, {r}, {v})",
            f"(torch.softmax({q} @ {r}.mT / 2 ** 0.5, -1) @ {v})",
            f"(torch.softmax({q} @ {r}.mT, -1) @ {v})",
        )
    )
    return f"{call}.transpose(1, 2).reshape({b}, {n}, 4)"


PRODUCTS = (
    (product, 8),
    (heads, 2),
    (layers, 2),
)
