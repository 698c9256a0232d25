"""What is counted, shown and logged of runbooks."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lucius.buses.memory import MemoryBus
from lucius.clocks import SystemClock
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.observer import Observers
from lucius.ports.registry import Globals, RegistrySnapshot
from lucius.sql.database import Run, Script
from lucius.sql.schema import upgrade
from lucius.sql.volatile import VolatileDatabase
from lucius.telemetry import MetricsObserver
from lucius.telemetry.log_observer import LogObserver
from lucius.testing.samples import ManualClock

NOBODY = RegistrySnapshot("v", {}, {}, {}, Globals())


@pytest.fixture
def metrics(clock: ManualClock) -> MetricsObserver:
    return MetricsObserver(clock)


@pytest.fixture
async def database() -> AsyncIterator[VolatileDatabase]:
    async with VolatileDatabase() as database:
        await upgrade(database)
        yield database


def shown(metrics: MetricsObserver) -> dict[str, float]:
    """Samples by name and labels, as `name{label}`."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = ",".join(sample.labels.values())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_every_hook_of_runbooks_is_counted(metrics: MetricsObserver) -> None:
    observer = Observers(metrics)
    observer.steps_moved("succeeded", 40)
    observer.steps_moved("succeeded", 2, "move")
    observer.steps_moved("poll_timeout", 1)
    for outcome in ("APPLIED", "APPLIED", "STALE"):
        observer.worker_answered(outcome)
    observer.ticked("ok", 0.2)
    observer.ticked("failed", 1.0)
    observer.ticked("not_leader", 9.0)
    observer.source_read("held", 3.0)
    found = shown(metrics)
    assert found["lucius_runbook_steps_total{succeeded}"] == 42
    assert found["lucius_runbook_steps_by_runbook_total{move,succeeded}"] == 2
    assert found["lucius_runbook_steps_total{poll_timeout}"] == 1
    assert found["lucius_runbook_steps_total{failed}"] == 0, "shown from the start, so that a rate can be made of it"
    assert found["lucius_runbook_results_total{APPLIED}"] == 2
    assert found["lucius_runbook_results_total{STALE}"] == 1
    assert found["lucius_runbook_results_total{UNKNOWN}"] == 0
    assert [found[f"lucius_scheduler_ticks_total{{{one}}}"] for one in ("ok", "failed", "not_leader")] == [1, 1, 1]
    assert found["lucius_scheduler_tick_seconds_count"] == 2, "who does not lead does no round"
    assert found["lucius_scheduler_tick_seconds_sum"] == pytest.approx(1.2)
    assert [found[f"lucius_source_reads_total{{{one}}}"] for one in ("ok", "held", "failed")] == [0, 1, 0]
    assert found["lucius_source_read_seconds_sum"] == 3


async def test_gauges_show_what_the_tables_hold(
    metrics: MetricsObserver, database: VolatileDatabase, clock: ManualClock
) -> None:
    batch = (
        "INSERT INTO batches (runbook_id, batch_start_time, status, detected_at, runbook_name, origin, advance,"
        " completed_at) VALUES (1, 0, $1, 0, 'r', 'source', 'time', $2)"
    )
    step = (
        "INSERT INTO step_executions (phase_execution_id, batch_member_id, step_name, step_index, worker_id,"
        " function_name, params_json, status, is_poll_step, poll_count, batch_id, dispatch_count, retries_used, ready,"
        " in_flight, poll_asked, catching_up) VALUES (1, $1, 's', 0, 'w', 'F', '{}', 'dispatched', FALSE, 0, 1, 1, 0,"
        " FALSE, $2, 0, FALSE)"
    )
    message = (
        "INSERT INTO runbook_outbox (topic, message_id, body, properties, created_at, claimed_until)"
        " VALUES ('jobs', 'm', $1, '{}', $2, 0)"
    )

    def fill() -> Script[None]:
        yield Run(batch, [("active", None), ("detected", None), ("completed", 5)])
        yield Run(step, [(member, member < 4) for member in range(1, 7)])
        yield Run(message, [(b"{}", clock.now() - 7_000), (b"{}", clock.now())])

    await database.write(fill)
    await metrics.collect(MemoryLedger(), MemoryBus(clock), NOBODY, database)
    found = shown(metrics)
    assert found["lucius_runbook_batches_open"] == 2
    assert found["lucius_runbook_steps_in_flight"] == 3
    assert found["lucius_runbook_batches_open_by_runbook{r}"] == 2
    assert found["lucius_runbook_steps_in_flight_by_runbook{r}"] == 3
    assert found["lucius_runbook_outbox_backlog"] == 2
    assert found["lucius_runbook_outbox_oldest_seconds"] == 7


async def test_empty_tables_are_zero_and_tables_out_of_reach_are_left_out(metrics: MetricsObserver) -> None:
    closed = VolatileDatabase()
    await metrics.collect(MemoryLedger(), MemoryBus(SystemClock()), NOBODY, closed)
    found = shown(metrics)
    assert "lucius_runbook_batches_open" not in found
    assert found["lucius_failures_total{metrics:runbooks}"] == 1
    assert found["lucius_inflight{global}"] == 0, "the others are shown nevertheless"


async def test_without_a_backlog_its_age_is_zero(metrics: MetricsObserver, database: VolatileDatabase) -> None:
    await metrics.collect(MemoryLedger(), MemoryBus(SystemClock()), NOBODY, database)
    found = shown(metrics)
    assert found["lucius_runbook_outbox_backlog"] == 0
    assert found["lucius_runbook_outbox_oldest_seconds"] == 0


def test_only_what_an_operator_must_read_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = LogObserver(logging.getLogger("lucius.jobs"), lambda: now[0])
    with caplog.at_level(logging.INFO, "lucius.jobs"):
        for _ in range(50):
            log.ticked("ok", 0.1)
            log.steps_moved("succeeded", 100)
            log.worker_answered("APPLIED")
            log.source_read("ok", 0.1)
        assert caplog.messages == []
        log.source_troubled("moves", "failed", "no such table")
        log.source_troubled("moves", "failed", "no such table")
        log.source_troubled("moves", "held", "1 member, down from 9")
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
        assert caplog.messages == [
            "the data source of runbook moves could not be read: no such table",
            "the data source of runbook moves is held: 1 member, down from 9",
        ]
        now[0] = 60.0
        log.source_troubled("moves", "failed", "no such table")
        assert "(2 times)" in caplog.messages[2]
        log.worker_answered("FORGED")
        log.worker_answered("FORGED")
        assert caplog.messages[3:] == ["1 runbook results with a missing or wrong job token refused"]
