"""A service that was started before its server had a key finds that key when it is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.client.faulty_server import Answer, FaultyServer

from lucius.client.async_transport import AsyncTransport
from lucius.client.transport import TransportOptions
from lucius.platform.orchestrator import Orchestrator, PullFailed
from lucius.platform.settings import PlatformSettings, key_now, read_settings

ELSEWHERE = "http://lucius.example.org"


UNAUTHENTICATED = Answer(401, {"code": "UNAUTHENTICATED"})


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer().running() as running:
        yield running


@asynccontextmanager
async def orchestrator_at(
    server: FaultyServer, settings: PlatformSettings, environment: dict[str, str]
) -> AsyncIterator[Orchestrator]:
    options = TransportOptions(refreshed_key=lambda: key_now(settings, environment))
    transport = AsyncTransport(server.url, settings.api_key, options)
    try:
        yield Orchestrator(transport)
    finally:
        await transport.close()


def keys_sent_to(server: FaultyServer) -> list[str]:
    return [call.headers.get("Authorization", "") for call in server.calls("POST /v1/directives:pull")]


async def test_a_refused_pull_is_made_again_with_the_key_of_this_machine(tmp_path: Path, server: FaultyServer) -> None:
    environment = {"LUCIUS_DATA": str(tmp_path)}
    settings = read_settings(environment)
    assert settings.api_key == ""
    (tmp_path / "api-key").write_text("made-later\n")
    server.on("POST /v1/directives:pull", UNAUTHENTICATED, Answer(content={"directives": [{"jobId": "1"}]}))
    async with orchestrator_at(server, settings, environment) as orchestrator:
        assert await orchestrator.pull("tally", 1, 0.0) == [{"jobId": "1"}]
        assert await orchestrator.pull("tally", 1, 0.0) == [{"jobId": "1"}]
    assert keys_sent_to(server) == ["", "Bearer made-later", "Bearer made-later"]


async def test_a_pull_is_not_made_again_with_the_same_key(tmp_path: Path, server: FaultyServer) -> None:
    environment = {"LUCIUS_DATA": str(tmp_path)}
    (tmp_path / "api-key").write_text("wrong\n")
    settings = read_settings(environment)
    server.on("POST /v1/directives:pull", UNAUTHENTICATED)
    async with orchestrator_at(server, settings, environment) as orchestrator:
        with pytest.raises(PullFailed, match="UNAUTHENTICATED"):
            await orchestrator.pull("tally", 1, 0.0)
    assert keys_sent_to(server) == ["Bearer wrong"]


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({"LUCIUS_API_KEY": "given"}, "given"),
        ({"LUCIUS_ORCHESTRATOR_URL": ELSEWHERE}, ""),
        ({}, "of-this-machine"),
    ],
)
def test_the_key_of_this_machine_is_for_servers_on_it_and_where_none_was_given(
    tmp_path: Path, environment: dict[str, str], key: str
) -> None:
    environment = {"LUCIUS_DATA": str(tmp_path), **environment}
    settings = read_settings(environment)
    (tmp_path / "api-key").write_text("of-this-machine\n")
    assert key_now(settings, environment) == key


def test_a_key_file_that_cannot_be_a_key_is_passed_over(tmp_path: Path) -> None:
    environment = {"LUCIUS_DATA": str(tmp_path)}
    settings = read_settings(environment)
    (tmp_path / "api-key").write_text("two words\n")
    assert key_now(settings, environment) == ""
