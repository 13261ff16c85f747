"""Steps in which the conditions of rules meet: siblings, and layers spelled in their parts."""

from __future__ import annotations

import torch

from .pool import Pool


def siblings(g: Pool) -> str:
    """Projections of one value, with and without biases, used together."""
    x = g.pick(lambda v: v.is_floating_point() and v.ndim >= 2 and v.numel() > 0)
    k, dtype = g.of(x).shape[-1], g.of(x).dtype
    sizes = [g.rng.choice((2, 2, 3))] * g.rng.randint(2, 5) if g.rng.random() < 0.6 else (2, 3, 4)
    parts: list[str] = []
    for n in sizes:
        w = g.tensor((n, k), dtype, "parameter")
        bias = f", {g.tensor((n,), dtype, 'parameter')}" if g.rng.random() < 0.5 else ""
        parts.append(f"F.linear({x}, {w}{bias})")
        if g.rng.random() < 0.2:
            parts[-1] = f"{x} @ {g.tensor((k, n), dtype, 'parameter')}"
    if len(set(sizes)) == 1 and g.rng.random() < 0.5:
        function = g.rng.choice(("torch.sigmoid", "torch.tanh", "F.silu", ""))
        return f"{function}({parts[0]}) * " + " + ".join(parts[1:])
    return f"torch.cat(({', '.join(parts)}), -1)"


def attended(g: Pool) -> str:
    """Attention in its parts, in many spellings of scale, mask and heads."""
    b, h, n, m = g.batch, 2, g.rng.choice((3, 4)), g.rng.choice((3, 4, 16, 17))
    ndim = g.rng.choice((4, 4, 3, 2))
    batch = (b, h)[: ndim - 2]
    q, k, v = g.tensor((*batch, n, 4)), g.tensor((*batch, m, 4)), g.tensor((*batch, m, 4))
    scale = g.choice("", " * 0.5", " / 2", " / 2 ** 0.5", " * 0.7", " / 3.0", " * 1.5")
    inner = g.choice("", "", "", " * 0.5", " / 2")
    scores = (
        f"({q}{inner}) @ {g.choice(k, k, f'({k} * 0.5)')}.{g.choice('mT', 'transpose(-2, -1)')}"
    )
    shape = g.rng.choice(
        ((n, m), (1, m), (m,), (*batch, n, m), (*batch[:1], *(1,) * (ndim - 3), 1, m))
    )
    kind = g.rng.choice(
        ("none", "none", "add", "add", "where", "fill", "causal", "two", "late", "bool")
    )
    mask, hidden = g.tensor(shape), g.tensor(shape, torch.bool)
    causal = f"torch.ones({n}, {m}, dtype=torch.bool).tril()"
    low = g.choice("float('-inf')", "-1e30", "-1e9", "-3e38")
    scaled = f"({scores}){scale}"
    if kind == "add":
        scaled = f"({scaled} + {mask})"
    elif kind == "two":
        scaled = f"({scaled} + {mask} + {g.tensor(shape)})"
    elif kind == "late":
        scaled = f"(({scores} + {mask}){scale})"
    elif kind == "where":
        scaled = f"torch.where({hidden}, {scaled}, {low})"
    elif kind == "fill":
        scaled = f"({scaled}).masked_fill({hidden}, {low})"
    elif kind == "causal":
        scaled = f"({scaled}).masked_fill(~{causal}, {low})"
    elif kind == "bool":
        made = f"torch.zeros({n}, {m}, dtype={g.dtype}).masked_fill(~{causal}, {low})"
        scaled = f"({scaled} + {made})"
    plain = f"torch.softmax({scaled}, -1)"
    if kind in ("where", "fill"):  # rows hidden whole: in its parts their softmax is 0 / 0
        return f"{plain} @ {v}"
    weights = g.choice(
        plain,
        plain,
        f"F.softmax({scaled}, -1, dtype=torch.float64).to({g.dtype})",
        f"(lambda e: e / e.sum(-1, keepdim=True))(torch.exp({scaled}))",
        f"(lambda s: torch.softmax(s - s.amax(-1, True), -1))({scaled})",
    )
    return g.choice(
        f"{weights} @ {v}",
        f"{weights} @ {v}",
        f"({weights} @ {v})[..., -1:, :]",
        f"(lambda e: (e @ {v}) / e.sum(-1, True))(torch.exp({scaled}))",
    )


def grouped(g: Pool) -> str:
    """Attention of the product's own kind: with masks, groups of heads, and scaled operands."""
    q, k, v = (g.tensor((g.batch, h, n, 4)) for h, n in ((4, 3), (2, 5), (2, 5)))
    many = f".unsqueeze(2).expand(-1, -1, 2, -1, -1).reshape({g.batch}, 4, 5, 4)"
    twice = ".repeat_interleave(2, 1)"
    full = g.tensor((g.batch, 4, 5, 4))
    return g.choice(
        f"F.scaled_dot_product_attention({q}, {k}, {v}, enable_gqa=True)",
        f"F.scaled_dot_product_attention({q}, {k}{many}, {v}{many})",
        f"F.scaled_dot_product_attention({q}, {k}{twice}, {v}{twice})",
        f"F.scaled_dot_product_attention({q} * 0.5, {full}, {full}, {g.tensor((3, 5))}, scale=0.2)",
        f"F.scaled_dot_product_attention({q}, {full} * 2, {full}, {g.tensor((3, 5))})",
        f"F.scaled_dot_product_attention({q}, {full} / 2, {full}, {g.tensor((3, 5), torch.bool)})",
        f"F.scaled_dot_product_attention({q} / 2, {full}, {full} * 0.5)",
        f"F.scaled_dot_product_attention({q}, {full}, {full}, enable_gqa=True)[:, 1:3]",
    )


def normed(g: Pool) -> str:
    """Norms in their parts, with weights, in a wider dtype."""
    x = g.full()
    n, dtype = g.of(x).shape[-1], g.of(x).dtype
    w, b = g.tensor((n,), dtype), g.tensor((n,), dtype)
    y = g.choice(x, x, f"{x}.double()", f"({x} + {b})", f"({x} * 2)")
    e = g.choice("1e-5", "1e-3", "0.1")
    text = g.choice(
        f"(lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + {e}))({y})",
        f"(lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + {e}))({y})",
        f"(lambda x: x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + {e}))({y})",
        f"(lambda c: c * torch.rsqrt((c * c).mean(-1, True) + {e}))({y} - {y}.mean(-1, True))",
        f"(lambda c: c / torch.sqrt(c.pow(2).mean(-1, True) + {e}))({y} - {y}.mean(-1, True))",
        f"F.layer_norm({y}, ({n},), eps={e})",
        f"F.rms_norm({y}, ({n},), eps={e})",
    )
    back = f".to({dtype})" if "double" in y else ""
    return g.choice(f"({text}){back}", f"({text}){back} * {w}", f"({text}){back} * {w} + {b}")


SPELLED = (
    (siblings, 3),
    (attended, 4),
    (grouped, 1),
    (normed, 2),
)
