"""`kill -9` of API processes and reconciler with the ledger on Azure Tables, over NATS. Azurite and NATS live on.

A kill between a job's slot and its row leaves the slot for a minute. The short form has no time for that: there an API
process dies only while no command is under way to it, and everything else may be.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from tests.azurite import Azurite
from tests.crash.brokers import open_broker
from tests.crash.client import Client
from tests.crash.processes import CALLBACK_KEYS, QUICK, Process, free_port, run_lucius
from tests.crash.run import kill_nine, run_under_fire
from tests.long_form import IS_LONG, sized
from tests.tables_ledger import new_prefix, open_ledger

from lucius.testing.invariants import check_ledger

LAYOUTS = ("ledger", "table") if IS_LONG else ("ledger",)
JOBS, KILLS, APIS = sized(4, 100), sized(2, 24), sized(1, 2)
REPAIR_SECONDS = sized(20, 150)


@pytest.mark.timeout(sized(120, 1_200))
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_kill_nine_loses_and_doubles_nothing(tmp_path: Path, azurite: Azurite, layout: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # Shown only where the test fails.
    prefix = new_prefix()
    settings = {
        **QUICK,
        "LUCIUS_LEDGER": f"aztables:{layout}",
        "LUCIUS_STORAGE_CONNECTION": azurite.connection,
        "LUCIUS_TABLE_PREFIX": prefix,
        "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS,
        "LUCIUS_CLAIM_SECONDS": "2",
        # A directive is locked for a third of it, and is a dead letter after ten locks: Azurite is slow under fire.
        "LUCIUS_ACK_TIMEOUT_SECONDS": str(sized(3, 6)),
        "LUCIUS_REPAIR_INTERVAL": "1",
    }
    upgraded = run_lucius("db", "upgrade", settings=settings)
    assert upgraded.returncode == 0, upgraded.stderr
    with ExitStack() as stack:
        broker = stack.enter_context(open_broker("nats", tmp_path, settings))
        settings |= broker.settings
        ports = [free_port() for _ in range(APIS)]
        roles = [
            stack.enter_context(Process(role, settings=settings, folder=tmp_path, port=port))
            for role, port in (("reconciler", None), *(("api", port) for port in ports))
        ]
        victims = cycle(roles)
        kills = 0

        async def kill_the_next(_: Any, rng: random.Random) -> None:
            nonlocal kills
            kills += 1
            victim = next(victims)
            if victim.port is not None and not IS_LONG:
                async with Client(ports, rng) as client:
                    await _until_accepted(client, JOBS * kills // KILLS)
            await kill_nine(victim, rng)

        await run_under_fire(roles, JOBS, KILLS, seed, kill_the_next, sized(60, 600), REPAIR_SECONDS)
        assert min(role.lives for role in roles) >= 1 + KILLS // len(roles)
        for role in roles:
            assert not broker.tracebacks(role.log), broker.tracebacks(role.log)[0][-3000:]
    async with open_ledger(azurite.connection, layout, prefix) as ledger:
        assert len(await check_ledger(ledger)) == JOBS
        assert await ledger.slots.taken() == {}


async def _until_accepted(client: Client, count: int) -> None:
    async with asyncio.timeout(30.0):
        while len(await client.pages("/v1/jobs", "items")) < count:
            await asyncio.sleep(0.05)
