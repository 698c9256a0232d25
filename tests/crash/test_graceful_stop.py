"""SIGTERM under load: nothing is lost, nobody is kept waiting, and it is over in time."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import aiohttp
from tests.crash.client import Client, envelope, submit
from tests.crash.processes import CALLBACK_KEYS, QUICK, Process, free_port
from tests.crash.run import run_under_fire

STOP_SECONDS_MAX = 10.0


async def test_sigterm_under_load_loses_nothing_and_ends_in_time(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # Shown only where the test fails.
    stops: list[float] = []

    async def stop(process: Process, rng: random.Random) -> None:
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        stops.append(await asyncio.to_thread(process.terminate))
        process.start()
        await asyncio.to_thread(process.wait_ready)

    words = ("up", "--no-services", "--data", str(tmp_path / "data"))
    with Process(*words, settings=QUICK, folder=tmp_path, port=free_port()) as server:
        await run_under_fire([server], jobs=40, kills=3, seed=seed, fire=stop)
        assert max(stops) < STOP_SECONDS_MAX, stops
        assert "Traceback" not in server.log, server.log[-3000:]


async def test_sigterm_answers_those_who_wait(tmp_path: Path) -> None:
    """A pull, a job that is waited for and a trail that is followed, each with a minute to go."""
    words = ("up", "--no-services", "--data", str(tmp_path / "data"))
    with Process(*words, settings={"LUCIUS_LOG_LEVEL": "WARNING"}, folder=tmp_path, port=free_port()) as server:
        async with Client([server.port or 0], random.Random(1)) as client:
            job_id = await submit(client, envelope("job"))
            follow = asyncio.create_task(_follow(client, f"/v1/jobs/{job_id}/events"))
            pull = {"service": "sis", "max": 1, "wait_seconds": 60}
            waiting = [
                asyncio.create_task(client.once("POST", "/v1/directives:pull", pull)),
                asyncio.create_task(client.once("GET", f"/v1/jobs/{job_id}?wait_seconds=60")),
            ]
            await asyncio.sleep(0.5)
            assert not any(task.done() for task in (*waiting, follow))
            assert await asyncio.to_thread(server.terminate) < STOP_SECONDS_MAX
            pulled, job = await asyncio.gather(*waiting)
            assert (pulled.status, pulled.body) == (200, {"directives": []})
            assert (job.status, job.body["status"]) == (200, "IN_PROGRESS")
            assert "event: ACCEPTED" in await follow
        assert "Traceback" not in server.log, server.log[-3000:]


async def _follow(client: Client, path: str) -> str:
    assert client._session is not None
    url = f"http://127.0.0.1:{client._ports[0]}{path}"
    async with client._session.get(
        url, headers={"Accept": "text/event-stream"}, timeout=aiohttp.ClientTimeout(total=60)
    ) as answer:
        return (await answer.read()).decode()


async def test_api_answers_once_more_on_connections_that_clients_keep_open(tmp_path: Path, postgres_url: str) -> None:
    """Behind a gateway, a connection that is closed while a request is on its way is an answer of 502."""
    settings = {"LUCIUS_LEDGER": postgres_url, "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS, "LUCIUS_LOG_LEVEL": "WARNING"}
    with Process("api", settings=settings, folder=tmp_path, port=free_port()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert "connection: close" not in await _asked(reader, writer)
        stopping = asyncio.create_task(asyncio.to_thread(server.terminate))
        # The signal has arrived when new answers say so.
        async with asyncio.timeout(STOP_SECONDS_MAX):
            while "connection: close" not in await _asked_anew(server.port):
                await asyncio.sleep(0.01)
            last = await _asked(reader, writer)
            assert last.startswith("HTTP/1.1 200")
            assert "connection: close" in last
            assert await reader.read() == b""
        writer.close()
        assert await stopping < STOP_SECONDS_MAX
        assert "Traceback" not in server.log, server.log[-3000:]


async def _asked_anew(port: int | None) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await _asked(reader, writer)
    finally:
        writer.close()


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """The header of the answer to a small request on this connection."""
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")
    header = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(line for line in header.splitlines() if line.startswith("content-length:"))
    await reader.readexactly(int(length.partition(":")[2]))
    return header
