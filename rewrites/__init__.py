"""The rules, by theme; each name is a tuple of Rewrite."""

from eqsat.rewrite import RuleSet
from rewrites.attention import ATTENTION
from rewrites.cast import CAST
from rewrites.cat import CAT
from rewrites.conv import CONV
from rewrites.elementwise import ELEMENTWISE
from rewrites.inductor import inductor as inductor
from rewrites.linear import LINEAR
from rewrites.merge import MERGE
from rewrites.movement import MOVEMENT
from rewrites.norm import NORM
from rewrites.reduce import REDUCE

DEFAULT = RuleSet((*LINEAR, *MERGE, *ATTENTION, *CONV, *NORM, *REDUCE, *ELEMENTWISE, *CAST, *CAT, *MOVEMENT))
