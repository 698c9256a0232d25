"""One part of a profile: it is waited for, restarted within limits, and stopped whatever it does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from lucius.domain.errors import InfrastructureError
from lucius.profiles import part
from lucius.profiles.part import Part, PartPlan

PATIENCE_SECONDS = 60.0
RUNS = "import time; print('ready', flush=True); time.sleep(600)"
IGNORES = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


async def is_ready(said: str) -> bool:
    return "ready" in said


def part_of(code: str, folder: Path, said: list[str], **fields: float) -> Part:
    command = [sys.executable, "-c", code]
    plan = PartPlan(name="one", command=command, environment=dict(os.environ), is_ready=is_ready, **fields)  # type: ignore[arg-type]
    return Part(plan, folder, said.append)


def pid_of(one: Part) -> int:
    assert one._process is not None
    return one._process.pid


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_part_that_ends_before_it_is_ready_is_a_failure_with_the_end_of_its_log(tmp_path: Path) -> None:
    one = part_of("import sys; sys.exit('no such thing')", tmp_path, [])
    with pytest.raises(InfrastructureError, match=r"(?s)one ended with 1 before it was ready.*one.log.*no such thing"):
        await one.start()


async def test_part_that_is_not_ready_in_time_is_a_failure(tmp_path: Path) -> None:
    one = part_of("import time; time.sleep(600)", tmp_path, [], ready_seconds=0.5)
    with pytest.raises(InfrastructureError, match=r"is not ready after 0\.5 s"):
        await one.start()
    await one.stop()
    assert not is_alive(pid_of(one))


async def test_part_that_dies_is_started_again_and_said(tmp_path: Path) -> None:
    said: list[str] = []
    one = part_of(RUNS, tmp_path, said)
    await one.start()
    one.watch()
    first = pid_of(one)
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "one is back" not in said:
            await asyncio.sleep(0.05)
    assert said[0] == "one ended with -9; it will be restarted in 0.5 s"
    second = pid_of(one)
    assert second != first
    await one.stop()
    assert not is_alive(second)


async def test_part_that_keeps_dying_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "RESTARTS_MAX", 2)
    monkeypatch.setattr(part, "BACKOFF_FIRST_SECONDS", 0.01)
    said: list[str] = []
    one = part_of("import time; print('ready', flush=True); time.sleep(0.5)", tmp_path, said)
    await one.start()
    with pytest.raises(InfrastructureError, match="one has died 3 times in a row, the last time with 0"):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await one.watch()
    assert sum("will be restarted" in line for line in said) == 2


async def test_part_that_will_not_stop_is_killed(tmp_path: Path) -> None:
    said: list[str] = []
    one = part_of(IGNORES, tmp_path, said, stop_seconds=0.5)
    await one.start()
    await one.stop()
    assert not is_alive(pid_of(one))
    assert said == ["one has not stopped in 0.5 s: killing it"]


async def test_log_that_has_grown_is_put_aside_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "LOG_BYTES_MAX", 100)
    (tmp_path / "one.log").write_text("x" * 101)
    one = part_of(RUNS, tmp_path, [])
    await one.start()
    await one.stop()
    assert (tmp_path / "one.log.1").read_text() == "x" * 101
    assert one.log.read_text() == "ready\n"
