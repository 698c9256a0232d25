"""Two API processes over one ledger on Azure Tables decide as one: idempotency and limits hold exactly."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.azurite import Azurite
from tests.crash.client import Answer, Client, envelope
from tests.crash.processes import CALLBACK_KEYS, Process, free_port
from tests.long_form import IS_LONG, sized
from tests.nats_server import NatsServer
from tests.tables_ledger import opened_ledger

from lucius.buses.nats import NatsOptions
from lucius.ledgers.tables import TablesLedger

COMMANDS, LIMIT = sized(60, 1_000), sized(12, 100)
PATIENCE_SECONDS = 600.0
"""Azurite serves a few hundred requests a second, and all commands are sent at once."""


async def _all_at_once(client: Client, ports: Sequence[int], commands: Sequence[dict[str, Any]]) -> list[Answer]:
    """Every command at the same moment, by turns to each server. One that is told to ask again does."""

    async def ask(place: int, command: dict[str, Any]) -> Answer:
        while True:
            answer = await client.once("POST", "/v1/commands", command, port=ports[place % len(ports)])
            if answer.status != 503:
                return answer
            await asyncio.sleep(float(answer.headers["Retry-After"]))

    async with asyncio.timeout(PATIENCE_SECONDS):
        return await asyncio.gather(*(ask(place, command) for place, command in enumerate(commands)))


@pytest.fixture(params=["ledger", "table"] if IS_LONG else ["ledger"])
async def ledger(azurite: Azurite, request: pytest.FixtureRequest) -> AsyncIterator[TablesLedger]:
    async with opened_ledger(azurite, request.param) as ledger:
        yield ledger


@pytest.fixture
def ports(
    ledger: TablesLedger, azurite: Azurite, nats_server: NatsServer, nats_options: NatsOptions, tmp_path: Path
) -> Iterator[list[int]]:
    """Of two API processes, and nobody who takes work: jobs that are accepted stay open."""
    settings = {
        "LUCIUS_LEDGER": f"aztables:{ledger.store.layout.name}",
        "LUCIUS_STORAGE_CONNECTION": azurite.connection,
        "LUCIUS_TABLE_PREFIX": ledger.store.prefix,
        "LUCIUS_BUS": nats_server.url,
        "LUCIUS_NATS_PREFIX": nats_options.prefix,
        "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS,
        "LUCIUS_MAX_INFLIGHT_PER_TENANT": str(LIMIT),
        "LUCIUS_LOG_LEVEL": "WARNING",
    }
    with ExitStack() as stack:
        processes = [Process("api", settings=settings, folder=tmp_path, port=free_port()) for _ in range(2)]
        yield [stack.enter_context(one).port or 0 for one in processes]


@pytest.mark.timeout(900)
async def test_limits_and_keys_are_exact_over_two_apis(ledger: TablesLedger, ports: list[int]) -> None:
    async with Client(ports, random.Random(1), PATIENCE_SECONDS) as client:
        answers = await _all_at_once(client, ports, [envelope(f"job-{place}") for place in range(COMMANDS)])
        assert Counter(answer.status for answer in answers) == {202: LIMIT, 429: COMMANDS - LIMIT}
        assert {answer.body["code"] for answer in answers if answer.status == 429} == {"TENANT_SATURATED"}
        accepted = {answer.body["jobId"] for answer in answers if answer.status == 202}
        assert len(accepted) == LIMIT

        equal = await _all_at_once(client, ports, [envelope("same", tenant_id="other")] * COMMANDS)
        assert Counter(answer.status for answer in equal) == {202: COMMANDS}
        one_job = {answer.body["jobId"] for answer in equal}
        assert len(one_job) == 1
        # None, if the one that was accepted was told to ask again before the ledger had answered.
        assert sum(answer.headers.get("Idempotency-Replayed") is None for answer in equal) <= 1

        jobs = await client.pages("/v1/jobs", "items")
        assert {job["jobId"] for job in jobs} == accepted | one_job
        tenants = await client.read("/v1/admin/tenants")
        assert tenants["inflight"] == LIMIT + 1
        assert {one["tenant_id"]: one["inflight"] for one in tenants["items"]} == {"acme": LIMIT, "other": 1}
    inflight = await ledger.inflight()
    assert (inflight["tenant:acme"], inflight["tenant:other"], inflight["global"]) == (LIMIT, 1, LIMIT + 1)
