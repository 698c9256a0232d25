"""A real Temporal server, and stands on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.temporal.shapes import TemporalHarness, harness_in_memory, harness_on_sqlite, start_server


@pytest.fixture(scope="module")
def temporal_address() -> Iterator[str]:
    """One server a module; every stand has a task queue of its own."""
    yield from start_server()


@pytest.fixture
async def outside(temporal_address: str) -> AsyncIterator[TemporalHarness]:
    """A stand whose bus is not in the ledger's database."""
    async with harness_in_memory(temporal_address) as harness:
        yield harness


@pytest.fixture
async def inside(temporal_address: str, tmp_path: Path) -> AsyncIterator[TemporalHarness]:
    """A stand whose bus is in the ledger's database."""
    async with harness_on_sqlite(temporal_address, tmp_path) as harness:
        yield harness
