"""The scripts of deploy/ that make files, loaded from where they are."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def load_generator(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
