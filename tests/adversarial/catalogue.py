"""The adversarial programs: what has made optimizers of tensor programs go wrong, by theme."""

from adversarial.arithmetic import ARITHMETIC
from adversarial.effects import EFFECTS
from adversarial.memory import MEMORY
from adversarial.networks import NETWORKS
from adversarial.program import Program
from adversarial.shapes import SHAPES
from adversarial.size import SIZE

SMALL: tuple[Program, ...] = (*MEMORY, *ARITHMETIC, *SHAPES, *EFFECTS, *NETWORKS)
PROGRAMS: tuple[Program, ...] = (*SMALL, *SIZE)
NAMED = {program.name: program for program in PROGRAMS}
