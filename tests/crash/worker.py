"""A worker such as one meets: most do what is asked, some fail, some answer twice, late, or never.

It keeps a book of every answer that it got to a callback: what was answered must be in the ledger, whatever crashed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple

import aiohttp
from tests.crash.client import Client

SERVICES = ("ocr", "embedding", "sis")
PULL_MAX = 16
PULL_WAIT_SECONDS = 1.0
KEPT_MAX = 64
"""Directives worked on at a time by the puller of one service."""

FATAL = "TEST_SAYS_NO"
"""The error code of failures that the worker means for good."""

HABITS = {
    "together": 40,  # ACK and RESULT in one batch
    "one by one": 22,
    "no ACK": 10,
    "everything twice": 10,
    "heartbeats": 6,
    "retryable": 8,
    "rate limited": 4,
    "for good": 2,
    "ACK, then silence": 2,
    "silence": 2,
    "too late": 2,
}
TOO_LATE_SECONDS = 1.8
"""Longer than the lease."""


ANSWERS = {"APPLIED", "RECEIVED", "DUPLICATE", "LATE", "STALE_ATTEMPT", "JOB_TERMINAL"}


class CallbackReply(NamedTuple):
    """A callback that was answered."""

    job_id: str
    step_id: str
    attempt_no: int
    kind: str
    verdict: str | None
    outcome: str
    """APPLIED, DUPLICATE, LATE, or the code of an error."""


class Worker:
    def __init__(self, client: Client, rng: random.Random, habits: dict[str, int] | None = None) -> None:
        habits = HABITS if habits is None else habits
        self._client = client
        self._rng = rng
        self._names, self._weights = list(habits), list(habits.values())
        self._pullers: list[asyncio.Task[None]] = []
        self._work: set[asyncio.Task[None]] = set()
        self.replies: list[CallbackReply] = []
        self.ended_for_good: set[str] = set()
        """Jobs of which it said, or tried to say, that they cannot succeed."""
        self.seen: dict[str, int] = {}
        """How often it fell into each habit."""

    async def __aenter__(self) -> Worker:
        self._pullers = [asyncio.create_task(self._pull(service)) for service in SERVICES]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [*self._pullers, *self._work]
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        wrong = [end for end in ends if isinstance(end, Exception)]
        if wrong and error is None:
            raise wrong[0]

    def check(self) -> None:
        """Raise what a puller or a piece of work has died of."""
        for task in [*self._pullers, *self._work]:
            if task.done():
                task.result()

    async def _pull(self, service: str) -> None:
        body = {"service": service, "max": PULL_MAX, "wait_seconds": PULL_WAIT_SECONDS}
        while True:
            try:
                answer = await self._client.once("POST", "/v1/directives:pull", body)
            except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, OSError, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            if answer.status != 200:
                assert answer.status == 503, answer
                await asyncio.sleep(0.05)
                continue
            for directive in answer.body["directives"]:
                self._begin(directive)
            while len(self._work) > KEPT_MAX:
                await asyncio.sleep(0.02)

    def _begin(self, directive: dict[str, Any]) -> None:
        task = asyncio.create_task(self._do(directive))
        self._work.add(task)
        task.add_done_callback(lambda done: None if done.cancelled() or done.exception() else self._work.discard(done))

    async def _do(self, directive: dict[str, Any]) -> None:
        habit = self._rng.choices(self._names, self._weights)[0]
        self.seen[habit] = self.seen.get(habit, 0) + 1
        await asyncio.sleep(self._rng.uniform(0.0, 0.05))
        ack, done = _callback(directive, "ACK"), _callback(directive, "RESULT", status="SUCCEEDED", artifacts={"n": 1})
        failed = {"status": "FAILED", "error": {"code": "TEST", "message": "as the dice fell"}}
        match habit:
            case "together":
                await self._send_together([ack, done])
            case "one by one":
                await self._send_each([ack, done])
            case "no ACK":
                await self._send_each([done])
            case "everything twice":
                await self._send_together([ack, done, ack, done])
                await self._send_each([done])
            case "heartbeats":
                beats = [_callback(directive, "HEARTBEAT", progress=part / 4) for part in range(1, 4)]
                await self._send_each([ack, *beats, done])
            case "retryable":
                await self._send_each([ack, _callback(directive, "RESULT", failure_class="RETRYABLE", **failed)])
            case "rate limited":
                limited = _callback(directive, "RESULT", failure_class="RATE_LIMITED", retry_after=0.05, **failed)
                await self._send_together([ack, limited])
            case "for good":
                self.ended_for_good.add(directive["jobId"])
                failed = {"status": "FAILED", "error": {"code": FATAL, "message": "it cannot be done"}}
                await self._send_each([_callback(directive, "RESULT", failure_class="NON_RETRYABLE", **failed)])
            case "ACK, then silence":
                await self._send_each([ack])
            case "too late":
                await self._send_each([ack])
                await asyncio.sleep(TOO_LATE_SECONDS)
                await self._send_each([done])

    async def _send_each(self, callbacks: Iterable[dict[str, Any]]) -> None:
        for callback in callbacks:
            path = f"/v1/callbacks/{callback['type'].lower()}"
            body = {name: value for name, value in callback.items() if name not in {"type", "callback_token"}}
            answer = await self._client.ask("POST", path, body, Lucius_Callback_Token=callback["callback_token"])
            assert answer.status in {200, 409}, answer
            self._note(callback, answer.body)

    async def _send_together(self, callbacks: list[dict[str, Any]]) -> None:
        while callbacks:
            answer = await self._client.ask("POST", "/v1/callbacks:batch", {"callbacks": callbacks})
            assert answer.status == 200, answer
            again = []
            for callback, outcome in zip(callbacks, answer.body["outcomes"], strict=True):
                if outcome.get("code") == "UNAVAILABLE":
                    again.append(callback)
                else:
                    self._note(callback, outcome)
            callbacks = again

    def _note(self, callback: dict[str, Any], outcome: dict[str, Any]) -> None:
        said = outcome.get("outcome") or outcome["code"]
        assert said in ANSWERS, (callback, outcome)
        verdict = None
        if callback["type"] == "RESULT":
            verdict = "SUCCEEDED" if callback["status"] == "SUCCEEDED" else "FAILED"
        ids = callback["jobId"], callback["stepId"], callback["attempt_no"]
        self.replies.append(CallbackReply(*ids, callback["type"], verdict, said))


def _callback(directive: dict[str, Any], kind: str, **fields: Any) -> dict[str, Any]:
    names = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id", "callback_token")
    return {"type": kind, **{name: directive[name] for name in names}, **fields}
