"""`kill -9` under load of anything that a job on Temporal depends on: API, workers, reconciler, Temporal itself.

In the long form also over brokers, which are killed too; the test server of Service Bus is away instead.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.brokers import NatsBroker, ServiceBusBroker, open_broker
from tests.crash.processes import CALLBACK_KEYS, QUICK, Process, free_port, run_lucius
from tests.crash.run import run_under_fire
from tests.long_form import IS_LONG, sized
from tests.temporal.server import TemporalServer

JOBS = sized(20, 60)
KILLS = sized(5, 14)
PATIENCE_SECONDS = sized(150, 400)
BUSES = ("sql", "nats", "servicebus") if IS_LONG else ("sql",)


@pytest.mark.timeout(sized(400, 900))
@pytest.mark.parametrize("bus", BUSES)
async def test_kill_nine_loses_and_doubles_nothing_on_temporal(tmp_path: Path, postgres_url: str, bus: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # Shown only where the test fails.
    with TemporalServer(tmp_path) as temporal, ExitStack() as stack:
        settings = {
            **QUICK,
            "LUCIUS_LEDGER": postgres_url,
            "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS,
            "LUCIUS_ENGINE": "temporal",
            "LUCIUS_TEMPORAL_ADDRESS": temporal.address,
            "LUCIUS_TEMPORAL_RECONCILE_INTERVAL": "1",
            "LUCIUS_LEASE_SECONDS": "6",
            "LUCIUS_ACK_TIMEOUT_SECONDS": "6",
        }
        upgraded = run_lucius("db", "upgrade", settings=settings)
        assert upgraded.returncode == 0, upgraded.stderr
        brokers: list[NatsBroker | ServiceBusBroker] = []
        if bus != "sql":
            brokers.append(stack.enter_context(open_broker(bus, tmp_path, settings)))
            settings |= brokers[0].settings
        roles = (("api", free_port()), ("api", free_port()), ("worker", None), ("worker", None), ("reconciler", None))
        folders = [tmp_path / f"{role}-{place}" for place, (role, _) in enumerate(roles)]
        processes = [
            stack.enter_context(Process(role, settings=settings, folder=folder, port=port))
            for (role, port), folder in zip(roles, folders, strict=True)
        ]
        mortals = [*processes, temporal, *brokers]
        await run_under_fire(mortals, JOBS, KILLS, seed, patience_seconds=PATIENCE_SECONDS)
        assert sum(one.lives for one in mortals) >= len(mortals) + KILLS
