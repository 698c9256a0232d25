"""What a function worker shows of itself: health, readiness and counts, over its own port."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.crash.processes import free_port
from tests.functions.played_server import SECONDS_MAX, Fault, PlayedServer, job, served

from lucius.functions import FunctionWorker, RateLimited, ServiceUnusable
from lucius.functions.metrics import Metrics

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "write-a-function-worker.md").read_text("utf-8")


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return 0, "{}"


async def readiness(port: int) -> tuple[int, dict[str, str]]:
    status, text = await asyncio.to_thread(get, port, "/readyz")
    return status, json.loads(text).get("checks", {})


async def until_ready(port: int, wanted: int = 200) -> dict[str, str]:
    async with asyncio.timeout(SECONDS_MAX):
        while (found := await readiness(port))[0] != wanted:
            await asyncio.sleep(0.02)
    return found[1]


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Every sample by its name and its labels' values, without the worker id."""
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            assert one.labels.get("worker_id") == "played", one
            rest = [value for name, value in sorted(one.labels.items()) if name != "worker_id"]
            found[(one.name, *rest)] = one.value
    return found


def worker_of() -> tuple[FunctionWorker, asyncio.Event]:
    worker, go_on = FunctionWorker("played"), asyncio.Event()

    @worker.function("Work")
    async def work() -> dict[str, bool]:
        await go_on.wait()
        return {"done": True}

    @worker.function("Limited")
    async def limited() -> None:
        raise RateLimited("slowly", retry_after_seconds=0.0)

    return worker, go_on


async def test_a_worker_is_ready_while_the_server_answers(played: PlayedServer) -> None:
    """It does not have to wait for the end of a long poll to know that."""
    worker, _ = worker_of()
    port = free_port()
    played.always["PULL"] = Fault(503)
    async with served(worker, played.settings(health_port=port, wait_seconds=60.0)):
        checks = await until_ready(port, 503)
        assert checks["event_loop"] == "ok"
        assert (await asyncio.to_thread(get, port, "/healthz"))[0] == 200
        assert "store" not in checks
        played.always.clear()
        assert await until_ready(port) == {"event_loop": "ok", "orchestrator": "ok", "draining": "no"}


async def test_a_worker_counts_what_it_does(played: PlayedServer) -> None:
    worker, go_on = worker_of()
    port = free_port()
    played.send(job(1, "Work"), job(2, "Limited"), job(3, "of no bound"))
    async with served(worker, played.settings(health_port=port)):
        async with asyncio.timeout(SECONDS_MAX):
            while len(played.applied) < 2:
                await asyncio.sleep(0.02)
        found = samples((await asyncio.to_thread(get, port, "/metrics"))[1])
        assert found[("lucius_worker_in_work",)] == 1.0
        go_on.set()
        async with asyncio.timeout(SECONDS_MAX):
            while found.get(("lucius_worker_results_total", "APPLIED")) != 3.0:
                await asyncio.sleep(0.02)
                found = samples((await asyncio.to_thread(get, port, "/metrics"))[1])
    assert found[("lucius_worker_jobs_total", "Work", "Success")] == 1.0
    assert found[("lucius_worker_jobs_total", "Limited", "Throttled")] == 1.0
    assert found[("lucius_worker_jobs_total", "unknown", "Failure")] == 1.0
    assert found[("lucius_worker_work_seconds_count", "Work")] == 1.0
    assert (found[("lucius_worker_in_work",)], found[("lucius_worker_results_owed",)]) == (0.0, 0.0)


async def test_a_worker_that_drains_is_not_ready(played: PlayedServer) -> None:
    worker, go_on = worker_of()
    port, stop = free_port(), asyncio.Event()
    played.send(job(1, "Work"))
    serving = asyncio.create_task(worker.serve(stop, played.settings(health_port=port)))
    await until_ready(port)
    async with asyncio.timeout(SECONDS_MAX):
        while not played.handed_out:
            await asyncio.sleep(0.02)
    stop.set()
    assert (await until_ready(port, 503))["draining"] == "yes"
    go_on.set()
    assert await asyncio.wait_for(serving, SECONDS_MAX) == []


async def test_a_port_that_is_taken_is_named(played: PlayedServer) -> None:
    worker, _ = worker_of()
    taken = int(played.url.rpartition(":")[2])
    with pytest.raises(ServiceUnusable, match="LUCIUS_WORKER_HEALTH_PORT"):
        await worker.serve(settings=played.settings(health_port=taken))


def test_every_metric_is_documented_with_its_labels() -> None:
    metrics = Metrics("exchange", ["Get-Mailbox"])
    metrics.job("Get-Mailbox", "Success", 0.1)
    metrics.result("APPLIED")
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not name.endswith("_created"):  # The library's own: when a series began.
            found[name] = {label for one in family.samples for label in one.labels} - {"worker_id", "le"}
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| `lucius_worker_")]
    assert {row[0].strip("| `"): set(re.findall(r"`(\w+)`", row[2])) for row in rows} == found
