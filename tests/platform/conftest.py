"""What the tests of the platform kit share: an orchestrator that plays what a test tells it to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("lucius.testing.store_suite")

from tests.platform.played import PlayedOrchestrator  # noqa: E402 - assertions must be rewritten before the import


@pytest.fixture
def played(tmp_path: Path) -> Iterator[PlayedOrchestrator]:
    with PlayedOrchestrator(tmp_path) as orchestrator:
        yield orchestrator
