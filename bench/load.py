"""The load generator, a process of its own: `python -m bench.load MODE --port P`; prints its result as JSON.

`load` keeps at most N three-step jobs in flight, one `POST /v1/commands` each, and then looks every one of them up.
`alone` runs one job at a time and times it from before the POST until a read says that it has ended. `posts` sends the
same body to an empty route as fast as it can: the limit of client and framework together.

In flight is what the server says (`GET /v1/admin/tenants`, polled) plus what was started since that question was sent:
an upper bound, so N is never exceeded, and on the whole somewhat fewer than N jobs run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
import uuid
from urllib.parse import quote

import msgspec
import uvloop

from bench.figures import AloneResult, LoadResult, PostsResult, percentile
from bench.http import Connection, HttpError, render_head

TENANTS = 20
POLL_SECONDS = 0.01
DRAIN_SECONDS_MAX = 60.0
ALONE_WAIT_SECONDS = 10
REFUSALS_MAX = 100
PAGE_SIZE = 500


class JobAnswer(msgspec.Struct):
    jobId: str
    status: str


class Tenant(msgspec.Struct):
    inflight: int = 0


class Tenants(msgspec.Struct):
    items: list[Tenant] = []
    inflight: int | None = None

    @property
    def total(self) -> int:
        return sum(item.inflight for item in self.items) if self.inflight is None else self.inflight


class Page(msgspec.Struct):
    items: list[JobAnswer]
    next: str | None = None


class Envelopes:
    """Bodies of commands, each different from all that were ever sent, in all of its tenants in turn."""

    def __init__(self) -> None:
        self._run = uuid.uuid4().hex
        self._made = 0

    def next(self) -> bytes:
        self._made = at = self._made + 1
        name = b"%b-%d" % (self._run.encode(), at)
        return (
            b'{"tenant_id":"bench-%02d","request_type":"OCR_EMBEDDING_SIS","schema_version":"1",'
            b'"input_ref":"https://example.invalid/in/%b.pdf","output_ref":"https://example.invalid/out/%b.json",'
            b'"payload":{"ocr":{},"embedding":{},"sis":{"prompt_set":["What is it?"]}},"idempotency_key":"%b"}'
        ) % (at % TENANTS, name, name, name)


class Load:
    def __init__(
        self, port: int, api_key: str, inflight_max: int, jobs_max: int, seconds_max: float, poll_seconds: float
    ) -> None:
        self._poll_seconds = poll_seconds
        self._port = port
        self._api_key = api_key
        self._envelopes = Envelopes()
        self._inflight_max = inflight_max
        self._jobs_max = jobs_max
        self._seconds_max = seconds_max
        self._slots = asyncio.Semaphore(inflight_max)
        self._started = 0
        self._finished = 0
        self._accepted: list[str] = []
        self._accept_seconds: list[float] = []
        self._refused: dict[str, int] = {}
        self._seen_inflight: list[int] = []
        self._submitters = 0

    async def run(self, connections_max: int) -> LoadResult:
        connections = [await Connection.open(self._port) for _ in range(min(connections_max, self._inflight_max))]
        watcher = await Connection.open(self._port)
        cpu_from, started_at = time.process_time(), time.perf_counter()
        until = started_at + self._seconds_max
        async with asyncio.timeout(self._seconds_max + DRAIN_SECONDS_MAX), asyncio.TaskGroup() as tasks:
            self._submitters = len(connections)
            for connection in connections:
                tasks.create_task(self._submit(connection, until))
            watching = tasks.create_task(self._watch(watcher))
        ended_at = watching.result()
        cpu_seconds = time.process_time() - cpu_from
        for connection in connections:
            connection.close()
        ended = await self._look_up(watcher)
        watcher.close()
        accept, jobs, seconds = sorted(self._accept_seconds), len(self._accepted), ended_at - started_at
        return LoadResult(
            inflight_max=self._inflight_max,
            inflight_mean=round(sum(self._seen_inflight) / max(1, len(self._seen_inflight)), 1),
            connections=len(connections),
            jobs=jobs,
            seconds=round(seconds, 3),
            jobs_per_second=round(jobs / seconds, 1),
            accept_p50_ms=round(percentile(accept, 50) * 1000, 2),
            accept_p99_ms=round(percentile(accept, 99) * 1000, 2),
            refused=self._refused,
            ended=ended,
            cpu_seconds=round(cpu_seconds, 3),
            polls=len(self._seen_inflight),
        )

    async def _submit(self, connection: Connection, until: float) -> None:
        head, decode = (
            render_head("POST", "/v1/commands", api_key=self._api_key),
            msgspec.json.Decoder(JobAnswer).decode,
        )
        while True:
            await self._slots.acquire()
            sent_at = time.perf_counter()
            if self._started >= self._jobs_max or sent_at >= until or sum(self._refused.values()) > REFUSALS_MAX:
                self._slots.release()
                self._submitters -= 1
                return
            self._started += 1
            status, body = await connection.request(head, self._envelopes.next())
            self._accept_seconds.append(time.perf_counter() - sent_at)
            if status == 202:
                self._accepted.append(decode(body).jobId)
                continue
            self._started -= 1
            self._slots.release()
            reason = f"{status} {body[:200].decode(errors='replace')}"
            self._refused[reason] = self._refused.get(reason, 0) + 1

    async def _watch(self, connection: Connection) -> float:
        """Give back the slots of jobs that have ended; answer when all have."""
        head, decode = (
            render_head("GET", "/v1/admin/tenants", api_key=self._api_key),
            msgspec.json.Decoder(Tenants).decode,
        )
        while True:
            answered, submitting = len(self._accepted), self._submitters > 0
            status, body = await connection.request(head)
            now = time.perf_counter()
            if status != 200:
                raise HttpError(f"admin/tenants answered {status}: {body[:300]!r}")
            inflight = decode(body).total
            if submitting:
                self._seen_inflight.append(inflight)
            # Whatever was accepted before the question was asked and is not in the answer has ended.
            for _ in range(answered - inflight - self._finished):
                self._finished += 1
                self._slots.release()
            if not submitting and inflight == 0:
                return now
            await asyncio.sleep(self._poll_seconds)

    async def _look_up(self, connection: Connection) -> dict[str, int]:
        """Find every accepted job in the list, newest first, and count them by state."""
        wanted, ended, cursor = set(self._accepted), dict[str, int](), ""
        decode = msgspec.json.Decoder(Page).decode
        for _ in range(2 * len(wanted) // PAGE_SIZE + 2):
            path = f"/v1/jobs?limit={PAGE_SIZE}" + (f"&cursor={quote(cursor)}" if cursor else "")
            status, body = await connection.request(render_head("GET", path, api_key=self._api_key))
            if status != 200:
                raise HttpError(f"GET {path} answered {status}: {body[:300]!r}")
            page = decode(body)
            for job in page.items:
                if job.jobId in wanted:
                    wanted.remove(job.jobId)
                    ended[job.status] = ended.get(job.status, 0) + 1
            cursor = page.next or ""
            if not wanted or not cursor:
                break
        return ended | ({"MISSING": len(wanted)} if wanted else {})


async def run_alone(port: int, api_key: str, jobs: int, warm_up: int) -> AloneResult:
    envelopes, decode = Envelopes(), msgspec.json.Decoder(JobAnswer).decode
    head = render_head("POST", "/v1/commands", api_key=api_key)
    took: list[float] = []
    not_succeeded = 0
    async with await Connection.open(port) as connection:
        for at in range(warm_up + jobs):
            body = envelopes.next()
            sent_at = time.perf_counter()
            status, answer = await connection.request(head, body)
            if status != 202:
                raise HttpError(f"POST /v1/commands answered {status}: {answer[:300]!r}")
            path = f"/v1/jobs/{decode(answer).jobId}?wait_seconds={ALONE_WAIT_SECONDS}"
            status, answer = await connection.request(render_head("GET", path, api_key=api_key))
            seconds = time.perf_counter() - sent_at
            if status != 200:
                raise HttpError(f"GET {path} answered {status}: {answer[:300]!r}")
            if at >= warm_up:
                took.append(seconds * 1000)
                not_succeeded += decode(answer).status != "SUCCEEDED"
    took.sort()
    return AloneResult(
        jobs=jobs,
        p50_ms=round(percentile(took, 50), 2),
        p90_ms=round(percentile(took, 90), 2),
        p99_ms=round(percentile(took, 99), 2),
        max_ms=round(took[-1], 2),
        not_succeeded=not_succeeded,
    )


async def run_posts(port: int, connections_max: int, seconds_max: float) -> PostsResult:
    head, envelopes = render_head("POST", "/"), Envelopes()
    connections = [await Connection.open(port) for _ in range(connections_max)]
    requests = 0
    cpu_from, started_at = time.process_time(), time.perf_counter()

    async def post(connection: Connection) -> None:
        nonlocal requests
        while time.perf_counter() - started_at < seconds_max:
            status, body = await connection.request(head, envelopes.next())
            if status != 202:
                raise HttpError(f"the empty route answered {status}: {body[:300]!r}")
            requests += 1

    await asyncio.gather(*map(post, connections))
    seconds = time.perf_counter() - started_at
    return PostsResult(
        requests=requests,
        seconds=round(seconds, 3),
        requests_per_second=round(requests / seconds, 1),
        cpu_seconds=round(time.process_time() - cpu_from, 3),
    )


async def measure(options: argparse.Namespace, api_key: str) -> LoadResult | AloneResult | PostsResult:
    if options.mode == "load":
        load = Load(options.port, api_key, options.inflight, options.jobs, options.seconds, options.poll_seconds)
        return await load.run(options.connections)
    if options.mode == "alone":
        return await run_alone(options.port, api_key, options.jobs, options.warm_up)
    return await run_posts(options.port, options.connections, options.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("mode", choices=("load", "alone", "posts"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--inflight", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=15_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument(
        "--poll-seconds", type=float, default=POLL_SECONDS, help="between questions of what is in flight"
    )
    options = parser.parse_args()
    try:
        result = uvloop.run(measure(options, os.environ.get("BENCH_API_KEY", "")))
    except* (HttpError, OSError, TimeoutError) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        sys.exit(f"{options.mode}: {error or type(error).__name__}")
    print(msgspec.json.encode(result).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
