"""Processes whose machines disagree about the time share one PostgreSQL ledger: they go by the database's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import CALLBACK_KEYS, KEY, Api, new_client

from lucius.bootstrap import open_app, open_bus, open_runbooks_alone
from lucius.domain.errors import InfrastructureError
from lucius.domain.time import after
from lucius.settings import Settings
from lucius.testing.samples import ShiftedClock

AHEAD_SECONDS = 20.0
LEASE_SECONDS = 15.0
ROLES = {"reconciles": False, "orchestrates": False, "schedules": False}

OpenRole = Callable[..., Awaitable[Api]]


@pytest.fixture
def settings(postgres_url: str, tmp_path: Path) -> Settings:
    return Settings(
        ledger=postgres_url,
        data=str(tmp_path),
        api_key=KEY,
        callback_keys=CALLBACK_KEYS,
        lease_seconds=LEASE_SECONDS,
        sweep_interval=0.05,
    )


@pytest.fixture
async def open_role(settings: Settings) -> AsyncIterator[OpenRole]:
    """An application on a machine whose clock is ahead, or behind, by so many seconds."""
    async with AsyncExitStack() as stack:

        async def open_(ahead_seconds: float = 0.0, **roles: Any) -> Api:
            clock = ShiftedClock()
            clock.shift_seconds = ahead_seconds
            context = await stack.enter_async_context(open_app(settings, clock=clock, **ROLES | roles))
            return Api(context, await stack.enter_async_context(new_client(context, KEY)), clock)

        yield open_


async def test_directive_of_a_process_that_is_ahead_is_seen_by_another_at_once(open_role: OpenRole) -> None:
    ahead, right = await open_role(AHEAD_SECONDS), await open_role()
    job_id = await ahead.accepted()
    assert [one["jobId"] for one in await right.pull(wait_seconds=5.0)] == [job_id]


async def test_reconciler_that_is_ahead_leaves_leases_alone(open_role: OpenRole) -> None:
    api = await open_role()
    job_id = await api.accepted()
    directive = await api.take()
    assert (await api.ack(directive)).json()["outcome"] == "APPLIED"
    await open_role(AHEAD_SECONDS, reconciles=True)
    await asyncio.sleep(1.0)
    assert (await api.result(directive)).json()["outcome"] == "APPLIED"
    assert "LEASE_EXPIRED" not in [event["type"] for event in await api.events(job_id)]


async def test_scheduler_lease_of_a_process_that_is_ahead_ends_in_time(open_role: OpenRole) -> None:
    ahead, right = await open_role(AHEAD_SECONDS, schedules=True), await open_role()
    (row,) = await right.context.runbooks.turns.database.read(lambda: _fetch("SELECT until_at FROM runbook_leases"))
    assert row[0] <= after(right.context.clock.now(), ahead.context.settings.scheduler_lease_seconds)


def _fetch(sql: str) -> Any:
    from lucius.sql.database import Fetch

    return (yield Fetch(sql))


@pytest.mark.parametrize("ahead_seconds", [3_600.0, -3_600.0])
async def test_machine_whose_clock_is_an_hour_wrong_is_refused_at_start(
    open_role: OpenRole, ahead_seconds: float
) -> None:
    with pytest.raises(InfrastructureError, match=r"clock is 3[56]\d\d\.\d s (ahead of|behind) .*SKEW_SECONDS_MAX"):
        await open_role(ahead_seconds)


async def test_every_way_to_open_a_role_checks_the_clock(settings: Settings) -> None:
    clock = ShiftedClock()
    clock.shift_seconds = 3_600.0
    for opened in (
        open_app(settings, clock=clock, **ROLES),
        open_runbooks_alone(settings, orchestrates=False, schedules=False, clock=clock),
        open_bus(settings, clock),
    ):
        with pytest.raises(InfrastructureError, match="ahead of"):
            async with opened:
                pytest.fail("it was opened")


async def test_skew_shows_in_readiness_and_metrics_while_running(open_role: OpenRole) -> None:
    api = await open_role()
    before = await api.context.management.readiness.look()
    assert before.is_ready
    assert before.checks["clock"].ok
    now = api.context.clock.now()
    api.clock.shift_seconds = 3_600.0
    assert 0 <= api.context.clock.now() - now < 60_000  # What jobs go by has not moved.
    assert (await api.client.get("/readyz")).status_code == 503
    report = await api.context.management.readiness.look()
    assert "ahead of" in report.checks["clock"].detail
    lines = (await api.context.management.metrics()).decode().splitlines()
    (skew,) = [float(line.split()[1]) for line in lines if line.startswith("lucius_clock_skew_seconds ")]
    assert 3_590 < skew < 3_610
