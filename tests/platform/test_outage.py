"""The orchestrator is out of reach while services are at work: no RESULT is lost, and no work is done twice."""

from __future__ import annotations

import asyncio
import random
import socket
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from tests.client.faulty_server import Answer, FaultyServer
from tests.crash.client import Client, envelope, submit
from tests.crash.processes import Process, free_port
from tests.long_form import sized
from tests.platform.mortal_audit import Found, audit, until_ended
from tests.platform.mortal_proxy import FAULTS, Proxy
from tests.platform.mortal_replicas import Replicas, wait_until

from lucius.client.async_transport import AsyncTransport
from lucius.platform.callback_client import CallbackClient
from lucius.platform.orchestrator import Callback, CallbackAnswer, Orchestrator

OUTAGE_SECONDS = sized(18, 60)
WORK_SECONDS = (3.0, 4.0)
JOBS_EACH = 4
"""As many as a service works on at once, so that all are in work when the server dies."""
RECOVERY_SECONDS_MAX = 90.0
FAULT_SECONDS = sized(3, 6)
QUIET = {"LUCIUS_LOG_LEVEL": "WARNING"}
"""All policies are the defaults: with a lease of 15 minutes, whatever is lost is missing at the end."""

PROMPTS = {"prompt_set": ["Who signed it?"]}
PAYLOADS: dict[str, dict[str, Any]] = {
    "OCR_EMBEDDING_SIS": {"ocr": {}, "embedding": {}, "sis": PROMPTS},
    "EMBEDDING_SIS": {"embedding": {}, "sis": PROMPTS},
    "SIS": PROMPTS,
}
"""A protocol that begins at each of the services."""


@pytest.mark.timeout(300)
async def test_time_without_the_orchestrator_loses_no_result(tmp_path: Path) -> None:
    lived, died = await asyncio.gather(
        asyncio.to_thread(_run_through_outage, tmp_path / "lived", False),
        asyncio.to_thread(_run_through_outage, tmp_path / "died", True),
    )
    print(f"services lived through it: {lived}; services were killed in it: {died}")


@pytest.mark.parametrize(("store", "each"), [("sqlite", 1), ("workspace", 2)])
async def test_callbacks_that_meet_faults_on_their_way_are_not_lost(tmp_path: Path, store: str, each: int) -> None:
    """Replicas share a store here: where they do not, an ACK without an answer may leave an attempt to two of them."""
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    words = ("up", "--no-services", "--data", str(tmp_path / "data"))
    with Process(*words, settings=QUIET, folder=tmp_path, port=free_port()) as server:
        async with Proxy(server.port or 0, rng) as proxy, Client([server.port or 0], rng) as client:
            settings = {"LUCIUS_PLATFORM_STORE": store}
            replicas = Replicas(each, tmp_path / "services", proxy.url, (0.02, 0.3), settings)
            try:
                await asyncio.to_thread(replicas.start)
                job_ids = await _submit_through_faults(client, proxy)
                await until_ended(client, RECOVERY_SECONDS_MAX)
                found = await audit(client, job_ids, replicas.journal())
            finally:
                await asyncio.to_thread(replicas.kill)
        print(f"{store}, seed {seed}: {dict(proxy.met)}; {found.attempts} attempts, RESULTs {dict(found.answers)}")
        assert set(proxy.met) == set(FAULTS), proxy.met
        _check_once(found, len(job_ids), replicas.journal())
        assert not replicas.tracebacks()
        assert "Traceback" not in server.log, server.log[-3000:]


@pytest.mark.parametrize(("fault", "tries"), [("refused", 1), ("hung up", 2)])
async def test_only_a_try_that_may_have_arrived_counts(fault: str, tries: int) -> None:
    """The first call fails, the second is answered DUPLICATE: whose ACK was applied, ours or another replica's?"""
    server = FaultyServer()
    hung_up = () if fault == "refused" else (Answer(0),)
    server.on("POST /v1/callbacks/ack", *hung_up, Answer(content={"outcome": "DUPLICATE"}))
    with server.running(), socket.create_server(("127.0.0.1", 0)) as unused:
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
        unused.close()
        transport = AsyncTransport(nobody if fault == "refused" else server.url)

        def observe(_callback: Callback, _answer: CallbackAnswer) -> None:
            transport.url = server.url  # From the second try on, somebody answers.

        callbacks = CallbackClient(Orchestrator(transport), 1, observe)
        async with callbacks.running():
            answered = await callbacks.send(Callback("ACK", {}, "token"), seconds_max=30.0)
        await transport.close()
    assert (answered.code, answered.tries) == ("DUPLICATE", tries)


def _run_through_outage(folder: Path, services_die: bool) -> str:
    words = ("up", "--no-services", "--data", str(folder / "data"))
    with Process(*words, settings=QUIET, folder=folder, port=free_port()) as server:
        with Replicas(1, folder / "services", f"http://127.0.0.1:{server.port}", WORK_SECONDS, {}) as replicas:
            job_ids = asyncio.run(_put_to_work(server, replicas))
            server.kill()
            began = time.monotonic()
            in_work = replicas.in_work()
            assert len(in_work) == 3 * JOBS_EACH, "some work was over before the server died"
            with _nobody_listens(server):
                wait_until(lambda: not replicas.in_work(), "the work is done")
                if services_die:
                    time.sleep(OUTAGE_SECONDS / 6)
                    replicas.kill()
                    assert _spooled(replicas) == 3 * JOBS_EACH
                    replicas.start()
                time.sleep(max(0.0, began + OUTAGE_SECONDS - time.monotonic()))
            server.start()
            server.wait_ready()
            back = time.monotonic()
            found = asyncio.run(_look(server, job_ids, replicas))
        _check_once(found, len(job_ids), replicas.journal())
        assert in_work <= found.winners, "a RESULT of work that was under way is missing"
        assert not replicas.tracebacks()
        assert "Traceback" not in server.log, server.log[-3000:]
        seconds = time.monotonic() - back
        return (
            f"{len(in_work)} in work, {back - began:.0f} s without a server, {seconds:.0f} s to the end, {found.jobs}"
        )


async def _put_to_work(server: Process, replicas: Replicas) -> list[str]:
    """Jobs for every slot of every service; returns when each has begun, which it does after its ACK was answered."""
    async with Client([server.port or 0], random.Random(1)) as client:
        job_ids = await _submit_each(client, JOBS_EACH)
    wait_until(lambda: len(replicas.in_work()) == len(job_ids), "every slot is at work")
    return job_ids


async def _submit_through_faults(client: Client, proxy: Proxy) -> list[str]:
    job_ids = await _submit_each(client, JOBS_EACH)
    proxy.failing = True
    end = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < end:
        job_ids += await _submit_each(client, 1, len(job_ids))
        await asyncio.sleep(0.2)
    proxy.failing = False
    return job_ids


async def _submit_each(client: Client, count: int, first: int = 0) -> list[str]:
    commands = [
        envelope(f"{request_type}-{first + place}", request_type=request_type, payload=payload)
        for place in range(count)
        for request_type, payload in PAYLOADS.items()
    ]
    return list(await asyncio.gather(*(submit(client, command) for command in commands)))


async def _look(server: Process, job_ids: list[str], replicas: Replicas) -> Found:
    async with Client([server.port or 0], random.Random(2)) as client:
        await until_ended(client, RECOVERY_SECONDS_MAX)
        return await audit(client, job_ids, replicas.journal())


def _check_once(found: Found, jobs: int, journal: list[str]) -> None:
    """Every step of every job was done by its first attempt, once."""
    assert found.jobs == {"SUCCEEDED": jobs}, found
    assert (found.attempt_no_max, found.failures) == (1, {}), found
    assert sorted(journal) == sorted(found.winners), "something was done twice, or for nothing"


def _nobody_listens(server: Process) -> socket.socket:
    """The server's port, held so that nobody takes it meanwhile; calls to it are refused."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", server.port or 0))
    return held


def _spooled(replicas: Replicas) -> int:
    """RESULTs that lie in the stores of services which do not run."""
    count = 0
    for replica in replicas.all:
        connection = sqlite3.connect(replica.state / replica.service / "attempts.db")
        try:
            count += connection.execute("SELECT COUNT(*) FROM attempts WHERE status = 'FINISHED'").fetchone()[0]
        finally:
            connection.close()
    return count
