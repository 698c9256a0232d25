"""Metrics: counted from real decisions, documented one and all."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lucius.buses.memory import MemoryBus
from lucius.clocks import SystemClock
from lucius.domain.attempt import Failure, Verdict
from lucius.domain.inputs import Acked, CancelAsked, DeadlinePassed, Published, PublishFailed, Resulted
from lucius.domain.routing import LANE_TOPICS, Mode
from lucius.domain.time import Instant
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.bus import DeliveryRef, Message, Subscription
from lucius.ports.ledger import LedgerUnavailable, OutboxRow, Repairs
from lucius.ports.observer import Observer, Observers
from lucius.ports.registry import Globals, RegistrySnapshot, Tenant
from lucius.ports.workers import Sighting, WorkerKind
from lucius.telemetry import METRICS_CONTENT_TYPE, MetricsObserver
from lucius.telemetry.tenant_counts import TENANTS_MAX
from lucius.usecases.sightings import Sightings

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


class Shown:
    """What a scrape would see."""

    def __init__(self, metrics: MetricsObserver) -> None:
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.families: set[str] = set()
        for family in text_string_to_metric_families(metrics.render().decode()):
            self.families.add(f"{family.name}_total" if family.type == "counter" else family.name)
            for sample in family.samples:
                self.samples[sample.name, frozenset(sample.labels.items())] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def has(self, name: str, **labels: str) -> bool:
        return (name, frozenset(labels.items())) in self.samples


@pytest.fixture
def metrics() -> MetricsObserver:
    return MetricsObserver(SystemClock())


def told(metrics: MetricsObserver, changes: list[Any]) -> Shown:
    metrics.turn_done(len(changes), 0.002, changes)
    return Shown(metrics)


def test_every_metric_is_documented_and_nothing_else_is(metrics: MetricsObserver) -> None:
    documented = set(re.findall(r"^\| `(lucius_[a-z_]+)` ", DOCUMENT.read_text(), re.MULTILINE))
    shown = {name for name in Shown(metrics).families if not name.startswith("lucius_process_")}
    assert shown == documented
    assert all(name.startswith("lucius_") for name in Shown(metrics).families)
    assert "lucius_process_" in DOCUMENT.read_text()


def test_a_job_that_succeeds_is_counted_with_its_latencies(metrics: MetricsObserver, drive: Callable[..., Any]) -> None:
    job = drive().accept(1_000).tell(Published("ocr", 1), 1_200).tell(Acked("ocr", 1, "lease-1"), 1_500)
    job.tell(Resulted("ocr", 1, "lease-1", Verdict.SUCCEEDED), 3_500)
    shown = told(metrics, job.changes)
    assert shown("lucius_jobs_accepted_total") == 1
    assert shown("lucius_jobs_finished_total", outcome="SUCCEEDED") == 1
    assert shown("lucius_jobs_finished_total", outcome="FAILED_FINAL") == 0
    assert shown("lucius_job_seconds_sum", outcome="SUCCEEDED") == 2.5
    assert shown("lucius_attempts_total", step_type="OCR") == 1
    assert shown("lucius_dispatch_lag_seconds_sum") == 0.2
    assert shown("lucius_step_dispatch_to_ack_seconds_sum", step_type="OCR") == 0.3
    assert shown("lucius_step_ack_to_result_seconds_sum", step_type="OCR") == 2
    assert shown("lucius_step_dispatch_to_result_seconds_sum", step_type="OCR") == 2.3
    assert shown("lucius_step_start_to_success_seconds_count", step_type="OCR") == 1
    assert shown("lucius_step_ack_to_result_seconds_bucket", step_type="OCR", le="1.0") == 0
    assert shown("lucius_step_ack_to_result_seconds_bucket", step_type="OCR", le="2.5") == 1
    assert shown("lucius_step_ack_to_result_seconds_bucket", step_type="OCR", le="+Inf") == 1
    assert shown("lucius_turn_inputs_sum") == 4
    assert shown("lucius_turn_seconds_count") == 1


def test_retries_and_timeouts_are_counted_by_cause(metrics: MetricsObserver, drive: Callable[..., Any]) -> None:
    job = drive().accept().tell(PublishFailed("ocr", 1, "too large"), 2_000)
    job.tell(DeadlinePassed(), job.job.wake_at).tell(Published("ocr", 2), 50_000)
    job.tell(DeadlinePassed(still_queued=True), 80_000)
    job.tell(DeadlinePassed(), 110_000)
    job.tell(DeadlinePassed(), job.job.wake_at).tell(Acked("ocr", 3, "lease-3"), 500_000)
    job.tell(DeadlinePassed(), 500_000 + 900_000)
    shown = told(metrics, job.changes)
    assert shown("lucius_retries_total", cause="PUBLISH_FAILED") == 1
    assert shown("lucius_retries_total", cause="ACK_TIMEOUT") == 1
    assert shown("lucius_retries_total", cause="LEASE_EXPIRED") == 0, "there was no attempt left"
    assert shown("lucius_timeouts_total", kind="ACK_TIMEOUT") == 1
    assert shown("lucius_timeouts_total", kind="LEASE_EXPIRED") == 1
    assert shown("lucius_ack_deadlines_moved_total") == 1
    assert shown("lucius_dead_letters_total") == 1
    assert shown("lucius_jobs_finished_total", outcome="FAILED_FINAL") == 1
    assert shown("lucius_attempts_total", step_type="OCR") == 3


def test_results_that_failed_or_came_in_vain_are_told_apart(
    metrics: MetricsObserver, drive: Callable[..., Any]
) -> None:
    job = drive().accept().tell(Published("ocr", 1), 2_000)
    job.tell(Resulted("ocr", 1, "lease-1", Verdict.FAILED, error=Failure("E", "boom")), 3_000)
    job.tell(Resulted("ocr", 1, "lease-1", Verdict.FAILED), 3_100)
    job.tell(Resulted("ocr", 9, "other", Verdict.SUCCEEDED), 3_200)
    job.tell(DeadlinePassed(), job.job.wake_at)
    job.tell(Resulted("ocr", 2, "lease-2", Verdict.FAILED, rate_limited_seconds=5.0), 60_000)
    job.tell(CancelAsked("me"), 61_000)
    shown = told(metrics, job.changes)
    assert shown("lucius_retries_total", cause="STEP_FAILED") == 1
    assert shown("lucius_retries_total", cause="RATE_LIMITED") == 1
    assert shown("lucius_step_dispatch_to_result_seconds_count", step_type="OCR") == 2
    assert not shown.has("lucius_step_start_to_success_seconds_count", step_type="OCR")
    assert shown("lucius_jobs_finished_total", outcome="CANCELLED") == 1


def test_a_missed_job_deadline_is_a_timeout(metrics: MetricsObserver, drive: Callable[..., Any]) -> None:
    shown = told(metrics, drive(deadline_at=5_000).accept().tell(DeadlinePassed(), 5_000).changes)
    assert shown("lucius_timeouts_total", kind="DEADLINE_EXCEEDED") == 1


def test_tenants_of_the_registry_are_counted_by_name_and_all_others_together(drive: Callable[..., Any]) -> None:
    metrics = MetricsObserver(SystemClock(), lambda tenant_id: tenant_id == "acme")
    for tenant_id in ("acme", "unheard-of", "another"):
        job = drive(tenant_id=tenant_id).accept(1_000).tell(Published("ocr", 1), 1_200)
        job.tell(DeadlinePassed(), 60_000).tell(DeadlinePassed(), job.job.wake_at)
        job.tell(Resulted("ocr", 2, "lease-2", Verdict.SUCCEEDED), 201_000)
        metrics.turn_done(4, 0.002, job.changes)
        metrics.command_refused("TENANT_SATURATED", tenant_id)
    late = drive(tenant_id="acme", deadline_at=5_000).accept().tell(DeadlinePassed(), 5_000)
    metrics.turn_done(2, 0.002, late.changes)
    metrics.command_refused("ENVELOPE_INVALID")
    shown = Shown(metrics)
    for tenant, count in (("acme", 1), ("other", 2)):
        assert shown("lucius_tenant_jobs_finished_total", tenant=tenant, outcome="SUCCEEDED") == count
        assert shown("lucius_tenant_retries_total", tenant=tenant) == count
    assert shown("lucius_tenant_jobs_accepted_total", tenant="acme") == 2
    assert shown("lucius_tenant_jobs_finished_total", tenant="acme", outcome="FAILED_FINAL") == 1
    assert shown("lucius_tenant_job_seconds_total", tenant="acme") == 200 + 4
    assert shown("lucius_tenant_timeouts_total", tenant="acme") == 2
    assert shown("lucius_tenant_commands_refused_total", tenant="acme") == 1
    assert shown("lucius_tenant_commands_refused_total", tenant="other") == 3
    assert not shown.has("lucius_tenant_jobs_accepted_total", tenant="unheard-of")


def test_tenants_with_series_of_their_own_are_bounded() -> None:
    metrics = MetricsObserver(SystemClock(), lambda tenant_id: True)
    for number in range(TENANTS_MAX + 7):
        metrics.command_refused("TENANT_SATURATED", f"tenant-{number}")
    shown = Shown(metrics)
    assert shown("lucius_tenant_commands_refused_total", tenant="other") == 7
    assert sum(name == "lucius_tenant_commands_refused_total" for name, _ in shown.samples) == TENANTS_MAX + 1


def test_operations_are_counted(metrics: MetricsObserver) -> None:
    observer = Observers(metrics)
    observer.operation_moved("019a", "redrive", "STOPPED", "Stopped after 5 of 200 jobs.")
    observer.operation_acted("redrive", "FAILED")
    shown = Shown(metrics)
    assert shown("lucius_operations_total", action="redrive", status="STOPPED") == 1
    assert shown("lucius_operation_jobs_total", action="redrive", outcome="FAILED") == 1


SEEDS = (
    "lucius_jobs_accepted_total", "lucius_jobs_finished_total", "lucius_step_dispatch_to_ack_seconds",
    "lucius_step_ack_to_result_seconds", "lucius_retries_total", "lucius_timeouts_total", "lucius_attempts_total",
    "lucius_dead_letters_total", "lucius_dispatch_lag_seconds", "lucius_outbox_backlog", "lucius_sweeper_actions_total",
)  # fmt: skip


def test_what_the_seeds_ask_for_is_there(metrics: MetricsObserver) -> None:
    assert Shown(metrics).families >= set(SEEDS)


def test_every_hook_is_counted(metrics: MetricsObserver) -> None:
    metrics.command_refused("TENANT_SATURATED")
    for outcome in ("STALE_ATTEMPT", "LATE", "DUPLICATE", "FORGED", "FORGED"):
        metrics.callback_answered("RESULT", outcome)
    metrics.dispatched(7, 0.5)
    metrics.circuit_changed(True, "gone")
    metrics.swept("deadline", 3)
    metrics.repaired(Repairs(1, 2, 3))
    metrics.webhook_called("given_up")
    for number in range(3):
        metrics.failed(f"job {number}", ValueError())
    metrics.failed("turn, now written item by item", ValueError())
    shown = Shown(metrics)
    assert shown("lucius_commands_refused_total", code="TENANT_SATURATED") == 1
    assert shown("lucius_callbacks_total", kind="RESULT", outcome="FORGED") == 2
    assert shown("lucius_callbacks_total", kind="RESULT", outcome="LATE") == 1
    assert shown("lucius_dispatch_batch_size_sum") == 7
    assert shown("lucius_circuit_open") == 1
    assert shown("lucius_sweeper_actions_total", kind="deadline") == 3
    assert [shown("lucius_repairs_total", kind=kind) for kind in ("slots", "wake_ups", "outbox")] == [1, 2, 3]
    assert shown("lucius_webhooks_total", outcome="given_up") == 1
    assert shown("lucius_failures_total", what="job") == 3, "a job's id is no label"
    assert shown("lucius_failures_total", what="turn") == 1
    metrics.circuit_changed(False, "back")
    assert Shown(metrics)("lucius_circuit_open") == 0


class NoWorkers:
    """Only what this process sees is shown."""

    async def write(self, sightings: Sequence[Sighting]) -> None:
        raise NotImplementedError

    async def newest(self, limit: int) -> list[Sighting]:
        raise NotImplementedError

    async def forget(self, seen_before: Instant, kept_max: int) -> int:
        raise NotImplementedError


def snapshot_of(*tenants: Tenant) -> RegistrySnapshot:
    settings = Globals(max_inflight=50, max_inflight_per_tenant=10, max_inflight_per_mode={Mode.BURST: 20})
    return RegistrySnapshot("v", {}, {}, {tenant.id: tenant for tenant in tenants}, settings)


async def test_gauges_show_what_ledger_and_bus_hold(metrics: MetricsObserver, drive: Callable[..., Any]) -> None:
    clock = SystemClock()
    ledger, bus = MemoryLedger(), MemoryBus(clock)
    now = clock.now()
    await ledger.commit(drive(created_at=now, deadline_at=now + 10**9).accept(now - 4_000).changes)
    await bus.declare([Subscription(topic=LANE_TOPICS[3], name="ocr")])
    await bus.publish([Message(id="1", topic=LANE_TOPICS[3], body=b"{}", properties={})])
    await bus.declare([Subscription(topic="orchestrator-events", name="orchestrator")])
    await bus.publish([Message(id="2", topic="orchestrator-events", body=b"{}", properties={})])
    await bus.dead_letter([DeliveryRef("orchestrator-events", "orchestrator", "2")], "broken")
    sightings = Sightings(NoWorkers(), clock, Observer())
    sightings.saw(WorkerKind.SERVICE, "ocr", "scanner-1")
    sightings.saw(WorkerKind.SERVICE, "ocr", "scanner-2")
    snapshot = snapshot_of(Tenant(id="acme", max_inflight=5), Tenant(id="idle"))
    await metrics.collect(ledger, bus, snapshot, sightings=sightings)
    shown = Shown(metrics)
    assert shown("lucius_runbook_dead_messages", topic="orchestrator-events", subscription="orchestrator") == 1
    assert not shown.has("lucius_runbook_dead_messages", topic="global-bus-p3", subscription="ocr")
    assert shown("lucius_outbox_backlog") == 1
    assert 4 <= shown("lucius_outbox_oldest_seconds") < 60
    assert shown("lucius_lane_depth", lane="global-bus-p3", service="ocr", state="ready") == 1
    assert shown("lucius_lane_depth", lane="global-bus-p3", service="ocr", state="dead") == 0
    assert shown.has("lucius_lane_oldest_seconds", lane="global-bus-p3", service="ocr")
    assert shown("lucius_lane_redelivered", lane="global-bus-p3", service="ocr") == 0
    assert shown("lucius_lane_consumers", service="ocr") == 2
    (job,) = [row for row in await ledger.outbox(10) if isinstance(row, OutboxRow)]
    lane = LANE_TOPICS[job.routing.lane]
    assert shown("lucius_lane_unsent", lane=lane, service=job.service, waits_for="bus") == 1
    assert shown("lucius_lane_unsent", lane=lane, service=job.service, waits_for="tenant_cap") == 0
    assert shown("lucius_inflight", scope="global") == 1
    assert shown("lucius_inflight_limit", scope="global") == 50
    assert shown("lucius_inflight_limit", scope="mode:BURST") == 20
    assert not shown.has("lucius_inflight_limit", scope="mode:DEFAULT")
    assert shown("lucius_inflight", scope="tenant:acme") == 1
    assert shown("lucius_inflight_limit", scope="tenant:acme") == 5
    assert shown("lucius_inflight_limit", scope="tenant:idle") == 10


async def test_a_tenant_that_the_registry_does_not_name_is_no_label(
    metrics: MetricsObserver, drive: Callable[..., Any]
) -> None:
    ledger = MemoryLedger()
    await ledger.commit(drive().accept().changes)
    await metrics.collect(ledger, MemoryBus(SystemClock()), snapshot_of())
    assert b"acme" not in metrics.render()


class _BrokenLedger(MemoryLedger):
    calls = 0

    async def outbox(self, limit: int) -> Any:
        self.calls += 1
        raise LedgerUnavailable("gone")


async def test_a_ledger_out_of_reach_costs_its_gauges_and_nothing_else(metrics: MetricsObserver) -> None:
    ledger, bus = _BrokenLedger(), MemoryBus(SystemClock())
    for _ in range(3):
        await metrics.collect(ledger, bus, snapshot_of())
    shown = Shown(metrics)
    assert ledger.calls == 1, "however often metrics are asked for, the ledger is asked once a second"
    assert not shown.has("lucius_outbox_backlog")
    assert shown("lucius_inflight", scope="global") == 0
    assert shown("lucius_failures_total", what="metrics:outbox") == 1
    assert METRICS_CONTENT_TYPE.startswith("text/plain")
