"""Callbacks over the bus: to the reply topic of the directive's lane, with the token in the body.

A reply is not answered. HEARTBEATs therefore go over HTTP while the orchestrator is reachable: their answers say
whether the job is being cancelled or the attempt is over. If it is not reachable, they go over the bus too.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from lucius.kit.bus import BusFailed, KitBus, NotTaken, Outgoing
from lucius.platform.callback_client import CallbackClient
from lucius.platform.orchestrator import TRY_AGAIN, Callback, CallbackAnswer

HTTP_SECONDS = 5.0
"""How long a HEARTBEAT is tried over HTTP."""
ID_CHARS_MAX = 128
"""What every bus takes as a message id."""


class BusChannel:
    """Takes the place of the orchestrator in a `CallbackClient`. What the bus has taken is durable."""

    def __init__(self, bus: KitBus, service: str) -> None:
        self._bus = bus
        self._service = service

    async def call_back(self, callback: Callback) -> CallbackAnswer:
        return (await self.call_back_batch([callback]))[0]

    async def call_back_batch(self, callbacks: Sequence[Callback]) -> list[CallbackAnswer]:
        messages = [self._message(one) for one in callbacks]
        try:
            answers = await self._bus.publish(messages)
        except BusFailed as error:
            return [CallbackAnswer("UNREACHABLE", accepted=False, detail=str(error))] * len(messages)
        return [self._answer(message, not_taken) for message, not_taken in zip(messages, answers, strict=True)]

    def _message(self, callback: Callback) -> Outgoing:
        body = callback.body
        content = {"type": callback.kind, **body, "callback_token": callback.token}
        text = json.dumps(content, separators=(",", ":")).encode()
        return Outgoing(
            id=reply_id(callback, text),
            topic=f"global-bus-replies-p{callback.lane}",
            body=text,
            properties={
                "type": callback.kind,
                "service": self._service,
                "tenant_id": body["tenant_id"],
                "jobId": body["jobId"],
                "stepId": body["stepId"],
                "attempt_no": body["attempt_no"],
            },
        )

    def _answer(self, message: Outgoing, not_taken: NotTaken | None) -> CallbackAnswer:
        if not_taken is None:
            return CallbackAnswer("RECEIVED", accepted=True)
        if not not_taken.is_final:
            return CallbackAnswer("UNREACHABLE", accepted=False, detail=not_taken.reason)
        if len(message.body) > self._bus.message_bytes_max:
            return CallbackAnswer("BODY_TOO_LARGE", accepted=False, detail=not_taken.reason)
        # Nobody takes replies, or not yet: they must not be lost.
        return CallbackAnswer("UNAVAILABLE", accepted=False, detail=f"{not_taken.reason}; is LUCIUS_BUS_REPLIES on?")


def reply_id(callback: Callback, content: bytes) -> str:
    """The directive's id, the type, and a hash of everything that is said: the same reply sent twice is dropped by the
    bus, another verdict on the same directive is not. The hash includes the token, so nobody else can use up an id."""
    body = callback.body
    about = f"{body['jobId']}:{body['stepId']}:{body['attempt_no']}:{callback.kind}"
    content_hash = hashlib.sha256(content).hexdigest()
    readable = f"{about}:{content_hash[:32]}"
    if len(readable) <= ID_CHARS_MAX and readable.isascii():
        return readable
    return hashlib.sha256(f"{about}:{content_hash}".encode()).hexdigest()


class BusCallbacks:
    """A `CallbackClient` for services that answer over the bus."""

    def __init__(self, over_bus: CallbackClient, over_http: CallbackClient) -> None:
        self._over_bus = over_bus
        self._over_http = over_http

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._over_bus.running(), self._over_http.running():
            yield

    async def send(self, callback: Callback, seconds_max: float | None = None) -> CallbackAnswer:
        if callback.kind != "HEARTBEAT":
            return await self._over_bus.send(callback, seconds_max)
        started = asyncio.get_running_loop().time()
        seconds = HTTP_SECONDS if seconds_max is None else min(HTTP_SECONDS, seconds_max / 2)
        answer = await self._over_http.send(callback, seconds)
        if answer.code not in TRY_AGAIN:
            return answer
        left = None if seconds_max is None else seconds_max - (asyncio.get_running_loop().time() - started)
        return await self._over_bus.send(callback, left)
