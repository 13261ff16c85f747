"""Steps that move, cut and join elements."""

from __future__ import annotations

from .pool import Pool


def reshape(g: Pool) -> str:
    x = g.pick(lambda v: v.ndim > 0)
    v = g.of(x)
    shape = list(v.shape)
    kind = g.rng.choice(("merge", "split", "flat", "squeeze", "unsqueeze", "shuffle", "flatten"))
    if kind == "merge" and v.ndim > 1:
        d = g.rng.randrange(v.ndim - 1)
        return f"{x}.reshape({(*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :])})"
    if kind == "split":
        d = g.rng.randrange(v.ndim)
        factors = [k for k in (1, 2, 3, 4) if shape[d] % k == 0]
        k = g.rng.choice(factors)
        a, b = (k, shape[d] // k) if g.rng.random() < 0.5 else (shape[d] // k, k)
        return f"{x}.reshape({(*shape[:d], a, b, *shape[d + 1 :])})"
    if kind == "flatten" and v.ndim > 1:
        return f"{x}.flatten({g.rng.randrange(v.ndim - 1)})"
    if kind == "squeeze":
        return f"{x}.squeeze({g.dim(x)})" if g.rng.random() < 0.5 else f"{x}.squeeze()"
    if kind == "unsqueeze" and v.ndim < 5:
        return f"{x}.unsqueeze({g.dim(x)})"
    if kind == "shuffle":
        g.rng.shuffle(shape)
        return f"{x}.reshape({tuple(shape)})"
    return f"{x}.reshape(-1)"


def permute(g: Pool) -> str:
    x = g.pick(lambda v: v.ndim > 1)
    v = g.of(x)
    dims = list(range(v.ndim))
    g.rng.shuffle(dims)
    return g.choice(
        f"{x}.permute({tuple(dims)})",
        f"{x}.mT",
        f"{x}.transpose({g.dim(x)}, {g.dim(x)})",
        f"{x}.permute({tuple(dims)}).contiguous()",
        f"{x}.movedim({g.dim(x)}, {g.dim(x)})",
    )


def expand(g: Pool) -> str:
    x = g.pick()
    shape = [g.rng.choice((2, 3)) if n == 1 else n for n in g.of(x).shape]
    if g.rng.random() < 0.4 and len(shape) < 4:
        shape = [g.rng.choice((1, 2, 3)), *shape]
    return g.choice(
        f"{x}.expand({tuple(shape)})",
        f"{x}.unsqueeze(-1).expand({(*shape[-g.of(x).ndim :], 3) if g.of(x).ndim else (3,)})",
    )


def cut(g: Pool) -> str:
    x = g.pick(lambda v: v.ndim > 0 and 0 not in v.shape)
    d = g.dim(x)
    n = g.of(x).shape[d]
    lead = ":, " * (d % g.of(x).ndim)
    a = g.rng.randint(0, n)
    b = g.rng.randint(a, n)
    k = g.rng.randint(1, n)
    return g.choice(
        f"{x}[{lead}{a}:{b}]",
        f"{x}[{lead}{a}:]",
        f"{x}[{lead}:-1]",
        f"{x}[{lead}::{g.rng.choice((2, 3))}]",
        f"{x}[{lead}{a}:{b}:2]",
        f"{x}.select({d}, {g.rng.randrange(n)})",
        f"{x}[..., -1]",
        f"{x}.narrow({d}, {min(a, n - 1)}, 1)",
        f"{x}.chunk(2, {d})[{g.rng.randrange(1)}]",
        f"{x}.split({k}, {d})[-1]",
        f"{x}.unbind({d})[{g.rng.randrange(n)}]",
        f"torch.flip({x}, ({d},))",
        f"{x}.roll(1, {d})",
        f"{x}.tril()" if g.of(x).ndim > 1 else f"{x}[{lead}-2:]",
    )


def parts(g: Pool) -> str:
    """A split whose parts are treated alike or not and put together."""
    x = g.full()
    d = g.dim(x)
    n = g.of(x).shape[d]
    a = g.rng.randint(1, max(n - 1, 1))
    split = f"{x}.split(({a}, {n - a}), {d})"
    return g.choice(
        f"(lambda p: torch.cat((p[1], p[0]), {d}))({split})",
        f"(lambda p: torch.cat((torch.relu(p[0]), torch.relu(p[1])), {d}))({split})",
        f"(lambda p: torch.cat((p[0], p[1]), {d}))({split})",
        f"(lambda p: torch.cat((-p[1], p[0]), {d}) * {g.number()})({split})",
        f"(lambda p: torch.cat((p[0] * 2, p[1] + 1), {d}))({split})",
        f"torch.stack({x}.unbind({d}), {d})",
        f"(lambda p: torch.stack(p[::-1], {d}))({x}.unbind({d}))",
        f"(lambda p: p[0].sum({d}, True) + p[1].sum({d}, True))({split})",
    )


def join(g: Pool) -> str:
    x = g.pick(lambda v: v.ndim > 0)
    d = g.dim(x)
    dtype = g.of(x).dtype
    shape = list(g.of(x).shape)
    others = []
    for _ in range(g.rng.randint(1, 3)):
        shape[d] = g.rng.choice((g.of(x).shape[d], 1, 2))
        others.append(g.tensor(shape, dtype))
    names = [x, *others]
    g.rng.shuffle(names)
    if g.rng.random() < 0.2:
        return f"torch.stack(({x}, {g.tensor(g.of(x).shape, dtype)}, {x}), {d})"
    text = f"torch.cat(({', '.join(names)}), {d})"
    if g.rng.random() < 0.4:
        total = sum(g.of(n).shape[d] for n in names)
        a = g.rng.randint(0, total)
        b = g.rng.randint(a, total)
        lead = ":, " * (d % len(shape))
        step = g.rng.choice(("", ":2", ":1"))
        return f"{text}[{lead}{a}:{b}{step}]"
    return text


VIEWS = (
    (reshape, 5),
    (permute, 5),
    (expand, 3),
    (cut, 6),
    (parts, 3),
    (join, 5),
)
