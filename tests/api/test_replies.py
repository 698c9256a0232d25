"""Callbacks over the bus: the same outcomes and the same trail as over HTTP, and nothing that stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.conftest import CALLBACK_KEYS, KEY, Api, new_client
from tests.api.reply_service import ACK, FAILED, PATIENCE_SECONDS, SUCCEEDED, BusService
from tests.long_form import IS_LONG
from tests.nats_server import NatsServer, forget_streams
from tests.servicebus_server import SDK_LEAVES_SOCKETS, ServerThread

from lucius.bootstrap import bus_subscriptions, open_app
from lucius.buses.nats.options import NatsOptions
from lucius.buses.servicebus import ServiceBus
from lucius.domain.routing import REPLY_TOPICS
from lucius.ports.bus import Message
from lucius.ports.ledger import LedgerUnavailable
from lucius.settings import Settings
from lucius.testing.reply_harness import reply

DUPLICATE_SECONDS = 600.0
BUSES = ("memory", "sql", "nats", "servicebus")
FEWER = BUSES if IS_LONG else BUSES[:-1]
"""Opening an application's thirty-two lanes on Service Bus takes seconds."""
on_every_bus = pytest.mark.parametrize("service", BUSES, indirect=True)
on_most = pytest.mark.parametrize("service", FEWER, indirect=True)
Open = Callable[..., Any]

pytestmark = SDK_LEAVES_SOCKETS


class Service(BusService):
    def __init__(self, api: Api) -> None:
        super().__init__(api.context)
        self.api = api

    async def take_new(self) -> dict[str, Any]:
        return await self.take(Api.envelope())


@pytest.fixture
async def open_service(tmp_path: Path, nats_server: NatsServer, servicebus_server: ServerThread) -> AsyncIterator[Open]:
    options = NatsOptions(servers=(nats_server.url,), prefix=f"replies-{tmp_path.name}")
    async with AsyncExitStack() as stack:

        async def open_service(bus: str) -> Service:
            places: dict[str, dict[str, Any]] = {
                "memory": {"ledger": "memory", "bus": "memory"},
                "sql": {"ledger": "sqlite", "bus": "sql"},
                "nats": {"ledger": "sqlite", "bus": nats_server.url, "nats_prefix": options.prefix},
                "servicebus": {"ledger": "sqlite", "bus": "servicebus"},
            }
            if bus == "servicebus":
                reached = await asyncio.to_thread(servicebus_server.administration, tmp_path)
                names = ("connection", "administration", "administration_ca_file")
                places[bus] |= {f"servicebus_{name}": getattr(reached, name) for name in names}
                stack.push_async_callback(asyncio.to_thread, servicebus_server.forget)
            settings = Settings(
                **places[bus],
                data=str(tmp_path / "data"),
                api_key=KEY,
                callback_keys=CALLBACK_KEYS,
                bus_replies=True,
                execution_backoff_seconds=(0.01,),
            )
            if bus == "servicebus":
                wanted = await bus_subscriptions(settings)
                await asyncio.to_thread(servicebus_server.declare, wanted, DUPLICATE_SECONDS, None)
            clock = servicebus_server.clock()
            context = await stack.enter_async_context(open_app(settings, clock=clock))
            if isinstance(context.bus, ServiceBus):
                context.bus._dead_look_seconds = 0.0
            if bus == "nats":
                stack.push_async_callback(forget_streams, options)
            client = await stack.enter_async_context(new_client(context, KEY))
            return Service(Api(context, client, clock))

        yield open_service


@pytest.fixture
async def service(request: pytest.FixtureRequest, open_service: Open) -> Service:
    opened: Service = await open_service(request.param)
    return opened


@on_most
async def test_a_job_is_done_by_replies_alone_with_the_trail_of_http(service: Service) -> None:
    directive = await service.take_new()
    await service.answer(directive, ACK, {"type": "HEARTBEAT", "progress": 0.5}, SUCCEEDED)
    assert await service.settled() == {}
    job = await service.job(directive)
    assert (job.status, job.steps[0].artifacts) == ("SUCCEEDED", msgspec.Raw(b'{"pages":3}'))
    assert await service.callbacks(directive) == [("ACK", "APPLIED"), ("HEARTBEAT", "APPLIED"), ("RESULT", "APPLIED")]
    counted = (await service.api.look("/metrics")).text
    assert 'lucius_callbacks_total{kind="RESULT",outcome="APPLIED"} 1.0' in counted
    (seen,) = service.context.sightings.all()
    assert (seen.kind, seen.name, seen.instance) == ("service", "ocr", "replica-1")


@on_every_bus
async def test_bad_messages_are_dead_letters_with_their_reason_and_stop_nobody(service: Service) -> None:
    directive = await service.take_new()
    other = await service.take_new()
    forged = {**directive, "callback_token": other["callback_token"]}
    foreign = [
        Message(id=f"foreign-{number}", topic=REPLY_TOPICS[number], body=body, properties={})
        for number, body in enumerate((b"hello", b"[1]", b'{"type":"HELLO"}', b"\xff\xfe", b'{"type":"ACK"}'))
    ]
    beyond = {"type": "HEARTBEAT", "progress": 7}
    await service.send(*foreign, reply(forged, SUCCEEDED), reply(directive, beyond), reply(directive, SUCCEEDED))
    reasons = await service.settled()
    assert sum(reasons.values()) == 7
    codes = sorted(reason.partition(":")[0] for reason in reasons for _ in range(reasons[reason]))
    assert codes == [*["ENVELOPE_INVALID"] * 4, *["MALFORMED_JSON"] * 2, "UNAUTHENTICATED"]
    assert any("/progress" in reason for reason in reasons)
    assert not any(one["callback_token"] in str(reasons) for one in (directive, other))
    assert (await service.job(directive)).status == "SUCCEEDED"
    assert (await service.job(other)).status == "IN_PROGRESS"
    counted = (await service.api.look("/metrics")).text
    assert 'lucius_replies_refused_total{code="UNAUTHENTICATED"} 1.0' in counted
    assert 'lucius_callbacks_total{kind="RESULT",outcome="FORGED"} 1.0' in counted


@on_every_bus
async def test_duplicates_late_and_reordered_replies_are_answered_as_over_http(service: Service) -> None:
    directive = await service.take_new()
    await service.answer(directive, SUCCEEDED, ACK)
    await service.settled()
    # The same reply again, which the bus drops or the ledger has; and another verdict, which nobody may drop.
    await service.answer(directive, SUCCEEDED, FAILED)
    assert await service.settled() == {}
    assert (await service.job(directive)).status == "SUCCEEDED"
    callbacks = await service.callbacks(directive)
    assert callbacks[:2] == [("RESULT", "APPLIED"), ("ACK", "JOB_TERMINAL")]
    assert callbacks[-1] == ("RESULT", "LATE")


@on_most
async def test_replies_of_an_attempt_that_is_over_are_recorded_and_change_nothing(service: Service) -> None:
    first = await service.take_new()
    failed = {**FAILED, "failure_class": "RETRYABLE"}
    await service.answer(first, ACK, failed)
    (second,) = await service.directives(1)
    assert second["attempt_no"] == 2
    await service.answer(first, {**SUCCEEDED, "artifacts": "of the first"})
    await service.settled()
    assert (await service.callbacks(first))[-1] == ("RESULT", "STALE_ATTEMPT")
    # The first attempt's token is not good for the second attempt.
    await service.answer({**second, "callback_token": first["callback_token"]}, SUCCEEDED)
    assert [reason.partition(":")[0] for reason in await service.settled()] == ["UNAUTHENTICATED"]
    await service.answer(second, ACK, {**SUCCEEDED, "artifacts": "of the second"})
    await service.settled()
    job = await service.job(second)
    assert (job.status, job.steps[0].artifacts) == ("SUCCEEDED", msgspec.Raw(b'"of the second"'))


async def test_replies_wait_for_a_ledger_that_is_out_of_reach(
    open_service: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await open_service("memory")
    ledger, away = service.api.context.ledger, LedgerUnavailable("the test has taken it away")

    async def fails(*_: Any, **__: Any) -> Any:
        raise away

    directive = await service.take_new()
    with monkeypatch.context() as patch:
        for name in ("commit", "load", "health"):
            patch.setattr(ledger, name, fails)
        await service.answer(directive, ACK, SUCCEEDED)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "taken it away" not in (await service.api.readiness())[2]["replies"]["detail"]:
                await asyncio.sleep(0.02)
        # For longer than it takes to try again: deliveries are not used up by an outage.
        await asyncio.sleep(1.5)
        assert sum(one.ready + one.locked for one in await service.bus.depths() if one.topic in REPLY_TOPICS) == 2
    assert await service.settled() == {}
    assert (await service.job(directive)).status == "SUCCEEDED"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await service.api.readiness())[2]["replies"]["ok"]:
            await asyncio.sleep(0.02)
