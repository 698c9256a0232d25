"""The engine's harness with a worker that answers over the bus: every callback is a message on a reply topic."""

from __future__ import annotations

import asyncio
import hashlib
from itertools import count
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from lucius.domain.attempt import Verdict
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import Acked, Callback, HeartbeatSeen, Resulted
from lucius.domain.routing import REPLY_TOPICS
from lucius.ports.bus import Delivery, Message
from lucius.ports.engine import CallbackReply, Engine
from lucius.ports.observer import Observer
from lucius.testing.engine_harness import PATIENCE_SECONDS, EngineHarness, Work
from lucius.usecases.complete import Completion, PendingCallback
from lucius.usecases.replies import SUBSCRIPTION, Replies, reply_subscriptions

SIGNER = TokenSigner((CallbackKey("k1", b"secret"),))
ARTIFACTS_BYTES_MAX = 65_536


class ReplyHarness(EngineHarness):
    """What is answered at the same time is taken in one batch."""

    taken_at_once = 16
    _asked: dict[str, tuple[Engine, asyncio.Future[CallbackReply | None]]]
    _taking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ReplyHarness:
        await super().__aenter__()
        await self.bus.declare(reply_subscriptions())
        self._asked, self._numbers = {}, count(1)
        self._in_order = asyncio.Lock()
        return self

    async def _call_back(self, work: Work, fact: Callback, engine: Engine | None = None) -> CallbackReply:
        message = reply(work.body, fact)
        if self.bus.refusal(message) is not None:
            return await super()._call_back(work, fact, engine)
        # The suite repeats callbacks to see what the engine says; the bus would drop a second one with the same id.
        message = replace(message, id=f"{message.id}:{next(self._numbers)}")
        answered: asyncio.Future[CallbackReply | None] = asyncio.get_running_loop().create_future()
        self._asked[message.id] = engine or self.engine, answered
        async with self._in_order:  # A bus may use several connections, and the suite tells the first from the second.
            assert await self.bus.publish([message]) == [None]
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take())
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = await answered
        assert found is not None, f"there is no job {work.job_id}"
        return found

    async def _take(self) -> None:
        while self._asked:
            deliveries = await self.bus.receive(REPLY_TOPICS, SUBSCRIPTION, self.taken_at_once, 60.0, PATIENCE_SECONDS)
            of_engine: dict[int, list[Delivery]] = {}
            for one in deliveries:
                of_engine.setdefault(id(self._asked[one.ref.message_id][0]), []).append(one)
            for theirs in of_engine.values():
                await self._take_for(self._asked[theirs[0].ref.message_id][0], theirs)

    async def _take_for(self, engine: Engine, deliveries: list[Delivery]) -> None:
        completion = _Recorded(engine, SIGNER, self.clock, Observer(), _no_terms, ARTIFACTS_BYTES_MAX)
        try:
            await Replies(self.bus, self.ledger, completion, Observer(), ARTIFACTS_BYTES_MAX).take(deliveries)
        except InfrastructureError:
            # Delivered again in a moment; the test that made it fail goes on without it.
            await self.bus.settle([one.ref for one in deliveries])
        for delivery, found in zip(deliveries, completion.found, strict=True):
            _, answered = self._asked.pop(delivery.ref.message_id)
            if answered.done():
                continue
            if isinstance(found, InfrastructureError):
                answered.set_exception(found)
            else:
                answered.set_result(found)


class _Recorded(Completion):
    """Keeps the engine's answers, which nobody else gets."""

    found: list[CallbackReply | InfrastructureError | None]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.found = []

    async def conclude(self, pending: PendingCallback) -> CallbackReply:
        try:
            known = await pending.answer
        except InfrastructureError as error:
            self.found.append(error)
            raise
        self.found.append(known)
        return await super().conclude(pending._replace(answer=_known(known)))


async def _known(reply: CallbackReply | None) -> CallbackReply | None:
    return reply


def _no_terms(tenant_id: str) -> NoReturn:
    raise AssertionError(f"the worker names no output, so nobody asks where those of {tenant_id} may be")


def reply(directive: dict[str, Any], fact: Callback | dict[str, Any]) -> Message:
    """The message with which a service answers a directive over the bus."""
    fields = fact if isinstance(fact, dict) else _fields(fact)
    names = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id", "callback_token")
    content = {**{name: directive[name] for name in names}, **fields}
    body = msgspec.json.encode(content)
    about = f"{directive['jobId']}:{directive['stepId']}:{directive['attempt_no']}:{content.get('type')}"
    message_id = f"{about}:{hashlib.sha256(body).hexdigest()[:32]}"
    return Message(
        id=message_id, topic=REPLY_TOPICS[directive["lane"]], body=body, properties={"service": directive["service"]}
    )


def _fields(fact: Callback) -> dict[str, Any]:
    about = {"stepId": fact.step_id, "attempt_no": fact.attempt_no, "lease_id": fact.lease_id}
    if isinstance(fact, Acked):
        return {"type": "ACK", **about, "acked_by": fact.acked_by}
    if isinstance(fact, HeartbeatSeen):
        return {"type": "HEARTBEAT", **about, "progress": fact.progress, "note": fact.note}
    assert isinstance(fact, Resulted)
    if fact.verdict is Verdict.SUCCEEDED:
        return {"type": "RESULT", **about, "status": "SUCCEEDED", "artifacts": fact.artifacts}
    failure_class = "RETRYABLE" if fact.retryable else "NON_RETRYABLE"
    if fact.rate_limited_seconds is not None:
        failure_class = "RATE_LIMITED"
    return {
        "type": "RESULT",
        **about,
        "status": "FAILED",
        "failure_class": failure_class,
        "retry_after": fact.rate_limited_seconds,
        "error": None if fact.error is None else {"code": fact.error.code, "message": fact.error.message},
    }
