"""Lets the tests of this folder import its modules under pytest's importlib mode, which adds no folder to the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
