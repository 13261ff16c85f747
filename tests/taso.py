"""The rules of TASO, in the numbering of TENSAT's files, each written anew as two programs."""

# ruff: noqa: E501 - a rule is one line where it can be
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import add, mul
from typing import Any

import torch

from rewrites.conv import enlarged
from rewrites.taso import in_pairs

SIZES = dict(zip("abcdhijkmnopquw", (3, 2, 4, 6, 7, 3, 1, 3, 2, 5, 10, 7, 11, 8, 5), strict=True))
"""What a letter of a shape stands for: no two dims of a tensor have one size but where they must."""
PARAMETERS = "uvw"
"""Variables of these names are parameters, the others inputs."""


@dataclass(frozen=True)
class Law:
    """One rule: `sides` gives both sides (tuples, where they are several) of tensors of `shapes`.

    `number` is the line in TENSAT's file of single rules from 0 on; "multi 4" is the fifth rule of
    those of two outputs, "merge" and "enlarge" are those in its source. Where `counter` gives
    shapes, the sides differ there, and are equal only under the `condition`, as with `shapes`.
    """

    number: str
    family: str
    shapes: str
    sides: Callable[..., tuple[Any, Any]]
    condition: str = ""
    counter: str = ""
    text: str = ""  # the law, where the terms are long

    def variables(self, shapes: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The names of the variables, with the shapes they have."""
        parameters = inspect.signature(self.sides).parameters.values()
        names = [p.name for p in parameters if p.default is p.empty]
        for name, letters in zip(names, shapes.split(), strict=True):
            yield name, tuple(SIZES.get(letter) or int(letter) for letter in letters)

    def values(self, shapes: str) -> dict[str, torch.Tensor]:
        """Random tensors of these shapes, the same ones each time."""
        generator = torch.Generator().manual_seed(0)
        return {
            name: torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in self.variables(shapes)
        }


def conv(x: Any, w: Any, stride: int = 1) -> Any:
    """A convolution that keeps the size of the image, in the groups that the channels make."""
    padding, groups = [n // 2 for n in w.shape[2:]], x.shape[1] // w.shape[1]
    return torch.nn.functional.conv2d(x, w, None, stride, padding, 1, groups)


def rows(*parts: Any) -> Any:
    """The parts one after the other."""
    return torch.cat(parts, 0)


def columns(*parts: Any) -> Any:
    """The parts side by side."""
    return torch.cat(parts, 1)


def split(y: Any, dim: int, *parts: Any) -> Any:
    """`y` cut along `dim` into pieces as large as the parts."""
    return torch.split(y, [part.shape[dim] for part in parts], dim)


def relu(*values: Any) -> Any:
    """What is positive of each value."""
    return torch.relu(values[0]) if len(values) == 1 else tuple(map(torch.relu, values))


def linear(*values: Any) -> Any:
    """The values as they are."""
    return values[0] if len(values) == 1 else values


def itself(x: Any) -> Any:
    """The image convolved with itself."""
    return conv(x, x)


def merged(w: Any, groups: int) -> Any:
    """The weight for half as many groups."""
    return in_pairs(w, groups)


def enlarge(v: Any, w: Any) -> Any:
    """`v` with zeros around it, as large as `w`."""
    return enlarged(enlarged(v, w), w)


# fmt: off
def matrices() -> Iterator[Law]:
    """Products of matrices."""
    for number, shapes, sides in (
        (0, "mk kn np", lambda a, b, c: ((a @ b) @ c, a @ (b @ c))),
        (1, "mk kn np pq", lambda a, b, c, d: ((a @ b) @ (c @ d), (a @ (b @ c)) @ d)),
        (3, "mk kn nn", lambda a, b, c: (((a @ b) @ c) @ c, a @ ((b @ c) @ c))),
        (4, "mk kn np pq", lambda a, b, c, d: ((a @ b) @ (c @ d), a @ ((b @ c) @ d))),
        (8, "mk km pm", lambda a, b, c: ((c @ (a @ b)) @ a, c @ (a @ (b @ a)))),
        (9, "mk km", lambda a, b: ((a @ b) @ ((a @ b) @ a), (a @ (b @ a)) @ (b @ a))),
        (10, "mk km pm", lambda a, b, c: ((c @ (a @ b)) @ a, (c @ a) @ (b @ a))),
        (11, "mm mk kn", lambda a, b, c: ((a @ (a @ b)) @ c, a @ (a @ (b @ c)))),
        (12, "mk km mn", lambda a, b, c: ((b @ (a @ b)) @ c, b @ (a @ (b @ c)))),
        (13, "mk kn nm", lambda a, b, c: ((c @ (a @ b)) @ c, c @ (a @ (b @ c)))),
        (15, "mk km mn", lambda a, b, c: ((b @ (a @ b)) @ c, (b @ a) @ (b @ c))),
        (16, "mk kn nm", lambda a, b, c: ((c @ (a @ b)) @ c, (c @ a) @ (b @ c))),
        (17, "mm mk nm", lambda a, b, c: (c @ (a @ (a @ b)), ((c @ a) @ a) @ b)),
        (18, "mk kn km", lambda a, b, c: ((a @ c) @ (a @ b), a @ ((c @ a) @ b))),
        (19, "mk kn nm", lambda a, b, c: ((b @ c) @ (a @ b), b @ ((c @ a) @ b))),
        (20, "mk km nk", lambda a, b, c: (c @ (b @ (a @ b)), ((c @ b) @ a) @ b)),
        ("multi 0", "mk km", lambda a, b: (((a @ b) @ a, b @ (a @ b)), (a @ (b @ a), (b @ a) @ b))),
    ):
        yield Law(str(number), "associativity of products", shapes, sides)
    for number, shapes, sides in (
        (5, "mk kn nn", lambda a, b, c: (a @ b + (a @ b) @ c, a @ (b + b @ c))),
        (6, "mk kk kn", lambda a, b, c: ((a + a @ b) @ c, a @ (c + b @ c))),
        (14, "kk kn np", lambda a, b, c: ((b + a @ b) @ c, b @ c + a @ (b @ c))),
        (21, "mk mk kn", lambda a, b, c: (a @ c + b @ c, (a + b) @ c)),
        (30, "mk kn kn", lambda a, b, c: (a @ b + a @ c, a @ (b + c))),
    ):
        yield Law(str(number), "products are linear", shapes, sides)
    for number, shapes, sides in (
        (2, "mk kn np", lambda a, b, c: (rows(b, a @ b) @ c, rows(b @ c, a @ (b @ c)))),
        (7, "mk kn np", lambda a, b, c: (columns(a @ b, (a @ b) @ c), a @ columns(b, b @ c))),
        (72, "mk kn kp", lambda a, b, c: (columns(a @ b, a @ c), a @ columns(b, c))),
        (73, "mk pk kn", lambda a, b, c: (rows(a @ c, b @ c), rows(a, b) @ c)),
        ("multi 4", "mk kn kp", lambda a, v, w: ((a @ v, a @ w), split(a @ columns(v, w), 1, v, w))),
        ("multi 5", "mk pk kn", lambda a, b, w: ((a @ w, b @ w), split(rows(a, b) @ w, 0, a, b))),
    ):
        yield Law(str(number), "products side by side", shapes, sides)
    for number in (69, 84):
        yield Law(str(number), "a sum of products is a product", "mk mp kn pn",
                  lambda a, b, v, w: (a @ v + b @ w, columns(a, b) @ rows(v, w)))


def elements() -> Iterator[Law]:
    """Sums and products of elements."""
    def twins(plus: int, times: int, family: str, sides: Any) -> Iterator[Law]:
        for number, f in ((plus, add), (times, mul)):
            yield Law(str(number), family, "mk mk mk", sides(f))

    order = "sums and products in any order"
    yield from twins(22, 40, order, lambda f: lambda a, b, c: (f(c, f(c, f(a, b))), f(f(a, c), f(b, c))))
    yield from twins(23, 41, order, lambda f: lambda a, b, c: (f(c, f(a, b)), f(b, f(a, c))))
    yield from twins(24, 42, order, lambda f: lambda a, b, c: (f(f(a, b), f(b, c)), f(b, f(b, f(a, c)))))
    yield from twins(25, 43, order, lambda f: lambda a, b, c: (f(c, f(c, f(a, b))), f(b, f(c, f(a, c)))))
    yield from twins(26, 47, order, lambda f: lambda a, b, c: (f(c, f(c, f(a, b))), f(f(b, c), f(a, c))))
    yield from twins(27, 48, order, lambda f: lambda a, b, c: (f(c, f(a, b)), f(a, f(b, c))))
    yield from twins(28, 50, order, lambda f: lambda a, b, c: (f(f(a, b), f(a, c)), f(a, f(a, f(b, c)))))
    yield from twins(29, 51, order, lambda f: lambda a, b, c: (f(c, f(c, f(a, b))), f(a, f(c, f(b, c)))))
    for number, sides in (
        (35, lambda a, b, c: (a * (b + c), a * b + a * c)),
        (36, lambda a, b, c: (b * (a + c), a * b + b * c)),
        (37, lambda a, b, c: (a * b + c * (a * b), b * (a + a * c))),
        (38, lambda a, b, c: (c * (b + a * b), b * (c + a * c))),
        (39, lambda a, b, c: (c * (a + b), a * c + b * c)),
        (44, lambda a, b, c: (a * b + c * (a * b), a * (b + b * c))),
        (45, lambda a, b, c: (c * (a + a * b), a * (c + b * c))),
        (46, lambda a, b, c: (c * (a + b), b * c + a * c)),
        (49, lambda a, b, c: (c * (b + a * b), b * c + a * (b * c))),
        (56, lambda a, b, c: (a * (b + c), a * c + a * b)),
        (57, lambda a, b, c: (b * (a + c), b * c + a * b)),
    ):
        yield Law(str(number), "products distribute over sums", "mk mk mk", sides)


def selves() -> Iterator[Law]:
    """Convolutions of an image with itself, which no model has."""
    for f, act, first, shapes in (
        (add, linear, (31, 33), "bchw bchw bchw"),
        (add, relu, (32, 34), "bchw bchw bchw"),
        (mul, linear, (52, 54), "bchw bchw bchw"),
        (mul, relu, (53, 55), "bchw bchw bchw"),
        (columns, linear, (98, 100, 85), "bchw bdhw bohw"),
        (columns, relu, (99, 101, 86), "bchw bdhw bohw"),
    ):
        def sides(order: Any, f: Any, act: Any) -> Any:
            return lambda a, b, c: (act(itself(f(c, f(a, b)))), act(itself(order(f, a, b, c))))

        orders = (
            lambda f, a, b, c: f(b, f(a, c)),
            lambda f, a, b, c: f(a, f(b, c)),
            lambda f, a, b, c: f(a, f(c, b)),
        )
        for number, order in zip(first, orders, strict=False):
            yield Law(str(number), "an image convolved with itself", shapes, sides(order, f, act))


def cats() -> Iterator[Law]:
    """Functions of elements across cats, and cats across cats."""
    for number, multi, join, dim, shapes in (
        (66, 3, columns, 1, "mk mn"),
        (74, 6, rows, 0, "mk nk"),
        (87, 7, columns, 1, "bchw bdhw"),
        (109, 10, rows, 0, "bchw achw"),
    ):
        def across(a: Any, b: Any, join: Any = join) -> Any:
            return join(relu(a), relu(b)), relu(join(a, b))

        def apart(a: Any, b: Any, join: Any = join, dim: int = dim) -> Any:
            return relu(a, b), split(relu(join(a, b)), dim, a, b)

        yield Law(str(number), "relu across cat", shapes, across)
        yield Law(f"multi {multi}", "two relus are one", shapes, apart)
    for number, join, shapes in ((64, columns, "bdhw bchw ocij"), (65, rows, "aohw bchw ocij")):
        def inside(x: Any, y: Any, w: Any, join: Any = join) -> Any:
            return relu(join(x, conv(y, w))), join(relu(x), relu(conv(y, w)))

        yield Law(str(number), "relu across cat", shapes, inside)
    for first, second, join, shape in (
        (67, 70, columns, "mk"),
        (88, 93, columns, "bchw"),
        (110, 112, rows, "bchw"),
    ):
        yield from pairs(first, f"{shape} {shape} {shape}", lambda f, join=join: lambda a, b, c: (
            join(f(a, b), f(b, c)), f(join(a, b), join(b, c))))
        yield from pairs(second, f"{shape} {shape} {shape}", lambda f, join=join: lambda a, b, c: (
            join(f(a, b), f(b, c)), f(join(b, c), join(a, b))))
    for first, x, y, u, v in ((75, 0, 2, 1, 3), (78, 0, 3, 1, 2), (80, 1, 2, 0, 3), (82, 1, 3, 0, 2)):
        def ordered(f: Any, x: int = x, y: int = y, u: int = u, v: int = v) -> Any:
            def both(a: Any, b: Any, c: Any, d: Any) -> Any:
                p = a, b, c, d
                return rows(f(a, b), f(c, d)), f(rows(p[x], p[y]), rows(p[u], p[v]))
            return both

        yield from pairs(first, "mk mk nk nk", ordered)
    yield from pairs(95, "bchw bdhw bchw bdhw", lambda f: lambda a, b, c, d: (
        f(columns(a, b), columns(c, d)), f(columns(c, b), columns(a, d))))
    yield from pairs(102, "bchw achw bchw achw", lambda f: lambda a, b, c, d: (
        f(rows(a, b), rows(c, d)), f(rows(a, d), rows(c, b))))
    yield from pairs(104, "bchw achw bchw achw", lambda f: lambda a, b, c, d: (
        f(rows(a, b), rows(c, d)), f(rows(c, b), rows(a, d))))
    yield Law("77", "cats across cats", "mk mn pk pn", lambda a, b, c, d: (
        rows(columns(a, b), columns(c, d)), columns(rows(a, c), rows(b, d))))
    yield Law("119", "cats across cats", "bchw bchw bchw", lambda a, b, c: (
        rows(columns(a, b), columns(b, c)), columns(rows(a, b), rows(b, c))))


def pairs(first: int, shapes: str, sides: Any) -> Iterator[Law]:
    """A law of sums, and the next one, of products."""
    for number, f in ((first, add), (first + 1, mul)):
        yield Law(str(number), "sums and products across cat", shapes, sides(f))


def convolutions() -> Iterator[Law]:
    """Convolutions of images with weights, which hold whatever the groups."""
    for number, shapes, sides in (
        (58, "bchw ocij ocij", lambda x, v, w: (conv(x, v + w), conv(x, v) + conv(x, w))),
        (59, "bchw bchw ocij", lambda x, y, w: (conv(x + y, w), conv(x, w) + conv(y, w))),
        (60, "bchw ocij ocij", lambda x, v, w: (conv(x, v + w), conv(x, w) + conv(x, v))),
        (61, "bchw bchw ocij", lambda x, y, w: (conv(x + y, w), conv(y, w) + conv(x, w))),
    ):
        yield Law(str(number), "convolutions are bilinear", shapes, sides)
    family = "a convolution that applies relu"
    yield Law("62", family, "bchw ocij", lambda x, w: (relu(conv(x, w)), relu(conv(x, w))))
    yield Law("63", family, "bchw ocij doij", lambda x, v, w: (
        relu(conv(relu(conv(x, v)), w)), relu(conv(relu(conv(x, v)), w))))
    for number in (1, 2):
        yield Law(f"multi {number}", family, "bchw adhw ocij odij", lambda x, y, v, w: (
            relu(conv(x, v), conv(y, w)), relu(conv(x, v), conv(y, w))))
    family = "one weight, images one after the other"
    for number, act in (("106", linear), ("107", relu), ("108", relu)):
        yield Law(number, family, "bchw achw ocij", lambda x, y, w, act=act: (
            rows(act(conv(x, w)), act(conv(y, w))), act(conv(rows(x, y), w))))
    for number, act in (("multi 8", linear), ("multi 9", relu)):
        yield Law(number, family, "bchw achw ocij", lambda x, y, w, act=act: (
            linear(act(conv(x, w)), act(conv(y, w))), split(act(conv(rows(x, y), w)), 0, x, y)))
    for number, stride, act in ((0, 1, linear), (1, 1, relu), (2, 2, linear), (3, 2, relu)):
        text = f"{shown('x ⋆ w', act)} = {shown('x ⋆ merge(w)', act)}{', stride 2' * (stride - 1)}"
        yield Law(f"merge {number}", "half as many groups", "bchw ujij", lambda x, w, stride=stride, act=act: (
            act(conv(x, w, stride)), act(conv(x, merged(w, x.shape[1] // w.shape[1]), stride))),
            "for an even number of groups and finite values", text=text)


def groups() -> Iterator[Law]:
    """Convolutions of images with weights, where groups matter."""
    none, alone = "without groups", "1253 2111 2111"
    family = "one image, weights one after the other"
    for number, act in (("114", linear), ("115", relu), ("116", relu)):
        yield Law(number, family, "bchw ocij dcij", lambda x, v, w, act=act: (
            columns(act(conv(x, v)), act(conv(x, w))), act(conv(x, rows(v, w)))), none, alone)
    for number, act in (("multi 11", linear), ("multi 12", relu)):
        yield Law(number, family, "bchw ocij dcij", lambda x, v, w, act=act: (
            linear(act(conv(x, v)), act(conv(x, w))), pieces(act(conv(x, rows(v, w))), v, w)), none, alone)
    for number, act in (("enlarge 0", linear), ("enlarge 1", relu)):
        text = f"({shown('x ⋆ v', act)}, {shown('x ⋆ w', act)}) = split₁({shown('x ⋆ [enlarge(v), w]₀', act)})"
        yield Law(number, "one image, kernels of two sizes", "bchw ocjj dcii", lambda x, v, w, act=act: (
            linear(act(conv(x, v)), act(conv(x, w))), pieces(act(conv(x, rows(enlarge(v, w), w))), v, w)),
            f"{none}, for kernels of odd size and finite values", "1253 2111 2133", text)
    for number in ("90", "97"):
        yield Law(number, "a sum of convolutions is a convolution", "bchw bdhw ocij odij", lambda x, y, v, w: (
            conv(x, v) + conv(y, w), conv(columns(x, y), columns(v, w))), none, "1253 1253 2111 2111")
    for number, act in (("91", linear), ("92", relu), ("117", linear), ("118", relu)):
        yield Law(number, "two convolutions are one in groups", "bchw bchw ocij ocij", lambda x, y, v, w, act=act: (
            columns(act(conv(x, v)), act(conv(y, w))), act(conv(columns(x, y), rows(v, w)))),
            "for groups of as many channels in both, in and out", "1253 1253 1211 3211")


def pieces(y: Any, v: Any, w: Any) -> Any:
    """The channels of `y` that the weights `v` and `w` make."""
    return torch.split(y, [v.shape[0], w.shape[0]], 1)


def shown(text: str, act: Any) -> str:
    """A convolution as text, with what is applied to it."""
    return f"relu({text})" if act is relu else text


def order(law: Law) -> tuple[int, int]:
    """Where a law stands: single rules first."""
    kind, _, number = law.number.rpartition(" ")
    return ("", "multi", "merge", "enlarge").index(kind), int(number)


LAWS = tuple(sorted((*matrices(), *elements(), *selves(), *cats(), *convolutions(), *groups()), key=order))
