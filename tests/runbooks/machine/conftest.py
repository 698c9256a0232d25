"""Lets the tests of this folder import `harness` and `random_runs` under importlib mode."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lucius.runbooks.engine import cancelling

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]


@pytest.fixture(autouse=True)
def small_cancellations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few members are cancelled in several turns, as large ones are."""
    monkeypatch.setattr(cancelling, "STEPS_MAX", 2)
