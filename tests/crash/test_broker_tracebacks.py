"""Which tracebacks in a role's log the kill tests over Service Bus pass over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest
from azure.servicebus._pyamqp.aio._transport_async import AsyncTransport
from tests.crash.brokers import ServiceBusBroker

from lucius.buses.servicebus.dead_letters import _settled
from lucius.telemetry.logs import JsonFormatter
from lucius.telemetry.redaction import Redactor


async def _sdk_fails() -> None:
    transport = AsyncTransport("localhost")
    transport.reader = None  # As after its connection broke.
    await transport._read(1)


async def _lucius_fails_around_the_sdk() -> None:
    await _settled(_sdk_fails())


def _told(caplog: pytest.LogCaptureFixture, failing: Coroutine[Any, Any, None]) -> str:
    """What asyncio logs of a task that nobody waits for, as a role writes it."""

    async def leave_a_task() -> None:
        task = asyncio.create_task(failing)
        await asyncio.wait([task])

    asyncio.run(leave_a_task())
    [record] = [one for one in caplog.records if "never retrieved" in one.getMessage()]
    return JsonFormatter(Redactor(())).format(record)


def test_only_tasks_that_the_sdk_left_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    left = _told(caplog, _sdk_fails())
    assert "Traceback" in left
    assert ServiceBusBroker.tracebacks(left) == []

    caplog.clear()
    ours = _told(caplog, _lucius_fails_around_the_sdk())
    assert ServiceBusBroker.tracebacks(ours) == [ours]

    other = json.dumps(json.loads(left) | {"logger": "lucius.bus"})
    assert ServiceBusBroker.tracebacks(other) == [other]
