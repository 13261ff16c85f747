"""Norms, recognised in their parts and given their weights."""

from typing import Any

import torch

from eqsat.operators import MEAN, layer_norm, reduction, rms_norm
from eqsat.rewrite import ROUNDING, Rewrite
from rewrites.attributes import widened


def mean(x: Any) -> Any:
    """The mean of `x` over its last dim, which is kept."""
    return reduction(MEAN, x, (-1,), True)


def centred(x: Any) -> Any:
    """`x` less its mean."""
    return x - mean(x)


def weighs(x: Any, w: Any, z: Any) -> bool:
    """Whether `w` has one number for each element that is normed together."""
    return tuple(w.shape) == z and w.dtype == x.dtype


NORM = (
    Rewrite("rms-norm-from-parts",   lambda x, e:          (x * torch.rsqrt(mean(x * x) + e),                            rms_norm(x, x.shape[-1:], e.value)),   numerics=ROUNDING),
    Rewrite("layer-norm-from-parts", lambda x, e:          (centred(x) * torch.rsqrt(mean(centred(x) * centred(x)) + e), layer_norm(x, x.shape[-1:], e.value)), numerics=ROUNDING),
    Rewrite("rms-norm-weight",       lambda x, w, z, e:    (rms_norm(x, z, e) * w,                                       rms_norm(x, w, z, e)),                 when=weighs, numerics=ROUNDING),
    Rewrite("layer-norm-weight",     lambda x, w, z, e:    (layer_norm(x, z, e) * w,                                     layer_norm(x, w, z, e)),               when=weighs, numerics=ROUNDING),
    Rewrite("layer-norm-bias",       lambda x, w, b, z, e: (layer_norm(x, w, z, e) + b,                                  layer_norm(x, w, b, z, e)),            when=lambda w, b: b.shape == w.shape and b.dtype == w.dtype, numerics=ROUNDING),
    Rewrite("rms-norm-narrow",       lambda x, f, g, z, e: (f(rms_norm(g(x), z, e)),                                     rms_norm(x, z, e)),                    when=widened, numerics=ROUNDING),
    Rewrite("layer-norm-narrow",     lambda x, f, g, z, e: (f(layer_norm(g(x), z, e)),                                   layer_norm(x, z, e)),                  when=widened, numerics=ROUNDING),
)
