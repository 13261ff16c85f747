"""Steps that networks are made of: norms, reductions, images, tables and writes."""

from __future__ import annotations

import torch

from .pool import Pool


def norm(g: Pool) -> str:
    x = g.full()
    v = g.of(x)
    dtype = v.dtype
    n = v.shape[-1]
    w, b = g.tensor((n,), dtype), g.tensor((n,), dtype)
    d = g.dim(x)
    c = f"({x} - {x}.mean(-1, keepdim=True))"
    return g.choice(
        f"F.layer_norm({x}, ({n},), {w}, {b}, 1e-5)",
        f"F.layer_norm({x}, ({n},), {w})",
        f"F.layer_norm({x}, ({n},)) * {w} + {b}",
        f"F.layer_norm({x}, {tuple(v.shape[-2:])})",
        f"F.rms_norm({x}, ({n},), {w}, 1e-6)",
        f"F.rms_norm({x}, ({n},))",
        f"{x} * torch.rsqrt({x}.pow(2).mean(-1, keepdim=True) + 1e-3) * {w}",
        f"{c} * torch.rsqrt(({c} * {c}).mean(-1, keepdim=True) + 1e-3)",
        f"{c} / torch.sqrt({x}.var(-1, keepdim=True, unbiased=False) + 1e-3) * {w} + {b}",
        f"torch.softmax({x}, {d})",
        f"torch.log_softmax({x}, {d})",
        f"torch.exp({x}) / torch.exp({x}).sum({d}, keepdim=True)",
        f"torch.softmax({x} - {x}.amax({d}, keepdim=True), {d})",
        f"F.softmax({x}, {d}, dtype=torch.float64).to({v.dtype})",
        f"F.normalize({x}, dim={d})",
    )


def reduce(g: Pool) -> str:
    x = g.pick(lambda v: v.ndim > 0)
    d = g.dim(x)
    keep = g.rng.choice(("True", "False"))
    name = g.rng.choice(("sum", "mean", "amax", "amin", "sum", "mean", "logsumexp", "prod", "var"))
    if g.of(x).ndim > 1 and name not in ("prod",) and g.rng.random() < 0.4:
        e = g.rng.choice([i for i in range(g.of(x).ndim) if i != d % g.of(x).ndim])
        if g.rng.random() < 0.3:
            return f"{x}.{name}({d}, keepdim=True).{name}({e}, keepdim={keep})"
        return f"{x}.{name}(({d}, {e}), keepdim={keep})"
    factor = g.tensor([1 if i == d % g.of(x).ndim else n for i, n in enumerate(g.of(x).shape)])
    return g.choice(
        f"{x}.{name}({d}, keepdim={keep})",
        f"{x}.{name}({d}, keepdim={keep})",
        f"{x}.sum()",
        f"{x}.mean()",
        f"({x} * {factor}).sum({d}, keepdim=True)",
        f"({x} * {g.number()}).mean({d})",
        f"{x}.cumsum({d})",
        f"{x}.argmax({d})",
        f"{x}.any({d})",
        f"{x}.sum({d}) / {g.of(x).shape[d]}",
        f"{x}.max({d}).values",
        f"{x}.sort({d}).values",
        f"{x}.sum({d}, dtype=torch.float64)",
    )


def image(g: Pool) -> str:
    found = [n for n, v in g.values.items() if v.ndim == 4 and v.is_floating_point() and v.numel()]
    x = g.rng.choice(found) if found and g.rng.random() < 0.8 else g.tensor((g.batch, 4, 6, 6))
    v = g.of(x)
    dtype = v.dtype
    c = v.shape[1]
    groups = g.rng.choice([k for k in (1, 1, 1, 2, c) if c % k == 0])
    out = groups * g.rng.choice((1, 2, 3))
    k = g.rng.choice((1, 1, 2, 3))
    w, b = g.tensor((out, c // groups, k, k), dtype, "parameter"), g.tensor((out,), dtype)
    stride, padding, dilation = (g.rng.choice(c) for c in ((1, 1, 2), (0, 1, 0), (1, 1, 2)))
    geometry = f"stride={stride}, padding={padding}, dilation={dilation}, groups={groups}"
    fixed = "False, 0.1, 1e-3"
    conv = f"F.conv2d({x}, {w}, {g.rng.choice((b, 'None'))}, {geometry})"
    w2 = g.tensor((3, c, k, k), dtype, "parameter")
    s = g.tensor((out, 1, 1), dtype)
    means = ", ".join(g.tensor((out,), dtype) for _ in range(1))
    m = g.tensor((c,), dtype)
    pool = g.rng.choice(
        (
            "F.avg_pool2d({}, 2)",
            "F.avg_pool2d({}, 2, 1, 1)",
            "F.avg_pool2d({}, 3, 2, 1, count_include_pad=False)",
            "F.avg_pool2d({}, 2, ceil_mode=True)",
            "F.adaptive_avg_pool2d({}, 1)",
            "F.adaptive_avg_pool2d({}, (2, 3))",
            "F.max_pool2d({}, 2)",
            "{}.mean((2, 3), keepdim=True)",
            "{}.mean((-1, -2))",
            "F.interpolate({}, scale_factor=2)",
            "F.interpolate({}, size=(5, 4), mode='bilinear')",
            "F.pad({}, (1, 1, 0, 1))",
        )
    )
    return g.choice(
        conv,
        conv,
        pool.format(x),
        pool.format(conv),
        f"F.conv2d({pool.format(x)}, {w2})",
        f"F.batch_norm({conv}, {means}, {g.tensor((out,), dtype)} ** 2 + 1, {b}, {b}, {fixed})",
        f"F.batch_norm({x}, {m}, {g.tensor((c,), dtype)} ** 2 + 1, None, None, {fixed})",
        f"{conv} * {s} + {s}",
        f"{conv} * {g.number()}",
        f"F.conv2d({x} * 2, {w}, {b}, {geometry})",
        f"torch.cat((F.conv2d({x}, {w2}), F.conv2d({x}, {g.tensor((2, c, k, k), dtype)})), 1)",
        f"F.conv2d({x}, {w2}) + F.conv2d({x}, {g.tensor((3, c, k, k), dtype)})",
        f"F.conv_transpose2d({x}, {g.tensor((c, 2, k, k), dtype)}, stride=2) * 2",
        f"F.group_norm({x}, {groups})",
        f"F.conv2d({x}, {w}, {b}, {geometry})[0]",
        f"F.conv1d({x}[0], {g.tensor((3, v.shape[2], 2), dtype)}, padding=1)",
    )


def gather(g: Pool) -> str:
    n = g.rng.choice((3, 5))
    w = g.tensor((n, 4), fresh="parameter")
    i = (
        g.tensor((g.batch, 3), torch.int64, "input")
        if g.rng.random() < 0.5
        else g.tensor((3,), torch.int64)
    )
    i = i if bool((g.of(i) >= 0).all() and (g.of(i) < n).all()) else f"{i}.clamp(0, 2)"
    return g.choice(
        f"F.embedding({i}, {w})",
        f"F.embedding({i}, {w})[0]",
        f"F.embedding({i}, {w})[..., 1:3]",
        f"{w}[{i}]",
        f"{w}.index_select(0, {i}.reshape(-1))",
        f"F.embedding({i}, {w}) @ {g.tensor((4, 2))}",
    )


def write(g: Pool) -> str:
    """A step that changes a value in place."""
    x = g.real()
    y = g.beside(x)
    buffers = [
        leaf.name
        for leaf in g.leaves
        if leaf.kind == "buffer" and g.of(leaf.name).is_floating_point()
    ]
    target = g.rng.choice(buffers) if buffers and g.rng.random() < 0.6 else x
    ops = (
        f"$ = {x}.clone().add_({y})",
        f"$ = {x}.clone().mul_(2).relu_()",
        f"$ = {target}.add_(1)",
        f"$ = {target}.mul_(0.5)",
        f"{target}.add_(0.25); $ = {target} * 2",
        f"{target}.copy_({target} * 0.5 + 1); $ = {target} + {x}"
        if target != x
        else f"$ = {x}.clone().zero_()",
    )
    return g.rng.choice(ops)


LAYERS = (
    (norm, 4),
    (reduce, 5),
    (image, 3),
    (gather, 1),
    (write, 0.5),
)
