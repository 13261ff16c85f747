"""The rules, by theme; each name is a tuple of Rewrite."""

from rewrites.attention import ATTENTION
from rewrites.conv import CONV
from rewrites.linear import LINEAR
from rewrites.merge import MERGE
from rewrites.movement import MOVEMENT
from rewrites.norm import NORM

DEFAULT = (*LINEAR, *MERGE, *ATTENTION, *CONV, *NORM, *MOVEMENT)
