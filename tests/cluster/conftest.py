"""Processes that share one PostgreSQL ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.processes import CALLBACK_KEYS, Process, free_port

StartRole = Callable[..., Process]


@pytest.fixture
def start_role(tmp_path: Path, postgres_url: str) -> Iterator[StartRole]:
    """`start_role("api", LUCIUS_…="…")`: a process over this test's database, gone when the test ends."""
    with ExitStack() as stack:

        def start(role: str, **settings: str) -> Process:
            shared = {"LUCIUS_LEDGER": postgres_url, "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS, **settings}
            port = free_port() if role == "api" else None
            return stack.enter_context(Process(role, settings=shared, folder=tmp_path, port=port))

        yield start
