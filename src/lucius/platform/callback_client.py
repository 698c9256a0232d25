"""The ack/result client: sends callbacks until each is answered. An ACK and its RESULT may travel together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from lucius.client.backoff import backoff_seconds
from lucius.kit.spool import Spool
from lucius.platform.orchestrator import TRY_AGAIN, Callback, CallbackAnswer

CALLS_MAX = 4
WAITING_MAX = 10_000
NO_ANSWER = CallbackAnswer("UNREACHABLE", accepted=False, detail="no answer within the time allowed")

Waiting = tuple[Callback, asyncio.Future[CallbackAnswer]]
Observed = Callable[[Callback, CallbackAnswer], None]

log = logging.getLogger("lucius.platform")


class Channel(Protocol):
    """Where callbacks go; each method makes one try. `Orchestrator` is one."""

    async def call_back(self, callback: Callback) -> CallbackAnswer: ...

    async def call_back_batch(self, callbacks: Sequence[Callback]) -> list[CallbackAnswer] | CallbackAnswer: ...


class Callbacks(Protocol):
    """What a worker sends callbacks with."""

    async def send(self, callback: Callback, seconds_max: float | None = None) -> CallbackAnswer: ...


class CallbackClient:
    """Callbacks are sent while `running` is entered."""

    def __init__(self, channel: Channel, batch_max: int, observe: Observed = lambda callback, answer: None) -> None:
        self._channel = channel
        self._observe = observe
        self._spool: Spool[Waiting] = Spool(self._send_batch, batch_max, CALLS_MAX)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._spool.running():
            yield

    async def pace(self) -> None:
        """What is awaited before more directives are pulled, see `Spool.pace`."""
        await self._spool.pace()

    async def send(self, callback: Callback, seconds_max: float | None = None) -> CallbackAnswer:
        """Retry until there is a real answer, or until `seconds_max` have passed; then return the last answer."""
        deadline = time.monotonic() + seconds_max if seconds_max is not None else None
        tries = failures = 0
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            answer = await self._send_once(callback, left)
            self._observe(callback, answer)
            tries += answer.arrived
            if answer.code in TRY_AGAIN:
                wait = backoff_seconds(failures, answer.retry_after_seconds)
                failures += 1
                if deadline is None or time.monotonic() + wait < deadline:
                    await asyncio.sleep(wait)
                    continue
            return answer if tries == answer.tries else answer._replace(tries=tries)

    async def _send_once(self, callback: Callback, seconds_max: float | None) -> CallbackAnswer:
        if len(self._spool) >= WAITING_MAX:
            return NO_ANSWER._replace(detail=f"{WAITING_MAX} callbacks are already waiting")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[CallbackAnswer] = loop.create_future()
        self._spool.add((callback, answered))
        if seconds_max is None:
            return await answered
        expiry = loop.call_later(seconds_max, _expire, answered)
        try:
            return await answered
        finally:
            expiry.cancel()

    async def _send_batch(self, batch: list[Waiting]) -> float:
        waiting = [one for one in batch if not one[1].done()]  # The caller may have given up since.
        answers = await self._answers([callback for callback, _ in waiting])
        for (_, answered), answer in zip(waiting, answers, strict=True):
            if not answered.done():
                answered.set_result(answer)
        return 0.0

    async def _answers(self, callbacks: list[Callback]) -> list[CallbackAnswer]:
        if len(callbacks) > 1:
            answers = await self._answer_together(callbacks)
            if isinstance(answers, list):
                return answers
            if answers.code in TRY_AGAIN:
                return [answers] * len(callbacks)
        # One callback, or a batch that was refused as a whole: sent alone, each gets its own answer.
        return [await self._answer(callback) for callback in callbacks]

    async def _answer_together(self, callbacks: list[Callback]) -> list[CallbackAnswer] | CallbackAnswer:
        try:
            return await self._channel.call_back_batch(callbacks)
        except Exception as error:
            log.warning("%d callbacks cannot be sent together: %s: %s", len(callbacks), type(error).__name__, error)
            return _unsendable(error)

    async def _answer(self, callback: Callback) -> CallbackAnswer:
        """A callback that cannot be serialized must not fail the others."""
        try:
            return await self._channel.call_back(callback)
        except Exception as error:
            log.exception("a %s of %s cannot be sent", callback.kind, callback.body.get("jobId"))
            return _unsendable(error)


def _expire(answered: asyncio.Future[CallbackAnswer]) -> None:
    if not answered.done():
        answered.set_result(NO_ANSWER)


def _unsendable(error: Exception) -> CallbackAnswer:
    return CallbackAnswer("UNSENDABLE", accepted=False, detail=f"{type(error).__name__}: {error}")
