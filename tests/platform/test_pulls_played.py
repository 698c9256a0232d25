"""Directives are taken as there is room for them, and asked for again whatever the answer was."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.platform.played import (
    AWAY,
    HANG_UP,
    STALE,
    Answer,
    PlayedOrchestrator,
    serve_until,
    service_of,
    settings_for,
)

from lucius.kit.health import Health
from lucius.platform import Directive, PlatformService, ServiceUnusable, Workspace, sqlite_store
from lucius.platform.sources import PULL_WAIT_SECONDS
from lucius.platform.sqlite_store import SqliteStore


def work(directive: Directive, workspace: Workspace) -> dict[str, Any]:
    return {"job": directive.job_id}


@pytest.mark.parametrize(
    "fault",
    [
        AWAY,
        HANG_UP,
        (401, {"code": "UNAUTHENTICATED", "detail": "no such key"}),
        (403, b"forbidden by a proxy"),
        (200, b"<html>a page"),
        (200, {"directives": "none"}),
        (200, b"[" * 100_000),
        (200, b"\xff\xfe"),
        (302, b"", {"Location": "https://example.com/"}),
        (429, {"code": "RATE_LIMITED"}, {"Retry-After": "1"}),
    ],
    ids=lambda answer: f"{answer[0]} {str(answer[1])[:20]}",
)
async def test_a_pull_that_fails_is_made_again(played: PlayedOrchestrator, fault: Answer) -> None:
    played.faults["PULL"] = [fault] * 2
    played.send(played.directive(1))
    await serve_until(service_of(work), settings_for(played), played.results)
    assert played.faults["PULL"] == []


async def test_a_service_that_may_not_wait_asks_as_told_and_stays_ready(
    played: PlayedOrchestrator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All calls that may be held open are in use, by other replicas perhaps: directives can be had without waiting."""
    told: list[str] = []
    monkeypatch.setattr(Health, "pull_failed", lambda self, reason: told.append(reason))
    played.faults["PULL"] = [(200, {"directives": []}), (429, {"code": "WAITS_SATURATED"}, {"Retry-After": "1"})]
    played.send(played.directive(1))
    began = time.monotonic()
    await serve_until(service_of(work), settings_for(played), played.results)
    assert [pull["wait_seconds"] for pull in played.pulls[:3]] == [0, PULL_WAIT_SECONDS, 0]
    assert time.monotonic() - began >= 1.0, "it waited as it was told"
    assert "WAITS_SATURATED" in caplog.text
    assert told == [], "the orchestrator has answered"


async def test_no_more_is_in_work_than_allowed_and_no_more_is_asked_for(played: PlayedOrchestrator) -> None:
    lock = threading.Lock()
    in_work, most = [0], [0]

    def counted(directive: Directive, workspace: Workspace) -> None:
        with lock:
            in_work[0] += 1
            most[0] = max(most[0], in_work[0])
        time.sleep(0.03)
        with lock:
            in_work[0] -= 1

    played.send(*(played.directive(number) for number in range(40)))
    settings = settings_for(played, concurrency=3)
    await serve_until(service_of(counted), settings, lambda: len(played.results()) == 40)
    assert most[0] == 3
    assert {pull["max"] for pull in played.pulls} <= {1, 2, 3}
    assert {pull["service"] for pull in played.pulls} == {"played"}


async def test_a_thread_that_outlives_its_attempt_keeps_its_slot(played: PlayedOrchestrator) -> None:
    """It cannot be stopped from outside; one more beside it would be one more than allowed."""
    let_go = threading.Event()
    started: list[str] = []

    def stubborn(directive: Directive, workspace: Workspace) -> None:
        started.append(directive.job_id)
        if directive.job_id == "job-1":
            assert let_go.wait(40)

    played.faults["HEARTBEAT"] = [STALE]
    played.send(played.directive(1, lease_seconds=0.3), played.directive(2))
    held: list[int] = []

    def freed() -> bool:
        beaten = played.of_kind("HEARTBEAT")
        if beaten and time.monotonic() - beaten[0].at > 1.0 and not let_go.is_set():
            held.append(len(started))
            let_go.set()
        return bool(played.results("job-2"))

    await serve_until(service_of(stubborn), settings_for(played, concurrency=1), freed)
    assert held == [1]
    assert started == ["job-1", "job-2"]


async def test_a_full_disk_leaves_the_directive_for_later(
    played: PlayedOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be recorded is neither acknowledged nor worked on, and is taken when it comes again."""
    full = threading.Event()
    full.set()
    commit = SqliteStore._commit

    def on_a_full_disk(store: SqliteStore, connection: Any, group: Any) -> Any:
        connection.execute(f"PRAGMA max_page_count = {1 if full.is_set() and store._forgotten_at >= 0 else 100_000}")
        return commit(store, connection, group)

    monkeypatch.setattr(SqliteStore, "_commit", on_a_full_disk)
    worked: list[str] = []

    def counted(directive: Directive, workspace: Workspace) -> None:
        worked.append(directive.job_id)

    seen: list[list[str]] = []
    padding = "x" * 20_000  # Larger than what is free in the pages that the file has.

    def mended() -> bool:
        if full.is_set() and len(played.pulls) > 2:
            seen.append([one.kind for one in played.calls] + worked)
            full.clear()
            played.send(played.directive(1, tenant_id=padding))
        return bool(played.results())

    played.send(played.directive(1, tenant_id=padding))
    await serve_until(service_of(counted), settings_for(played, store="sqlite"), mended)
    assert seen == [[]]
    assert worked == ["job-1"]


async def test_a_service_without_steps_does_not_start(played: PlayedOrchestrator) -> None:
    with pytest.raises(ServiceUnusable, match=r"@service\.step"):
        await PlatformService("played").serve(settings=settings_for(played))


async def test_a_bus_that_is_not_known_is_refused_by_name(played: PlayedOrchestrator) -> None:
    with pytest.raises(ServiceUnusable, match="nats://"):
        await service_of(work).serve(settings=settings_for(played, orchestrator_url="nats://127.0.0.1:4222"))


async def test_a_second_service_on_the_same_state_is_refused(played: PlayedOrchestrator, tmp_path: Path) -> None:
    settings = settings_for(played, store="sqlite")
    store = SqliteStore(Path(settings.state) / "played")
    await store.open()
    try:
        with pytest.raises(ServiceUnusable, match="in use by another process"):
            await service_of(work).serve(settings=settings)
    finally:
        await store.close()
    assert (Path(settings.state) / "played" / sqlite_store.FILE).exists()


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "-x"])
def test_a_name_that_no_protocol_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a name for a service"):
        PlatformService(name)


def test_a_step_is_declared_once_and_takes_two_or_three_arguments() -> None:
    service = service_of(work)
    with pytest.raises(ValueError, match="already has a step WORK"):
        service.step("WORK")(work)
    for wrong in (lambda: None, lambda one: None, lambda one, two, three, four: None):
        with pytest.raises(TypeError, match="must take"):
            service.step("OTHER")(wrong)
    with pytest.raises(TypeError, match="needs its type"):
        service.step("")(work)
