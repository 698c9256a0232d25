"""A service with a bus client and nothing else: it answers directives on the reply topics."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from lucius.app_context import AppContext
from lucius.domain.job import Job
from lucius.domain.routing import REPLY_TOPICS
from lucius.ports.bus import Message
from lucius.testing.reply_harness import reply
from lucius.usecases.replies import SUBSCRIPTION

PATIENCE_SECONDS = 20.0
ACK = {"type": "ACK", "acked_by": "replica-1"}
SUCCEEDED = {"type": "RESULT", "status": "SUCCEEDED", "artifacts": {"pages": 3}}
FAILED = {"type": "RESULT", "status": "FAILED", "failure_class": "NON_RETRYABLE", "error": {"code": "BROKEN"}}


class BusService:
    def __init__(self, context: AppContext) -> None:
        self.context = context
        self.bus = context.bus

    async def take(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """The directive of a new job."""
        await self.context.acceptance.submit(envelope, lambda tenant_id: True)
        (directive,) = await self.directives(1)
        return directive

    async def directives(self, count: int) -> list[dict[str, Any]]:
        found = await self.context.pulls.receive("ocr", count, 30.0, PATIENCE_SECONDS)
        return [msgspec.json.decode(one.body) for one in found]

    async def answer(self, directive: dict[str, Any], *facts: dict[str, Any]) -> None:
        await self.send(*(reply(directive, fact) for fact in facts))

    async def send(self, *messages: Message) -> None:
        assert await self.bus.publish(list(messages)) == [None] * len(messages)

    async def settled(self) -> dict[str, int]:
        """Wait until nothing is left on the reply topics; how many dead letters there are, by reason."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any(one.ready + one.locked for one in await self.bus.depths() if one.topic in REPLY_TOPICS):
                await asyncio.sleep(0.01)
        reasons: dict[str, int] = {}
        for letter in await self.bus.dead_letters(100, REPLY_TOPICS):
            assert (letter.ref.subscription, letter.body) == (SUBSCRIPTION, None)
            reasons[letter.reason] = reasons.get(letter.reason, 0) + 1
        return reasons

    async def job(self, directive: dict[str, Any]) -> Job:
        return (await self.context.ledger.load([directive["jobId"]]))[directive["jobId"]]

    async def callbacks(self, directive: dict[str, Any]) -> list[tuple[str, str]]:
        """Type and outcome of what the trail has about callbacks."""
        events = await self.context.ledger.events(directive["jobId"], 0, 1_000)
        return [(one.type, str(one.data["outcome"])) for one in events if one.type in ("ACK", "HEARTBEAT", "RESULT")]
