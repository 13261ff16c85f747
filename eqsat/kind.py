"""What an operator is to the cost model: how its kernels move memory, compute and fuse."""

from enum import StrEnum, auto


class Kind(StrEnum):
    """The class of an operator that decides how a call of it is priced."""

    SCALAR = auto()
    LEAF = auto()
    VIEW = auto()
    POINTWISE = auto()
    REDUCTION = auto()
    NORM = auto()
    MATMUL = auto()
    CONVOLUTION = auto()
    ATTENTION = auto()
    GATHER = auto()
    CAT = auto()
    CREATION = auto()
    OPAQUE = auto()
