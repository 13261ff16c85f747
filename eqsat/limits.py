"""When a search stops by itself."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """When to stop: rounds of rules, rows of the e-graph, seconds; matches of a rule in a round."""

    iterations: int = 24
    enodes: int = 100_000
    seconds: float = 10.0
    matches: int = 2_000

    def __post_init__(self) -> None:
        for name in ("iterations", "enodes", "seconds", "matches"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Limits: {name} must be positive, not {getattr(self, name)!r}")
