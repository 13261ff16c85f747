"""Steps in which the conditions of several rules meet: constants, broadcasts, siblings, spelled layers."""

from __future__ import annotations

import torch

from .catalogue import maker
from .pool import Pool

KNOWN = (  # values that are, or turn out to be, constants; sizes 1 and 0
    *("{a} * torch.ones_like({a})", "{a} + torch.zeros_like({a})", "torch.zeros_like({a}) * {b}", "{a} - {a}", "{a} * 0.0"),
    *("{a} - {a} + {b}", "({a} > {a}) | {c}", "torch.where({a} == {a}, {a}, {b})", "{a} / {p} * {p}", "({a} + {n}) - {n}"),
    *("torch.full_like({a}, {n}) * {b} + {n}", "torch.full((), {n}, dtype={dtype}) * {a}", "torch.where({c}, {a}, {a})"),
    *("torch.where(torch.ones_like({a}) > 0, {a}, {b})", "torch.where(torch.full((1,), False), {a}, {b})", "{a} ** 1", "{a} / 1"),
    *("torch.full({a}.shape, 2.0, dtype={dtype}) @ {t:4,3}", "torch.zeros(3, 4, dtype={dtype}) @ {t:4,2}", "{a} ** 0"),
    *("{t:3,4} @ torch.eye(4, dtype={dtype})", "{t:3,4} @ torch.full((4, 2), 1.0, dtype={dtype})", "{a} * 1 + 0", "{a} - 0.0"),
    *("torch.cat((torch.zeros(2, 3, dtype={dtype}), torch.zeros(1, 3, dtype={dtype}))) + {t:3}", "{a} + -0.0", "0.0 - {a}"),
    *("torch.cat((torch.ones(2, 3, dtype={dtype}), {t:1,3}))[:2]", "{x}[..., :0].sum(-1)", "{x}[..., :0].sum(-1, True) + {y}"),
    *("torch.cat(({x}[..., :0], {x}), -1)", "torch.cat(({x}, {x}[..., :0]), -1)[..., :1]", "{x}.sum({d}, True).expand({x}.shape)"),
    *("{x}.sum({d}, True).expand_as({x}) * {x}", "{x}.mean({d}, True) + {y}", "{x}[..., :1] * {x}", "{x}[..., :1].expand_as({x}) + {x}"),
    *("{x}[:1].expand_as({x}) * {y}", "{x}.amax({d}, True).expand_as({x}).sum({d})", "{x}[..., :1].expand_as({x})[..., -1:]"),
    *("{t:1,4}.expand(3, 4) @ {t:4,2}", "{t:3,4} @ {t:1,2}.expand(4, 2)", "{t:1,3,4}.expand({B}, 3, 4) @ {t:4,2}"),
    *("{t:B,3,4} @ {t:1,4,2}.expand({B}, 4, 2)", "{t:B,3,4} @ {t:4,2}.expand({B}, 4, 2)", "{t:1,4}.expand(3, 4).expand(2, 3, 4)"),
    *("{t:B,1,4}.expand({B}, 3, 4) + {t:3,4}", "{t:3,1}.expand(3, 4).sin() + {t:3,1}.expand(3, 4)", "{t:3,4}[1].expand(3, 4)"),
    *("{t:B,3,1} @ {t:1,4}", "{t:B,1,3} @ {t:3,4}", "{t:0,4} @ {t:4,3}", "{t:3,0} @ {t:0,2} + {t:2}", "{t:3,4}[:, :0] @ {t:0,2}"),
    *("{t:1,1} * {t:3,4} + {t:1,4}", "{t:3,1} - {t:1,4}", "{x}.reshape({x}.shape).permute(*range({x}.ndim))", "{x} * {x}[:0].sum()"),
)

PROMOTED = (  # bools, integers, numbers and floating-point values of several widths in one expression
    *("{o:3,4} * {t:3,4}", "{o:3,4}.to({dtype}) * {t:3,4}", "{i:3,4} * {t:4}", "({i:3,4} + {i:4}) * {n}", "{i:3,4} / {i:4}.clamp(1, 2)"),
    *("({i:3,4} * 2) * 3", "({i:3,4} + 1) + 2.5", "({i:3,4} * 0.5) * 4", "{i:3,4} * 2 + {i:3,4} * 3", "({i:3,4} - 1) - {i:4}"),
    *("{t:3,4}.float() + {t:4}.double()", "{t:3,4}.float() * torch.full((), 2.0, dtype=torch.float64)", "{t:3,4}.float() * {t:}"),
    *("({t:3,4}.float() * 2).double() + {t:4}", "{t:3,4}.double().float().double()", "{t:3,4}.to(torch.float64).to({dtype})"),
    *("{t:3,4}.float().double() @ {t:4,2}.double()", "({t:3,4}.float() @ {t:4,2}.float()).double()", "{o:3,4}.float().to({dtype})"),
    *("{i:3,4}.to(torch.int32).to(torch.int64)", "{i:3,4}.to(torch.int8).to(torch.int32) * 2", "{i:3,4}.to(torch.uint8).to({dtype})"),
    *("{i:3,4}.to(torch.bool).to(torch.int64)", "{i:3,4}.sum(1) * {n}", "{i:3,4}.sum(1).to(torch.int32)", "{o:3,4}.sum(1) + {i:3}"),
    *("{i:3,4}.mean(1, dtype=torch.float64)", "{o:3,4}.sum(0).sum()", "{i:3,4}.amax(1, True) + {i:3,4}", "({i:3,4} > 1) & {o:3,4}"),
    *("torch.where({o:3,4}, {i:3,4}, {t:4})", "torch.where({o:3,4}, 1, {t:3,4})", "torch.where({o:3,4}, {i:3,4}, 0.5)", "-({i:3,4} * -1)"),
    *("torch.where({o:3,4}, 2.0, 1)", "torch.cat(({i:3,4}.to({dtype}), {t:2,4}))", "torch.cat(({t:3,4}.float(), {t:2,4}.double()))"),
    *("torch.cat(({i:3,4}, {i:2,4})) * 2", "torch.cat(({o:3,4}, {o:2,4})).to({dtype})", "{t:3,4} - {o:3,4}.to({dtype})", "~(~{o:3,4})"),
    *("~~{i:3,4}", "torch.logical_not(torch.logical_not({o:3,4}))", "torch.logical_not(torch.logical_not({i:3,4}))", "{i:3,4}.abs().neg().abs()"),
    *("torch.where(~{o:3,4}, {t:3,4}, {t:4})", "torch.where(torch.logical_not({o:3,4}), {t:3,4}, {t:4})", "{i:3,4} ** 2 - {i:3,4} * {i:3,4}"),
    *("{i:3,4}.to({dtype}) @ {t:4,2}", "{i:3,4} @ {i:4,2}", "({i:3,4} @ {i:4,2}) * 2", "{i:3,4} @ ({i:4,2} + {i:4,2})", "{t:3,4}.softmax(1).to(torch.float32)"),
    *("{t:} * {i:3,4}", "{t:} + {t:3,4}.float()", "{t:}.float() * {t:3,4}", "({t:3,4}.float() + {t:}) * {t:}", "{i:} * {t:3,4}.float()"),
    *("{t:3,4}.float().softmax(-1).to({dtype})", "F.softmax({t:3,4}, -1, dtype=torch.float64).to(torch.float32)", "{t:3,4}.bool() & {o:3,4}"),
)

SCALARS = (  # arithmetic with numbers: associated, distributed, moved through what is linear
    *("({a} + {n}) + {n}", "({a} * {n}) * {n}", "({a} * {n} + {b} * {n}) * 0.5", "({a} - {n}) + {n}", "{a} * 2 + {b} * 2", "{a} / 4 / 0.5"),
    *("({a} * {b}) * 3 + {n}", "-(-{a})", "({a} * -1) * {b}", "-{a} * {b}", "{a} - (-{b})", "{a} + (-{b})", "({a} + {b}) + {b2}", "{a} - {n}"),
    *("({a} * {b}) * {b2}", "{a} + ({b} + {b2})", "{a} * ({b} * {b2})", "{a} * {b} + {a} * {b2}", "({a} + {b}) * {b2}", "{a} * {b} - {b} * {a}"),
    *("{a}.abs().abs()", "(-{a}).abs()", "{a}.relu().relu()", "{a}.floor().floor()", "{a}.round().round()", "{a}.sign().sign()", "{a}.trunc().ceil()"),
    *("{a} ** 2", "{a} ** 3", "{p} ** 0.5", "{p} ** -0.5", "{p} ** -1", "1 / torch.sqrt({p})", "{a} / torch.sqrt({p})", "{a} * (1 / {p})"),
    *("torch.sqrt({p}).reciprocal()", "{a} * {p}.reciprocal()", "{a} * torch.rsqrt({p})", "{p}.pow(2).sqrt()", "{p}.square().rsqrt()"),
    *("1 / (1 + torch.exp(-{a}))", "{a} / (1 + torch.exp(-{a}))", "{a} * torch.sigmoid({a})", "torch.sigmoid({a}) * {a}", "(torch.exp(-{a}) + 1).reciprocal()"),
    *("0.5 * {a} * (1 + torch.erf({a} / 2 ** 0.5))", "{a} * (torch.erf({a} * 0.7071067811865476) + 1) * 0.5", "{a} * 0.5 * (1 + torch.erf({a} * 0.7071067811865476))"),
    *("{a} * (torch.tanh(({a} + {a} ** 3 * 0.044715) * 0.7978845608028654) + 1) * 0.5", "{a} * 0.5 * (1 + torch.tanh({a} * ({a} * {a} * 0.044715 + 1) * 0.7978845608028654))"),
    *("({a} * (({a} * {a}) * 0.044715 + 1) * 0.7978845608028654).tanh()", "{a} * (torch.tanh(({a} * (({a} * {a}) * 0.044715 + 1)) * 0.7978845608028654) + 1) * 0.5"),
    *("({x} * {n}).sum({d})", "({x} * 2).mean({d}, True)", "({x} * {t:}).sum({d})", "{x}.mean({d}) * {x}.shape[{d}]", "{x}.sum({d}) * (1 / {x}.shape[{d}])"),
    *("{x}.sum({d}) / {x}.shape[{d}]", "({t:3,4} * {t:3,1}).sum(1, True)", "({t:3,4} * {t:4}).sum(0, True)", "({t:3,4} * {t:1,4}).mean(0, True)", "({t:B,3,4} * {t:3,1}).sum((0, 2), True)"),
)

MATRICES = (  # products: chains, scales, shifts, shared operands
    *("({t:3,4} @ {t:4,2}) @ {t:2,5}", "{t:3,4} @ ({t:4,2} @ {t:2,5})", "({t:B,3,4} @ {t:4,2}) @ {t:2,3}", "({t:3,4} @ {t:4,2}).mT", "{t:4,3}.mT @ {t:2,4}.mT"),
    *("({t:B,3,4} @ {t:B,4,2}).mT", "{t:3,4} @ {t:4,2} + {t:3,4} @ {t:4,2}", "{t:3,4} @ {t:4,2} - {t:5,4}[:3] @ {t:4,2}", "{t:3,4} @ ({t:4,2} + {t:4,2})"),
    *("({t:3,4} + {t:3,4}) @ {t:4,2}", "({t:3,4} - {t:4}) @ {t:4,2}", "({t:3,4} * {t:4}) @ {t:4,2}", "({t:3,4} * {t:3,1}) @ {t:4,2}", "({t:3,4} * {n}) @ {t:4,2}"),
    *("({t:3,4} @ {t:4,2}) * {t:2}", "({t:3,4} @ {t:4,2}) * {t:3,1}", "({t:3,4} @ {t:4,2}) * {n}", "{t:3,4} @ ({t:4,2} * {t:2})", "{t:3,4} @ ({t:4,2} * {n})", "({t:3,4} * {t:}) @ {t:4,2}"),
    *("F.linear({t:3,4}, {t:2,4}, {t:2}) * {t:2}", "F.linear({t:3,4}, {t:2,4}, {t:2}) + {t:2}", "F.linear({t:3,4}, {t:2,4}, {t:2}) + {t:3,2}", "F.linear({t:3,4} + {t:4}, {t:2,4})"),
    *("F.linear({t:3,4}, {t:2,4}, {t:2}) + F.linear({t:3,4}, {t:2,4}, {t:2})", "F.linear({t:3,4}, {t:2,4}, {t:2}) + {t:3,4} @ {t:4,2}", "{t:3,4} @ {t:4,2} + {t:3,2}"),
    *("torch.addmm({t:3,2}, {t:3,4}, {t:4,2}) * 2", "torch.addmm({t:2}, {t:3,4}, {t:4,2}, beta=2, alpha=0.5)", "{t:B,3,4} @ {t:4,2} + {t:2}", "{t:3,4} @ {t:4,2} + {t:2}"),
    *("({t:3,4} @ {t:4,2}).sum(0)", "({t:3,4} @ {t:4,2}).sum(1, True)", "({t:B,3,4} @ {t:4,2}).mean((-2, -1))", "F.linear({t:B,3,4}, {t:2,4}, {t:2}).mean(1)", "({t:3,4} @ {t:4,2}).mean(0, True)"),
    *("({t:B,3,4} @ {t:4,2}).reshape(-1, 2)", "({t:6,4} @ {t:4,2}).reshape(2, 3, 2)", "{t:B,3,4}.reshape(-1, 4) @ {t:4,2}", "({t:B,3,4}.reshape(-1, 4) @ {t:4,2}).view({B}, 3, 2)"),
    *("F.linear({t:6,4}, {t:2,4}, {t:2}).reshape(2, 3, 2)", "F.linear({t:B,3,4}.reshape(-1, 4), {t:2,4}, {t:2})", "({t:4,3,4} @ {t:4,4,2}).reshape(2, 2, 3, 2)", "{t:2,2,3,4}.reshape(4, 3, 4) @ {t:2,2,4,3}.reshape(4, 4, 3)"),
    *("{t:B,2,3,4} @ {t:B,2,4,3}", "({t:B,2,3,4} @ {t:B,2,4,3}).permute(1, 0, 2, 3)", "({t:B,2,3,4} @ {t:B,2,4,3}).transpose(0, 1)", "{t:4} @ {t:4,3}", "{t:3,4} @ {t:4}", "{t:4} @ {t:4}"),
    *("{t:3,4} @ {t:3,4}.mT", "{t:4,4} @ {t:4,4}", "({t:4,4} @ {t:4,4}).mT + {t:4,4}.mT", "F.linear({t:4,4}, {t:4,4}) @ {t:4,4}.mT", "({t:B,3,4} + {t:4}) @ {t:4,2} + {t:2}"),
    *("F.linear(F.linear({t:3,4}, {t:2,4}, {t:2}), {t:5,2}, {t:5})", "F.linear({t:3,4} * {t:4}, {t:2,4}, {t:2})", "F.layer_norm({t:3,4}, (4,), {t:4}, {t:4}) @ {t:4,2}"),
)

CUT = (  # slices of everything
    *("({t:3,4} @ {t:4,3})[1:]", "({t:3,4} @ {t:4,3})[:, 1:]", "({t:B,3,4} @ {t:4,3})[0]", "({t:B,3,4} @ {t:B,4,3})[1:]", "({t:B,3,4} @ {t:B,4,3})[:, :, ::2]", "({t:3,4} @ {t:B,4,3})[1:]"),
    *("F.linear({t:B,3,4}, {t:3,4}, {t:3})[:, -1]", "F.linear({t:B,3,4}, {t:3,4}, {t:3})[..., 1:]", "F.linear({t:B,3,4}, {t:6,4}, {t:6}).chunk(3, -1)[1]", "F.layer_norm({t:B,3,4}, (4,), {t:4}, {t:4})[:, 0]"),
    *("F.layer_norm({t:B,3,4}, (4,), {t:4})[:, 1:]", "F.layer_norm({t:B,3,4}, (4,))[0]", "F.rms_norm({t:B,3,4}, (4,), {t:4})[:, ::2]", "F.rms_norm({t:B,3,4}, (4,))[:, 0]", "{t:B,3,4}.softmax(-1)[:, 1:]"),
    *("{x}.softmax({d}).select({e}, 0)", "{x}.sum({d}, True).narrow({e}, 0, 1)", "({x} + {y}).select({d}, 0)", "({x} * {y}).narrow({d}, 0, {k})", "torch.where({x} > 0, {x}, {y}).select({d}, -1)"),
    *("torch.where({c}, {x}, {y}).narrow({d}, 0, {k})", "torch.where({c}, {x}, 0.0).select({d}, 0)", "{x}.masked_fill({c}, -1.0).select({d}, 0)", "torch.where({c}, {n}, {x}).narrow({d}, 0, {k})"),
    *("F.scaled_dot_product_attention({t:B,2,3,4}, {t:B,2,5,4}, {t:B,2,5,4})[:, :, 1:]", "F.scaled_dot_product_attention({t:B,2,3,4}, {t:B,2,5,4}, {t:B,2,5,4})[1:]", "F.scaled_dot_product_attention({t:B,2,3,4}, {t:B,2,3,4}, {t:B,2,3,4}, is_causal=True)[:, :, -1:]"),
    *("F.scaled_dot_product_attention({t:B,2,3,4}, {t:B,2,5,4}, {t:B,2,5,4}, {t:3,5})[:, :, :1]", "F.scaled_dot_product_attention({t:B,2,3,4}, {t:B,2,5,4}, {t:B,2,5,4}, {t:1,5})[:, :, :1]", "F.scaled_dot_product_attention({t:B,2,3,4}, {t:B,2,5,4}, {t:B,2,5,4}, {t:B,1,3,5})[1:]"),
    *("F.scaled_dot_product_attention({t:B,2,3,4}, {t:B,2,5,4}, {t:B,2,5,4}, {t:3,5})[:, 1:]", "F.scaled_dot_product_attention({t:B,2,3,4}, {t:B,2,3,4}, {t:B,2,3,4}, is_causal=True)[:, :, :2]", "F.conv2d({t:3,4,5,5}, {t:2,4,2,2})[1:]"),
    *("F.conv2d({t:3,4,5,5}, {t:2,4,2,2}, {t:2})[:1]", "F.conv2d({t:3,4,5,5}, {t:6,4,2,2}, {t:6})[:, 2:4]", "F.embedding({i:B,3}, {t:4,6})[:, 1:]", "F.embedding({i:B,3}, {t:4,6})[..., 1:3]", "{x}.transpose({d}, {e}).narrow({d}, 0, 1)"),
    *("{x}.permute(*range({x}.ndim)[::-1]).select({d}, 0)", "{x}.reshape(-1)[:2]", "{t:4,6}.reshape(4, 2, 3)[:, 1]", "{t:4,6}.reshape(4, 2, 3)[:, :, 1:]", "{t:4,6}.reshape(24)[6:18]", "{t:4,6}.reshape(2, 2, 6)[1]"),
    *("{x}.unsqueeze(0).expand(3, *{x}.shape)[1:]", "{x}.unsqueeze(0).expand(3, *{x}.shape)[..., :1]", "{x}[..., 1:][..., :1]", "{x}[..., ::2][..., -1:]", "{x}[..., 1:][1:]", "{x}[1:, ..., :2][..., 1:]", "torch.full((3, 4), {n})[1:, ::2]"),
    *("{x}.cumsum({d}).select({d}, -1)", "{x}.flip({d}).narrow({d}, 0, 1)", "{x}.roll(1, {d}).select({d}, 0)", "F.pad({x}, (1, 1))[..., 1:-1]", "F.pad({x}, (2, 0))[..., :2]", "{x}.gather({d}, {q}).select({d}, 0)"),
    *("{t:5,4}[{i:3}][1:]", "{t:5,4}[{i:3}][:, :2]", "{t:5,4}.index_select(0, {i:3})[:2]", "{x}.repeat(2, *[1] * {x}.ndim)[0]", "torch.stack(({x}, {y}.expand_as({x})))[1]", "F.pad({x}, (0, 2)) + F.pad({x}, (2, 0))"),
)

JOINED = (  # what is set side by side, of pointwise functions, products and parts
    *("torch.cat(({x} * 2, {x} * 2), {d})", "torch.cat(({x}.sin(), {y}.expand_as({x}).sin()), {d})", "torch.cat(({x}, {x}), {d}).cos()", "torch.cat(({x}, {x}, {x}), {d}).relu()", "torch.cat(({x}, {x}), {d}) * {n}"),
    *("torch.cat(({t:3,4}, {t:2,4})) * {t:4}", "torch.cat(({t:3,4}, {t:2,4}, {t:1,4})) + {t:4}", "torch.cat(({t:3,4} * {t:4}, {t:2,4} * {t:4}))", "torch.cat(({t:3,4}, {t:3,2}), 1) + torch.cat(({t:3,4}, {t:3,2}), 1)"),
    *("torch.cat(({t:3,4} + {t:3,4}, {t:2,4} + {t:2,4}))", "torch.cat((torch.cat(({t:3,4}, {t:2,4})), {t:1,4}))", "torch.cat(({t:3,4}, torch.cat(({t:2,4}, {t:1,4}))))", "torch.cat((torch.cat(({t:3,4}, {t:2,4}, {t:1,4})), {t:2,4}))"),
    *("torch.cat(({t:2,4}, torch.cat(({t:3,4}, {t:2,4}, {t:1,4}))))", "torch.cat(({t:1,4}, torch.cat(({t:2,4}, {t:3,4})), {t:1,4}))", "torch.cat((torch.cat(({t:2,4}, {t:3,4})), {t:1,4}, {t:2,4}))", "torch.cat(({t:1,4}, {t:2,4}, torch.cat(({t:2,4}, {t:3,4}))))"),
    *("torch.cat(({t:3,4}, {t:2,4}))[1:4]", "torch.cat(({t:3,4}, {t:2,4}, {t:2,4}))[1:6]", "torch.cat(({t:3,4}, {t:2,4}, {t:2,4}))[3:5]", "torch.cat(({t:3,4}, {t:2,4}, {t:2,4}))[::2, 1:]", "torch.cat(({t:1,4}, {t:2,4}, {t:2,4}, {t:1,4}))[1:5]"),
    *("torch.cat(({t:1,4}, {t:2,4}, {t:2,4}, {t:1,4}))[{k0}:{k1}]", "torch.cat(({t:3,2}, {t:3,1}, {t:3,2}, {t:3,1}), 1)[:, {k0}:{k1}]", "torch.cat(({t:3,4}, {t:2,4}, {t:1,4}))[{k0}:{k1}]", "torch.cat(({t:3,4}, {t:2,4}))[{k0}:{k1}]", "torch.cat(({t:1,4}, {t:2,4}, {t:2,4}, {t:1,4}))[:, 1:]"),
    *("torch.cat(({t:4,6}[:, :2], {t:4,6}[:, 2:]), 1)", "(lambda w: torch.cat((w[:, :2], w[:, 2:5], w[:, 5:]), 1))({t:4,6})", "(lambda w: torch.cat((w[:1], w[1:2], w[2:3], w[3:])))({t:4,6})", "(lambda w: torch.cat((w[:1], w[1:3], w[3:])).sin())({t:4,6})"),
    *("(lambda w: torch.cat((w[:, :2].relu(), w[:, 2:].relu()), 1))({t:4,6})", "(lambda w: torch.cat((w[:2] * 2, w[2:] * 2)))({t:4,6})", "(lambda w: w[:, :3] * torch.sigmoid(w[:, 3:]))({t:4,6} @ {t:6,6})", "(lambda a, b: F.silu(a) * b)(*F.linear({t:3,4}, {t:4,4}, {t:4}).chunk(2, -1))"),
    *("torch.cat(({t:3,4} @ {t:4,2}, {t:3,4} @ {t:4,3}), 1)", "torch.cat(({t:3,4} @ {t:4,2}, {t:2,4} @ {t:4,2}))", "torch.cat(({t:3,4}, {t:3,2}), 1) @ torch.cat(({t:4,3}, {t:2,3}))", "torch.cat(({t:3,4}, {t:2,4})) @ {t:4,3}", "{t:3,4} @ torch.cat(({t:4,2}, {t:4,3}), 1)"),
    *("torch.cat(({t:3,4}, {t:3,2}), 1) @ {t:6,3}", "torch.cat(({x}, {x}), {d}).sum({d})", "torch.cat(({x}, {x}), {d}).mean({d}, True)", "torch.cat(({x}, {x}), {d}).sum({e})", "torch.cat(({x}, {x}), {d}).amax({d})", "torch.cat(({x}, {x}), {d}).softmax({e})"),
    *("torch.cat(({x}, {x}), {d}).transpose({d}, {e})", "torch.cat(({t:3,4}, {t:2,4})).reshape(-1)", "torch.cat(({t:3,4}, {t:2,4})).reshape(5, 2, 2)", "torch.cat(({t:3,4}.float(), {t:2,4}.float())).double()", "torch.stack(({t:3,4}, {t:3,4})).sum(0)"),
    *("F.layer_norm(torch.cat(({t:3,4}, {t:2,4})), (4,), {t:4}, {t:4})", "torch.cat((F.layer_norm({t:3,4}, (4,), {t:4}, {t:4}), F.layer_norm({t:2,4}, (4,), {t:4}, {t:4})))", "torch.cat((F.embedding({i:3}, {t:4,6}), F.embedding({i:2}, {t:4,6})))", "F.embedding(torch.cat(({i:3}, {i:2})), {t:4,6})"),
    *("F.conv2d(torch.cat(({t:B,2,4,4}, {t:B,2,4,4}), 1), {t:3,4,1,1})", "torch.cat((F.conv2d({t:B,4,4,4}, {t:3,4,1,1}), F.conv2d({t:B,4,4,4}, {t:2,4,1,1})), 1)", "F.conv2d({t:B,4,4,4}, torch.cat(({t:3,4,1,1}, {t:2,4,1,1})))", "torch.cat(({x}, torch.zeros_like({x})), {d}).relu()"),
)

MOVED = (  # views across pointwise functions, reductions, softmax and products
    *("{t:4,6}.sin().reshape(4, 2, 3)", "({t:4,6} * {t:6}).reshape(2, 2, 6)", "({t:4,6} + {t:4,6}).reshape(2, 2, 2, 3)", "{t:4,2,3}.reshape(4, 6).cos()", "{t:4,2,3}.reshape(8, 3) + {t:3}", "{t:4,2,3}.reshape(4, 6) * {t:4,2,3}.reshape(4, 6)"),
    *("{t:4,2,3}.permute(1, 0, 2).exp()", "({t:4,2,3} * {t:4,2,3}).permute(2, 1, 0)", "({t:4,2,3} * {t:3}).permute(1, 0, 2)", "({t:3} - {t:4,2,3}).permute(1, 0, 2)", "({t:4,2,3} * {n}).permute(2, 0, 1)", "{t:4,2,3}.permute(2, 0, 1) * {n}", "{t:4,2,3}.mT * {t:}"),
    *("{t:4,2,3}.permute(2, 0, 1).permute(2, 0, 1)", "{t:4,2,3}.permute(2, 0, 1).permute(1, 2, 0)", "{t:4,6}.reshape(4, 2, 3).reshape(8, 3)", "{t:4,6}.reshape(4, 2, 3).reshape(4, 6)", "{t:4,1}.expand(4, 3).sin()", "{t:4,1}.expand(4, 3) * {n}", "{t:4,1}.expand(4, 3) * {t:1,3}.expand(4, 3)"),
    *("{t:4,1}.expand(4, 3) + {t:4,3}", "{t:4,3} - {t:3}.expand(4, 3)", "{t:4,6}.permute(1, 0).sum(0)", "{t:4,2,3}.permute(2, 0, 1).sum(1, True)", "{t:4,2,3}.permute(1, 2, 0).mean((0, 2))", "{t:4,6}.reshape(4, 2, 3).sum(2)", "{t:4,2,3}.reshape(4, 6).amax(1)", "{t:4,2,3}.reshape(8, 3).mean(0)"),
    *("{t:4,2,3}.sum(2).sum(1)", "{t:4,2,3}.mean(2, True).mean(1, True)", "{t:4,2,3}.amax(0).amax(0)", "{t:4,2,3}.logsumexp(2).logsumexp(0)", "{t:4,2,3}.amin((0, 1), True).amin(2)", "{t:4,2,3}.sum(1, True)", "{t:4,6}.softmax(1).reshape(2, 2, 6)", "{t:4,2,3}.reshape(8, 3).softmax(1)"),
    *("{t:4,2,3}.softmax(2).permute(1, 0, 2)", "{t:4,2,3}.permute(2, 0, 1).softmax(0)", "{t:4,2,3}.log_softmax(1).permute(0, 2, 1)", "{t:4,6}.roll(2, 1).roll(1, 1)", "{t:4,6}.roll(2, 1).roll(-2, 1)", "{t:4,6}.flip(1).flip(1)", "{t:4,6}.flip(1).flip(0)", "{t:4,6}.sin().roll(1, 0)"),
    *("F.pad(F.pad({t:4,6}, (1, 0)), (0, 1))", "F.pad({t:4,6}, (1, 1)).relu()", "F.pad({t:4,6}.relu(), (1, 1))", "F.pad({t:4,6} * 2, (1, 1))", "F.pad({t:B,2,4,4}, (1, 1, 1, 1)).sum(1)", "F.conv2d(F.pad({t:B,2,4,4}, (1, 1, 1, 1)), {t:3,2,2,2})", "F.avg_pool2d(F.pad({t:B,2,4,4}, (1, 1, 1, 1)), 2)"),
    *("{t:5,4}.sin()[{i:3}]", "({t:5,4} * {t:4})[{i:3}]", "({t:5,4} @ {t:4,3})[{i:3}]", "{t:5,4}[{i:3}] @ {t:4,3}", "F.embedding({i:3}, {t:5,4}).sin()", "F.embedding({i:3}, {t:5,4}) @ {t:4,2}", "F.embedding({i:3}, {t:5,4} @ {t:4,2})", "F.embedding({i:3}, {t:5,4}) * 2"),
    *("F.embedding({i:3}, {t:5,4}) + F.embedding({i:3}, {t:5,4})", "{t:5,4}[{i:3}][{i:2}]", "{t:5,4}[{i:3}].sum(1)", "{t:5,4}.softmax(1)[{i:3}]", "{t:5,4}.mT[:, {i:3}]", "{t:5,4}[{i:3}].reshape(3, 2, 2)", "{t:5,4}.reshape(5, 2, 2)[{i:3}]", "torch.cat(({t:5,4}, {t:5,2}), 1)[{i:3}]"),
    *("{t:4,6}.cumsum(0).mT", "({t:4,6} * 2).cumsum(1)", "({t:4,6} * {t:4,1}).cumsum(1)", "{t:4,6}.cumsum(1) + {t:4,6}.cumsum(1)", "{t:4,6}.cumsum(1)[1:]", "{t:4,6}.cumsum(0).sum(1)", "{t:4,6}.unflatten(1, (2, 3)).cumsum(2)", "{t:4,6}.reshape(24).reshape(4, 6) + {t:6}"),
)

IMAGES = (  # convolutions with what goes into their weights, or before them
    *("F.batch_norm(F.conv2d({t:B,4,5,5}, {t:3,4,2,2}, {t:3}), {t:3}, {t:3} ** 2 + 1, {t:3}, {t:3}, False, 0.1, 1e-3)", "F.relu(F.batch_norm(F.conv2d({t:B,4,5,5}, {t:3,4,2,2}), {t:3}, {t:3} ** 2 + 1, {t:3}, {t:3}, False, 0.1, 1e-3))"),
    *("F.conv2d(F.batch_norm({t:B,4,5,5}, {t:4}, {t:4} ** 2 + 1, {t:4}, {t:4}, False, 0.1, 1e-3), {t:3,4,1,1})", "F.batch_norm({t:B,4,3}, {t:4}, {t:4} ** 2 + 1, {t:4}, {t:4}, False, 0.1, 1e-3) + {t:B,4,3}", "F.conv2d({t:B,4,5,5}, {t:3,4,2,2}) * {t:3,1,1}"),
    *("F.conv2d({t:B,4,5,5}, {t:3,4,2,2}, {t:3}) * {t:1,3,1,1} + {t:3,1,1}", "F.conv2d({t:B,4,5,5}, {t:3,4,2,2}) * {n}", "F.conv2d({t:B,4,5,5}, {t:3,4,2,2}, {t:3}) * 2", "F.conv2d({t:B,4,5,5} * 2, {t:3,4,2,2})", "F.conv2d({t:B,4,5,5} * {n}, {t:3,4,2,2}, {t:3})"),
    *("F.conv2d({t:B,4,5,5}, {t:3,4,2,2}) + {t:3,1,1}", "F.conv2d({t:B,4,5,5}, {t:3,4,2,2}, {t:3}) + {t:3,1,1}", "F.conv2d({t:B,4,5,5}, {t:3,4,2,2}) + F.conv2d({t:B,4,5,5}, {t:3,4,2,2})", "F.conv2d({t:B,4,5,5}, {t:3,4,2,2}) - F.conv2d({t:B,4,5,5}, {t:3,4,2,2})"),
    *("F.conv2d({t:B,4,5,5} + {t:B,4,5,5}, {t:3,4,2,2})", "(lambda w: F.conv2d({t:B,4,5,5}, w) + F.conv2d({t:B,4,5,5}, w))({t:3,4,2,2})", "F.avg_pool2d(F.conv2d({t:B,4,6,6}, {t:3,4,1,1}), 2)", "F.avg_pool2d(F.conv2d({t:B,4,6,6}, {t:3,4,1,1}, {t:3}), 2)"),
    *("F.avg_pool2d(F.conv2d({t:B,4,6,6}, {t:3,4,1,1}, {t:3}), 2, 1, 1)", "F.adaptive_avg_pool2d(F.conv2d({t:B,4,6,6}, {t:3,4,1,1}, {t:3}), 1)", "F.adaptive_avg_pool2d(F.conv2d({t:B,4,6,6}, {t:3,4,1,1}), (2, 3))", "F.conv2d({t:B,4,6,6}, {t:3,4,1,1}).mean((2, 3), True)"),
    *("F.conv2d({t:B,4,6,6}, {t:3,4,1,1}, {t:3}).mean((-1, -2), keepdim=True)", "F.conv2d(F.interpolate({t:B,4,3,3}, scale_factor=2), {t:3,4,1,1})", "F.conv2d(F.interpolate({t:B,4,3,3}, scale_factor=2), {t:3,4,1,1}, {t:3})", "F.conv2d(F.interpolate({t:B,4,3,3}, size=(5, 4), mode='bilinear'), {t:3,4,1,1})"),
    *("F.conv2d(F.interpolate({t:B,4,3,3}, size=(5, 4), mode='bilinear'), {t:3,4,1,1}, {t:3})", "torch.cat((F.conv2d({t:B,4,5,5}, {t:3,4,2,2}), F.conv2d({t:B,4,5,5}, {t:2,4,2,2})), 1)", "torch.cat((F.conv2d({t:B,4,5,5}, {t:3,4,2,2}, {t:3}), F.conv2d({t:B,4,5,5}, {t:2,4,2,2}, {t:2})), 1)"),
    *("F.conv2d(F.conv2d({t:B,4,5,5}, {t:3,4,1,1}), {t:2,3,1,1})", "F.conv2d(F.conv2d({t:B,4,5,5}, {t:3,4,1,1}, {t:3}), {t:2,3,2,2})", "F.conv2d(F.conv2d({t:B,4,5,5}, {t:3,4,2,2}), {t:2,3,1,1}, {t:2})", "F.conv2d({t:B,4,5,5}, {t:4,1,2,2}, groups=4) * {t:4,1,1}", "F.conv1d({t:B,4,5}, {t:3,4,1}) + {t:3,1}"),
    *("F.conv2d({t:B,4,5,5}, {t:3,4,1,1}) + F.conv2d({t:B,4,5,5}, {t:3,4,3,3}, padding=1)", "F.conv2d({t:B,4,5,5}, {t:3,4,1,1}).relu() + F.conv2d({t:B,4,5,5}, {t:2,4,1,1}).sum()", "F.conv_transpose2d({t:B,3,4,4}, {t:3,2,2,2}) * 2", "F.conv_transpose2d({t:B,3,4,4} * 2, {t:3,2,2,2}, {t:2})"),
    *("F.max_pool2d(F.relu({t:B,4,6,6}), 2)", "F.relu(F.max_pool2d({t:B,4,6,6}, 2))", "F.max_pool2d({t:B,4,6,6}, 2).sum(1)", "F.avg_pool2d({t:B,4,6,6} * 2, 2)", "F.avg_pool2d({t:B,4,6,6}, 2) + F.avg_pool2d({t:B,4,6,6}, 2)", "F.avg_pool2d(torch.cat(({t:B,2,4,4}, {t:B,2,4,4}), 1), 2)"),
    *("F.adaptive_avg_pool2d({t:B,4,6,6}, 1).flatten(1) @ {t:4,3}", "F.interpolate({t:B,4,3,3} + {t:B,4,3,3}, scale_factor=2)", "F.conv2d({t:B,4,5,5}, {t:3,4,1,1}, {t:3}, stride=2)", "F.conv2d({t:B,4,5,5}, {t:3,4,1,1}).flatten(2).mT", "F.linear({t:B,5,4}, {t:3,4}).mT.unflatten(2, (5, 1))"),
)


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
    scores = f"({q}{inner}) @ {g.choice(k, k, f'({k} * 0.5)')}.{g.choice('mT', 'transpose(-2, -1)')}"
    shape = g.rng.choice(((n, m), (1, m), (m,), (*batch, n, m), (*batch[:1], *(1,) * (ndim - 3), 1, m)))
    kind = g.rng.choice(("none", "none", "add", "add", "where", "fill", "causal", "two", "late", "bool"))
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
    weights = g.choice(
        f"torch.softmax({scaled}, -1)",
        f"torch.softmax({scaled}, -1)",
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
    many = ".unsqueeze(2).expand(-1, -1, 2, -1, -1).reshape({}, 4, 5, 4)".format(g.batch)
    full = g.tensor((g.batch, 4, 5, 4))
    return g.choice(
        f"F.scaled_dot_product_attention({q}, {k}, {v}, enable_gqa=True)",
        f"F.scaled_dot_product_attention({q}, {k}{many}, {v}{many})",
        f"F.scaled_dot_product_attention({q}, {k}.repeat_interleave(2, 1), {v}.repeat_interleave(2, 1))",
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


STRUCTURES = (
    (maker("known", KNOWN), 4),
    (maker("promoted", PROMOTED), 3),
    (maker("scalars", SCALARS), 4),
    (maker("matrices", MATRICES), 5),
    (maker("cut", CUT), 5),
    (maker("joined", JOINED), 5),
    (maker("moved", MOVED), 4),
    (maker("images", IMAGES), 4),
    (siblings, 2),
    (attended, 3),
    (grouped, 1),
    (normed, 2),
)
