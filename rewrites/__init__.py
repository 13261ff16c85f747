"""The rules, by theme; each name is a tuple of Rewrite."""

from eqsat.rewrite import RuleSet
from rewrites.absorb import ABSORB
from rewrites.attention import ATTENTION
from rewrites.broadcast import BROADCAST
from rewrites.cast import CAST
from rewrites.cat import CAT
from rewrites.conv import CONV
from rewrites.einsum import EINSUM
from rewrites.elementwise import ELEMENTWISE
from rewrites.fill import FILL
from rewrites.gather import GATHER
from rewrites.inductor import inductor as inductor
from rewrites.linear import LINEAR
from rewrites.merge import MERGE
from rewrites.movement import MOVEMENT
from rewrites.norm import NORM
from rewrites.part import PART
from rewrites.pool import POOL
from rewrites.reduce import REDUCE
from rewrites.taso import TASO as TASO
from rewrites.twin import TWIN

DEFAULT = RuleSet((*LINEAR, *EINSUM, *MERGE, *ATTENTION, *ABSORB, *CONV, *NORM, *REDUCE, *ELEMENTWISE, *CAST, *BROADCAST, *CAT, *MOVEMENT, *GATHER, *PART, *TWIN, *POOL, *FILL))
OWN = DEFAULT  # those that come with the package, whatever is made the default
