"""Long polls share the event loop with everybody else, whatever the bus answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from starlette.requests import Request
from starlette.types import Message

from lucius.api.endpoint import Call
from lucius.api.holding import long_poll
from lucius.app_context import AppContext
from lucius.auth.principal import FULL_ACCESS, Principal
from lucius.ports.bus import Delivery
from lucius.ports.observer import Observer
from lucius.usecases.waits import WaitCap, WaitKind, Waits


async def test_a_bus_that_answers_early_with_nothing_does_not_stop_the_event_loop() -> None:
    caps = dict.fromkeys(WaitKind, WaitCap(per_principal=10, in_all=10))
    context = SimpleNamespace(waits=Waits(caps, 100, Observer()), stopping=asyncio.Event())

    async def receive_message() -> Message:
        return cast(Message, await asyncio.Event().wait())

    async def admit(request: Request) -> Principal:
        return FULL_ACCESS

    asked = 0

    async def receive(wait_seconds: float) -> list[Delivery]:
        nonlocal asked
        asked += 1
        assert asked < 1_000_000, "the event loop's clock does not move"
        return []

    request = Request({"type": "http", "headers": []}, receive_message)
    call = Call(request, cast(AppContext, cast(Any, context)), FULL_ACCESS, admit)
    others = asyncio.create_task(asyncio.sleep(0.01))
    assert await long_poll(call, 0.05, receive, lambda: None) == []
    assert others.done()
    assert asked > 1
