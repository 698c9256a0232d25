"""How many jobs a second one worker process gets through, with a stub server in a process of its own.

    python tests/functions/worker_speed.py [jobs] [quick|async|thread]

A script to be run by hand, not a test: what it prints depends on the machine.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from lucius.functions import FunctionWorker, WorkerSettings


class Stub:
    """As little HTTP as a worker needs."""

    def __init__(self, count: int) -> None:
        self.count, self.next, self.seen, self.calls = count, 0, 0, {"pull": 0, "results": 0}
        self.done = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")
                )
                body = json.loads(await reader.readexactly(length))
                content = json.dumps(await self.answer(head.split(" ", 2)[1], body)).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("renew"):
            return {"renewed": [True] * len(body["jobIds"])}
        if path.endswith("pull"):
            self.calls["pull"] += 1
            if self.next >= self.count:
                await asyncio.sleep(body["wait_seconds"])
            first, self.next = self.next, min(self.count, self.next + body["max"])
            return {"jobs": [self.job(number) for number in range(first, self.next)]}
        self.calls["results"] += 1
        self.seen += len(body["results"])
        if self.seen >= self.count:
            self.done.set()
        return {"outcomes": [{"jobId": one["jobId"], "outcome": "APPLIED"} for one in body["results"]]}

    def job(self, number: int) -> dict[str, Any]:
        correlation = {"kind": "step", "stepExecutionId": number, "isInitStep": False}
        return {
            "jobId": f"step-{number}-a1",
            "batchId": 1,
            "workerId": "speed",
            "functionName": "Noop",
            "parameters": {"UserPrincipalName": f"user{number}@contoso.com", "SizeMB": number},
            "correlationData": correlation | {"runbookName": "speed", "runbookVersion": 1},
        }


def stub_process(count: int, pipe: Connection) -> None:
    async def main() -> None:
        stub = Stub(count)
        server = await asyncio.start_server(stub.serve, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await stub.done.wait()
        pipe.send(stub.calls)
        await asyncio.to_thread(pipe.recv)
        os._exit(0)  # Pulls are still held open.

    asyncio.run(main())


def worker_of(kind: str) -> FunctionWorker:
    worker = FunctionWorker("speed")

    def noop(UserPrincipalName: str, SizeMB: int) -> dict[str, Any]:
        return {"moved": True}

    async def awaited(UserPrincipalName: str, SizeMB: int) -> dict[str, Any]:
        return {"moved": True}

    worker.function("Noop", quick=kind == "quick")(awaited if kind == "async" else noop)
    return worker


async def measure(count: int, kind: str) -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=stub_process, args=(count, theirs), daemon=True)
    process.start()
    port = await asyncio.to_thread(ours.recv)
    stop = asyncio.Event()
    started, used = time.monotonic(), time.process_time()
    serving = asyncio.create_task(worker_of(kind).serve(stop, WorkerSettings(url=f"http://127.0.0.1:{port}")))
    calls = await asyncio.to_thread(ours.recv)
    took, used = time.monotonic() - started, time.process_time() - used
    stop.set()
    await serving
    ours.send("end")
    process.join(10)
    print(f"{kind}: {count} jobs in {took:.2f} s: {count / took:,.0f}/s; processor {1e6 * used / count:.0f} us a job;")
    print(f"  {calls['pull']} pulls, {calls['results']} calls with results; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    asyncio.run(
        measure(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, sys.argv[2] if len(sys.argv) > 2 else "quick")
    )
