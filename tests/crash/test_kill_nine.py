"""`kill -9` of `lucius up` at random points of a run, each time followed by a restart on the same file and port."""

from __future__ import annotations

import random
from pathlib import Path

from tests.crash.processes import QUICK, Process, free_port
from tests.crash.run import run_under_fire
from tests.long_form import sized

JOBS = sized(100, 200)
KILLS = sized(8, 20)


async def test_kill_nine_loses_and_doubles_nothing_on_the_embedded_default(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # Shown only where the test fails.
    data = tmp_path / "data"
    words = ("up", "--no-services", "--data", str(data))
    with Process(*words, settings=QUICK, folder=tmp_path, port=free_port()) as server:
        worker = await run_under_fire([server], JOBS, KILLS, seed)
        assert server.lives > KILLS
        assert set(worker.seen) >= {"together", "one by one", "no ACK", "everything twice", "retryable"}
        assert "Traceback" not in server.log, server.log[-3000:]
