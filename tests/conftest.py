"""Lets tests share what stands beside them, and keeps pytest from collecting it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

collect_ignore = ["adversarial", "programs", "oracle.py", "wrong_rules.py"]
