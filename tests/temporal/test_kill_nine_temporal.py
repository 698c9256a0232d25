"""`kill -9` under load of anything that a job on Temporal depends on: API, workers, reconciler, Temporal itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.processes import CALLBACK_KEYS, QUICK, Process, free_port, run_lucius
from tests.crash.run import run_under_fire
from tests.long_form import IS_LONG, sized
from tests.nats_server import NatsServer
from tests.temporal.server import TemporalServer

JOBS = sized(20, 60)
KILLS = sized(5, 14)
BUSES = ("sql", "nats") if IS_LONG else ("sql",)


@pytest.fixture(params=BUSES)
def bus_setting(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sql":
        yield "sql"
        return
    server: NatsServer = request.getfixturevalue("nats_server")
    yield server.url


@pytest.mark.timeout(400)
async def test_kill_nine_loses_and_doubles_nothing_on_temporal(
    tmp_path: Path, postgres_url: str, bus_setting: str
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # Shown only where the test fails.
    with TemporalServer(tmp_path) as temporal, ExitStack() as stack:
        settings = {
            **QUICK,
            "LUCIUS_LEDGER": postgres_url,
            "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS,
            "LUCIUS_ENGINE": "temporal",
            "LUCIUS_BUS": bus_setting,
            "LUCIUS_NATS_PREFIX": "kills",
            "LUCIUS_TEMPORAL_ADDRESS": temporal.address,
            "LUCIUS_TEMPORAL_RECONCILE_INTERVAL": "1",
            "LUCIUS_LEASE_SECONDS": "6",
            "LUCIUS_ACK_TIMEOUT_SECONDS": "6",
        }
        upgraded = run_lucius("db", "upgrade", settings=settings)
        assert upgraded.returncode == 0, upgraded.stderr
        roles = (("api", free_port()), ("api", free_port()), ("worker", None), ("worker", None), ("reconciler", None))
        folders = [tmp_path / f"{role}-{place}" for place, (role, _) in enumerate(roles)]
        processes = [
            stack.enter_context(Process(role, settings=settings, folder=folder, port=port))
            for (role, port), folder in zip(roles, folders, strict=True)
        ]
        await run_under_fire([*processes, temporal], JOBS, KILLS, seed, patience_seconds=150.0)
        assert sum(process.lives for process in processes) + temporal.lives >= len(processes) + 1 + KILLS
