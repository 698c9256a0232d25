"""A service that was started before its server had a key finds that key when it is there."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from lucius.client.transport import AsyncTransport, TransportOptions
from lucius.platform.orchestrator import Orchestrator, PullFailed
from lucius.platform.settings import PlatformSettings, key_now, read_settings

LOCAL, ELSEWHERE = "http://127.0.0.1:8000", "http://lucius.example.org"


def server_with(key: str, asked: list[str]) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("Authorization", ""))
        if asked[-1] == f"Bearer {key}":
            return httpx.Response(200, json={"directives": [{"jobId": "1"}]})
        return httpx.Response(401, json={"code": "UNAUTHENTICATED"})

    return httpx.MockTransport(answer)


def orchestrator_at(
    server: httpx.MockTransport, settings: PlatformSettings, environment: dict[str, str]
) -> Orchestrator:
    options = TransportOptions(http_transport=server, refreshed_key=lambda: key_now(settings, environment))
    return Orchestrator(AsyncTransport(LOCAL, settings.api_key, options))


async def test_a_refused_pull_is_made_again_with_the_key_of_this_machine(tmp_path: Path) -> None:
    environment = {"LUCIUS_DATA": str(tmp_path)}
    settings = read_settings(environment)
    assert settings.api_key == ""
    (tmp_path / "api-key").write_text("made-later\n")
    asked: list[str] = []
    orchestrator = orchestrator_at(server_with("made-later", asked), settings, environment)
    assert await orchestrator.pull("tally", 1, 0.0) == [{"jobId": "1"}]
    assert await orchestrator.pull("tally", 1, 0.0) == [{"jobId": "1"}]
    assert asked == ["", "Bearer made-later", "Bearer made-later"]


async def test_a_pull_is_not_made_again_with_the_same_key(tmp_path: Path) -> None:
    environment = {"LUCIUS_DATA": str(tmp_path)}
    (tmp_path / "api-key").write_text("wrong\n")
    settings = read_settings(environment)
    asked: list[str] = []
    orchestrator = orchestrator_at(server_with("right", asked), settings, environment)
    with pytest.raises(PullFailed, match="UNAUTHENTICATED"):
        await orchestrator.pull("tally", 1, 0.0)
    assert asked == ["Bearer wrong"]


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
