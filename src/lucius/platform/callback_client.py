"""The ack/result client: callbacks on their way out.

Those that gather while calls are under way leave together in the next; one that is alone leaves at once. So a quiet
service is prompt, a busy one is cheap, and neither has a timer to tune. An ACK and its RESULT may travel together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from lucius.platform.orchestrator import TRY_AGAIN, Answer, Callback, Orchestrator, backoff_seconds

CALLS_MAX = 4
WAITING_MAX = 10_000
NO_ANSWER = Answer("UNREACHABLE", accepted=False, detail="no answer within the time allowed")

Observed = Callable[[Callback, Answer], None]

log = logging.getLogger("lucius.platform")


class CallbackClient:
    """Callbacks are sent while `running` is entered."""

    def __init__(
        self, orchestrator: Orchestrator, batch_max: int, observe: Observed = lambda callback, answer: None
    ) -> None:
        self._orchestrator = orchestrator
        self._batch_max = batch_max
        self._observe = observe
        self._waiting: deque[tuple[Callback, asyncio.Future[Answer]]] = deque()
        self._something_waits = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        callers = [asyncio.create_task(self._call()) for _ in range(CALLS_MAX)]
        try:
            yield
        finally:
            for caller in callers:
                caller.cancel()
            await asyncio.gather(*callers, return_exceptions=True)

    async def send(self, callback: Callback, seconds_max: float | None = None) -> Answer:
        """Try until there is a real answer, or until `seconds_max` have passed; then the last answer is given."""
        deadline = time.monotonic() + seconds_max if seconds_max is not None else None
        tries = failures = 0
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            answer = await self._send_once(callback, left)
            self._observe(callback, answer)
            tries += answer.arrived
            wait = backoff_seconds(failures, answer.retry_after_seconds)
            failures += 1
            if answer.code not in TRY_AGAIN or (deadline is not None and time.monotonic() + wait >= deadline):
                return replace(answer, tries=tries)
            await asyncio.sleep(wait)

    async def _send_once(self, callback: Callback, seconds_max: float | None) -> Answer:
        if len(self._waiting) >= WAITING_MAX:
            return replace(NO_ANSWER, detail=f"{WAITING_MAX} callbacks are waiting already")
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((callback, answered))
        self._something_waits.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                return await answered
        return NO_ANSWER

    async def _call(self) -> None:
        while True:
            await self._something_waits.wait()
            batch: list[tuple[Callback, asyncio.Future[Answer]]] = []
            while self._waiting and len(batch) < self._batch_max:
                one = self._waiting.popleft()
                if not one[1].done():  # Whoever waited for it may have given up since.
                    batch.append(one)
            if not self._waiting:
                self._something_waits.clear()
            answers = await self._answers([callback for callback, _ in batch])
            for (_, answered), answer in zip(batch, answers, strict=True):
                if not answered.done():
                    answered.set_result(answer)

    async def _answers(self, callbacks: list[Callback]) -> list[Answer]:
        if len(callbacks) > 1:
            answers = await self._answer_together(callbacks)
            if isinstance(answers, list):
                return answers
            if answers.code in TRY_AGAIN:
                return [answers] * len(callbacks)
        # One callback, or a batch that was refused as a whole: alone, each gets the answer that it deserves.
        return [await self._answer(callback) for callback in callbacks]

    async def _answer_together(self, callbacks: list[Callback]) -> list[Answer] | Answer:
        try:
            return await self._orchestrator.call_back_batch(callbacks)
        except Exception as error:
            log.warning("%d callbacks cannot leave together: %s: %s", len(callbacks), type(error).__name__, error)
            return _unsendable(error)

    async def _answer(self, callback: Callback) -> Answer:
        """One that cannot be put on the wire must not take those down that can."""
        try:
            return await self._orchestrator.call_back(callback)
        except Exception as error:
            log.exception("a %s of %s cannot be sent", callback.kind, callback.body.get("jobId"))
            return _unsendable(error)


def _unsendable(error: Exception) -> Answer:
    return Answer("UNSENDABLE", accepted=False, detail=f"{type(error).__name__}: {error}")
