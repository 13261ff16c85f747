"""Steps by the hundred: calls of torch with places for the values of a program."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .pool import Pool

POINTWISE = (
    *(
        f"torch.{name}({{a}})"
        for name in (
            *("abs", "asinh", "atan", "ceil", "cos", "cosh", "deg2rad", "erf", "erfc", "exp"),
            *("exp2", "expm1", "floor", "frac", "isfinite", "isinf", "isnan", "isneginf"),
            *("isposinf", "logical_not", "neg", "nan_to_num", "rad2deg", "relu", "round", "sgn"),
            *("sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "square", "tan", "tanh"),
            *("trunc", "i0", "digamma", "lgamma", "reciprocal", "real", "clone", "positive"),
            *("celu", "selu", "log", "sqrt", "rsqrt"),
            *("zeros_like", "ones_like", "isreal", "fix", "conj", "conj_physical"),
        )
    ),
    *(
        f"torch.{name}({{u}})"
        for name in ("acos", "asin", "atanh", "erfinv", "logit", "log", "lgamma", "log1p")
    ),
    *(f"torch.{name}({{p}})" for name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")),
    *("torch.acosh({p} + 1)", "torch.special.entr({p})", "{p} ** 0.5", "{p} ** -0.5"),
    *(
        f"torch.special.{name}({{a}})"
        for name in (
            *("i0e", "i1", "i1e", "bessel_j0", "bessel_j1", "erfcx", "log_ndtr", "ndtr"),
            *("psi", "expit", "modified_bessel_i0", "modified_bessel_i1", "spherical_bessel_j0"),
        )
    ),
    *(
        f"torch.special.{name}({{u}})"
        for name in (
            *("ndtri", "bessel_y0", "bessel_y1", "gammaln", "modified_bessel_k0"),
            *("modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
            "airy_ai",
        )
    ),
    *(
        f"F.{name}({{a}})"
        for name in (
            *("celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh"),
            *("leaky_relu", "logsigmoid", "mish", "relu6", "selu", "silu", "softplus"),
            *("softshrink", "softsign", "tanhshrink"),
        )
    ),
    *("F.threshold({a}, 0.1, -1.0)", "F.elu({a}, 0.5)", "F.hardtanh({a}, -0.5, 2.0)"),
    *("torch.clamp({a}, -0.5, 0.5)", "torch.clamp({a}, max={n})", "torch.clamp_min({a}, 0.0)"),
    *("torch.clamp({a}, {b}, {b2})", "torch.clamp_max({a}, {n})", "torch.clip({a}, -1, 1)"),
    *("torch.round({a}, decimals=1)", "torch.nan_to_num({a}, 0.0, 1.0, -1.0)"),
    *("torch.logit({u}, 0.1)", "torch.polygamma(1, {u})", "torch.mvlgamma({u} + 2, 2)"),
    *("F.prelu({x}, {t:1})", "F.dropout({a}, 0.5, training=False)", "torch.logical_not({a})"),
)

BINARY = (
    *(
        f"torch.{name}({{a}}, {{b}})"
        for name in (
            *("add", "sub", "mul", "div", "atan2", "copysign", "fmax", "fmin", "hypot"),
            *("logaddexp", "logaddexp2", "maximum", "minimum", "heaviside", "remainder", "fmod"),
            *("floor_divide", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"),
            *("logical_xor", "isclose", "nextafter", "ldexp", "rsub", "true_divide", "subtract"),
            *("multiply", "greater", "less_equal", "not_equal", "max", "min"),
        )
    ),
    *(f"torch.{name}({{u}}, {{b}})" for name in ("pow", "float_power", "xlogy")),
    *(
        f"torch.{name}({{a}}, {{n}})"
        for name in (
            *("add", "sub", "mul", "div", "remainder", "fmod", "rsub", "eq", "ne", "lt", "le"),
            *("gt", "ge", "floor_divide", "copysign", "xlogy", "float_power"),
        )
    ),
    *("torch.special.xlog1py({b}, {u})", "torch.special.zeta({u} + 1, {p})", "{n} ** {u}"),
    *("torch.div({a}, {p}, rounding_mode='floor')", "torch.div({a}, {p}, rounding_mode='trunc')"),
    *("torch.div({a}, 0.7, rounding_mode='floor')", "torch.special.xlog1py({a}, 0.5)"),
    *("torch.addcmul({a}, {b}, {b2}, value=0.5)", "torch.addcdiv({a}, {b}, {p}, value=2)"),
    *("torch.lerp({a}, {b}, 0.3)", "torch.lerp({a}, {b}, {b2})", "torch.addcmul({a}, {b}, {b})"),
    *("torch.where({c}, {a}, {b})", "torch.where({c}, {n}, {a})", "torch.where({c}, {a}, 0.0)"),
    *("torch.masked_fill({a}, {c}, {n})", "torch.where({a} > 0, {a}, {b})", "{a} ** 2"),
    *("{a} ** -1", "{a} ** 3", "{n} - {a}", "{n} / {p}", "{a} % 0.75", "{a} // 0.5"),
    *("torch.special.chebyshev_polynomial_t({u}, 3)", "torch.special.hermite_polynomial_h({u}, 2)"),
    *("torch.special.laguerre_polynomial_l({u}, 2)", "torch.special.legendre_polynomial_p({u}, 2)"),
)

INTEGERS = (
    *(
        f"torch.{name}({{i:3,4}}, {{i:4}})"
        for name in (
            *("add", "sub", "mul", "bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm"),
            *("bitwise_left_shift", "bitwise_right_shift", "eq", "lt", "maximum", "minimum"),
            *("logical_or", "true_divide", "add", "mul"),
        )
    ),
    *("{i:3,4} // 2", "{i:3,4} % 2", "~{i:3,4}", "-{i:3,4}", "{i:3,4} & 1", "{i:3,4} | 2"),
    *("{i:3,4} ^ 3", "{i:3,4} << 1", "{i:3,4} >> 1", "{i:3,4} ** 2", "{i:3,4}.sum(1)"),
    *("{i:3,4} * {n}", "{i:3,4} + {t:4}", "{i:3,4}.cumsum(0)", "{i:3,4}.argsort(1)", "{i:3,4} / 2"),
    *("{o:3,4} + {i:4}", "{o:3,4} * {t:3,4}", "{o:3,4} & {o:4}", "~{o:3,4}", "{o:3,4}.sum()"),
    *("{o:3,4} | {o:3,1}", "{o:3,4} ^ {o:4}", "{o:3,4}.all(1)", "{o:3,4}.any(0)", "{o:3,4}.any()"),
    *("{i:3,4}.to(torch.float64) / 2", "{i:3,4}.abs()", "{i:3,4}.prod(1)", "{i:3,4}.amax(1)"),
    *("{i:3,4}.to(torch.int8) + {i:3,4}.to(torch.int32)", "{o:3,4} * {n}", "{o:3,4} + {o:4}"),
    *("torch.bucketize({a}, torch.arange(3.0))", "torch.searchsorted({t:4}.sort().values, {t:3})"),
    *("torch.isin({i:3,4}, {i:4})", "F.one_hot({i:3,4}.clamp(0, 2), 3)"),
    *("torch.zeros(3, 4, dtype=torch.int64) + {i:4}", "{i:3,4}.bool()", "{i:3,4}.to({dtype})"),
    *("{i:3,4}.float() * {t:4}.float()", "{a}.to(torch.int64) * 2", "{a} * {o:1}", "{a} + {i:1}"),
)

REDUCTIONS = (
    *(
        f"{{x}}.{name}({{d}})"
        for name in (
            *("sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "all", "any", "std"),
            *("var", "logsumexp", "nansum", "nanmean", "cumsum", "cumprod", "logcumsumexp"),
            *("count_nonzero", "argsort", "softmax", "log_softmax"),
        )
    ),
    *(
        f"{{x}}.{name}({{d}}, keepdim=True)"
        for name in ("sum", "mean", "amax", "amin", "argmax", "std", "var", "logsumexp", "prod")
    ),
    *(
        f"{{x}}.{name}({{d}})[0]"
        for name in ("max", "min", "median", "cummax", "cummin", "kthvalue", "sort", "mode")
        if name != "kthvalue"
    ),
    *("{x}.max({d})[1]", "{x}.min({d})[1]", "{x}.sort({d})[1]", "{x}.sort({d}, descending=True)[0]"),
    *(f"{{x}}.{name}()" for name in ("sum", "mean", "max", "min", "std", "var", "prod", "norm")),
    *(f"{{x}}.{name}()" for name in ("argmax", "argmin", "any", "all", "median", "nansum")),
    *("{x}.norm(dim={d})", "{x}.norm(1, {d})", "torch.linalg.vector_norm({x}, 2, {d})"),
    *("torch.linalg.vector_norm({x}, float('inf'), {d})", "torch.linalg.norm({t:3,4})"),
    *("torch.aminmax({x}, dim={d})[1]", "torch.var_mean({x}, {d})[0]", "torch.std_mean({x}, {d})[1]"),
    *("{x}.kthvalue(1, {d})[0]", "{x}.topk(1, {d})[0]", "{x}.topk({k}, {d})[0]", "{x}.topk(1, {d})[1]"),
    *("{x}.sum(({d}, {e}))", "{x}.mean(({d}, {e}), keepdim=True)", "{x}.amax(({d}, {e}))"),
    *("{x}.var(({d}, {e}), unbiased=False)", "{x}.std(({d}, {e}))", "{x}.logsumexp(({d}, {e}))"),
    *("torch.diff({x}, dim={d})", "torch.trapezoid({x}, dim={d})", "torch.cumulative_trapezoid({x})"),
    *("torch.renorm({t:3,4}, 2, 0, 1.0)", "torch.histc({x}, 4, -2, 2)", "{x}.nanmedian({d})[0]"),
    *("F.softmin({x}, {d})", "F.normalize({x}, dim={d})", "F.normalize({x}, 1, {d})", "{x}.quantile(0.5)"),
    *("torch.dist({x}, {y})", "F.cosine_similarity({x}, {y}, {d})", "F.pairwise_distance({x}, {y})"),
    *("F.glu({t:3,4})", "F.glu({t:B,6,4}, 1)", "torch.cov({t:3,5})", "torch.corrcoef({t:3,5})"),
    *("{x}.sum({d}, dtype=torch.float64)", "{x}.mean({d}, dtype=torch.float64)", "{x}.trace()"),
    *("{x}.cumsum({d}).flip({d})", "{x}.flip({d}).cumsum({d})", "{x}.sum({d}, True) + {y}"),
)

VIEWS = (
    *("{x}.transpose({d}, {e})", "{x}.swapaxes({d}, {e})", "{x}.movedim({d}, {e})", "{x}.mT"),
    *("{t:3,4}.t()", "{t:3,4}.T", "{x}.mH", "{x}.adjoint()", "{x}.flip({d})", "{x}.flip(({d}, {e}))"),
    *("{t:3,4}.fliplr()", "{t:3,4}.flipud()", "{t:3,4}.rot90()", "{x}.roll(1, {d})", "{x}.roll(2)"),
    *("{x}.unsqueeze({d})", "{x}.squeeze()", "{x}.squeeze({d})", "{x}.squeeze(({d}, {e}))"),
    *("{x}.flatten()", "{x}.ravel()", "{x}.view(-1)", "{x}.reshape(1, -1)", "{x}.reshape(-1, 1)"),
    *("{t:B,6}.unflatten(1, (2, 3))", "{t:B,6}.view({B}, 3, 2)", "{t:B,2,3}.view({B}, 6)"),
    *("{x}.expand(2, *{x}.shape)", "{y}.expand_as({x})", "{y}.broadcast_to({x}.shape)"),
    *("{x}.diagonal(0, {d}, {e})", "{x}.diagonal(1, {d}, {e})", "{t:4}.diag()", "{t:3,4}.diag()"),
    *("torch.diag_embed({x})", "{x}.unfold({d}, 1, 1)", "{x}.unfold({d}, {k}, 1)", "{x}.tril()"),
    *("{x}.triu(1)", "{x}.tril(-1)", "{x}.narrow({d}, 0, {k})", "{x}.select({d}, 0)", "{x}.select({d}, -1)"),
    *("{x}.split({k}, {d})[0]", "{x}.chunk(2, {d})[-1]", "{x}.tensor_split(2, {d})[0]", "{x}.unbind({d})[0]"),
    *("torch.hsplit({t:4,6}, 2)[1]", "torch.vsplit({t:4,6}, 2)[0]", "{x}.repeat(2, *[1] * {x}.ndim)"),
    *("{x}.tile(2)", "{x}.repeat_interleave(2, {d})", "{x}.view_as({x})", "{x}.reshape_as({x})"),
    *("torch.atleast_2d({x})", "torch.atleast_3d({x})", "{x}.contiguous()", "{x}.detach()", "{x}[None]"),
    *("torch.cat(({x}, {x}), {d})", "torch.stack(({x}, {x}), {d})", "torch.hstack(({x}, {x}))"),
    *("torch.vstack(({x}, {x}))", "torch.dstack(({x}, {x}))", "torch.column_stack(({x}, {x}))"),
    *("torch.block_diag({t:2,3}, {t:3,2})", "torch.cartesian_prod({t:3}, {t:2})", "{x}[..., ::2]"),
    *("torch.meshgrid({t:3}, {t:2}, indexing='ij')[1]", "torch.combinations({t:4})", "{x}[..., None]"),
    *("F.pixel_shuffle({t:B,4,3,3}, 2)", "F.pixel_unshuffle({t:B,2,4,4}, 2)", "{x}[..., 0]"),
    *("F.channel_shuffle({t:B,4,3,3}, 2)", "F.pad({x}, (1, 2))", "F.pad({x}, (1, -1), value=0.5)"),
    *("F.pad({t:B,3,4}, (1, 2), mode='reflect')", "F.pad({t:B,3,4}, (1, 1), mode='replicate')"),
    *("F.pad({t:B,3,4}, (1, 1), mode='circular')", "F.pad({t:B,2,4,4}, (1, 1, 1, 0), mode='reflect')"),
    *("F.pad({t:B,2,4,4}, (1, 1, 1, 0), mode='replicate')", "F.unfold({t:B,2,4,4}, 2)"),
    *("F.fold({t:B,8,9}, (4, 4), 2)", "{x}.as_strided({x}.shape, {x}.stride())", "{x}.T"),
    *("torch.select_scatter({x}, {x}.select({d}, 0) * 2, {d}, -1)", "{x}.new_zeros(3) + 1"),
    *("torch.slice_scatter({x}, {x}.narrow({d}, 0, {k}) * 2, {d}, 0, {k})", "{x}.new_ones(2, 2)"),
    *("torch.diagonal_scatter({t:3,4}, {t:3})", "torch.swapdims({x}, {d}, {e})"),
)

GATHERS = (
    *("{x}.gather({d}, {q})", "{x}.index_select({d}, {r})", "torch.take({x}, {i:3} % {N})"),
    *("torch.take_along_dim({x}, {q}, {d})", "{t:4,3}[{i:5}]", "{t:4,3}[{i:2,2}, {i:2,2}]"),
    *("{t:4,3}[:, {i:5}]", "{t:4,3}[{i:2}, 1:]", "{x}.scatter({d}, {q}, 0.5)", "{t:4,3}[{i:3}, 0]"),
    *("{x}.scatter({d}, {q}[..., :1], {x} * 2)", "{x}.scatter_add({d}, {q}, {x})", "{t:5,3,4}[1, {i:2}]"),
    *("{x}.scatter_reduce({d}, {q}, {x}, 'amax')", "{x}.scatter_reduce({d}, {q}, {x}, 'sum')"),
    *("{x}.index_add({d}, {r}, {x}.index_select({d}, {r}))", "{x}.index_fill({d}, {r}, 1.5)"),
    *("{x}.index_copy({d}, {r1}, {x}.index_select({d}, {r1}) * 2)", "F.embedding({i:B,3}, {t:4,3})"),
    *("F.embedding({i:3}, {t:4,6})", "F.embedding_bag({i:B,3}, {t:4,3}, mode='sum')", "{x}[..., {i:2} % {L}]"),
    *("torch.index_put({t:4,3}, ({i:3},), {t:3})", "{x}.masked_fill({c}, -1e9)", "{t:4,3}[{i:3} - 3]"),
    *("{x}.masked_fill({c}, float('-inf')).softmax(-1)", "{x}.masked_scatter({x} > 0, {x})"),
    *("torch.index_put({t:4,3}, ({i:3},), {t:3,3}, accumulate=True)", "{t:4,3}[{i:3,1}, {i:2}]"),
    *("F.embedding({i:B,3}, {t:4,3}, padding_idx=0)", "{t:4,3}.index_reduce(0, {i:2}, {t:2,3}, 'mean')"),
    *("{x}[..., [0, -1]]", "{x}[[0]]", "{t:4,3}.index_select(1, {i:4})"),
)

IMAGES = (
    *("F.conv1d({t:B,3,6}, {t:4,3,2})", "F.conv1d({t:B,3,6}, {t:4,3,2}, {t:4}, padding=1)"),
    *("F.conv1d({t:B,3,6}, {t:3,1,2}, groups=3)", "F.conv2d({t:B,4,5,5}, {t:2,4,2,2})"),
    *("F.conv2d({t:B,4,5,5}, {t:6,2,2,2}, {t:6}, groups=2)", "F.conv3d({t:B,2,3,3,3}, {t:3,2,2,2,2})"),
    *("F.conv2d({t:B,4,5,5}, {t:3,4,3,3}, {t:3}, padding='same')", "F.conv2d({t:4,5,5}, {t:3,4,2,2})"),
    *("F.conv2d({t:B,4,5,5}, {t:3,4,3,3}, {t:3}, padding='valid')", "F.conv_tbc({t:5,B,3}, {t:2,3,4}, {t:4})"),
    *("F.conv_transpose1d({t:B,3,4}, {t:3,2,2})", "F.conv_transpose2d({t:B,3,4,4}, {t:3,2,2,2}, {t:2})"),
    *("F.conv_transpose3d({t:B,2,2,2,2}, {t:2,2,2,2,2})", "F.avg_pool1d({t:B,3,6}, 2)"),
    *("F.avg_pool2d({t:B,4,6,6}, 2, divisor_override=3)", "F.avg_pool3d({t:B,2,4,4,4}, 2)"),
    *("F.max_pool1d({t:B,3,6}, 2)", "F.max_pool2d({t:B,4,6,6}, 2, padding=1)", "F.max_pool3d({t:B,2,4,4,4}, 2)"),
    *("F.max_pool2d({t:B,4,6,6}, 2, return_indices=True)[1]", "F.lp_pool2d({t:B,4,6,6}, 2, 2)"),
    *("F.adaptive_avg_pool1d({t:B,3,6}, 2)", "F.adaptive_avg_pool2d({t:B,4,6,6}, (3, 2))"),
    *("F.adaptive_avg_pool3d({t:B,2,4,4,4}, 2)", "F.adaptive_max_pool1d({t:B,3,6}, 2)"),
    *("F.adaptive_max_pool2d({t:B,4,6,6}, 2)", "F.adaptive_max_pool3d({t:B,2,4,4,4}, 2)"),
    *("F.interpolate({t:B,3,6}, scale_factor=2)", "F.interpolate({t:B,3,6}, size=4, mode='linear')"),
    *("F.interpolate({t:B,4,6,6}, scale_factor=2, mode='nearest-exact')",),
    *("F.interpolate({t:B,4,6,6}, size=(4, 3), mode='bicubic')", "F.interpolate({t:B,4,6,6}, size=3, mode='area')"),
    *("F.interpolate({t:B,2,3,3,3}, scale_factor=2)", "F.interpolate({t:B,2,3,3,3}, size=4, mode='trilinear')"),
    *("F.grid_sample({t:B,4,6,6}, {t:B,3,3,2}, align_corners=False)",),
    *("F.affine_grid({t:B,2,3}, ({B}, 1, 3, 2), align_corners=False)", "F.local_response_norm({t:B,4,6,6}, 2)"),
    *("F.instance_norm({t:B,4,6,6})", "F.group_norm({t:B,4,6,6}, 2, {t:4}, {t:4})"),
    *("F.group_norm({t:B,4,3}, 4)", "F.layer_norm({t:B,3,4}, (4,), {t:4}, {t:4})", "F.rms_norm({t:B,3,4}, (4,))"),
    *("F.rms_norm({t:B,3,4}, (3, 4), {t:3,4})", "F.layer_norm({t:B,3,4}, (3, 4))"),
    *("F.batch_norm({t:B,4,3}, {t:4}, {t:4} ** 2 + 1, {t:4}, {t:4}, False, 0.1, 1e-3)",),
    *("F.batch_norm({t:B,4}, {t:4}, {t:4} ** 2 + 1)", "torch.constant_pad_nd({x}, (1, 1), 0.5)"),
    *("F.instance_norm({t:B,4,3}, weight={t:4}, bias={t:4})", "F.upsample_nearest({t:B,4,3,3}, (5, 4))"),
)

PRODUCTS = (
    *("{t:3,4} @ {t:4,2}", "torch.mm({t:3,4}, {t:4,2})", "torch.bmm({t:B,3,4}, {t:B,4,2})"),
    *("torch.mv({t:3,4}, {t:4})", "torch.dot({t:4}, {t:4})", "torch.vdot({t:4}, {t:4})"),
    *("torch.addmm({t:2}, {t:3,4}, {t:4,2})", "torch.addmv({t:3}, {t:3,4}, {t:4}, beta=2)"),
    *("torch.addbmm({t:3,2}, {t:B,3,4}, {t:B,4,2})", "torch.baddbmm({t:B,3,2}, {t:B,3,4}, {t:B,4,2})"),
    *("torch.addr({t:3,4}, {t:3}, {t:4})", "torch.outer({t:3}, {t:4})", "torch.ger({t:3}, {t:4})"),
    *("torch.inner({t:3,4}, {t:2,4})", "torch.kron({t:2,2}, {t:2,3})", "torch.cross({t:4,3}, {t:4,3}, 1)"),
    *("torch.linalg.cross({t:4,3}, {t:1,3})", "torch.tensordot({t:3,4}, {t:4,2}, 1)", "torch.matrix_power({t:3,3}, 2)"),
    *("torch.einsum('bij,bjk->bik', {t:B,3,4}, {t:B,4,2})", "torch.einsum('ij,jk,kl->il', {t:3,4}, {t:4,2}, {t:2,3})"),
    *("torch.einsum('bhid,bhjd->bhij', {t:B,2,3,4}, {t:B,2,5,4})", "torch.einsum('ij,ij->ij', {t:3,4}, {t:3,4})"),
    *("torch.einsum('ij,j->i', {t:3,4}, {t:4})", "torch.einsum('i,j->ij', {t:3}, {t:4})", "torch.einsum('ij->ji', {t:3,4})"),
    *("torch.einsum('ij->i', {t:3,4})", "torch.einsum('bnd,de->bne', {t:B,3,4}, {t:4,2})", "torch.einsum('ij->', {t:3,4})"),
    *("torch.einsum('ij,kj->ik', {t:3,4}, {t:2,4})", "torch.einsum('bij,jk->ik', {t:B,3,4}, {t:4,2})"),
    *("torch.einsum('ij,jk,kl,lm->im', {t:3,4}, {t:4,2}, {t:2,3}, {t:3,2})", "torch.einsum('ii->i', {t:3,3})"),
    *("torch.linalg.multi_dot(({t:3,4}, {t:4,2}, {t:2,3}))", "torch.chain_matmul({t:3,4}, {t:4,2})"),
    *("F.bilinear({t:B,3}, {t:B,4}, {t:2,3,4}, {t:2})", "F.linear({t:B,4}, {t:3,4}, {t:3})", "F.linear({t:4}, {t:3,4})"),
    *("F.linear({t:B,3,4}, {t:2,4})", "F.linear({t:B,3,4}, {t:2,4}, {t:2})", "torch.cdist({t:3,4}, {t:2,4})"),
    *("torch.cdist({t:3,4}, {t:2,4}, p=1)", "F.pdist({t:3,4})", "torch.vander({t:3}, 3)", "torch.linalg.det({t:3,3})"),
    *("F.mse_loss({t:3,4}, {t:3,4})", "F.l1_loss({t:3,4}, {t:3,4}, reduction='none')", "F.smooth_l1_loss({t:3,4}, {t:3,4})"),
    *("F.huber_loss({t:3,4}, {t:3,4})", "F.kl_div({t:3,4}, {t:3,4}.sigmoid(), reduction='sum')"),
    *("F.binary_cross_entropy({t:3,4}.sigmoid(), {t:3,4}.sigmoid())", "F.nll_loss({t:3,4}.log_softmax(1), {i:3})"),
    *("F.binary_cross_entropy_with_logits({t:3,4}, {t:3,4}.sigmoid())", "F.cross_entropy({t:3,4}, {i:3})"),
    *("F.cosine_embedding_loss({t:3,4}, {t:3,4}, {i:3}.sign() * 2 - 1)", "F.soft_margin_loss({t:3,4}, {t:3,4}.sign())"),
    *("F.margin_ranking_loss({t:4}, {t:4}, {t:4}.sign())", "F.triplet_margin_loss({t:3,4}, {t:3,4}, {t:3,4})"),
    *("F.poisson_nll_loss({t:3,4}, {t:3,4})", "F.gaussian_nll_loss({t:3,4}, {t:3,4}, {t:3,4} ** 2 + 1)"),
    *("F.hinge_embedding_loss({t:3,4}, {t:3,4}.sign())", "F.multilabel_soft_margin_loss({t:3,4}, {t:3,4}.sigmoid())"),
    *("F.scaled_dot_product_attention({t:B,2,3,4}, {t:B,2,5,4}, {t:B,2,5,4})",),
)

MADE = (
    *("torch.full((3, 4), {n})", "torch.zeros(3, 4, dtype={dtype})", "torch.ones(3, 1, dtype={dtype})"),
    *("torch.arange(4)", "torch.arange(0.0, 1.0, 0.25)", "torch.eye(3, dtype={dtype})", "torch.eye(3, 4)"),
    *("torch.linspace(0, 1, 4, dtype={dtype})", "torch.logspace(0, 1, 4)", "torch.full((), {n}, dtype={dtype})"),
    *("torch.tril_indices(3, 3)", "torch.triu_indices(3, 3)", "torch.full_like({a}, {n})", "torch.scalar_tensor({n})"),
    *("{a}.new_full((2, 2), {n})", "torch.zeros_like({a}) + {b}", "torch.ones_like({a}) * {b}", "{a}.new_empty(0)"),
    *("torch.arange(4).unsqueeze(0) <= torch.arange(4).unsqueeze(1)", "torch.ones(3, 4).tril()"),
    *("torch.hann_window(4)", "torch.full((2, 2), True)", "torch.zeros((0, 4), dtype={dtype})"),
)

COMPLEX = (
    *("torch.complex({t:3,4}, {t:3,4}).abs()", "torch.view_as_real(torch.complex({t:3,4}, {t:3,4}))"),
    *("torch.fft.rfft({t:3,4}).abs()", "torch.fft.irfft(torch.fft.rfft({t:3,4}))", "torch.polar({t:3,4}.abs(), {t:3,4}).real"),
    *("torch.view_as_real(torch.fft.fft({t:3,4}))", "torch.view_as_complex({t:3,2}).imag", "torch.complex({t:3}, {t:3}).angle()"),
    *("(torch.complex({t:3}, {t:3}) * torch.complex({t:3}, {t:3}).conj()).real",),
    *("torch.view_as_real(torch.complex({t:3,4}, {t:3,4}) @ torch.complex({t:4,2}, {t:4,2}))",),
)

WRITES = (
    *(
        f"$ = {{a}}.clone(); $.{call}"
        for call in (
            *("abs_()", "add_({b})", "sub_({b})", "mul_({b})", "div_({p})", "relu_()", "neg_()"),
            *("exp_()", "sigmoid_()", "tanh_()", "sin_()", "cos_()", "floor_()", "ceil_()"),
            *("round_()", "trunc_()", "square_()", "clamp_(-1, 1)", "clamp_min_(0)", "zero_()"),
            *("fill_({n})", "copy_({b})", "masked_fill_({c}, {n})", "pow_(2)", "erf_()", "lerp_({b}, 0.5)"),
            *("addcmul_({b}, {b2})", "addcdiv_({b}, {p})", "add_({n})", "mul_({n})", "sub_({n})"),
            *("reciprocal_()", "expm1_()", "sign_()", "atan_()", "abs_().sqrt_()", "abs_().log1p_()"),
            *("fmod_(2)", "remainder_({p})", "nan_to_num_()", "clamp_max_({n})"),
        )
    ),
    *("$ = {x}.clone(); $.index_fill_({d}, {r}, 2.0)", "$ = {x}.clone(); $.cumsum_({d})", "$ = {x}.clone(); $.tril_()"),
    *("$ = {x}.clone(); $.scatter_({d}, {q}, 0.5)", "$ = {x}.clone(); $.select({d}, 0).add_(1)", "$ = {x}.clone(); $.triu_()"),
    *("$ = {x}.clone(); $.index_add_({d}, {r}, {x}.index_select({d}, {r}))", "$ = {x}.clone(); $.squeeze_()"),
    *("$ = {x}.clone(); $[..., 0] = 1.0", "$ = {x}.clone(); $.narrow({d}, 0, {k}).mul_(2)", "$ = {x}.clone(); $.t_()"),
    *("$ = F.relu({a}.clone(), inplace=True)", "$ = F.silu({a}.clone(), inplace=True)", "$ = {x}.clone(); $.unsqueeze_(0)"),
    *("$ = F.hardswish({a}.clone(), inplace=True)", "$ = F.leaky_relu({a}.clone(), inplace=True)"),
    *("$ = F.elu({a}.clone(), inplace=True)", "$ = torch.zeros_like({a}); $.add_({b})", "$ = F.mish({a}.clone(), inplace=True)"),
    *("$ = {t:3,2}.clone(); $.addmm_({t:3,4}, {t:4,2})", "$ = {t:B,3,2}.clone(); $.baddbmm_({t:B,3,4}, {t:B,4,2})"),
    *("$ = {i:3,4}.clone(); $.bitwise_and_(1)", "$ = {i:3,4}.clone(); $.add_(1)", "$ = {o:3,4}.clone(); $.logical_not_()"),
)


class _Shaped:
    """A place for a tensor of a shape that the template gives: `{t:B,3}`."""

    def __init__(self, pool: Pool, dtype: torch.dtype) -> None:
        self.pool = pool
        self.dtype = dtype

    def __format__(self, sizes: str) -> str:
        shape = [self.pool.batch if n == "B" else int(n) for n in sizes.split(",") if n]
        return f"({self.pool.value(shape, self.dtype)})"


class Slots(dict[str, object]):
    """What stands in the places of one template, each found when it is asked for."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool

    def __missing__(self, name: str) -> object:
        self[name] = value = _SLOTS[name](self, self.pool)
        return value


def _index(s: Slots, g: Pool, like: bool) -> str:
    """Numbers that index dim `d` of `x`: a few, or as many as `x` has elements."""
    shape = g.of(str(s["x"])).shape
    indices = g.tensor(shape if like else (g.rng.randint(1, 3),), torch.int64)
    return f"({indices} % {shape[int(str(s['d']))]})"


def _other(s: Slots, g: Pool) -> int:
    """A dim of `x` other than `d`."""
    ndim, d = g.of(str(s["x"])).ndim, int(str(s["d"]))
    return g.rng.choice([e for e in range(-ndim, ndim) if e % ndim != d % ndim])


_SLOTS: dict[str, Callable[[Slots, Pool], object]] = {
    "a": lambda s, g: g.real(),  # any value of floating-point numbers
    "b": lambda s, g: g.beside(str(s["a"])),
    "b2": lambda s, g: g.beside(str(s["a"])),
    "p": lambda s, g: f"({g.beside(str(s['a']))}.abs() + 0.5)",  # positive
    "u": lambda s, g: f"torch.sigmoid({s['a']})",  # between 0 and 1
    "c": lambda s, g: g.tensor(g.of(str(s.get("x") or s["a"])).shape, torch.bool),
    "x": lambda s, g: g.full(),  # one with dims, none of them empty
    "y": lambda s, g: g.beside(str(s["x"])),
    "d": lambda s, g: g.dim(str(s["x"])),
    "e": _other,
    "k": lambda s, g: g.rng.randint(1, g.of(str(s["x"])).shape[int(str(s["d"]))]),
    "q": lambda s, g: _index(s, g, True),
    "r": lambda s, g: _index(s, g, False),
    "r1": lambda s, g: g.tensor((1,), torch.int64) + " % 1",
    "k0": lambda s, g: g.rng.randint(0, 3),
    "k1": lambda s, g: g.rng.randint(int(str(s["k0"])) + 1, 6),
    "n": lambda s, g: g.number(),
    "t": lambda s, g: _Shaped(g, g.dtype),
    "i": lambda s, g: _Shaped(g, torch.int64),
    "o": lambda s, g: _Shaped(g, torch.bool),
    "B": lambda s, g: g.batch,
    "N": lambda s, g: g.of(str(s["x"])).numel() if "x" in s else 3,
    "L": lambda s, g: g.of(str(s["x"])).shape[-1],
    "dtype": lambda s, g: g.dtype,
}


def maker(name: str, templates: tuple[str, ...]) -> Callable[[Pool], str]:
    """The step that is one of these templates, its places filled."""

    def make(g: Pool) -> str:
        return g.rng.choice(templates).format_map(Slots(g))

    make.__name__ = name
    return make


CATALOGUE = (
    (maker("any_pointwise", POINTWISE), 4),
    (maker("any_binary", BINARY), 4),
    (maker("any_integer", INTEGERS), 2),
    (maker("any_reduction", REDUCTIONS), 4),
    (maker("any_view", VIEWS), 5),
    (maker("any_gather", GATHERS), 3),
    (maker("any_image", IMAGES), 3),
    (maker("any_product", PRODUCTS), 4),
    (maker("any_made", MADE), 1),
    (maker("any_complex", COMPLEX), 0.3),
    (maker("any_write", WRITES), 0.6),
)
