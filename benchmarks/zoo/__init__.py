"""The zoo: real models, the published benchmark set, and programs where greedy order loses."""

from types import MappingProxyType

from benchmarks.zoo import language, ordering, parts, published, vision
from benchmarks.zoo.entry import SIZES as SIZES
from benchmarks.zoo.entry import Entry as Entry
from benchmarks.zoo.entry import Expected as Expected
from benchmarks.zoo.published import PUBLISHED as PUBLISHED
from benchmarks.zoo.published import Figures as Figures

_ALL = (language, vision, parts, published, ordering)
ENTRIES = MappingProxyType({entry.name: entry for part in _ALL for entry in part.ENTRIES})
"""Every entry by its name, set by set."""
