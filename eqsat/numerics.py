"""What a rule may change of the numbers of a program."""

from enum import IntEnum


class Numerics(IntEnum):
    """What a rule may change: nothing, rounding, or values that are not finite."""

    EXACT = 0
    ROUNDING = 1
    RELAXED = 2


EXACT, ROUNDING, RELAXED = Numerics
NAMES = {"strict": EXACT, "default": ROUNDING, "relaxed": RELAXED}
