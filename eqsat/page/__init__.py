"""The results of a comparison as one HTML page that needs no network."""

from eqsat.page.classes import egraph
from eqsat.page.write import write

__all__ = ["egraph", "write"]
