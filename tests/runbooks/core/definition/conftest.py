"""Lets the tests of this folder import `definition_samples` under importlib mode, which adds no folder to the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
