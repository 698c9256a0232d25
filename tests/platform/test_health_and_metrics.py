"""What a service shows of itself: health, readiness and counts, over its own port."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.crash.processes import free_port
from tests.platform.played import (
    AWAY,
    SECONDS_MAX,
    PlayedOrchestrator,
    serve_until,
    service_of,
    settings_for,
)

from lucius.kit import health as health_module
from lucius.kit.health import Health, HealthServer
from lucius.platform import Directive, NonRetryable, ServiceUnusable, Workspace, sources
from lucius.platform.sqlite_store import SqliteStore


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return 0, "{}"


def checks(port: int, path: str = "/readyz") -> tuple[int, dict[str, str]]:
    status, text = get(port, path)
    return status, json.loads(text).get("checks", {})


async def checks_of(port: int, path: str = "/readyz") -> tuple[int, dict[str, str]]:
    return await asyncio.to_thread(checks, port, path)


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Every sample by its name and its labels' values, without the service."""
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            assert one.labels.get("service") == "played", one
            rest = [value for name, value in sorted(one.labels.items()) if name != "service"]
            found[(one.name, *rest)] = one.value
    return found


class Watched:
    """What the port said while the service ran; asked from a thread, as a probe would."""

    def __init__(self, port: int) -> None:
        self.seen: list[tuple[int, dict[str, str]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(port,))

    def _watch(self, port: int) -> None:
        while not self._stop.is_set():
            self.seen.append(checks(port))
            time.sleep(0.02)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(SECONDS_MAX)


async def test_readiness_follows_the_orchestrator_and_the_stop(
    played: PlayedOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    played.delays["PULL"] = 0.4
    let_go = threading.Event()
    told: list[str] = []

    def work(directive: Directive, workspace: Workspace) -> None:
        assert let_go.wait(SECONDS_MAX)

    def moved_on() -> bool:
        """Ready, then the orchestrator goes away, then it is back; then the service is stopped with work in hand."""
        status, found = watched.seen[-1] if watched.seen else (0, {})
        if status == 200 and not told:
            played.always["PULL"] = AWAY
            told.append("away")
        elif told == ["away"] and status == 503 and "UNAVAILABLE" in found["orchestrator"]:
            played.always.clear()
            told.append("back")
        elif told == ["away", "back"] and status == 200:
            played.send(played.directive(1))
            told.append("sent")
        return told[-1:] == ["sent"] and bool(played.of_kind("ACK"))

    settings = settings_for(played, health_port=port)
    with Watched(port) as watched:
        serving = asyncio.create_task(serve_until(service_of(work), settings, moved_on))
        async with asyncio.timeout(SECONDS_MAX):
            while not any(found.get("draining") == "yes" for _, found in watched.seen):
                await asyncio.sleep(0.02)
            let_go.set()
            await serving
    before = next(found for status, found in watched.seen if status)
    assert before["orchestrator"] == "no answer yet"
    draining = [status for status, found in watched.seen if found.get("draining") == "yes"]
    assert set(draining) == {503}
    assert all(status == 503 for status, found in watched.seen if status and found["orchestrator"] != "ok")


async def test_the_first_pull_and_the_first_after_a_failure_do_not_wait(played: PlayedOrchestrator) -> None:
    """A quiet orchestrator holds a long poll for twenty seconds, and for so long nobody would know that it is there."""
    played.faults["PULL"] = [(200, {"directives": []}), (200, {"directives": []}), AWAY]
    await serve_until(service_of(lambda one, two: None), settings_for(played), lambda: len(played.pulls) >= 5)
    long = sources.PULL_WAIT_SECONDS
    assert [pull["wait_seconds"] for pull in played.pulls[:5]] == [0, long, long, 0, long]


async def test_a_refusal_is_shown_and_the_service_lives(played: PlayedOrchestrator) -> None:
    port = free_port()
    played.always["PULL"] = (401, {"code": "UNAUTHENTICATED", "detail": "no such key"})
    found: list[Any] = []
    settings = settings_for(played, health_port=port)
    serving = asyncio.create_task(
        serve_until(service_of(lambda one, two: None), settings, lambda: len(found) == 2),
    )
    async with asyncio.timeout(SECONDS_MAX):
        while "UNAUTHENTICATED: no such key" not in (await checks_of(port))[1].get("orchestrator", ""):
            await asyncio.sleep(0.02)
        found += [await checks_of(port), await checks_of(port, "/healthz")]
        await serving
    assert [status for status, _ in found] == [503, 200]


async def test_a_store_that_fails_makes_the_service_unready(
    played: PlayedOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = threading.Event()
    commit = SqliteStore._commit

    def failing(store: SqliteStore, connection: Any, group: Any) -> Any:
        if broken.is_set():
            raise OSError(28, "No space left on device")
        return commit(store, connection, group)

    monkeypatch.setattr(SqliteStore, "_commit", failing)
    port = free_port()
    seen: list[tuple[int, dict[str, str]]] = []
    settings = settings_for(played, health_port=port, store="sqlite")
    serving = asyncio.create_task(
        serve_until(service_of(lambda one, two: None), settings, lambda: played.results("job-2")),
    )
    async with asyncio.timeout(SECONDS_MAX):
        while (await checks_of(port))[0] != 200:
            await asyncio.sleep(0.02)
        broken.set()
        played.send(played.directive(1))
        while "No space left" not in (await checks_of(port))[1].get("store", ""):
            await asyncio.sleep(0.02)
        seen.append(await checks_of(port))
        broken.clear()
        played.send(played.directive(2))
        await serving
    assert seen[0][0] == 503
    assert not played.of_kind("ACK", "job-1")


def test_a_loop_that_does_not_turn_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "BEAT_SECONDS_MAX", 0.3)
    health = Health()
    health.pulled()
    with HealthServer("127.0.0.1", 0, health, lambda: b"") as server:
        assert checks(server.port, "/healthz") == (200, {"event_loop": "ok"})
        time.sleep(0.4)
        status, found = checks(server.port, "/healthz")
        assert status == 503
        assert "blocked for" in found["event_loop"]
        assert checks(server.port)[0] == 503
        health.beat()
        assert checks(server.port)[0] == 200
        assert get(server.port, "/elsewhere")[0] == 404


async def test_a_blocked_service_is_not_alive(played: PlayedOrchestrator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port is served by a thread, so it answers although the loop does not."""
    monkeypatch.setattr(health_module, "BEAT_SECONDS_MAX", 1.5)
    port = free_port()
    during: list[int] = []

    def blocked() -> bool:
        if played.pulls and not during:
            time.sleep(2.0)
            during.append(checks(port, "/healthz")[0])
            time.sleep(0.1)
        return bool(during)

    await serve_until(service_of(lambda one, two: None), settings_for(played, health_port=port), blocked)
    assert during == [503]


async def test_metrics_parse_and_move(played: PlayedOrchestrator) -> None:
    port = free_port()
    taken: list[dict[tuple[str, ...], float]] = []

    def work(directive: Directive, workspace: Workspace) -> None:
        if directive.job_id == "job-2":
            raise NonRetryable("BAD", "input")

    def measured() -> bool:
        if not taken:
            status, text = get(port, "/metrics")
            if status == 200:
                taken.append(samples(text))
                played.send(played.directive(1), played.directive(2), played.directive(1), {"no": "directive"})
        elif len(played.results()) == 2 and len(played.pulls) > 4:
            taken.append(samples(get(port, "/metrics")[1]))
        return len(taken) == 2

    played.faults["RESULT"] = []
    await serve_until(service_of(work), settings_for(played, health_port=port), measured)
    after = taken[1]
    assert after["lucius_platform_directives_total", "new"] == 2
    assert after["lucius_platform_directives_total", "unreadable"] == 1
    again = [after.get(("lucius_platform_directives_total", seen), 0) for seen in ("in_work", "finished", "settled")]
    assert sum(again) == 1
    assert after["lucius_platform_attempts_total", "SUCCEEDED", "WORK"] == 1
    assert after["lucius_platform_attempts_total", "NON_RETRYABLE", "WORK"] == 1
    assert after["lucius_platform_work_seconds_count", "WORK"] == 2
    assert after["lucius_platform_callbacks_total", "APPLIED", "RESULT"] == 2
    assert after["lucius_platform_in_work",] == 0
    assert after["lucius_platform_results_owed",] == 0
    assert not taken[0] or max(taken[0].values()) == 0


async def test_a_port_that_is_taken_is_refused_by_name(played: PlayedOrchestrator) -> None:
    with HealthServer("127.0.0.1", 0, Health(), lambda: b"") as server:
        serving = service_of(lambda one, two: None).serve(settings=settings_for(played, health_port=server.port))
        expected = f"127.0.0.1:{server.port}.*LUCIUS_PLATFORM_HEALTH_PORT"
        with pytest.raises(ServiceUnusable, match=expected):
            await serving
