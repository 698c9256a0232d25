"""A step's declared time: a function that exceeds it gets no more heartbeats, and its attempt is reported as failed."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from tests.platform.played import PlayedOrchestrator, serve_until, settings_for

from lucius.platform import Directive, PlatformService, Workspace

LEASE_SECONDS = 0.3
TIMEOUT_SECONDS = 1.0
HANGS_SECONDS_MAX = 30.0


def hanging(is_async: bool, let_go: threading.Event) -> PlatformService:
    service = PlatformService("played")

    def hang(directive: Directive, workspace: Workspace) -> None:
        let_go.wait(HANGS_SECONDS_MAX)

    async def hang_awaiting(directive: Directive, workspace: Workspace) -> None:
        await asyncio.sleep(HANGS_SECONDS_MAX)

    service.step("WORK", timeout=TIMEOUT_SECONDS)(hang_awaiting if is_async else hang)
    return service


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_function_that_exceeds_its_declared_time_gets_no_more_heartbeats(
    played: PlayedOrchestrator, is_async: bool
) -> None:
    let_go = threading.Event()
    played.send(played.directive(1, lease_seconds=LEASE_SECONDS))

    def has_been_quiet() -> bool:
        """For several heartbeats' time after its RESULT."""
        results = played.of_kind("RESULT")
        return bool(results) and time.monotonic() > results[0].at + 2 * LEASE_SECONDS

    try:
        await serve_until(hanging(is_async, let_go), settings_for(played, drain_seconds=0.0), has_been_quiet)
    finally:
        let_go.set()
    (result,) = played.of_kind("RESULT")
    assert (result.body["failure_class"], result.body["error"]["code"]) == ("RETRYABLE", "WORK_TIMEOUT")
    assert "WORK was not done within the 1 s that its timeout allows" in result.body["error"]["message"]
    beats = [call.at for call in played.of_kind("HEARTBEAT")]
    assert beats, "it was alive as far as anybody could tell"
    assert max(beats) <= result.at


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "soon", True])
def test_timeout_is_a_positive_number_of_seconds(timeout: Any) -> None:
    with pytest.raises(ValueError, match="a positive number of seconds"):
        PlatformService("played").step("WORK", timeout=timeout)(lambda directive, workspace: None)
