"""`kill -9` of any of two API processes, a reconciler and the NATS server that has their directives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from tests.crash.processes import CALLBACK_KEYS, QUICK, Process, free_port, run_lucius
from tests.crash.run import kill_nine, run_under_fire
from tests.long_form import sized
from tests.nats_server import NatsServer

JOBS = sized(20, 400)
KILLS = sized(4, 60)


class MortalNats:
    """Has the moves of `tests.crash.processes.Process`, so that the same fire can be laid to it."""

    port = None

    def __init__(self, server: NatsServer) -> None:
        self.lives = 1
        self._server = server

    def start(self) -> None:
        self.lives += 1
        self._server.start()

    def wait_ready(self) -> None:
        """It has started only when it answers."""

    def kill(self) -> None:
        self._server.kill()


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    server = NatsServer()
    server.start()
    yield server
    server.stop()


@pytest.mark.timeout(sized(300, 1_200))
async def test_kill_nine_loses_and_doubles_nothing_on_nats(
    tmp_path: Path, postgres_url: str, own_server: NatsServer
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # Shown only where the test fails.
    settings = {
        **QUICK,
        "LUCIUS_LEDGER": postgres_url,
        "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS,
        "LUCIUS_BUS": own_server.url,
        "LUCIUS_CIRCUIT_OPEN_SECONDS": "0.5",
        "LUCIUS_CLAIM_SECONDS": "2",
    }
    upgraded = run_lucius("db", "upgrade", settings=settings)
    assert upgraded.returncode == 0, upgraded.stderr
    with ExitStack() as stack:
        roles = [
            stack.enter_context(Process(role, settings=settings, folder=tmp_path, port=port))
            for role, port in (("api", free_port()), ("api", free_port()), ("reconciler", None))
        ]
        broker = MortalNats(own_server)
        victims = cycle([broker, *roles])

        async def kill_the_next(_: Any, rng: random.Random) -> None:
            await kill_nine(next(victims), rng)

        await run_under_fire(roles, JOBS, KILLS, seed, kill_the_next, patience_seconds=sized(90, 600))
        assert min(one.lives for one in (*roles, broker)) >= 1 + KILLS // (len(roles) + 1)
        for role in roles:
            assert "Traceback" not in role.log, role.log[-3000:]
