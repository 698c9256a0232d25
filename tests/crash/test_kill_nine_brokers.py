"""`kill -9` of any of two API processes, a reconciler and the broker that has their directives.

The test server of Service Bus has its messages in memory, and is away instead.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from tests.crash.brokers import open_broker
from tests.crash.processes import CALLBACK_KEYS, QUICK, Process, free_port, run_lucius
from tests.crash.run import kill_nine, run_under_fire
from tests.long_form import IS_LONG, sized

BROKERS = {"nats": (400, 60), "servicebus": (200, 28)} if IS_LONG else {"nats": (20, 4), "servicebus": (8, 4)}
"""Jobs and kills."""


@pytest.mark.timeout(sized(300, 1_200))
@pytest.mark.parametrize("name", BROKERS)
async def test_kill_nine_loses_and_doubles_nothing(tmp_path: Path, postgres_url: str, name: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # Shown only where the test fails.
    jobs, kills = BROKERS[name]
    settings = {
        **QUICK,
        "LUCIUS_LEDGER": postgres_url,
        "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS,
        "LUCIUS_CIRCUIT_OPEN_SECONDS": "0.5",
        "LUCIUS_CLAIM_SECONDS": "2",
    }
    upgraded = run_lucius("db", "upgrade", settings=settings)
    assert upgraded.returncode == 0, upgraded.stderr
    with ExitStack() as stack:
        broker = stack.enter_context(open_broker(name, tmp_path, settings))
        settings |= broker.settings
        roles = [
            stack.enter_context(Process(role, settings=settings, folder=tmp_path, port=port))
            for role, port in (("api", free_port()), ("api", free_port()), ("reconciler", None))
        ]
        victims = cycle([broker, *roles])

        async def kill_the_next(_: Any, rng: random.Random) -> None:
            await kill_nine(next(victims), rng)

        await run_under_fire(roles, jobs, kills, seed, kill_the_next, patience_seconds=sized(90, 600))
        assert min(one.lives for one in (*roles, broker)) >= 1 + kills // (len(roles) + 1)
        for role in roles:
            assert not broker.tracebacks(role.log), broker.tracebacks(role.log)[0][-3000:]
