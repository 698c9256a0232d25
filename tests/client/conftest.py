from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from tests.client.faulty_server import FaultyServer

from lucius.client import AsyncClient, Client

Invoke = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer().running() as running:
        yield running


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds a key of the developer's."""
    monkeypatch.chdir(tmp_path)
    for name in ("LUCIUS_API_KEY", "LUCIUS_DATA", "LUCIUS_ORCHESTRATOR_URL", "LUCIUS_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["blocking", "async"])
def invoke(request: pytest.FixtureRequest, server: FaultyServer) -> Invoke:
    """Calls a method of the client by its name; what is iterated over comes as a list."""

    def blocking(name: str, *arguments: Any, patience_seconds: float = 20.0, **options: Any) -> Any:
        with Client(server.url, "key", patience_seconds=patience_seconds) as client:
            result = attrgetter(name)(client)(*arguments, **options)
            return list(result) if name == "follow" else result

    async def awaited(name: str, *arguments: Any, patience_seconds: float = 20.0, **options: Any) -> Any:
        async with AsyncClient(server.url, "key", patience_seconds=patience_seconds) as client:
            result = attrgetter(name)(client)(*arguments, **options)
            return [one async for one in result] if name == "follow" else await result

    if request.param == "blocking":
        return blocking
    return lambda *arguments, **options: asyncio.run(awaited(*arguments, **options))
