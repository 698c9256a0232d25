"""A function worker that takes its jobs from NATS and answers there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.nats_server import NatsServer

from lucius.buses.nats import NatsBus, NatsOptions
from lucius.clocks import SystemClock
from lucius.functions import FunctionWorker, ServiceUnusable
from lucius.functions.bus_source import JOBS_TOPIC, RESULT_PREFIX, RESULTS_TOPIC, WORKER_PROPERTY
from lucius.functions.settings import WorkerSettings
from lucius.ports.bus import Message
from lucius.runbooks.core import messages

SECONDS_MAX = 45.0


def test_names_on_the_bus_are_those_of_the_orchestrator() -> None:
    assert (JOBS_TOPIC, RESULTS_TOPIC, RESULT_PREFIX) == (
        messages.JOBS_TOPIC,
        messages.RESULTS_TOPIC,
        messages.RESULT_PREFIX,
    )
    assert messages.worker_subscription("w1").where == {WORKER_PROPERTY: "w1"}


async def test_jobs_and_results_travel_over_nats_and_a_bad_message_stops_nobody(
    nats_options: NatsOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = FunctionWorker("w1")
    worker.function("Double")(lambda number: {"number": number * 2})
    monkeypatch.setenv("LUCIUS_NATS_PREFIX", nats_options.prefix)
    async with NatsBus(nats_options, SystemClock()) as bus:
        await bus.declare([*messages.SUBSCRIPTIONS, messages.worker_subscription("w1")])
        await bus.publish([_message("broken", b"{"), *(_job(number) for number in range(5))])
        stop = asyncio.Event()
        serving = asyncio.create_task(worker.serve(stop, WorkerSettings(bus=nats_options.servers[0])))
        found: dict[str, Any] = {}
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while len(found) < 5:
                    for one in await bus.receive([RESULTS_TOPIC], messages.ORCHESTRATOR, 10, 30.0, 0.5):
                        found[one.ref.message_id] = json.loads(one.body)
                        await bus.settle([one.ref])
        finally:
            stop.set()
            assert await serving == []
        assert {name: one["result"] for name, one in found.items()} == {
            f"result-job-{number}-a1": {"number": number * 2} for number in range(5)
        }
        assert [one.reason for one in await bus.dead_letters(10)] == ["not a job: not JSON"]
        depths = [one for one in await bus.depths() if one.topic == JOBS_TOPIC]
        assert [(one.ready, one.locked) for one in depths] == [(0, 0)]


async def test_a_worker_on_nats_that_lucius_has_not_set_up_says_so(nats_server: NatsServer) -> None:
    worker = FunctionWorker("w1")
    worker.function("Double")(lambda number: number)
    with pytest.raises(ServiceUnusable, match=r"LUCIUS_WORKER_BUS: missing on NATS at .*; is LUCIUS running on it"):
        await worker.serve(asyncio.Event(), WorkerSettings(bus=nats_server.url))


def _job(number: int) -> Message:
    job_id = f"job-{number}-a1"
    body = {"jobId": job_id, "workerId": "w1", "functionName": "Double", "parameters": {"number": number}}
    return _message(job_id, json.dumps(body).encode())


def _message(message_id: str, body: bytes) -> Message:
    return Message(id=message_id, topic=JOBS_TOPIC, body=body, properties={WORKER_PROPERTY: "w1"})
