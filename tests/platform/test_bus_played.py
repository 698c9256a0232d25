"""A service that takes directives from a bus and answers there, with an orchestrator that is played over HTTP.

What it cannot learn from answers: that another replica has the attempt, and that the job is being cancelled.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.platform.played import CANCEL, SECONDS_MAX, PlayedOrchestrator, service_of, settings_for

from lucius.buses.memory import MemoryBus
from lucius.clocks import SystemClock
from lucius.functions.bus_source import BusSource
from lucius.functions.source import SourceFailed
from lucius.kit import presence
from lucius.kit.bus import KitBus
from lucius.platform import Attempt, Directive, PlatformService, ServiceUnusable, Workspace
from lucius.platform.idempotency_store import MemoryStore
from lucius.ports.bus import DeliveryRef, Message, Subscription
from lucius.runbooks.core.messages import JOBS_TOPIC, RESULTS_TOPIC, SUBSCRIPTIONS, worker_subscription
from lucius.testing.faults import FaultyBus
from lucius.usecases.replies import SUBSCRIPTION, reply_subscriptions

LANE = 5
TOPIC, REPLIES = f"global-bus-p{LANE}", f"global-bus-replies-p{LANE}"
LOCK_SECONDS = 1.0


class PlayedBus:
    """The bus, the directives that a test puts on it, and the replies that a service has put there."""

    def __init__(self, bus: MemoryBus) -> None:
        self.bus = bus
        self.replies: list[dict[str, Any]] = []
        self.messages: list[Any] = []

    async def send(self, directive: dict[str, Any]) -> None:
        body = json.dumps({"lane": LANE, **directive}).encode()
        await self.put(f"{directive['jobId']}:work:1", body)

    async def put(self, message_id: str, body: bytes) -> None:
        message = Message(id=message_id, topic=TOPIC, body=body, properties={"service": "played"})
        assert await self.bus.publish([message]) == [None]

    async def take(self) -> None:
        for one in await self.bus.receive([REPLIES], SUBSCRIPTION, 100, 60.0, 0.0):
            self.messages.append(one)
            self.replies.append(json.loads(one.body))
            await self.bus.settle([one.ref])

    def kinds(self) -> list[str]:
        return [one["type"] for one in self.replies]

    async def until(self, *kinds: str) -> None:
        """Wait until exactly these have come, in this order."""
        async with asyncio.timeout(SECONDS_MAX):
            while len(self.replies) < len(kinds):
                await self.take()
                await asyncio.sleep(0.01)
        assert self.kinds() == list(kinds)

    async def left(self) -> int:
        return sum(one.ready + one.locked for one in await self.bus.depths() if one.topic == TOPIC)


@pytest.fixture
async def on_bus() -> AsyncIterator[PlayedBus]:
    async with MemoryBus(SystemClock()) as bus:
        lanes = [Subscription(topic=f"global-bus-p{n}", name="played", where={"service": "played"}) for n in range(16)]
        await bus.declare([*lanes, *reply_subscriptions()])
        yield PlayedBus(bus)


@asynccontextmanager
async def serving(
    service: PlatformService, played: PlayedOrchestrator, bus: Any, **changes: Any
) -> AsyncIterator[None]:
    stop = asyncio.Event()
    settings = settings_for(played, **{"callbacks": "bus", "lock_seconds": LOCK_SECONDS, **changes})
    task = asyncio.create_task(service.serve(stop, settings, bus=KitBus(bus)))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(SECONDS_MAX):
            await task


async def test_ack_and_result_are_messages_on_the_lanes_reply_topic(
    on_bus: PlayedBus, played: PlayedOrchestrator
) -> None:
    async with serving(service_of(lambda directive, workspace: {"done": True}), played, on_bus.bus):
        await on_bus.put("broken", b"{not json")
        await on_bus.put("foreign", b'{"hello": "world"}')
        await on_bus.send(played.directive())
        await on_bus.until("ACK", "RESULT")
    ack, result = on_bus.replies
    assert {ack["jobId"], ack["callback_token"], ack["status"]} == {"job-1", "secret-token-1", "ACKED"}
    assert (result["status"], result["artifacts"], result["lease_id"]) == ("SUCCEEDED", {"done": True}, "lease-1")
    assert "reply_lane" not in result
    message = on_bus.messages[1]
    assert message.ref.message_id == f"job-1:work:1:RESULT:{hashlib.sha256(message.body).hexdigest()[:32]}"
    assert {"type": "RESULT", "service": "played", "jobId": "job-1"}.items() <= message.properties.items()
    assert await on_bus.left() == 0
    reasons = {one.ref.message_id: one.reason for one in await on_bus.bus.dead_letters(10)}
    assert set(reasons) == {"broken", "foreign"}
    assert reasons["broken"] == "not a directive: not JSON"
    assert "lease_seconds" in reasons["foreign"]
    assert not played.calls, "nothing went over HTTP"


async def test_server_is_told_that_an_idle_service_is_there_and_a_refusal_of_that_is_logged_once(
    on_bus: PlayedBus,
    played: PlayedOrchestrator,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def until_told(count: int) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while len(played.pulls) < count:
                await asyncio.sleep(0.01)

    monkeypatch.setattr(presence, "REPORT_SECONDS", 0.02)
    played.always["PULL"] = (401, {"code": "UNAUTHENTICATED", "detail": "there is no such key"})
    async with serving(service_of(lambda directive, workspace: None), played, on_bus.bus):
        await until_told(3)
        await on_bus.send(played.directive())
        await on_bus.until("ACK", "RESULT")
        played.always.clear()
        await until_told(len(played.pulls) + 3)
    assert [(pull["service"], pull["max"]) for pull in played.pulls] == [("played", 0)] * len(played.pulls)
    assert [one.getMessage() for one in caplog.records if "there is no such key" in one.getMessage()] == [
        "played works, but the server does not know that this instance is there: /v1/directives:pull:"
        " UNAUTHENTICATED: there is no such key"
    ]


async def test_a_directive_that_comes_again_after_its_attempt_is_removed(
    on_bus: PlayedBus, played: PlayedOrchestrator
) -> None:
    """As it does if the service was killed before it could remove it: the RESULT told that it was interrupted."""
    worked: list[str] = []
    async with serving(service_of(lambda directive, workspace: worked.append("once")), played, on_bus.bus):
        await on_bus.send(played.directive())
        await on_bus.until("ACK", "RESULT")
        await on_bus.put("again", json.dumps({"lane": LANE, **played.directive()}).encode())
        async with asyncio.timeout(SECONDS_MAX):
            while await on_bus.left():
                await asyncio.sleep(0.05)
    assert worked == ["once"]


async def test_a_cancelled_job_is_learned_of_by_heartbeats_over_http(
    on_bus: PlayedBus, played: PlayedOrchestrator
) -> None:
    played.always["HEARTBEAT"] = CANCEL

    async def work(directive: Directive, workspace: Workspace, attempt: Attempt) -> None:
        while True:
            attempt.check()
            await asyncio.sleep(0.02)

    async with serving(service_of(work), played, on_bus.bus):
        await on_bus.send(played.directive(lease_seconds=0.6))
        await on_bus.until("ACK", "RESULT")
    assert on_bus.replies[1]["status"] == "FAILED"
    assert {one.kind for one in played.calls} == {"HEARTBEAT"}


async def test_heartbeats_go_over_the_bus_while_the_orchestrator_is_away(
    on_bus: PlayedBus, played: PlayedOrchestrator
) -> None:
    ended = threading.Event()

    def work(directive: Directive, workspace: Workspace) -> None:
        ended.wait(SECONDS_MAX)

    async with serving(service_of(work), played, on_bus.bus, orchestrator_url="http://127.0.0.1:9"):
        await on_bus.send(played.directive(lease_seconds=0.6))
        await on_bus.until("ACK", "HEARTBEAT")
        ended.set()
        async with asyncio.timeout(SECONDS_MAX):
            while "RESULT" not in on_bus.kinds():
                await on_bus.take()
                await asyncio.sleep(0.01)
    assert on_bus.replies[-1]["status"] == "SUCCEEDED"


class SlowStore(MemoryStore):
    """Stands still, as a process that is stopped does, for longer than the lock."""

    async def begin(self, directive: Directive) -> Any:
        seen = await super().begin(directive)
        await asyncio.sleep(2 * LOCK_SECONDS)
        return seen


async def test_a_replica_that_lost_the_lock_before_its_ack_leaves_the_attempt_to_the_other(
    on_bus: PlayedBus, played: PlayedOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[str] = []
    slow = service_of(lambda directive, workspace: worked.append("slow"))
    quick = service_of(lambda directive, workspace: worked.append("quick"))
    with monkeypatch.context() as patch:
        patch.setattr("lucius.platform.service.MemoryStore", SlowStore)
        # It takes one directive at a time, so the other replica gets this one when its lock has run out.
        async with serving(slow, played, on_bus.bus, concurrency=1):
            await on_bus.send(played.directive())
            async with asyncio.timeout(SECONDS_MAX):
                while not any(one.locked for one in await on_bus.bus.depths()):
                    await asyncio.sleep(0.01)
            patch.undo()
            async with serving(quick, played, on_bus.bus):
                await on_bus.until("ACK", "RESULT")
                await asyncio.sleep(1.0)
                await on_bus.take()
    assert worked == ["quick"]
    assert on_bus.kinds() == ["ACK", "RESULT"]


class SlowlySettled:
    """A bus on which removing a message takes longer than its lock."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def settle(self, refs: list[DeliveryRef]) -> None:
        await asyncio.sleep(LOCK_SECONDS)
        await self._bus.settle(refs)


async def test_a_replica_whose_lock_ends_before_the_directive_is_removed_does_not_begin(
    on_bus: PlayedBus, played: PlayedOrchestrator
) -> None:
    worked: list[str] = []
    service = service_of(lambda directive, workspace: worked.append(directive.job_id))
    async with serving(service, played, SlowlySettled(on_bus.bus)):
        await on_bus.send(played.directive())
        await asyncio.sleep(2 * LOCK_SECONDS + 0.5)
    await on_bus.take()
    assert (worked, on_bus.kinds()) == ([], [])


async def test_replies_that_nobody_takes_are_kept_and_sent_again(played: PlayedOrchestrator) -> None:
    async with MemoryBus(SystemClock()) as bus:
        on_bus = PlayedBus(bus)
        await bus.declare([Subscription(topic=TOPIC, name="played", where={"service": "played"})])
        async with serving(service_of(lambda directive, workspace: None, eager=True), played, bus):
            await on_bus.send(played.directive())
            await asyncio.sleep(0.3)
            assert not on_bus.replies
            await bus.declare(reply_subscriptions())
            async with asyncio.timeout(SECONDS_MAX):
                while sorted(on_bus.kinds()) != ["ACK", "RESULT"]:
                    await on_bus.take()
                    await asyncio.sleep(0.01)


async def test_reply_whose_topic_is_full_is_kept_and_holds_up_no_other(
    on_bus: PlayedBus, played: PlayedOrchestrator
) -> None:
    bus = FaultyBus(on_bus.bus)
    bus.closed_topics = {REPLIES}
    other = f"global-bus-replies-p{LANE + 1}"
    async with serving(service_of(lambda directive, workspace: None), played, bus):
        await on_bus.send(played.directive())
        await on_bus.send(played.directive(2, lane=LANE + 1))
        replies: list[Any] = []
        while len(replies) < 2:
            replies += await on_bus.bus.receive([other], SUBSCRIPTION, 10, 60.0, SECONDS_MAX)
        assert {one.properties["jobId"] for one in replies} == {"job-2"}
        bus.closed_topics = set()
        await on_bus.until("ACK", "RESULT")


async def test_results_of_a_function_worker_are_kept_while_their_topic_is_full() -> None:
    async with MemoryBus(SystemClock()) as inside:
        await inside.declare([worker_subscription("w1"), *SUBSCRIPTIONS])
        bus = FaultyBus(inside)
        async with BusSource("w1", KitBus(bus)) as source:
            job = Message(id="j1", topic=JOBS_TOPIC, body=b'{"jobId": "j1"}', properties={"WorkerId": "w1"})
            await inside.publish([job])
            assert await source.pull(1, 1.0) == [{"jobId": "j1"}]
            bus.closed_topics = {RESULTS_TOPIC}
            with pytest.raises(SourceFailed, match="closed"):
                await source.answer([{"jobId": "j1"}])
            assert [one.locked for one in await inside.depths() if one.topic == JOBS_TOPIC] == [1]
            bus.closed_topics = set()
            assert await source.answer([{"jobId": "j1"}]) == [{"jobId": "j1", "outcome": "RECEIVED"}]


async def test_directives_from_the_bus_may_be_answered_over_http(on_bus: PlayedBus, played: PlayedOrchestrator) -> None:
    async with serving(service_of(lambda directive, workspace: {"done": 1}), played, on_bus.bus, callbacks="http"):
        await on_bus.send(played.directive())
        async with asyncio.timeout(SECONDS_MAX):
            while not played.results("job-1"):
                await asyncio.sleep(0.01)
    await on_bus.take()
    assert (on_bus.replies, await on_bus.left()) == ([], 0)
    assert played.kinds("job-1") == ["ACK", "RESULT"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"callbacks": "bus"}, "LUCIUS_PLATFORM_CALLBACKS=bus needs directives from the bus: set LUCIUS_PLATFORM_BUS"),
        (
            {"bus": "amqp://host"},
            "LUCIUS_PLATFORM_BUS: amqp is not supported; supported: nats://, tls:// and servicebus://",
        ),
        ({"bus": "nats://host:port"}, "has no valid port"),
    ],
)
async def test_a_bus_that_cannot_be_used_is_told_by_its_variable(
    played: PlayedOrchestrator, changes: dict[str, str], told: str
) -> None:
    with pytest.raises(ServiceUnusable, match=told):
        await service_of(lambda directive, workspace: None).serve(asyncio.Event(), settings_for(played, **changes))
