"""Callbacks on their way out.

Those that gather while one call is under way leave together in the next; one that is alone leaves at once. So a quiet
worker is prompt, a busy one is cheap, and neither has a timer to tune.
"""

from __future__ import annotations

import asyncio
import time

from lucius.reference.orchestrator import TRY_AGAIN, Answer, Callback, Orchestrator, backoff_seconds

BATCH_CALLBACKS_MAX = 50
WAITING_CALLBACKS_MAX = 10_000


class CallbackSender:
    """`run` must be under way for `send` to be answered."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._waiting: asyncio.Queue[tuple[Callback, asyncio.Future[Answer]]] = asyncio.Queue(WAITING_CALLBACKS_MAX)

    async def send(self, callback: Callback, seconds_max: float) -> Answer:
        """Try until there is a real answer, or until `seconds_max` have passed; then the last answer is given."""
        deadline = time.monotonic() + seconds_max
        failures = 0
        while True:
            answer = await self._send_once(callback, deadline)
            if answer.code not in TRY_AGAIN:
                return answer
            wait = backoff_seconds(failures, answer.retry_after_seconds)
            if time.monotonic() + wait >= deadline:
                return answer
            await asyncio.sleep(wait)
            failures += 1

    async def _send_once(self, callback: Callback, deadline: float) -> Answer:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await self._waiting.put((callback, answered))
                return await answered
        except TimeoutError:
            return Answer("UNREACHABLE", accepted=False, detail="no answer within the time allowed")

    async def run(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < BATCH_CALLBACKS_MAX and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            # Whoever waited for one of these may have given up since.
            batch = [one for one in batch if not one[1].done()]
            answers = await self._answers([callback for callback, _ in batch])
            for (_, answered), answer in zip(batch, answers, strict=True):
                if not answered.done():
                    answered.set_result(answer)

    async def _answers(self, callbacks: list[Callback]) -> list[Answer]:
        if len(callbacks) > 1:
            answers = await self._orchestrator.call_back_batch(callbacks)
            if isinstance(answers, list):
                return answers
            if answers.code in TRY_AGAIN:
                return [answers] * len(callbacks)
        # One callback, or a batch that was refused as a whole: alone, each gets the answer that it deserves.
        return [await self._orchestrator.call_back(callback) for callback in callbacks]
