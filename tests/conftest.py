"""Lets tests share what stands beside them, and gives each the same random numbers in any order."""

import signal
import sys
from pathlib import Path

import hypothesis
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job of a shell in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = ["adversarial", "programs", "oracle.py", "wrong_rules.py"]


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Random numbers that do not depend on the tests before."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def searching_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No result of a test before, or of another run: `test_cache.py` asks for the cache itself."""
    monkeypatch.setattr("eqsat.cache.folder", lambda: None)
