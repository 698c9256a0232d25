"""A clock that was set an hour ahead and right again: nothing waits longer than its own settings allow from then on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import FAILURE, STILL_POLLING, THROTTLED, Harness, open_harness, runbook

HOUR = 3_600.0
LEASE_SECONDS = 30.0


async def dispatched(harness: Harness, **step: Any) -> None:
    """A step is with its worker."""
    await harness.publish(runbook({"go": [{"name": "move", "timeout": "3h", **step}]}))
    await harness.batch("moves", ("a",))
    harness.answer = lambda job: None
    await harness.step()


async def sweep_after(harness: Harness, seconds: float) -> list[str]:
    """Let time pass; the jobs that come of it."""
    harness.clock.advance(seconds)
    await harness.orchestrator.sweep()
    await harness.send_rest()
    return [job.id for job in await harness.take_jobs()]


async def status(harness: Harness) -> Any:
    return await harness.value("SELECT status FROM step_executions")


@pytest.mark.parametrize(
    ("answer", "retry", "seconds"),
    [(FAILURE, {"max_retries": 1, "interval": "2m"}, 120), (THROTTLED, {"max_retries": 0}, 30)],
)
async def test_retry_comes_after_its_interval(real_harness: Harness, answer: Any, retry: Any, seconds: float) -> None:
    await dispatched(real_harness, **({"retry": retry} if retry["max_retries"] else {}))
    assert await sweep_after(real_harness, HOUR) == []
    await real_harness.reply("step-1-a1", answer)
    assert await sweep_after(real_harness, -HOUR) == []
    assert await sweep_after(real_harness, seconds + 1) == ["step-1-a2"]


async def test_retry_whose_interval_is_long_is_left_alone(real_harness: Harness) -> None:
    await dispatched(real_harness, retry={"max_retries": 1, "interval": "2h"})
    await real_harness.reply("step-1-a1", FAILURE)
    for _ in range(3):
        assert await sweep_after(real_harness, 2_000.0) == []
        assert await sweep_after(real_harness, -600.0) == []
    assert await sweep_after(real_harness, 3_000.0 + 1) == ["step-1-a2"]


async def test_timeout_comes_in_time(real_harness: Harness) -> None:
    real_harness.clock.advance(HOUR)
    await dispatched(real_harness, timeout="90s")
    await sweep_after(real_harness, -HOUR)
    assert await status(real_harness) == "dispatched"
    await sweep_after(real_harness, 91)
    assert await status(real_harness) == "failed"


async def test_poll_comes_after_its_interval(real_harness: Harness) -> None:
    await dispatched(real_harness, poll={"interval": "30s", "timeout": "2h"})
    assert await sweep_after(real_harness, HOUR) == []
    await real_harness.reply("step-1-a1", STILL_POLLING)
    assert await sweep_after(real_harness, -HOUR) == []
    await real_harness.step(31)
    assert [job.id for job in real_harness.done] == ["step-1-a1", "step-1-a2"]


async def test_lease_of_a_scheduler_that_was_ahead_keeps_no_other_from_leading(real_harness: Harness) -> None:
    real_harness.clock.advance(HOUR)
    await real_harness.tick()
    real_harness.clock.advance(-HOUR)
    async with open_harness(real_harness.database, real_harness.clock, holder="another") as other:
        real_harness.clock.advance(LEASE_SECONDS)
        assert await other.scheduler.tick()


async def test_source_is_read_after_its_interval(real_harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "members.csv"
    path.write_text("Upn\na\n")
    real_harness.environ["LUCIUS_SOURCE_MEMBERS"] = str(path)
    source = {
        "type": "csv", "connection": "LUCIUS_SOURCE_MEMBERS", "primary_key": "Upn", "batch_time": "immediate",
    }  # fmt: skip
    await real_harness.publish(runbook({"go": ["move"]}, data_source=source))
    real_harness.clock.advance(HOUR)
    await real_harness.tick()
    real_harness.clock.advance(-HOUR)
    path.write_text("Upn\na\nb\n")
    await real_harness.step(60)
    assert await real_harness.value("SELECT source_count FROM runbook_controls") == 2
