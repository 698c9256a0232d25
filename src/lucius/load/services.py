"""Platform services that do no work: they pull, ACK and RESULT in batches, and fail as the mix says.

They answer every directive of their services, including those of other clients: a pull cannot choose.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from lucius.client.call import Call
from lucius.client.calls import services
from lucius.client.errors import ClientError
from lucius.load.account import Account, ServicesAccount
from lucius.load.commands import Commands
from lucius.load.connections import Connections
from lucius.load.halt import Halt
from lucius.load.plan import Behaviour, Mix, Verdict

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
        _result["error"] = {"code": "LOAD", "message": "requested by the load generator's mix"}

Callback = dict[str, Any]


class SimulatedServices:
    def __init__(
        self,
        names: Iterable[str],
        mix: Mix,
        seed: int,
        commands: Commands,
        connections: Connections,
        account: Account,
        halt: Halt,
    ) -> None:
        self._names = list(names)
        self._mix = mix
        self._seed = seed
        self._commands = commands
        self._connections = connections
        self._calls = account
        self._halt = halt
        self._due: deque[Callback] = deque()
        self._woken = asyncio.Event()
        self._is_stopping = False
        self.account = ServicesAccount()

    async def run(self) -> None:
        """Until stopped, or until the server refuses them or is gone; then the run stops too."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send_results())
                for name in self._names:
                    tasks.create_task(self._pull(name))
        except* ClientError as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            assert isinstance(error, ClientError)
            self._halt.fail(error)

    def stop(self) -> None:
        """Stop pulling. A pull under way is waited for: aborted, it would take directives without answering them, and
        the next run's first jobs would wait until their locks expire."""
        self._is_stopping = True
        self._woken.set()

    async def _pull(self, name: str) -> None:
        """One pull after another; directives that accumulate during a pull come with the next."""
        pull = services.pull_directives(name, PULL_MAX, PULL_WAIT_SECONDS)
        while not self._is_stopping:
            directives = (await self._ask(pull))["directives"]
            if directives:
                self.account.directives[name] += len(directives)
                await self._send([one for directive in directives for one in self._take(directive)])

    def _take(self, directive: dict[str, Any]) -> list[Callback]:
        """The callbacks to send now. A RESULT with a delay is scheduled."""
        number = self._commands.number_of(directive.get("correlation_id"))
        self.account.others += number is None
        whose = directive["jobId"] if number is None else number
        behaviour = self._mix.behaviour(self._seed, whose, directive["stepId"], directive["attempt_no"])
        self.account.verdicts[behaviour.verdict] += 1
        ids = {name: directive[name] for name in IDS}
        ack = {"type": "ACK", **ids, "status": "ACKED"}
        results = self._results(ids, behaviour)
        if behaviour.work_seconds <= 0.0:
            return [ack, *results]
        if results:
            asyncio.get_running_loop().call_later(behaviour.work_seconds, self._put, results)
        return [ack]

    def _results(self, ids: dict[str, Any], behaviour: Behaviour) -> list[Callback]:
        if behaviour.verdict == "lost":
            return []
        result = {"type": "RESULT", **ids, **RESULTS[behaviour.verdict]}
        self.account.duplicates += behaviour.duplicate
        return [result] * (1 + behaviour.duplicate)

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
        """Until each has its own answer."""
        while callbacks:
            outcomes = (await self._ask(services.call_back_batch(callbacks)))["outcomes"]
            again = []
            for callback, outcome in zip(callbacks, outcomes, strict=True):
                outcome_code = str(outcome.get("outcome") or outcome.get("code"))
                if outcome_code == "UNAVAILABLE":
                    self._calls.retry_call(outcome_code)
                    again.append(callback)
                else:
                    self.account.outcomes[callback["type"]][outcome_code] += 1
            callbacks = again
            if again:
                await asyncio.sleep(RESEND_SECONDS)

    async def _ask(self, call: Call) -> dict[str, Any]:
        while True:
            try:
                return await self._connections.ask(call)
            except ClientError as error:
                await self._connections.pause_or_give_up(error, self._calls.retry_call)
