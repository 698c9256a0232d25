"""Lets the tests of this folder import `harness` and `random_runs` under importlib mode."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
