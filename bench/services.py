"""No-op platform services in a process of their own: `python -m bench.services --port P`, until SIGTERM.

They do what the contract asks of a worker and nothing else: pull directives, answer each with ACK and RESULT, all those
of one pull in one batch. The last line they print is their account, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys

import msgspec
import uvloop

from bench.http import Connection, HttpError, render_head

SERVICES = ("ocr", "embedding", "sis")
PULL_MAX = 250
PULL_WAIT_SECONDS = 5
LIFE_SECONDS_MAX = 3600
TAKEN = ("APPLIED", "RECEIVED")
"""What a callback is answered that counts: the engine `temporal` decides later what it has received."""
RESENDS_MAX = 20


class Directive(msgspec.Struct):
    jobId: str
    stepId: str
    tenant_id: str
    attempt_no: int
    lease_id: str
    callback_token: str


class Pulled(msgspec.Struct):
    directives: list[Directive]


class Callback(msgspec.Struct, omit_defaults=True):
    type: str
    jobId: str
    stepId: str
    tenant_id: str
    attempt_no: int
    lease_id: str
    status: str
    callback_token: str
    artifacts: dict[str, str] | None = None


class Batch(msgspec.Struct):
    callbacks: list[Callback]


class Outcome(msgspec.Struct):
    outcome: str | None = None
    code: str | None = None


class Outcomes(msgspec.Struct):
    outcomes: list[Outcome]


class Account(msgspec.Struct):
    pulls: int = 0
    empty_pulls: int = 0
    directives: int = 0
    batches: int = 0
    applied: int = 0
    not_applied: dict[str, int] = {}
    faults: list[str] = []


def answers_to(directive: Directive) -> tuple[Callback, Callback]:
    ids = (directive.jobId, directive.stepId, directive.tenant_id, directive.attempt_no, directive.lease_id)
    token = directive.callback_token
    return Callback("ACK", *ids, "ACKED", token), Callback("RESULT", *ids, "SUCCEEDED", token, {})


class Service:
    """One puller: a pull, then the batch that answers it, over one connection."""

    def __init__(self, name: str, connection: Connection, api_key: str, account: Account) -> None:
        self._connection = connection
        self._account = account
        self._pull_head = render_head("POST", "/v1/directives:pull", api_key=api_key)
        # The token of each callback is its only credential.
        self._batch_head = render_head("POST", "/v1/callbacks:batch")
        self._pull_body = msgspec.json.encode({"service": name, "max": PULL_MAX, "wait_seconds": PULL_WAIT_SECONDS})
        self._decode_pull = msgspec.json.Decoder(Pulled).decode
        self._decode_outcomes = msgspec.json.Decoder(Outcomes).decode
        self._encode = msgspec.json.Encoder().encode

    async def run(self) -> None:
        while True:
            status, body = await self._connection.request(self._pull_head, self._pull_body)
            self._account.pulls += 1
            if status != 200:
                raise HttpError(f"directives:pull answered {status}: {body[:300]!r}")
            directives = self._decode_pull(body).directives
            if directives:
                self._account.directives += len(directives)
                await self._answer([item for directive in directives for item in answers_to(directive)])
            else:
                self._account.empty_pulls += 1

    async def _answer(self, callbacks: list[Callback]) -> None:
        account = self._account
        for _ in range(RESENDS_MAX):
            status, body = await self._connection.request(self._batch_head, self._encode(Batch(callbacks)))
            account.batches += 1
            if status != 200:
                raise HttpError(f"callbacks:batch answered {status}: {body[:300]!r}")
            again = []
            for callback, outcome in zip(callbacks, self._decode_outcomes(body).outcomes, strict=True):
                said = outcome.outcome or outcome.code or "nothing"
                if said in TAKEN:
                    account.applied += 1
                    continue
                account.not_applied[said] = account.not_applied.get(said, 0) + 1
                if said == "UNAVAILABLE":
                    again.append(callback)
            if not again:
                return
            callbacks = again
            await asyncio.sleep(0.05)
        account.faults.append(f"gave up on {len(callbacks)} callbacks after {RESENDS_MAX} tries")


async def run(port: int, pullers: int, api_key: str) -> Account:
    """Until SIGTERM, or until a puller fails: then the others stop too, and the account says why."""
    account = Account()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    connections = [await Connection.open(port) for _ in range(len(SERVICES) * pullers)]
    tasks = [
        asyncio.create_task(Service(SERVICES[at % len(SERVICES)], connection, api_key, account).run())
        for at, connection in enumerate(connections)
    ]
    stopped = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([stopped, *tasks], timeout=LIFE_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
    for task in (stopped, *tasks):
        task.cancel()
    await asyncio.gather(stopped, *tasks, return_exceptions=True)
    account.faults.extend(f"{task.exception()}" for task in tasks if task in done)
    for connection in connections:
        connection.close()
    return account


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.services", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pullers", type=int, default=1, help="concurrent pulls of each service")
    options = parser.parse_args()
    account = uvloop.run(run(options.port, options.pullers, os.environ["BENCH_API_KEY"]))
    print(msgspec.json.encode(account).decode(), flush=True)
    return 1 if account.faults else 0


if __name__ == "__main__":
    sys.exit(main())
