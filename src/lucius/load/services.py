"""Platform services that do no work: they pull, ACK and RESULT in batches, and misbehave as the mix asks for.

They answer every directive of their services, whoever submitted the command: a pull cannot choose.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable
from typing import Any

from lucius.load.account import Account, ServicesAccount
from lucius.load.commands import Commands
from lucius.load.following import NO_ANSWER
from lucius.load.halt import Halt
from lucius.load.plan import Fate, Mix, Verdict
from lucius.load.wire import NoAnswer, Refusal, Wires

PULL_MAX = 64
PULL_WAIT_SECONDS = 1
BATCH_MAX = 200
RESEND_SECONDS = 0.1
RATE_LIMIT_SECONDS = 1
IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id", "callback_token")

RESULTS: dict[Verdict, dict[str, Any]] = {
    "succeeded": {"status": "SUCCEEDED", "artifacts": {}},
    "failed_retryable": {"status": "FAILED", "failure_class": "RETRYABLE"},
    "failed_final": {"status": "FAILED", "failure_class": "NON_RETRYABLE"},
    "rate_limited": {"status": "FAILED", "failure_class": "RATE_LIMITED", "retry_after": RATE_LIMIT_SECONDS},
}
for _result in RESULTS.values():
    if _result["status"] == "FAILED":
        _result["error"] = {"code": "LOAD", "message": "the load generator's mix asked for this"}

Callback = dict[str, Any]


class PlayedServices:
    def __init__(
        self, names: Iterable[str], mix: Mix, seed: int, commands: Commands, wires: Wires, account: Account, halt: Halt
    ) -> None:
        self._names = list(names)
        self._mix = mix
        self._seed = seed
        self._commands = commands
        self._wires = wires
        self._calls = account
        self._halt = halt
        self._due: deque[Callback] = deque()
        self._woken = asyncio.Event()
        self._is_stopping = False
        self.account = ServicesAccount()

    async def run(self) -> None:
        """Until they are stopped, or the server refuses them or is gone; the run then stops too."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send_results())
                for name in self._names:
                    tasks.create_task(self._pull(name))
        except* (NoAnswer, Refusal) as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            assert isinstance(error, NoAnswer | Refusal)
            self._halt.fail(error)

    def stop(self) -> None:
        """Pull no more. A pull under way is waited for: broken off, it would take directives that nobody answers, and
        the next run's first jobs would wait for them until their lock runs out."""
        self._is_stopping = True
        self._woken.set()

    async def _pull(self, name: str) -> None:
        """One pull after the other; what has gathered while one was answered comes with the next."""
        body = json.dumps({"service": name, "max": PULL_MAX, "wait_seconds": PULL_WAIT_SECONDS}).encode()
        while not self._is_stopping:
            directives = (await self._ask("/v1/directives:pull", body, PULL_WAIT_SECONDS))["directives"]
            if directives:
                self.account.directives[name] += len(directives)
                await self._send([one for directive in directives for one in self._take(directive)])

    def _take(self, directive: dict[str, Any]) -> list[Callback]:
        """What is to be said now. A RESULT that takes its time is put off."""
        number = self._commands.number_of(directive.get("correlation_id"))
        self.account.others += number is None
        whose = directive["jobId"] if number is None else number
        fate = self._mix.fate(self._seed, whose, directive["stepId"], directive["attempt_no"])
        self.account.verdicts[fate.verdict] += 1
        ids = {name: directive[name] for name in IDS}
        ack = {"type": "ACK", **ids, "status": "ACKED"}
        results = self._results(ids, fate)
        if fate.work_seconds <= 0.0:
            return [ack, *results]
        if results:
            asyncio.get_running_loop().call_later(fate.work_seconds, self._put, results)
        return [ack]

    def _results(self, ids: dict[str, Any], fate: Fate) -> list[Callback]:
        if fate.verdict == "lost":
            return []
        result = {"type": "RESULT", **ids, **RESULTS[fate.verdict]}
        self.account.duplicates += fate.duplicate
        return [result] * (1 + fate.duplicate)

    def _put(self, results: list[Callback]) -> None:
        self._due.extend(results)
        self._woken.set()

    async def _send_results(self) -> None:
        while not self._is_stopping:
            await self._woken.wait()
            self._woken.clear()
            while self._due:
                await self._send([self._due.popleft() for _ in range(min(BATCH_MAX, len(self._due)))])

    async def _send(self, callbacks: list[Callback]) -> None:
        """Until each has an answer of its own."""
        while callbacks:
            body = json.dumps({"callbacks": callbacks}, ensure_ascii=False).encode()
            outcomes = (await self._ask("/v1/callbacks:batch", body))["outcomes"]
            again = []
            for callback, outcome in zip(callbacks, outcomes, strict=True):
                said = str(outcome.get("outcome") or outcome.get("code"))
                if said == "UNAVAILABLE":
                    self._calls.retry_call(said)
                    again.append(callback)
                else:
                    self.account.outcomes[callback["type"]][said] += 1
            callbacks = again
            if again:
                await asyncio.sleep(RESEND_SECONDS)

    async def _ask(self, path: str, body: bytes, wait_seconds: float = 0.0) -> dict[str, Any]:
        while True:
            try:
                async with self._wires.take() as wire:
                    answer = await wire.post(path, body, wait_seconds)
            except NoAnswer as error:
                self._calls.retry_call(NO_ANSWER)
                await self._wires.reached.pause_or_give_up(error)
                continue
            if not answer.is_busy:
                return answer.expect_success()
            self._calls.retry_call(answer.code)
            await asyncio.sleep(answer.retry_seconds)
