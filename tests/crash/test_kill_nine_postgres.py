"""`kill -9` of any of two API processes and a reconciler that share a PostgreSQL ledger."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

from tests.crash.processes import CALLBACK_KEYS, QUICK, Process, free_port, run_lucius
from tests.crash.run import run_under_fire

JOBS = 60
KILLS = 9


async def test_kill_nine_loses_and_doubles_nothing_on_postgres(tmp_path: Path, postgres_url: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # Shown only where the test fails.
    settings = {**QUICK, "LUCIUS_LEDGER": postgres_url, "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS}
    upgraded = run_lucius("db", "upgrade", settings=settings)
    assert upgraded.returncode == 0, upgraded.stderr
    with ExitStack() as stack:
        processes = [
            stack.enter_context(Process(role, settings=settings, folder=tmp_path, port=port))
            for role, port in (("api", free_port()), ("api", free_port()), ("reconciler", None))
        ]
        await run_under_fire(processes, JOBS, KILLS, seed)
        assert sum(process.lives for process in processes) >= len(processes) + KILLS
        for process in processes:
            assert "Traceback" not in process.log, process.log[-3000:]
